//! The payload of `connection_init`, read in one place: the token, and the headers that browsers cannot send with the
//! handshake. The header that carries tokens is never copied from the payload: it is set from the verified token.

use std::borrow::Cow;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;
use clients::authentication::{PlaceId, PresentedToken, TokenRefusal, TokenSources};
use http::{HeaderMap, HeaderName, HeaderValue};

const NO_TOKEN: TokenRefusal = TokenRefusal::Unreadable(Cow::Borrowed(
    "the member of connection_init that should contain a token contains none",
));

/// The content of a payload.
#[derive(Debug)]
pub(super) struct InitPayload {
    /// The headers of the connection from now on.
    pub(super) headers: HeaderMap,
    /// The token, not verified yet; an error if the member that should have it holds something else.
    pub(super) token: Result<Option<PresentedToken>, TokenRefusal>,
}

/// Reads `payload`, a JSON object. Headers that are `allowed` replace those of the `handshake`; they are members of the
/// payload, or of an object `headers` in it. `tokens` names the places of tokens; `None` if the router verifies none.
///
/// # Errors
/// A member that cannot be a header; the message does not repeat its value.
pub(super) fn read_init_payload(
    allowed: &[HeaderName],
    tokens: Option<&TokenSources>,
    payload: Option<Bytes>,
    handshake: &HeaderMap,
) -> Result<InitPayload, String> {
    let mut headers = handshake.clone();
    let is_read = tokens.is_some() || !allowed.is_empty();
    let Some(payload) = payload.filter(|_| is_read) else {
        return Ok(InitPayload { headers, token: Ok(None) });
    };
    let mut document = Document::new();
    // The protocol's machine has parsed it before.
    let root = document.parse(payload).map_err(|error| error.to_string())?;
    let is_token = |name: &HeaderName| tokens.is_some_and(|it| it.is_token_header(name));
    for name in allowed.iter().filter(|name| !is_token(name)) {
        let Some(value) = header_member(&document, root, name) else { continue };
        let value = document.as_str(value).and_then(|text| HeaderValue::from_str(&text).ok());
        let Some(mut value) = value else {
            return Err(format!(
                "`{name}` in the payload of connection_init is not a valid header value"
            ));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let token =
        tokens.map(|tokens| presented_token(&document, root, tokens, allowed, handshake, false));
    Ok(InitPayload { headers, token: token.unwrap_or(Ok(None)) })
}

/// Reads only the token of `payload`, a JSON object, which renews the one of the connection, as [`read_init_payload`]
/// does. `headers` are those of the connection.
///
/// # Errors
/// The member that should have the token holds something else.
pub(super) fn read_token(
    allowed: &[HeaderName],
    tokens: &TokenSources,
    payload: Bytes,
    headers: &HeaderMap,
) -> Result<Option<PresentedToken>, TokenRefusal> {
    let mut document = Document::new();
    let root = document.parse(payload).map_err(|_| NO_TOKEN)?;
    presented_token(&document, root, tokens, allowed, headers, true)
}

fn presented_token(
    document: &Document,
    root: NodeId,
    tokens: &TokenSources,
    allowed: &[HeaderName],
    headers: &HeaderMap,
    is_renewal: bool,
) -> Result<Option<PresentedToken>, TokenRefusal> {
    let Some(text) = find_token(document, root, tokens, allowed)? else { return Ok(None) };
    let header = replaced_header(tokens, allowed, headers);
    Ok(Some(PresentedToken { text, header, is_renewal }))
}

/// Returns the first header of tokens that payloads may replace or that the client has sent.
fn replaced_header(
    tokens: &TokenSources,
    allowed: &[HeaderName],
    headers: &HeaderMap,
) -> Option<PlaceId> {
    let is_replaced = |name| allowed.contains(name) || headers.contains_key(name);
    let mut replaced = tokens.headers().filter(|(_, header)| is_replaced(&header.name));
    replaced.next().map(|(place, _)| place)
}

/// Returns the first token at the configured paths, or, where a header of tokens is `allowed` in payloads, at one of
/// the places of headers. Null counts as absent. The token may begin with the prefix.
fn find_token(
    document: &Document,
    root: NodeId,
    tokens: &TokenSources,
    allowed: &[HeaderName],
) -> Result<Option<String>, TokenRefusal> {
    let at_path = |path: &String| {
        let member = path.split('.').try_fold(root, |node, name| member(document, node, name));
        member.filter(|node| !document.is_null(*node))
    };
    let in_headers = || {
        let names = tokens.headers().map(|(_, header)| &header.name);
        names
            .filter(|name| allowed.contains(name))
            .find_map(|name| header_member(document, root, name))
    };
    let found = tokens.init_payload().iter().find_map(at_path).or_else(in_headers);
    let Some(node) = found else { return Ok(None) };
    let text = document.as_str(node).ok_or(NO_TOKEN)?;
    let token = tokens.without_prefix(&text);
    if token.is_empty() || token.contains(' ') {
        return Err(NO_TOKEN);
    }
    Ok(Some(token.to_owned()))
}

/// Returns the member `name` of the payload or of an object `headers` in it, if it is not null.
fn header_member(document: &Document, root: NodeId, name: &HeaderName) -> Option<NodeId> {
    let nested = document.get(root, "headers");
    let objects = [Some(root), nested].into_iter().flatten();
    let mut found = objects.filter_map(|object| member(document, object, name.as_str()));
    found.find(|value| !document.is_null(*value))
}

/// Returns the first member of that name, in any letter case.
fn member(document: &Document, object: NodeId, name: &str) -> Option<NodeId> {
    let mut members = (document.kind(object) == Kind::Object).then(|| document.members(object))?;
    members.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use config::{Jwt, JwtHeader, TokenPlace};
    use http::header::{AUTHORIZATION, COOKIE};

    use super::*;

    fn handshake() -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("from the handshake"))])
    }

    fn authorization(payload: &'static str) -> Result<Option<String>, String> {
        let name = HeaderName::from_static("x-client");
        let read =
            read_init_payload(&[AUTHORIZATION, name], None, Some(payload.into()), &handshake())?;
        assert!(!read.headers.contains_key(COOKIE), "only what is allowed is taken");
        Ok(read.headers.get(AUTHORIZATION).map(|it| it.to_str().unwrap().to_owned()))
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
    fn an_invalid_header_is_named_without_its_value() {
        for payload in [r#"{"authorization":7}"#, r#"{"authorization":"secret\r\nx: y"}"#] {
            let reason = authorization(payload).unwrap_err();
            assert!(reason.contains("`authorization`") && !reason.contains("secret"), "{reason}");
        }
    }

    #[test]
    fn nothing_is_taken_unless_it_is_configured() {
        let payload = Some(r#"{"authorization":"a"}"#.into());
        let read = read_init_payload(&[], None, payload, &HeaderMap::new()).expect("readable");
        assert_eq!(read.headers, HeaderMap::new());
        assert_eq!(read.token, Ok(None));
    }

    /// The headers and the token of a payload where tokens are verified.
    fn verified(allowed: &[HeaderName], paths: &[&str], payload: &'static str) -> InitPayload {
        let init_payload = paths.iter().map(|path| (*path).to_owned()).collect();
        let tokens = TokenSources::new(&Jwt { init_payload, ..Jwt::default() });
        read_init_payload(allowed, Some(&tokens), Some(payload.into()), &handshake())
            .expect("readable")
    }

    #[test]
    fn a_token_is_found_with_and_without_its_prefix() {
        for (payload, expected) in [
            (r#"{"Authorization":"Bearer abc"}"#, Ok(Some("abc"))),
            (r#"{"authorization":"abc"}"#, Ok(Some("abc"))),
            (r#"{"headers":{"authtoken":"bearer abc"}}"#, Ok(Some("abc"))),
            (r#"{"authorization":null,"headers":{"authToken":"b"}}"#, Ok(Some("b"))),
            (r#"{"authorization":"a","headers":{"authToken":"b"}}"#, Ok(Some("a"))),
            (r#"{"headers":"x"}"#, Ok(None)),
            ("{}", Ok(None)),
            (r#"{"authorization":7}"#, Err(())),
            (r#"{"authorization":["a"]}"#, Err(())),
            (r#"{"authorization":""}"#, Err(())),
            (r#"{"authorization":"Bearer "}"#, Err(())),
            (r#"{"authorization":"Basic abc"}"#, Err(())),
        ] {
            let token = verified(&[], &["authorization", "headers.authToken"], payload).token;
            let token = token.map(|it| it.map(|it| it.text)).map_err(drop);
            assert_eq!(token, expected.map(|it| it.map(str::to_owned)), "{payload}");
        }
    }

    #[test]
    fn no_payload_puts_an_unverified_text_into_the_header_of_tokens() {
        for (payload, expected) in [
            (r#"{"authorization":"good","headers":{"authorization":"evil"}}"#, Ok(Some("good"))),
            (r#"{"headers":{"authorization":"evil"},"authorization":"good"}"#, Ok(Some("good"))),
            (r#"{"authorization":"good","Authorization":"evil"}"#, Ok(Some("good"))),
            (r#"{"authorization":"good","headers":{"AUTHORIZATION":["evil"]}}"#, Ok(Some("good"))),
            // A header that no path names is verified too.
            (r#"{"headers":{"Authorization":"Bearer other"}}"#, Ok(Some("other"))),
            (r#"{"authorization":null,"headers":{"authorization":"other"}}"#, Ok(Some("other"))),
            (r#"{"headers":{"authorization":["evil"]}}"#, Err(())),
            (r#"{"headers":{"authorization":"evil words"}}"#, Err(())),
            (r#"{"headers":{"authorization":{"authorization":"evil"}}}"#, Err(())),
        ] {
            let read = verified(&[AUTHORIZATION], &["authorization"], payload);
            assert_eq!(read.headers, handshake(), "{payload}");
            let token = read.token.map(|it| it.map(|it| it.text)).map_err(drop);
            assert_eq!(token, expected.map(|it| it.map(str::to_owned)), "{payload}");
        }
    }

    #[test]
    fn a_token_replaces_the_header_only_where_the_header_is_allowed_or_was_sent() {
        let payload = r#"{"authorization":"a"}"#;
        let token = |allowed: &[HeaderName], handshake: &HeaderMap| {
            let tokens = TokenSources::new(&Jwt::default());
            let read = read_init_payload(allowed, Some(&tokens), Some(payload.into()), handshake);
            read.expect("readable").token.expect("a token").expect("a token").header.is_some()
        };
        assert!(!token(&[], &HeaderMap::new()));
        assert!(token(&[AUTHORIZATION], &HeaderMap::new()));
        assert!(token(&[], &handshake()));
    }

    #[test]
    fn a_token_replaces_the_first_of_several_headers_that_is_allowed_or_was_sent() {
        let names = ["authorization", "x-a", "x-b"].map(HeaderName::from_static);
        let sources = names.iter().map(|name| {
            TokenPlace::Header(JwtHeader { name: name.clone(), prefix: String::new() })
        });
        let tokens = TokenSources::new(&Jwt { sources: sources.collect(), ..Jwt::default() });
        let places: Vec<_> = tokens.headers().map(|(place, _)| place).collect();
        let replaced = |allowed: &[HeaderName], payload: &'static str| {
            let sent = HeaderMap::from_iter([(names[2].clone(), HeaderValue::from_static("t"))]);
            let read = read_init_payload(allowed, Some(&tokens), Some(payload.into()), &sent);
            let read = read.expect("readable");
            assert_eq!(read.headers, sent, "no header of tokens is copied");
            read.token.expect("a token").expect("a token").header
        };
        let payload = r#"{"authorization":"t","x-a":"t"}"#;
        assert_eq!(replaced(&[], payload), Some(places[2]));
        assert_eq!(replaced(&names[1..2], payload), Some(places[1]));
        // The token of a header that payloads may have is found without a path.
        assert_eq!(replaced(&names[1..2], r#"{"headers":{"X-A":"t"}}"#), Some(places[1]));
    }
}
