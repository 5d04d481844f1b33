//! The entities that the response to a mutation contains, and that the mutation has changed
//! (`@openfed__cacheInvalidate`, `@openfed__cachePopulate`). They are found by their keys, which the request selects in
//! addition to the fields of the client.

use astjson::{Document, Kind, NodeId};
use cache::{DeclaredPolicy, EntityKey, Invalidation};

use super::KeyedSelection;

/// A root field of a mutation that returns a changed entity or a list of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedEntity {
    /// The key of the field in the `data` of responses.
    pub data_key: Box<str>,
    /// The keys of the entity.
    pub keys: Vec<ChangedKey>,
    /// The entries that are made of its values; none if it is only made stale.
    pub populated: Vec<PopulatedEntry>,
}

/// A key of a changed entity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedKey {
    /// The type that representations with this key name: the type of the entity, or an interface of it.
    pub type_name: Box<str>,
    /// The fields of the key.
    pub fields: Vec<ChangedKeyField>,
}

/// A field of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedKeyField {
    /// The name of the field in the key.
    pub name: Box<str>,
    /// The response key of its value in the entity.
    pub response_key: Box<str>,
    /// The fields of its value; empty for a scalar.
    pub fields: Vec<ChangedKeyField>,
}

/// An entry that is made of a changed entity: the one of later requests that name the entity by one of its keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PopulatedEntry {
    /// The index of the key in [`ChangedEntity::keys`].
    pub key: usize,
    /// The request for the fields of the entity, without those of the key.
    pub selection: KeyedSelection,
    /// The policy that schema and configuration declare.
    pub declared: DeclaredPolicy,
    /// The types of the objects below the entity.
    pub type_names: Vec<Box<str>>,
    /// The members of the entity that the entry has.
    pub members: Vec<PopulatedMember>,
}

/// A member of a populated entity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PopulatedMember {
    /// The response key.
    pub response_key: Box<str>,
    /// True if it is selected under conditions, and may be missing.
    pub is_conditional: bool,
}

impl ChangedEntity {
    /// Adds an invalidation for each complete key of each entity in the `data` of a response.
    pub(super) fn add_invalidations(
        &self,
        document: &Document,
        data: NodeId,
        all: &mut impl FnMut(Invalidation),
    ) {
        self.for_each_object(document, data, &mut |object| {
            for key in &self.keys {
                if let Some(found) = key.read(document, object) {
                    all(Invalidation::Entity { type_name: key.type_name.clone(), key: found });
                }
            }
        });
    }

    /// Calls `visit` with each entity in the `data` of a response.
    pub(super) fn for_each_object(
        &self,
        document: &Document,
        data: NodeId,
        visit: &mut impl FnMut(NodeId),
    ) {
        if document.kind(data) == Kind::Object
            && let Some(value) = document.get(data, &self.data_key)
        {
            visit_objects(document, value, visit);
        }
    }
}

// Recursion is bounded by the nesting that the parser allows.
fn visit_objects(document: &Document, value: NodeId, visit: &mut impl FnMut(NodeId)) {
    match document.kind(value) {
        Kind::Array => {
            document.elements(value).for_each(|element| visit_objects(document, element, visit));
        }
        Kind::Object => visit(value),
        Kind::String | Kind::Null | Kind::Bool | Kind::Number => {}
    }
}

impl ChangedKey {
    /// Returns the key of an entity. `None` if the entity does not have all of its fields.
    pub(super) fn read(&self, document: &Document, object: NodeId) -> Option<EntityKey> {
        let (mut path, mut fields) = (String::new(), Vec::new());
        let is_complete = collect_fields(document, object, &self.fields, &mut path, &mut fields);
        if is_complete { EntityKey::from_fields(fields).ok() } else { None }
    }

    /// Writes the representation of an entity, as a request for it has it. Returns false if the entity does not have
    /// all fields of the key; `out` then holds a part of it.
    pub(super) fn write_representation(
        &self,
        document: &Document,
        object: NodeId,
        out: &mut Vec<u8>,
    ) -> bool {
        out.extend_from_slice(b"{\"__typename\":");
        astjson::print_string(&self.type_name, out);
        write_fields(document, object, &self.fields, true, out)
    }
}

/// Writes the fields of a key, and closes the object. `is_continued` is true if it has a member already.
///
/// Recursion is bounded by the nesting of the key.
fn write_fields(
    document: &Document,
    object: NodeId,
    fields: &[ChangedKeyField],
    is_continued: bool,
    out: &mut Vec<u8>,
) -> bool {
    for (number, field) in fields.iter().enumerate() {
        let Some(value) = document.get(object, &field.response_key) else { return false };
        if is_continued || number > 0 {
            out.push(b',');
        }
        astjson::print_string(&field.name, out);
        out.push(b':');
        if !write_value(document, value, &field.fields, out) {
            return false;
        }
    }
    out.push(b'}');
    true
}

fn write_value(
    document: &Document,
    value: NodeId,
    fields: &[ChangedKeyField],
    out: &mut Vec<u8>,
) -> bool {
    match document.kind(value) {
        Kind::Null => false,
        _ if fields.is_empty() => {
            document.print(value, out);
            true
        }
        Kind::Object => {
            out.push(b'{');
            write_fields(document, value, fields, false, out)
        }
        Kind::Array => {
            out.push(b'[');
            for (number, element) in document.elements(value).enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                if !write_value(document, element, fields, out) {
                    return false;
                }
            }
            out.push(b']');
            true
        }
        Kind::String | Kind::Bool | Kind::Number => false,
    }
}

