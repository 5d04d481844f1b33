//! The admin listener: health, metrics, live subscriptions, caches, test events. For operators, not for clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cache::read_invalidations;
use clients::shutdown::Shutdown;
use clients::workers::Workers;
use events::{Message, Provider, Providers, SubscriptionClient as _};
use frontend::body;
use frontend::response::{self, Response};
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use hub::Hub;
use hyper::body::Incoming;
use serving::serving::Serving;
use serving::shared_cache::Confirmation;
use telemetry::{LogLimit, MetricsExporter, TextFormat};

use crate::admin_host;
use crate::cache_page::{self, CachePage};
use crate::internal_listener::InternalListener;
use crate::profiling;
use crate::subscriptions_page::{self, SubscriptionsView};

/// The listener. Operators and Prometheus need a handful of connections.
const LISTENER: InternalListener =
    InternalListener { name: "admin", connections_max: 64, head_timeout: Duration::from_secs(30) };

/// The maximum size of a test event.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// The maximum size of a request with invalidations.
const INVALIDATION_BYTES_MAX: usize = 4 << 20;

/// The content type of a body in which each line is an event: <https://github.com/ndjson/ndjson-spec>.
const EVENTS_BY_LINE: &str = "application/x-ndjson";

/// The time limit for the body of a test event.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// The parts of the router that operators see.
pub(crate) struct Admin {
    /// The settings of the listener.
    pub(crate) settings: config::Admin,
    /// The time limit for publishing a test event.
    pub(crate) publish_timeout: Duration,
    /// The metrics.
    pub(crate) metrics: MetricsExporter,
    /// Live subscriptions.
    pub(crate) hub: Arc<Hub>,
    /// The brokers.
    pub(crate) providers: Arc<Providers>,
    /// The graph that serves.
    pub(crate) serving: Arc<Serving>,
    /// The page of the caches.
    pub(crate) cache_page: CachePage,
    /// The worker threads.
    pub(crate) workers: Arc<Workers>,
    /// The state of the shutdown.
    pub(crate) shutdown: Arc<Shutdown>,
}

/// Serves until it is dropped, connections included. It continues while the router shuts down, because `/health/ready`
/// reports that, and the last counters are useful.
pub(crate) async fn serve(admin: Arc<Admin>, listener: std::net::TcpListener) {
    LISTENER
        .serve(listener, admin, |admin, request| async move { handle(&admin, request).await })
        .await;
}

