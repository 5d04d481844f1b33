//! The body of a client's form: read piece by piece by the parser, and discarded if the form is refused.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::Mutex;

use super::memory::ReservedMemory;

/// The reason that the body of a form cannot be received.
#[derive(Debug, thiserror::Error)]
pub(super) enum FormBodyError {
    #[error("over the limit of all requests with files")]
    Overloaded,
    #[error("{0}")]
    Broken(String),
}

/// The body of a form. Clones share it.
#[derive(Clone)]
pub(super) struct FormSource(Arc<Mutex<UnsyncBoxBody<Bytes, FormBodyError>>>);

impl FormSource {
    pub(super) fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error,
    {
        let body = body.map_err(|error| FormBodyError::Broken(error.to_string()));
        Self(Arc::new(Mutex::new(body.boxed_unsync())))
    }

    /// The bytes that the body has at least.
    pub(super) async fn size_min(&self) -> u64 {
        self.0.lock().await.size_hint().lower()
    }

    /// Returns the pieces, each counted before it is kept. All requests together keep `bytes_max`.
    pub(super) fn pieces(
        &self,
        memory: &Arc<ReservedMemory>,
        bytes_max: usize,
    ) -> impl Stream<Item = Result<Bytes, FormBodyError>> + Send + use<> {
        let memory = Arc::clone(memory);
        let frames = futures_util::stream::unfold(self.clone(), |source| async move {
            let frame = source.0.lock().await.frame().await?;
            Some((frame.map(|frame| frame.into_data().unwrap_or_default()), source))
        });
        let pieces = frames.map(move |piece| {
            let piece = piece?;
            match memory.add(piece.len(), bytes_max) {
                true => Ok(piece),
                false => Err(FormBodyError::Overloaded),
            }
        });
        OnePerTurn { inner: Box::pin(pieces), pauses: false }
    }

    /// Reads the rest of the body, at most so many bytes. The stream of pieces must have been dropped.
    pub(super) async fn discard(&self, bytes_max: usize) {
        let mut body = self.0.lock().await;
        let mut left = bytes_max;
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(size) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    }
}

/// A stream that pauses after each item: the parser of forms reads on until its source has to wait, however many bytes
/// that are.
struct OnePerTurn<S> {
    inner: Pin<Box<S>>,
    pauses: bool,
}

impl<S: Stream> Stream for OnePerTurn<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        if std::mem::take(&mut self.pauses) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = self.inner.as_mut().poll_next(context);
        self.pauses = matches!(next, Poll::Ready(Some(_)));
        next
    }
}
