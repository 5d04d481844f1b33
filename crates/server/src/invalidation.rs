//! `POST /admin/invalidate`: makes stale what the body names. The body is one JSON object or a list of them, in the form
//! that users of other routers send:
//!
//! - `{"kind": "cache_tag", "cache_tag": "user-1"}`
//! - `{"kind": "entity", "type": "User", "key": {"id": "1"}}`
//! - `{"kind": "type", "type": "User"}`, with `"subgraph": "accounts"` only there
//! - `{"kind": "subgraph", "subgraph": "accounts"}`
//! - `{"kind": "all"}`
//!
//! `subgraphs`, a list beside a tag or an entity, is accepted and makes no difference: what is stale in one subgraph is
//! stale in all.

use bytes::Bytes;
use cache::{EntityKey, Invalidation};
use serde::Deserialize;
use serde_json::Value;

/// The maximum number of invalidations in one request.
const INVALIDATIONS_MAX: usize = 10_000;

/// One invalidation as it is sent.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum SentInvalidation {
    CacheTag {
        cache_tag: Box<str>,
    },
    Entity {
        #[serde(rename = "type")]
        type_name: Box<str>,
        key: Value,
    },
    Type {
        #[serde(rename = "type")]
        type_name: Box<str>,
        subgraph: Option<Box<str>>,
    },
    Subgraph {
        subgraph: Box<str>,
    },
    All,
}

/// Reads the body of a request.
///
/// # Errors
/// A text for the caller, with the place of the mistake.
pub(crate) fn read_invalidations(body: &Bytes) -> Result<Vec<Invalidation>, String> {
    let value: Value =
        serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    let list = match value {
        Value::Array(list) => list,
        one => vec![one],
    };
    if list.len() > INVALIDATIONS_MAX {
        return Err(format!("a request may have at most {INVALIDATIONS_MAX} invalidations"));
    }
    let all = list.into_iter().enumerate();
    all.map(|(index, value)| read_one(value).map_err(|it| format!("invalidation {index}: {it}")))
        .collect()
}

fn read_one(value: Value) -> Result<Invalidation, String> {
    let sent = SentInvalidation::deserialize(value).map_err(|error| error.to_string())?;
    Ok(match sent {
        SentInvalidation::CacheTag { cache_tag } => Invalidation::Tag(cache_tag),
        SentInvalidation::Entity { type_name, key } => Invalidation::Entity {
            type_name,
            key: EntityKey::from_json(&key.to_string()).map_err(|error| error.to_string())?,
        },
        SentInvalidation::Type { type_name, subgraph } => {
            Invalidation::Type { type_name, subgraph }
        }
        SentInvalidation::Subgraph { subgraph } => Invalidation::Subgraph(subgraph),
        SentInvalidation::All => Invalidation::All,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> Result<Vec<Invalidation>, String> {
        read_invalidations(&Bytes::from_static(text.as_bytes()))
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
        assert!(refused("{").starts_with("the body is not JSON: "));
        assert!(
            refused(r#"[{"kind":"all"},{"kind":"host"}]"#)
                .starts_with("invalidation 1: unknown variant `host`")
        );
        assert_eq!(
            refused(r#"{"kind":"entity","type":"User","key":{}}"#),
            "invalidation 0: the key has no fields; write the fields of the key, such as {\"id\":\"5\"}"
        );
        assert_eq!(refused(r#"{"kind":"subgraph"}"#), "invalidation 0: missing field `subgraph`");
    }
}
