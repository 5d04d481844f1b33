//! Reads invalidations from events of brokers: messages in the form of the admin API, and events that name an object by
//! `__typename` and the fields of its keys.

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;
use cache::{EntityKey, INVALIDATIONS_MAX, Invalidation, InvalidationError, read_invalidation};
use graph::{FieldId, FieldSet, FieldSetItem, Supergraph, TypeId};

/// The maximum number of bytes of a type's name in a message about an event.
const NAME_BYTES_MAX: usize = 100;

/// The reason why an event names nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidationEventError {
    /// The payload, or a part of it, is not an invalidation.
    #[error(transparent)]
    Invalidation(#[from] InvalidationError),
    /// The `__typename` is not the name of a type.
    #[error("the graph has no type `{0}`")]
    UnknownType(Box<str>),
    /// The value of a field is neither an object nor a list of objects.
    #[error("the value of the field is not an object")]
    NotAnObject,
    /// The object has no key.
    #[error("an event of type `{0}` needs all fields of one of its keys")]
    NoKey(Box<str>),
}

/// Reads one invalidation or a list of them: objects with `__typename` and fields of its keys, or objects in the form
/// of [`read_invalidation`]. An object with several complete keys is one invalidation for each, because a subgraph may
/// have been asked for it by any of them.
///
/// # Errors
/// The first mistake. Nothing of such an event should be applied.
pub fn read_invalidation_event(
    graph: &Supergraph,
    payload: Bytes,
) -> Result<Vec<Invalidation>, InvalidationEventError> {
    let mut document = Document::new();
    let nodes = read_nodes(&mut document, payload)?;
    let mut all = Vec::with_capacity(nodes.len());
    for node in nodes {
        let name = match document.kind(node) {
            Kind::Object => document.get(node, "__typename").and_then(|it| document.as_str(it)),
            _ => None,
        };
        match name {
            Some(name) => add_object(graph, &document, node, &name, &mut all)?,
            None => all.push(read_invalidation(&document, node)?),
        }
    }
    Ok(all)
}

/// Reads the value of a subscription field with `invalidate: true`: an object or a list of them, each with the fields
/// of its keys. An object without a `__typename` is of the type of the field. Nulls name nothing.
///
/// # Errors
/// The first mistake. Nothing of such an event should be applied.
pub fn read_field_event(
    graph: &Supergraph,
    field: FieldId,
    payload: Bytes,
) -> Result<Vec<Invalidation>, InvalidationEventError> {
    let mut document = Document::new();
    let mut all = Vec::new();
    for node in read_nodes(&mut document, payload)? {
        match document.kind(node) {
            Kind::Null => continue,
            Kind::Object => {}
            _ => return Err(InvalidationEventError::NotAnObject),
        }
        let name = document.get(node, "__typename").and_then(|name| document.as_str(name));
        let of_field = || (*graph.ty(graph.field(field).ty.named()).name).into();
        add_object(graph, &document, node, &name.unwrap_or_else(of_field), &mut all)?;
    }
    Ok(all)
}

/// Parses one value or a list of them.
fn read_nodes(
    document: &mut Document,
    payload: Bytes,
) -> Result<Vec<NodeId>, InvalidationEventError> {
    let root =
        document.parse(payload).map_err(|error| InvalidationError::NotJson(error.to_string()))?;
    match document.kind(root) {
        Kind::Array if document.len(root) > INVALIDATIONS_MAX => {
            Err(InvalidationError::TooMany.into())
        }
        Kind::Array => Ok(document.elements(root).collect()),
        _ => Ok(vec![root]),
    }
}

/// Adds an invalidation for each key of an object that is complete.
fn add_object(
    graph: &Supergraph,
    document: &Document,
    object: NodeId,
    name: &str,
    all: &mut Vec<Invalidation>,
) -> Result<(), InvalidationEventError> {
    let shown = || name[..name.floor_char_boundary(NAME_BYTES_MAX)].into();
    let Some(id) = graph.type_named(name) else {
        return Err(InvalidationEventError::UnknownType(shown()));
    };
    let before = all.len();
    for id in related_types(graph, id) {
        let of_type = graph.ty(id);
        for key in of_type.subgraphs.iter().flat_map(|it| &it.keys) {
            let (mut path, mut fields) = (String::new(), Vec::new());
            if !collect_key(graph, document, object, &key.fields, &mut path, &mut fields) {
                continue;
            }
            let Ok(key) = EntityKey::from_fields(fields) else { continue };
            let invalidation = Invalidation::Entity { type_name: of_type.name.clone(), key };
            // Several subgraphs have the same key.
            if !all[before..].contains(&invalidation) {
                all.push(invalidation);
            }
        }
    }
    match all.len() > before {
        true => Ok(()),
        false => Err(InvalidationEventError::NoKey(shown())),
    }
}

