//! Bounds the validation of field merging (GraphQL specification, section 5.3.2).
//!
//! Validation merges the selections on an interface with those of each object type beside it, at
//! every level again: three types and fifteen levels make 14 million selection sets of a document
//! of 1 kB. This module does the same walk first, within a budget. It also finds arguments whose
//! lists differ in length only, which validation takes for equal.

use apollo_compiler::Schema;
use apollo_compiler::ast::Value;
use apollo_compiler::collections::{HashSet, IndexMap};
use apollo_compiler::executable::{ExecutableDocument, Field, Selection, SelectionSet};
use apollo_compiler::schema::ExtendedType;
use apollo_compiler::{Name, Node};

use crate::error::Problem;

/// Reason why the walk ended early.
pub(crate) enum MergeStop {
    /// The work exceeds the budget.
    Budget,
    /// Two fields that cannot be merged.
    Conflict(Problem),
}

/// Checks all operations of a document. The document need not be valid, but has no cycles of
/// fragments and is of bounded depth ([`crate::limits`]). `budget` is the number of fields that may
/// be visited.
pub(crate) fn check_merging(
    document: &ExecutableDocument,
    schema: &Schema,
    budget: usize,
) -> Result<(), MergeStop> {
    let mut merge = MergeCheck { document, schema, budget };
    for operation in document.operations.iter() {
        let fields = merge.collect_fields(std::iter::once(&operation.selection_set));
        merge.check_level(&fields)?;
    }
    Ok(())
}

struct MergeCheck<'a> {
    document: &'a ExecutableDocument,
    schema: &'a Schema,
    budget: usize,
}

/// A field, and the type that it is selected on.
type SelectedField<'a> = (&'a Name, &'a Node<Field>);

impl<'a> MergeCheck<'a> {
    fn charge_budget(&mut self, cost: usize) -> Result<(), MergeStop> {
        self.budget = self.budget.checked_sub(cost).ok_or(MergeStop::Budget)?;
        Ok(())
    }

    /// Collects the fields of selection sets with their fragments, each fragment once.
    fn collect_fields(
        &self,
        sets: impl Iterator<Item = &'a SelectionSet>,
    ) -> Vec<SelectedField<'a>> {
        let mut fields = Vec::new();
        let mut seen = HashSet::default();
        let mut sets: Vec<_> = sets.collect();
        while let Some(set) = sets.pop() {
            for selection in &set.selections {
                match selection {
                    Selection::Field(field) => fields.push((&set.ty, field)),
                    Selection::InlineFragment(fragment) => sets.push(&fragment.selection_set),
                    Selection::FragmentSpread(spread) => {
                        if let Some(fragment) = self.document.fragments.get(&spread.fragment_name)
                            && seen.insert(&spread.fragment_name)
                        {
                            sets.push(&fragment.selection_set);
                        }
                    }
                }
            }
        }
        fields
    }

    fn check_level(&mut self, fields: &[SelectedField<'a>]) -> Result<(), MergeStop> {
        self.charge_budget(fields.len())?;
        let mut by_key: IndexMap<&Name, Vec<SelectedField<'a>>> = IndexMap::default();
        for &(ty, field) in fields {
            by_key.entry(field.response_key()).or_default().push((ty, field));
        }
        for fields in by_key.into_values() {
            let mut on_abstract = Vec::new();
            let mut on_object: IndexMap<&Name, Vec<SelectedField<'a>>> = IndexMap::default();
            for (ty, field) in fields {
                match self.schema.types.get(ty) {
                    Some(ExtendedType::Object(_)) => {
                        on_object.entry(ty).or_default().push((ty, field));
                    }
                    _ => on_abstract.push((ty, field)),
                }
            }
            if on_object.is_empty() {
                self.check_group(&on_abstract)?;
            }
            for mut group in on_object.into_values() {
                self.charge_budget(on_abstract.len())?;
                group.extend_from_slice(&on_abstract);
                self.check_group(&group)?;
            }
        }
        Ok(())
    }

    /// Checks fields that are merged into one.
    fn check_group(&mut self, fields: &[SelectedField<'a>]) -> Result<(), MergeStop> {
        if let Some(((_, first), rest)) = fields.split_first() {
            for (_, field) in rest {
                self.compare_fields(first, field)?;
            }
        }
        let sets = fields.iter().map(|(_, field)| &field.selection_set);
        let below = self.collect_fields(sets.filter(|set| !set.selections.is_empty()));
        if below.is_empty() { Ok(()) } else { self.check_level(&below) }
    }

    fn compare_fields(
        &mut self,
        first: &Node<Field>,
        other: &Node<Field>,
    ) -> Result<(), MergeStop> {
        if first.ptr_eq(other) || first.name != other.name {
            return Ok(());
        }
        for argument in &first.arguments {
            let same = other.arguments.iter().find(|it| it.name == argument.name);
            if let Some(same) = same
                && self.lists_differ_in_length(&argument.value, &same.value)?
            {
                return Err(MergeStop::Conflict(Problem::at(
                    format!(
                        "cannot merge two fields `{}`: argument `{}` has different values; use an alias",
                        first.response_key(),
                        argument.name
                    ),
                    other.location(),
                    &self.document.sources,
                )));
            }
        }
        Ok(())
    }

    fn lists_differ_in_length(&mut self, left: &Value, right: &Value) -> Result<bool, MergeStop> {
        self.charge_budget(1)?;
        match (left, right) {
            (Value::List(left), Value::List(right)) => {
                if left.len() != right.len() {
                    return Ok(true);
                }
                for (left, right) in left.iter().zip(right) {
                    if self.lists_differ_in_length(left, right)? {
                        return Ok(true);
                    }
                }
            }
            (Value::Object(left), Value::Object(right)) => {
                for (index, (key, left)) in left.iter().enumerate() {
                    // Most objects are written in the same order.
                    let beside = right.get(index).filter(|(other, _)| other == key);
                    if beside.is_none() {
                        self.charge_budget(right.len())?;
                    }
                    let same = beside.or_else(|| right.iter().find(|(other, _)| other == key));
                    if let Some((_, right)) = same
                        && self.lists_differ_in_length(left, right)?
                    {
                        return Ok(true);
                    }
                }
            }
            _ => {}
        }
        Ok(false)
    }
}
