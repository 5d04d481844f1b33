//! Selections as shared nodes: those of the client's operation, and the field sets in `@key` and `@requires`. Equal
//! selection sets are one node at all positions, so that results about one hold for all. Collecting them for one object
//! type merges fields with the same key.

use std::{
    fmt::Write as _,
    hash::{Hash, Hasher},
    ops::Deref,
    rc::Rc,
};

use foldhash::{HashMap, HashSet};
use graph::{FieldId, FieldSet, FieldSetItem, SubgraphSet, Supergraph, TypeId};

use crate::{Condition, FieldTarget, Operation, Selection, SelectionSet, Value, VariableId};

/// A selection set. Equal sets are one shared node, identified by its address.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) struct Set {
    pub(super) on: TypeId,
    pub(super) items: Vec<Item>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Item {
    Field(Select),
    Fragment { on: TypeId, condition: Condition, set: Shared },
}

/// One selected field.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Select {
    /// The client's response key; `None` in field sets, for which the planner chooses keys.
    pub(super) key: Option<Rc<str>>,
    pub(super) target: FieldTarget,
    pub(super) arguments: Rc<Arguments>,
    pub(super) condition: Condition,
    pub(super) set: Option<Shared>,
}

/// A reference to a shared set, compared by address.
#[derive(Clone, Debug)]
pub(super) struct Shared(Rc<Set>);

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Shared {}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Rc::as_ptr(&self.0).hash(state);
    }
}

impl Deref for Shared {
    type Target = Set;

    fn deref(&self) -> &Set {
        &self.0
    }
}

/// Arguments of a field, compared by their text.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    /// Canonical GraphQL without the parentheses; empty if there are none.
    pub(super) text: Box<str>,
    pub(super) values: Vec<(Box<str>, Value)>,
    pub(super) variables: Vec<VariableId>,
}

/// All selections of one planning.
#[derive(Debug, Default)]
pub(super) struct Tree {
    sets: HashSet<Rc<Set>>,
    parts: HashMap<Vec<Part>, Parts>,
    /// The collected fields of an object type at a position, independent of its holders.
    collected: HashMap<(u32, TypeId), Rc<Collected>>,
    /// The object types of those abstract types that were looked up.
    members: HashMap<TypeId, HashSet<TypeId>>,
    /// The number of selections visited while collecting.
    visited: u64,
}

impl Tree {
    /// Returns the number of selections visited so far, which are the steps of collecting.
    pub(super) fn visited(&self) -> u64 {
        self.visited
    }

