//! The key of an entity, in a form in which equal keys are equal texts.

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;

/// The fields of an entity's key, sorted by path.
///
/// The path of a field of a nested object has dots (`organization.id`). Values are texts: a string without quotes and
/// escapes, any other scalar as it is written in JSON. So the number 5 and the string "5" are equal, as they are for
/// the type `ID`; at worst, an invalidation of one also makes the other stale.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntityKey {
    fields: Box<[(Box<str>, Box<str>)]>,
}

/// The reason why a text is not the key of an entity.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EntityKeyError {
    /// The text is not JSON.
    #[error("the key is not valid JSON: {0}")]
    NotJson(String),
    /// The JSON value is not an object.
    #[error("the key is not a JSON object; write the fields of the key, such as {{\"id\":\"5\"}}")]
    NotAnObject,
    /// The object has no field beside `__typename`.
    #[error("the key has no fields; write the fields of the key, such as {{\"id\":\"5\"}}")]
    Empty,
    /// The key has too many fields.
    #[error("the key has more than {KEY_FIELDS_MAX} fields")]
    TooManyFields,
}

/// The maximum number of fields of a key, those of nested objects included.
pub const KEY_FIELDS_MAX: usize = 64;

impl EntityKey {
    /// Reads a JSON object with the fields of a key. A `__typename` at the top is ignored.
    ///
    /// # Errors
    /// The text is not such an object.
    pub fn from_json(text: &str) -> Result<Self, EntityKeyError> {
        let mut document = Document::new();
        let root = document
            .parse(Bytes::copy_from_slice(text.as_bytes()))
            .map_err(|error| EntityKeyError::NotJson(error.to_string()))?;
        Self::from_node(&document, root)
    }

    /// Reads a key from a parsed object, as [`EntityKey::from_json`] does from a text.
    ///
    /// # Errors
    /// The value is not such an object.
    pub fn from_node(document: &Document, node: NodeId) -> Result<Self, EntityKeyError> {
        if document.kind(node) != Kind::Object {
            return Err(EntityKeyError::NotAnObject);
        }
        let mut fields = Vec::new();
        for (name, value) in document.members(node).filter(|(name, _)| name != "__typename") {
            collect_fields(document, value, name.into_owned(), &mut fields)?;
        }
        Self::from_fields(fields)
    }

    /// Makes a key of paths and values in the form that [`EntityKey`] describes, in any order.
    ///
    /// # Errors
    /// There are no fields, or too many.
    pub fn from_fields(mut fields: Vec<(Box<str>, Box<str>)>) -> Result<Self, EntityKeyError> {
        if fields.is_empty() {
            return Err(EntityKeyError::Empty);
        }
        if fields.len() > KEY_FIELDS_MAX {
            return Err(EntityKeyError::TooManyFields);
        }
        fields.sort_unstable();
        Ok(Self { fields: fields.into() })
    }

    /// Returns path and value of each field, sorted by path.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(path, value)| (&**path, &**value))
    }
}

// Recursion is bounded by the nesting that the parser allows.
fn collect_fields(
    document: &Document,
    node: NodeId,
    path: String,
    fields: &mut Vec<(Box<str>, Box<str>)>,
) -> Result<(), EntityKeyError> {
    if fields.len() >= KEY_FIELDS_MAX {
        return Err(EntityKeyError::TooManyFields);
    }
    match document.kind(node) {
        Kind::Object => {
            for (name, value) in document.members(node) {
                collect_fields(document, value, format!("{path}.{name}"), fields)?;
            }
        }
        Kind::Array => {
            for (index, value) in document.elements(node).enumerate() {
                collect_fields(document, value, format!("{path}.{index}"), fields)?;
            }
        }
        Kind::String => {
            let value = document.as_str(node).unwrap_or_default();
            fields.push((path.into(), (&*value).into()));
        }
        Kind::Null | Kind::Bool | Kind::Number => {
            fields.push((path.into(), document.raw(node).into()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<(String, String)> {
        let key = EntityKey::from_json(text).expect("a key");
        key.fields().map(|(path, value)| (path.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn order_escapes_and_the_type_of_ids_make_no_difference() {
        let plain = fields(r#"{"sku":"a","org":{"id":"7"}}"#);
        assert_eq!(plain, fields(r#"{"__typename":"Item","org":{"id":7},"sku":"\u0061"}"#));
        assert_eq!(plain, [("org.id".into(), "7".into()), ("sku".into(), "a".into())]);
    }

    #[test]
    fn other_texts_are_refused_with_a_reason() {
        let refused = |text: &str| EntityKey::from_json(text).expect_err("no key").to_string();
        assert!(refused("{").starts_with("the key is not valid JSON"));
        assert!(refused("[1]").starts_with("the key is not a JSON object"));
        assert!(refused(r#"{"__typename":"A"}"#).starts_with("the key has no fields"));
        let many: Vec<String> = (0..100).map(|number| format!("\"f{number}\":1")).collect();
        let refused = refused(&format!("{{{}}}", many.join(",")));
        assert_eq!(refused, "the key has more than 64 fields");
    }
}
