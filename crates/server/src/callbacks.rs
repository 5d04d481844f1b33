//! The endpoint for callbacks of subgraphs, made from the configuration, and its own listener. On the listener for
//! clients, `frontend::pipeline` serves it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use config::{Config, SubscriptionCallback};
use frontend::callback::CallbackRoute;
use frontend::response::{self, Response};
use frontend::write_timeout::{STALL_TIME_MAX, WriteTimeout};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use subscription_client::{CallbackEndpoint, CallbackSettings};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The maximum number of connections at the same time; more wait. A subgraph has many replicas, and each keeps some
/// connections open.
const CONNECTIONS_MAX: usize = 1024;

/// The maximum size of the head of a request. The library's default would be 400 KiB for each connection.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The pause after a failed `accept`, which most likely failed because no descriptor was free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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

/// Returns the endpoint at its path.
pub(crate) fn route(config: &Config, endpoint: &Arc<CallbackEndpoint>) -> CallbackRoute {
    let path = config.subscriptions.callback.as_ref().map(|it| it.path.clone());
    CallbackRoute {
        endpoint: Arc::clone(endpoint),
        path: path.unwrap_or_default(),
        body_timeout: config.http.body_timeout,
    }
}

/// Serves callbacks until it is dropped, connections included. It continues while the router drains, because
/// subscriptions do.
pub(crate) async fn serve(
    route: Arc<CallbackRoute>,
    head_timeout: Duration,
    listener: std::net::TcpListener,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the listener for callbacks cannot be served");
            return;
        }
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Best effort: without it responses are slower.
        let _ = socket.set_nodelay(true);
        let route = Arc::clone(&route);
        connections.spawn(async move {
            let _permit = permit;
            let service = service_fn(|request| {
                let route = Arc::clone(&route);
                async move { Ok::<_, Infallible>(handle(&route, request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(head_timeout)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(WriteTimeout::new(socket, STALL_TIME_MAX)), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection for callbacks ended early");
            }
        });
    }
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
