//! The sockets: one or several subgraphs behind one HTTP/1.1 listener.
//!
//! It serves `POST` with a JSON body, keeps connections alive, and stops when its handle is dropped. It has no read
//! timeout: a slow client occupies one connection, and the clients here are routers under test.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::fault::{Controls, Fault};
use super::service::{Subgraph, SubgraphResponse, errors_only};
use super::weather::{Latency, SimulatedConditions};

/// The maximum length of a request body: entity batches of a hundred thousand representations fit.
const REQUEST_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The maximum number of concurrent connections; a router keeps some hundred. Further ones are closed immediately.
const CONNECTIONS_MAX: usize = 10_000;

/// The pause after a failed accept: the usual cause, no free descriptors, persists for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

const HTML: &str = "<!doctype html><title>502 Bad Gateway</title><h1>Bad Gateway</h1>";
const JSON: &str = "application/json";
const GRAPHQL_RESPONSE: &str = "application/graphql-response+json";

/// Collects the subgraphs and settings of a [`Server`].
pub struct ServerBuilder {
    listen: SocketAddr,
    weather: SimulatedConditions,
    recording: bool,
    subgraphs: Vec<(String, Subgraph)>,
}

/// A running server. Dropping it closes the listener and all connections.
pub struct Server {
    address: SocketAddr,
    shared: Arc<ServerState>,
    task: JoinHandle<()>,
}

struct ServerState {
    endpoints: Vec<Endpoint>,
    weather: SimulatedConditions,
    connections: AtomicU64,
}

struct Endpoint {
    /// The path; empty for the endpoint that serves all other paths.
    path: String,
    subgraph: Subgraph,
    controls: Controls,
}

impl ServerBuilder {
    /// Listens at this address instead of a free port of 127.0.0.1.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Delays every response by this time, like a subgraph with work to do. The default is zero.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.weather.latency = Latency::Fixed(delay);
        self
    }

    /// Delays each response by a random time of this distribution, drawn with the seed.
    #[must_use]
    pub fn latency(mut self, latency: Latency) -> Self {
        self.weather.latency = latency;
        self
    }

    /// Fails this share of the requests: with status 500, with a GraphQL error or by closing the connection.
    #[must_use]
    pub fn errors(mut self, share: f64) -> Self {
        self.weather.errors = share;
        self
    }

    /// Sets the seed for failing requests and latencies.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.weather.seed = seed;
        self
    }

    /// Records the requests that arrive, for [`Controls::take_requests`].
    #[must_use]
    pub fn record_requests(mut self) -> Self {
        self.recording = true;
        self
    }

    /// Serves a subgraph at a path. With an empty path it serves all paths that no other subgraph has.
    #[must_use]
    pub fn subgraph(mut self, path: &str, subgraph: Subgraph) -> Self {
        self.subgraphs.push((path.to_owned(), subgraph));
        self
    }

    /// Binds the listener and starts to serve, on the current tokio runtime.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn start(self) -> io::Result<Server> {
        let listener = TcpListener::bind(self.listen).await?;
        let address = listener.local_addr()?;
        let endpoints = self
            .subgraphs
            .into_iter()
            .map(|(path, subgraph)| Endpoint {
                path,
                subgraph,
                controls: Controls::new(self.recording),
            })
            .collect();
        let shared = Arc::new(ServerState {
            endpoints,
            weather: self.weather,
            connections: AtomicU64::new(0),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Server { address, shared, task })
    }
}

impl Server {
    /// Returns a builder with a free port of 127.0.0.1, no delay, and no recording.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            weather: SimulatedConditions::default(),
            recording: false,
            subgraphs: Vec::new(),
        }
    }

    /// Serves one subgraph at every path of a free port of 127.0.0.1, and records its requests, as tests need.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn start(subgraph: Subgraph) -> io::Result<Self> {
        Self::builder().subgraph("", subgraph).record_requests().start().await
    }

    /// Returns the address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the subgraph at this path; `/` for the one that serves all other paths.
    pub fn url(&self, path: &str) -> String {
        let path = if path.is_empty() { "/" } else { path };
        format!("http://{}{path}", self.address)
    }

    /// Returns the controls of the subgraph with this path, as given to [`ServerBuilder::subgraph`].
    pub fn controls_at(&self, path: &str) -> Option<&Controls> {
        self.shared.endpoints.iter().find(|e| e.path == path).map(|e| &e.controls)
    }

    /// Returns the controls of the first subgraph.
    ///
    /// # Panics
    /// If the server was built without any subgraph.
    pub fn controls(&self) -> &Controls {
        &self.shared.endpoints[0].controls
    }

    /// Returns the number of connections accepted since the start.
    pub fn connections_accepted(&self) -> u64 {
        self.shared.connections.load(Ordering::Acquire)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The task owns the listener and, in its set, all connections.
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<ServerState>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    shared.connections.fetch_add(1, Ordering::Release);
                    let down = shared.endpoints.iter().all(|endpoint| endpoint.controls.is_down());
                    if !down && connections.len() < CONNECTIONS_MAX {
                        connections.spawn(serve(stream, Arc::clone(&shared)));
                    }
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<ServerState>) {
    // Responses are written whole; waiting to fill a segment would only delay them.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| respond(&shared, request));
    // An error here means that the client disconnected, or that a fault closed the connection.
    let _ = http1::Builder::new()
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(
    shared: &ServerState,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Closed> {
    let path = request.uri().path();
    let endpoint = shared
        .endpoints
        .iter()
        .find(|endpoint| endpoint.path == path)
        .or_else(|| shared.endpoints.iter().find(|endpoint| endpoint.path.is_empty()));
    let Some(endpoint) = endpoint else {
        let body = errors_only("there is no subgraph at this path");
        return Ok(response(StatusCode::NOT_FOUND, JSON, ResponseBody::whole(body)));
    };
    if request.method() != Method::POST {
        let body = errors_only("send the operation by POST");
        let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, JSON, ResponseBody::whole(body));
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Ok(refused);
    }
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, REQUEST_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let body = errors_only("the request body is too large");
            return Ok(response(StatusCode::PAYLOAD_TOO_LARGE, JSON, ResponseBody::whole(body)));
        }
        Err(_) => return Err(Closed),
    };
    endpoint.controls.record_request(&head.headers, &body);
    let (delay, failure) = shared.weather.next();
    let fault = endpoint.controls.take_fault().await.or(failure);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let content_type = negotiate_media_type(&head.headers);
    match fault {
        None => Ok(subgraph_response(content_type, endpoint.subgraph.respond(&body))),
        Some(fault) => respond_faulty(endpoint, content_type, &body, fault).await,
    }
}