/// Collects the fields of a key with their paths. Returns false if the object does not have all of them: null is no
/// value, because an entity is not requested by a key that is null.
///
/// Recursion is bounded by the nesting of the key.
fn collect_fields(
    document: &Document,
    object: NodeId,
    fields: &[ChangedKeyField],
    path: &mut String,
    found: &mut Vec<(Box<str>, Box<str>)>,
) -> bool {
    document.kind(object) == Kind::Object
        && fields.iter().all(|field| {
            let Some(value) = document.get(object, &field.response_key) else { return false };
            let length = path.len();
            if length > 0 {
                path.push('.');
            }
            path.push_str(&field.name);
            let is_complete = collect_value(document, value, &field.fields, path, found);
            path.truncate(length);
            is_complete
        })
}

fn collect_value(
    document: &Document,
    value: NodeId,
    fields: &[ChangedKeyField],
    path: &mut String,
    found: &mut Vec<(Box<str>, Box<str>)>,
) -> bool {
    match document.kind(value) {
        Kind::Null => false,
        Kind::Object => collect_fields(document, value, fields, path, found),
        Kind::Array => document.elements(value).enumerate().all(|(index, element)| {
            let length = path.len();
            path.push_str(&format!(".{index}"));
            let is_complete = collect_value(document, element, fields, path, found);
            path.truncate(length);
            is_complete
        }),
        Kind::String | Kind::Bool | Kind::Number => {
            let text = document.as_str(value);
            let text = text.map_or_else(|| document.raw(value).into(), Box::from);
            found.push((path.as_str().into(), text));
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(name: &str, response_key: &str) -> ChangedKeyField {
        let (name, response_key) = (name.into(), response_key.into());
        ChangedKeyField { name, response_key, fields: Vec::new() }
    }

    fn found(data: &'static str) -> Vec<Invalidation> {
        let maker = ChangedKeyField { fields: vec![leaf("id", "id")], ..leaf("maker", "k2") };
        let key = |type_name: &str, fields| ChangedKey { type_name: type_name.into(), fields };
        let changed = ChangedEntity {
            data_key: "update".into(),
            keys: vec![
                key("Product", vec![leaf("upc", "k0")]),
                key("Item", vec![leaf("sku", "k1"), maker]),
            ],
            populated: Vec::new(),
        };
        let mut document = Document::new();
        let data = document.parse(data).expect("JSON");
        let mut all = Vec::new();
        changed.add_invalidations(&document, data, &mut |it| all.push(it));
        all
    }

    fn entity(type_name: &str, key: &str) -> Invalidation {
        let key = EntityKey::from_json(key).expect("a key");
        Invalidation::Entity { type_name: type_name.into(), key }
    }

    #[test]
    fn a_representation_is_what_a_request_for_the_entity_has() {
        let maker = ChangedKeyField { fields: vec![leaf("id", "id")], ..leaf("maker", "k2") };
        let key = ChangedKey {
            type_name: "Product".into(),
            fields: vec![leaf("sku", "k1"), leaf("size", "k3"), maker],
        };
        let written = |text: &'static str| {
            let mut document = Document::new();
            let object = document.parse(text).expect("JSON");
            let mut out = Vec::new();
            let is_written = key.write_representation(&document, object, &mut out);
            is_written.then(|| String::from_utf8(out).expect("text"))
        };
        let text = r#"{"k1":"s\u00e9","k2":{"name":"x","id":"m"},"k3":1.50,"sku":"other"}"#;
        let expected = r#"{"__typename":"Product","sku":"s\u00e9","size":1.50,"maker":{"id":"m"}}"#;
        assert_eq!(written(text).as_deref(), Some(expected));
        for incomplete in [
            r#"{"k1":"s","k2":{"id":"m"}}"#,
            r#"{"k1":"s","k2":{"id":"m"},"k3":null}"#,
            r#"{"k1":"s","k2":{},"k3":1}"#,
            r#"{"k1":"s","k2":5,"k3":1}"#,
        ] {
            assert_eq!(written(incomplete), None, "{incomplete}");
        }
    }

    #[test]
    fn each_entity_is_named_by_each_complete_key() {
        let upc = |upc: &str| entity("Product", &format!(r#"{{"upc":"{upc}"}}"#));
        let both = r#"{"update":{"k0":1,"k1":"s","k2":{"id":"m"},"upc":"other"}}"#;
        let sku = entity("Item", r#"{"sku":"s","maker":{"id":"m"}}"#);
        assert_eq!(found(both), [upc("1"), sku]);
        let list = r#"{"update":[{"k0":"1"},null,[{"k0":"2","k1":"s","k2":null}]]}"#;
        assert_eq!(found(list), [upc("1"), upc("2")]);
        for nothing in [r#"{"update":null}"#, r#"{"other":{"k0":1}}"#, "5", r#"{"update":"x"}"#] {
            assert_eq!(found(nothing), [], "{nothing}");
        }
    }
}
