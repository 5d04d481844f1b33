//! The admin listener: health, metrics, use of fields, live subscriptions, caches, test events, reloads. For operators,
//! not for clients.
//!
//! This module has the table of paths and the responses that need nothing but the state of the router. The modules
//! below it act, and the console uses them as well.

pub(crate) mod invalidations;
pub(crate) mod publishing;
pub(crate) mod requests;
pub(crate) mod state;
pub(crate) mod subscriptions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use frontend::response::{self, Response};
use http::header::{ACCEPT, ALLOW, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;
use net::TlsServer;
use telemetry::{LogLimit, MetricsExporter, TextFormat};

use self::invalidations::{invalidate, preview_invalidation};
use self::publishing::{complete, publish};
use self::requests::parameter;
use self::state::Admin;
use self::subscriptions::subscriptions;
use crate::cache_page::{self, CachePage};
use crate::internal_listener::{HasClientCertificate, InternalListener};
use crate::reload_requests::ReloadRequest;
use crate::warming;
use crate::{admin_host, admin_reload, console_api, profiling, usage_page};

/// The listener. Operators and Prometheus need a handful of connections.
const LISTENER: InternalListener =
    InternalListener { name: "admin", connections_max: 64, head_timeout: Duration::from_secs(30) };

/// Serves until it is dropped, connections included. It continues while the router shuts down, because `/health/ready`
/// reports that, and the last counters are useful.
pub(crate) async fn serve(
    admin: Arc<Admin>,
    listener: std::net::TcpListener,
    tls: Option<Arc<TlsServer>>,
) {
    LISTENER
        .serve(
            (listener, tls),
            admin,
            |admin, request| async move { handle(&admin, request).await },
        )
        .await;
}

async fn handle(admin: &Arc<Admin>, request: Request<Incoming>) -> Response {
    let get = request.method() == Method::GET || request.method() == Method::HEAD;
    let path = request.uri().path();
    // Load balancers ask for health under any name, and learn nothing else.
    let is_health_check = matches!(path, "/health/live" | "/health/ready");
    let allowed = &admin.settings.allowed_hosts;
    if !is_health_check && !admin_host::is_allowed(request.uri(), request.headers(), allowed) {
        return refuse_host();
    }
    let needs_certificate = admin.settings.needs_client_certificate();
    let has_certificate = request.extensions().get::<HasClientCertificate>().is_some();
    if needs_certificate && !has_certificate && !is_health_check {
        let text = "this listener needs a client certificate (`admin.tls.client_ca`)\n";
        return response::text(StatusCode::FORBIDDEN, text);
    }
    let is_of_graph = matches!(
        path,
        "/admin/subscriptions" | "/admin/operations" | "/admin/reload" | "/admin/rollback"
    );
    let name = parameter(&request, "graph").filter(|_| is_of_graph);
    let graph = match admin.graph(name.as_deref()) {
        Ok(graph) => graph,
        Err(text) => return response::text(StatusCode::NOT_FOUND, format!("{text}\n")),
    };
    match path {
        "/health/live" if get => response::text(StatusCode::OK, "live\n"),
        "/health/ready" if get => ready(admin),
        "/metrics" if get => metrics_text(&admin.metrics, request.headers()),
        "/admin/subscriptions" if get => {
            let topic = parameter(&request, "topic");
            subscriptions(admin, graph, request.headers(), topic.as_deref()).await
        }
        "/admin/usage" if get => usage_page::respond(&admin.serving).await,
        "/admin/operations" if get => {
            let graph = graph.serving.current();
            warming::export::respond(&graph.preparer, parameter(&request, "limit"))
        }
        "/admin/cache" if get => {
            let serving = admin.serving.current();
            let shows_values = admin.settings.show_values;
            admin.cache_page.overview(serving.caching.as_ref(), request.headers(), shows_values)
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
        "/admin/reload" | "/admin/rollback" if request.method() == Method::POST => {
            if is_from_web_page(&request) {
                let text = "web pages may not replace the graph\n";
                return response::text(StatusCode::FORBIDDEN, text);
            }
            let wanted = match path == "/admin/reload" {
                true => ReloadRequest::Reload,
                false => ReloadRequest::Rollback,
            };
            admin_reload::respond(graph.reload_requests, wanted).await
        }
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
        "/admin/publish"
        | "/admin/complete"
        | "/admin/reload"
        | "/admin/rollback"
        | "/admin/invalidate"
        | "/admin/cache/preview" => not_allowed("POST"),
        "/health/live"
        | "/health/ready"
        | "/metrics"
        | "/admin/subscriptions"
        | "/admin/usage"
        | "/admin/operations"
        | "/admin/cache"
        | "/admin/cache/page.js"
        | "/admin/cache/page.css" => not_allowed("GET"),
        path if path.starts_with(profiling::PREFIX) => {
            profiling::handle(&admin.settings, &admin.workers, &request).await
        }
        path => match &admin.console {
            Some(console) if console.serves(path) => {
                console_api::handle(admin, console, request).await
            }
            console => help(console.as_ref().map(|_| &admin.settings.console)),
        },
    }
}

/// The paths for which GET is allowed. The console has a line of its own behind them, because it may be moved or off.
const HELP_GET: &str = "This is the admin listener. It has:\n\
     GET  /health/live         status 200 if the process runs\n\
     GET  /health/ready        status 200 if the router accepts traffic\n\
     GET  /metrics             counters for Prometheus\n\
     GET  /admin/subscriptions providers, live triggers, groups and their subscribers\n\
     GET  /admin/usage         use of fields and arguments by client, for `starling diff --usage`\n\
     GET  /admin/operations    the most used operations, from which other routers warm their caches\n\
     GET  /admin/cache         hit ratios, stores, hot and large entries, if `cache.enabled` is set\n\
     GET  /debug/pprof/        profiles, if `admin.profiling` is set\n";

/// The paths for which POST is allowed.
const HELP_POST: &str = "POST /admin/publish?provider=memory/default&topic=T  publishes the body as an event,\n\
     or, as application/x-ndjson, each of its lines\n\
     POST /admin/complete?provider=memory/default&topic=T  completes the subscriptions to a topic\n\
     POST /admin/reload        reads the graph again\n\
     POST /admin/rollback      returns to the graph before, until the source changes\n\
     POST /admin/invalidate    makes stale what the JSON body names, if `cache.enabled` is set\n\
     POST /admin/cache/preview counts what /admin/invalidate would make stale\n\
     With several graphs, the parameter `graph` names one for /admin/subscriptions, operations, reload, rollback\n";

/// Says what the listener serves. `console` has the settings of the console; `None` if it is off.
fn help(console: Option<&config::Console>) -> Response {
    response::text(StatusCode::NOT_FOUND, help_text(console))
}

fn help_text(console: Option<&config::Console>) -> String {
    let console = console.map(|it| {
        let path = format!("{}/", it.prefix());
        format!("GET  {path:<20} the console, a page for browsers (`admin.console`)\n")
    });
    format!("{HELP_GET}{}{HELP_POST}", console.unwrap_or_default())
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

/// Responds with 200 once the router is warm (`warming`) until shutdown begins, so that a load balancer stops sending
/// requests then, and not while the router refuses many requests or is short of memory, if `admission.readiness` says
/// so.
fn ready(admin: &Admin) -> Response {
    if admin.shutdown.is_leaving() {
        return response::text(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n");
    }
    if let Some(reason) = admin.warming.unready_reason() {
        return response::text(StatusCode::SERVICE_UNAVAILABLE, reason);
    }
    let overload = admin.serving.overload.as_ref();
    if let Some(reason) = overload.and_then(|it| it.unready_reason()) {
        return response::text(StatusCode::SERVICE_UNAVAILABLE, format!("overloaded: {reason}\n"));
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

#[cfg(test)]
mod tests {
    use config::ADMIN_PATHS;

    use super::*;

    #[test]
    fn the_console_cannot_have_a_path_that_the_listener_serves() {
        let help = help_text(None);
        let words = help.split_whitespace().filter(|it| it.starts_with('/'));
        let paths: Vec<&str> = words.map(|it| it.split('?').next().unwrap_or(it)).collect();
        assert!(paths.len() > 12, "{paths:?}");
        let is_below = |path: &str, taken: &str| {
            path.strip_prefix(taken).is_some_and(|it| it.is_empty() || it.starts_with(['/', ',']))
        };
        for path in &paths {
            assert!(ADMIN_PATHS.iter().any(|it| is_below(path, it)), "{path}");
        }
        for taken in ADMIN_PATHS {
            assert!(paths.iter().any(|path| is_below(path, taken)), "{taken}");
        }
    }

    #[test]
    fn the_help_has_the_path_of_the_console() {
        let line = |path: &str| {
            let console = config::Console { path: path.to_owned(), ..config::Console::default() };
            let help = help_text(Some(&console));
            help.lines().find(|it| it.contains("the console")).map(str::to_owned)
        };
        let expected =
            "GET  /console/            the console, a page for browsers (`admin.console`)";
        assert_eq!(line("/console").as_deref(), Some(expected));
        let expected =
            "GET  /ops/console/        the console, a page for browsers (`admin.console`)";
        assert_eq!(line("/ops/console/").as_deref(), Some(expected));
        assert!(!help_text(None).contains("console"));
    }
}
