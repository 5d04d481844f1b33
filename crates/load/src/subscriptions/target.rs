//! Whom clients connect to, and what they say there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use net::{Roots, TlsClient, TlsClientSession};
use serde_json::{Map, Value};
use url::Url;

use super::client::{Phrases, SUBPROTOCOL, WEBSOCKET_KEY};
use super::frame::{self, Opcode};
use crate::random::mix;

/// In the query, the variables and an event: the client's key, and the key of the event.
pub(super) const KEY: &str = "$K";

/// In the query and the variables: the client's number.
const NUMBER: &str = "$I";

/// Connections from one loopback address. The kernel's default range has 28,232 ports, and those of the runs of the last
/// minute still wait for stragglers.
const CLIENTS_PER_SOURCE: usize = 4_000;

/// The most bytes of a client's own header: what servers take at most for a head is some 8 to 64 KiB.
pub const HEADER_BYTES_MAX: usize = 60_000;

/// A WebSocket endpoint.
#[derive(Debug, Clone)]
pub struct Target {
    url: Url,
    address: SocketAddr,
    tls: Option<TlsClient>,
}

/// What every client subscribes to.
#[derive(Debug, Clone, Default)]
pub struct Subscription {
    /// GraphQL text; `$K` is replaced by the client's key, `$I` by its number.
    pub query: String,
    /// Variables; the same is replaced wherever it stands in them.
    pub variables: Option<Map<String, Value>>,
    /// How many keys there are: client `n` has the key `n` modulo this number.
    pub keys: usize,
    /// What each result has to contain; `$K` and `$I` are replaced in it too. Tells whether results get to whom they
    /// are meant for.
    pub expects: Option<String>,
    /// The length of a header `authorization` that each client has of its own; none for 0.
    pub header_bytes: usize,
}

impl Target {
    /// Reads a URL and looks its host up. Over TLS (`wss`) whom the system trusts is trusted.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the URL or its host.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::trusting(text, None)
    }

    /// The same, where only the certificates of `authorities` (PEM) are trusted.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the URL, its host or the certificates.
    pub fn trusting(text: &str, authorities: Option<&[u8]>) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}"))?;
        let is_tls = match url.scheme() {
            "ws" | "http" => false,
            "wss" | "https" => true,
            _ => return Err(format!("`{text}` is no WebSocket; write ws:// or wss://")),
        };
        if authorities.is_some() && !is_tls {
            return Err(format!("`{text}` has no certificate to trust; write wss://"));
        }
        let roots = authorities.map_or(Roots::Native, Roots::Pem);
        let tls = is_tls.then(|| TlsClient::new(roots, None, &[b"http/1.1"])).transpose();
        let tls = tls.map_err(|error| error.to_string())?;
        let address = address_of(&url, if is_tls { 443 } else { 80 })?;
        let target = Self { url, address, tls };
        target.session()?;
        Ok(target)
    }

    /// The TLS of a new connection, if there is any.
    pub(super) fn session(&self) -> Result<Option<TlsClientSession>, String> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let host = self.url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        tls.session(host).map(Some).map_err(|error| error.to_string())
    }

    /// The URL as it was given.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Where to connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From which addresses to connect, so that ports suffice; none where the kernel is to choose.
    pub(super) fn sources(&self, clients: usize, given: Option<usize>) -> Vec<IpAddr> {
        let IpAddr::V4(address) = self.address.ip() else { return Vec::new() };
        if !address.is_loopback() {
            return Vec::new();
        }
        let count = given.unwrap_or(clients.div_ceil(CLIENTS_PER_SOURCE)).clamp(1, 250);
        // All of 127.0.0.0/8 is this machine; .1 is left to others.
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
            // Random from end to end, as tokens are: nobody can keep two of them as one.
            let hex = b"0123456789abcdef";
            for place in 0..subscription.header_bytes {
                let bits = mix(number as u64, (place / 16) as u64) >> (place % 16 * 4);
                into.push(hex[(bits & 15) as usize]);
            }
            into.extend_from_slice(b"\r\n");
        }
        into.extend_from_slice(b"\r\n");
    }
}

impl Subscription {
    /// What client `number` says after its handshake, and what it says when it is greeted.
    pub fn opening(&self, number: usize) -> [Vec<u8>; 2] {
        let mut subscribe = Vec::new();
        self.write_subscribe(number, &mut subscribe);
        [Phrases::default().init, subscribe]
    }

    /// The key of client `number`.
    pub(super) fn key(&self, number: usize) -> usize {
        number % self.keys.max(1)
    }

    /// What each result of client `number` has to contain, if anything is said about that.
    pub(super) fn expected_text(&self, number: usize) -> Option<String> {
        let text = self.expects.as_deref()?;
        Some(text.replace(KEY, &self.key(number).to_string()).replace(NUMBER, &number.to_string()))
    }

    /// Writes the message that subscribes client `number`, by the id `1`.
    pub(super) fn write_subscribe(&self, number: usize, into: &mut Vec<u8>) {
        let (key, number) = (self.key(number).to_string(), number.to_string());
        let own = |text: &str| text.replace(KEY, &key).replace(NUMBER, &number);
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
pub(super) fn address_of(url: &Url, port: u16) -> Result<SocketAddr, String> {
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| format!("`{url}` names no host"))?;
    let port = url.port().unwrap_or(port);
    (host.trim_start_matches('[').trim_end_matches(']'), port)
        .to_socket_addrs()
        .map_err(|error| format!("cannot find {host}: {error}"))?
        // Of a host that has both; only there has loopback many addresses to connect from.
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
            variables: serde_json::from_str(r#"{"k":"key-$K","i":"$I"}"#).unwrap(),
            keys: 3,
            ..Subscription::default()
        };
        let mut bytes = Vec::new();
        subscription.write_subscribe(4, &mut bytes);
        let begin = bytes.iter().position(|byte| *byte == b'{').unwrap();
        let text = String::from_utf8_lossy(&bytes[begin..]).into_owned();
        assert_eq!(
            text,
            r#"{"id":"1","type":"subscribe","payload":{"query":"subscription($k: ID!) { a(k: $k, l: \"1\") }","variables":{"k":"key-1","i":"4"}}}"#
        );
    }

    #[test]
    fn a_header_of_their_own_has_the_length_that_was_asked_for() {
        let target = Target::parse("ws://127.0.0.1:9/graphql").unwrap();
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
    fn loopback_is_reached_from_as_many_addresses_as_ports_need() {
        let here = Target::parse("ws://127.0.0.1:9/").unwrap();
        assert_eq!(here.sources(4_000, None), [IpAddr::from([127, 0, 0, 2])]);
        assert_eq!(here.sources(4_001, None).len(), 2);
        assert_eq!(here.sources(1, Some(16)).len(), 16);
        assert!(Target::parse("ws://10.0.0.1:9/").unwrap().sources(1, Some(3)).is_empty());
        for text in ["", "ftp://127.0.0.1/", "127.0.0.1:9", "ws://"] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
        assert!(Target::trusting("ws://127.0.0.1:9/", Some(b"")).is_err(), "nobody to trust");
        assert!(Target::trusting("wss://127.0.0.1:9/", Some(b"no PEM")).is_err());
    }
}