    /// Returns all selected fields, each once for each selection set that contains it.
    pub(super) fn selected_fields(&self) -> impl Iterator<Item = FieldId> + '_ {
        self.sets.iter().flat_map(|set| &set.items).filter_map(|item| match item {
            Item::Field(Select { target: FieldTarget::Field(field), .. }) => Some(*field),
            Item::Field(_) | Item::Fragment { .. } => None,
        })
    }

    /// Returns the number of distinct selection sets.
    pub(super) fn different_sets(&self) -> usize {
        self.sets.len()
    }

    pub(super) fn share(&mut self, set: Set) -> Shared {
        if let Some(known) = self.sets.get(&set) {
            return Shared(known.clone());
        }
        let set = Rc::new(set);
        self.sets.insert(set.clone());
        Shared(set)
    }

    pub(super) fn of_operation(&mut self, set: &SelectionSet, operation: &Operation) -> Shared {
        let items = set
            .items
            .iter()
            .map(|item| match item {
                Selection::Field(field) => Item::Field(Select {
                    key: Some(field.response_key.as_ref().into()),
                    target: field.target,
                    arguments: Rc::new(Arguments::of(&field.arguments, operation)),
                    condition: field.condition.clone(),
                    set: field.selection_set.as_ref().map(|set| self.of_operation(set, operation)),
                }),
                Selection::Fragment(fragment) => Item::Fragment {
                    on: fragment.on,
                    condition: fragment.condition.clone(),
                    set: self.of_operation(&fragment.selection_set, operation),
                },
            })
            .collect();
        self.share(Set { on: set.on, items })
    }

    pub(super) fn of_field_set(
        &mut self,
        set: &FieldSet,
        on: TypeId,
        graph: &Supergraph,
    ) -> Shared {
        let items = set
            .items
            .iter()
            .map(|item| match item {
                FieldSetItem::Field { field, arguments, fields } => Item::Field(Select {
                    key: None,
                    target: FieldTarget::Field(*field),
                    arguments: Rc::new(Arguments {
                        text: arguments.clone(),
                        ..Arguments::default()
                    }),
                    condition: Condition::default(),
                    set: (!fields.items.is_empty())
                        .then(|| self.of_field_set(fields, graph.field(*field).ty.named(), graph)),
                }),
                FieldSetItem::Fragment { on, fields } => Item::Fragment {
                    on: *on,
                    condition: Condition::default(),
                    set: self.of_field_set(fields, *on, graph),
                },
            })
            .collect();
        self.share(Set { on, items })
    }

    /// Returns the list that contains one set without condition.
    pub(super) fn parts_of(&mut self, set: Shared) -> Parts {
        self.parts(vec![Part { set, condition: Condition::default() }])
    }

    fn parts(&mut self, list: Vec<Part>) -> Parts {
        if let Some(known) = self.parts.get(&list) {
            return known.clone();
        }
        // The empty list has number 0 and is not in the map.
        let id = self.parts.len() as u32 + 1;
        let parts = Parts { id, list: list.as_slice().into() };
        self.parts.insert(list, parts.clone());
        parts
    }

    /// Collects the fields that `parts` select on an object of type `on` (CollectFields, GraphQL specification, section
    /// 6.3.2). For an interface `on`, only its direct fields are collected, without fragments.
    pub(super) fn collect(
        &mut self,
        graph: &Supergraph,
        parts: &Parts,
        on: TypeId,
    ) -> Rc<Collected> {
        if let Some(known) = self.collected.get(&(parts.id, on)) {
            return known.clone();
        }
        let mut found = Found::default();
        for part in parts.iter() {
            self.collect_set(graph, &part.set, &part.condition, on, &mut found);
        }
        let fields = found.list.into_iter().map(|found| Rc::new(self.wanted(graph, found)));
        let collected = Collected::new(on, fields.collect());
        self.collected.insert((parts.id, on), collected.clone());
        collected
    }

    fn collect_set<'a>(
        &mut self,
        graph: &Supergraph,
        set: &'a Set,
        outer: &Condition,
        on: TypeId,
        found: &mut Found<'a>,
    ) {
        self.visited += 1 + set.items.len() as u64;
        for item in &set.items {
            match item {
                Item::Field(select) => {
                    let Some(condition) = both(outer, &select.condition) else { continue };
                    let target = match select.target {
                        FieldTarget::Typename => WantedTarget::Typename,
                        FieldTarget::Introspection => WantedTarget::Introspection,
                        FieldTarget::Field(id) if graph.field(id).parent == on => {
                            WantedTarget::Field(id)
                        }
                        FieldTarget::Field(id) => {
                            match graph.field_named(on, &graph.field(id).name) {
                                Some(own) => WantedTarget::Field(own),
                                None => continue,
                            }
                        }
                    };
                    let part = select
                        .set
                        .as_ref()
                        .map(|set| Part { set: set.clone(), condition: condition.clone() });
                    let at = found.count;
                    found.count += 1;
                    match found.same(select, target) {
                        Some(known) => {
                            known.parts.extend(part);
                            known.occurrences.push((at, condition));
                        }
                        None => found.push(FoundField {
                            select,
                            target,
                            parts: part.into_iter().collect(),
                            occurrences: vec![(at, condition)],
                        }),
                    }
                }
                Item::Fragment { on: narrowed, condition, set } => {
                    if self.is_member(graph, on, *narrowed)
                        && let Some(condition) = both(outer, condition)
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

    fn wanted(&mut self, graph: &Supergraph, found: FoundField<'_>) -> Wanted {
        let FoundField { select, target, mut parts, occurrences } = found;
        let conditions = occurrences.iter().map(|(_, condition)| condition.clone());
        let distinct = without_repetition(conditions.collect());
        if distinct.len() == 1 {
            // One condition guards the field, so it is not repeated below.
            parts.iter_mut().for_each(|part| part.condition = Condition::default());
        }
        let parts = without_repetition(parts);
        let any_of = if distinct.iter().any(Condition::is_always) { Vec::new() } else { distinct };
        let parts = if parts.is_empty() { Parts::default() } else { self.parts(parts) };
        let freely = match target {
            WantedTarget::Field(field) => resolved_freely(graph, field),
            _ => SubgraphSet::EMPTY,
        };
        let (key, arguments) = (select.key.clone(), select.arguments.clone());
        Wanted { key, target, arguments, any_of, occurrences, parts, freely }
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
pub(super) fn resolved_freely(graph: &Supergraph, field: FieldId) -> SubgraphSet {
    let definition = graph.field(field);
    let mut freely = definition.resolved_by;
    for there in &definition.subgraphs {
        if there.requires.is_some() {
            freely.remove(there.subgraph);
        }
    }
    freely
}

impl PartialEq for Arguments {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Arguments {}

impl Hash for Arguments {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Arguments {
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
            super::variables_of(value, &mut variables);
        }
        Self { text: text.into(), values: values.to_vec(), variables }
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
pub(super) struct Part {
    pub(super) set: Shared,
    pub(super) condition: Condition,
}

/// All selection sets at a position. Equal lists have equal numbers; the empty one has 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    id: u32,
    list: Rc<[Part]>,
}

impl Parts {
    /// Returns a number that is equal exactly for equal lists of one [`SelectionTree`].
    pub(super) fn id(&self) -> u32 {
        self.id
    }
}

impl Deref for Parts {
    type Target = [Part];

    fn deref(&self) -> &[Part] {
        &self.list
    }
}

/// All fields selected on one object type at a position.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) on: TypeId,
    pub(super) fields: Vec<Rc<Wanted>>,
}

impl Collected {
    pub(super) fn new(on: TypeId, fields: Vec<Rc<Wanted>>) -> Rc<Self> {
        Rc::new(Self { on, fields })
    }
}

/// One field selected on an object type, merged from all its occurrences.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The response key as in [`FieldItem::key`].
    pub(super) key: Option<Rc<str>>,
    pub(super) target: WantedTarget,
    pub(super) arguments: Rc<Arguments>,
    /// The field is selected if any of these conditions holds, or always if there are none.
    pub(super) any_of: Vec<Condition>,
    /// The occurrences of the field, numbered over all fields, with their conditions.
    pub(super) occurrences: Vec<(u32, Condition)>,
    /// The selections below the field; empty for leaves.
    pub(super) parts: Parts,
    /// The subgraphs that resolve the field for any object they have; others may resolve it by `@provides` or
    /// `@requires`.
    pub(super) freely: SubgraphSet,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WantedTarget {
    /// The object type's own field.
    Field(FieldId),
    Typename,
    Introspection,
}

impl Wanted {
    pub(super) fn coordinate(&self, graph: &Supergraph) -> String {
        match self.target {
            WantedTarget::Field(id) => {
                let field = graph.field(id);
                format!("{}.{}", graph.ty(field.parent).name, field.name)
            }
            WantedTarget::Typename => "__typename".to_owned(),
            WantedTarget::Introspection => "__schema".to_owned(),
        }
    }

    pub(super) fn field(&self) -> Option<FieldId> {
        match self.target {
            WantedTarget::Field(id) => Some(id),
            _ => None,
        }
    }
}

/// The fields of an object type while they are merged, in the order of their first occurrence.
#[derive(Default)]
struct Found<'a> {
    list: Vec<FoundField<'a>>,
    /// The indices by response key, maintained only when there are many fields.
    by_key: HashMap<&'a str, usize>,
    /// The number of occurrences of fields so far.
    count: u32,
}

struct FoundField<'a> {
    /// The first occurrence of the field.
    select: &'a Select,
    target: WantedTarget,
    parts: Vec<Part>,
    occurrences: Vec<(u32, Condition)>,
}

/// The number of fields up to which a linear search is faster than a map.
const SCANNED_MAX: usize = 16;

impl<'a> Found<'a> {
    fn same(&mut self, select: &Select, target: WantedTarget) -> Option<&mut FoundField<'a>> {
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

    fn push(&mut self, field: FoundField<'a>) {
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
/// do, because a subgraph that receives a representation must know the type.
pub(super) fn depends_on_type(parts: &[Part], interface: TypeId) -> bool {
    fn inside(set: &Set, interface: TypeId) -> bool {
        set.items.iter().any(|item| match item {
            Item::Field(select) => select.key.is_none() || select.target == FieldTarget::Typename,
            Item::Fragment { on, set, .. } => *on != interface || inside(set, interface),
        })
    }
    parts.iter().any(|part| inside(&part.set, interface))
}

/// True if fragments select any field that the client did not select.
pub(super) fn adds_in_fragments(parts: &[Part]) -> bool {
    fn adds(set: &Set) -> bool {
        set.items.iter().any(|item| match item {
            Item::Field(select) => select.key.is_none(),
            Item::Fragment { set, .. } => adds(set),
        })
    }
    parts.iter().flat_map(|part| &part.set.items).any(|item| match item {
        Item::Fragment { set, .. } => adds(set),
        Item::Field(_) => false,
    })
}

/// Returns the keys that fragments inside `parts` select, without fragments on the type `on` itself.
pub(super) fn keys_in_fragments(parts: &[Part], on: TypeId) -> Vec<&str> {
    fn inside<'a>(set: &'a Set, keys: &mut Vec<&'a str>) {
        for item in &set.items {
            match item {
                Item::Field(select) => keys.extend(select.key.as_deref()),
                Item::Fragment { set, .. } => inside(set, keys),
            }
        }
    }
    fn outside<'a>(set: &'a Set, on: TypeId, keys: &mut Vec<&'a str>) {
        for item in &set.items {
            match item {
                Item::Fragment { on: same, set, .. } if *same == on => outside(set, on, keys),
                Item::Fragment { set, .. } => inside(set, keys),
                Item::Field(_) => {}
            }
        }
    }
    let mut keys = Vec::new();
    parts.iter().for_each(|part| outside(&part.set, on, &mut keys));
    keys
}

/// Returns the conjunction of two conditions; `None` if it can never hold.
pub(super) fn both(a: &Condition, b: &Condition) -> Option<Condition> {
    let mut all = a.all.clone();
    for &(variable, wanted) in &b.all {
        match all.binary_search_by_key(&variable, |(id, _)| *id) {
            Ok(at) if all[at].1 != wanted => return None,
            Ok(_) => {}
            Err(at) => all.insert(at, (variable, wanted)),
        }
    }
    Some(Condition { all })
}
