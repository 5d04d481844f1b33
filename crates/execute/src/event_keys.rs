//! Key members of events in the form that the schema declares. Publishers write `"id": 3` where the type is `ID`; a subgraph
//! that gets the number in a representation compares it with texts and finds nothing. So a number becomes a text where
//! the member is an `ID` or a `String`, and `3.0` becomes `3` where it is an `Int`. Everything else stays as it is.

use astjson::{Document, Kind, NodeId};
use graph::{Supergraph, TypeId, TypeRefShape};
use plan::{FetchKind, Path, Plan, RepresentationField};

/// Coerces the members of `payload`, the value of the root field `data_key`, that representations are made of.
pub(crate) fn coerce(
    document: &mut Document,
    graph: &Supergraph,
    plan: &Plan,
    data_key: &str,
    payload: NodeId,
) {
    for fetch in &plan.fetches {
        let FetchKind::Entities { batches, .. } = &fetch.kind else { continue };
        for batch in batches {
            let fixed = batch.representation.typename.as_deref();
            for path in &batch.targets {
                for object in objects_at(document, path, data_key, payload) {
                    let ty = type_of(document, graph, object).or_else(|| graph.type_named(fixed?));
                    if let Some(ty) = ty {
                        coerce_members(document, graph, &batch.representation.fields, ty, object);
                    }
                }
            }
        }
    }
}

/// The objects of the payload that a path leads to, as far as the payload has them.
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

/// The value if it is an object, the objects in it if it is a list.
fn objects_of(document: &Document, value: NodeId) -> Vec<NodeId> {
    match document.kind(value) {
        Kind::Object => vec![value],
        Kind::Array => document.elements(value).flat_map(|it| objects_of(document, it)).collect(),
        _ => Vec::new(),
    }
}

fn type_of(document: &Document, graph: &Supergraph, object: NodeId) -> Option<TypeId> {
    let name = document.as_str(document.get(object, "__typename")?)?;
    graph.type_named(&name)
}

fn coerce_members(
    document: &mut Document,
    graph: &Supergraph,
    fields: &[RepresentationField],
    ty: TypeId,
    object: NodeId,
) {
    for field in fields {
        let Some(value) = document.get(object, &field.data_key) else { continue };
        let Some(declared) = graph.field_named(ty, &field.name) else { continue };
        let declared = &graph.field(declared).ty;
        if !field.fields.is_empty() {
            for object in objects_of(document, value) {
                let ty = type_of(document, graph, object).unwrap_or(declared.named());
                coerce_members(document, graph, &field.fields, ty, object);
            }
            continue;
        }
        if matches!(declared.shape, TypeRefShape::List(_)) {
            continue;
        }
        let Some(text) = coerced(document, value, &graph.ty(declared.named()).name) else {
            continue;
        };
        if let Ok(value) = document.new_raw(&text) {
            document.set(object, &field.data_key, value);
        }
    }
}

/// The JSON text of the value in the form of that type. `None`: it is in that form, or none leads there.
fn coerced(document: &Document, value: NodeId, type_name: &str) -> Option<String> {
    let (kind, raw) = document.kind_and_raw(value);
    if kind != Kind::Number {
        return None;
    }
    let is_plain = raw.bytes().all(|it| it.is_ascii_digit() || it == b'-');
    let whole = if is_plain { Some(raw.to_owned()) } else { whole_number(raw) };
    match type_name {
        "ID" => whole.map(|number| format!("\"{number}\"")),
        "String" => Some(format!("\"{}\"", whole.as_deref().unwrap_or(raw))),
        "Int" if !is_plain => whole,
        _ => None,
    }
}

/// `3.0` and `3e0` as `3`, if the number is whole and was not rounded.
fn whole_number(raw: &str) -> Option<String> {
    /// 2^53: above it, neighbours are one number.
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
            ("\"3\"", "ID", None),
            ("true", "ID", None),
            ("3.5", "String", Some("\"3.5\"")),
            ("3", "String", Some("\"3\"")),
            ("3", "Int", None),
            ("3.0", "Int", Some("3")),
            ("3e2", "Int", Some("300")),
            ("3.5", "Int", None),
            ("\"3\"", "Int", None),
            ("3", "Float", None),
            ("3", "Sku", None),
        ] {
            let mut document = Document::new();
            let value = document.parse(json.to_owned()).unwrap();
            let found = coerced(&document, value, type_name);
            assert_eq!(found.as_deref(), expected, "{json} as {type_name}");
        }
    }
}
