//! The endpoint for callbacks of subgraphs: the HTTP side of [`CallbackEndpoint`], on the listener for clients or on
//! one of its own.

use std::sync::Arc;
use std::time::Duration;

use admission::memory::MemoryAccount;
use bytes::Bytes;
use http::header::{ALLOW, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body::Body;
use subscription_client::{CallbackEndpoint, CallbackRejection, CallbackRequest, PROTOCOL_HEADER};

use super::body::{self, BodyError};
use super::response::{self, Response};

/// The endpoint for callbacks at its path.
#[derive(Debug)]
pub struct CallbackRoute {
    /// Takes the requests.
    pub endpoint: Arc<CallbackEndpoint>,
    /// The path below which the ids of subscriptions are.
    pub path: String,
    /// The time limit for the body of a request.
    pub body_timeout: Duration,
    /// The memory of the process. A body counts until the last result in it is dropped, so also while the result waits
    /// for its subscription.
    pub memory: Arc<MemoryAccount>,
}

/// A callback with its body.
#[derive(Debug)]
pub struct ReceivedCallback {
    path_id: String,
    protocol: Option<HeaderValue>,
    body: Bytes,
}

impl CallbackRoute {
    /// True if a request belongs to this endpoint.
    pub fn has_path(&self, path: &str) -> bool {
        self.path_id(path).is_some()
    }

    /// Reads a request. The body is read only if it belongs to a subscription in progress.
    ///
    /// # Errors
    /// The response to a request that is refused.
    pub async fn read<B>(&self, request: Request<B>) -> Result<ReceivedCallback, Box<Response>>
    where
        B: Body<Data = Bytes>,
        B::Error: std::error::Error,
    {
        let path_id = self.path_id(request.uri().path()).unwrap_or_default().to_owned();
        if request.method() != Method::POST {
            let mut response = self.refuse_unread(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return Err(response);
        }
        self.endpoint.check_id(&path_id).map_err(|rejection| Box::new(rejected(&rejection)))?;
        let protocol = request.headers().get(PROTOCOL_HEADER.0).cloned();
        let body = self.read_body(request.into_body()).await?;
        Ok(ReceivedCallback { path_id, protocol, body })
    }

    async fn read_body<B>(&self, body: B) -> Result<Bytes, Box<Response>>
    where
        B: Body<Data = Bytes>,
        B::Error: std::error::Error,
    {
        let limit = self.endpoint.body_bytes_max();
        let read = body::read_counted(body, limit, self.body_timeout, &self.memory).await;
        read.map_err(|error| {
            self.refuse_unread(match error {
                BodyError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                BodyError::TooSlow => StatusCode::REQUEST_TIMEOUT,
                BodyError::MemoryUsedUp => StatusCode::SERVICE_UNAVAILABLE,
                BodyError::Broken(_) => StatusCode::BAD_REQUEST,
            })
        })
    }

    /// Passes a callback on, and returns the response to it.
    pub fn respond(&self, received: &ReceivedCallback) -> Response {
        let ReceivedCallback { path_id, protocol, body } = received;
        // A value that is not ASCII is another protocol.
        let protocol = protocol.as_ref().map(|it| it.to_str().unwrap_or("unknown"));
        let request = CallbackRequest { path_id, protocol, body: body.clone() };
        match self.endpoint.receive(request) {
            Ok(action) => with_status(action.status()),
            Err(rejection) => rejected(&rejection),
        }
    }

    /// Returns the part of a path behind that of the endpoint.
    fn path_id<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(self.path.trim_end_matches('/'))?.strip_prefix('/')
    }

    fn refuse_unread(&self, status: StatusCode) -> Box<Response> {
        self.endpoint.count_refused_request();
        Box::new(with_status(status.as_u16()))
    }
}

fn rejected(rejection: &CallbackRejection) -> Response {
    with_status(rejection.status())
}

/// Returns a response without a body, as the protocol demands.
fn with_status(status: u16) -> Response {
    // The statuses of the protocol are valid.
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = response::empty(status);
    let (name, value) = PROTOCOL_HEADER;
    let name = HeaderName::from_static(name);
    response.headers_mut().insert(name, HeaderValue::from_static(value));
    response
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;
    use admission::memory::CHARGED_BYTES_MIN;
    use http_body::Frame;
    use http_body_util::Full;
    use subscription_client::CallbackSettings;

    /// The size of a body that counts as memory. Two of them are over the budget.
    const BODY_BYTES: usize = 4 * CHARGED_BYTES_MIN;

    fn route(path: &str) -> CallbackRoute {
        let endpoint = CallbackEndpoint::new("http://a/callback", CallbackSettings::default());
        CallbackRoute {
            endpoint,
            path: path.into(),
            body_timeout: Duration::from_secs(30),
            memory: MemoryAccount::new(2 * BODY_BYTES as u64),
        }
    }

    #[tokio::test]
    async fn bodies_count_as_memory_and_those_without_room_are_refused() {
        let route = route("/callback");
        let body = || Full::new(Bytes::from(vec![b' '; BODY_BYTES]));
        let held = route.read_body(body()).await.expect("it fits");
        assert_eq!(route.memory.held_total(), held.len() as u64);
        let refused = route.read_body(body()).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(held);
        assert_eq!(route.memory.held_total(), 0);
        route.memory.measure(0);
        route.read_body(body()).await.expect("it fits again");
    }

    /// A body of which nothing arrives.
    struct SilentBody;

    impl Body for SilentBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn bodies_that_are_too_slow_or_too_large_are_refused_and_counted() {
        let settings = CallbackSettings { body_bytes_max: 10, ..CallbackSettings::default() };
        let endpoint = CallbackEndpoint::new("http://a/callback", settings);
        let body_timeout = Duration::from_millis(1);
        let route = CallbackRoute { endpoint, body_timeout, ..route("/callback") };
        let slow = route.read_body(SilentBody).await.unwrap_err();
        let large = route.read_body(Full::new(Bytes::from_static(&[b' '; 11]))).await.unwrap_err();
        let statuses = [slow.status(), large.status()];
        assert_eq!(statuses, [StatusCode::REQUEST_TIMEOUT, StatusCode::PAYLOAD_TOO_LARGE]);
        let stats = route.endpoint.stats();
        assert_eq!([&stats.received, &stats.rejected].map(telemetry::read), [2, 2]);
    }

    #[test]
    fn requests_below_the_path_belong_to_the_endpoint() {
        for (path, request, expected) in [
            ("/callback", "/callback/1", Some("1")),
            ("/callback/", "/callback/1", Some("1")),
            ("/callback", "/callback/1/2", Some("1/2")),
            ("/callback", "/callback", None),
            ("/callback", "/callbacks/1", None),
            ("/", "/1", Some("1")),
        ] {
            assert_eq!(route(path).path_id(request), expected, "{path} {request}");
        }
    }

    #[tokio::test]
    async fn unknown_subscriptions_and_other_methods_are_refused_before_the_body_is_read() {
        let route = route("/callback");
        let unreadable = || Full::new(Bytes::from_static(b"not read"));
        for (method, status) in [("POST", 404), ("GET", 405), ("OPTIONS", 405)] {
            let request = Request::builder().method(method).uri("/callback/1").body(unreadable());
            let refused = route.read(request.expect("a valid request")).await.unwrap_err();
            assert_eq!(refused.status(), status);
            assert_eq!(refused.headers()["subscription-protocol"], "callback/1.0");
        }
        let stats = route.endpoint.stats();
        assert_eq!([&stats.received, &stats.rejected].map(telemetry::read), [3, 3]);
    }
}
