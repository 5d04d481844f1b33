//! The console on the admin listener: its files, and the JSON that they read below `api/`.
//!
//! The crate `console` has the files. [`figures`] reads what has a history, [`state`] is kept between requests, and the
//! modules beside them write one part of the JSON each.

mod access;
mod figures;
mod graph_map;
mod log_level;
mod operations;
mod overview;
mod slow_requests;
pub(crate) mod state;
mod subgraphs;
mod subscribers;

use std::sync::Arc;

use bytes::Bytes;
use frontend::body;
use frontend::response::{self, Response};
use http::header::{ALLOW, CACHE_CONTROL, HeaderName, LOCATION, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;
use live::watches::{UNREAD_TIME_MAX, WATCHED_MAX, WatchRefused};
use serde_json::Value;
use tokio::sync::Semaphore;

use self::access::AccessRefused;
use self::state::{ConsoleState, GraphState};
use crate::admin::requests::{BODY_TIME_MAX, parameter};
use crate::admin::state::Admin;
use crate::admin::{invalidations, publishing, subscriptions};

/// Responds to a request for a path of the console.
pub(crate) async fn handle(
    admin: &Arc<Admin>,
    state: &Arc<ConsoleState>,
    request: Request<Incoming>,
) -> Response {
    let path = request.uri().path();
    let Some(below) = state.path_below(path) else { return redirect(&state.settings) };
    match below.strip_prefix("api/") {
        Some(name) => {
            let name = name.to_owned();
            match access::check(&request, state.settings.token.as_ref()) {
                Ok(()) => handle_data(admin, state, &name, request).await,
                Err(AccessRefused::Token) => refuse_token(),
                Err(AccessRefused::ForeignPage) => {
                    let text = "pages of other origins may not use the console\n";
                    response::text(StatusCode::FORBIDDEN, text)
                }
            }
        }
        None => match console::asset(below) {
            _ if request.method() != Method::GET => not_allowed("GET"),
            Some(asset) => file(asset),
            None => response::text(StatusCode::NOT_FOUND, "the console has no such page\n"),
        },
    }
}

/// The header of the response to each allowed request below `api/` with the names of the graphs, that of `supergraph`
/// first. The page learns from the data that it reads anyway, and from a refusal, that graphs were added or removed.
const GRAPHS_HEADER: &str = "starling-graphs";

/// Responds to a request below `api/` that is allowed.
async fn handle_data(
    admin: &Arc<Admin>,
    state: &Arc<ConsoleState>,
    name: &str,
    request: Request<Incoming>,
) -> Response {
    let is_post = *request.method() == Method::POST;
    let mut response = if is_post {
        handle_post(admin, state, name, request).await
    } else {
        handle_get(admin, state, name, &request).await
    };
    if let Some(names) = state.graphs_header() {
        response.headers_mut().insert(HeaderName::from_static(GRAPHS_HEADER), names);
    }
    response
}

/// Responds with data.
async fn handle_get(
    admin: &Arc<Admin>,
    state: &Arc<ConsoleState>,
    name: &str,
    request: &Request<Incoming>,
) -> Response {
    let graph = match select_graph(state, name, request) {
        Ok(selected) => selected,
        Err(response) => return *response,
    };
    let parameter = |name| parameter(request, name).unwrap_or_default();
    match name {
        _ if POSTED.contains(&name) => not_allowed("POST"),
        _ if request.method() != Method::GET => not_allowed("GET"),
        "overview" => {
            let wanted = wanted_graph(name, request);
            json(&overview::describe(admin, state, wanted.as_deref()))
        }
        "subgraph" => {
            let subgraph = overview::describe_subgraph(state, &parameter("name"));
            found(subgraph, "there is no such subgraph\n")
        }
        "operations" => json(&operations::describe(admin)),
        "operation" => {
            let (name, kind, graph) = (parameter("name"), parameter("kind"), Arc::clone(graph));
            let read = move || operations::describe_one(&graph.serving, &name, &kind);
            read_blocking(read, "there is no such operation\n").await
        }
        "live" => {
            let (hub, serving) = (&graph.hub, &graph.serving);
            let mut live = subscriptions::describe_subscriptions(admin, hub, serving, None).await;
            (live["transports"], live["slowReaders"]) = state.figures.describe_transports();
            json(&live)
        }
        "subscribers" => {
            let (group, shows_values) = (parameter("group"), admin.settings.show_values);
            let (hub, live) = (&graph.hub, &graph.live);
            let group = subscribers::describe_group(hub, live, &group, shows_values).await;
            found(group, "there is no such group any more\n")
        }
        "subscriber" => {
            let watched = subscribers::describe_watched(&graph.live, &parameter("id"));
            found(watched, "this subscriber is not watched: begin with POST watch\n")
        }
        "graph" => {
            let graph = Arc::clone(graph);
            let minute = overview::subgraphs_in_last_minute(state, &graph.name);
            let read =
                move || Some(graph_map::describe(&graph.serving, &graph.last_reload, &minute));
            read_blocking(read, "there is no graph\n").await
        }
        "type" => {
            let (name, graph) = (parameter("name"), Arc::clone(graph));
            let read = move || graph_map::describe_type(&graph.serving, &name);
            read_blocking(read, "there is no such type\n").await
        }
        "slow" => json(&slow_requests::describe(state.recorder())),
        "trace" => {
            let number = parameter("number").parse().unwrap_or_default();
            let trace = slow_requests::describe_trace(state.recorder(), number);
            found(trace, "this request is not in the flight recorder any more\n")
        }
        "tools" => json(&describe_tools(admin, state)),
        "graphs" => {
            let names: Vec<&str> = state.graph_names().collect();
            json(&serde_json::json!({"graphs": names}))
        }
        _ => response::text(StatusCode::NOT_FOUND, "the console has no such data\n"),
    }
}

/// The data that is changed or asked for by POST.
const POSTED: [&str; 6] = ["publish", "invalidate", "preview", "explain", "log-level", "watch"];

/// The data of one graph, which the parameter `graph` names. Without the parameter, the overview is that of all graphs.
/// Other data is the same for all graphs.
const OF_GRAPH: [&str; 9] = [
    "overview",
    "operation",
    "live",
    "subscribers",
    "subscriber",
    "watch",
    "graph",
    "type",
    "explain",
];

/// Returns the graph that a request for the data `name` is about. Without the parameter, and for data that is the same
/// for all graphs, it is the graph of `supergraph`.
///
/// # Errors
/// There is no graph of this name.
fn select_graph<'a>(
    state: &'a ConsoleState,
    name: &str,
    request: &Request<Incoming>,
) -> Result<&'a Arc<GraphState>, Box<Response>> {
    let graph = state.graph(wanted_graph(name, request).as_deref());
    graph.map_err(|text| Box::new(response::text(StatusCode::NOT_FOUND, format!("{text}\n"))))
}

