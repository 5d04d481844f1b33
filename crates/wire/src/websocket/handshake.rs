//! The opening handshake (RFC 6455, section 4): the server's check of an upgrade request, and the client's request and
//! its check of the response.
//!
//! [`accept`] works on headers that an HTTP library has parsed. [`ClientHandshake`] writes and reads HTTP itself.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use sha1::{Digest, Sha1};

/// The constant that is hashed with the key (RFC 6455, section 1.3).
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The length of a decoded `Sec-WebSocket-Key` in bytes.
const KEY_BYTES: usize = 16;
/// The maximum size of a response head that a client reads, in bytes: HTTP servers commonly have the same limit.
const RESPONSE_HEAD_BYTES_MAX: usize = 16 * 1024;
/// The maximum number of headers in a response that a client reads.
const RESPONSE_HEADERS_MAX: usize = 64;

/// An upgrade request that the server may accept with `101 Switching Protocols`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accept<'s> {
    /// The value of the `Sec-WebSocket-Accept` header.
    pub key: String,
    /// The value of the `Sec-WebSocket-Protocol` header: the first of the client's subprotocols that the server
    /// supports. If there is none, the header is left out. A server that needs a subprotocol then upgrades and closes
    /// with a code of that protocol, because a browser shows no HTTP status.
    pub subprotocol: Option<&'s str>,
    /// The first offer of compression that the server can accept. A server that does not want to compress makes it
    /// `None`; otherwise it passes `is_some()` to [`with_deflate`](crate::connection::Connection::with_deflate).
    pub deflate: Option<Deflate>,
}

impl Accept<'_> {
    /// Returns the headers of the response, with names in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-accept", &self.key)]
            .into_iter()
            .chain(self.subprotocol.map(|name| ("sec-websocket-protocol", name)))
            .chain(self.deflate.map(|deflate| ("sec-websocket-extensions", deflate.response())))
    }

    /// Returns the whole response head, for servers without an HTTP library.
    pub fn response(&self) -> Vec<u8> {
        let mut response = String::from("HTTP/1.1 101 Switching Protocols\r\n");
        for (name, value) in self.headers() {
            response.extend([name, ": ", value, "\r\n"]);
        }
        response.push_str("\r\n");
        response.into_bytes()
    }
}

/// An accepted offer of permessage-deflate (RFC 7692, section 7.1): with the full window, and without context takeover
/// both ways, which a server may always request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deflate {
    /// True if the offer named the size of the server's window, so that the response must name it too.
    names_window: bool,
}

impl Deflate {
    /// Checks one offer. `None` if it is for another extension, malformed, or requests a smaller window than the
    /// server's: a broadcast is compressed once for all recipients, which is possible with one window size only.
    fn check_offer(offer: &[u8]) -> Option<Deflate> {
        let mut parts = std::str::from_utf8(offer).ok()?.split(';').map(str::trim);
        if parts.next() != Some("permessage-deflate") {
            return None;
        }
        let mut seen: [Option<&str>; 4] = [None; 4];
        for (at, part) in parts.enumerate() {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name.trim_end(), Some(unquoted(value.trim_start()))),
                None => (part, None),
            };
            let is_fine = match name {
                "server_no_context_takeover" | "client_no_context_takeover" => value.is_none(),
                "server_max_window_bits" => value == Some("15"),
                // The server requests nothing smaller, and can read every size.
                "client_max_window_bits" => value.is_none_or(is_window_bits),
                _ => false,
            };
            // There are four parameters, so a fifth is a repetition.
            if !is_fine || seen.contains(&Some(name)) {
                return None;
            }
            *seen.get_mut(at)? = Some(name);
        }
        Some(Deflate { names_window: seen.contains(&Some("server_max_window_bits")) })
    }

    /// Returns the value of the `Sec-WebSocket-Extensions` header of the response.
    fn response(self) -> &'static str {
        match self.names_window {
            false => "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
            true => {
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
                 server_max_window_bits=15"
            }
        }
    }
}

fn is_window_bits(value: &str) -> bool {
    matches!(value, "8" | "9" | "10" | "11" | "12" | "13" | "14" | "15")
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(value)
}

