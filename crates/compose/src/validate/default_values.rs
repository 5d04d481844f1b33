//! Defaults of arguments and input fields: each must be a value of its type.

use apollo_compiler::ast::{Type, Value};

use crate::{
    code::Code,
    finding::Findings,
    subgraph::model::{InputDefinition, SubgraphModel, TypeKind},
};

/// Checks all defaults of a subgraph.
pub(super) fn check(subgraph: &SubgraphModel, findings: &mut Findings<'_>) {
    for ty in subgraph.types.values() {
        for field in ty.fields.values() {
            for argument in field.arguments.values() {
                let coordinate = || format!("{}.{}({}:)", ty.name, field.name, argument.name);
                check_one(subgraph, argument, &coordinate, findings);
            }
        }
        for input in ty.inputs.values() {
            check_one(subgraph, input, &|| format!("{}.{}", ty.name, input.name), findings);
        }
    }
}

fn check_one(
    subgraph: &SubgraphModel,
    input: &InputDefinition,
    coordinate: &dyn Fn() -> String,
    findings: &mut Findings<'_>,
) {
    let Some(default) = &input.default else { return };
    if is_value_of(subgraph, default, &input.ty) {
        return;
    }
    findings.error(
        Code::INVALID_GRAPHQL,
        [(subgraph.id, default.location())],
        format!(
            "the default `{}` of `{}` is not a value of type `{}`",
            default.serialize().no_indent(),
            coordinate(),
            input.ty
        ),
        "correct the default or the type",
    );
}

/// True if `value` may be given where an input of type `ty` is expected. Values of custom scalars are not known here.
fn is_value_of(subgraph: &SubgraphModel, value: &Value, ty: &Type) -> bool {
    if value.is_null() {
        return !ty.is_non_null();
    }
    if ty.is_list() {
        return match value {
            Value::List(items) => {
                items.iter().all(|item| is_value_of(subgraph, item, ty.item_type()))
            }
            // GraphQL reads a single value as a list of one.
            single => is_value_of(subgraph, single, ty.item_type()),
        };
    }
    let name = ty.inner_named_type();
    match (name.as_str(), value) {
        ("Int", Value::Int(number)) => number.try_to_i32().is_ok(),
        ("Float", Value::Int(_) | Value::Float(_))
        | ("String" | "ID", Value::String(_))
        | ("ID", Value::Int(_))
        | ("Boolean", Value::Boolean(_)) => true,
        ("Int" | "Float" | "String" | "Boolean" | "ID", _) => false,
        _ => match (subgraph.types.get(name), value) {
            (None, _) => true,
            (Some(ty), _) if ty.kind == TypeKind::Scalar => true,
            (Some(ty), Value::Enum(name)) => ty.values.contains_key(name),
            (Some(ty), Value::Object(members)) => {
                let is_known = members.iter().all(|(name, value)| {
                    let input = ty.inputs.get(name);
                    input.is_some_and(|input| is_value_of(subgraph, value, &input.ty))
                });
                let is_given = |input: &InputDefinition| {
                    !input.ty.is_non_null()
                        || input.default.is_some()
                        || members.iter().any(|(name, _)| *name == input.name)
                };
                is_known && ty.inputs.values().all(is_given)
            }
            _ => false,
        },
    }
}
