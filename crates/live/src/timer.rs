//! A timer for tasks that may have no deadline.

/// Sleeps until `instant`; for ever if it is `None`.
pub(super) async fn sleep_until(instant: Option<tokio::time::Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