/// The reason that an upgrade request is refused. The message states what the client should change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeRejection {
    /// The method is not GET (RFC 6455, section 4.1, requirement 2).
    #[error("a WebSocket handshake is a GET request")]
    NotGet,
    /// The upgrade headers are missing (requirements 5 and 6).
    #[error("the headers `Connection: Upgrade` and `Upgrade: websocket` are required")]
    NotAnUpgrade,
    /// The version is missing or not 13 (requirement 9).
    #[error("the header `Sec-WebSocket-Version: 13` is required: no other version is supported")]
    UnsupportedVersion,
    /// The key is missing (requirement 7).
    #[error("the header `Sec-WebSocket-Key` is missing")]
    MissingKey,
    /// The key is not sixteen bytes in base64, or is given more than once (requirement 7).
    #[error("the header `Sec-WebSocket-Key` must be given once, as base64 of 16 bytes")]
    InvalidKey,
}

impl HandshakeRejection {
    /// Returns the HTTP status of the response.
    pub fn status(self) -> u16 {
        match self {
            HandshakeRejection::NotGet => 405,
            HandshakeRejection::NotAnUpgrade | HandshakeRejection::UnsupportedVersion => 426,
            HandshakeRejection::MissingKey | HandshakeRejection::InvalidKey => 400,
        }
    }

    /// Returns the headers that the response must have, with names in lower case.
    pub fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            HandshakeRejection::NotGet => &[("allow", "GET")],
            HandshakeRejection::NotAnUpgrade | HandshakeRejection::UnsupportedVersion => &[
                ("upgrade", "websocket"),
                ("connection", "Upgrade"),
                ("sec-websocket-version", "13"),
            ],
            HandshakeRejection::MissingKey | HandshakeRejection::InvalidKey => &[],
        }
    }
}

/// Checks an upgrade request (RFC 6455, section 4.2.1). Header names may be in any case; values are as received.
/// `supported` are the server's subprotocols; the client's order of preference decides.
pub fn accept<'h, 's>(
    method: &str,
    headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    supported: &[&'s str],
) -> Result<Accept<'s>, HandshakeRejection> {
    if method != "GET" {
        return Err(HandshakeRejection::NotGet);
    }
    let (mut connection, mut upgrade, mut version) = (false, false, false);
    let mut key = None;
    let mut subprotocol = None;
    let mut deflate = None;
    for (name, value) in headers {
        if name.eq_ignore_ascii_case("connection") {
            connection |= tokens(value).any(|token| token.eq_ignore_ascii_case(b"upgrade"));
        } else if name.eq_ignore_ascii_case("upgrade") {
            upgrade |= tokens(value).any(|token| token.eq_ignore_ascii_case(b"websocket"));
        } else if name.eq_ignore_ascii_case("sec-websocket-version") {
            version |= tokens(value).any(|token| token == b"13");
        } else if name.eq_ignore_ascii_case("sec-websocket-key") {
            if key.replace(value.trim_ascii()).is_some() {
                return Err(HandshakeRejection::InvalidKey);
            }
        } else if name.eq_ignore_ascii_case("sec-websocket-protocol") && subprotocol.is_none() {
            subprotocol = tokens(value)
                .find_map(|token| supported.iter().find(|name| name.as_bytes() == token).copied());
        } else if name.eq_ignore_ascii_case("sec-websocket-extensions") && deflate.is_none() {
            deflate = tokens(value).find_map(Deflate::check_offer);
        }
    }
    if !(connection && upgrade) {
        return Err(HandshakeRejection::NotAnUpgrade);
    }
    if !version {
        return Err(HandshakeRejection::UnsupportedVersion);
    }
    let key = key.ok_or(HandshakeRejection::MissingKey)?;
    if BASE64.decode(key).map(|key| key.len()) != Ok(KEY_BYTES) {
        return Err(HandshakeRejection::InvalidKey);
    }
    Ok(Accept { key: accept_key(key), subprotocol, deflate })
}

/// Returns the elements of a comma-separated header value.
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

fn accept_key(key: &[u8]) -> String {
    BASE64.encode(Sha1::new().chain_update(key).chain_update(KEY_SUFFIX).finalize())
}

