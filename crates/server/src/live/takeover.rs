//! What a connection becomes when it leaves HTTP/1.1.

use std::sync::Arc;

use execute::LocalFuture;
use wire::http1::Framing;
use wire::result_stream::Kind;

use super::client_context::ClientContext;
use super::sse_single_connection;
use super::websocket::NegotiatedProtocol;
use crate::http::answer::AnswerBody;
use crate::http::takeover::Takeover;
use crate::operation::Ready;
use crate::router::Router;

/// See the module.
#[derive(Debug)]
pub(crate) enum LiveConnection {
    /// A WebSocket.
    WebSocket(AcceptedWebSocket),
    /// A response body of results.
    ResultStream(AcceptedStream),
    /// A response body of the results of many operations.
    SingleConnection(Framing, Box<sse_single_connection::OpenStream>),
}

/// A WebSocket after its handshake.
#[derive(Debug)]
pub(crate) struct AcceptedWebSocket {
    /// Agreed on.
    pub(super) negotiated: NegotiatedProtocol,
    /// Who shook hands.
    pub(super) context: ClientContext,
}

/// A response body of results after its head.
#[derive(Debug)]
pub(crate) struct AcceptedStream {
    pub(super) framing: Framing,
    pub(super) kind: Kind,
    /// Its one operation.
    pub(super) ready: Ready,
}

impl LiveConnection {
    /// The body of the response after whose head the connection goes on as this.
    pub(super) fn into_body(self, router: &Arc<Router>) -> AnswerBody {
        let router = Arc::clone(router);
        let run = move |left| {
            Box::pin(async move { router.reactors.adopt(&router, self, left) })
                as LocalFuture<'static, ()>
        };
        AnswerBody::Leaving(Takeover::new(run))
    }
}
