//! The JSON messages of both WebSocket subprotocols: parsing those of clients, and writing all of them.
//! `server_message` parses those of servers.
//!
//! Only the envelope is interpreted. Variables, extensions and results are passed on as text.

use std::borrow::Cow;
use std::fmt;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;

use crate::Chunks;

/// The maximum nesting of a client's message: far more than variables need.
const MESSAGE_DEPTH_MAX: u32 = 256;

/// An operation that a client requests, as far as the transport interprets it.
///
/// `Debug` shows only the size of variables and extensions: they contain passwords and tokens, which must not get into
/// log lines.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// The GraphQL document. Absent only if `document_id` or `extensions` name a persisted one.
    pub query: Option<Box<str>>,
    /// The id of a persisted document.
    pub document_id: Option<Box<str>>,
    /// The name of the operation in the document.
    pub operation_name: Option<Box<str>>,
    /// The variables, a JSON object.
    pub variables: Option<Bytes>,
    /// The extensions, a JSON object.
    pub extensions: Option<Bytes>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("query", &self.query)
            .field("document_id", &self.document_id)
            .field("operation_name", &self.operation_name)
            .field("variables", &HiddenText(&self.variables))
            .field("extensions", &HiddenText(&self.extensions))
            .finish()
    }
}

/// A text of which `Debug` shows only the size.
pub(crate) struct HiddenText<'a>(pub(crate) &'a Option<Bytes>);

impl fmt::Debug for HiddenText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(text) => write!(f, "{} bytes", text.len()),
            None => f.write_str("none"),
        }
    }
}

/// A WebSocket subprotocol of GraphQL, as far as its messages differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    /// `graphql-transport-ws`.
    TransportWs,
    /// `graphql-ws`.
    Ws,
}

impl Dialect {
    /// Returns the type of the message that starts an operation.
    pub(crate) const fn start(self) -> &'static str {
        match self {
            Dialect::TransportWs => "subscribe",
            Dialect::Ws => "start",
        }
    }

    /// Returns the type of the client's message that ends an operation.
    pub(crate) const fn stop(self) -> &'static str {
        match self {
            Dialect::TransportWs => "complete",
            Dialect::Ws => "stop",
        }
    }

    /// Returns the type of a result's message.
    pub(crate) const fn result(self) -> &'static str {
        match self {
            Dialect::TransportWs => "next",
            Dialect::Ws => "data",
        }
    }
}

/// A client's message of either subprotocol.
#[derive(Debug)]
pub(crate) enum ClientMessage {
    ConnectionInit {
        payload: Option<Bytes>,
    },
    Start {
        id: String,
        request: Request,
    },
    Stop {
        id: String,
    },
    /// `graphql-transport-ws` only.
    Ping {
        payload: Option<Bytes>,
    },
    /// `graphql-transport-ws` only.
    Pong,
    /// `graphql-ws` only.
    ConnectionTerminate,
}

/// The defect of an invalid message; becomes the reason of a close frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidMessage(pub(crate) Cow<'static, str>);

impl ClientMessage {
    pub(crate) fn parse(dialect: Dialect, text: Bytes) -> Result<ClientMessage, InvalidMessage> {
        let mut document = Document::with_depth_limit(MESSAGE_DEPTH_MAX);
        let message = MessageObject::parse(&mut document, text)?;
        let kind = message.kind()?;
        Ok(match (&*kind, dialect) {
            ("connection_init", _) => {
                ClientMessage::ConnectionInit { payload: message.optional_object("payload")? }
            }
            (kind, dialect) if kind == dialect.start() => ClientMessage::Start {
                id: message.id()?,
                request: message.object("payload")?.request()?,
            },
            (kind, dialect) if kind == dialect.stop() => ClientMessage::Stop { id: message.id()? },
            ("ping", Dialect::TransportWs) => {
                ClientMessage::Ping { payload: message.optional_object("payload")? }
            }
            ("pong", Dialect::TransportWs) => {
                message.optional_object("payload")?;
                ClientMessage::Pong
            }
            ("connection_terminate", Dialect::Ws) => ClientMessage::ConnectionTerminate,
            _ => return Err(InvalidMessage(format!("unknown message type `{kind}`").into())),
        })
    }
}

fn must_be(name: &str, what: &str) -> InvalidMessage {
    InvalidMessage(format!("`{name}` must be {what}").into())
}

/// A value in a message: an object, except where only its text is read.
#[derive(Clone, Copy)]
struct MessageObject<'d> {
    document: &'d Document,
    node: NodeId,
}

