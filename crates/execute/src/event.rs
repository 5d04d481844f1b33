//! Payloads from brokers: the event that starts the execution of a subscription, and responses to requests. This module
//! checks that a payload has the form that the plan relies on, and adds the facts that only the schema has: the type of
//! objects that can have one type only, and the form of key members (see [`crate::event_keys`]).

use astjson::{Document, Kind, NodeId};
use graph::Supergraph;
use plan::{
    Fetch, FetchId, FetchKind, Plan, RepresentationField, ShapeField, ValueKind, ValueShape,
};

use crate::error_path::has_type;
use crate::event_keys;

/// Checks and completes a payload, the value of the root field `field`. `Err` describes the
/// problem, to continue the sentence "The event …".
pub(crate) fn complete_payload(
    document: &mut Document,
    graph: &Supergraph,
    plan: &Plan,
    field: &ShapeField,
    payload: NodeId,
) -> Result<(), String> {
    check_value(document, plan, &field.data_key, &field.value, payload)?;
    event_keys::coerce_keys(document, graph, plan, &field.data_key, payload);
    Ok(())
}

fn check_value(
    document: &mut Document,
    plan: &Plan,
    data_key: &str,
    shape: &ValueShape,
    value: NodeId,
) -> Result<(), String> {
    match &shape.kind {
        ValueKind::List(element) => {
            if document.kind(value) != Kind::Array {
                return Err("is not a JSON array".into());
            }
            let values: Vec<NodeId> = document.elements(value).collect();
            for value in values {
                if !(document.is_null(value) && element.nullable) {
                    check_value(document, plan, data_key, element, value)?;
                }
            }
            Ok(())
        }
        ValueKind::Object(id) => {
            if document.kind(value) != Kind::Object {
                return Err("is not a JSON object".into());
            }
            let object = plan.shape.objects.get(id.0 as usize);
            let typename = match document.get(value, "__typename") {
                Some(typename) => typename,
                None => {
                    let only = object.filter(|it| !it.is_abstract);
                    let Some(only) = only.and_then(|it| it.variants.first()) else {
                        return Err("has no __typename".into());
                    };
                    let typename = document.new_string(&only.type_name);
                    document.set(value, "__typename", typename);
                    typename
                }
            };
            let known = object.is_some_and(|object| {
                object.variants.iter().any(|it| document.str_eq(typename, &it.type_name))
            });
            if !known {
                return Err(match document.as_str(typename) {
                    Some(name) => {
                        format!("has the __typename \"{name}\", which is not expected here")
                    }
                    None => "has a __typename that is not a string".into(),
                });
            }
            check_keys(document, plan, data_key, value)
        }
        ValueKind::Leaf(_) | ValueKind::Typename | ValueKind::Verbatim | ValueKind::Denied => {
            Ok(())
        }
    }
}

/// Checks that every key that the first fetches send is in the payload itself.
fn check_keys(
    document: &Document,
    plan: &Plan,
    data_key: &str,
    object: NodeId,
) -> Result<(), String> {
    let is_asked_over_a_broker = |id: &FetchId| {
        let fetch = plan.fetches.get(id.0 as usize);
        fetch.is_some_and(|fetch| matches!(fetch.kind, FetchKind::Request(_)))
    };
    let of_payloads = |fetch: &&Fetch| fetch.depends_on.iter().all(is_asked_over_a_broker);
    for fetch in plan.fetches.iter().filter(of_payloads) {
        let FetchKind::Entities { batches, .. } = &fetch.kind else { continue };
        for batch in batches {
            let concerned = batch.targets.iter().any(|target| {
                matches!(&target.steps[..], [step] if *step.data_key == *data_key
                    && has_type(document, object, &step.types))
            });
            if concerned {
                check_members(document, &batch.representation.fields, object)?;
            }
        }
    }
    Ok(())
}

fn check_members(
    document: &Document,
    fields: &[RepresentationField],
    object: NodeId,
) -> Result<(), String> {
    for field in fields {
        if !field.key || !has_type(document, object, &field.types) {
            continue;
        }
        match document.get(object, &field.data_key) {
            None => return Err(format!("has no key field \"{}\"", field.name)),
            Some(value) if document.is_null(value) => {
                return Err(format!("has null as key field \"{}\"", field.name));
            }
            Some(value) if field.fields.is_empty() => {
                if matches!(document.kind(value), Kind::Object) {
                    return Err(format!("has an object as key field \"{}\"", field.name));
                }
            }
            Some(value) => match document.kind(value) {
                Kind::Object => check_members(document, &field.fields, value)?,
                Kind::Array => {}
                _ => return Err(format!("has no object as key field \"{}\"", field.name)),
            },
        }
    }
    Ok(())
}
