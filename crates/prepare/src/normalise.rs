//! Converts a validated document to the normalised operation of `plan`: fragments are inlined,
//! conditions pushed down to the fields they guard and not repeated below them, equal fields
//! merged, and type conditions without effect dropped. [`crate::limits`] bounds size and depth
//! before.

use std::collections::{HashMap, HashSet};

use apollo_compiler::ast::{Type, Value as AstValue};
use apollo_compiler::executable::{self, ExecutableDocument};
use graph::{Supergraph, TypeId};
use plan::{
    Condition, Field, FieldTarget, Fragment, Operation, OperationKind, Selection, SelectionSet,
    Value, Variable, VariableId,
};

use crate::PrepareError;
use crate::input_types::InputTypes;

/// Normalises `operation` of `document`, which is valid for the API schema of `graph`.
///
/// The variables keep the types that the client declared.
///
/// # Errors
/// [`PrepareError::Plan`] for unsupported features, [`PrepareError::Internal`] for defects.
pub(crate) fn normalise(
    graph: &Supergraph,
    types: &InputTypes,
    document: &ExecutableDocument,
    operation: &executable::Operation,
) -> Result<Operation, PrepareError> {
    let kind = match operation.operation_type {
        executable::OperationType::Query => OperationKind::Query,
        executable::OperationType::Mutation => OperationKind::Mutation,
        executable::OperationType::Subscription => OperationKind::Subscription,
    };
    let root = match kind {
        OperationKind::Query => Some(graph.query),
        OperationKind::Mutation => graph.mutation,
        OperationKind::Subscription => graph.subscription,
    };
    let root = root.ok_or_else(|| internal("the operation's root type is not in the model"))?;
    if operation.variables.len() > usize::from(u16::MAX) {
        return Err(unsupported("more than 65,535 variables are not supported"));
    }
    let ids = (0..=u16::MAX).map(VariableId);
    let names = operation.variables.iter().map(|variable| variable.name.as_str());
    let normaliser = Normaliser { graph, types, document, variables: names.zip(ids).collect() };
    let source = SelectionSource {
        selection_set: &operation.selection_set,
        condition: Condition::default(),
    };
    Ok(Operation {
        kind,
        name: operation.name.as_ref().map(|name| name.as_str().into()),
        variables: operation
            .variables
            .iter()
            .map(|variable| Variable {
                name: variable.name.as_str().into(),
                ty: variable.ty.to_string().into(),
            })
            .collect(),
        selection_set: normaliser.merge_selections(
            &[source],
            SelectionContext { on: root, is_root: true, guard: &Condition::default() },
        )?,
        denied: Default::default(),
    })
}

/// The context of a selection set.
#[derive(Clone, Copy)]
struct SelectionContext<'g> {
    on: TypeId,
    /// True for the root selection set of the operation.
    is_root: bool,
    /// The conditions of the fields further up. They hold here and need not be repeated.
    guard: &'g Condition,
}

/// A selection set of the document, and the condition under which it applies.
struct SelectionSource<'a> {
    selection_set: &'a executable::SelectionSet,
    condition: Condition,
}

struct Normaliser<'a> {
    graph: &'a Supergraph,
    types: &'a InputTypes,
    document: &'a ExecutableDocument,
    variables: HashMap<&'a str, VariableId>,
}

/// Selections of one type that are being merged, in the order first seen.
enum MergeEntry<'a> {
    Field {
        field: &'a executable::Field,
        target: FieldTarget,
        condition: Condition,
        below: Vec<SelectionSource<'a>>,
    },
    Fragment {
        on: TypeId,
        inside: Vec<SelectionSource<'a>>,
    },
}

#[derive(PartialEq, Eq, Hash)]
enum MergeKey<'a> {
    Field(&'a str, Condition),
    Fragment(TypeId),
}