impl<'d> MessageObject<'d> {
    fn parse(document: &'d mut Document, text: Bytes) -> Result<MessageObject<'d>, InvalidMessage> {
        let node = document.parse(text).map_err(|_| InvalidMessage("not JSON".into()))?;
        match document.kind(node) {
            Kind::Object => Ok(MessageObject { document, node }),
            _ => Err(InvalidMessage("not a JSON object".into())),
        }
    }

    fn kind(self) -> Result<Cow<'d, str>, InvalidMessage> {
        self.optional_string("type")?.ok_or_else(|| must_be("type", "a string"))
    }

    fn id(self) -> Result<String, InvalidMessage> {
        match self.optional_string("id")? {
            Some(id) if !id.is_empty() => Ok(id.into_owned()),
            _ => Err(must_be("id", "a non-empty string")),
        }
    }

    fn request(self) -> Result<Request, InvalidMessage> {
        let query = self.optional_string("query")?.map(Box::from);
        let document_id = self.optional_string("documentId")?.map(Box::from);
        let operation_name = self.optional_string("operationName")?.map(Box::from);
        let variables = self.optional_object("variables")?;
        let extensions = self.optional_object("extensions")?;
        if query.is_none() && document_id.is_none() && extensions.is_none() {
            return Err(must_be("query", "a string"));
        }
        Ok(Request { query, document_id, operation_name, variables, extensions })
    }

    /// Returns a member that is not null. Null is the same as absent everywhere in the protocols.
    fn get(self, name: &str) -> Option<NodeId> {
        self.document.get(self.node, name).filter(|node| !self.document.is_null(*node))
    }

    fn optional_string(self, name: &str) -> Result<Option<Cow<'d, str>>, InvalidMessage> {
        self.get(name)
            .map(|node| self.document.as_str(node).ok_or_else(|| must_be(name, "a string")))
            .transpose()
    }

    fn optional_object(self, name: &str) -> Result<Option<Bytes>, InvalidMessage> {
        match self.get(name) {
            None => Ok(None),
            Some(_) => self.object(name).map(|it| Some(it.text())),
        }
    }

    fn object(self, name: &str) -> Result<MessageObject<'d>, InvalidMessage> {
        match self.get(name) {
            Some(node) if self.document.kind(node) == Kind::Object => {
                Ok(MessageObject { node, ..self })
            }
            _ => Err(must_be(name, "an object")),
        }
    }

    fn text(self) -> Bytes {
        let mut text = Vec::new();
        self.document.print(self.node, &mut text);
        text.into()
    }
}

/// Returns `{"type":…,"payload":…}`.
pub(crate) fn message(kind: &str, payload: Option<Bytes>) -> Chunks {
    match payload {
        None => Chunks::whole(format!("{{\"type\":\"{kind}\"}}")),
        Some(body) => {
            let head = format!("{{\"type\":\"{kind}\",\"payload\":").into();
            Chunks { head, body, tail: b"}" }
        }
    }
}

/// Returns `{"id":…,"type":…,"payload":…}`.
pub(crate) fn operation_message(id: &str, kind: &str, payload: Option<Bytes>) -> Chunks {
    let mut head = Vec::with_capacity(operation_prefix_len(id, kind));
    match payload {
        None => {
            append_operation_head(id, kind, &mut head);
            head.push(b'}');
            Chunks::whole(head)
        }
        Some(body) => {
            append_operation_prefix(id, kind, &mut head);
            Chunks { head: head.into(), body, tail: b"}" }
        }
    }
}

