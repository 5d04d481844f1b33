//! Live transports: WebSockets and event streams on reactor threads, and a task for each event stream by HTTP/2. What is
//! waiting for a slow socket is bounded in [`backlog`].

mod backlog;
pub(crate) mod client_work;
pub(crate) mod group_shares;
mod init_payload;
pub(crate) mod kept_operations;
mod large_messages;
mod leaving;
pub(crate) mod once;
pub(crate) mod outlet;
mod queue_total;
#[cfg(target_os = "linux")]
pub(crate) mod reactors;
pub(crate) mod running;
pub(crate) mod single;
mod spread;
pub(crate) mod sse;
pub(crate) mod websocket;

use http::HeaderMap;

use crate::authentication::Identity;
use crate::metrics::{Policy, PolicyLabel};
use crate::router::Router;
pub(crate) use queue_total::QueueTotal;
pub(crate) use websocket::SLOW_SUBSCRIBER;

/// Who is behind a connection: what its operations are prepared with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    /// Those of the handshake, and of `connection_init` where that is allowed.
    pub(crate) headers: HeaderMap,
    /// Of the token that came last.
    pub(crate) identity: Identity,
}

/// Reason of a connection that is closed because its client's token has expired, with the code 4403.
const TOKEN_EXPIRED: &str = "token expired";

/// Sleeps until then; for ever without an instant.
async fn sleep_until(instant: Option<tokio::time::Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Counts what a policy dropped.
fn count_dropped(router: &Router, dropped: u64) {
    if dropped > 0 {
        let policy = Policy::of(router.config.subscriptions.policy);
        router.metrics.slow_subscribers.get_or_create(&PolicyLabel { policy }).inc_by(dropped);
    }
}
