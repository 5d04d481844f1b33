//! The sockets: one or several subgraphs behind one HTTP/1.1 listener.
//!
//! It serves `POST` with a JSON body and WebSockets for subscriptions at the same path, keeps connections alive, and
//! stops when its handle is dropped. It has no read timeout: a slow client occupies one connection, and the clients
//! here are routers under test.
//!
//! `/_events` below the path of a subgraph is for load generators: a `POST` publishes its JSON body as an event, or a
//! made-up one if it has none, and a `GET` returns the numbers of subscriptions. `/_entities` changes made-up entities:
//! a `POST` has one of them as its JSON body, and a `GET` returns the numbers of changes and of requests.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Interval, MissedTickBehavior};
use wire::websocket::handshake::{Accept, HandshakeRejection};

use super::fault::{Controls, Fault};
use super::response::{
    Closed, JSON, SentBody, build_response, build_subgraph_response, negotiate_media_type,
};
use super::service::{Subgraph, errors_only};
use super::subscription_socket::{check_upgrade, serve_socket};
use super::weather::{Latency, SimulatedConditions};

/// The maximum length of a request body: entity batches of a hundred thousand representations fit.
const REQUEST_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The maximum length of an event.
const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// The maximum number of concurrent connections; a router keeps some hundred. Further ones are closed immediately.
const CONNECTIONS_MAX: usize = 10_000;

/// The pause after a failed accept: the usual cause, no free descriptors, persists for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The path of events, below that of a subgraph.
const EVENTS_PATH: &str = "/_events";

/// The path of changes of entities, below that of a subgraph.
const ENTITIES_PATH: &str = "/_entities";

const HTML: &str = "<!doctype html><title>502 Bad Gateway</title><h1>Bad Gateway</h1>";

/// Collects the subgraphs and settings of a [`Server`].
pub struct ServerBuilder {
    listen: SocketAddr,
    weather: SimulatedConditions,
    recording: bool,
    events_per_second: f64,
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

impl ServerState {
    /// Returns the subgraph that serves a path.
    fn endpoint(&self, path: &str) -> Option<&Endpoint> {
        let own = self.endpoints.iter().find(|endpoint| endpoint.path == path);
        own.or_else(|| self.endpoints.iter().find(|endpoint| endpoint.path.is_empty()))
    }
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

