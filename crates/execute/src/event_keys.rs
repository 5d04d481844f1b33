//! Coerces key members of events to the form that the schema declares. Publishers write `"id": 3`
//! although the type is `ID`; a subgraph that gets the number in a representation compares it with
//! strings and finds nothing. So a number becomes a string if the member is an `ID` or a `String`,
//! and `3.0` becomes `3` if it is an `Int`. Other values do not change, and neither do lists.

use astjson::{Document, Kind, NodeId};
use graph::{Supergraph, TypeRef, TypeRefShape};
use plan::{Path, Plan, RepresentationField};

/// Coerces the members of `payload`, the value of the root field `data_key`, that representations
/// consist of. hot path: once for each event and group. Types are looked up only if a member is a
/// number.
pub(crate) fn coerce_keys(
    document: &mut Document,
    graph: &Supergraph,
    plan: &Plan,
    data_key: &str,
    payload: NodeId,
) {
    for batch in plan.fetches.iter().flat_map(|fetch| fetch.kind.batches()) {
        let representation = &batch.representation;
        for path in &batch.targets {
            for object in objects_at(document, path, data_key, payload) {
                let known_as = representation.typename.as_deref();
                coerce_members(document, graph, &representation.fields, known_as, object);
            }
        }
    }
}

/// Returns the objects of the payload that a path leads to, as far as the payload has them.
fn objects_at(document: &Document, path: &Path, data_key: &str, payload: NodeId) -> Vec<NodeId> {
    let Some((first, steps)) = path.steps.split_first() else { return Vec::new() };
    if *first.data_key != *data_key {
        return Vec::new();
    }
    let mut objects = objects_of(document, payload);
    for step in steps {
        let members = objects.iter().filter_map(|it| document.get(*it, &step.data_key));
        objects = members.flat_map(|it| objects_of(document, it)).collect();
    }
    objects
}

/// Returns the value if it is an object, or the objects in it if it is a list.
fn objects_of(document: &Document, value: NodeId) -> Vec<NodeId> {
    match document.kind(value) {
        Kind::Object => vec![value],
        Kind::Array => document.elements(value).flat_map(|it| objects_of(document, it)).collect(),
        _ => Vec::new(),
    }
}

/// Coerces the members `fields` of an object. Its type is its `__typename`, or `known_as` if it has
/// none.
fn coerce_members(
    document: &mut Document,
    graph: &Supergraph,
    fields: &[RepresentationField],
    known_as: Option<&str>,
    object: NodeId,
) {
    for field in fields {
        let Some(value) = document.get(object, &field.data_key) else { continue };
        if field.fields.is_empty() && document.kind(value) != Kind::Number {
            continue;
        }
        let Some(declared) = declared_type(document, graph, known_as, object, &field.name) else {
            continue;
        };
        let type_name = &graph.ty(declared.named()).name;
        if !field.fields.is_empty() {
            for object in objects_of(document, value) {
                coerce_members(document, graph, &field.fields, Some(type_name), object);
            }
        } else if matches!(declared.shape, TypeRefShape::Named(_))
            && let Some(text) = coerced_number(document.raw(value), type_name)
            && let Ok(value) = document.new_raw(&text)
        {
            document.set(object, &field.data_key, value);
        }
    }
}

/// Returns the type that the schema declares for a field of an object.
fn declared_type<'a>(
    document: &Document,
    graph: &'a Supergraph,
    known_as: Option<&str>,
    object: NodeId,
    field: &str,
) -> Option<&'a TypeRef> {
    let name = document.get(object, "__typename").and_then(|name| document.as_str(name));
    let own = name.and_then(|name| graph.type_named(&name));
    let ty = own.or_else(|| graph.type_named(known_as?))?;
    Some(&graph.field(graph.field_named(ty, field)?).ty)
}

/// Returns the JSON text of a number in the form of that type. `None` if it has that form already,
/// or cannot have it.
fn coerced_number(number: &str, type_name: &str) -> Option<String> {
    let is_plain = number.bytes().all(|it| it.is_ascii_digit() || it == b'-');
    let whole = if is_plain { Some(number.to_owned()) } else { whole_number(number) };
    match type_name {
        "ID" => whole.map(|number| format!("\"{number}\"")),
        "String" => Some(format!("\"{}\"", whole.as_deref().unwrap_or(number))),
        "Int" if !is_plain => whole,
        _ => None,
    }
}

/// Converts `3.0` and `3e0` to `3`, if the number is whole and was not rounded.
fn whole_number(raw: &str) -> Option<String> {
    /// 2^53: above it, adjacent integers become the same number.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let number: f64 = raw.parse().ok()?;
    (number.fract() == 0.0 && number.abs() <= EXACT_MAX).then(|| format!("{number:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_the_form_of_the_declared_type() {
        for (json, type_name, expected) in [
            ("3", "ID", Some("\"3\"")),
            ("-3", "ID", Some("\"-3\"")),
            ("3.0", "ID", Some("\"3\"")),
            ("90071992547409931234", "ID", Some("\"90071992547409931234\"")),
            ("3.5", "ID", None),
            ("3.5", "String", Some("\"3.5\"")),
            ("3", "String", Some("\"3\"")),
            ("3", "Int", None),
            ("3.0", "Int", Some("3")),
            ("3e2", "Int", Some("300")),
            ("3.5", "Int", None),
            ("3", "Float", None),
            ("3", "Sku", None),
        ] {
            assert_eq!(
                coerced_number(json, type_name).as_deref(),
                expected,
                "{json} as {type_name}"
            );
        }
    }
}