/// Returns the types whose names the representations of an object have: its own, and, because of interface objects,
/// those of its interfaces. For an event that names an interface, also its object types.
fn related_types(graph: &Supergraph, id: TypeId) -> impl Iterator<Item = TypeId> + '_ {
    let own = graph.ty(id);
    let possible: &[TypeId] = if own.kind.is_abstract() { &own.possible } else { &[] };
    [id].into_iter().chain(own.implements.iter().copied()).chain(possible.iter().copied())
}

/// Collects the fields of a key with their paths. Returns false if the object does not have all of them.
///
/// Recursion is bounded by the nesting of the key.
fn collect_key(
    graph: &Supergraph,
    document: &Document,
    object: NodeId,
    set: &FieldSet,
    path: &mut String,
    fields: &mut Vec<(Box<str>, Box<str>)>,
) -> bool {
    if document.kind(object) != Kind::Object {
        return false;
    }
    set.items.iter().all(|item| match item {
        FieldSetItem::Field { field, fields: inner, .. } => {
            let name = &graph.field(*field).name;
            let Some(value) = document.get(object, name) else { return false };
            let length = path.len();
            if length > 0 {
                path.push('.');
            }
            path.push_str(name);
            let is_complete = collect_value(graph, document, value, inner, path, fields);
            path.truncate(length);
            is_complete
        }
        FieldSetItem::Fragment { on, fields: inner } => {
            let name = document.get(object, "__typename").and_then(|name| document.as_str(name));
            let applies = name.is_some_and(|name| *name == *graph.ty(*on).name);
            !applies || collect_key(graph, document, object, inner, path, fields)
        }
    })
}

