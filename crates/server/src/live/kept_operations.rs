//! The memory of live subscriptions: their texts and variables, which are kept to prepare them for the next graph, and
//! their topics at brokers. Both are limited per connection. The bytes of all connections are counted for a metric.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::Subscriptions;
use execute::{ErrorCode, GraphqlError};
use telemetry::Metric;

/// The metrics of the bytes of texts and variables that all connections keep.
pub(crate) const KEPT_OPERATION_METRICS: &[Metric<AtomicUsize>] = &[Metric::gauge(
    "starling_subscriptions_operation_bytes",
    "Bytes of texts and variables of live subscriptions (subscriptions.max_operation_bytes for each connection)",
    |it| it.load(Ordering::Relaxed) as u64,
)];

/// The amounts that are limited.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Amounts {
    /// The bytes of texts and variables.
    bytes: u32,
    /// The number of topics at brokers.
    topics: u32,
}

/// The sum of the live subscriptions of an HTTP/2 connection, on which each stream has a list of its own.
#[derive(Debug)]
pub(crate) struct KeptTotal {
    /// A number that no other connection has, ever.
    id: u64,
    amounts: Mutex<Amounts>,
}

/// The amounts that a connection keeps already when one more subscription begins.
#[derive(Clone, Debug)]
pub(crate) enum ExistingAmounts {
    /// The sum over the connection's own list, which contains the new subscription once it is live.
    Amounts(Amounts),
    /// A total in which the new subscription is counted.
    Total(Arc<KeptTotal>),
}

/// The amounts of one live subscription, counted until dropped.
#[derive(Debug)]
pub(crate) struct KeptOperation {
    amounts: Amounts,
    total: Arc<AtomicUsize>,
}

/// The share of one subscription in a [`KeptTotal`]; counted until dropped.
// Not a field of `KeptOperation`, which every connection of a reactor has.
#[derive(Debug)]
pub(crate) struct KeptShare {
    amounts: Amounts,
    connection: Arc<KeptTotal>,
}

impl Amounts {
    /// Adds the amounts of another subscription.
    pub(crate) fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.topics = self.topics.saturating_add(other.topics);
    }

    /// Subtracts the amounts of a subscription that is over.
    pub(crate) fn subtract(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.topics = self.topics.saturating_sub(other.topics);
    }
}

impl KeptOperation {
    /// Counts the bytes of a subscription's text and variables, also in `total`.
    pub(crate) fn new(total: &Arc<AtomicUsize>, bytes: usize) -> Self {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        total.fetch_add(bytes as usize, Ordering::Relaxed);
        Self { amounts: Amounts { bytes, topics: 0 }, total: Arc::clone(total) }
    }

    /// Counts the topics of the subscription's source.
    pub(crate) fn set_topics(&mut self, topics: usize) {
        self.amounts.topics = u32::try_from(topics).unwrap_or(u32::MAX);
    }

    /// Returns the amounts of the subscription.
    pub(crate) fn amounts(&self) -> Amounts {
        self.amounts
    }

    /// Checks that a connection may keep the subscription in addition to `held`. Returns its share if `held` is a
    /// [`KeptTotal`].
    ///
    /// # Errors
    /// `OVERLOADED`, with the limit that would be exceeded.
    pub(crate) fn check(
        &self,
        settings: &Subscriptions,
        held: &ExistingAmounts,
    ) -> Result<Option<KeptShare>, GraphqlError> {
        match held {
            ExistingAmounts::Amounts(held) => held.check_with(self.amounts, settings).map(|_| None),
            ExistingAmounts::Total(connection) => {
                connection.count_in(self.amounts, settings).map(Some)
            }
        }
    }
}

impl Amounts {
    /// Returns the sum with `more`, or an error if it exceeds a limit of a connection.
    fn check_with(mut self, more: Self, settings: &Subscriptions) -> Result<Self, GraphqlError> {
        self.add(more);
        let message = if self.bytes as usize > settings.max_operation_bytes {
            format!(
                "the live subscriptions of this connection would keep more than {} bytes of texts and variables \
                 (`subscriptions.max_operation_bytes`): complete one first, or open another connection",
                settings.max_operation_bytes
            )
        } else if self.topics > settings.max_topics_per_connection {
            format!(
                "the live subscriptions of this connection would listen to more than {} topics \
                 (`subscriptions.max_topics_per_connection`): complete one first, or open another connection",
                settings.max_topics_per_connection
            )
        } else {
            return Ok(self);
        };
        Err(GraphqlError::new(ErrorCode::Overloaded, message))
    }
}

impl KeptTotal {
    /// Makes the sum of a new connection.
    pub(crate) fn new() -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { id, amounts: Mutex::default() })
    }

    fn count_in(
        self: &Arc<Self>,
        amounts: Amounts,
        settings: &Subscriptions,
    ) -> Result<KeptShare, GraphqlError> {
        let mut held = self.amounts();
        *held = held.check_with(amounts, settings)?;
        drop(held);
        Ok(KeptShare { amounts, connection: Arc::clone(self) })
    }

    /// Returns a number that no other connection has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Locks the sum. Nothing panics under this lock, so a poisoned lock holds valid numbers.
    fn amounts(&self) -> MutexGuard<'_, Amounts> {
        self.amounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeptOperation {
    fn drop(&mut self) {
        self.total.fetch_sub(self.amounts.bytes as usize, Ordering::Relaxed);
    }
}

impl Drop for KeptShare {
    fn drop(&mut self) {
        self.connection.amounts().subtract(self.amounts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_of_different_streams_count_together_for_their_connection() {
        let settings = Subscriptions { max_operation_bytes: 100, ..Subscriptions::default() };
        let (one, other) = (KeptTotal::new(), KeptTotal::new());
        let keep = |connection: &Arc<KeptTotal>, bytes: u32, topics| {
            connection.count_in(Amounts { bytes, topics }, &settings)
        };
        let first = keep(&one, 60, 1);
        assert!(first.is_ok() && keep(&one, 50, 1).is_err() && keep(&other, 50, 1).is_ok());
        let most = settings.max_topics_per_connection;
        assert!(keep(&one, 1, most).is_err());
        drop(first);
        assert_eq!(*one.amounts(), Amounts::default());
        assert!(keep(&one, 50, most).is_ok());
        assert_ne!(one.id(), other.id());
    }
}
