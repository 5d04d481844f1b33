//! The body of a request to a subgraph: JSON text, or a form with files that comes in pieces while the client sends
//! its files.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use execute::{FetchError, FormAborted, FormBody, SubgraphRequest};
use hyper::body::{Body, Frame, SizeHint};

/// A body. Clones share its memory.
#[derive(Clone, Debug)]
pub(crate) enum RequestBody {
    /// A body that is there.
    Whole(WholeBody),
    /// A form. Each piece is taken once, when it comes.
    Streamed(FormBody),
}

/// A body that is there: mostly one piece, several if it is a form that had to be signed.
#[derive(Clone, Debug, Default)]
pub(crate) struct WholeBody {
    first: Bytes,
    /// The further pieces in reverse order; without files there are none, and no memory.
    rest: Vec<Bytes>,
}

impl RequestBody {
    /// Returns the body of a request. If `is_needed_whole`, a form is received first.
    ///
    /// # Errors
    /// The client does not send the files of a form that is needed whole.
    pub(crate) async fn of(
        request: &SubgraphRequest<'_>,
        is_needed_whole: bool,
    ) -> Result<Self, FetchError> {
        match &request.form {
            None => Ok(request.body.clone().into()),
            Some(form) if is_needed_whole => WholeBody::collect(&form.body).await.map(Self::Whole),
            Some(form) => Ok(Self::Streamed(form.body.clone())),
        }
    }
}

impl WholeBody {
    /// Receives a form to its end. The reader of the client's form bounds its size.
    async fn collect(form: &FormBody) -> Result<Self, FetchError> {
        let mut pieces = Vec::new();
        loop {
            match poll_fn(|context| form.poll_piece(context)).await {
                Ok(Some(piece)) => pieces.push(piece),
                Ok(None) => return Ok(Self::of_pieces(pieces)),
                Err(aborted) => return Err(FetchError::Closed(aborted.to_string())),
            }
        }
    }

    fn of_pieces(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let mut pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
        let first = pieces.next().unwrap_or_default();
        let mut rest: Vec<_> = pieces.collect();
        rest.reverse();
        Self { first, rest }
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.pieces().map(Bytes::len).sum()
    }

    /// The pieces in their order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).chain(self.rest.iter().rev())
    }

    /// Returns the rest of the piece that contains the byte at `offset`; empty at the end.
    pub(crate) fn piece_at(&self, offset: usize) -> &[u8] {
        let mut start = 0;
        for piece in self.pieces() {
            if let Some(rest) = piece.get(offset - start..).filter(|rest| !rest.is_empty()) {
                return rest;
            }
            start += piece.len();
        }
        &[]
    }

    fn take_piece(&mut self) -> Option<Bytes> {
        let piece = std::mem::take(&mut self.first);
        self.first = self.rest.pop().unwrap_or_default();
        Some(piece).filter(|piece| !piece.is_empty())
    }
}

impl From<Bytes> for WholeBody {
    fn from(first: Bytes) -> Self {
        Self { first, rest: Vec::new() }
    }
}

impl From<Bytes> for RequestBody {
    fn from(body: Bytes) -> Self {
        Self::Whole(body.into())
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = FormAborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FormAborted>>> {
        let piece = match &mut *self {
            Self::Whole(body) => body.take_piece().map(Ok),
            Self::Streamed(form) => ready!(form.poll_piece(context)).transpose(),
        };
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.first.is_empty(),
            Self::Streamed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => SizeHint::with_exact(body.len() as u64),
            Self::Streamed(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn whole(pieces: &[&'static str]) -> WholeBody {
        WholeBody::of_pieces(pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())))
    }

    #[test]
    fn the_pieces_are_found_by_their_offsets() {
        let body = whole(&["ab", "", "cde", "f"]);
        assert_eq!(body.len(), 6);
        let pieces: Vec<_> = (0..8).map(|at| body.piece_at(at)).collect();
        assert_eq!(pieces, [&b"ab"[..], b"b", b"cde", b"de", b"e", b"f", b"", b""]);
        assert_eq!(whole(&[]).len(), 0);
    }

    #[tokio::test]
    async fn the_pieces_are_sent_in_their_order() {
        let body = RequestBody::Whole(whole(&["ab", "", "cde", "f"]));
        assert_eq!(body.size_hint().exact(), Some(6));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcdef");
    }
}
