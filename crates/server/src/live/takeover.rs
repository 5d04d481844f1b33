//! The takeover of connections that leave HTTP/1.1, by a reactor.

use std::sync::Arc;

use execute::LocalFuture;
use wire::http1::Framing;
use wire::result_stream::StreamFormat;

use super::client_context::ClientContext;
use super::negotiated_protocol::NegotiatedProtocol;
use super::sse_single_connection::open_stream::OpenStream;
use crate::http::response::ResponseBody;
use crate::http::takeover::Takeover;
use crate::prepared_request::PreparedRequest;
use crate::router::Router;

/// The protocol that a connection speaks after HTTP.
#[derive(Debug)]
pub(crate) enum LiveConnection {
    /// A WebSocket.
    WebSocket(AcceptedWebSocket),
    /// A response body with the results of one operation.
    ResultStream(AcceptedStream),
    /// A response body with the results of many operations.
    SingleConnection(Framing, Box<OpenStream>),
}

/// A WebSocket after its handshake.
#[derive(Debug)]
pub(crate) struct AcceptedWebSocket {
    /// The protocol that client and router have agreed on.
    pub(super) negotiated: NegotiatedProtocol,
    /// The headers and the identity of the handshake.
    pub(super) context: ClientContext,
}

/// A response after its head; its body will be results.
#[derive(Debug)]
pub(crate) struct AcceptedStream {
    pub(super) framing: Framing,
    pub(super) kind: StreamFormat,
    /// The only operation of the stream.
    pub(super) ready: PreparedRequest,
}

impl LiveConnection {
    /// Returns a response body that hands the connection to a reactor once the response's head is written.
    pub(super) fn into_body(self, router: &Arc<Router>) -> ResponseBody {
        let router = Arc::clone(router);
        let run = move |left| {
            Box::pin(async move { router.reactors.adopt(&router, self, left) })
                as LocalFuture<'static, ()>
        };
        ResponseBody::Takeover(Takeover::new(run))
    }
}
