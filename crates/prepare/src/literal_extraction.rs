//! Replaces literals by variables, so that operations that differ only in literals share one plan,
//! and requests to subgraphs differ in variables only.
//!
//! Runs after validation. Literals in directives stay, because they decide which fields are
//! selected. An argument that contains variables keeps its form, and the constants inside of it are
//! extracted. Equal literals of one type become one variable, because a plan may depend on the
//! equality of two arguments.
//!
//! Applies to queries and mutations only: the literals of a subscription name its topics.

use std::collections::HashMap;

use graph::Supergraph;
use plan::{
    FieldTarget, Operation, OperationKind, Selection, SelectionSet, Value, Variable, VariableId,
    Variables,
};

use crate::input_types::InputTypes;

/// Maximum number of variables that are added; further literals stay. Together with those of the
/// client they are numbered by 16 bits.
const EXTRACTED_MAX: usize = 4_096;

/// Replaces the literals of `operation`. Returns their values as JSON text: those of the variables
/// that were added after the client's own.
pub(crate) fn extract_literals(
    graph: &Supergraph,
    types: &InputTypes,
    operation: &mut Operation,
) -> Vec<Option<Box<str>>> {
    if operation.kind == OperationKind::Subscription {
        return Vec::new();
    }
    let mut extraction = LiteralExtraction {
        graph,
        types,
        variables: std::mem::take(&mut operation.variables),
        values: Vec::new(),
        known: HashMap::new(),
        names: 0,
    };
    extraction.extract_from_selections(&mut operation.selection_set);
    operation.variables = extraction.variables;
    extraction.values
}

struct LiteralExtraction<'a> {
    graph: &'a Supergraph,
    types: &'a InputTypes,
    /// The variables of the client, then the added ones.
    variables: Vec<Variable>,
    values: Vec<Option<Box<str>>>,
    /// Added variables by type and JSON text.
    known: HashMap<(Box<str>, Box<str>), VariableId>,
    /// The number of names that were tried.
    names: usize,
}

impl LiteralExtraction<'_> {
    // Recursion is bounded by the depth of operations.
    fn extract_from_selections(&mut self, set: &mut SelectionSet) {
        for item in &mut set.items {
            match item {
                Selection::Fragment(fragment) => {
                    self.extract_from_selections(&mut fragment.selection_set);
                }
                Selection::Field(field) => {
                    if let FieldTarget::Field(id) = field.target {
                        let definition = self.graph.field(id);
                        for (name, value) in &mut field.arguments {
                            let argument = definition.arguments.iter().find(|it| it.name == *name);
                            if let Some(argument) = argument {
                                self.extract_value(value, &argument.ty);
                            }
                        }
                    }
                    if let Some(below) = &mut field.selection_set {
                        self.extract_from_selections(below);
                    }
                }
            }
        }
    }

    /// Replaces the constants of a value. `ty` is GraphQL text.
    // Recursion is bounded by the depth that the parser of operations allows.
    fn extract_value(&mut self, value: &mut Value, ty: &str) {
        let named = ty.trim_matches(['[', ']', '!']);
        if is_constant(value) {
            // A subgraph may read the literals of a custom scalar in its own way; plain ones are
            // safe.
            let is_plain = !matches!(value, Value::Enum(_) | Value::List(_) | Value::Object(_));
            if !self.types.is_custom(named) || is_plain {
                self.replace_literal(value, ty);
            }
            return;
        }
        match value {
            Value::List(items) => {
                let item = ty.strip_suffix('!').unwrap_or(ty);
                if let Some(item) = item.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                    for value in items {
                        self.extract_value(value, item);
                    }
                }
            }
            Value::Object(members) => {
                for (key, value) in members {
                    if let Some(field) = self.types.field(named, key) {
                        let ty = field.ty.to_string();
                        self.extract_value(value, &ty);
                    }
                }
            }
            _ => {}
        }
    }

    fn replace_literal(&mut self, value: &mut Value, ty: &str) {
        let mut text = Vec::new();
        execute::print_value(value, &Variables::default(), &mut text);
        // Printed values are valid UTF-8.
        let Ok(text) = String::from_utf8(text) else { return };
        let key = (Box::from(ty), Box::from(text));
        if let Some(&id) = self.known.get(&key) {
            *value = Value::Variable(id);
            return;
        }
        let Ok(number) = u16::try_from(self.variables.len()) else { return };
        if self.values.len() >= EXTRACTED_MAX {
            return;
        }
        let name = self.free_name();
        self.variables.push(Variable { name, ty: key.0.clone() });
        self.values.push(Some(key.1.clone()));
        self.known.insert(key, VariableId(number));
        *value = Value::Variable(VariableId(number));
    }

    fn free_name(&mut self) -> Box<str> {
        loop {
            let name = format!("_{}", self.names);
            self.names += 1;
            // The added variables have different numbers.
            let clients = &self.variables[..self.variables.len() - self.values.len()];
            if clients.iter().all(|variable| *variable.name != *name) {
                return name.into();
            }
        }
    }
}

fn is_constant(value: &Value) -> bool {
    match value {
        Value::Variable(_) => false,
        Value::List(items) => items.iter().all(is_constant),
        Value::Object(members) => members.iter().all(|(_, member)| is_constant(member)),
        _ => true,
    }
}
