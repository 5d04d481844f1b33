//! The JSON around operations and results: reading messages and writing them.
//!
//! Only the envelope is understood. Variables, extensions and results are passed on as text.

use std::borrow::Cow;
use std::fmt;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;

use crate::Chunks;

/// Deepest nesting of a message. Results are the deepest: an operation has at most 100 levels by
/// default, each with a list at most now and then, and the envelope adds two.
const MESSAGE_DEPTH_MAX: u32 = 256;

/// An operation that a client wants executed, as far as the transport understands it.
///
/// `Debug` shows the size of variables and extensions only: they hold passwords and tokens, and a
/// log line is easily written.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// The GraphQL document. Absent only where `extensions` name a persisted one.
    pub query: Option<Box<str>>,
    /// Which operation of the document.
    pub operation_name: Option<Box<str>>,
    /// A JSON object.
    pub variables: Option<Bytes>,
    /// A JSON object.
    pub extensions: Option<Bytes>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("query", &self.query)
            .field("operation_name", &self.operation_name)
            .field("variables", &Hidden(&self.variables))
            .field("extensions", &Hidden(&self.extensions))
            .finish()
    }
}

/// Shows that there is text and how much.
pub(crate) struct Hidden<'a>(pub(crate) &'a Option<Bytes>);

impl fmt::Debug for Hidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(text) => write!(f, "{} bytes", text.len()),
            None => f.write_str("none"),
        }
    }
}

/// What a client says.
#[derive(Debug)]
pub(crate) enum ClientMessage {
    ConnectionInit { payload: Option<Bytes> },
    Ping { payload: Option<Bytes> },
    Pong,
    Subscribe { id: String, request: Request },
    Complete { id: String },
}

/// What a server says.
#[derive(Debug)]
pub(crate) enum ServerMessage {
    ConnectionAck { payload: Option<Bytes> },
    Ping { payload: Option<Bytes> },
    Pong,
    Next { id: String, payload: Bytes },
    Error { id: String, errors: Bytes },
    Complete { id: String },
}

/// What is wrong with a message; becomes the reason of a close frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invalid(pub(crate) Cow<'static, str>);

impl ClientMessage {
    pub(crate) fn parse(text: Bytes) -> Result<ClientMessage, Invalid> {
        let mut document = Document::with_depth_limit(MESSAGE_DEPTH_MAX);
        let message = Object::parse(&mut document, text)?;
        let kind = message.kind()?;
        Ok(match &*kind {
            "connection_init" => {
                ClientMessage::ConnectionInit { payload: message.optional_object("payload")? }
            }
            "ping" => ClientMessage::Ping { payload: message.optional_object("payload")? },
            "pong" => {
                message.optional_object("payload")?;
                ClientMessage::Pong
            }
            "subscribe" => ClientMessage::Subscribe {
                id: message.id()?,
                request: message.member("payload", Kind::Object, "an object")?.request()?,
            },
            "complete" => ClientMessage::Complete { id: message.id()? },
            _ => return Err(unknown(&kind)),
        })
    }
}

impl ServerMessage {
    pub(crate) fn parse(text: Bytes) -> Result<ServerMessage, Invalid> {
        let mut document = Document::with_depth_limit(MESSAGE_DEPTH_MAX);
        let message = Object::parse(&mut document, text)?;
        let kind = message.kind()?;
        Ok(match &*kind {
            "connection_ack" => {
                ServerMessage::ConnectionAck { payload: message.optional_object("payload")? }
            }
            "ping" => ServerMessage::Ping { payload: message.optional_object("payload")? },
            "pong" => {
                message.optional_object("payload")?;
                ServerMessage::Pong
            }
            "next" => ServerMessage::Next {
                id: message.id()?,
                payload: message.member("payload", Kind::Object, "an object")?.text(),
            },
            "error" => ServerMessage::Error {
                id: message.id()?,
                errors: message.member("payload", Kind::Array, "a list of errors")?.text(),
            },
            "complete" => ServerMessage::Complete { id: message.id()? },
            _ => return Err(unknown(&kind)),
        })
    }
}

pub(crate) fn unknown(kind: &str) -> Invalid {
    Invalid(format!("unknown message type `{kind}`").into())
}

fn must_be(name: &str, what: &str) -> Invalid {
    Invalid(format!("`{name}` must be {what}").into())
}

/// The error of an operation that is one too many, a JSON object.
pub(crate) fn too_many(most: usize) -> String {
    format!(
        r#"{{"message":"This connection has {most} operations in progress, the most it may have: complete one first.","extensions":{{"code":"TOO_MANY_SUBSCRIPTIONS"}}}}"#
    )
}

/// Parses a message, which is a JSON object, into a document that is lent for it.
pub(crate) fn parse_with<T>(
    text: Bytes,
    read: impl FnOnce(Object<'_>) -> Result<T, Invalid>,
) -> Result<T, Invalid> {
    let mut document = Document::with_depth_limit(MESSAGE_DEPTH_MAX);
    read(Object::parse(&mut document, text)?)
}

/// A value in a message; an object but where `text` alone is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Object<'d> {
    document: &'d Document,
    node: NodeId,
}