async fn handle(admin: &Admin, request: Request<Incoming>) -> Response {
    let get = request.method() == Method::GET || request.method() == Method::HEAD;
    let path = request.uri().path();
    // Load balancers ask for health under any name, and learn nothing else.
    let is_health_check = matches!(path, "/health/live" | "/health/ready");
    let allowed = &admin.settings.allowed_hosts;
    if !is_health_check && !admin_host::is_allowed(request.uri(), request.headers(), allowed) {
        return refuse_host();
    }
    match path {
        "/health/live" if get => response::text(StatusCode::OK, "live\n"),
        "/health/ready" if get => ready(admin),
        "/metrics" if get => metrics_text(&admin.metrics, request.headers()),
        "/admin/subscriptions" if get => subscriptions(admin, request.headers()).await,
        "/admin/cache" if get => {
            let serving = admin.serving.current();
            admin.cache_page.overview(serving.caching.as_ref(), request.headers())
        }
        "/admin/cache/page.js" if get => CachePage::script(),
        "/admin/cache/page.css" if get => CachePage::style(),
        "/admin/publish" if request.method() == Method::POST => match is_from_web_page(&request) {
            true => response::text(StatusCode::FORBIDDEN, "web pages may not publish events\n"),
            false => publish(admin, request).await,
        },
        "/admin/complete" if request.method() == Method::POST => match is_from_web_page(&request) {
            true => response::text(StatusCode::FORBIDDEN, "web pages may not end subscriptions\n"),
            false => complete(admin, &request),
        },
        "/admin/invalidate" | "/admin/cache/preview" if request.method() == Method::POST => {
            if cache_page::is_from_foreign_page(&request) {
                let text = "web pages may not invalidate, except for that of this listener\n";
                return response::text(StatusCode::FORBIDDEN, text);
            }
            match path == "/admin/invalidate" {
                true => invalidate(admin, request).await,
                false => preview_invalidation(admin, request).await,
            }
        }
        "/admin/publish" | "/admin/complete" | "/admin/invalidate" | "/admin/cache/preview" => {
            not_allowed("POST")
        }
        "/health/live"
        | "/health/ready"
        | "/metrics"
        | "/admin/subscriptions"
        | "/admin/cache"
        | "/admin/cache/page.js"
        | "/admin/cache/page.css" => not_allowed("GET"),
        path if path.starts_with(profiling::PREFIX) => {
            profiling::handle(&admin.settings, &admin.workers, &request).await
        }
        _ => response::text(
            StatusCode::NOT_FOUND,
            "This is the admin listener. It has:\n\
             GET  /health/live         status 200 if the process runs\n\
             GET  /health/ready        status 200 if the router accepts traffic\n\
             GET  /metrics             counters for Prometheus\n\
             GET  /admin/subscriptions providers, live triggers, groups and their subscribers\n\
             GET  /admin/cache         hit ratios, stores, hot and large entries, if `cache.enabled` is set\n\
             GET  /debug/pprof/        profiles, if `admin.profiling` is set\n\
             POST /admin/publish?provider=memory/default&topic=T  publishes the body as an event,\n\
             or, as application/x-ndjson, each of its lines\n\
             POST /admin/complete?provider=memory/default&topic=T  completes the subscriptions to a topic\n\
             POST /admin/invalidate    makes stale what the JSON body names, if `cache.enabled` is set\n\
             POST /admin/cache/preview counts what /admin/invalidate would make stale\n",
        ),
    }
}

fn refuse_host() -> Response {
    static LIMIT: LogLimit = LogLimit::new();
    if let Some(suppressed) = LIMIT.admit(Instant::now()) {
        tracing::warn!(
            suppressed,
            "a request to the admin listener is refused because of its header `host`; if this is a name of this \
             router, list it in `admin.allowed_hosts`"
        );
    }
    response::text(
        StatusCode::MISDIRECTED_REQUEST,
        "the admin listener does not serve the host of this request: use an IP address or localhost, or \
         list the name in `admin.allowed_hosts`\n",
    )
}