/// Responds to a request while a fault is set.
async fn respond_faulty(
    endpoint: &Endpoint,
    content_type: &'static str,
    body: &Bytes,
    fault: Fault,
) -> Result<Response<ResponseBody>, Closed> {
    let subgraph = &endpoint.subgraph;
    let (type_name, field, message) = match fault {
        Fault::Down => return Err(Closed),
        Fault::Response { status, content_type, body } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return Ok(response(status, &content_type, ResponseBody::whole(body)));
        }
        Fault::InternalServerError => {
            let body = ResponseBody::whole("something went wrong");
            return Ok(response(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", body));
        }
        Fault::Html => {
            return Ok(response(StatusCode::OK, "text/html", ResponseBody::whole(HTML)));
        }
        Fault::TruncatedJson => {
            let mut answer = subgraph.respond(body);
            answer.body.truncate(answer.body.len() / 2);
            return Ok(subgraph_response(content_type, answer));
        }
        Fault::CutOff => {
            let answer = subgraph.respond(body).body;
            return Ok(response(
                StatusCode::OK,
                content_type,
                ResponseBody::half_of(answer.into()),
            ));
        }
        Fault::Headers(headers) => {
            let mut answer = subgraph_response(content_type, subgraph.respond(body));
            for (name, value) in headers {
                let (name, value) =
                    (HeaderName::from_static(name), HeaderValue::from_static(value));
                answer.headers_mut().append(name, value);
            }
            return Ok(answer);
        }
        Fault::Slow(time) => {
            tokio::time::sleep(time).await;
            return Ok(subgraph_response(content_type, subgraph.respond(body)));
        }
        // `Controls::take_fault` has already waited.
        Fault::Hold => return Ok(subgraph_response(content_type, subgraph.respond(body))),
        Fault::GraphqlError { message, code } => {
            let mut error = serde_json::json!({ "message": message });
            if let Some(code) = code {
                error["extensions"] = serde_json::json!({ "code": code });
            }
            let body = serde_json::json!({ "data": null, "errors": [error] }).to_string();
            return Ok(response(StatusCode::OK, content_type, ResponseBody::whole(body)));
        }
        Fault::NullField { type_name, field } => (type_name, field, None),
        Fault::FieldError { type_name, field, message } => (type_name, field, Some(message)),
    };
    let Some(fault) = subgraph.field_fault(&type_name, &field, message) else {
        // A fault that cannot occur would make a test pass for the wrong reason.
        let body = errors_only(&format!("the fault names an unknown field `{type_name}.{field}`"));
        return Ok(response(StatusCode::BAD_REQUEST, JSON, ResponseBody::whole(body)));
    };
    Ok(subgraph_response(content_type, subgraph.respond_with_fault(body, Some(&fault))))
}

/// Returns the media type of the response: the newer one only if the client accepts it by name.
fn negotiate_media_type(headers: &HeaderMap) -> &'static str {
    let names_it = headers
        .get_all(ACCEPT)
        .iter()
        .any(|value| value.to_str().is_ok_and(|value| value.contains(GRAPHQL_RESPONSE)));
    if names_it { GRAPHQL_RESPONSE } else { JSON }
}

fn subgraph_response(
    content_type: &'static str,
    answer: SubgraphResponse,
) -> Response<ResponseBody> {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response(status, content_type, ResponseBody::whole(answer.body))
}

fn response(status: StatusCode, content_type: &str, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        response.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    response
}

/// A body that is available as a whole, or that ends before its announced length.
struct ResponseBody {
    left: Bytes,
    /// The number of bytes that are announced but never sent.
    missing: u64,
}

impl ResponseBody {
    fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { left: bytes.into(), missing: 0 }
    }

    fn half_of(bytes: Bytes) -> Self {
        let half = bytes.slice(..bytes.len() / 2);
        Self { missing: (bytes.len() - half.len()).max(1) as u64, left: half }
    }
}

impl Body for ResponseBody {
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
struct Closed;
