//! Collectors that keep each request, and respond to their requests in turn.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// The time that a test waits for something that takes a moment, on a busy machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);

/// A request that a collector has got.
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) path: String,
    pub(crate) body: Bytes,
}

/// A collector, and the requests that the test has not looked at.
pub(crate) struct MockCollector {
    pub(crate) address: SocketAddr,
    received: mpsc::UnboundedReceiver<Received>,
}

/// Returns the response to the request with this number; `None` if there is never one.
type Respond = fn(usize) -> Option<Response<Full<Bytes>>>;

/// Keeps the requests of all connections.
#[derive(Clone)]
struct RequestLog {
    sender: mpsc::UnboundedSender<Received>,
    count: Arc<AtomicUsize>,
}

impl RequestLog {
    /// Reads a request to its end, and returns its number.
    async fn add(&self, request: Request<Incoming>) -> usize {
        let (head, body) = request.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let (headers, path) = (head.headers, head.uri.path().to_owned());
        // A test that has ended looks at no more requests.
        let _ = self.sender.send(Received { headers, path, body });
        self.count.fetch_add(1, Ordering::SeqCst)
    }
}

impl MockCollector {
    /// Starts a collector over HTTP.
    pub(crate) async fn start(respond: Respond) -> Self {
        let (listener, log, collector) = Self::listen().await;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let log = log.clone();
                let service = service_fn(move |request| {
                    let log = log.clone();
                    async move {
                        match respond(log.add(request).await) {
                            Some(response) => Ok::<_, Infallible>(response),
                            None => std::future::pending().await,
                        }
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        collector
    }

    /// Starts a gRPC collector that responds with these statuses in turn, and then with success.
    pub(crate) async fn start_grpc(statuses: &'static [u32]) -> Self {
        let (listener, log, collector) = Self::listen().await;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let log = log.clone();
                let service = service_fn(move |request| {
                    let log = log.clone();
                    async move {
                        let number = log.add(request).await;
                        let status = statuses.get(number).copied().unwrap_or(0);
                        Ok::<_, Infallible>(grpc_response(status))
                    }
                });
                let server = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        collector
    }

    async fn listen() -> (TcpListener, RequestLog, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, received) = mpsc::unbounded_channel();
        (listener, RequestLog { sender, count: Arc::default() }, Self { address, received })
    }

    /// Waits for the next request.
    pub(crate) async fn next(&mut self) -> Received {
        let received = tokio::time::timeout(WAIT_MAX, self.received.recv());
        received.await.expect("a request in time").expect("a collector")
    }
}

/// Returns a response without a body.
pub(crate) fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

/// Returns an empty message and the status in the trailers.
fn grpc_response(status: u32) -> Response<impl Body<Data = Bytes, Error = Infallible>> {
    let name = HeaderName::from_static("grpc-status");
    let trailers = HeaderMap::from_iter([(name, HeaderValue::from(status))]);
    let frames = [Ok(Frame::data(Bytes::from_static(&[0; 5]))), Ok(Frame::trailers(trailers))];
    Response::new(StreamBody::new(futures_util::stream::iter(frames)))
}
