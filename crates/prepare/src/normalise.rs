//! A validated document becomes the normalised operation of `plan`: fragments inlined, conditions
//! pushed down to the fields they guard and not repeated below them, equal fields merged, type
//! conditions that change nothing dropped. Size and depth are bounded by [`crate::limits`] before.

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
/// [`PrepareError::Plan`] for what is not supported, [`PrepareError::Internal`] for defects.
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
    let source =
        Source { selection_set: &operation.selection_set, condition: Condition::default() };
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
        selection_set: normaliser.selection_set(
            &[source],
            Place { on: root, is_root: true, guard: &Condition::default() },
        )?,
    })
}

/// Where selections stand.
#[derive(Clone, Copy)]
struct Place<'g> {
    on: TypeId,
    /// Directly in the operation.
    is_root: bool,
    /// What holds here because of the fields further up: nobody needs to say it again.
    guard: &'g Condition,
}

/// A selection set of the document and what must hold for it.
struct Source<'a> {
    selection_set: &'a executable::SelectionSet,
    condition: Condition,
}

struct Normaliser<'a> {
    graph: &'a Supergraph,
    types: &'a InputTypes,
    document: &'a ExecutableDocument,
    variables: HashMap<&'a str, VariableId>,
}

/// Selections of one type on their way to being merged, in the order first seen.
enum Entry<'a> {
    Field {
        field: &'a executable::Field,
        target: FieldTarget,
        condition: Condition,
        below: Vec<Source<'a>>,
    },
    Fragment {
        on: TypeId,
        inside: Vec<Source<'a>>,
    },
}

#[derive(PartialEq, Eq, Hash)]
enum EntryKey<'a> {
    Field(&'a str, Condition),
    Fragment(TypeId),
}

impl<'a> Normaliser<'a> {
    /// Merges all `sources` into one selection set on `on`.
    fn selection_set(
        &self,
        sources: &[Source<'a>],
        place: Place<'_>,
    ) -> Result<SelectionSet, PrepareError> {
        let mut entries = Entries { list: Vec::new(), index: HashMap::new() };
        for source in sources {
            self.collect(source.selection_set, &source.condition, place, &mut entries)?;
        }
        entries.drop_implied_leaves();
        let mut items = Vec::with_capacity(entries.list.len());
        for entry in entries.list {
            match entry {
                Entry::Field { field, target, condition, below } => {
                    items.push(Selection::Field(
                        self.field(field, target, condition, &below, place)?,
                    ));
                }
                Entry::Fragment { on, inside } => {
                    let selection_set = self.selection_set(&inside, Place { on, ..place })?;
                    if !selection_set.items.is_empty() {
                        let condition = Condition::default();
                        items.push(Selection::Fragment(Fragment { on, condition, selection_set }));
                    }
                }
            }
        }
        Ok(SelectionSet { on: place.on, items })
    }

    fn collect(
        &self,
        selection_set: &'a executable::SelectionSet,
        outer: &Condition,
        place: Place<'_>,
        entries: &mut Entries<'a>,
    ) -> Result<(), PrepareError> {
        for selection in &selection_set.selections {
            let Some(condition) = self.condition(outer, selection.directives(), place.guard)?
            else {
                continue;
            };
            match selection {
                executable::Selection::Field(field) => {
                    let target = self.target(field, place)?;
                    let below = Source {
                        selection_set: &field.selection_set,
                        condition: Condition::default(),
                    };
                    entries.add_field(field, target, condition, below);
                }
                executable::Selection::InlineFragment(fragment) => {
                    let inside = &fragment.selection_set;
                    self.fragment(
                        fragment.type_condition.as_deref(),
                        inside,
                        condition,
                        place,
                        entries,
                    )?;
                }
                executable::Selection::FragmentSpread(spread) => {
                    let fragment =
                        self.document.fragments.get(&spread.fragment_name).ok_or_else(|| {
                            internal("a validated document names an unknown fragment")
                        })?;
                    let narrowed = Some(fragment.type_condition().as_str());
                    self.fragment(narrowed, &fragment.selection_set, condition, place, entries)?;
                }
            }
        }
        Ok(())
    }

    /// Flattens a fragment whose type condition changes nothing on `on`; drops one that never applies;
    /// keeps the others.
    fn fragment(
        &self,
        narrowed: Option<&str>,
        inside: &'a executable::SelectionSet,
        condition: Condition,
        place: Place<'_>,
        entries: &mut Entries<'a>,
    ) -> Result<(), PrepareError> {
        let on = place.on;
        let target = match narrowed {
            None => on,
            Some(name) => self
                .graph
                .type_named(name)
                .ok_or_else(|| internal("a validated document names an unknown type"))?,
        };
        let outer = self.graph.ty(on);
        if target == on || outer.implements.contains(&target) {
            return self.collect(inside, &condition, place, entries);
        }
        let narrower = &self.graph.ty(target).possible;
        let applicable = |ty: &TypeId| narrower.contains(ty);
        if outer.possible.len() == 1 && outer.possible[0] == on {
            // An object type inside a union or an interface that it does not name: the fields are looked
            // up on the object type itself.
            if applicable(&on) {
                self.collect(inside, &condition, place, entries)?;
            }
            return Ok(());
        }
        if outer.possible.iter().any(applicable) {
            entries.add_fragment(self.graph, target, Source { selection_set: inside, condition });
        }
        Ok(())
    }

    fn target(
        &self,
        field: &executable::Field,
        place: Place<'_>,
    ) -> Result<FieldTarget, PrepareError> {
        let on = place.on;
        match field.name.as_str() {
            "__typename" => Ok(FieldTarget::Typename),
            "__schema" | "__type" if place.is_root => Ok(FieldTarget::Introspection),
            // The query root can also be the type of an ordinary field.
            name @ ("__schema" | "__type") => {
                Err(unsupported(&format!("`{name}` is supported at the root of a query only")))
            }
            name => self.graph.field_named(on, name).map(FieldTarget::Field).ok_or_else(|| {
                internal(&format!("field {}.{name} is not in the model", self.graph.ty(on).name))
            }),
        }
    }

    fn field(
        &self,
        field: &executable::Field,
        target: FieldTarget,
        condition: Condition,
        below: &[Source<'a>],
        at: Place<'_>,
    ) -> Result<Field, PrepareError> {
        let mut arguments = Vec::new();
        let mut selection_set = None;
        if let FieldTarget::Field(id) = target {
            for argument in &field.arguments {
                let definition = field.definition.argument_by_name(&argument.name);
                let definition =
                    definition.ok_or_else(|| internal("a validated argument is not defined"))?;
                let value = self.value(&argument.value, Some(&definition.ty))?;
                arguments.push((argument.name.as_str().into(), value));
            }
            let ty = self.graph.field(id).ty.named();
            if self.graph.ty(ty).kind.is_composite() {
                let mut guard = at.guard.clone();
                guard.all.extend(condition.all.iter().copied());
                guard.all.sort_unstable();
                let place = Place { on: ty, is_root: false, guard: &guard };
                selection_set = Some(self.selection_set(below, place)?);
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

    /// A literal, coerced to `ty` where the type is known: single values become lists of one, integers
    /// for `ID` become strings. Canonical forms make equal operations equal.
    fn value(&self, value: &AstValue, ty: Option<&Type>) -> Result<Value, PrepareError> {
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
                let items = items.iter().map(|item| self.value(item, list_item));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            single if list_item.is_some() => Value::List(vec![self.value(single, list_item)?]),
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
                    Ok((key.as_str().into(), self.value(value, field.map(|it| &*it.ty))?))
                });
                Value::Object(members.collect::<Result<_, PrepareError>>()?)
            }
        })
    }

