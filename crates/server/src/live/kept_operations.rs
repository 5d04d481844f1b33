//! What the live subscriptions of a connection keep: the bytes of their texts and variables, which are needed to prepare them
//! for the next graph, and topics of brokers. Both are bounded for each connection. The bytes are counted in all, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use execute::{ErrorCode, GraphqlError};

use crate::operation::Ready;
use crate::router::Router;

/// How much of what is bounded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Amounts {
    /// Bytes of texts and variables.
    bytes: u32,
    /// Topics of brokers.
    topics: u32,
}

/// What one live subscription keeps; counted until dropped.
#[derive(Debug)]
pub(crate) struct KeptOperation {
    amounts: Amounts,
    total: Arc<AtomicUsize>,
}

impl Amounts {
    /// Counts in.
    pub(crate) fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.topics = self.topics.saturating_add(other.topics);
    }

    /// Counts out.
    pub(crate) fn subtract(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.topics = self.topics.saturating_sub(other.topics);
    }
}

impl KeptOperation {
    /// Counts what `ready` will keep once it is live, but for its topics.
    pub(crate) fn of(router: &Router, ready: &Ready) -> Self {
        let values = ready.variables.values.iter().flatten();
        let bytes = ready.prepared.query.len()
            + ready.variables_text.len()
            + values.map(|value| value.len()).sum::<usize>();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let total = Arc::clone(&router.kept_operation_bytes);
        total.fetch_add(bytes as usize, Ordering::Relaxed);
        Self { amounts: Amounts { bytes, topics: 0 }, total }
    }

    /// Counts the topics of its source.
    pub(crate) fn set_topics(&mut self, topics: usize) {
        self.amounts.topics = u32::try_from(topics).unwrap_or(u32::MAX);
    }

    /// How much it keeps.
    pub(crate) fn amounts(&self) -> Amounts {
        self.amounts
    }

    /// Checks that a connection may keep this beside what it has already, `held`.
    ///
    /// # Errors
    /// `OVERLOADED`, with the bound that would be broken.
    pub(crate) fn check(&self, router: &Router, mut held: Amounts) -> Result<(), GraphqlError> {
        held.add(self.amounts);
        let settings = &router.config.subscriptions;
        let message = if held.bytes as usize > settings.max_operation_bytes {
            format!(
                "the live subscriptions of this connection would keep more than {} bytes of texts and variables \
                 (`subscriptions.max_operation_bytes`): complete one first, or open another connection",
                settings.max_operation_bytes
            )
        } else if held.topics > settings.max_topics_per_connection {
            format!(
                "the live subscriptions of this connection would listen to more than {} topics \
                 (`subscriptions.max_topics_per_connection`): complete one first, or open another connection",
                settings.max_topics_per_connection
            )
        } else {
            return Ok(());
        };
        router.metrics.refused(ErrorCode::Overloaded);
        Err(GraphqlError::new(ErrorCode::Overloaded, message))
    }
}

impl Drop for KeptOperation {
    fn drop(&mut self) {
        self.total.fetch_sub(self.amounts.bytes as usize, Ordering::Relaxed);
    }
}
