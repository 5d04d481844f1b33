//! The bytes of texts and variables that live subscriptions keep, to be prepared again for the next graph: counted for
//! each connection, which is bounded, and in all, for a metric.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use execute::{ErrorCode, GraphqlError};

use crate::operation::Ready;
use crate::router::Router;

/// The bytes that one live subscription keeps; counted until dropped.
#[derive(Debug)]
pub(crate) struct KeptBytes {
    bytes: usize,
    total: Arc<AtomicUsize>,
}

impl KeptBytes {
    /// Counts what `ready` will keep once it is live.
    pub(crate) fn of(router: &Router, ready: &Ready) -> Self {
        let values = ready.variables.values.iter().flatten();
        let bytes = ready.prepared.query.len()
            + ready.variables_text.len()
            + values.map(|value| value.len()).sum::<usize>();
        let total = Arc::clone(&router.kept_operation_bytes);
        total.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, total }
    }

    /// How many there are.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Refuses one more subscription of a connection that would keep more than `subscriptions.max_operation_bytes`.
pub(crate) fn refuse(router: &Router) -> GraphqlError {
    router.metrics.refused(ErrorCode::Overloaded);
    let message = format!(
        "the live subscriptions of this connection would keep more than {} bytes of texts and variables \
         (`subscriptions.max_operation_bytes`): complete one first, or use a connection more",
        router.config.subscriptions.max_operation_bytes
    );
    GraphqlError::new(ErrorCode::Overloaded, message)
}
