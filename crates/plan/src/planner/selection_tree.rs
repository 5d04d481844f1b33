//! Selections as shared nodes: those of the client's operation, and the field sets in `@key` and `@requires`. Equal
//! selection sets are one node at all positions, so that results about one hold for all. Collecting them for one object
//! type merges fields with the same key.

use std::{
    fmt::Write as _,
    hash::{Hash, Hasher},
    ops::Deref,
    rc::Rc,
    sync::Arc,
};

use foldhash::{HashMap, HashSet};
use graph::{DeniedAccess, FieldId, FieldSet, FieldSetItem, SubgraphSet, Supergraph, TypeId};

use super::conditions::conjunction;
use crate::{Condition, FieldTarget, Operation, Selection, SelectionSet, Value, VariableId};

/// A selection set. Equal sets are one shared node, identified by its address.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) struct SetNode {
    pub(super) on: TypeId,
    pub(super) items: Vec<SetItem>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum SetItem {
    Field(FieldItem),
    Fragment { on: TypeId, condition: Condition, set: SetRef },
}

/// One selected field.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct FieldItem {
    /// The client's response key; `None` in field sets, for which the planner chooses keys.
    pub(super) key: Option<Rc<str>>,
    pub(super) target: FieldTarget,
    pub(super) arguments: Rc<FieldArguments>,
    pub(super) condition: Condition,
    pub(super) set: Option<SetRef>,
}

/// A reference to a shared set, compared by address.
#[derive(Clone, Debug)]
pub(super) struct SetRef(Rc<SetNode>);

impl PartialEq for SetRef {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SetRef {}

impl Hash for SetRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Rc::as_ptr(&self.0).hash(state);
    }
}

impl Deref for SetRef {
    type Target = SetNode;

    fn deref(&self) -> &SetNode {
        &self.0
    }
}

/// Arguments of a field, compared by their text.
#[derive(Debug, Default)]
pub(super) struct FieldArguments {
    /// Canonical GraphQL without the parentheses; empty if there are none.
    pub(super) text: Box<str>,
    pub(super) values: Vec<(Box<str>, Value)>,
    pub(super) variables: Vec<VariableId>,
}

/// All selections of one planning.
#[derive(Debug, Default)]
pub(super) struct SelectionTree {
    sets: HashSet<Rc<SetNode>>,
    parts: HashMap<Vec<GuardedSet>, GuardedSets>,
    /// The collected fields of an object type at a position, independent of its holders.
    collected: HashMap<(u32, TypeId), Rc<CollectedFields>>,
    /// The object types of those abstract types that were looked up.
    members: HashMap<TypeId, HashSet<TypeId>>,
    /// The number of selections visited while collecting.
    visited: u64,
    /// The fields and types that the client may not use.
    denied: Arc<DeniedAccess>,
}

impl SelectionTree {
    /// Creates a tree for an operation without access to `denied`.
    pub(super) fn new(denied: &Arc<DeniedAccess>) -> Self {
        Self { denied: Arc::clone(denied), ..Self::default() }
    }

    /// Returns the fields and types that the client may not use.
    pub(super) fn denied(&self) -> &DeniedAccess {
        &self.denied
    }

    /// Returns the number of selections visited so far, which are the steps of collecting.
    pub(super) fn visited(&self) -> u64 {
        self.visited
    }

