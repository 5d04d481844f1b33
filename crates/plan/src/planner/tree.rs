//! Selections as shared nodes: of the client's operation, and of the field sets in `@key` and
//! `@requires`. Collecting them for one object type merges what has the same key.

use std::{fmt::Write as _, rc::Rc};

use graph::{FieldId, FieldSet, FieldSetItem, Supergraph, TypeId};

use crate::{Condition, FieldTarget, Operation, Selection, SelectionSet, Value, VariableId};

/// A selection set. Shared; its address is its identity.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) on: TypeId,
    pub(super) items: Vec<Item>,
}

#[derive(Debug)]
pub(super) enum Item {
    Field(Select),
    Fragment { on: TypeId, condition: Condition, set: Rc<Set> },
}

/// One selected field.
#[derive(Debug)]
pub(super) struct Select {
    /// The client's response key; `None` in field sets, whose keys the planner chooses.
    pub(super) key: Option<Box<str>>,
    pub(super) target: FieldTarget,
    pub(super) arguments: Rc<Arguments>,
    pub(super) condition: Condition,
    pub(super) set: Option<Rc<Set>>,
}

/// Arguments of a field. Equal text means the same field.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Arguments {
    /// Canonical GraphQL without the parentheses; empty if there are none.
    pub(super) text: Box<str>,
    pub(super) values: Vec<(Box<str>, Value)>,
    pub(super) variables: Vec<VariableId>,
}

impl Set {
    pub(super) fn of_operation(set: &SelectionSet, operation: &Operation) -> Rc<Self> {
        let items = set
            .items
            .iter()
            .map(|item| match item {
                Selection::Field(field) => Item::Field(Select {
                    key: Some(field.response_key.clone()),
                    target: field.target,
                    arguments: Rc::new(Arguments::of(&field.arguments, operation)),
                    condition: field.condition.clone(),
                    set: field.selection_set.as_ref().map(|set| Self::of_operation(set, operation)),
                }),
                Selection::Fragment(fragment) => Item::Fragment {
                    on: fragment.on,
                    condition: fragment.condition.clone(),
                    set: Self::of_operation(&fragment.selection_set, operation),
                },
            })
            .collect();
        Rc::new(Self { on: set.on, items })
    }

    pub(super) fn of_field_set(set: &FieldSet, on: TypeId, graph: &Supergraph) -> Rc<Self> {
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
                        .then(|| Self::of_field_set(fields, graph.field(*field).ty.named(), graph)),
                }),
                FieldSetItem::Fragment { on, fields } => Item::Fragment {
                    on: *on,
                    condition: Condition::default(),
                    set: Self::of_field_set(fields, *on, graph),
                },
            })
            .collect();
        Rc::new(Self { on, items })
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

/// A string literal (GraphQL specification, section 2.9.4).
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

/// A selection set at a position and what must hold for it there.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) set: Rc<Set>,
    pub(super) condition: Condition,
}

/// Identity of a list of parts: addresses of shared sets, which live as long as the planning.
pub(super) type PartsId = Vec<(usize, Condition)>;

pub(super) fn parts_id(parts: &[Part]) -> PartsId {
    parts.iter().map(|part| (Rc::as_ptr(&part.set) as usize, part.condition.clone())).collect()
}

/// Everything wanted of one object type at a position.
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

/// One field wanted of an object type.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// As in [`Select::key`].
    pub(super) key: Option<Box<str>>,
    pub(super) target: WantedTarget,
    pub(super) arguments: Rc<Arguments>,
    /// Wanted if any of these holds; empty: always.
    pub(super) any_of: Vec<Condition>,
    /// What is wanted below; empty for leaves.
    pub(super) parts: Vec<Part>,
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

/// What `parts` want of an object of type `on` (CollectFields, GraphQL specification, section 6.3.2).
/// For an interface `on`: what they want of it directly, fragments left out.
pub(super) fn collect(graph: &Supergraph, parts: &[Part], on: TypeId) -> Rc<Collected> {
    let mut found: Vec<(Wanted, Vec<Condition>)> = Vec::new();
    for part in parts {
        collect_set(graph, &part.set, &part.condition, on, &mut found);
    }
    let fields = found
        .into_iter()
        .map(|(mut wanted, occurrences)| {
            let mut distinct: Vec<Condition> = Vec::new();
            for condition in &occurrences {
                if !distinct.contains(condition) {
                    distinct.push(condition.clone());
                }
            }
            if distinct.len() == 1 {
                // One condition guards the field; nothing below needs it again.
                wanted.parts.iter_mut().for_each(|part| part.condition = Condition::default());
            }
            wanted.any_of =
                if distinct.iter().any(Condition::is_always) { Vec::new() } else { distinct };
            Rc::new(wanted)
        })
        .collect();
    Rc::new(Collected { on, fields })
}

fn collect_set(
    graph: &Supergraph,
    set: &Set,
    outer: &Condition,
    on: TypeId,
    found: &mut Vec<(Wanted, Vec<Condition>)>,
) {
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
                    FieldTarget::Field(id) => match graph.field_named(on, &graph.field(id).name) {
                        Some(own) => WantedTarget::Field(own),
                        None => continue,
                    },
                };
                let part = select
                    .set
                    .as_ref()
                    .map(|set| Part { set: set.clone(), condition: condition.clone() });
                let same = found.iter_mut().find(|(wanted, _)| match &select.key {
                    Some(_) => wanted.key == select.key,
                    None => wanted.target == target && *wanted.arguments == *select.arguments,
                });
                match same {
                    Some((wanted, occurrences)) => {
                        wanted.parts.extend(part);
                        occurrences.push(condition);
                    }
                    None => {
                        let wanted = Wanted {
                            key: select.key.clone(),
                            target,
                            arguments: select.arguments.clone(),
                            any_of: Vec::new(),
                            parts: part.into_iter().collect(),
                        };
                        found.push((wanted, vec![condition]));
                    }
                }
            }
            Item::Fragment { on: narrowed, condition, set } => {
                let applies = *narrowed == on || graph.ty(*narrowed).possible.contains(&on);
                if applies && let Some(condition) = both(outer, condition) {
                    collect_set(graph, set, &condition, on, found);
                }
            }
        }
    }
}

/// The keys that fragments inside `parts` select.
pub(super) fn keys_in_fragments(parts: &[Part]) -> Vec<&str> {
    fn inside<'a>(set: &'a Set, keys: &mut Vec<&'a str>) {
        for item in &set.items {
            match item {
                Item::Field(select) => keys.extend(select.key.as_deref()),
                Item::Fragment { set, .. } => inside(set, keys),
            }
        }
    }
    let mut keys = Vec::new();
    for item in parts.iter().flat_map(|part| &part.set.items) {
        if let Item::Fragment { set, .. } = item {
            inside(set, &mut keys);
        }
    }
    keys
}

/// Conjunction; `None` if it can never hold.
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