fn not_allowed(allowed: &'static str) -> Response {
    let mut answer =
        response::text(StatusCode::METHOD_NOT_ALLOWED, format!("only {allowed} is allowed here\n"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// Responds with 200 from the first loaded graph until shutdown begins, so that a load balancer stops sending requests
/// then.
fn ready(admin: &Admin) -> Response {
    if admin.shutdown.is_leaving() {
        return response::text(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n");
    }
    let away: Vec<&str> = admin
        .providers
        .iter()
        .filter(|provider| !provider.is_connected())
        .map(|provider| provider.name())
        .collect();
    if away.is_empty() {
        return response::text(StatusCode::OK, "ready\n");
    }
    // Queries do not need brokers, so a disconnected one does not take the router out of service.
    response::text(StatusCode::OK, format!("ready; providers not connected: {}\n", away.join(", ")))
}

/// True if a web page sent the request. A page of any origin can make a browser on the operator's machine post here,
/// and operators use no browser for it.
fn is_from_web_page<B>(request: &Request<B>) -> bool {
    request.headers().contains_key(ORIGIN) || request.headers().contains_key("sec-fetch-site")
}

/// Returns OpenMetrics to clients that ask for it, as Prometheus does, and the older text format of Prometheus to all
/// others.
fn metrics_text(metrics: &MetricsExporter, headers: &HeaderMap) -> Response {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let open_metrics = accepted.into_iter().any(|it| it.contains("application/openmetrics-text"));
    let format = if open_metrics { TextFormat::OpenMetrics } else { TextFormat::Prometheus };
    match metrics.text(format) {
        Ok(text) => response::with_type(StatusCode::OK, format.content_type(), text.into()),
        Err(_) => {
            response::text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be encoded\n")
        }
    }
}

/// Returns a page to browsers, and JSON to all other clients.
async fn subscriptions(admin: &Admin, headers: &HeaderMap) -> Response {
    let (triggers, stats) = (admin.hub.topology().await, admin.hub.stats());
    let loaded = admin.serving.current();
    let clients = loaded.streams.iter().flatten().map(|it| &it.client);
    let subgraphs = clients.map(|it| (it.name(), &**it.stats())).collect();
    let view =
        SubscriptionsView { providers: &admin.providers, subgraphs, triggers: &triggers, stats };
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepted.any(|it| it.contains("text/html")) {
        let page = subscriptions_page::page(&view);
        return response::with_type(StatusCode::OK, "text/html; charset=utf-8", page.into());
    }
    let text = serde_json::to_vec(&subscriptions_page::describe(&view));
    response::with_type(StatusCode::OK, "application/json", text.unwrap_or_default().into())
}

/// Returns the value of a parameter of the URL.
fn parameter<B>(request: &Request<B>, wanted: &str) -> Option<String> {
    let parameters = request.uri().query().unwrap_or_default();
    url::form_urlencoded::parse(parameters.as_bytes())
        .find(|(name, _)| name == wanted)
        .map(|(_, value)| value.into_owned())
}

fn refuse(status: StatusCode, text: String) -> Response {
    response::text(status, format!("{text}\n"))
}

/// Returns the provider and the topic that the URL names: `?provider=kind/id&topic=T`.
///
/// # Errors
/// Returns a response that names the missing or unknown parameter.
fn provider_and_topic<'a, B>(
    admin: &'a Admin,
    request: &Request<B>,
) -> Result<(&'a Arc<dyn Provider>, String), Box<Response>> {
    let provider = parameter(request, "provider").unwrap_or_else(|| "memory/default".to_owned());
    let Some(topic) = parameter(request, "topic").filter(|topic| !topic.is_empty()) else {
        let text = "the topic is missing: add ?topic=T".to_owned();
        return Err(Box::new(refuse(StatusCode::BAD_REQUEST, text)));
    };
    let provider = admin.providers.resolve(&provider);
    let provider = provider.map_err(|error| refuse(StatusCode::NOT_FOUND, error.to_string()))?;
    Ok((provider, topic))
}

/// Handles `POST /admin/complete?provider=memory/id&topic=T`: ends the streams that listen to the topic, and so
/// completes their subscriptions, for tests of clients.
fn complete<B>(admin: &Admin, request: &Request<B>) -> Response {
    let (provider, topic) = match provider_and_topic(admin, request) {
        Ok(found) => found,
        Err(answer) => return *answer,
    };
    match provider.complete(&topic) {
        Ok(streams) => response::text(StatusCode::OK, format!("ended {streams} streams\n")),
        Err(reason) => refuse(StatusCode::BAD_REQUEST, format!("{}: {reason}", provider.name())),
    }
}

/// Handles `POST /admin/invalidate`: makes stale what the body names. When the response is sent, no later request gets
/// anything that was fetched before.
async fn invalidate(admin: &Admin, request: Request<Incoming>) -> Response {
    let serving = admin.serving.current();
    let Some(caching) = &serving.caching else { return cache_page::not_cached() };
    let body = match read_invalidation_body(request).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    let (received, source) = (Instant::now(), &caching.process.invalidation_stats.admin);
    match read_invalidations(body) {
        Ok(all) => {
            let confirmation = caching.process.invalidate_everywhere(&all, received).await;
            invalidated(all.len(), confirmation)
        }
        Err(problem) => {
            source.count_malformed();
            refuse(StatusCode::BAD_REQUEST, problem.to_string())
        }
    }
}

/// Returns the response to invalidations: 200 if no router has anything older any more, 202 if some have not confirmed
/// that.
fn invalidated(invalidations: usize, confirmation: Option<Confirmation>) -> Response {
    let Some(confirmation) = confirmation else {
        return response::text(StatusCode::OK, format!("{{\"invalidations\":{invalidations}}}\n"));
    };
    let status = match confirmation.is_complete() {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    let Confirmation { routers, unconfirmed, is_pending } = confirmation;
    let text = format!(
        "{{\"invalidations\":{invalidations},\"routers\":{routers},\"unconfirmed\":{unconfirmed},\
         \"pending\":{is_pending}}}\n"
    );
    response::text(status, text)
}

/// Handles `POST /admin/cache/preview`: counts what `POST /admin/invalidate` would make stale, and changes nothing.
async fn preview_invalidation(admin: &Admin, request: Request<Incoming>) -> Response {
    let serving = admin.serving.current();
    let Some(caching) = &serving.caching else { return cache_page::not_cached() };
    let body = match read_invalidation_body(request).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    match read_invalidations(body) {
        Ok(all) => admin.cache_page.preview(caching, all).await,
        Err(problem) => refuse(StatusCode::BAD_REQUEST, problem.to_string()),
    }
}

/// Reads a body with invalidations.
///
/// # Errors
/// Returns a response that says why the body cannot be read.
async fn read_invalidation_body(request: Request<Incoming>) -> Result<Bytes, Box<Response>> {
    let body = body::read(request.into_body(), INVALIDATION_BYTES_MAX, BODY_TIME_MAX).await;
    body.map_err(|error| {
        Box::new(match error {
            body::BodyError::TooLarge => {
                let text = format!("invalidations may have at most {INVALIDATION_BYTES_MAX} bytes");
                refuse(StatusCode::PAYLOAD_TOO_LARGE, text)
            }
            _ => refuse(StatusCode::BAD_REQUEST, "the body is incomplete".to_owned()),
        })
    })
}

/// Handles `POST /admin/publish?provider=kind/id&topic=T`: the body is the event. With the content type
/// `application/x-ndjson`, each of its lines is an event, so that a client that publishes many of them does not measure
/// HTTP.
async fn publish(admin: &Admin, request: Request<Incoming>) -> Response {
    let (provider, topic) = match provider_and_topic(admin, &request) {
        Ok(found) => found,
        Err(answer) => return *answer,
    };
    let has_lines = request.headers().get(CONTENT_TYPE).is_some_and(|it| it == EVENTS_BY_LINE);
    let body: Bytes = match body::read(request.into_body(), EVENT_BYTES_MAX, BODY_TIME_MAX).await {
        Ok(body) => body,
        Err(body::BodyError::TooLarge) => {
            let text = format!("a test event may have at most {EVENT_BYTES_MAX} bytes");
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, text);
        }
        Err(_) => return refuse(StatusCode::BAD_REQUEST, "the body is incomplete".to_owned()),
    };
    let events: Vec<Bytes> = match has_lines {
        true => body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| body.slice_ref(line))
            .collect(),
        false => vec![body],
    };
    let limit = admin.publish_timeout;
    let count = events.len();
    for (place, event) in events.into_iter().enumerate() {
        let (status, problem) =
            match tokio::time::timeout(limit, provider.publish(Message::new(&*topic, event))).await
            {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => (StatusCode::BAD_GATEWAY, error.to_string()),
                Err(_) => {
                    let text =
                        format!("{} did not accept the event within {limit:?}", provider.name());
                    (StatusCode::GATEWAY_TIMEOUT, text)
                }
            };
        return match has_lines {
            true => refuse(status, format!("{place} of {count} events are published: {problem}")),
            false => refuse(status, problem),
        };
    }
    response::text(StatusCode::OK, "published\n")
}