    /// Returns all selected fields, each once for each selection set that contains it.
    pub(super) fn selected_fields(&self) -> impl Iterator<Item = FieldId> + '_ {
        self.sets.iter().flat_map(|set| &set.items).filter_map(|item| match item {
            SetItem::Field(FieldItem { target: FieldTarget::Field(field), .. }) => Some(*field),
            SetItem::Field(_) | SetItem::Fragment { .. } => None,
        })
    }

    /// Returns the number of distinct selection sets.
    pub(super) fn distinct_sets(&self) -> usize {
        self.sets.len()
    }

    pub(super) fn share_set(&mut self, set: SetNode) -> SetRef {
        if let Some(known) = self.sets.get(&set) {
            return SetRef(known.clone());
        }
        let set = Rc::new(set);
        self.sets.insert(set.clone());
        SetRef(set)
    }

    pub(super) fn of_operation(&mut self, set: &SelectionSet, operation: &Operation) -> SetRef {
        let items = set
            .items
            .iter()
            .map(|item| match item {
                Selection::Field(field) => SetItem::Field(FieldItem {
                    key: Some(field.response_key.as_ref().into()),
                    target: field.target,
                    arguments: Rc::new(FieldArguments::of(&field.arguments, operation)),
                    condition: field.condition.clone(),
                    set: field.selection_set.as_ref().map(|set| self.of_operation(set, operation)),
                }),
                Selection::Fragment(fragment) => SetItem::Fragment {
                    on: fragment.on,
                    condition: fragment.condition.clone(),
                    set: self.of_operation(&fragment.selection_set, operation),
                },
            })
            .collect();
        self.share_set(SetNode { on: set.on, items })
    }

    pub(super) fn of_field_set(
        &mut self,
        set: &FieldSet,
        on: TypeId,
        graph: &Supergraph,
    ) -> SetRef {
        let items = set
            .items
            .iter()
            .map(|item| match item {
                FieldSetItem::Field { field, arguments, fields } => SetItem::Field(FieldItem {
                    key: None,
                    target: FieldTarget::Field(*field),
                    arguments: Rc::new(FieldArguments {
                        text: arguments.clone(),
                        ..FieldArguments::default()
                    }),
                    condition: Condition::default(),
                    set: (!fields.items.is_empty())
                        .then(|| self.of_field_set(fields, graph.field(*field).ty.named(), graph)),
                }),
                FieldSetItem::Fragment { on, fields } => SetItem::Fragment {
                    on: *on,
                    condition: Condition::default(),
                    set: self.of_field_set(fields, *on, graph),
                },
            })
            .collect();
        self.share_set(SetNode { on, items })
    }

    /// Returns the list that contains one set without condition.
    pub(super) fn parts_of(&mut self, set: SetRef) -> GuardedSets {
        self.parts(vec![GuardedSet { set, condition: Condition::default() }])
    }

    fn parts(&mut self, list: Vec<GuardedSet>) -> GuardedSets {
        if let Some(known) = self.parts.get(&list) {
            return known.clone();
        }
        // The empty list has number 0 and is not in the map.
        let id = self.parts.len() as u32 + 1;
        let parts = GuardedSets { id, list: list.as_slice().into() };
        self.parts.insert(list, parts.clone());
        parts
    }

    /// Collects the fields that `parts` select on an object of type `on` (CollectFields, GraphQL specification, section
    /// 6.3.2). For an interface `on`, only its direct fields are collected, without fragments.
    pub(super) fn collect(
        &mut self,
        graph: &Supergraph,
        parts: &GuardedSets,
        on: TypeId,
    ) -> Rc<CollectedFields> {
        if let Some(known) = self.collected.get(&(parts.id, on)) {
            return known.clone();
        }
        let mut found = FieldMerger::default();
        for part in parts.iter() {
            self.collect_set(graph, &part.set, &part.condition, on, &mut found);
        }
        let fields = found.list.into_iter().map(|found| Rc::new(self.finish_field(graph, found)));
        let collected = CollectedFields::new(on, fields.collect());
        self.collected.insert((parts.id, on), collected.clone());
        collected
    }

    fn collect_set<'a>(
        &mut self,
        graph: &Supergraph,
        set: &'a SetNode,
        outer: &Condition,
        on: TypeId,
        found: &mut FieldMerger<'a>,
    ) {
        self.visited += 1 + set.items.len() as u64;
        for item in &set.items {
            match item {
                // Selections of the client are denied. Keys and required fields are fetched, and never shown.
                SetItem::Field(select) if select.key.is_some() && self.denied.has_type(on) => {}
                SetItem::Field(select) => {
                    let Some(condition) = conjunction(outer, &select.condition) else { continue };
                    let target = match select.target {
                        FieldTarget::Typename => CollectedTarget::Typename,
                        FieldTarget::Introspection => CollectedTarget::Introspection,
                        FieldTarget::Field(id) if graph.field(id).parent == on => {
                            CollectedTarget::Field(id)
                        }
                        FieldTarget::Field(id) => {
                            match graph.field_named(on, &graph.field(id).name) {
                                Some(own) => CollectedTarget::Field(own),
                                None => continue,
                            }
                        }
                    };
                    let target = match target {
                        CollectedTarget::Field(own)
                            if select.key.is_some() && self.denied.has_field(own) =>
                        {
                            CollectedTarget::Denied(own)
                        }
                        other => other,
                    };
                    let below = select.set.as_ref();
                    let part = below
                        .filter(|_| !matches!(target, CollectedTarget::Denied(_)))
                        .map(|set| GuardedSet { set: set.clone(), condition: condition.clone() });
                    let at = found.count;
                    found.count += 1;
                    match found.find_same(select, target) {
                        Some(known) => {
                            known.parts.extend(part);
                            known.occurrences.push((at, condition));
                        }
                        None => found.push(MergedField {
                            select,
                            target,
                            parts: part.into_iter().collect(),
                            occurrences: vec![(at, condition)],
                        }),
                    }
                }
                SetItem::Fragment { on: narrowed, condition, set } => {
                    if self.is_member(graph, on, *narrowed)
                        && let Some(condition) = conjunction(outer, condition)
                    {
                        self.collect_set(graph, set, &condition, on, found);
                    }
                }
            }
        }
    }

    /// True if every object of type `member` is of type `ty`.
    pub(super) fn is_member(&mut self, graph: &Supergraph, member: TypeId, ty: TypeId) -> bool {
        member == ty
            || self
                .members
                .entry(ty)
                .or_insert_with(|| graph.ty(ty).possible.iter().copied().collect())
                .contains(&member)
    }

    fn finish_field(&mut self, graph: &Supergraph, found: MergedField<'_>) -> CollectedField {
        let MergedField { select, target, mut parts, occurrences } = found;
        let conditions = occurrences.iter().map(|(_, condition)| condition.clone());
        let distinct = without_repetition(conditions.collect());
        if distinct.len() == 1 {
            // One condition guards the field, so it is not repeated below.
            parts.iter_mut().for_each(|part| part.condition = Condition::default());
        }
        let parts = without_repetition(parts);
        let any_of = if distinct.iter().any(Condition::is_always) { Vec::new() } else { distinct };
        let parts = if parts.is_empty() { GuardedSets::default() } else { self.parts(parts) };
        let unconditional_resolvers = match target {
            CollectedTarget::Field(field) => unconditional_resolvers(graph, field),
            _ => SubgraphSet::EMPTY,
        };
        let (key, arguments) = (select.key.clone(), select.arguments.clone());
        CollectedField {
            key,
            target,
            arguments,
            any_of,
            occurrences,
            parts,
            unconditional_resolvers,
        }
    }
}

