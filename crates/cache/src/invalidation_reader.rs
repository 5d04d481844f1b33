//! Reads invalidations from JSON, in the form that users of other routers send:
//!
//! - `{"kind": "cache_tag", "cache_tag": "user-1"}`
//! - `{"kind": "entity", "type": "User", "key": {"id": "1"}}`
//! - `{"kind": "type", "type": "User"}`, with `"subgraph": "accounts"` only there
//! - `{"kind": "subgraph", "subgraph": "accounts"}`
//! - `{"kind": "all"}`
//!
//! Other members are accepted and make no difference: `subgraphs` beside a tag or an entity is one of them, because
//! what is stale in one subgraph is stale in all.

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;

use crate::entity_key::{EntityKey, EntityKeyError};
use crate::invalidation::Invalidation;

/// The maximum number of invalidations in one message.
pub const INVALIDATIONS_MAX: usize = 10_000;

/// The reason why a text contains no invalidations.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidationError {
    /// The text is not JSON.
    #[error("the text is not JSON: {0}")]
    NotJson(String),
    /// The list is too long.
    #[error("a message may have at most {INVALIDATIONS_MAX} invalidations")]
    TooMany,
    /// A value is not an object.
    #[error(
        "an invalidation must be an object, such as {{\"kind\":\"type\",\"type\":\"Product\"}}"
    )]
    NotAnObject,
    /// A member is missing, or has the wrong type.
    #[error("the member `{0}` must be a text")]
    Member(&'static str),
    /// The kind does not exist.
    #[error("unknown kind; write `cache_tag`, `entity`, `type`, `subgraph` or `all`")]
    Kind,
    /// The key of an entity cannot be used.
    #[error(transparent)]
    Key(#[from] EntityKeyError),
    /// One element of a list cannot be used.
    #[error("invalidation {index}: {error}")]
    Element {
        /// The index in the list.
        index: usize,
        /// The reason.
        error: Box<InvalidationError>,
    },
}

/// Reads one object or a list of them.
///
/// # Errors
/// The first mistake, with its place. Nothing of such a text should be applied.
pub fn read_invalidations(text: Bytes) -> Result<Vec<Invalidation>, InvalidationError> {
    let mut document = Document::new();
    let root =
        document.parse(text).map_err(|error| InvalidationError::NotJson(error.to_string()))?;
    let nodes = match document.kind(root) {
        Kind::Array if document.len(root) > INVALIDATIONS_MAX => {
            return Err(InvalidationError::TooMany);
        }
        Kind::Array => document.elements(root).collect(),
        _ => vec![root],
    };
    let all = nodes.into_iter().enumerate();
    all.map(|(index, node)| {
        let element = |error| InvalidationError::Element { index, error: Box::new(error) };
        read_invalidation(&document, node).map_err(element)
    })
    .collect()
}

/// Reads one object.
///
/// # Errors
/// The mistake.
pub fn read_invalidation(
    document: &Document,
    node: NodeId,
) -> Result<Invalidation, InvalidationError> {
    if document.kind(node) != Kind::Object {
        return Err(InvalidationError::NotAnObject);
    }
    let optional = |name: &'static str| match document.get(node, name) {
        None => Ok(None),
        Some(value) if document.is_null(value) => Ok(None),
        Some(value) => match document.as_str(value) {
            Some(text) => Ok(Some(Box::<str>::from(text))),
            None => Err(InvalidationError::Member(name)),
        },
    };
    let text = |name| optional(name)?.ok_or(InvalidationError::Member(name));
    Ok(match &*text("kind")? {
        "cache_tag" => Invalidation::Tag(text("cache_tag")?),
        "entity" => Invalidation::Entity {
            type_name: text("type")?,
            key: match document.get(node, "key") {
                Some(key) => EntityKey::from_node(document, key)?,
                None => return Err(EntityKeyError::NotAnObject.into()),
            },
        },
        "type" => Invalidation::Type { type_name: text("type")?, subgraph: optional("subgraph")? },
        "subgraph" => Invalidation::Subgraph(text("subgraph")?),
        "all" => Invalidation::All,
        _ => return Err(InvalidationError::Kind),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> Result<Vec<Invalidation>, String> {
        read_invalidations(Bytes::from_static(text.as_bytes())).map_err(|it| it.to_string())
    }

    #[test]
    fn one_or_several_invalidations_are_read() {
        let all = read(
            r#"[{"kind":"cache_tag","subgraphs":["a"],"cache_tag":"user-1"},
                {"kind":"entity","type":"User","key":{"id":1}},
                {"kind":"type","type":"User"},
                {"kind":"type","subgraph":"accounts","type":"User"},
                {"kind":"all"}]"#,
        );
        let key = EntityKey::from_json(r#"{"id":"1"}"#).expect("a key");
        let of_type = |subgraph| Invalidation::Type { type_name: "User".into(), subgraph };
        let expected = vec![
            Invalidation::Tag("user-1".into()),
            Invalidation::Entity { type_name: "User".into(), key },
            of_type(None),
            of_type(Some("accounts".into())),
            Invalidation::All,
        ];
        assert_eq!(all, Ok(expected));
        let one = read(r#"{"kind":"subgraph","subgraph":"accounts"}"#);
        assert_eq!(one, Ok(vec![Invalidation::Subgraph("accounts".into())]));
    }

    #[test]
    fn a_mistake_is_reported_with_its_place() {
        let refused = |text| read(text).expect_err("a mistake");
        assert!(refused("{").starts_with("the text is not JSON: "));
        assert_eq!(
            refused(r#"[{"kind":"all"},{"kind":"host"}]"#),
            "invalidation 1: unknown kind; write `cache_tag`, `entity`, `type`, `subgraph` or `all`"
        );
        assert_eq!(
            refused(r#"{"kind":"entity","type":"User","key":{}}"#),
            "invalidation 0: the key has no fields; write the fields of the key, such as {\"id\":\"5\"}"
        );
        assert_eq!(
            refused(r#"{"kind":"entity","type":"User"}"#),
            "invalidation 0: the key is not a JSON object; write the fields of the key, such as {\"id\":\"5\"}"
        );
        for (text, member) in [
            (r#"{"kind":"subgraph"}"#, "subgraph"),
            (r#"{"kind":"type","type":5}"#, "type"),
            (r#"{"kind":"type","type":"A","subgraph":[]}"#, "subgraph"),
            ("{}", "kind"),
        ] {
            let expected = format!("invalidation 0: the member `{member}` must be a text");
            assert_eq!(refused(text), expected, "{text}");
        }
        assert!(refused("[5]").starts_with("invalidation 0: an invalidation must be an object"));
    }

    #[test]
    fn a_list_is_bounded() {
        let list = vec![r#"{"kind":"all"}"#; INVALIDATIONS_MAX + 1].join(",");
        let read = read_invalidations(format!("[{list}]").into());
        assert_eq!(read, Err(InvalidationError::TooMany));
    }
}
