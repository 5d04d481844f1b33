//! Prepares operations ahead of the clients that will send them.

use std::sync::Arc;
use std::time::Instant;

use prepare::{OperationRequest, PrepareError, Prepared, Preparer};

/// Prepares an operation, and then pauses for as long as that took. Requests have priority: one call after the other
/// takes at most half of one CPU.
///
/// # Errors
/// As [`Preparer::prepare`].
pub(crate) async fn prepare_gently(
    preparer: &Preparer,
    request: &OperationRequest,
) -> Result<Arc<Prepared>, PrepareError> {
    let began = Instant::now();
    let prepared = preparer.prepare(request).await;
    tokio::time::sleep(began.elapsed()).await;
    prepared
}