fn without_repetition<T: Clone + Eq + Hash>(mut list: Vec<T>) -> Vec<T> {
    if list.len() > 1 {
        let mut seen = HashSet::default();
        list.retain(|item| seen.insert(item.clone()));
    }
    list
}

/// Returns the subgraphs that resolve a field for any object they have, without required fields.
pub(super) fn unconditional_resolvers(graph: &Supergraph, field: FieldId) -> SubgraphSet {
    let definition = graph.field(field);
    let mut unconditional_resolvers = definition.resolved_by;
    for there in &definition.subgraphs {
        if there.requires.is_some() {
            unconditional_resolvers.remove(there.subgraph);
        }
    }
    unconditional_resolvers
}

impl PartialEq for FieldArguments {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for FieldArguments {}

impl Hash for FieldArguments {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl FieldArguments {
    fn of(values: &[(Box<str>, Value)], operation: &Operation) -> Self {
        let mut text = String::new();
        let mut variables = Vec::new();
        for (name, value) in values {
            if !text.is_empty() {
                text.push_str(", ");
            }
            // Writing to a string does not fail.
            let _ = write!(text, "{name}: ");
            write_value(&mut text, value, operation);
            collect_variables(value, &mut variables);
        }
        Self { text: text.into(), values: values.to_vec(), variables }
    }
}

/// Collects the variables inside a value, in the order of their occurrence.
fn collect_variables(value: &Value, into: &mut Vec<VariableId>) {
    match value {
        Value::Variable(id) => into.push(*id),
        Value::List(items) => items.iter().for_each(|item| collect_variables(item, into)),
        Value::Object(members) => {
            members.iter().for_each(|(_, value)| collect_variables(value, into));
        }
        _ => {}
    }
}

fn write_value(out: &mut String, value: &Value, operation: &Operation) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Int(text) | Value::Float(text) | Value::Enum(text) => out.push_str(text),
        Value::String(text) => write_string(out, text),
        Value::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Variable(id) => {
            let name = operation.variables.get(usize::from(id.0)).map_or("", |v| &*v.name);
            let _ = write!(out, "${name}");
        }
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_value(out, item, operation);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (name, value)) in members.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                let _ = write!(out, "{name}: ");
                write_value(out, value, operation);
            }
            out.push('}');
        }
    }
}