impl<'a> Normaliser<'a> {
    /// Merges all `sources` into one selection set on `on`.
    fn merge_selections(
        &self,
        sources: &[SelectionSource<'a>],
        context: SelectionContext<'_>,
    ) -> Result<SelectionSet, PrepareError> {
        let mut entries = MergeEntries { list: Vec::new(), index: HashMap::new() };
        for source in sources {
            self.collect_selections(
                source.selection_set,
                &source.condition,
                context,
                &mut entries,
            )?;
        }
        entries.drop_implied_leaves();
        let mut items = Vec::with_capacity(entries.list.len());
        for entry in entries.list {
            match entry {
                MergeEntry::Field { field, target, condition, below } => {
                    items.push(Selection::Field(
                        self.normalise_field(field, target, condition, &below, context)?,
                    ));
                }
                MergeEntry::Fragment { on, inside } => {
                    let selection_set =
                        self.merge_selections(&inside, SelectionContext { on, ..context })?;
                    if !selection_set.items.is_empty() {
                        let condition = Condition::default();
                        items.push(Selection::Fragment(Fragment { on, condition, selection_set }));
                    }
                }
            }
        }
        Ok(SelectionSet { on: context.on, items })
    }

    fn collect_selections(
        &self,
        selection_set: &'a executable::SelectionSet,
        outer: &Condition,
        context: SelectionContext<'_>,
        entries: &mut MergeEntries<'a>,
    ) -> Result<(), PrepareError> {
        for selection in &selection_set.selections {
            let Some(condition) =
                self.combine_conditions(outer, selection.directives(), context.guard)?
            else {
                continue;
            };
            match selection {
                executable::Selection::Field(field) => {
                    let target = self.resolve_target(field, context)?;
                    let below = SelectionSource {
                        selection_set: &field.selection_set,
                        condition: Condition::default(),
                    };
                    entries.add_field(field, target, condition, below);
                }
                executable::Selection::InlineFragment(fragment) => {
                    let inside = &fragment.selection_set;
                    self.collect_fragment(
                        fragment.type_condition.as_deref(),
                        inside,
                        condition,
                        context,
                        entries,
                    )?;
                }
                executable::Selection::FragmentSpread(spread) => {
                    let fragment =
                        self.document.fragments.get(&spread.fragment_name).ok_or_else(|| {
                            internal("a validated document names an unknown fragment")
                        })?;
                    let narrowed = Some(fragment.type_condition().as_str());
                    self.collect_fragment(
                        narrowed,
                        &fragment.selection_set,
                        condition,
                        context,
                        entries,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Flattens a fragment whose type condition has no effect on `on`, drops one that never
    /// applies, and keeps the others.
    fn collect_fragment(
        &self,
        narrowed: Option<&str>,
        inside: &'a executable::SelectionSet,
        condition: Condition,
        context: SelectionContext<'_>,
        entries: &mut MergeEntries<'a>,
    ) -> Result<(), PrepareError> {
        let on = context.on;
        let target = match narrowed {
            None => on,
            Some(name) => self
                .graph
                .type_named(name)
                .ok_or_else(|| internal("a validated document names an unknown type"))?,
        };
        let outer = self.graph.ty(on);
        if target == on || outer.implements.contains(&target) {
            return self.collect_selections(inside, &condition, context, entries);
        }
        let narrower = &self.graph.ty(target).possible;
        let applicable = |ty: &TypeId| narrower.contains(ty);
        if outer.possible.len() == 1 && outer.possible[0] == on {
            // An object type inside a union or an interface that it does not name: the fields are
            // looked up on the object type itself.
            if applicable(&on) {
                self.collect_selections(inside, &condition, context, entries)?;
            }
            return Ok(());
        }
        if outer.possible.iter().any(applicable) {
            entries.add_fragment(
                self.graph,
                target,
                SelectionSource { selection_set: inside, condition },
            );
        }
        Ok(())
    }

    fn resolve_target(
        &self,
        field: &executable::Field,
        context: SelectionContext<'_>,
    ) -> Result<FieldTarget, PrepareError> {
        let on = context.on;
        match field.name.as_str() {
            "__typename" => Ok(FieldTarget::Typename),
            "__schema" | "__type" if context.is_root => Ok(FieldTarget::Introspection),
            // The query root can also be the type of an ordinary field.
            name @ ("__schema" | "__type") => {
                Err(unsupported(&format!("`{name}` is supported at the root of a query only")))
            }
            name => self.graph.field_named(on, name).map(FieldTarget::Field).ok_or_else(|| {
                internal(&format!("field {}.{name} is not in the model", self.graph.ty(on).name))
            }),
        }
    }

    fn normalise_field(
        &self,
        field: &executable::Field,
        target: FieldTarget,
        condition: Condition,
        below: &[SelectionSource<'a>],
        at: SelectionContext<'_>,
    ) -> Result<Field, PrepareError> {
        let mut arguments = Vec::new();
        let mut selection_set = None;
        if let FieldTarget::Field(id) = target {
            for argument in &field.arguments {
                let definition = field.definition.argument_by_name(&argument.name);
                let definition =
                    definition.ok_or_else(|| internal("a validated argument is not defined"))?;
                let value = self.normalise_value(&argument.value, Some(&definition.ty))?;
                arguments.push((argument.name.as_str().into(), value));
            }
            let ty = self.graph.field(id).ty.named();
            if self.graph.ty(ty).kind.is_composite() {
                let mut guard = at.guard.clone();
                guard.all.extend(condition.all.iter().copied());
                guard.all.sort_unstable();
                let context = SelectionContext { on: ty, is_root: false, guard: &guard };
                selection_set = Some(self.merge_selections(below, context)?);
            }
        }
        Ok(Field {
            response_key: field.response_key().as_str().into(),
            target,
            arguments,
            condition,
            selection_set,
        })
    }

    /// Converts a literal, coerced to `ty` if the type is known: single values become lists of one,
    /// integers for `ID` become strings. Canonical forms make equal operations equal.
    fn normalise_value(&self, value: &AstValue, ty: Option<&Type>) -> Result<Value, PrepareError> {
        let list_item = match ty {
            Some(Type::List(item) | Type::NonNullList(item)) => Some(&**item),
            _ => None,
        };
        Ok(match value {
            AstValue::Variable(name) => {
                let id = self.variables.get(name.as_str());
                Value::Variable(
                    *id.ok_or_else(|| internal("a validated variable is not declared"))?,
                )
            }
            AstValue::Null => Value::Null,
            AstValue::List(items) => {
                let items = items.iter().map(|item| self.normalise_value(item, list_item));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            single if list_item.is_some() => {
                Value::List(vec![self.normalise_value(single, list_item)?])
            }
            AstValue::Boolean(it) => Value::Boolean(*it),
            AstValue::Enum(it) => Value::Enum(it.as_str().into()),
            AstValue::String(it) => Value::String(it.as_str().into()),
            AstValue::Float(it) => Value::Float(it.as_str().into()),
            AstValue::Int(it) => {
                let id = ty.is_some_and(|ty| self.types.is_id(ty.inner_named_type()));
                if id { Value::String(it.as_str().into()) } else { Value::Int(it.as_str().into()) }
            }
            AstValue::Object(members) => {
                let object = ty.map(|ty| ty.inner_named_type().as_str());
                let members = members.iter().map(|(key, value)| {
                    let field = object.and_then(|object| self.types.field(object, key));
                    Ok((key.as_str().into(), self.normalise_value(value, field.map(|it| &*it.ty))?))
                });
                Value::Object(members.collect::<Result<_, PrepareError>>()?)
            }
        })
    }

    /// Combines `outer` with the `@skip` and `@include` of one selection, without the part that
    /// `guard` contains. `None` if the selection never applies.
    fn combine_conditions(
        &self,
        outer: &Condition,
        directives: &executable::DirectiveList,
        guard: &Condition,
    ) -> Result<Option<Condition>, PrepareError> {
        let mut condition = outer.clone();
        for (name, wanted) in [("skip", false), ("include", true)] {
            for directive in directives.get_all(name) {
                match directive.specified_argument_by_name("if").map(|value| &**value) {
                    Some(AstValue::Boolean(value)) if *value == wanted => {}
                    Some(AstValue::Boolean(_)) => return Ok(None),
                    Some(AstValue::Variable(variable)) => {
                        let id = self.variables.get(variable.as_str());
                        let id =
                            *id.ok_or_else(|| internal("a validated variable is not declared"))?;
                        let known = guard.all.iter().find(|(known, _)| *known == id);
                        match condition.all.binary_search_by_key(&id, |(id, _)| *id) {
                            _ if known.is_some_and(|(_, value)| *value != wanted) => {
                                return Ok(None);
                            }
                            _ if known.is_some() => {}
                            Ok(at) if condition.all[at].1 != wanted => return Ok(None),
                            Ok(_) => {}
                            Err(at) => condition.all.insert(at, (id, wanted)),
                        }
                    }
                    _ => return Err(internal("a validated condition is not a boolean")),
                }
            }
        }
        Ok(Some(condition))
    }
}

struct MergeEntries<'a> {
    list: Vec<MergeEntry<'a>>,
    index: HashMap<MergeKey<'a>, usize>,
}

impl<'a> MergeEntries<'a> {
    fn add_field(
        &mut self,
        field: &'a executable::Field,
        target: FieldTarget,
        condition: Condition,
        source: SelectionSource<'a>,
    ) {
        let response_key = field.response_key().as_str();
        let key = MergeKey::Field(response_key, condition.clone());
        if let Some(&at) = self.index.get(&key) {
            // Selections below must not come before those of other fields under the same key.
            let between = &self.list[at + 1..];
            let is_other = |entry: &MergeEntry<'_>| match entry {
                MergeEntry::Field { field, .. } => field.response_key().as_str() != response_key,
                MergeEntry::Fragment { .. } => false,
            };
            let is_leaf = field.selection_set.is_empty();
            if (is_leaf || (between.len() <= BETWEEN_MAX && between.iter().all(is_other)))
                && let MergeEntry::Field { below, .. } = &mut self.list[at]
            {
                below.push(source);
                return;
            }
        }
        self.index.insert(key, self.list.len());
        self.list.push(MergeEntry::Field { field, target, condition, below: vec![source] });
    }

    /// Merges a fragment with an earlier one on the same type, unless a selection between them
    /// applies to the same objects: then its fields would come too early in the response.
    fn add_fragment(&mut self, graph: &Supergraph, on: TypeId, source: SelectionSource<'a>) {
        let key = MergeKey::Fragment(on);
        let possible = &graph.ty(on).possible;
        if let Some(&at) = self.index.get(&key) {
            let is_disjoint = |entry: &MergeEntry<'_>| match entry {
                MergeEntry::Field { .. } => false,
                MergeEntry::Fragment { on, .. } => {
                    !graph.ty(*on).possible.iter().any(|ty| possible.contains(ty))
                }
            };
            let between = &self.list[at + 1..];
            // The search does not go farther back, so that it stays linear in the document.
            if between.len() <= BETWEEN_MAX
                && between.iter().all(is_disjoint)
                && let MergeEntry::Fragment { inside, .. } = &mut self.list[at]
            {
                inside.push(source);
                return;
            }
        }
        self.index.insert(key, self.list.len());
        self.list.push(MergeEntry::Fragment { on, inside: vec![source] });
    }

    /// Drops a leaf under a condition if the same leaf is also selected unconditionally, unless the
    /// conditional one comes first and another selection is between them: then the condition
    /// decides the position of the leaf.
    fn drop_implied_leaves(&mut self) {
        let leaf = |entry: &MergeEntry<'a>| match entry {
            MergeEntry::Field { field, condition, .. } if field.selection_set.is_empty() => {
                Some((field.response_key().as_str(), condition.is_always()))
            }
            _ => None,
        };
        let mut last: Option<&str> = None;
        let mut always: HashSet<&str> = HashSet::new();
        let mut kept: Vec<MergeEntry<'a>> = Vec::with_capacity(self.list.len());
        for entry in self.list.drain(..) {
            let Some((key, is_always)) = leaf(&entry) else {
                last = None;
                kept.push(entry);
                continue;
            };
            if always.contains(key) {
                continue;
            }
            if is_always {
                always.insert(key);
                if last == Some(key) {
                    // The conditions of the leaves directly before it have no effect.
                    while kept.last().and_then(leaf).is_some_and(|(known, _)| known == key) {
                        kept.pop();
                    }
                }
            }
            last = Some(key);
            kept.push(entry);
        }
        self.list = kept;
    }
}

/// Maximum distance over which a selection is merged with an earlier one: more than people write
/// side by side.
const BETWEEN_MAX: usize = 64;

fn unsupported(message: &str) -> PrepareError {
    PrepareError::Plan(plan::PlanError::NotSupported(message.to_owned()))
}

fn internal(message: &str) -> PrepareError {
    PrepareError::Internal(format!("{message}; please report this"))
}
