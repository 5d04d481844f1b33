//! Timers of tasks that may have nothing to wait for.

/// Sleeps until `instant`; for ever without one.
pub(super) async fn sleep_until(instant: Option<tokio::time::Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
