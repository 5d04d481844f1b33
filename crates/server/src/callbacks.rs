//! The endpoint for callbacks of subgraphs, made from the configuration, and its own listener. On the listener for
//! clients, `frontend::pipeline` serves it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use admission::memory::MemoryAccount;
use config::{Config, SubscriptionCallback};
use frontend::callback::CallbackRoute;
use frontend::response::{self, Response};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use subscription_client::{CallbackEndpoint, CallbackSettings};

use crate::internal_listener::InternalListener;

/// The maximum number of connections at the same time; more wait. A subgraph has many replicas, and each keeps some
/// connections open.
const CONNECTIONS_MAX: usize = 1024;

/// Returns the endpoint for callbacks, if one is configured.
pub(crate) fn callback_endpoint(config: &Config) -> Option<Arc<CallbackEndpoint>> {
    let SubscriptionCallback { public_url, heartbeat_interval, .. } =
        config.subscriptions.callback.as_ref()?;
    let defaults = CallbackSettings::default();
    let sizes = config.subgraphs.values().map(|it| it.subscription.max_message_size);
    let settings = CallbackSettings {
        heartbeat_interval: Some(*heartbeat_interval).filter(|it| !it.is_zero()),
        // Each subgraph has a limit of its own besides.
        body_bytes_max: sizes.fold(defaults.body_bytes_max, usize::max),
        ..defaults
    };
    Some(CallbackEndpoint::new(public_url, settings))
}

/// Returns the address of the listener for callbacks, if they have one of their own.
pub(crate) fn own_address(config: &Config) -> Option<SocketAddr> {
    config.subscriptions.callback.as_ref().and_then(|it| it.listen)
}

/// Returns the endpoint at its path. Requests to it count as a part of `memory`.
pub(crate) fn route(
    config: &Config,
    endpoint: &Arc<CallbackEndpoint>,
    memory: &Arc<MemoryAccount>,
) -> CallbackRoute {
    let path = config.subscriptions.callback.as_ref().map(|it| it.path.clone());
    CallbackRoute {
        endpoint: Arc::clone(endpoint),
        path: path.unwrap_or_default(),
        body_timeout: config.http.body_timeout,
        memory: Arc::clone(memory),
    }
}

/// Serves callbacks until it is dropped, connections included. It continues while the router drains, because
/// subscriptions do.
pub(crate) async fn serve(
    route: Arc<CallbackRoute>,
    head_timeout: Duration,
    listener: std::net::TcpListener,
) {
    let served =
        InternalListener { name: "callbacks", connections_max: CONNECTIONS_MAX, head_timeout };
    served
        .serve(
            (listener, None),
            route,
            |route, request| async move { handle(&route, request).await },
        )
        .await;
}

async fn handle(route: &CallbackRoute, request: Request<Incoming>) -> Response {
    if !route.has_path(request.uri().path()) {
        return response::empty(StatusCode::NOT_FOUND);
    }
    match route.read(request).await {
        Ok(received) => route.respond(&received),
        Err(response) => *response,
    }
}
