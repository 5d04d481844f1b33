//! Prints arguments of event fields as JSON text: values of the operation with the variables
//! inserted.

use plan::{Value, Variables};

/// Prints the arguments as a JSON object. An argument whose variable has no value is left out
/// (GraphQL specification, section 6.4.1).
pub(crate) fn print_arguments(
    arguments: &[(Box<str>, Value)],
    variables: &Variables,
    out: &mut Vec<u8>,
) {
    out.push(b'{');
    let mut first = true;
    for (name, value) in arguments {
        if is_absent(value, variables) {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        astjson::print_string(name, out);
        out.push(b':');
        print_value(value, variables, out);
    }
    out.push(b'}');
}

fn is_absent(value: &Value, variables: &Variables) -> bool {
    matches!(value, Value::Variable(id) if variables.get(*id).is_none())
}

// Recursion is bounded by the depth that the parser of operations allows.
/// Prints a value of an operation as JSON text, with the variables inserted. Enum values become
/// strings.
pub fn print_value(value: &Value, variables: &Variables, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Int(text) | Value::Float(text) => out.extend_from_slice(text.as_bytes()),
        Value::String(text) | Value::Enum(text) => astjson::print_string(text, out),
        Value::Boolean(value) => {
            out.extend_from_slice(if *value { b"true".as_slice() } else { b"false" });
        }
        Value::List(values) => {
            out.push(b'[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                print_value(value, variables, out);
            }
            out.push(b']');
        }
        Value::Object(members) => print_arguments(members, variables, out),
        // In a list a variable without a value counts as null.
        Value::Variable(id) => {
            out.extend_from_slice(variables.get(*id).unwrap_or("null").as_bytes());
        }
    }
}