/// Writes a string literal (GraphQL specification, section 2.9.4).
fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if u32::from(control) < 0x20 || control == '\u{7f}' => {
                let _ = write!(out, "\\u{:04X}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// A selection set at a position, with the condition under which it applies there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct GuardedSet {
    pub(super) set: SetRef,
    pub(super) condition: Condition,
}

/// All selection sets at a position. Equal lists have equal numbers; the empty one has 0.
#[derive(Clone, Debug, Default)]
pub(super) struct GuardedSets {
    id: u32,
    list: Rc<[GuardedSet]>,
}

impl GuardedSets {
    /// Returns a number that is equal exactly for equal lists of one [`SelectionTree`].
    pub(super) fn id(&self) -> u32 {
        self.id
    }
}

impl Deref for GuardedSets {
    type Target = [GuardedSet];

    fn deref(&self) -> &[GuardedSet] {
        &self.list
    }
}

/// All fields selected on one object type at a position.
#[derive(Debug)]
pub(super) struct CollectedFields {
    pub(super) on: TypeId,
    pub(super) fields: Vec<Rc<CollectedField>>,
}

impl CollectedFields {
    pub(super) fn new(on: TypeId, fields: Vec<Rc<CollectedField>>) -> Rc<Self> {
        Rc::new(Self { on, fields })
    }
}

/// One field selected on an object type, merged from all its occurrences.
#[derive(Clone, Debug)]
pub(super) struct CollectedField {
    /// The response key as in [`FieldItem::key`].
    pub(super) key: Option<Rc<str>>,
    pub(super) target: CollectedTarget,
    pub(super) arguments: Rc<FieldArguments>,
    /// The field is selected if any of these conditions holds, or always if there are none.
    pub(super) any_of: Vec<Condition>,
    /// The occurrences of the field, numbered over all fields, with their conditions.
    pub(super) occurrences: Vec<(u32, Condition)>,
    /// The selections below the field; empty for leaves.
    pub(super) parts: GuardedSets,
    /// The subgraphs that resolve the field for any object they have; others may resolve it by `@provides` or
    /// `@requires`.
    pub(super) unconditional_resolvers: SubgraphSet,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CollectedTarget {
    /// The object type's own field.
    Field(FieldId),
    Typename,
    Introspection,
    /// The object type's own field, which the client may not use: nothing is fetched for it.
    Denied(FieldId),
}

impl CollectedField {
    pub(super) fn coordinate(&self, graph: &Supergraph) -> String {
        match self.target {
            CollectedTarget::Field(id) | CollectedTarget::Denied(id) => {
                let field = graph.field(id);
                format!("{}.{}", graph.ty(field.parent).name, field.name)
            }
            CollectedTarget::Typename => "__typename".to_owned(),
            CollectedTarget::Introspection => "__schema".to_owned(),
        }
    }

    pub(super) fn field(&self) -> Option<FieldId> {
        match self.target {
            CollectedTarget::Field(id) => Some(id),
            _ => None,
        }
    }
}

/// The fields of an object type while they are merged, in the order of their first occurrence.
#[derive(Default)]
struct FieldMerger<'a> {
    list: Vec<MergedField<'a>>,
    /// The indices by response key, maintained only when there are many fields.
    by_key: HashMap<&'a str, usize>,
    /// The number of occurrences of fields so far.
    count: u32,
}

struct MergedField<'a> {
    /// The first occurrence of the field.
    select: &'a FieldItem,
    target: CollectedTarget,
    parts: Vec<GuardedSet>,
    occurrences: Vec<(u32, Condition)>,
}

