//! The endpoint that clients connect to, and their subscription.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use net::{Roots, TlsClient, TlsClientSession};
use serde_json::{Map, Value};
use url::Url;

use super::client::{ClientMessages, SUBPROTOCOL, WEBSOCKET_KEY};
use super::frame::{self, Opcode};
use crate::random::mix;

/// The placeholder in the query, the variables and an event for the client's key or the key of the event.
pub(super) const KEY: &str = "$K";

/// The placeholder in the query and the variables for the client's number.
const NUMBER: &str = "$I";

/// The placeholder in the query and the variables for the client's number modulo [`Subscription::distinct`].
const DISTINCT: &str = "$D";

/// The maximum number of connections from one loopback address. The kernel's default range has 28,232 ports, and the
/// ports of runs in the last minute are still in TIME_WAIT.
const CLIENTS_PER_SOURCE: usize = 4_000;

/// The maximum length of a client's own header. The limits of servers for a head are 8 to 64 KiB.
pub const HEADER_BYTES_MAX: usize = 60_000;

/// A WebSocket endpoint.
#[derive(Debug, Clone)]
pub struct SubscriptionTarget {
    url: Url,
    address: SocketAddr,
    tls: Option<TlsClient>,
}

/// The subscription of every client.
#[derive(Debug, Clone, Default)]
pub struct Subscription {
    /// GraphQL text; `$K` is replaced by the client's key, `$I` by its number, `$D` by its number modulo `distinct`.
    pub query: String,
    /// The variables; the same placeholders are replaced anywhere in them.
    pub variables: Option<Map<String, Value>>,
    /// The number of keys: client `n` has the key `n` modulo this number.
    pub keys: usize,
    /// The number of different operations of all clients. Unlike keys they make no difference for events.
    pub distinct: usize,
    /// A text that each result must contain, with the same placeholders. It shows whether results reach the right
    /// clients.
    pub expects: Option<String>,
    /// The length of a unique header `authorization` of each client; 0 for none.
    pub header_bytes: usize,
    /// Tokens: client `n` sends the one at `n` modulo their number in its header `authorization`.
    pub tokens: Vec<Box<str>>,
}

impl SubscriptionTarget {
    /// Parses a URL and looks up its host. TLS (`wss`) trusts the certificates of the system.
    ///
    /// # Errors
    /// A message about the URL or its host.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::parse_with_roots(text, None)
    }

    /// Like [`Self::parse`], but TLS trusts only the certificates of `authorities` (PEM).
    ///
    /// # Errors
    /// A message about the URL, its host or the certificates.
    pub fn parse_with_roots(text: &str, authorities: Option<&[u8]>) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}"))?;
        let is_tls = match url.scheme() {
            "ws" | "http" => false,
            "wss" | "https" => true,
            _ => return Err(format!("`{text}` is not a WebSocket URL; write ws:// or wss://")),
        };
        if authorities.is_some() && !is_tls {
            return Err(format!("`{text}` has no certificate to trust; write wss://"));
        }
        let roots = authorities.map_or(Roots::Native, Roots::Pem);
        let tls = is_tls.then(|| TlsClient::new(roots, None, &[b"http/1.1"])).transpose();
        let tls = tls.map_err(|error| error.to_string())?;
        let address = resolve_address(&url, if is_tls { 443 } else { 80 })?;
        let target = Self { url, address, tls };
        target.session()?;
        Ok(target)
    }

    /// Creates the TLS session of a new connection, if the endpoint uses TLS.
    pub(super) fn session(&self) -> Result<Option<TlsClientSession>, String> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let host = self.url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        tls.session(host).map(Some).map_err(|error| error.to_string())
    }

    /// Returns the URL as given.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Returns the address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the addresses to connect from, so that ports suffice; none if the kernel should choose.
    pub(super) fn sources(&self, clients: usize, given: Option<usize>) -> Vec<IpAddr> {
        let IpAddr::V4(address) = self.address.ip() else { return Vec::new() };
        if !address.is_loopback() {
            return Vec::new();
        }
        let count = given.unwrap_or(clients.div_ceil(CLIENTS_PER_SOURCE)).clamp(1, 250);
        // All of 127.0.0.0/8 is this machine; .1 is left to other programs.
        (2..).take(count).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))).collect()
    }

    /// Writes the request that opens the WebSocket of client `number`.
    pub(super) fn write_handshake(
        &self,
        subscription: &Subscription,
        number: usize,
        into: &mut Vec<u8>,
    ) {
        let url = &self.url;
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
        let head = format!(
            "GET {}{query} HTTP/1.1\r\nhost: {authority}\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
             sec-websocket-key: {WEBSOCKET_KEY}\r\nsec-websocket-version: 13\r\n\
             sec-websocket-protocol: {SUBPROTOCOL}\r\n",
            url.path()
        );
        into.extend_from_slice(head.as_bytes());
        if subscription.header_bytes > 0 {
            into.extend_from_slice(b"authorization: Bearer ");
            // Random over its whole length, like tokens, so that no server can store two of them as one.
            let hex = b"0123456789abcdef";
            for place in 0..subscription.header_bytes {
                let bits = mix(number as u64, (place / 16) as u64) >> (place % 16 * 4);
                into.push(hex[(bits & 15) as usize]);
            }
            into.extend_from_slice(b"\r\n");
        }
        if let Some(at) = number.checked_rem(subscription.tokens.len()) {
            into.extend_from_slice(b"authorization: Bearer ");
            into.extend_from_slice(subscription.tokens[at].as_bytes());
            into.extend_from_slice(b"\r\n");
        }
        into.extend_from_slice(b"\r\n");
    }
}

