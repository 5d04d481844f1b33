//! Prepares operations ahead of the clients that will send them.

use std::sync::Arc;
use std::time::Instant;

use clients::workers;
use prepare::{OperationRequest, PrepareError, Prepared, Preparer};
use tokio::sync::Semaphore;

/// The number of processors for each graph that prepares operations. Each takes half of one, so all graphs together
/// take a quarter of the machine.
const PROCESSORS_PER_GRAPH: usize = 2;

/// Bounds the work of graphs that prepare operations at the same time, for their requests have priority.
#[derive(Debug)]
pub(crate) struct PreparationPace(Semaphore);

impl PreparationPace {
    /// Creates the pace of all graphs of this machine. One graph at least is always at work.
    pub(crate) fn new() -> Self {
        Self(Semaphore::new((workers::available() / PROCESSORS_PER_GRAPH).max(1)))
    }

    /// Prepares an operation as [`prepare_gently`] does, once it is the turn of its graph.
    ///
    /// # Errors
    /// As [`Preparer::prepare`].
    pub(crate) async fn prepare(
        &self,
        preparer: &Preparer,
        request: &OperationRequest,
    ) -> Result<Arc<Prepared>, PrepareError> {
        // The semaphore is fair, and it is never closed.
        let _permit = self.0.acquire().await;
        prepare_gently(preparer, request).await
    }
}

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
