//! The messages of a server over both WebSocket subprotocols. Only the envelope is read; the payload of a result is a
//! slice of the message.

use std::borrow::Cow;

use astjson::{Document, outline_members};
use bytes::Bytes;

use crate::messages::{Dialect, InvalidMessage};

/// A message of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ServerMessage {
    Ack {
        payload: Option<Bytes>,
    },
    /// `graphql-transport-ws` only.
    Ping {
        payload: Option<Bytes>,
    },
    /// `graphql-transport-ws` only.
    Pong,
    /// `graphql-ws` only: `ka`.
    KeepAlive,
    /// `graphql-ws` only: `connection_error`, or an `error` without an operation. Contains the server's text.
    Refused(Box<str>),
    /// A result. An invalid payload concerns only its operation.
    Next {
        id: Box<str>,
        payload: Result<Bytes, InvalidMessage>,
    },
    /// Contains a JSON list of GraphQL errors.
    Error {
        id: Box<str>,
        errors: Result<Bytes, InvalidMessage>,
    },
    Complete {
        id: Box<str>,
    },
}

/// The members of a message that the protocols define, each as text; null counts as absent.
#[derive(Default)]
struct Envelope {
    kind: Option<Bytes>,
    id: Option<Bytes>,
    payload: Option<Bytes>,
}

impl ServerMessage {
    // hot path: once a result. Nothing is allocated except for the id.
    pub(crate) fn parse(dialect: Dialect, text: &Bytes) -> Result<ServerMessage, InvalidMessage> {
        let envelope = Envelope::parse(text)?;
        let kind = envelope.kind.as_ref().and_then(string);
        let kind = kind.ok_or(InvalidMessage("`type` must be a string".into()))?;
        let is_legacy = dialect == Dialect::Ws;
        Ok(match &*kind {
            kind if kind == dialect.result() => {
                ServerMessage::Next { id: envelope.id()?, payload: envelope.result() }
            }
            "connection_ack" => ServerMessage::Ack { payload: envelope.payload },
            "complete" => ServerMessage::Complete { id: envelope.id()? },
            "error" if is_legacy && envelope.id.is_none() => {
                ServerMessage::Refused(envelope.message())
            }
            "error" => {
                ServerMessage::Error { id: envelope.id()?, errors: envelope.errors(dialect) }
            }
            "ka" if is_legacy => ServerMessage::KeepAlive,
            "connection_error" if is_legacy => ServerMessage::Refused(envelope.message()),
            "ping" if !is_legacy => ServerMessage::Ping { payload: envelope.payload },
            "pong" if !is_legacy => ServerMessage::Pong,
            _ => return Err(InvalidMessage(format!("unknown message type `{kind}`").into())),
        })
    }
}

/// Returns the id in a message that cannot be read as a whole, because it is invalid or only its head was kept: the one
/// `id` among the members before the defect. `None` without one, or with several.
pub(crate) fn find_id(text: &Bytes) -> Option<Box<str>> {
    let valid = match std::str::from_utf8(text) {
        Ok(_) => text.len(),
        // A head may end within a character.
        Err(error) => error.valid_up_to(),
    };
    let mut ids = Vec::new();
    // Members before the defect are reported.
    let _ = outline_members(&text.slice(..valid), |key, value| {
        if key == "id" {
            ids.push(value);
        }
    });
    let [id] = &ids[..] else { return None };
    string(id).filter(|id| !id.is_empty()).map(Box::from)
}

impl Envelope {
    /// Reads the members. One that occurs twice is refused: readers differ in which of the two counts.
    fn parse(text: &Bytes) -> Result<Envelope, InvalidMessage> {
        let mut envelope = Envelope::default();
        let mut repeated = None;
        let kind = outline_members(text, |key, value| {
            let (name, member) = match &*key {
                "type" => ("type", &mut envelope.kind),
                "id" => ("id", &mut envelope.id),
                "payload" => ("payload", &mut envelope.payload),
                _ => return,
            };
            if member.replace(value).is_some() {
                repeated = Some(name);
            }
        });
        match kind {
            Err(_) => return Err(InvalidMessage("not JSON".into())),
            Ok(astjson::Kind::Object) => {}
            Ok(_) => return Err(InvalidMessage("not a JSON object".into())),
        }
        if let Some(name) = repeated {
            return Err(InvalidMessage(format!("`{name}` occurs twice").into()));
        }
        let Envelope { kind, id, payload } = envelope;
        let present = |member: Option<Bytes>| member.filter(|text| *text != "null");
        Ok(Envelope { kind, id: present(id), payload: present(payload) })
    }

    fn id(&self) -> Result<Box<str>, InvalidMessage> {
        let id = self.id.as_ref().and_then(string).filter(|id| !id.is_empty());
        id.map(Box::from).ok_or(InvalidMessage("`id` must be a non-empty string".into()))
    }

    fn result(&self) -> Result<Bytes, InvalidMessage> {
        let payload = self.payload.clone().filter(|payload| payload.starts_with(b"{"));
        payload.ok_or(InvalidMessage("`payload` must be an object".into()))
    }

    /// Returns the errors as a list. Servers of `graphql-ws` send one error, a list, or one error with the list in its
    /// `errors` member.
    fn errors(&self, dialect: Dialect) -> Result<Bytes, InvalidMessage> {
        match &self.payload {
            Some(list) if list.starts_with(b"[") => Ok(list.clone()),
            Some(error) if dialect == Dialect::Ws && error.starts_with(b"{") => {
                let mut list = None;
                // The payload was checked as a part of the message.
                let _ = outline_members(error, |key, value| {
                    if key == "errors" && is_filled_list(&value) {
                        list = Some(value);
                    }
                });
                Ok(list.unwrap_or_else(|| [b"[", &error[..], b"]"].concat().into()))
            }
            _ => Err(InvalidMessage("`payload` must be a list of errors".into())),
        }
    }

