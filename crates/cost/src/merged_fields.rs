//! The fields that a selection selects on one object type, merged by response key as execution merges them.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use graph::{FieldId, Supergraph, TypeId};
use plan::{Condition, Field, FieldTarget, Selection, SelectionSet};

/// A selection that applies under a condition.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) condition: Condition,
    pub(crate) selections: Selections<'a>,
}

/// A selection set, compared by its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selections<'a>(pub(crate) &'a SelectionSet);

impl PartialEq for Selections<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Selections<'_> {}

impl Hash for Selections<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.0).hash(state);
    }
}

impl<'a> Source<'a> {
    /// Creates the source of a whole operation.
    pub(crate) fn root(selections: &'a SelectionSet) -> Vec<Self> {
        vec![Self { condition: Condition::default(), selections: Selections(selections) }]
    }
}

/// A field of an object type with everything that is selected under its response key.
pub(crate) struct MergedField<'a> {
    /// The first selection of the field, which has the arguments of all.
    pub(crate) field: &'a Field,
    /// The field of the object type.
    pub(crate) definition: FieldId,
    /// The field as it is selected: of the object type or of an interface.
    pub(crate) selected: FieldId,
    /// The field is present if any of these conditions holds, or always if there are none.
    pub(crate) any_of: Vec<Condition>,
    /// The selections below.
    pub(crate) below: Vec<Source<'a>>,
}

/// Returns the fields that `sources` select on objects of type `ty`. Introspection and `__typename` are left out.
/// `visited` grows by the number of selections that were looked at.
pub(crate) fn merge_fields<'a>(
    graph: &Supergraph,
    ty: TypeId,
    sources: &[Source<'a>],
    visited: &mut usize,
) -> Vec<MergedField<'a>> {
    let mut merger = Merger { graph, ty, fields: Vec::new(), by_key: HashMap::new(), visited };
    for source in sources {
        merger.add_selections(source.selections.0, &source.condition);
    }
    let mut fields = merger.fields;
    for field in &mut fields {
        if field.any_of.iter().any(Condition::is_always) {
            field.any_of.clear();
        }
        // The condition of the field's only selection need not be checked again below it.
        if let [only] = &mut field.below[..]
            && field.any_of.len() <= 1
        {
            only.condition = Condition::default();
        }
    }
    fields
}

struct Merger<'a, 'g> {
    graph: &'g Supergraph,
    ty: TypeId,
    fields: Vec<MergedField<'a>>,
    by_key: HashMap<&'a str, usize>,
    visited: &'g mut usize,
}

impl<'a> Merger<'a, '_> {
    // Recursion is bounded by the depth of operations.
    fn add_selections(&mut self, set: &'a SelectionSet, outer: &Condition) {
        *self.visited += set.items.len();
        for item in &set.items {
            match item {
                Selection::Fragment(fragment) => {
                    let applies = fragment.on == self.ty
                        || self.graph.ty(fragment.on).possible.contains(&self.ty);
                    if applies && let Some(condition) = both(outer, &fragment.condition) {
                        self.add_selections(&fragment.selection_set, &condition);
                    }
                }
                Selection::Field(field) => {
                    if let Some(condition) = both(outer, &field.condition) {
                        self.add_field(field, condition);
                    }
                }
            }
        }
    }

    fn add_field(&mut self, field: &'a Field, condition: Condition) {
        let FieldTarget::Field(selected) = field.target else { return };
        let below = field
            .selection_set
            .as_ref()
            .map(|below| Source { condition: condition.clone(), selections: Selections(below) });
        if let Some(&known) = self.by_key.get(&*field.response_key) {
            let known = &mut self.fields[known];
            if !known.any_of.contains(&condition) {
                known.any_of.push(condition);
            }
            known.below.extend(below);
            return;
        }
        let definition = self.graph.field(selected);
        let own = match definition.parent == self.ty {
            true => Some(selected),
            false => self.graph.field_named(self.ty, &definition.name),
        };
        self.by_key.insert(&field.response_key, self.fields.len());
        self.fields.push(MergedField {
            field,
            definition: own.unwrap_or(selected),
            selected,
            any_of: vec![condition],
            below: below.into_iter().collect(),
        });
    }
}

/// Returns the conjunction of two conditions; `None` if it never holds.
fn both(left: &Condition, right: &Condition) -> Option<Condition> {
    if right.is_always() {
        return Some(left.clone());
    }
    let mut all = left.all.clone();
    for &(variable, wanted) in &right.all {
        match all.binary_search_by_key(&variable, |(known, _)| *known) {
            Ok(at) if all[at].1 != wanted => return None,
            Ok(_) => {}
            Err(at) => all.insert(at, (variable, wanted)),
        }
    }
    Some(Condition { all })
}
