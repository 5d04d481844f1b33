//! Arguments of fields in one form, for comparison across the client's operation, subgraph operations and field sets:
//! arguments are part of a field's identity.

use apollo_compiler::{Name, Node, ast};
use graph::ConstValue;
use plan::{Operation, Value, VariableId};

/// The arguments of a field, sorted by name.
pub(crate) type Arguments = Vec<(Box<str>, Value)>;

/// Converts the arguments of a field in the client's operation.
pub(crate) fn client_arguments(arguments: &[(Box<str>, Value)]) -> Arguments {
    sorted(arguments.to_vec())
}

/// Converts the arguments of a field in a subgraph operation. A variable that the client does not have gets an id that
/// matches no other.
pub(crate) fn subgraph_arguments<'a>(
    arguments: impl Iterator<Item = &'a Node<ast::Argument>>,
    operation: &Operation,
) -> Arguments {
    let of = |argument: &Node<ast::Argument>| {
        (argument.name.as_str().into(), convert_ast(&argument.value, operation))
    };
    sorted(arguments.map(of).collect())
}

/// Converts the arguments of a field in a field set; `None` if the text is not a list of arguments.
pub(crate) fn field_set_arguments(text: &str) -> Option<Arguments> {
    match ConstValue::parse(&format!("{{{text}}}"))? {
        ConstValue::Object(members) => {
            let of = |(name, value)| (name, Value::from(value));
            Some(sorted(members.into_iter().map(of).collect()))
        }
        _ => None,
    }
}

fn sorted(mut arguments: Arguments) -> Arguments {
    arguments.sort_by(|(a, _), (b, _)| a.cmp(b));
    arguments
}

fn convert_ast(value: &ast::Value, operation: &Operation) -> Value {
    match value {
        ast::Value::Null => Value::Null,
        ast::Value::Enum(name) => Value::Enum(name.as_str().into()),
        ast::Value::String(text) => Value::String(text.as_str().into()),
        ast::Value::Float(number) => Value::Float(number.as_str().into()),
        ast::Value::Int(number) => Value::Int(number.as_str().into()),
        ast::Value::Boolean(value) => Value::Boolean(*value),
        ast::Value::List(items) => {
            Value::List(items.iter().map(|item| convert_ast(item, operation)).collect())
        }
        ast::Value::Object(members) => {
            let of = |(name, value): &(Name, Node<ast::Value>)| {
                (name.as_str().into(), convert_ast(value, operation))
            };
            Value::Object(members.iter().map(of).collect())
        }
        ast::Value::Variable(name) => {
            let known = operation.variables.iter().position(|variable| *variable.name == **name);
            Value::Variable(VariableId(known.map_or(u16::MAX, |index| index as u16)))
        }
    }
}
