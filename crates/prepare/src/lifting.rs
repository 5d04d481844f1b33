//! Literals become variables, so that operations that differ only in literals share one plan, and so that what
//! subgraphs are asked differs in variables only.
//!
//! Comes after validation. Literals in directives stay, for they decide what is selected. An argument that
//! mentions variables keeps its form, and what is constant inside of it is lifted. Equal literals of one type
//! become one variable: whether two arguments are equal may matter to a plan.
//!
//! Only for queries and mutations: the literals of a subscription name its topics.

use std::collections::HashMap;

use graph::Supergraph;
use plan::{
    FieldTarget, Operation, OperationKind, Selection, SelectionSet, Value, Variable, VariableId,
    Variables,
};

use crate::input_types::InputTypes;

/// Variables that are added at most; what comes after stays as it is. Together with those of the client they
/// are numbered by 16 bits.
const LIFTED_MAX: usize = 4_096;

/// Replaces the literals of `operation`. Returns their values as JSON text: those of the variables that were
/// added behind the client's own.
pub(crate) fn lift(
    graph: &Supergraph,
    types: &InputTypes,
    operation: &mut Operation,
) -> Vec<Option<Box<str>>> {
    if operation.kind == OperationKind::Subscription {
        return Vec::new();
    }
    let mut lifting = Lifting {
        graph,
        types,
        variables: std::mem::take(&mut operation.variables),
        values: Vec::new(),
        known: HashMap::new(),
        names: 0,
    };
    lifting.selection_set(&mut operation.selection_set);
    operation.variables = lifting.variables;
    lifting.values
}

struct Lifting<'a> {
    graph: &'a Supergraph,
    types: &'a InputTypes,
    /// The client's, then ours.
    variables: Vec<Variable>,
    values: Vec<Option<Box<str>>>,
    /// By type and JSON text.
    known: HashMap<(Box<str>, Box<str>), VariableId>,
    /// How many names were tried.
    names: usize,
}

impl Lifting<'_> {
    // Recursion is bounded by the depth of operations.
    fn selection_set(&mut self, set: &mut SelectionSet) {
        for item in &mut set.items {
            match item {
                Selection::Fragment(fragment) => self.selection_set(&mut fragment.selection_set),
                Selection::Field(field) => {
                    if let FieldTarget::Field(id) = field.target {
                        let definition = self.graph.field(id);
                        for (name, value) in &mut field.arguments {
                            let argument = definition.arguments.iter().find(|it| it.name == *name);
                            if let Some(argument) = argument {
                                self.value(value, &argument.ty);
                            }
                        }
                    }
                    if let Some(below) = &mut field.selection_set {
                        self.selection_set(below);
                    }
                }
            }
        }
    }

    /// `ty`: as GraphQL text.
    // Recursion is bounded by the depth that the parser of operations allows.
    fn value(&mut self, value: &mut Value, ty: &str) {
        let named = ty.trim_matches(['[', ']', '!']);
        if is_constant(value) {
            // A subgraph may read the literals of a custom scalar in its own way; plain ones are safe.
            let is_plain = !matches!(value, Value::Enum(_) | Value::List(_) | Value::Object(_));
            if !self.types.is_custom(named) || is_plain {
                self.replace(value, ty);
            }
            return;
        }
        match value {
            Value::List(items) => {
                let item = ty.strip_suffix('!').unwrap_or(ty);
                if let Some(item) = item.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                    for value in items {
                        self.value(value, item);
                    }
                }
            }
            Value::Object(members) => {
                for (key, value) in members {
                    if let Some(field) = self.types.field(named, key) {
                        let ty = field.ty.to_string();
                        self.value(value, &ty);
                    }
                }
            }
            _ => {}
        }
    }

    fn replace(&mut self, value: &mut Value, ty: &str) {
        let mut text = Vec::new();
        execute::print_value(value, &Variables::default(), &mut text);
        // What is printed is text.
        let Ok(text) = String::from_utf8(text) else { return };
        let key = (Box::from(ty), Box::from(text));
        if let Some(&id) = self.known.get(&key) {
            *value = Value::Variable(id);
            return;
        }
        let Ok(number) = u16::try_from(self.variables.len()) else { return };
        if self.values.len() >= LIFTED_MAX {
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
            // Ours are told apart by their numbers.
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