/// Collects one value of a key. Null is no value: an entity is not requested by a key that is null.
fn collect_value(
    graph: &Supergraph,
    document: &Document,
    value: NodeId,
    inner: &FieldSet,
    path: &mut String,
    fields: &mut Vec<(Box<str>, Box<str>)>,
) -> bool {
    match document.kind(value) {
        Kind::Null => return false,
        Kind::Object => return collect_key(graph, document, value, inner, path, fields),
        Kind::Array => {
            return document.elements(value).enumerate().all(|(index, element)| {
                let length = path.len();
                path.push_str(&format!(".{index}"));
                let is_complete = collect_value(graph, document, element, inner, path, fields);
                path.truncate(length);
                is_complete
            });
        }
        Kind::String | Kind::Bool | Kind::Number => {}
    }
    let text = document.as_str(value).map_or_else(|| document.raw(value).into(), Box::from);
    fields.push((path.as_str().into(), text));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: &str = r#"
        schema @link(url: "https://specs.apollo.dev/link/v1.0")
          @link(url: "https://specs.apollo.dev/join/v0.3", for: EXECUTION) { query: Query }
        directive @join__graph(name: String!, url: String!) on ENUM_VALUE
        directive @join__type(graph: join__Graph!, key: join__FieldSet, extension: Boolean! = false, resolvable: Boolean! = true, isInterfaceObject: Boolean! = false) repeatable on OBJECT | INTERFACE | UNION | ENUM | INPUT_OBJECT | SCALAR
        directive @join__field(graph: join__Graph, requires: join__FieldSet, provides: join__FieldSet, type: String, external: Boolean, override: String, usedOverridden: Boolean) repeatable on FIELD_DEFINITION | INPUT_FIELD_DEFINITION
        directive @join__implements(graph: join__Graph!, interface: String!) repeatable on OBJECT | INTERFACE
        directive @link(url: String, as: String, for: link__Purpose, import: [link__Import]) repeatable on SCHEMA
        scalar join__FieldSet
        scalar link__Import
        enum link__Purpose { SECURITY EXECUTION }
        enum join__Graph {
          A @join__graph(name: "a", url: "http://a")
          B @join__graph(name: "b", url: "http://b")
        }
        interface Media @join__type(graph: A, key: "id") @join__type(graph: B, key: "id") { id: ID! }
        type Book implements Media
          @join__implements(graph: A, interface: "Media") @join__implements(graph: B, interface: "Media")
          @join__type(graph: A, key: "id") @join__type(graph: B, key: "id") { id: ID! }
        type Product
          @join__type(graph: A, key: "upc") @join__type(graph: A, key: "sku org { id }")
          @join__type(graph: B, key: "upc") {
          upc: ID! @join__field(graph: A) @join__field(graph: B)
          sku: String @join__field(graph: A)
          org: Org @join__field(graph: A)
        }
        type Org @join__type(graph: A) { id: ID! name: String }
        type Query @join__type(graph: A) @join__type(graph: B) { product: Product @join__field(graph: A) }
    "#;

    fn read(payload: &'static str) -> Result<Vec<Invalidation>, String> {
        let graph = Supergraph::from_sdl(GRAPH, "test.graphql").expect("a graph");
        read_invalidation_event(&graph, payload.into()).map_err(|error| error.to_string())
    }

    fn entity(type_name: &str, key: &str) -> Invalidation {
        let key = EntityKey::from_json(key).expect("a key");
        Invalidation::Entity { type_name: type_name.into(), key }
    }

    #[test]
    fn an_event_names_an_object_by_each_complete_key() {
        let upc = || entity("Product", r#"{"upc":"1"}"#);
        let event = r#"{"__typename":"Product","upc":1,"price":5,"kind":"all"}"#;
        assert_eq!(read(event), Ok(vec![upc()]));
        let event = r#"{"__typename":"Product","upc":"1","sku":"s","org":{"id":2,"name":"x"}}"#;
        let both = vec![upc(), entity("Product", r#"{"sku":"s","org":{"id":"2"}}"#)];
        assert_eq!(read(event), Ok(both));
        let event = r#"{"__typename":"Product","upc":"1","sku":"s","org":null}"#;
        assert_eq!(read(event), Ok(vec![upc()]));
    }

    #[test]
    fn an_object_is_also_stale_under_the_name_of_its_interface() {
        let both = ["Book", "Media"].map(|name| entity(name, r#"{"id":"7"}"#));
        assert_eq!(read(r#"{"__typename":"Book","id":"7"}"#), Ok(both.to_vec()));
        let reverse = ["Media", "Book"].map(|name| entity(name, r#"{"id":"7"}"#));
        assert_eq!(read(r#"{"__typename":"Media","id":"7"}"#), Ok(reverse.to_vec()));
    }

    #[test]
    fn a_list_may_mix_objects_and_invalidations() {
        let all =
            read(r#"[{"kind":"cache_tag","cache_tag":"t"},{"__typename":"Product","upc":"1"}]"#);
        let tag = Invalidation::Tag("t".into());
        assert_eq!(all, Ok(vec![tag, entity("Product", r#"{"upc":"1"}"#)]));
        assert_eq!(read("[]"), Ok(vec![]));
    }

    #[test]
    fn the_value_of_a_field_is_of_the_fields_type_unless_it_says_another() {
        let graph = Supergraph::from_sdl(GRAPH, "test.graphql").expect("a graph");
        let product = graph.field_named(graph.query, "product").expect("a field");
        let read = |payload: &'static str| {
            read_field_event(&graph, product, payload.into()).map_err(|error| error.to_string())
        };
        let upc = |upc| entity("Product", &format!(r#"{{"upc":"{upc}"}}"#));
        assert_eq!(read(r#"{"upc":"1","price":5}"#), Ok(vec![upc(1)]));
        assert_eq!(read(r#"[{"upc":"1"},null,{"upc":"2"}]"#), Ok(vec![upc(1), upc(2)]));
        assert_eq!(read("null"), Ok(vec![]));
        let book = ["Book", "Media"].map(|name| entity(name, r#"{"id":"7"}"#));
        assert_eq!(read(r#"{"__typename":"Book","id":"7"}"#), Ok(book.to_vec()));
        assert_eq!(read("5"), Err("the value of the field is not an object".to_owned()));
        // The forms of the admin API belong to the topics of the configuration.
        let incomplete = "an event of type `Product` needs all fields of one of its keys";
        assert_eq!(read(r#"{"kind":"all"}"#), Err(incomplete.to_owned()));
    }

    #[test]
    fn other_events_name_nothing_and_say_why() {
        let refused = |payload| read(payload).expect_err("refused");
        assert!(refused("{").starts_with("the text is not JSON"));
        assert!(refused("5").starts_with("an invalidation must be an object"));
        assert_eq!(refused(r#"{"id":5}"#), "the member `kind` must be a text");
        assert_eq!(refused(r#"{"__typename":"Car"}"#), "the graph has no type `Car`");
        let incomplete = "an event of type `Product` needs all fields of one of its keys";
        assert_eq!(refused(r#"{"__typename":"Product","sku":"s","org":{"name":"x"}}"#), incomplete);
        assert!(refused(r#"{"__typename":"Org","id":1}"#).contains("`Org`"));
    }
}
