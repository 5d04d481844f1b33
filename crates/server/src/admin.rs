//! The admin listener: health, metrics, live topology, test events. For operators, not for clients.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use events::{Message, Provider};
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::admin_host;
use crate::http::answer::{self, Answer};
use crate::http::body;
use crate::http::patient::{Patient, STALL_TIME_MAX};
use crate::log_limit::LogLimit;
use crate::metrics_text;
use crate::profiling;
use crate::router::Router;
use crate::scrape::Scrape;
use crate::topology;

/// Connections at once; more wait. Operators and scrapers need a handful.
const CONNECTIONS_MAX: usize = 64;

/// A test event may be this large.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// The content type of a body of which each line is an event: <https://github.com/ndjson/ndjson-spec>.
const EVENTS_BY_LINE: &str = "application/x-ndjson";

/// How long to wait when `accept` fails, most likely for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long the body of a test event may take.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a head may take.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);

/// Serves until it is dropped, connections included. It goes on while the router shuts down: `/health/ready`
/// says so, and the last counters are worth having.
pub(crate) async fn serve(router: Arc<Router>, listener: std::net::TcpListener) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the admin listener could not be watched");
            return;
        }
    };
    let mut registry = Registry::default();
    router.metrics.register(&mut registry);
    registry.register_collector(Box::new(Scrape(Arc::downgrade(&router))));
    let registry = Arc::new(registry);
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (router, registry) = (Arc::clone(&router), Arc::clone(&registry));
        connections.spawn(async move {
            let _permit = permit;
            let service = service_fn(|request| {
                let (router, registry) = (Arc::clone(&router), Arc::clone(&registry));
                async move { Ok::<_, Infallible>(handle(&router, &registry, request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME_MAX)
                .serve_connection(TokioIo::new(Patient::new(socket, STALL_TIME_MAX)), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an admin connection ended early");
            }
        });
    }
}

async fn handle(router: &Router, registry: &Registry, request: Request<Incoming>) -> Answer {
    let get = request.method() == Method::GET || request.method() == Method::HEAD;
    let path = request.uri().path();
    // Load balancers ask for health under any name, and learn nothing but that.
    let is_for_anyone = matches!(path, "/health/live" | "/health/ready");
    let allowed = &router.config.admin.allowed_hosts;
    if !is_for_anyone && !admin_host::is_allowed(request.uri(), request.headers(), allowed) {
        return refuse_host();
    }
    match path {
        "/health/live" if get => answer::text(StatusCode::OK, "live\n"),
        "/health/ready" if get => ready(router),
        "/metrics" if get => metrics(registry, request.headers()),
        "/admin/subscriptions" if get => subscriptions(router, request.headers()).await,
        "/admin/publish" if request.method() == Method::POST => match is_of_a_page(&request) {
            true => answer::text(StatusCode::FORBIDDEN, "web pages may not publish events\n"),
            false => publish(router, request).await,
        },
        "/admin/complete" if request.method() == Method::POST => match is_of_a_page(&request) {
            true => answer::text(StatusCode::FORBIDDEN, "web pages may not end subscriptions\n"),
            false => complete(router, &request),
        },
        "/admin/publish" | "/admin/complete" => not_allowed("POST"),
        "/health/live" | "/health/ready" | "/metrics" | "/admin/subscriptions" => {
            not_allowed("GET")
        }
        path if path.starts_with(profiling::PREFIX) => profiling::handle(router, &request).await,
        _ => answer::text(
            StatusCode::NOT_FOUND,
            "This is the admin listener. It has:\n\
             GET  /health/live         is the process alive?\n\
             GET  /health/ready        may it get traffic?\n\
             GET  /metrics             counters for Prometheus\n\
             GET  /admin/subscriptions providers, live triggers, groups and their subscribers\n\
             GET  /debug/pprof/        profiles, where the configuration allows them\n\
             POST /admin/publish?provider=memory/default&topic=T  publishes the body as an event,\n\
             or, as application/x-ndjson, each of its lines\n\
             POST /admin/complete?provider=memory/default&topic=T  ends the subscriptions to a topic, as complete\n",
        ),
    }
}

fn refuse_host() -> Answer {
    static LIMIT: LogLimit = LogLimit::new();
    if let Some(suppressed) = LIMIT.admit(Instant::now()) {
        tracing::warn!(
            suppressed,
            "a request to the admin listener is refused because of its header `host`; if the name is one of this \
             router, list it in `admin.allowed_hosts`"
        );
    }
    answer::text(
        StatusCode::MISDIRECTED_REQUEST,
        "the admin listener does not answer for the host that the request names: use an IP address or localhost, or \
         list the name in `admin.allowed_hosts`\n",
    )
}

fn not_allowed(allowed: &'static str) -> Answer {
    let mut answer =
        answer::text(StatusCode::METHOD_NOT_ALLOWED, format!("only {allowed} is allowed here\n"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// Ready from the first loaded graph until shutdown begins: a load balancer stops sending then.
fn ready(router: &Router) -> Answer {
    if router.is_leaving.load(Ordering::SeqCst) || *router.shutdown.borrow() {
        return answer::text(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n");
    }
    let away: Vec<&str> = router
        .providers
        .iter()
        .filter(|provider| !provider.is_connected())
        .map(|provider| provider.name())
        .collect();
    if away.is_empty() {
        return answer::text(StatusCode::OK, "ready\n");
    }
    // Queries do not need brokers, so one that is away does not take the router out of service.
    answer::text(StatusCode::OK, format!("ready; providers not connected: {}\n", away.join(", ")))
}

/// A page of any origin can make a browser on the operator's machine post here; operators use no browser for it.
fn is_of_a_page<B>(request: &Request<B>) -> bool {
    request.headers().contains_key(ORIGIN) || request.headers().contains_key("sec-fetch-site")
}

/// OpenMetrics for clients that ask for it, as Prometheus does; the older text format of Prometheus for all others.
fn metrics(registry: &Registry, headers: &HeaderMap) -> Answer {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let open_metrics = accepted.into_iter().any(|it| it.contains("application/openmetrics-text"));
    let content_type = match open_metrics {
        true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        false => "text/plain; version=0.0.4; charset=utf-8",
    };
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) if open_metrics => answer::with_type(StatusCode::OK, content_type, text.into()),
        Ok(()) => {
            let text = metrics_text::prometheus_text(&text);
            answer::with_type(StatusCode::OK, content_type, text.into())
        }
        Err(_) => {
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be printed\n")
        }
    }
}

/// A page for browsers, JSON for everybody else.
async fn subscriptions(router: &Router, headers: &HeaderMap) -> Answer {
    let (triggers, stats) = (router.hub.topology().await, router.hub.stats());
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepted.any(|it| it.contains("text/html")) {
        let page = topology::page(&router.providers, &triggers, stats);
        return answer::with_type(StatusCode::OK, "text/html; charset=utf-8", page.into());
    }
    let text = serde_json::to_vec(&topology::describe(&router.providers, &triggers, stats));
    answer::with_type(StatusCode::OK, "application/json", text.unwrap_or_default().into())
}

/// The value of a parameter of the URL.
fn parameter<B>(request: &Request<B>, wanted: &str) -> Option<String> {
    let parameters = request.uri().query().unwrap_or_default();
    url::form_urlencoded::parse(parameters.as_bytes())
        .find(|(name, _)| name == wanted)
        .map(|(_, value)| value.into_owned())
}

fn refuse(status: StatusCode, text: String) -> Answer {
    answer::text(status, format!("{text}\n"))
}

/// The provider and the topic that the URL names: `?provider=kind/id&topic=T`.
///
/// # Errors
/// The response that says what is missing or unknown.
fn provider_and_topic<'a, B>(
    router: &'a Router,
    request: &Request<B>,
) -> Result<(&'a Arc<dyn Provider>, String), Box<Answer>> {
    let provider = parameter(request, "provider").unwrap_or_else(|| "memory/default".to_owned());
    let Some(topic) = parameter(request, "topic").filter(|topic| !topic.is_empty()) else {
        let text = "say which topic: ?topic=T".to_owned();
        return Err(Box::new(refuse(StatusCode::BAD_REQUEST, text)));
    };
    let provider = router.providers.resolve(&provider);
    let provider = provider.map_err(|error| refuse(StatusCode::NOT_FOUND, error.to_string()))?;
    Ok((provider, topic))
}

/// `POST /admin/complete?provider=memory/id&topic=T`: the streams that listen to the topic end, and their subscriptions
/// are complete. For trying how clients handle that.
fn complete<B>(router: &Router, request: &Request<B>) -> Answer {
    let (provider, topic) = match provider_and_topic(router, request) {
        Ok(found) => found,
        Err(answer) => return *answer,
    };
    match provider.complete(&topic) {
        Ok(streams) => answer::text(StatusCode::OK, format!("ended {streams} streams\n")),
        Err(reason) => refuse(StatusCode::BAD_REQUEST, format!("{}: {reason}", provider.name())),
    }
}

/// `POST /admin/publish?provider=kind/id&topic=T`: the body is the event. With the content type `application/x-ndjson`,
/// each of its lines is one, so that a client that publishes many does not measure HTTP.
async fn publish(router: &Router, request: Request<Incoming>) -> Answer {
    let (provider, topic) = match provider_and_topic(router, &request) {
        Ok(found) => found,
        Err(answer) => return *answer,
    };
    let has_lines = request.headers().get(CONTENT_TYPE).is_some_and(|it| it == EVENTS_BY_LINE);
    let body: Bytes = match body::read(request.into_body(), EVENT_BYTES_MAX, BODY_TIME_MAX).await {
        Ok(body) => body,
        Err(body::BodyError::TooLarge) => {
            let text = format!("a test event may have {EVENT_BYTES_MAX} bytes");
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, text);
        }
        Err(_) => return refuse(StatusCode::BAD_REQUEST, "the body broke off".to_owned()),
    };
    let events: Vec<Bytes> = match has_lines {
        true => body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| body.slice_ref(line))
            .collect(),
        false => vec![body],
    };
    let limit = router.config.events.publish_timeout;
    let count = events.len();
    for (place, event) in events.into_iter().enumerate() {
        let (status, problem) =
            match tokio::time::timeout(limit, provider.publish(Message::new(&*topic, event))).await
            {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => (StatusCode::BAD_GATEWAY, error.to_string()),
                Err(_) => {
                    let text =
                        format!("{} did not take the event within {limit:?}", provider.name());
                    (StatusCode::GATEWAY_TIMEOUT, text)
                }
            };
        return match has_lines {
            true => refuse(status, format!("{place} of {count} events are published: {problem}")),
            false => refuse(status, problem),
        };
    }
    answer::text(StatusCode::OK, "published\n")
}
