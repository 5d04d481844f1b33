//! What the requests of one connection have in common: the client, the bytes of responses that it has not read, and how many
//! requests are served before other connections get a turn.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use execute::ClientKey;
use http_body::{Body, Frame, SizeHint};

use super::answer::AnswerBody;
use crate::byte_budget::ByteAccount;
use crate::connections::ConnectionPermit;
use crate::router::Router;

/// Requests of one connection that are served in one turn. A client that pipelines sends the next one with the first.
const REQUESTS_PER_TURN: u32 = 2;

/// A response goes to the HTTP library in pieces of this size over HTTP/1.1. Each piece that is taken shows that the client
/// reads.
const PIECE_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    client: ClientKey,
    account: Arc<ByteAccount>,
    /// Requests that began in this turn of the event loop.
    begun: Cell<u32>,
}

impl ClientConnection {
    /// Of the connection that has this permit.
    pub(crate) fn new(router: &Router, permit: &ConnectionPermit) -> Self {
        let client = permit.client();
        let account = router.response_bytes.open(client, router.config.http.response_queue_bytes);
        Self { client, account, begun: Cell::new(0) }
    }

    /// The client by its address.
    pub(crate) fn client(&self) -> ClientKey {
        self.client
    }

    /// The bytes of responses that were not read.
    pub(crate) fn account(&self) -> &Arc<ByteAccount> {
        &self.account
    }

    /// Begins a turn: the event loop has served others since the last one.
    pub(crate) fn begin_turn(&self) {
        self.begun.set(0);
    }

    /// Waits until a request of this connection may begin: after a few in one turn others go first, and while the client
    /// leaves too much unread nothing begins.
    pub(crate) async fn admit(&self) {
        if self.begun.get() >= REQUESTS_PER_TURN {
            tokio::task::yield_now().await;
        }
        self.begun.set(self.begun.get() + 1);
        if !self.account.has_room() {
            self.account.room().await;
        }
    }

    /// A body that counts for the connection until it has been sent.
    pub(crate) fn charge(&self, body: AnswerBody) -> AnswerBody {
        match body {
            AnswerBody::Whole(bytes) => AnswerBody::Whole(self.account.charged(bytes)),
            body => body,
        }
    }
}

/// A body over HTTP/1.1, in pieces.
#[derive(Debug)]
pub(crate) struct PacedBody {
    body: AnswerBody,
    account: Arc<ByteAccount>,
}

impl PacedBody {
    pub(crate) fn new(body: AnswerBody, connection: &ClientConnection) -> Self {
        Self { body: connection.charge(body), account: Arc::clone(&connection.account) }
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        match &mut this.body {
            AnswerBody::Whole(bytes) if bytes.len() > PIECE_BYTES => {
                this.account.note_progress();
                Poll::Ready(Some(Ok(Frame::data(bytes.split_to(PIECE_BYTES)))))
            }
            body => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
