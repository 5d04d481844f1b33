//! A response body in pieces. The HTTP library takes a piece when the client has read the earlier ones, so each piece
//! that is taken shows that the client reads.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use clients::byte_budget::ByteAccount;
use clients::served_connections::ServedRequest;
use http_body::{Body, Frame, SizeHint};

use super::response::ResponseBody;

/// A response body that is passed to the HTTP library in pieces.
#[derive(Debug)]
pub(super) struct PacedBody {
    body: ResponseBody,
    account: Arc<ByteAccount>,
    piece_bytes: usize,
    /// The request, which is in progress until its response has been sent.
    _request: Option<ServedRequest>,
}

impl PacedBody {
    /// Returns a body that notes in `account`, to which it is charged, that the client reads. No piece is larger than
    /// `piece_bytes`.
    pub(super) fn new(body: ResponseBody, account: &Arc<ByteAccount>, piece_bytes: usize) -> Self {
        Self { body, account: Arc::clone(account), piece_bytes, _request: None }
    }

    /// Keeps a request in progress until the body has been sent.
    pub(super) fn of_request(self, request: ServedRequest) -> Self {
        Self { _request: Some(request), ..self }
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
            ResponseBody::Whole(bytes) if bytes.len() > this.piece_bytes => {
                this.account.note_progress();
                Poll::Ready(Some(Ok(Frame::data(bytes.split_to(this.piece_bytes)))))
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
