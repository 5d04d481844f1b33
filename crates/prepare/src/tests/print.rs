//! A normalised operation as text for eyes: `response_key: Type.field(arguments) when $a !$b { … }`.

use std::fmt::Write as _;

use graph::Supergraph;
use plan::{Condition, FieldTarget, Operation, Selection, SelectionSet, Value, VariableId};

pub(crate) fn operation(graph: &Supergraph, operation: &Operation) -> String {
    let mut print = Print { graph, operation, out: String::new() };
    let _ = write!(print.out, "{:?} {}", operation.kind, operation.name.as_deref().unwrap_or("-"));
    for variable in &operation.variables {
        let _ = write!(print.out, " ${}: {}", variable.name, variable.ty);
    }
    print.selection_set(&operation.selection_set, 0);
    print.out.push('\n');
    print.out
}

struct Print<'a> {
    graph: &'a Supergraph,
    operation: &'a Operation,
    out: String,
}

impl Print<'_> {
    fn name(&self, id: VariableId) -> &str {
        &self.operation.variables[usize::from(id.0)].name
    }

    fn selection_set(&mut self, set: &SelectionSet, depth: usize) {
        let _ = write!(self.out, " {{ # {}", self.graph.ty(set.on).name);
        for item in &set.items {
            let _ = write!(self.out, "\n{:1$}", "", 2 * depth + 2);
            match item {
                Selection::Field(field) => {
                    let target = match field.target {
                        FieldTarget::Field(id) => {
                            let field = self.graph.field(id);
                            format!("{}.{}", self.graph.ty(field.parent).name, field.name)
                        }
                        FieldTarget::Typename => "__typename".to_owned(),
                        FieldTarget::Introspection => "introspection".to_owned(),
                    };
                    let _ = write!(self.out, "{}: {target}", field.response_key);
                    if !field.arguments.is_empty() {
                        self.out.push('(');
                        for (index, (name, value)) in field.arguments.iter().enumerate() {
                            let comma = if index > 0 { ", " } else { "" };
                            let _ = write!(self.out, "{comma}{name}: ");
                            self.value(value);
                        }
                        self.out.push(')');
                    }
                    self.condition(&field.condition);
                    if let Some(below) = &field.selection_set {
                        self.selection_set(below, depth + 1);
                    }
                }
                Selection::Fragment(fragment) => {
                    let _ = write!(self.out, "... on {}", self.graph.ty(fragment.on).name);
                    self.condition(&fragment.condition);
                    self.selection_set(&fragment.selection_set, depth + 1);
                }
            }
        }
        let _ = write!(self.out, "\n{:1$}}}", "", 2 * depth);
    }

    fn condition(&mut self, condition: &Condition) {
        if !condition.is_always() {
            self.out.push_str(" when");
        }
        for &(variable, wanted) in &condition.all {
            let not = if wanted { "" } else { "!" };
            let text = format!(" {not}${}", self.name(variable));
            self.out.push_str(&text);
        }
    }

    fn value(&mut self, value: &Value) {
        let text = match value {
            Value::Null => "null".to_owned(),
            Value::Int(it) | Value::Float(it) | Value::Enum(it) => it.to_string(),
            Value::String(it) => format!("{it:?}"),
            Value::Boolean(it) => it.to_string(),
            Value::Variable(id) => format!("${}", self.name(*id)),
            Value::List(items) => {
                self.out.push('[');
                for (index, item) in items.iter().enumerate() {
                    self.out.push_str(if index > 0 { ", " } else { "" });
                    self.value(item);
                }
                "]".to_owned()
            }
            Value::Object(members) => {
                self.out.push('{');
                for (index, (name, member)) in members.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    let _ = write!(self.out, "{comma}{name}: ");
                    self.value(member);
                }
                "}".to_owned()
            }
        };
        self.out.push_str(&text);
    }
}
