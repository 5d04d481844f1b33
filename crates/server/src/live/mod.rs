//! Live transports: WebSocket connections and event streams, one task each. What is waiting for a
//! slow socket is bounded in [`outlet`].

pub(crate) mod outlet;
pub(crate) mod running;
pub(crate) mod sse;
pub(crate) mod websocket;

use crate::metrics::{Policy, PolicyLabel};
use crate::router::Router;
pub(crate) use websocket::SLOW_SUBSCRIBER;

/// Sleeps until then; for ever without an instant.
async fn sleep_until(instant: Option<tokio::time::Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Moves what an outlet dropped into the metrics.
fn count_dropped(router: &Router, outlet: &outlet::ConnectionOutlet) {
    let dropped = outlet.take_dropped();
    if dropped > 0 {
        let policy = Policy::of(router.config.subscriptions.policy);
        router.metrics.slow_subscribers.get_or_create(&PolicyLabel { policy }).inc_by(dropped);
    }
}
