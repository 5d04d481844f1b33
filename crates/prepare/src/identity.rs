//! The identity of an operation: a hash of its normalised form, so that documents that differ only
//! in white space, comments, commas or fragments share plans, groups and flights.

use std::fmt::Write as _;

use plan::{FieldTarget, Operation, OperationKind, Selection, SelectionSet, Value};
use sha2::{Digest, Sha256};

use crate::operation_variant::OperationVariant;

/// Returns the identity of an operation: 128 bits of SHA-256, so that clients cannot make two
/// operations share one. `besides` is the part that the normalised form leaves out: default values
/// of variables, introspection.
pub(crate) fn operation_id(graph_id: u64, operation: &Operation, besides: &str) -> u128 {
    let mut text = format!("{graph_id:x} ");
    text.push_str(match operation.kind {
        OperationKind::Query => "query",
        OperationKind::Mutation => "mutation",
        OperationKind::Subscription => "subscription",
    });
    let _ = write!(text, " {:?} (", operation.name);
    for variable in &operation.variables {
        let _ = write!(text, "${}:{},", variable.name, variable.ty);
    }
    let _ = write!(text, "){besides:?}");
    write_selection_set(&operation.selection_set, &mut text);
    first_128_bits(&Sha256::digest(text.as_bytes()))
}

/// Returns the identity of an operation for a variant of the graph. Its plan differs, so it shares no group with the
/// same operation for other variants.
pub(crate) fn of_variant(operation_id: u128, variant: &OperationVariant) -> u128 {
    let OperationVariant { labels, unmet } = variant;
    if labels.is_empty() && unmet.is_empty() {
        return operation_id;
    }
    let mut digest = Sha256::new_with_prefix(operation_id.to_be_bytes());
    digest.update(labels.bits().to_be_bytes());
    unmet.iter().for_each(|requirement| digest.update(requirement.to_be_bytes()));
    first_128_bits(&digest.finalize())
}

/// Returns the identity of a text with the name of the selected operation.
pub(crate) fn text_id(query: &[u8], operation_name: Option<&str>) -> u128 {
    let mut digest = Sha256::new_with_prefix(query);
    if let Some(name) = operation_name {
        // No GraphQL text has this byte, so the text and the name cannot be confused.
        digest.update([0]);
        digest.update(name.as_bytes());
    }
    first_128_bits(&digest.finalize())
}

fn first_128_bits(digest: &[u8]) -> u128 {
    let mut head = [0; 16];
    head.copy_from_slice(&digest[..16]);
    u128::from_be_bytes(head)
}

fn write_selection_set(set: &SelectionSet, out: &mut String) {
    let _ = write!(out, "@{}{{", set.on.0);
    for item in &set.items {
        match item {
            Selection::Field(field) => {
                let _ = write!(out, "{}:", field.response_key);
                match field.target {
                    FieldTarget::Field(id) => {
                        let _ = write!(out, "{}", id.0);
                    }
                    FieldTarget::Typename => out.push('t'),
                    FieldTarget::Introspection => out.push('i'),
                }
                if !field.arguments.is_empty() {
                    out.push('(');
                    for (name, argument) in &field.arguments {
                        let _ = write!(out, "{name}:");
                        write_value(argument, out);
                        out.push(',');
                    }
                    out.push(')');
                }
                write_condition(&field.condition, out);
                if let Some(below) = &field.selection_set {
                    write_selection_set(below, out);
                }
                out.push(' ');
            }
            Selection::Fragment(fragment) => {
                out.push_str("...");
                write_condition(&fragment.condition, out);
                write_selection_set(&fragment.selection_set, out);
            }
        }
    }
    out.push('}');
}

fn write_condition(condition: &plan::Condition, out: &mut String) {
    for (variable, wanted) in &condition.all {
        let _ = write!(out, "?{}={wanted}", variable.0);
    }
}

fn write_value(it: &Value, out: &mut String) {
    let _ = match it {
        Value::Null => write!(out, "null"),
        Value::Int(it) | Value::Float(it) | Value::Enum(it) => write!(out, "{it}"),
        Value::String(it) => write!(out, "{it:?}"),
        Value::Boolean(it) => write!(out, "{it}"),
        Value::Variable(it) => write!(out, "${}", it.0),
        Value::List(items) => {
            out.push('[');
            for item in items {
                write_value(item, out);
                out.push(',');
            }
            write!(out, "]")
        }
        Value::Object(members) => {
            out.push('{');
            for (key, member) in members {
                let _ = write!(out, "{key}:");
                write_value(member, out);
                out.push(',');
            }
            write!(out, "}}")
        }
    };
}