    /// Publishes this number of events a second to all subscriptions, with data of the subgraph. The default is none.
    #[must_use]
    pub fn events_per_second(mut self, rate: f64) -> Self {
        self.events_per_second = rate;
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
        let events = event_interval(self.events_per_second);
        let task = tokio::spawn(accept(listener, Arc::clone(&shared), events));
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
            events_per_second: 0.0,
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

/// Returns the interval of events at a rate, or `None` for a rate of zero.
fn event_interval(per_second: f64) -> Option<Interval> {
    if per_second <= 0.0 {
        return None;
    }
    // The upper bound keeps the interval above zero, and the lower one below the longest that a timer supports.
    let mut interval =
        tokio::time::interval(Duration::from_secs_f64(1.0 / per_second.clamp(1e-6, 1e6)));
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    Some(interval)
}

/// Waits until the next event is due; for ever without an interval. Cancel safe.
async fn next_event(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

async fn accept(listener: TcpListener, shared: Arc<ServerState>, mut events: Option<Interval>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = next_event(&mut events) => {
                shared.endpoints.iter().for_each(|it| it.controls.subscriptions().publish(None));
            }
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

/// A connection that leaves HTTP once the response is sent.
struct PendingSocket<'a> {
    upgrade: OnUpgrade,
    endpoint: &'a Endpoint,
    headers: HeaderMap,
    subprotocol: Option<&'static str>,
}

async fn serve(stream: TcpStream, shared: Arc<ServerState>) {
    // Responses are written whole; waiting to fill a segment would only delay them.
    let _ = stream.set_nodelay(true);
    let upgraded: Mutex<Option<PendingSocket<'_>>> = Mutex::new(None);
    let service = service_fn(|request| async {
        let response = respond(&shared, request).await?;
        Ok::<_, Closed>(match response {
            Responded::Http(response) => response,
            Responded::Upgrade(response, socket) => {
                *upgraded.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
                response
            }
        })
    });
    // An error here means that the client disconnected, or that a fault closed the connection.
    let _ = http1::Builder::new()
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    let socket = upgraded.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(PendingSocket { upgrade, endpoint, headers, subprotocol }) = socket else { return };
    // An error means that the client disconnected before the response.
    if let Ok(stream) = upgrade.await {
        let stream = TokioIo::new(stream);
        let Endpoint { subgraph, controls, .. } = endpoint;
        serve_socket(stream, subprotocol, &headers, subgraph, controls).await;
    }
}

/// The response to a request.
enum Responded<'a> {
    Http(Response<SentBody>),
    Upgrade(Response<SentBody>, PendingSocket<'a>),
}

async fn respond(
    shared: &ServerState,
    mut request: Request<Incoming>,
) -> Result<Responded<'_>, Closed> {
    let path = request.uri().path();
    if let Some(endpoint) = path.strip_suffix(EVENTS_PATH).and_then(|path| shared.endpoint(path)) {
        return respond_events(endpoint, request).await.map(Responded::Http);
    }
    if let Some(endpoint) = path.strip_suffix(ENTITIES_PATH).and_then(|path| shared.endpoint(path))
    {
        return respond_entities(endpoint, request).await.map(Responded::Http);
    }
    let Some(endpoint) = shared.endpoint(path) else {
        let body = errors_only("there is no subgraph at this path");
        let response = build_response(StatusCode::NOT_FOUND, JSON, SentBody::whole(body));
        return Ok(Responded::Http(response));
    };
    match check_upgrade(&request) {
        None => respond_operation(shared, endpoint, request).await.map(Responded::Http),
        Some(Err(rejection)) => Ok(Responded::Http(reject_upgrade(rejection))),
        Some(Ok(accepted)) => {
            let upgrade = hyper::upgrade::on(&mut request);
            let headers = std::mem::take(request.headers_mut());
            respond_upgrade(shared, endpoint, accepted, upgrade, headers).await
        }
    }
}

/// Responds to a request for a WebSocket.
async fn respond_upgrade<'a>(
    shared: &ServerState,
    endpoint: &'a Endpoint,
    accepted: Accept<'static>,
    upgrade: OnUpgrade,
    headers: HeaderMap,
) -> Result<Responded<'a>, Closed> {
    let (delay, failure) = shared.weather.next();
    let fault = endpoint.controls.take_fault().await.or(failure);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    match fault {
        None | Some(Fault::Hold) => {}
        Some(Fault::Slow(time)) => tokio::time::sleep(time).await,
        // The connection gets the response that an operation would get, instead of the upgrade.
        Some(fault) => {
            let content_type = negotiate_media_type(&headers);
            let response = respond_faulty(endpoint, content_type, &Bytes::new(), fault).await?;
            return Ok(Responded::Http(response));
        }
    }
    let mut response = Response::new(SentBody::whole(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in accepted.headers() {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    }
    let subprotocol = accepted.subprotocol;
    Ok(Responded::Upgrade(response, PendingSocket { upgrade, endpoint, headers, subprotocol }))
}

fn reject_upgrade(rejection: HandshakeRejection) -> Response<SentBody> {
    let status = StatusCode::from_u16(rejection.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let body = SentBody::whole(errors_only(&rejection.to_string()));
    let mut response = build_response(status, JSON, body);
    for (name, value) in rejection.headers() {
        response.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    response
}

/// Publishes an event, or reports the numbers of subscriptions.
async fn respond_events(
    endpoint: &Endpoint,
    request: Request<Incoming>,
) -> Result<Response<SentBody>, Closed> {
    let subscriptions = endpoint.controls.subscriptions();
    if request.method() == Method::POST {
        let body = match read_body(request.into_body(), EVENT_BYTES_MAX).await? {
            Ok(body) => body,
            Err(refused) => return Ok(refused),
        };
        let value = match body.is_empty() {
            true => None,
            false => match serde_json::from_slice(&body) {
                Ok(value) => Some(value),
                Err(error) => {
                    let body = errors_only(&format!("the event is not JSON: {error}"));
                    let body = SentBody::whole(body);
                    return Ok(build_response(StatusCode::BAD_REQUEST, JSON, body));
                }
            },
        };
        subscriptions.publish(value);
    }
    let counts = subscriptions.counts();
    let body = serde_json::json!({
        "connections": counts.connections,
        "connectionsMax": counts.connections_max,
        "operations": counts.operations,
        "operationsMax": counts.operations_max,
        "operationsStarted": counts.operations_started,
        "results": counts.results,
        "eventsDropped": counts.events_dropped,
    });
    Ok(build_response(StatusCode::OK, JSON, SentBody::whole(body.to_string())))
}

/// Changes an entity, or reports the numbers of changes and operations.
async fn respond_entities(
    endpoint: &Endpoint,
    request: Request<Incoming>,
) -> Result<Response<SentBody>, Closed> {
    if request.method() == Method::POST {
        let body = match read_body(request.into_body(), EVENT_BYTES_MAX).await? {
            Ok(body) => body,
            Err(refused) => return Ok(refused),
        };
        let changed = serde_json::from_slice(&body)
            .map_err(|error| format!("the entity is not a JSON object: {error}"))
            .and_then(|entity| endpoint.subgraph.change_entity(entity));
        if let Err(message) = changed {
            let body = SentBody::whole(errors_only(&message));
            return Ok(build_response(StatusCode::BAD_REQUEST, JSON, body));
        }
    }
    let body = serde_json::json!({
        "changes": endpoint.subgraph.change_count(),
        "requests": endpoint.controls.request_count(),
    });
    Ok(build_response(StatusCode::OK, JSON, SentBody::whole(body.to_string())))
}

/// Reads a request's body; the inner error is the response to a body that is too large.
async fn read_body(
    body: Incoming,
    bytes_max: usize,
) -> Result<Result<Bytes, Response<SentBody>>, Closed> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(body) => Ok(Ok(body.to_bytes())),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let body = errors_only("the request body is too large");
            let body = SentBody::whole(body);
            Ok(Err(build_response(StatusCode::PAYLOAD_TOO_LARGE, JSON, body)))
        }
        Err(_) => Err(Closed),
    }
}

async fn respond_operation(
    shared: &ServerState,
    endpoint: &Endpoint,
    request: Request<Incoming>,
) -> Result<Response<SentBody>, Closed> {
    if request.method() != Method::POST {
        let body = errors_only("send the operation by POST");
        let mut refused =
            build_response(StatusCode::METHOD_NOT_ALLOWED, JSON, SentBody::whole(body));
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Ok(refused);
    }
    let (head, body) = request.into_parts();
    let body = match read_body(body, REQUEST_BYTES_MAX).await? {
        Ok(body) => body,
        Err(refused) => return Ok(refused),
    };
    endpoint.controls.record_request(&head.headers, &body);
    let (delay, failure) = shared.weather.next();
    let fault = endpoint.controls.take_fault().await.or(failure);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let content_type = negotiate_media_type(&head.headers);
    match fault {
        None => Ok(build_subgraph_response(content_type, endpoint.subgraph.respond(&body))),
        Some(fault) => respond_faulty(endpoint, content_type, &body, fault).await,
    }
}

/// Responds to a request while a fault is set.
async fn respond_faulty(
    endpoint: &Endpoint,
    content_type: &'static str,
    body: &Bytes,
    fault: Fault,
) -> Result<Response<SentBody>, Closed> {
    let subgraph = &endpoint.subgraph;
    let (type_name, field, message) = match fault {
        Fault::Down => return Err(Closed),
        Fault::Response { status, content_type, body } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return Ok(build_response(status, &content_type, SentBody::whole(body)));
        }
        Fault::InternalServerError => {
            let body = SentBody::whole("something went wrong");
            return Ok(build_response(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", body));
        }
        Fault::Html => {
            return Ok(build_response(StatusCode::OK, "text/html", SentBody::whole(HTML)));
        }
        Fault::TruncatedJson => {
            let mut response = subgraph.respond(body);
            response.body.truncate(response.body.len() / 2);
            return Ok(build_subgraph_response(content_type, response));
        }
        Fault::CutOff => {
            let response = subgraph.respond(body).body;
            return Ok(build_response(
                StatusCode::OK,
                content_type,
                SentBody::half_of(response.into()),
            ));
        }
        Fault::Headers(headers) => {
            let mut response = build_subgraph_response(content_type, subgraph.respond(body));
            for (name, value) in headers {
                let (name, value) =
                    (HeaderName::from_static(name), HeaderValue::from_static(value));
                response.headers_mut().append(name, value);
            }
            return Ok(response);
        }
        Fault::Slow(time) => {
            tokio::time::sleep(time).await;
            return Ok(build_subgraph_response(content_type, subgraph.respond(body)));
        }
        // `Controls::take_fault` has already waited.
        Fault::Hold => return Ok(build_subgraph_response(content_type, subgraph.respond(body))),
        Fault::GraphqlError { message, code } => {
            let mut error = serde_json::json!({ "message": message });
            if let Some(code) = code {
                error["extensions"] = serde_json::json!({ "code": code });
            }
            let body = serde_json::json!({ "data": null, "errors": [error] }).to_string();
            return Ok(build_response(StatusCode::OK, content_type, SentBody::whole(body)));
        }
        Fault::NullField { type_name, field } => (type_name, field, None),
        Fault::FieldError { type_name, field, message } => (type_name, field, Some(message)),
    };
    let Some(fault) = subgraph.field_fault(&type_name, &field, message) else {
        // A fault that cannot occur would make a test pass for the wrong reason.
        let body = errors_only(&format!("the fault names an unknown field `{type_name}.{field}`"));
        return Ok(build_response(StatusCode::BAD_REQUEST, JSON, SentBody::whole(body)));
    };
    Ok(build_subgraph_response(content_type, subgraph.respond_with_fault(body, Some(&fault))))
}