    /// Returns the text of a connection error.
    fn message(&self) -> Box<str> {
        let mut message = None;
        if let Some(payload) = &self.payload {
            // The payload was checked as a part of the message.
            let _ = outline_members(payload, |key, value| {
                if key == "message" {
                    message = string(&value).map(Box::from);
                }
            });
            message = message.or_else(|| string(payload).map(Box::from));
        }
        message.unwrap_or_else(|| "no reason given".into())
    }
}

/// True if a JSON text is a list with elements.
pub(crate) fn is_filled_list(text: &[u8]) -> bool {
    text.strip_prefix(b"[").is_some_and(|rest| !rest.trim_ascii_start().starts_with(b"]"))
}

/// Returns the value of a JSON text that is a string.
pub(crate) fn string(text: &Bytes) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if memchr::memchr(b'\\', inner).is_none() {
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    let mut document = Document::new();
    let node = document.parse(text.clone()).ok()?;
    Some(Cow::Owned(document.as_str(node)?.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(dialect: Dialect, text: &'static str) -> Result<ServerMessage, String> {
        ServerMessage::parse(dialect, &Bytes::from_static(text.as_bytes()))
            .map_err(|invalid| invalid.0.into())
    }

    #[test]
    fn a_result_is_a_slice_of_its_message() {
        let text = Bytes::from_static(
            br#"{ "payload": {"data":{"id":"x","type":"error"}}, "id":"\u0031", "type":"next" }"#,
        );
        let parsed = ServerMessage::parse(Dialect::TransportWs, &text).unwrap();
        let ServerMessage::Next { id, payload: Ok(payload) } = parsed else {
            panic!("another message")
        };
        assert_eq!((&*id, &payload[..]), ("1", &br#"{"data":{"id":"x","type":"error"}}"#[..]));
        assert!(text.as_ptr_range().contains(&payload.as_ptr()));
    }

    #[test]
    fn the_reason_names_the_defect_of_a_servers_message() {
        let cases = [
            ("{", "not JSON"),
            ("[]", "not a JSON object"),
            ("{}", "`type` must be a string"),
            (r#"{"type":"ka"}"#, "unknown message type `ka`"),
            (r#"{"type":"data","id":"1"}"#, "unknown message type `data`"),
            (r#"{"type":"next","payload":{}}"#, "`id` must be a non-empty string"),
            (r#"{"type":"next","id":1,"payload":{}}"#, "`id` must be a non-empty string"),
            (r#"{"type":"next","id":"1","id":"2","payload":{}}"#, "`id` occurs twice"),
            (r#"{"type":"error","payload":[]}"#, "`id` must be a non-empty string"),
        ];
        for (text, reason) in cases {
            assert_eq!(parse(Dialect::TransportWs, text), Err(reason.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_id_before_the_defect_of_a_message_is_found() {
        let cases = [
            (r#"{"type":"next","id":"1","payload":{"a":"#, Some("1")),
            (r#"{"payload":{"id":"2"},"id":"\u0031" ?"#, Some("1")),
            (r#"{"id":"1","type":"hello"}"#, Some("1")),
            (r#"{"id":"1"#, None),
            (r#"{"payload":{"id":"1"#, None),
            (r#"{"id":"1","id":"2","payload":{}}"#, None),
            (r#"{"id":1,"type":"next"}"#, None),
            (r#"{"id":"","type":"next"}"#, None),
            (r#"["id","1"]"#, None),
            ("", None),
        ];
        for (text, id) in cases {
            assert_eq!(find_id(&Bytes::from_static(text.as_bytes())).as_deref(), id, "{text}");
        }
        let cut = Bytes::from_static(b"{\"id\":\"1\",\"payload\":\"\xc3");
        assert_eq!(find_id(&cut).as_deref(), Some("1"));
    }

    #[test]
    fn an_invalid_payload_belongs_to_its_operation() {
        let text = r#"{"type":"next","id":"1","payload":[]}"#;
        let payload = Err(InvalidMessage("`payload` must be an object".into()));
        let expected = ServerMessage::Next { id: "1".into(), payload };
        assert_eq!(parse(Dialect::TransportWs, text), Ok(expected));
    }

    #[test]
    fn all_forms_of_errors_of_the_predecessor_become_a_list() {
        let cases = [
            (r#"{"type":"error","id":"1","payload":{"message":"no"}}"#, r#"[{"message":"no"}]"#),
            (r#"{"type":"error","id":"1","payload":[{"message":"no"}]}"#, r#"[{"message":"no"}]"#),
            (
                r#"{"type":"error","id":"1","payload":{"message":"a","errors":[{"message":"b"}]}}"#,
                r#"[{"message":"b"}]"#,
            ),
            (r#"{"type":"error","id":"1","payload":{"errors":[ ]}}"#, r#"[{"errors":[ ]}]"#),
        ];
        for (text, list) in cases {
            let expected = ServerMessage::Error { id: "1".into(), errors: Ok(list.into()) };
            assert_eq!(parse(Dialect::Ws, text), Ok(expected), "{text}");
        }
        let refused = |text: &str| Ok(ServerMessage::Refused(text.into()));
        assert_eq!(
            parse(Dialect::Ws, r#"{"type":"connection_error","payload":{"message":"\"no\""}}"#),
            refused("\"no\"")
        );
        assert_eq!(
            parse(Dialect::Ws, r#"{"type":"connection_error"}"#),
            refused("no reason given")
        );
        assert_eq!(parse(Dialect::Ws, r#"{"type":"error","payload":"bad"}"#), refused("bad"));
    }
}