/// Returns the name of the graph that a request for the data `name` asks for, if the data is that of one graph. An
/// empty name is none.
fn wanted_graph<B>(name: &str, request: &Request<B>) -> Option<String> {
    parameter(request, "graph").filter(|it| !it.is_empty() && OF_GRAPH.contains(&name))
}

/// Responds to a request of a tool.
async fn handle_post(
    admin: &Arc<Admin>,
    state: &ConsoleState,
    name: &str,
    request: Request<Incoming>,
) -> Response {
    let graph = match select_graph(state, name, &request) {
        Ok(selected) => selected,
        Err(response) => return *response,
    };
    match name {
        "publish" => publishing::publish(admin, request).await,
        "invalidate" => invalidations::invalidate(admin, request).await,
        "preview" => invalidations::preview_invalidation(admin, request).await,
        "explain" => explain(graph, request).await,
        "watch" => {
            let id = parameter(&request, "id").unwrap_or_default();
            watched(subscribers::watch(&graph.live, &id).await)
        }
        "log-level" => {
            let level = parameter(&request, "level").unwrap_or_default();
            let minutes = parameter(&request, "minutes").unwrap_or_default();
            match log_level::change(&state.log_level, &level, &minutes) {
                Ok(changed) => json(&changed),
                Err(problem) => response::text(StatusCode::BAD_REQUEST, format!("{problem}\n")),
            }
        }
        _ => response::text(StatusCode::NOT_FOUND, "the console has no such tool\n"),
    }
}

/// Responds to a request to watch a subscriber.
fn watched(result: Result<Value, WatchRefused>) -> Response {
    match result {
        Ok(history) => json(&history),
        Err(WatchRefused::NotFound) => {
            response::text(StatusCode::NOT_FOUND, "there is no such subscriber any more\n")
        }
        Err(WatchRefused::TooMany) => {
            let minutes = UNREAD_TIME_MAX.as_secs() / 60;
            let text = format!(
                "{WATCHED_MAX} subscribers are watched, the maximum; each is forgotten {minutes} minutes after its page \
                 was last updated\n"
            );
            response::text(StatusCode::TOO_MANY_REQUESTS, text)
        }
    }
}