impl<'d> Object<'d> {
    fn parse(document: &'d mut Document, text: Bytes) -> Result<Object<'d>, Invalid> {
        let node = document.parse(text).map_err(|_| Invalid("not JSON".into()))?;
        match document.kind(node) {
            Kind::Object => Ok(Object { document, node }),
            _ => Err(Invalid("not a JSON object".into())),
        }
    }

    pub(crate) fn kind(self) -> Result<Cow<'d, str>, Invalid> {
        self.optional_string("type")?.ok_or_else(|| must_be("type", "a string"))
    }

    pub(crate) fn id(self) -> Result<String, Invalid> {
        match self.optional_string("id")? {
            Some(id) if !id.is_empty() => Ok(id.into_owned()),
            _ => Err(must_be("id", "a non-empty string")),
        }
    }

    pub(crate) fn request(self) -> Result<Request, Invalid> {
        let query = self.optional_string("query")?.map(Box::from);
        let operation_name = self.optional_string("operationName")?.map(Box::from);
        let variables = self.optional_object("variables")?;
        let extensions = self.optional_object("extensions")?;
        if query.is_none() && extensions.is_none() {
            return Err(must_be("query", "a string"));
        }
        Ok(Request { query, operation_name, variables, extensions })
    }

    /// A member that is not null, which is the same as absent everywhere in the protocol.
    fn get(self, name: &str) -> Option<NodeId> {
        self.document.get(self.node, name).filter(|node| !self.document.is_null(*node))
    }

    fn optional_string(self, name: &str) -> Result<Option<Cow<'d, str>>, Invalid> {
        self.get(name)
            .map(|node| self.document.as_str(node).ok_or_else(|| must_be(name, "a string")))
            .transpose()
    }

    pub(crate) fn optional_object(self, name: &str) -> Result<Option<Bytes>, Invalid> {
        match self.get(name) {
            None => Ok(None),
            Some(_) => self.member(name, Kind::Object, "an object").map(|it| Some(it.text())),
        }
    }

    pub(crate) fn member(self, name: &str, kind: Kind, what: &str) -> Result<Object<'d>, Invalid> {
        match self.get(name) {
            Some(node) if self.document.kind(node) == kind => Ok(Object { node, ..self }),
            _ => Err(must_be(name, what)),
        }
    }

    fn text(self) -> Bytes {
        let mut text = Vec::new();
        self.document.print(self.node, &mut text);
        text.into()
    }
}

/// `{"type":…,"payload":…}`.
pub(crate) fn message(kind: &str, payload: Option<Bytes>) -> Chunks {
    match payload {
        None => Chunks::whole(format!("{{\"type\":\"{kind}\"}}")),
        Some(body) => {
            let head = format!("{{\"type\":\"{kind}\",\"payload\":").into();
            Chunks { head, body, tail: b"}" }
        }
    }
}

/// `{"id":…,"type":…,"payload":…}`.
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

/// `{"id":…,"type":…,"payload":`.
pub(crate) fn append_operation_prefix(id: &str, kind: &str, out: &mut Vec<u8>) {
    append_operation_head(id, kind, out);
    out.extend_from_slice(br#","payload":"#);
}

/// About how long that is: exact unless the id needs escapes.
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

    fn invalid(text: &'static str) -> String {
        ClientMessage::parse(text.into()).unwrap_err().0.into_owned()
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
        let ClientMessage::Subscribe { id, request } = ClientMessage::parse(text.into()).unwrap()
        else {
            panic!("another message")
        };
        assert_eq!(id, "a\"1");
        let expected = Request {
            query: Some(r#"{ a(b: "c") }"#.into()),
            operation_name: None,
            variables: Some(r#"{"x":[1.50,"\u00e9"]}"#.into()),
            extensions: Some("{}".into()),
        };
        assert_eq!(request, expected);
    }

    #[test]
    fn the_reason_says_what_is_wrong_with_a_message() {
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
            assert_eq!(invalid(text), reason, "{text}");
        }
    }

    #[test]
    fn secrets_are_not_in_what_debug_shows() {
        let text = r#"{"type":"subscribe","id":"1","payload":{"query":"{a}","variables":{"password":"hunter2"},"extensions":{"token":"hunter2"}}}"#;
        let ClientMessage::Subscribe { request, .. } = ClientMessage::parse(text.into()).unwrap()
        else {
            panic!("another message")
        };
        let expected = r#"Request { query: Some("{a}"), operation_name: None, variables: 22 bytes, extensions: 19 bytes }"#;
        assert_eq!(format!("{request:?}"), expected);
    }

    #[test]
    fn a_message_nested_beyond_reason_is_invalid_and_nothing_worse() {
        let text = format!(r#"{{"type":"ping","payload":{}"#, r#"{"a":"#.repeat(500_000));
        assert!(ClientMessage::parse(text.into()).is_err());
    }

    #[test]
    fn a_persisted_operation_needs_no_query() {
        let text =
            r#"{"type":"subscribe","id":"1","payload":{"extensions":{"persistedQuery":{}}}}"#;
        let parsed = ClientMessage::parse(text.into()).unwrap();
        assert!(
            matches!(parsed, ClientMessage::Subscribe { request, .. } if request.query.is_none())
        );
    }

    #[test]
    fn the_announced_prefix_length_is_exact_for_a_plain_id() {
        let mut prefix = Vec::new();
        append_operation_prefix("8f3c", "next", &mut prefix);
        assert_eq!(prefix, br#"{"id":"8f3c","type":"next","payload":"#);
        assert_eq!(prefix.len(), operation_prefix_len("8f3c", "next"));
    }
}