/// Appends `{"id":…,"type":…,"payload":`.
pub(crate) fn append_operation_prefix(id: &str, kind: &str, out: &mut Vec<u8>) {
    append_operation_head(id, kind, out);
    out.extend_from_slice(br#","payload":"#);
}

/// Returns the length of that prefix, which is exact unless the id needs escapes.
pub(crate) fn operation_prefix_len(id: &str, kind: &str) -> usize {
    br#"{"id":"","type":"","payload":"#.len() + id.len() + kind.len()
}

fn append_operation_head(id: &str, kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"id":"#);
    astjson::print_string(id, out);
    out.extend_from_slice(br#","type":""#);
    out.extend_from_slice(kind.as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: impl Into<Bytes>) -> Result<ClientMessage, InvalidMessage> {
        ClientMessage::parse(Dialect::TransportWs, text.into())
    }

    #[test]
    fn a_subscribe_message_gives_the_operation_as_text() {
        let text = r#"{
            "id": "a\"1", "type": "subscribe",
            "payload": {
                "query": "{ a(b: \"c\") }", "operationName": null,
                "variables": { "x": [1.50, "\u00e9"] },
                "extensions": {}
            }
        }"#;
        let ClientMessage::Start { id, request } = parse(text).unwrap() else {
            panic!("a message of another type")
        };
        assert_eq!(id, "a\"1");
        let expected = Request {
            query: Some(r#"{ a(b: "c") }"#.into()),
            document_id: None,
            operation_name: None,
            variables: Some(r#"{"x":[1.50,"\u00e9"]}"#.into()),
            extensions: Some("{}".into()),
        };
        assert_eq!(request, expected);
    }

    #[test]
    fn the_reason_names_the_defect_of_a_message() {
        let cases = [
            ("", "not JSON"),
            ("{", "not JSON"),
            (r#"{"type":"ping"} x"#, "not JSON"),
            ("[]", "not a JSON object"),
            ("{}", "`type` must be a string"),
            (r#"{"type":1}"#, "`type` must be a string"),
            (r#"{"type":"start"}"#, "unknown message type `start`"),
            (r#"{"type":"next","id":"1","payload":{}}"#, "unknown message type `next`"),
            (r#"{"type":"connection_init","payload":[]}"#, "`payload` must be an object"),
            (r#"{"type":"ping","payload":"x"}"#, "`payload` must be an object"),
            (r#"{"type":"complete"}"#, "`id` must be a non-empty string"),
            (r#"{"type":"complete","id":""}"#, "`id` must be a non-empty string"),
            (r#"{"type":"complete","id":7}"#, "`id` must be a string"),
            (r#"{"type":"subscribe","id":"1"}"#, "`payload` must be an object"),
            (r#"{"type":"subscribe","id":"1","payload":{}}"#, "`query` must be a string"),
            (r#"{"type":"subscribe","id":"1","payload":{"query":{}}}"#, "`query` must be a string"),
            (
                r#"{"type":"subscribe","id":"1","payload":{"query":"{a}","variables":[]}}"#,
                "`variables` must be an object",
            ),
            (
                r#"{"type":"subscribe","id":"1","payload":{"query":"{a}","operationName":1}}"#,
                "`operationName` must be a string",
            ),
        ];
        for (text, reason) in cases {
            assert_eq!(parse(text).unwrap_err().0, reason, "{text}");
        }
    }

    #[test]
    fn the_predecessor_has_names_of_its_own_for_messages() {
        let cases = [
            ("", "not JSON"),
            ("[]", "not a JSON object"),
            (r#"{"type":"subscribe","id":"1"}"#, "unknown message type `subscribe`"),
            (r#"{"type":"start","payload":{}}"#, "`id` must be a non-empty string"),
            (r#"{"type":"start","id":"1"}"#, "`payload` must be an object"),
            (r#"{"type":"start","id":"1","payload":{}}"#, "`query` must be a string"),
            (r#"{"type":"stop"}"#, "`id` must be a non-empty string"),
            (r#"{"type":"connection_init","payload":1}"#, "`payload` must be an object"),
        ];
        for (text, reason) in cases {
            let invalid = ClientMessage::parse(Dialect::Ws, text.into()).unwrap_err();
            assert_eq!(invalid.0, reason, "{text}");
        }
    }

    #[test]
    fn debug_output_does_not_contain_secrets() {
        let text = r#"{"type":"subscribe","id":"1","payload":{"query":"{a}","variables":{"password":"hunter2"},"extensions":{"token":"hunter2"}}}"#;
        let ClientMessage::Start { request, .. } = parse(text).unwrap() else {
            panic!("a message of another type")
        };
        let expected = r#"Request { query: Some("{a}"), document_id: None, operation_name: None, variables: 22 bytes, extensions: 19 bytes }"#;
        assert_eq!(format!("{request:?}"), expected);
    }

    #[test]
    fn a_deeply_nested_message_is_invalid_and_does_no_harm() {
        let text = format!(r#"{{"type":"ping","payload":{}"#, r#"{"a":"#.repeat(500_000));
        assert!(parse(text).is_err());
    }

    #[test]
    fn a_persisted_operation_needs_no_query() {
        let text =
            r#"{"type":"subscribe","id":"1","payload":{"extensions":{"persistedQuery":{}}}}"#;
        let parsed = parse(text).unwrap();
        assert!(matches!(parsed, ClientMessage::Start { request, .. } if request.query.is_none()));
    }

    #[test]
    fn the_announced_prefix_length_is_exact_for_a_plain_id() {
        let mut prefix = Vec::new();
        append_operation_prefix("8f3c", "next", &mut prefix);
        assert_eq!(prefix, br#"{"id":"8f3c","type":"next","payload":"#);
        assert_eq!(prefix.len(), operation_prefix_len("8f3c", "next"));
    }
}
