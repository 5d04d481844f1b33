//! HTTP responses of a served subgraph, including those that end before their announced length.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};

use super::service::SubgraphResponse;

pub(super) const JSON: &str = "application/json";
const GRAPHQL_RESPONSE: &str = "application/graphql-response+json";

/// Returns the media type of the response: the newer one only if the client accepts it by name.
pub(super) fn negotiate_media_type(headers: &HeaderMap) -> &'static str {
    let names_it = headers
        .get_all(ACCEPT)
        .iter()
        .any(|value| value.to_str().is_ok_and(|value| value.contains(GRAPHQL_RESPONSE)));
    if names_it { GRAPHQL_RESPONSE } else { JSON }
}

pub(super) fn build_subgraph_response(
    content_type: &'static str,
    response: SubgraphResponse,
) -> Response<SentBody> {
    let status = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    build_response(status, content_type, SentBody::whole(response.body))
}

pub(super) fn build_response(
    status: StatusCode,
    content_type: &str,
    body: SentBody,
) -> Response<SentBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        response.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    response
}

/// A body that is available as a whole, or that ends before its announced length.
pub(super) struct SentBody {
    left: Bytes,
    /// The number of bytes that are announced but never sent.
    missing: u64,
}

impl SentBody {
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { left: bytes.into(), missing: 0 }
    }

    pub(super) fn half_of(bytes: Bytes) -> Self {
        let half = bytes.slice(..bytes.len() / 2);
        Self { missing: (bytes.len() - half.len()).max(1) as u64, left: half }
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = Closed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Closed>>> {
        let left = std::mem::take(&mut self.left);
        Poll::Ready(if !left.is_empty() {
            Some(Ok(Frame::data(left)))
        } else if self.missing > 0 {
            Some(Err(Closed))
        } else {
            None
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.missing == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64 + self.missing)
    }
}

/// Ends a connection without a response.
#[derive(Debug, thiserror::Error)]
#[error("the connection is closed on purpose")]
pub(super) struct Closed;
