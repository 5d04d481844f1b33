//! What a connection becomes when it leaves HTTP/1.1.

use std::sync::Arc;

use execute::LocalFuture;
#[cfg(target_os = "linux")]
use wire::http1::Framing;
#[cfg(target_os = "linux")]
use wire::result_stream::Kind;

use super::caller::Caller;
#[cfg(target_os = "linux")]
use super::single;
use super::websocket::{self, Spoken};
use crate::http::answer::AnswerBody;
use crate::http::takeover::{Left, Takeover};
#[cfg(target_os = "linux")]
use crate::operation::Ready;
use crate::router::Router;

/// See the module.
#[derive(Debug)]
pub(crate) enum Leaving {
    /// A WebSocket.
    WebSocket(WebSocket),
    /// A response body of results.
    #[cfg(target_os = "linux")]
    ResultStream(Streamed),
    /// A response body of the results of many operations.
    #[cfg(target_os = "linux")]
    SingleConnection(Framing, Box<single::Opened>),
}

/// A WebSocket after its handshake.
#[derive(Debug)]
pub(crate) struct WebSocket {
    /// Agreed on.
    pub(super) spoken: Spoken,
    /// Who shook hands.
    pub(super) caller: Caller,
}

/// A response body of results after its head.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Streamed {
    pub(super) framing: Framing,
    pub(super) kind: Kind,
    /// Its one operation.
    pub(super) ready: Ready,
}

impl Leaving {
    /// The body of the response after whose head the connection goes on as this.
    pub(super) fn into_body(self, router: &Arc<Router>) -> AnswerBody {
        let router = Arc::clone(router);
        let run = move |left| {
            Box::pin(async move { self.go(&router, left).await }) as LocalFuture<'static, ()>
        };
        AnswerBody::Leaving(Takeover::new(run))
    }

    /// Goes on. Returns at once where a reactor takes over, at the end where none does.
    async fn go(self, router: &Arc<Router>, left: Left) {
        #[cfg(target_os = "linux")]
        if router.reactors.are_there() {
            return router.reactors.adopt(router, self, left);
        }
        let Left { stream, early, permit } = left;
        match self {
            Self::WebSocket(WebSocket { spoken, caller }) => {
                websocket::run(router, stream, early, spoken, caller, permit.client()).await;
            }
            // Does not leave where there are none.
            #[cfg(target_os = "linux")]
            Self::ResultStream(_) | Self::SingleConnection(..) => {}
        }
    }
}