/// The number of fields up to which a linear search is faster than a map.
const SCANNED_MAX: usize = 16;

impl<'a> FieldMerger<'a> {
    fn find_same(
        &mut self,
        select: &FieldItem,
        target: CollectedTarget,
    ) -> Option<&mut MergedField<'a>> {
        let at = match &select.key {
            None => self.list.iter().position(|known| {
                known.select.key.is_none()
                    && known.target == target
                    && *known.select.arguments == *select.arguments
            }),
            Some(key) if self.list.len() > SCANNED_MAX => self.by_key.get(&**key).copied(),
            Some(_) => self.list.iter().position(|known| known.select.key == select.key),
        };
        at.map(|at| &mut self.list[at])
    }

    fn push(&mut self, field: MergedField<'a>) {
        self.list.push(field);
        let first = match self.list.len() {
            ..=SCANNED_MAX => return,
            len if len == SCANNED_MAX + 1 => 0,
            len => len - 1,
        };
        for (at, known) in self.list.iter().enumerate().skip(first) {
            if let Some(key) = &known.select.key {
                self.by_key.insert(key, at);
            }
        }
    }
}

/// True if any selection in `parts` depends on the implementation of `interface` that the object has. Field sets always
/// do, because a subgraph that receives a representation must know the type. So do fields that the client may use on
/// some implementations only.
pub(super) fn depends_on_type(
    graph: &Supergraph,
    denied: &DeniedAccess,
    parts: &[GuardedSet],
    interface: TypeId,
) -> bool {
    let differs = |target: FieldTarget| match target {
        FieldTarget::Field(field) => denied.differs_within(graph, field),
        FieldTarget::Typename | FieldTarget::Introspection => false,
    };
    fn inside(set: &SetNode, interface: TypeId, differs: &dyn Fn(FieldTarget) -> bool) -> bool {
        set.items.iter().any(|item| match item {
            SetItem::Field(select) => {
                select.key.is_none()
                    || select.target == FieldTarget::Typename
                    || differs(select.target)
            }
            SetItem::Fragment { on, set, .. } => {
                *on != interface || inside(set, interface, differs)
            }
        })
    }
    denied.has_type_within(graph, interface)
        || parts.iter().any(|part| inside(&part.set, interface, &differs))
}

/// True if fragments select any field that the client did not select.
pub(super) fn has_added_fields_in_fragments(parts: &[GuardedSet]) -> bool {
    fn adds(set: &SetNode) -> bool {
        set.items.iter().any(|item| match item {
            SetItem::Field(select) => select.key.is_none(),
            SetItem::Fragment { set, .. } => adds(set),
        })
    }
    parts.iter().flat_map(|part| &part.set.items).any(|item| match item {
        SetItem::Fragment { set, .. } => adds(set),
        SetItem::Field(_) => false,
    })
}

/// Returns the keys that fragments inside `parts` select, without fragments on the type `on` itself.
pub(super) fn keys_in_fragments(parts: &[GuardedSet], on: TypeId) -> Vec<&str> {
    fn inside<'a>(set: &'a SetNode, keys: &mut Vec<&'a str>) {
        for item in &set.items {
            match item {
                SetItem::Field(select) => keys.extend(select.key.as_deref()),
                SetItem::Fragment { set, .. } => inside(set, keys),
            }
        }
    }
    fn outside<'a>(set: &'a SetNode, on: TypeId, keys: &mut Vec<&'a str>) {
        for item in &set.items {
            match item {
                SetItem::Fragment { on: same, set, .. } if *same == on => outside(set, on, keys),
                SetItem::Fragment { set, .. } => inside(set, keys),
                SetItem::Field(_) => {}
            }
        }
    }
    let mut keys = Vec::new();
    parts.iter().for_each(|part| outside(&part.set, on, &mut keys));
    keys
}
