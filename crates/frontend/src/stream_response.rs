//! Responses with a stream of results as their body: server-sent events, or parts of a multipart response.

use std::time::Instant;

use execute::GraphqlError;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use wire::BodyMachine;
use wire::http1::Framing;
use wire::result_stream::{ResultStream, StreamFormat};

use super::media::ResponseFormat;
use super::response::{Response, ResponseBody};
use super::service::StreamBody;

/// Returns a response with this stream as its body.
pub(super) fn with_stream(kind: StreamFormat, body: StreamBody) -> Response {
    match body {
        StreamBody::Pieces(pieces) => with_head(kind, ResponseBody::Stream(pieces)),
        StreamBody::Takeover(framing, takeover) => {
            let mut response = with_head(kind, ResponseBody::Takeover(takeover));
            let headers = response.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
            if framing == Framing::Chunked {
                headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
            response
        }
    }
}

/// Responds with errors that occurred before execution, in the form of the protocol: on an established stream.
pub(super) fn failed(errors: &[GraphqlError]) -> Response {
    let mut results = ResultStream::new(StreamFormat::EventStream, None, Instant::now());
    results.fail(execute::request_error(errors).bytes);
    let mut body = Vec::new();
    while let Some(chunks) = results.poll_transmit(Instant::now()) {
        chunks.append_to(&mut body);
    }
    with_head(StreamFormat::EventStream, ResponseBody::Whole(body.into()))
}

/// Returns a response with the head of a stream.
fn with_head(kind: StreamFormat, body: ResponseBody) -> Response {
    let mut response = http::Response::new(body);
    let headers = response.headers_mut();
    let content_type = HeaderValue::from_static(ResponseFormat::of(kind).content_type());
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    // Tells proxies of the nginx family not to buffer events.
    let unbuffered = HeaderValue::from_static("no");
    headers.insert(HeaderName::from_static("x-accel-buffering"), unbuffered);
    response
}
