//! What clients say, and the errors in what servers say.

use std::borrow::Cow;

use astjson::Document;
use bytes::Bytes;

use crate::graphql_transport_ws::Request;
use crate::graphql_transport_ws::envelope::{Invalid, Object, parse_with, unknown};

/// What a client says.
#[derive(Debug)]
pub(crate) enum ClientMessage {
    ConnectionInit { payload: Option<Bytes> },
    Start { id: String, request: Request },
    Stop { id: String },
    ConnectionTerminate,
}

impl ClientMessage {
    pub(crate) fn parse(text: Bytes) -> Result<ClientMessage, Invalid> {
        parse_with(text, |message: Object<'_>| {
            let kind = message.kind()?;
            Ok(match &*kind {
                "connection_init" => {
                    ClientMessage::ConnectionInit { payload: message.optional_object("payload")? }
                }
                "start" => {
                    let id = message.id()?;
                    let payload = message.member("payload", astjson::Kind::Object, "an object")?;
                    ClientMessage::Start { id, request: payload.request()? }
                }
                "stop" => ClientMessage::Stop { id: message.id()? },
                "connection_terminate" => ClientMessage::ConnectionTerminate,
                _ => return Err(unknown(&kind)),
            })
        })
    }
}

/// `{"message":…}`.
pub(super) fn error_payload(message: &str) -> Vec<u8> {
    let mut payload = br#"{"message":"#.to_vec();
    astjson::print_string(message, &mut payload);
    payload.push(b'}');
    payload
}

/// The payload of an `error` message out of a JSON list of GraphQL errors. The protocol has room for
/// one error, an object; the list is beside its message, where the npm client looks for it.
pub(super) fn errors_payload(errors: &[u8]) -> Vec<u8> {
    let mut payload = error_payload(&first_message(errors));
    payload.pop();
    payload.extend_from_slice(br#","errors":"#);
    payload.extend_from_slice(errors);
    payload.push(b'}');
    payload
}

fn first_message(errors: &[u8]) -> String {
    let mut document = Document::new();
    let message = document.parse(Bytes::copy_from_slice(errors)).ok().and_then(|list| {
        let first = document.elements(list).next()?;
        document.as_str(document.get(first, "message")?).map(Cow::into_owned)
    });
    message.unwrap_or_else(|| "the operation failed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_says_what_is_wrong_with_a_message() {
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
            let invalid = ClientMessage::parse(text.into()).unwrap_err();
            assert_eq!(invalid.0, reason, "{text}");
        }
    }

    #[test]
    fn the_first_error_gives_the_message_and_all_are_beside_it() {
        let text = |errors: &str| String::from_utf8(errors_payload(errors.as_bytes())).unwrap();
        assert_eq!(
            text(r#"[{"message":"a \"b\""},{"message":"c"}]"#),
            r#"{"message":"a \"b\"","errors":[{"message":"a \"b\""},{"message":"c"}]}"#
        );
        assert_eq!(text("[]"), r#"{"message":"the operation failed","errors":[]}"#);
    }
}
