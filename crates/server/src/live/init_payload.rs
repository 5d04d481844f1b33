//! What a client says of itself in `connection_init`: headers that it could not send with the handshake, because
//! browsers have no way to.

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The headers of a connection whose handshake had `handshake` and whose `connection_init` has `payload`, a JSON object.
/// Those that are `allowed` are taken from the payload, or from an object `headers` in it.
///
/// # Errors
/// Says what cannot be a header, without its value.
pub(super) fn headers(
    allowed: &[HeaderName],
    payload: Option<Bytes>,
    handshake: &HeaderMap,
) -> Result<HeaderMap, String> {
    let mut headers = handshake.clone();
    let Some(payload) = payload.filter(|_| !allowed.is_empty()) else { return Ok(headers) };
    let mut document = Document::new();
    // The protocol's machine has parsed it before.
    let root = document.parse(payload).map_err(|error| error.to_string())?;
    let nested = document.get(root, "headers").filter(|it| document.kind(*it) == Kind::Object);
    for name in allowed {
        let found = [Some(root), nested].into_iter().flatten();
        let Some(value) = found.into_iter().find_map(|object| member(&document, object, name))
        else {
            continue;
        };
        let value = document.as_str(value).and_then(|text| HeaderValue::from_str(&text).ok());
        let Some(mut value) = value else {
            return Err(format!("`{name}` in the payload of connection_init is no header value"));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// A member that is not null, by a name in any letter case.
fn member(document: &Document, object: NodeId, name: &HeaderName) -> Option<NodeId> {
    let mut members = document.members(object);
    let found = members.find(|(key, _)| key.eq_ignore_ascii_case(name.as_str()));
    found.map(|(_, value)| value).filter(|value| !document.is_null(*value))
}

#[cfg(test)]
mod tests {
    use http::header::{AUTHORIZATION, COOKIE};

    use super::*;

    fn authorization(payload: &'static str) -> Result<Option<String>, String> {
        let mut handshake = HeaderMap::new();
        handshake.insert(AUTHORIZATION, HeaderValue::from_static("from the handshake"));
        let name = HeaderName::from_static("x-client");
        let merged = headers(&[AUTHORIZATION, name], Some(payload.into()), &handshake)?;
        assert!(!merged.contains_key(COOKIE), "only what is allowed is taken");
        Ok(merged.get(AUTHORIZATION).map(|it| it.to_str().unwrap().to_owned()))
    }

    #[test]
    fn allowed_members_take_the_place_of_headers() {
        for (payload, expected) in [
            (r#"{"authorization":"a","cookie":"c"}"#, "a"),
            (r#"{"Authorization":"a"}"#, "a"),
            (r#"{"headers":{"AUTHORIZATION":"a","Cookie":"c"}}"#, "a"),
            (r#"{"authorization":"a","headers":{"authorization":"b"}}"#, "a"),
            (r#"{"authorization":null}"#, "from the handshake"),
            (r#"{"headers":"authorization"}"#, "from the handshake"),
            ("{}", "from the handshake"),
        ] {
            assert_eq!(authorization(payload), Ok(Some(expected.to_owned())), "{payload}");
        }
    }

    #[test]
    fn what_cannot_be_a_header_is_named_without_its_value() {
        for payload in [r#"{"authorization":7}"#, r#"{"authorization":"secret\r\nx: y"}"#] {
            let reason = authorization(payload).unwrap_err();
            assert!(reason.contains("`authorization`") && !reason.contains("secret"), "{reason}");
        }
    }

    #[test]
    fn nothing_is_taken_unless_it_is_configured() {
        let payload = Some(r#"{"authorization":"a"}"#.into());
        assert_eq!(headers(&[], payload, &HeaderMap::new()), Ok(HeaderMap::new()));
    }
}
