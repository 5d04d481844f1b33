//! Reading arguments of directives.

use apollo_compiler::{Node, ast::Value, parser::SourceSpan, schema::Directive};

use crate::ConstValue;

/// Returns the string argument of that name and its position.
pub(super) fn read_text<'a>(
    directive: &'a Directive,
    name: &str,
) -> Option<(&'a str, Option<SourceSpan>)> {
    let value = directive.specified_argument_by_name(name)?;
    value.as_str().map(|text| (text, value.location()))
}

/// Returns the enum argument of that name and its position. A string is accepted too, because old composers wrote
/// strings.
pub(super) fn enum_name<'a>(
    directive: &'a Directive,
    name: &str,
) -> Option<(&'a str, Option<SourceSpan>)> {
    let value = directive.specified_argument_by_name(name)?;
    match &**value {
        Value::Enum(name) => Some((name.as_str(), value.location())),
        Value::String(text) => Some((text.as_str(), value.location())),
        _ => None,
    }
}

/// Returns the boolean argument of that name.
pub(super) fn read_boolean(directive: &Directive, name: &str) -> Option<bool> {
    directive.specified_argument_by_name(name)?.to_bool()
}

/// Converts a value to plain data. Variables are invalid in a schema and become null.
pub(super) fn convert_value(value: &Value) -> ConstValue {
    match value {
        Value::Null | Value::Variable(_) => ConstValue::Null,
        Value::Enum(name) => ConstValue::Enum(name.as_str().into()),
        Value::String(text) => ConstValue::String(text.as_str().into()),
        Value::Float(number) => ConstValue::Float(number.as_str().into()),
        Value::Int(number) => ConstValue::Int(number.as_str().into()),
        Value::Boolean(value) => ConstValue::Boolean(*value),
        Value::List(items) => {
            ConstValue::List(items.iter().map(|item| convert_value(item)).collect())
        }
        Value::Object(members) => ConstValue::Object(
            members
                .iter()
                .map(|(name, value): &(_, Node<Value>)| {
                    (name.as_str().into(), convert_value(value))
                })
                .collect(),
        ),
    }
}

impl ConstValue {
    /// Parses GraphQL text such as an argument's default. `None` if it is not exactly one value without variables.
    pub fn parse(text: &str) -> Option<Self> {
        use apollo_compiler::ast::{Definition, Selection};
        let document = apollo_compiler::parser::Parser::new()
            .recursion_limit(super::field_sets::DEPTH_MAX)
            .parse_ast(format!("{{f(a:{text})}}"), "value.graphql")
            .ok()?;
        let [Definition::OperationDefinition(operation)] = &*document.definitions else {
            return None;
        };
        let [Selection::Field(field)] = &*operation.selection_set else { return None };
        let [argument] = &*field.arguments else { return None };
        let is_exact = field.selection_set.is_empty() && field.directives.is_empty();
        is_exact.then(|| convert_value(&argument.value))
    }
}
