//! Calls of one gRPC method without streams (gRPC over HTTP/2). A call is a request with one message, and its status is
//! in the trailers: a small part of the protocol, so that the HTTP client and the TLS of the router are enough.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use execute::FetchError;
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use net::TlsClient;
use tokio::sync::Mutex;
use upstream::{Target, TargetError};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("starling/", env!("CARGO_PKG_VERSION")));
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// The head of a message: one byte that says whether it is compressed, and its length.
const HEAD_BYTES: usize = 5;

/// The time without a frame after which the connection is checked by a ping.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// The maximum length of a reason of the server in the log.
const REASON_BYTES_MAX: usize = 512;

/// A method of a server.
#[derive(Debug)]
pub(crate) struct GrpcMethod {
    target: Target,
    uri: Uri,
    timeout: Duration,
    response_bytes_max: usize,
    /// The connection of the last call, if it is open.
    connection: Mutex<Option<http2::SendRequest<Full<Bytes>>>>,
}

/// The response to a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GrpcResponse {
    /// The status; 0 for success.
    pub(crate) status: u32,
    /// The reason of another status.
    pub(crate) reason: String,
    /// True if the status has details.
    pub(crate) has_details: bool,
    /// The message; empty for another status than 0.
    pub(crate) message: Bytes,
}

impl GrpcMethod {
    /// Creates the method at `path` of the server at `url`, whatever the path of the URL is. `tls` is needed for https
    /// only.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub(crate) fn new(
        url: &str,
        tls: Option<TlsClient>,
        path: &'static str,
        response_bytes_max: usize,
        timeout: Duration,
    ) -> Result<Self, TargetError> {
        let target = Target::parse(url, tls)?;
        let mut parts = target.absolute_uri().clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::from_static(path));
        let uri = Uri::from_parts(parts).map_err(|_| TargetError::Malformed)?;
        Ok(Self { target, uri, timeout, response_bytes_max, connection: Mutex::default() })
    }

    /// Sends a message with further headers, and waits for the response.
    ///
    /// # Errors
    /// The server did not respond in time, or not by gRPC.
    pub(crate) async fn call(
        &self,
        message: &[u8],
        headers: HeaderMap,
    ) -> Result<GrpcResponse, FetchError> {
        let call = tokio::time::timeout(self.timeout, self.exchange(message, headers));
        let response = call.await.unwrap_or(Err(FetchError::Timeout(self.timeout)));
        if response.is_err() {
            // The next call opens another one.
            *self.connection.lock().await = None;
        }
        response
    }

    async fn exchange(
        &self,
        message: &[u8],
        headers: HeaderMap,
    ) -> Result<GrpcResponse, FetchError> {
        let mut sender = self.connect().await?;
        let mut body = BytesMut::with_capacity(HEAD_BYTES + message.len());
        body.put_u8(0);
        // A batch of traces is some megabytes at most.
        body.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        body.extend_from_slice(message);
        let mut request = Request::post(self.uri.clone())
            .body(Full::new(body.freeze()))
            .map_err(|error| FetchError::Protocol(error.to_string()))?;
        *request.headers_mut() = headers;
        let own = request.headers_mut();
        own.insert(CONTENT_TYPE, GRPC);
        own.insert(TE, TRAILERS);
        own.insert(USER_AGENT, AGENT);
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| FetchError::Closed(error.to_string()))?;
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            let (status, content_type, body) = (head.status, None, None);
            return Err(FetchError::Status { status, content_type, body });
        }
        let body = Limited::new(body, self.response_bytes_max).collect().await;
        let body = body.map_err(|error| FetchError::Closed(error.to_string()))?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        // A response without a message has its status in the head.
        let headers = if trailers.contains_key(STATUS) { &trailers } else { &head.headers };
        read_response(headers, &body.to_bytes())
    }

    /// Returns the open connection, or a new one.
    async fn connect(&self) -> Result<http2::SendRequest<Full<Bytes>>, FetchError> {
        let mut known = self.connection.lock().await;
        if let Some(sender) = known.as_ref().filter(|it| !it.is_closed()) {
            return Ok(sender.clone());
        }
        let stream = self.target.connect(self.timeout).await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| FetchError::Connect(error.to_string()))?;
        // It ends with the last sender. Calls get the reason of another end.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        *known = Some(sender.clone());
        Ok(sender)
    }
}

/// Reads the status and the message of a response.
fn read_response(headers: &HeaderMap, body: &[u8]) -> Result<GrpcResponse, FetchError> {
    let text = |name: &HeaderName| headers.get(name).and_then(|it| it.to_str().ok());
    let status = text(&STATUS).and_then(|it| it.parse().ok());
    let Some(status) = status else {
        return Err(FetchError::Protocol("the response is not gRPC: it has no status".into()));
    };
    let reason = headers.get(&MESSAGE).map(HeaderValue::as_bytes).unwrap_or_default();
    // As the protocol demands, a broken escape stays as it is, and bytes that are no UTF-8 are replaced.
    let reason = percent_encoding::percent_decode(reason).decode_utf8_lossy();
    let reason = reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].escape_debug().to_string();
    let has_details = headers.contains_key(DETAILS);
    let message = match status {
        0 => read_message(body)?,
        _ => Bytes::new(),
    };
    Ok(GrpcResponse { status, reason, has_details, message })
}

/// Returns the only message of a body.
fn read_message(body: &[u8]) -> Result<Bytes, FetchError> {
    let broken = |reason: &str| FetchError::Protocol(format!("the response is not gRPC: {reason}"));
    let (head, message) =
        body.split_first_chunk::<HEAD_BYTES>().ok_or_else(|| broken("it has no message"))?;
    let [compression, length @ ..] = *head;
    if compression != 0 {
        return Err(broken("its message is compressed"));
    }
    if u32::from_be_bytes(length) as usize != message.len() {
        return Err(broken("its message has another length"));
    }
    Ok(Bytes::copy_from_slice(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(status: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(STATUS, HeaderValue::from_static(status))])
    }

    #[test]
    fn the_only_message_of_a_response_is_read() {
        let response = read_response(&headers("0"), &[0, 0, 0, 0, 2, 7, 8]).expect("a response");
        assert_eq!((response.status, &*response.message), (0, &[7, 8][..]));
        let refused = read_response(&headers("14"), &[]).expect("a response");
        assert_eq!((refused.status, refused.message.len()), (14, 0));
        for broken in [&[][..], &[0, 0, 0, 0], &[1, 0, 0, 0, 0], &[0, 0, 0, 0, 2, 7]] {
            assert!(read_response(&headers("0"), broken).is_err(), "{broken:?}");
        }
        assert!(read_response(&HeaderMap::new(), &[0; 5]).is_err());
        assert!(read_response(&headers("x"), &[0; 5]).is_err());
    }

    #[test]
    fn the_reason_of_a_status_is_decoded_and_escaped() {
        let reason = |message: &'static str| {
            let mut headers = headers("8");
            headers.insert(MESSAGE, HeaderValue::from_static(message));
            read_response(&headers, &[]).expect("a response").reason
        };
        assert_eq!(reason("quota 100%25 used: f%C3%BCr heute"), "quota 100% used: für heute");
        assert_eq!(reason("50%, %4, %zz and %2"), "50%, %4, %zz and %2");
        assert_eq!(reason("a%0Ab %ff"), "a\\nb \u{fffd}");
        assert_eq!(reason(""), "");
    }
}
