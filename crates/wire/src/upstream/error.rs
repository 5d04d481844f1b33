//! The errors of upstream subscriptions, one type for each scope: a message, an operation, a connection.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;

use super::operation_id::OperationId;
use crate::websocket::handshake::HandshakeError;
use crate::websocket::{CloseCode, Closed};

/// A message of the server that breaks the protocol and ends nothing: the caller counts it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IgnoredMessage {
    /// The message names an id that the router never used.
    #[error("the subgraph sent a message for the unknown operation `{0}`")]
    UnknownId(Box<str>),
    /// The server ended the operation with an earlier message.
    #[error("the subgraph sent a message for operation {0} after it had ended the operation")]
    AfterEnd(OperationId),
    /// The server acknowledged the connection a second time.
    #[error("the subgraph sent `connection_ack` twice")]
    RepeatedAck,
}

/// The reason that one operation ended without `complete`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// The server could not execute the operation, or ended it with errors: a JSON list of GraphQL errors.
    #[error("the subgraph ended the operation with errors")]
    Errors(Bytes),
    /// A result is not a GraphQL response. The text names the defect.
    #[error("the subgraph sent an invalid result: {0}")]
    InvalidResult(Box<str>),
    /// A result is over the limit.
    #[error("the subgraph sent a result of more than {limit} bytes")]
    ResultTooBig {
        /// The limit in bytes.
        limit: usize,
    },
    /// The response ended, but the protocol requires an end of the operation before it.
    #[error("the subgraph's response ended before the operation")]
    EndedEarly,
    /// No byte arrived for the time that the settings allow.
    #[error("the subgraph was silent for {}", display_seconds(*.0))]
    Silent(Duration),
}

impl OperationError {
    /// Returns the message without text of the subgraph, which may repeat values of requests.
    pub fn without_subgraph_text(&self) -> Cow<'static, str> {
        match self {
            OperationError::InvalidResult(_) => "the subgraph sent an invalid result".into(),
            OperationError::Errors(_)
            | OperationError::ResultTooBig { .. }
            | OperationError::EndedEarly
            | OperationError::Silent(_) => self.to_string().into(),
        }
    }
}

/// The end of a connection and of all its operations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionEnd {
    /// The router closed the connection.
    #[error("the router closed the connection")]
    ClosedByRouter,
    /// The server's response to the upgrade request is not an upgrade.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The response to the upgrade request did not arrive in time.
    #[error("the subgraph did not respond to the WebSocket handshake within {}", display_seconds(*.0))]
    HandshakeTimeout(Duration),
    /// The server upgraded without one of the offered subprotocols.
    #[error(
        "the subgraph accepts none of the WebSocket subprotocols that the router offers: {offered}"
    )]
    SubprotocolRefused {
        /// The offered names, separated by commas.
        offered: Box<str>,
    },
    /// `connection_ack` did not arrive in time.
    #[error("the subgraph did not acknowledge the connection within {}", display_seconds(*.0))]
    AckTimeout(Duration),
    /// The server refused the `connection_init` with a message of its own.
    #[error("the subgraph refused the connection: {0}")]
    Refused(Box<str>),
    /// A message that cannot be attributed to an operation is invalid. The text names the defect.
    #[error("the subgraph sent an invalid message: {0}")]
    InvalidMessage(Box<str>),
    /// The server did not know the first `ping` of the subprotocol: it closed the connection or sent an invalid
    /// message, as the text says. A connection without such messages may last, see
    /// [`UpstreamClient::disable_ping_messages`].
    ///
    /// [`UpstreamClient::disable_ping_messages`]: super::UpstreamClient::disable_ping_messages
    #[error("the subgraph did not accept a `ping`: {0}")]
    PingRefused(Box<str>),
    /// The server broke RFC 6455 or a limit of the router, for example by a message that is not UTF-8, or by one that
    /// is too large and names no operation.
    #[error("the subgraph broke a rule of the WebSocket: {} ({})", .0.reason, .0.code)]
    BrokenRule(Closed),
    /// The server closed the connection.
    #[error("the subgraph closed the connection with code {}{}", .0.code, display_reason(&.0.reason))]
    ClosedByServer(Closed),
    /// The transport ended or the server stopped responding.
    #[error("the connection to the subgraph was lost{}", display_reason(&.0.reason))]
    Lost(Closed),
}

