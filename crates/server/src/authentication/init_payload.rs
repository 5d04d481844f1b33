//! The token in the payload of a `connection_init`: browsers send no header with a WebSocket.

use astjson::{Document, Kind};
use bytes::Bytes;

use super::{Refusal, after_prefix};

const NO_TOKEN: &str = "the member of connection_init that should have a token has none";

/// The first token at `paths`; a null is none. The `prefix` may stand before it.
pub(super) fn token(
    paths: &[String],
    prefix: &str,
    payload: Option<&Bytes>,
) -> Result<Option<String>, Refusal> {
    let Some(payload) = payload else { return Ok(None) };
    let mut document = Document::new();
    // The protocol's machine has parsed it before.
    let root = document.parse(payload.clone()).map_err(|_| Refusal::Unreadable(NO_TOKEN))?;
    for path in paths {
        let mut names = path.split('.');
        let node = names.try_fold(root, |node, name| {
            let mut members =
                (document.kind(node) == Kind::Object).then(|| document.members(node))?;
            members.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        });
        let Some(node) = node.filter(|node| !document.is_null(*node)) else { continue };
        let text = document.as_str(node).ok_or(Refusal::Unreadable(NO_TOKEN))?;
        let token = after_prefix(&text, prefix).unwrap_or(text.trim());
        if token.is_empty() || token.contains(' ') {
            return Err(Refusal::Unreadable(NO_TOKEN));
        }
        return Ok(Some(token.to_owned()));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_with_and_without_its_prefix() {
        let paths = ["authorization".to_owned(), "headers.authToken".to_owned()];
        for (payload, expected) in [
            (r#"{"Authorization":"Bearer abc"}"#, Ok(Some("abc"))),
            (r#"{"authorization":"abc"}"#, Ok(Some("abc"))),
            (r#"{"headers":{"authtoken":"bearer abc"}}"#, Ok(Some("abc"))),
            (r#"{"authorization":null,"headers":{"authToken":"b"}}"#, Ok(Some("b"))),
            (r#"{"authorization":"a","headers":{"authToken":"b"}}"#, Ok(Some("a"))),
            (r#"{"headers":"x"}"#, Ok(None)),
            ("{}", Ok(None)),
            (r#"{"authorization":7}"#, Err(())),
            (r#"{"authorization":""}"#, Err(())),
            (r#"{"authorization":"Bearer "}"#, Err(())),
            (r#"{"authorization":"Basic abc"}"#, Err(())),
        ] {
            let found = token(&paths, "Bearer", Some(&payload.into())).map_err(drop);
            assert_eq!(found, expected.map(|it| it.map(str::to_owned)), "{payload}");
        }
        assert_eq!(token(&paths, "Bearer", None), Ok(None));
    }
}
