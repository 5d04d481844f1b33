//! The entities that the response to a mutation contains, and that the mutation has changed
//! (`@openfed__cacheInvalidate`). They are found by their keys, which the request selects in addition to the fields of
//! the client.

use astjson::{Document, Kind, NodeId};
use cache::{EntityKey, Invalidation};

/// A root field of a mutation that returns a changed entity or a list of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedEntity {
    /// The key of the field in the `data` of responses.
    pub data_key: Box<str>,
    /// The keys of the entity.
    pub keys: Vec<ChangedKey>,
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

impl ChangedEntity {
    /// Adds an invalidation for each complete key of each entity in the `data` of a response.
    pub(super) fn add_invalidations(
        &self,
        document: &Document,
        data: NodeId,
        all: &mut impl FnMut(Invalidation),
    ) {
        if document.kind(data) == Kind::Object
            && let Some(value) = document.get(data, &self.data_key)
        {
            self.add_value(document, value, all);
        }
    }

    // Recursion is bounded by the nesting that the parser allows.
    fn add_value(&self, document: &Document, value: NodeId, all: &mut impl FnMut(Invalidation)) {
        match document.kind(value) {
            Kind::Array => {
                document.elements(value).for_each(|element| self.add_value(document, element, all));
            }
            Kind::Object => {
                for key in &self.keys {
                    let (mut path, mut fields) = (String::new(), Vec::new());
                    let is_complete =
                        collect_fields(document, value, &key.fields, &mut path, &mut fields);
                    let key_fields = is_complete.then(|| EntityKey::from_fields(fields));
                    if let Some(Ok(found)) = key_fields {
                        let type_name = key.type_name.clone();
                        all(Invalidation::Entity { type_name, key: found });
                    }
                }
            }
            Kind::String | Kind::Null | Kind::Bool | Kind::Number => {}
        }
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