impl Subscription {
    /// Returns the first two messages of client `number`: `connection_init` and `subscribe`.
    pub fn opening_messages(&self, number: usize) -> [Vec<u8>; 2] {
        let mut subscribe = Vec::new();
        self.write_subscribe(number, &mut subscribe);
        [ClientMessages::default().init, subscribe]
    }

    /// Returns the key of client `number`.
    pub(super) fn key(&self, number: usize) -> usize {
        number % self.keys.max(1)
    }

    /// Returns the text that each result of client `number` must contain, if one is set.
    pub(super) fn expected_text(&self, number: usize) -> Option<String> {
        Some(self.fill(self.expects.as_deref()?, number))
    }

    /// Replaces the placeholders in a text of client `number`.
    fn fill(&self, text: &str, number: usize) -> String {
        text.replace(KEY, &self.key(number).to_string())
            .replace(NUMBER, &number.to_string())
            .replace(DISTINCT, &(number % self.distinct.max(1)).to_string())
    }

    /// Writes the message that subscribes client `number`, with the id `1`.
    pub(super) fn write_subscribe(&self, number: usize, into: &mut Vec<u8>) {
        let own = |text: &str| self.fill(text, number);
        let query = Value::from(own(&self.query));
        let mut text = format!(r#"{{"id":"1","type":"subscribe","payload":{{"query":{query}"#);
        if let Some(variables) = &self.variables {
            // Neither a placeholder nor a number has a character that JSON escapes.
            text.push_str(",\"variables\":");
            text.push_str(&own(&Value::from(variables.clone()).to_string()));
        }
        text.push_str("}}");
        frame::write(Opcode::Text, text.as_bytes(), into);
    }
}

/// Looks up a URL's host.
pub(super) fn resolve_address(url: &Url, port: u16) -> Result<SocketAddr, String> {
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| format!("`{url}` has no host"))?;
    let port = url.port().unwrap_or(port);
    (host.trim_start_matches('[').trim_end_matches(']'), port)
        .to_socket_addrs()
        .map_err(|error| format!("cannot find {host}: {error}"))?
        // IPv4 is preferred if a host has both: only there loopback has many addresses to connect from.
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or_else(|| format!("{host} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_subscribes_with_its_key() {
        let subscription = Subscription {
            query: "subscription($k: ID!) { a(k: $k, l: \"$K\") }".to_owned(),
            variables: serde_json::from_str(r#"{"k":"key-$K","i":"$I","d":"$D"}"#).unwrap(),
            keys: 3,
            distinct: 2,
            ..Subscription::default()
        };
        let mut bytes = Vec::new();
        subscription.write_subscribe(4, &mut bytes);
        let begin = bytes.iter().position(|byte| *byte == b'{').unwrap();
        let text = String::from_utf8_lossy(&bytes[begin..]).into_owned();
        assert_eq!(
            text,
            r#"{"id":"1","type":"subscribe","payload":{"query":"subscription($k: ID!) { a(k: $k, l: \"1\") }","variables":{"k":"key-1","i":"4","d":"0"}}}"#
        );
    }

    #[test]
    fn the_header_of_a_client_has_the_requested_length() {
        let target = SubscriptionTarget::parse("ws://127.0.0.1:9/graphql").unwrap();
        let subscription = Subscription { header_bytes: 100, ..Subscription::default() };
        let token = |number| {
            let mut bytes = Vec::new();
            target.write_handshake(&subscription, number, &mut bytes);
            let text = String::from_utf8(bytes).unwrap();
            let (_, token) = text.split_once("Bearer ").unwrap();
            token.split_once("\r\n").unwrap().0.to_owned()
        };
        assert_eq!(token(1).len(), 100);
        assert_ne!(token(1)[..16], token(2)[..16]);
        assert_ne!(token(1)[84..], token(2)[84..]);
    }

    #[test]
    fn clients_send_the_tokens_in_turn() {
        let target = SubscriptionTarget::parse("ws://127.0.0.1:9/graphql").unwrap();
        let tokens = ["a", "b"].map(Box::from).into();
        let subscription = Subscription { tokens, ..Subscription::default() };
        for (number, expected) in [(0, "Bearer a\r\n"), (1, "Bearer b\r\n"), (4, "Bearer a\r\n")] {
            let mut bytes = Vec::new();
            target.write_handshake(&subscription, number, &mut bytes);
            let text = String::from_utf8(bytes).unwrap();
            assert_eq!(text.matches("authorization: ").count(), 1);
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn loopback_is_reached_from_as_many_addresses_as_ports_require() {
        let here = SubscriptionTarget::parse("ws://127.0.0.1:9/").unwrap();
        assert_eq!(here.sources(4_000, None), [IpAddr::from([127, 0, 0, 2])]);
        assert_eq!(here.sources(4_001, None).len(), 2);
        assert_eq!(here.sources(1, Some(16)).len(), 16);
        assert!(
            SubscriptionTarget::parse("ws://10.0.0.1:9/").unwrap().sources(1, Some(3)).is_empty()
        );
        for text in ["", "ftp://127.0.0.1/", "127.0.0.1:9", "ws://"] {
            assert!(SubscriptionTarget::parse(text).is_err(), "{text}");
        }
        assert!(
            SubscriptionTarget::parse_with_roots("ws://127.0.0.1:9/", Some(b"")).is_err(),
            "no certificate to trust"
        );
        assert!(
            SubscriptionTarget::parse_with_roots("wss://127.0.0.1:9/", Some(b"no PEM")).is_err()
        );
    }
}
