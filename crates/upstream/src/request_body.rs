//! The body of a request to a subgraph: mostly one piece, several with files. The pieces are sent where they are,
//! because files are large.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use execute::SubgraphRequest;
use hyper::body::{Body, Frame, SizeHint};

/// A body. Clones share its memory.
#[derive(Clone, Debug)]
pub(crate) struct RequestBody {
    first: Bytes,
    /// The further pieces in reverse order; without files there are none, and no memory.
    rest: Vec<Bytes>,
}

impl RequestBody {
    /// Returns the body of a request.
    pub(crate) fn of(request: &SubgraphRequest<'_>) -> Self {
        match &request.form {
            None => request.body.clone().into(),
            Some(form) => {
                let mut pieces = form.pieces.iter().filter(|piece| !piece.is_empty()).cloned();
                let first = pieces.next().unwrap_or_default();
                let mut rest: Vec<_> = pieces.collect();
                rest.reverse();
                Self { first, rest }
            }
        }
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
}

impl From<Bytes> for RequestBody {
    fn from(first: Bytes) -> Self {
        Self { first, rest: Vec::new() }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = std::mem::take(&mut self.first);
        if piece.is_empty() {
            return Poll::Ready(None);
        }
        self.first = self.rest.pop().unwrap_or_default();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use execute::MultipartBody;
    use http::HeaderValue;
    use http_body_util::BodyExt;

    use super::*;

    fn form(pieces: &[&'static str]) -> RequestBody {
        let pieces = pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
        let content_type = HeaderValue::from_static("multipart/form-data");
        RequestBody::of(&SubgraphRequest {
            body: Bytes::from_static(b"{}"),
            form: Some(MultipartBody { content_type, pieces }),
            is_mutation: true,
            headers: &[],
            deadline: Instant::now(),
        })
    }

    #[test]
    fn the_pieces_are_found_by_their_offsets() {
        let body = form(&["ab", "", "cde", "f"]);
        assert_eq!(body.len(), 6);
        let pieces: Vec<_> = (0..8).map(|at| body.piece_at(at)).collect();
        assert_eq!(pieces, [&b"ab"[..], b"b", b"cde", b"de", b"e", b"f", b"", b""]);
        assert_eq!(form(&[]).len(), 0);
    }

    #[tokio::test]
    async fn the_pieces_are_sent_in_their_order() {
        let body = form(&["ab", "", "cde", "f"]);
        assert_eq!(body.size_hint().exact(), Some(6));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcdef");
    }
}
