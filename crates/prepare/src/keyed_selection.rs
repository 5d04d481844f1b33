//! Selections of fetches in the form that keys of caches contain: equal for equal requests of different operations.
//!
//! - The field at the top has neither its alias nor its conditions: an entry is the value of the field.
//! - Variables have numbers in place of names, in the order in which they occur.
//! - Arguments are sorted by name, fields by response key, and fragments by type. Subgraphs may answer in another order
//!   then, which makes no difference to the router.

use std::fmt::Write as _;

use apollo_compiler::ast::{self, Selection};
use execute::KeyedSelection;
use plan::VariableId;

/// Writes selections of one fetch. The selections of one field share the numbers of their variables.
pub(crate) struct SelectionWriter<'a> {
    /// The variables of the operation.
    operation: &'a [(Box<str>, VariableId)],
    /// A variable that is left out: that of the representations, which are a part of keys of their own.
    left_out: Option<&'a str>,
    variables: Vec<VariableId>,
    reads_context: bool,
}

impl<'a> SelectionWriter<'a> {
    /// Creates a writer for an operation with these variables.
    pub(crate) fn new(operation: &'a [(Box<str>, VariableId)], left_out: Option<&'a str>) -> Self {
        Self { operation, left_out, variables: Vec::new(), reads_context: false }
    }

    /// Returns the text of a field at the top of a request.
    pub(crate) fn write_top(&mut self, field: &ast::Field) -> String {
        let mut text = String::with_capacity(128);
        text.push_str(&field.name);
        self.write_arguments(&field.arguments, &mut text);
        self.write_selections(&field.selection_set, &mut text);
        text
    }

    /// Returns the form of the selections with the texts that are joined in `text`.
    pub(crate) fn finish(self, text: String) -> KeyedSelection {
        let Self { variables, reads_context, .. } = self;
        KeyedSelection { text: text.into(), variables, reads_context }
    }

    // Recursion is bounded by the depth of operations, which is limited before they are planned.
    fn write_selections(&mut self, all: &[Selection], out: &mut String) {
        if all.is_empty() {
            return;
        }
        let mut sorted: Vec<&Selection> = all.iter().collect();
        // The sort is stable: selections of one response key under different conditions keep their order.
        sorted.sort_by_key(|selection| match selection {
            Selection::Field(field) => (0, field.response_name().as_str()),
            Selection::InlineFragment(fragment) => {
                (1, fragment.type_condition.as_ref().map_or("", |name| name.as_str()))
            }
            Selection::FragmentSpread(spread) => (2, spread.fragment_name.as_str()),
        });
        for (number, selection) in sorted.into_iter().enumerate() {
            out.push(if number == 0 { '{' } else { ' ' });
            match selection {
                Selection::Field(field) => {
                    if let Some(alias) = &field.alias {
                        let _ = write!(out, "{alias}:");
                    }
                    out.push_str(&field.name);
                    self.write_arguments(&field.arguments, out);
                    self.write_directives(&field.directives, out);
                    self.write_selections(&field.selection_set, out);
                }
                Selection::InlineFragment(fragment) => {
                    out.push_str("...");
                    if let Some(name) = &fragment.type_condition {
                        let _ = write!(out, "on {name}");
                    }
                    self.write_directives(&fragment.directives, out);
                    self.write_selections(&fragment.selection_set, out);
                }
                Selection::FragmentSpread(spread) => {
                    let _ = write!(out, "...{}", spread.fragment_name);
                    self.write_directives(&spread.directives, out);
                }
            }
        }
        out.push('}');
    }

    fn write_directives(&mut self, all: &ast::DirectiveList, out: &mut String) {
        for directive in all {
            let _ = write!(out, "@{}", directive.name);
            self.write_arguments(&directive.arguments, out);
        }
    }

    fn write_arguments(&mut self, all: &[apollo_compiler::Node<ast::Argument>], out: &mut String) {
        let mut sorted: Vec<&ast::Argument> = all.iter().map(|argument| &**argument).collect();
        sorted.sort_by_key(|argument| argument.name.as_str());
        for (number, argument) in sorted.into_iter().enumerate() {
            out.push(if number == 0 { '(' } else { ',' });
            let _ = write!(out, "{}:", argument.name);
            self.write_value(&argument.value, out);
        }
        if !all.is_empty() {
            out.push(')');
        }
    }

    fn write_value(&mut self, value: &ast::Value, out: &mut String) {
        match value {
            ast::Value::Variable(name) if self.left_out == Some(name.as_str()) => {}
            ast::Value::Variable(name) => {
                let known = self.operation.iter().find(|(known, _)| **known == **name);
                let Some((_, id)) = known else {
                    self.reads_context = true;
                    let _ = write!(out, "${name}");
                    return;
                };
                let number = self.variables.iter().position(|it| it == id).unwrap_or_else(|| {
                    self.variables.push(*id);
                    self.variables.len() - 1
                });
                let _ = write!(out, "${number}");
            }
            ast::Value::List(items) => {
                out.push('[');
                for (number, item) in items.iter().enumerate() {
                    if number > 0 {
                        out.push(',');
                    }
                    self.write_value(item, out);
                }
                out.push(']');
            }
            ast::Value::Object(members) => {
                out.push('{');
                for (number, (name, value)) in members.iter().enumerate() {
                    if number > 0 {
                        out.push(',');
                    }
                    let _ = write!(out, "{name}:");
                    self.write_value(value, out);
                }
                out.push('}');
            }
            other => {
                let _ = write!(out, "{}", other.serialize().no_indent());
            }
        }
    }
}