    /// `outer` and the `@skip` and `@include` of one selection together, as far as `guard` does not say it;
    /// `None`: never.
    fn condition(
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

struct Entries<'a> {
    list: Vec<Entry<'a>>,
    index: HashMap<EntryKey<'a>, usize>,
}

impl<'a> Entries<'a> {
    fn add_field(
        &mut self,
        field: &'a executable::Field,
        target: FieldTarget,
        condition: Condition,
        source: Source<'a>,
    ) {
        let response_key = field.response_key().as_str();
        let key = EntryKey::Field(response_key, condition.clone());
        if let Some(&at) = self.index.get(&key) {
            // What is selected below must not come before what others select below the same key.
            let between = &self.list[at + 1..];
            let is_other = |entry: &Entry<'_>| match entry {
                Entry::Field { field, .. } => field.response_key().as_str() != response_key,
                Entry::Fragment { .. } => false,
            };
            let is_leaf = field.selection_set.is_empty();
            if (is_leaf || (between.len() <= BETWEEN_MAX && between.iter().all(is_other)))
                && let Entry::Field { below, .. } = &mut self.list[at]
            {
                below.push(source);
                return;
            }
        }
        self.index.insert(key, self.list.len());
        self.list.push(Entry::Field { field, target, condition, below: vec![source] });
    }

    /// Merges a fragment with an earlier one on the same type, unless something between them applies to
    /// the same objects: then its fields would come too early in the answer.
    fn add_fragment(&mut self, graph: &Supergraph, on: TypeId, source: Source<'a>) {
        let key = EntryKey::Fragment(on);
        let possible = &graph.ty(on).possible;
        if let Some(&at) = self.index.get(&key) {
            let is_disjoint = |entry: &Entry<'_>| match entry {
                Entry::Field { .. } => false,
                Entry::Fragment { on, .. } => {
                    !graph.ty(*on).possible.iter().any(|ty| possible.contains(ty))
                }
            };
            let between = &self.list[at + 1..];
            // Farther back nobody looks: the search stays linear in the document.
            if between.len() <= BETWEEN_MAX
                && between.iter().all(is_disjoint)
                && let Entry::Fragment { inside, .. } = &mut self.list[at]
            {
                inside.push(source);
                return;
            }
        }
        self.index.insert(key, self.list.len());
        self.list.push(Entry::Fragment { on, inside: vec![source] });
    }

    /// A leaf that is always there makes the same leaf under a condition superfluous, unless that one
    /// comes first and something else between them: then the condition decides where the leaf stands.
    fn drop_implied_leaves(&mut self) {
        let leaf = |entry: &Entry<'a>| match entry {
            Entry::Field { field, condition, .. } if field.selection_set.is_empty() => {
                Some((field.response_key().as_str(), condition.is_always()))
            }
            _ => None,
        };
        let mut last: Option<&str> = None;
        let mut always: HashSet<&str> = HashSet::new();
        let mut kept: Vec<Entry<'a>> = Vec::with_capacity(self.list.len());
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
                    // The conditions of those right in front of it do not matter.
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

/// How far back a selection looks for one to merge with: more than people write side by side.
const BETWEEN_MAX: usize = 64;

fn unsupported(message: &str) -> PrepareError {
    PrepareError::Plan(plan::PlanError::NotSupported(message.to_owned()))
}

fn internal(message: &str) -> PrepareError {
    PrepareError::Internal(format!("{message}; please report this"))
}
