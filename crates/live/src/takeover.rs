//! The parts of a connection that leaves HTTP/1.1: what a reactor needs to serve it.

use bytes::Bytes;
use clients::access_log::LoggedHandshake;
use http::Version;
use serving::prepared_request::PreparedRequest;
use tokio::sync::mpsc;
use wire::http1::Framing;
use wire::result_stream::StreamFormat;

use super::client_context::ClientContext;
use super::sse_single_connection::open_stream::OpenStream;
use super::websocket_settings::NegotiatedProtocol;

/// The protocol that a connection speaks after HTTP.
#[derive(Debug)]
pub enum LiveConnection {
    /// A WebSocket.
    WebSocket(AcceptedWebSocket),
    /// A response body with the results of one operation.
    ResultStream(Box<AcceptedStream>),
    /// A response body with the results of many operations.
    SingleConnection(Framing, Box<OpenStream>),
}

/// A WebSocket after its handshake.
#[derive(Debug)]
pub struct AcceptedWebSocket {
    /// The protocol that client and router have agreed on.
    pub negotiated: NegotiatedProtocol,
    /// The headers and the identity of the handshake.
    pub context: ClientContext,
    /// The handshake for the access log, if that is written.
    pub logged: Option<LoggedHandshake>,
}

/// A response after its head; its body will be results.
#[derive(Debug)]
pub struct AcceptedStream {
    pub(super) framing: Framing,
    pub(super) kind: StreamFormat,
    /// The only operation of the stream.
    pub(super) ready: PreparedRequest,
}

/// The body of a stream of results.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each takeover, and it is moved once"
)]
pub enum LiveBody {
    /// Pieces for the HTTP library, as they are made.
    Pieces(mpsc::Receiver<Bytes>),
    /// The connection itself, which a reactor takes over with this framing once the head is written.
    Connection(Framing, LiveConnection),
}

/// Returns the framing of a body without end over this version of HTTP; `None` over HTTP/2, which frames bodies itself.
pub(super) fn framing_of(version: Version) -> Option<Framing> {
    match version {
        Version::HTTP_11 => Some(Framing::Chunked),
        version if version < Version::HTTP_11 => Some(Framing::UntilClose),
        _ => None,
    }
}