impl ConnectionEnd {
    /// Returns the message without text of the subgraph, which may repeat values of requests: of a close frame, only
    /// the code.
    pub fn without_subgraph_text(&self) -> Cow<'static, str> {
        match self {
            ConnectionEnd::Refused(_) => "the subgraph refused the connection".into(),
            ConnectionEnd::InvalidMessage(_) => "the subgraph sent an invalid message".into(),
            ConnectionEnd::ClosedByServer(closed) => {
                format!("the subgraph closed the connection with code {}", closed.code).into()
            }
            ConnectionEnd::PingRefused(_) => "the subgraph did not accept a `ping`".into(),
            // Their reasons are texts of the router.
            ConnectionEnd::BrokenRule(_)
            | ConnectionEnd::Lost(_)
            | ConnectionEnd::ClosedByRouter
            | ConnectionEnd::Handshake(_)
            | ConnectionEnd::HandshakeTimeout(_)
            | ConnectionEnd::SubprotocolRefused { .. }
            | ConnectionEnd::AckTimeout(_) => self.to_string().into(),
        }
    }

    /// True if a new connection with the same settings may succeed. The others need a change of the configuration, of
    /// the client's credentials or of the subgraph. Invalid and oversized messages count as transient, because one
    /// operation caused them and the others must go on; see [`ConnectionEnd::is_caused_by_message`].
    pub fn is_transient(&self) -> bool {
        match self {
            ConnectionEnd::HandshakeTimeout(_)
            | ConnectionEnd::AckTimeout(_)
            | ConnectionEnd::PingRefused(_)
            | ConnectionEnd::InvalidMessage(_)
            | ConnectionEnd::BrokenRule(_)
            | ConnectionEnd::Lost(_) => true,
            // A proxy responds like this while no server is behind it, or while there is too much load.
            ConnectionEnd::Handshake(HandshakeError::Refused(status)) => {
                matches!(status, 408 | 425 | 429 | 500..)
            }
            ConnectionEnd::ClosedByServer(closed) => is_transient_code(closed.code),
            ConnectionEnd::ClosedByRouter
            | ConnectionEnd::Handshake(_)
            | ConnectionEnd::SubprotocolRefused { .. }
            | ConnectionEnd::Refused(_) => false,
        }
    }

    /// True if a message of the server ended the connection. The operation that caused it may do so again on each
    /// connection, so results of others do not show that the next connection will last.
    pub fn is_caused_by_message(&self) -> bool {
        matches!(self, ConnectionEnd::InvalidMessage(_) | ConnectionEnd::BrokenRule(_))
    }
}

/// True unless the code blames the client. In the range of the registry these are the codes that the npm package
/// graphql-ws retries, and 1011: a server that failed may be restarted. In the private range, only the codes that the
/// GraphQL subprotocols define are known.
fn is_transient_code(code: CloseCode) -> bool {
    match code.0 {
        1000 | 1001 | 1005 | 1006 | 1011..=1014 => true,
        4400 | 4401 | 4403 | 4406 | 4409 | 4429 => false,
        3000.. => true,
        _ => false,
    }
}

fn display_seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

fn display_reason(reason: &str) -> String {
    match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websocket::ClosedBy;

    #[test]
    fn a_message_names_code_and_reason_and_the_error_knows_whether_to_retry() {
        let closed = |code, reason: &str| Closed {
            code: CloseCode(code),
            reason: reason.into(),
            by: ClosedBy::Peer,
        };
        let cases = [
            (
                ConnectionEnd::ClosedByServer(closed(4403, "Forbidden")),
                "the subgraph closed the connection with code 4403: Forbidden",
                false,
            ),
            (
                ConnectionEnd::ClosedByServer(closed(1012, "")),
                "the subgraph closed the connection with code 1012",
                true,
            ),
            (
                ConnectionEnd::BrokenRule(closed(1009, "message is too big")),
                "the subgraph broke a rule of the WebSocket: message is too big (1009)",
                true,
            ),
            (
                ConnectionEnd::AckTimeout(Duration::from_millis(2500)),
                "the subgraph did not acknowledge the connection within 2.5 s",
                true,
            ),
            (
                ConnectionEnd::PingRefused("it closed the connection with code 4400".into()),
                "the subgraph did not accept a `ping`: it closed the connection with code 4400",
                true,
            ),
            (
                HandshakeError::Refused(503).into(),
                "the server refused the upgrade with status 503",
                true,
            ),
            (
                HandshakeError::Refused(200).into(),
                "the server refused the upgrade with status 200",
                false,
            ),
        ];
        for (end, message, is_transient) in cases {
            assert_eq!((end.to_string().as_str(), end.is_transient()), (message, is_transient));
        }
    }

    #[test]
    fn the_text_for_warnings_has_no_text_of_the_subgraph() {
        let closed = Closed { code: CloseCode(4403), reason: "s3cret".into(), by: ClosedBy::Peer };
        for (end, expected) in [
            (
                ConnectionEnd::ClosedByServer(closed),
                "the subgraph closed the connection with code 4403",
            ),
            (ConnectionEnd::PingRefused("s3cret".into()), "the subgraph did not accept a `ping`"),
            (ConnectionEnd::Refused("s3cret".into()), "the subgraph refused the connection"),
            (
                ConnectionEnd::InvalidMessage("unknown message type `s3cret`".into()),
                "the subgraph sent an invalid message",
            ),
            (HandshakeError::Refused(503).into(), "the server refused the upgrade with status 503"),
        ] {
            assert_eq!(end.without_subgraph_text(), expected);
        }
        let invalid = OperationError::InvalidResult("unknown message type `s3cret`".into());
        assert_eq!(invalid.without_subgraph_text(), "the subgraph sent an invalid result");
        let early = OperationError::EndedEarly;
        assert_eq!(early.without_subgraph_text(), early.to_string());
    }
}