/// Says which tools are available.
fn describe_tools(admin: &Admin, state: &ConsoleState) -> Value {
    let graph = admin.serving.current();
    let providers = admin.providers.iter().map(|it| it.name()).collect::<Vec<_>>();
    serde_json::json!({
        "providers": providers,
        "hasCache": graph.caching.is_some(),
        "hasProfiles": admin.settings.profiling,
        "logLevel": log_level::describe(&state.log_level),
    })
}

/// Explains the plan of the operation in the body. Planning takes CPU time, so one is explained at a time.
async fn explain(graph: &Arc<GraphState>, request: Request<Incoming>) -> Response {
    static RUNNING: Semaphore = Semaphore::const_new(1);
    let name = parameter(&request, "name").filter(|it| !it.is_empty());
    let (size, time) = (operations::EXPLAINED_BYTES_MAX, BODY_TIME_MAX);
    let Ok(body) = body::read(request.into_body(), size, time).await else {
        let text = format!("the operation is incomplete, or has more than {size} bytes\n");
        return response::text(StatusCode::BAD_REQUEST, text);
    };
    let Ok(permit) = RUNNING.try_acquire() else {
        let text = "another plan is being explained; try again in a moment\n";
        return response::text(StatusCode::TOO_MANY_REQUESTS, text);
    };
    let graph = Arc::clone(graph);
    let explained = tokio::task::spawn_blocking(move || {
        // Held until the end also if the client leaves.
        let _permit = permit;
        operations::explain(&graph.serving, &body, name.as_deref())
    });
    match explained.await {
        Ok(Ok(plan)) => json(&plan),
        Ok(Err(problem)) => response::text(StatusCode::BAD_REQUEST, format!("{problem}\n")),
        Err(_) => {
            let text = "the plan could not be made because of a defect of the router\n";
            response::text(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    }
}

fn file(asset: console::Asset) -> Response {
    let body = Bytes::from_static(asset.text.as_bytes());
    let mut response = response::with_type(StatusCode::OK, asset.content_type, body);
    for (name, value) in console::HEADERS {
        let name = HeaderName::from_static(name);
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Sends browsers to the path with a slash, below which the files are.
fn redirect(settings: &config::Console) -> Response {
    let target = format!("{}/", settings.prefix());
    let mut response = response::text(StatusCode::PERMANENT_REDIRECT, format!("see {target}\n"));
    // A path of the configuration is checked, and valid in a header.
    if let Ok(value) = HeaderValue::from_str(&target) {
        response.headers_mut().insert(LOCATION, value);
    }
    response
}

fn refuse_token() -> Response {
    let text = "the console needs its token (`admin.console.token`) as `authorization: Bearer …`\n";
    let mut response = response::text(StatusCode::UNAUTHORIZED, text);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn not_allowed(allowed: &'static str) -> Response {
    let text = format!("only {allowed} is allowed here\n");
    let mut response = response::text(StatusCode::METHOD_NOT_ALLOWED, text);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Responds with data that takes a time which grows with the number of prepared operations. It is read apart from the
/// control runtime, on which events are waiting, and for one page at a time.
async fn read_blocking(
    read: impl FnOnce() -> Option<Value> + Send + 'static,
    missing: &'static str,
) -> Response {
    static RUNNING: Semaphore = Semaphore::const_new(1);
    let permit = RUNNING.acquire().await;
    let read = tokio::task::spawn_blocking(move || {
        // Held until the end also if the client leaves.
        let _permit = permit;
        read()
    });
    match read.await {
        Ok(value) => found(value, missing),
        Err(_) => {
            let text = "the data could not be read because of a defect of the router\n";
            response::text(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    }
}

fn found(value: Option<Value>, missing: &'static str) -> Response {
    match value {
        Some(value) => json(&value),
        None => response::text(StatusCode::NOT_FOUND, missing),
    }
}

fn json(value: &Value) -> Response {
    // Writing a value into memory cannot fail.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut response = response::with_type(StatusCode::OK, "application/json", text.into());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_its_graph_only_for_data_that_each_graph_has() {
        let request = Request::builder().uri("/console/api/live?graph=partners").body(());
        let request = request.expect("a request");
        for name in OF_GRAPH {
            assert_eq!(wanted_graph(name, &request).as_deref(), Some("partners"), "{name}");
        }
        for name in ["operations", "subgraph", "slow", "graphs", "publish", "log-level"] {
            assert_eq!(wanted_graph(name, &request), None, "{name}");
        }
        let empty = Request::builder().uri("/console/api/overview?graph=").body(());
        let empty = empty.expect("a request");
        assert_eq!(wanted_graph("overview", &empty), None, "an empty name is none");
        assert_eq!(wanted_graph("live", &Request::new(())), None, "the request names none");
    }
}