/// The client's side of the opening handshake.
pub struct ClientHandshake {
    expected_accept: String,
    offered: Vec<String>,
    received: Vec<u8>,
}

/// A finished client handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgraded {
    /// The subprotocol that the server chose.
    pub subprotocol: Option<String>,
    /// The bytes behind the response head: pass them to [`super::WebSocket::receive`] first.
    pub rest: Bytes,
}

/// The reason that there is no WebSocket connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// A part of the request contains a line break, a NUL or, in the target, a space.
    #[error("{0} contains a character that a request head must not contain")]
    InvalidRequest(&'static str),
    /// The bytes are not an HTTP/1.1 response head.
    #[error("the server's response is not HTTP: {0}")]
    NotHttp(httparse::Error),
    /// The head is too long.
    #[error("the server's response head is longer than 16 KiB")]
    HeadTooLong,
    /// The server responded by HTTP, but not with 101.
    #[error("the server refused the upgrade with status {0}")]
    Refused(u16),
    /// A header of the 101 response is missing or wrong.
    #[error("the server's upgrade has a missing or wrong header: {0}")]
    InvalidHeader(&'static str),
}

impl ClientHandshake {
    /// Starts a handshake and returns it with the request to write. `entropy` should be random (RFC 6455, section 4.1,
    /// requirement 7).
    pub fn new(
        authority: &str,
        target: &str,
        entropy: [u8; KEY_BYTES],
        subprotocols: &[&str],
        headers: &[(&str, &str)],
    ) -> Result<(ClientHandshake, Vec<u8>), HandshakeError> {
        check_text(target, "the target", |byte| byte > b' ')?;
        check_text(authority, "the authority", |byte| byte > b' ')?;
        let key = BASE64.encode(entropy);
        let mut request = format!(
            "GET {target} HTTP/1.1\r\nhost: {authority}\r\nupgrade: websocket\r\n\
             connection: Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n"
        );
        let is_value = |byte| byte >= b' ' || byte == b'\t';
        if !subprotocols.is_empty() {
            let list = subprotocols.join(", ");
            check_text(&list, "a subprotocol", is_value)?;
            request.extend(["sec-websocket-protocol: ", &list, "\r\n"]);
        }
        for (name, value) in headers {
            check_text(name, "a header name", |byte| byte > b' ' && byte != b':')?;
            check_text(value, "a header value", is_value)?;
            request.extend([name, ": ", value, "\r\n"]);
        }
        request.push_str("\r\n");
        let handshake = ClientHandshake {
            expected_accept: accept_key(key.as_bytes()),
            offered: subprotocols.iter().copied().map(String::from).collect(),
            received: Vec::new(),
        };
        Ok((handshake, request.into_bytes()))
    }

    /// Takes bytes of the response; returns the result once the head is complete.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<Upgraded>, HandshakeError> {
        self.received.extend_from_slice(bytes);
        let mut headers = [httparse::EMPTY_HEADER; RESPONSE_HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let head_len = match response.parse(&self.received) {
            Ok(httparse::Status::Complete(len)) if len <= RESPONSE_HEAD_BYTES_MAX => len,
            Ok(httparse::Status::Partial) if self.received.len() < RESPONSE_HEAD_BYTES_MAX => {
                return Ok(None);
            }
            Ok(_) => return Err(HandshakeError::HeadTooLong),
            Err(error) => return Err(HandshakeError::NotHttp(error)),
        };
        let status = response.code.unwrap_or(0);
        if status != 101 {
            return Err(HandshakeError::Refused(status));
        }
        let find = |name: &str| {
            let mut headers = response.headers.iter();
            headers.find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
        };
        let lists = |name, token: &[u8]| {
            find(name).is_some_and(|value| tokens(value).any(|t| t.eq_ignore_ascii_case(token)))
        };
        if !lists("upgrade", b"websocket") {
            return Err(HandshakeError::InvalidHeader("upgrade"));
        }
        if !lists("connection", b"upgrade") {
            return Err(HandshakeError::InvalidHeader("connection"));
        }
        if find("sec-websocket-accept") != Some(self.expected_accept.as_bytes()) {
            return Err(HandshakeError::InvalidHeader("sec-websocket-accept"));
        }
        if find("sec-websocket-extensions").is_some() {
            return Err(HandshakeError::InvalidHeader("sec-websocket-extensions"));
        }
        let subprotocol = match find("sec-websocket-protocol") {
            None => None,
            Some(chosen) => match self.offered.iter().find(|name| name.as_bytes() == chosen) {
                Some(name) => Some(name.clone()),
                None => return Err(HandshakeError::InvalidHeader("sec-websocket-protocol")),
            },
        };
        let rest = Bytes::copy_from_slice(&self.received[head_len..]);
        self.received = Vec::new();
        Ok(Some(Upgraded { subprotocol, rest }))
    }
}

/// Refuses text that could end its line of the request and begin another.
fn check_text(
    text: &str,
    what: &'static str,
    is_allowed: impl Fn(u8) -> bool,
) -> Result<(), HandshakeError> {
    match text.bytes().all(|byte| is_allowed(byte) && byte != 0x7f) {
        true => Ok(()),
        false => Err(HandshakeError::InvalidRequest(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 6455, section 1.3.
    const REQUEST: [(&str, &str); 5] = [
        ("Upgrade", "websocket"),
        ("Connection", "keep-alive, Upgrade"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Protocol", "graphql-ws, graphql-transport-ws"),
        ("Sec-WebSocket-Version", "13"),
    ];

    fn check<'h>(
        method: &str,
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
    ) -> Result<Accept<'static>, HandshakeRejection> {
        let headers = headers.into_iter().map(|(name, value)| (name, value.as_bytes()));
        accept(method, headers, &["graphql-transport-ws"])
    }

    fn without(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
        REQUEST.into_iter().filter(move |header| header.0 != name)
    }

    #[test]
    fn the_example_of_the_specification_is_accepted() {
        let accepted = check("GET", REQUEST).unwrap();
        let expected = Accept {
            key: "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".into(),
            subprotocol: Some("graphql-transport-ws"),
            deflate: None,
        };
        assert_eq!(accepted, expected);
    }

    #[test]
    fn each_missing_or_wrong_part_has_its_status() {
        let with = |name, value| without(name).chain([(name, value)]);
        assert_eq!(check("POST", REQUEST), Err(HandshakeRejection::NotGet));
        assert_eq!(check("GET", without("Upgrade")), Err(HandshakeRejection::NotAnUpgrade));
        assert_eq!(check("GET", with("Upgrade", "h2c")), Err(HandshakeRejection::NotAnUpgrade));
        assert_eq!(
            check("GET", with("Connection", "close")),
            Err(HandshakeRejection::NotAnUpgrade)
        );
        let version = "Sec-WebSocket-Version";
        assert_eq!(check("GET", without(version)), Err(HandshakeRejection::UnsupportedVersion));
        assert_eq!(check("GET", with(version, "8")), Err(HandshakeRejection::UnsupportedVersion));
        let key = "Sec-WebSocket-Key";
        assert_eq!(check("GET", without(key)), Err(HandshakeRejection::MissingKey));
        assert_eq!(check("GET", with(key, "c2hvcnQ=")), Err(HandshakeRejection::InvalidKey));
        assert_eq!(check("GET", with(key, "not base64")), Err(HandshakeRejection::InvalidKey));
        let twice = REQUEST.into_iter().chain([(key, "dGhlIHNhbXBsZSBub25jZQ==")]);
        assert_eq!(check("GET", twice), Err(HandshakeRejection::InvalidKey));

        let statuses = [
            (HandshakeRejection::NotGet, 405),
            (HandshakeRejection::NotAnUpgrade, 426),
            (HandshakeRejection::UnsupportedVersion, 426),
            (HandshakeRejection::MissingKey, 400),
            (HandshakeRejection::InvalidKey, 400),
        ];
        for (rejection, status) in statuses {
            assert_eq!(rejection.status(), status);
        }
        assert!(
            HandshakeRejection::UnsupportedVersion
                .headers()
                .contains(&("sec-websocket-version", "13"))
        );
    }

    #[test]
    fn a_client_without_our_subprotocol_is_accepted_without_one() {
        let accepted = check("GET", without("Sec-WebSocket-Protocol")).unwrap();
        assert_eq!(accepted.subprotocol, None);
    }

    #[test]
    fn the_first_offer_of_compression_that_can_be_taken_is_taken() {
        let response = |offers: &'static str| {
            let accepted = check("GET", REQUEST.into_iter().chain([(EXTENSIONS, offers)])).unwrap();
            accepted.deflate.map(Deflate::response)
        };
        const EXTENSIONS: &str = "Sec-WebSocket-Extensions";
        const PLAIN: &str =
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
        for offers in [
            "permessage-deflate",
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate;client_max_window_bits=9;server_no_context_takeover",
            "permessage-deflate; client_no_context_takeover; client_max_window_bits = \"12\"",
            "x-webkit-deflate-frame, permessage-deflate",
            "permessage-deflate; server_max_window_bits=10, permessage-deflate",
        ] {
            assert_eq!(response(offers), Some(PLAIN), "{offers}");
        }
        let named = response("permessage-deflate; server_max_window_bits=15").unwrap();
        assert_eq!(named.strip_prefix(PLAIN), Some("; server_max_window_bits=15"));
        for offers in [
            "",
            "x-webkit-deflate-frame",
            "permessage-deflate; server_max_window_bits=10",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; client_max_window_bits=7",
            "permessage-deflate; client_max_window_bits=015",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
            "permessage-deflate; unknown",
            "permessage-deflate;",
        ] {
            assert_eq!(response(offers), None, "{offers}");
        }
    }

    #[test]
    fn a_client_and_a_server_agree_whatever_the_splits() {
        let (_, request) = ClientHandshake::new("h", "/g", [7; 16], &["b", "a"], &[]).unwrap();
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut parsed = httparse::Request::new(&mut headers);
        assert!(parsed.parse(&request).unwrap().is_complete());
        let headers = parsed.headers.iter().map(|header| (header.name, header.value));
        let accepted = accept(parsed.method.unwrap(), headers, &["a"]).unwrap();
        let mut response = accepted.response();
        response.extend_from_slice(b"frames");

        for split in 0..response.len() - b"frames".len() {
            let (mut client, _) =
                ClientHandshake::new("h", "/g", [7; 16], &["b", "a"], &[]).unwrap();
            assert_eq!(client.receive(&response[..split]), Ok(None));
            let upgraded = client.receive(&response[split..]).unwrap().unwrap();
            assert_eq!(upgraded.subprotocol.as_deref(), Some("a"));
            assert_eq!(&upgraded.rest[..], b"frames");
        }
    }

    #[test]
    fn a_client_refuses_responses_that_are_not_an_upgrade_for_its_key() {
        let check = |response: &str| {
            let (mut client, _) = ClientHandshake::new("h", "/", [0; 16], &[], &[]).unwrap();
            client.receive(response.as_bytes())
        };
        assert_eq!(
            check("HTTP/1.1 503 Service Unavailable\r\n\r\n"),
            Err(HandshakeError::Refused(503))
        );
        let key = accept_key(b"another key");
        let foreign = Accept { key, subprotocol: None, deflate: None };
        assert_eq!(
            check(&String::from_utf8(foreign.response()).unwrap()),
            Err(HandshakeError::InvalidHeader("sec-websocket-accept"))
        );
        assert!(matches!(check("SSH-2.0-OpenSSH\r\n"), Err(HandshakeError::NotHttp(_))));
        let endless = "HTTP/1.1 101 Switching\r\nx: ".to_owned() + &"y".repeat(20_000);
        assert_eq!(check(&endless), Err(HandshakeError::HeadTooLong));
    }

    #[test]
    fn a_header_value_cannot_smuggle_another_header() {
        let smuggled = ClientHandshake::new("h", "/", [0; 16], &[], &[("a", "b\r\nc: d")]);
        assert_eq!(smuggled.err(), Some(HandshakeError::InvalidRequest("a header value")));
        let split_target = ClientHandshake::new("h", "/ HTTP/1.0", [0; 16], &[], &[]);
        assert_eq!(split_target.err(), Some(HandshakeError::InvalidRequest("the target")));
    }
}
