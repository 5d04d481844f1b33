//! The latest headers of each partition: those of the client that subscribed last, or renewed its token last. They are
//! sent whenever an operation or a connection of the partition begins, also again, because a token may have expired. A
//! reload, which subscribes for clients that came earlier, changes nothing here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use events::SubgraphSubscription;
use http::{HeaderName, HeaderValue};

/// The headers of a subscription.
pub(crate) type ForwardedHeaders = Arc<[(HeaderName, HeaderValue)]>;

/// The headers of all partitions with members. The limits on operations and connections bound their number.
#[derive(Default)]
pub(crate) struct LatestHeaders {
    by_partition: Mutex<HashMap<Box<[u8]>, PartitionHeaders>>,
}

struct PartitionHeaders {
    headers: ForwardedHeaders,
    /// The number of operations by HTTP, or of connections.
    members: usize,
}

/// The membership of one operation by HTTP, or of one connection, in its partition.
pub(crate) struct PartitionMember {
    table: Arc<LatestHeaders>,
    partition: Box<[u8]>,
}

impl LatestHeaders {
    /// Adds a member to the partition of `wanted`, until the returned value is dropped. The headers of `wanted` are the
    /// latest if the partition is new.
    pub(crate) fn add(self: &Arc<Self>, wanted: &SubgraphSubscription) -> PartitionMember {
        let partition = wanted.partition.clone();
        let new = || PartitionHeaders { headers: Arc::clone(&wanted.headers), members: 0 };
        self.lock().entry(partition.clone()).or_insert_with(new).members += 1;
        PartitionMember { table: Arc::clone(self), partition }
    }

    /// Replaces the headers of a partition that has members.
    // hot path: once for each subscription of a client.
    pub(crate) fn note(&self, wanted: &SubgraphSubscription) {
        if let Some(partition) = self.lock().get_mut(&wanted.partition) {
            partition.headers = Arc::clone(&wanted.headers);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, PartitionHeaders>> {
        // The table is consistent after each statement that could panic.
        self.by_partition.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartitionMember {
    /// Returns the latest headers of the partition.
    pub(crate) fn headers(&self) -> ForwardedHeaders {
        let table = self.table.lock();
        let partition = table.get(&self.partition);
        debug_assert!(partition.is_some(), "a partition with a member is in the table");
        partition.map(|it| Arc::clone(&it.headers)).unwrap_or_default()
    }

    /// Returns the operation with the latest headers of the partition.
    pub(crate) fn update(&self, wanted: &SubgraphSubscription) -> SubgraphSubscription {
        SubgraphSubscription { headers: self.headers(), ..wanted.clone() }
    }
}

impl Drop for PartitionMember {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        if let Some(partition) = table.get_mut(&self.partition) {
            partition.members -= 1;
            if partition.members == 0 {
                table.remove(&self.partition);
            }
        }
    }
}

impl std::fmt::Debug for LatestHeaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers contain credentials.
        f.debug_struct("LatestHeaders").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(partition: &str, token: &'static str) -> SubgraphSubscription {
        let token = (HeaderName::from_static("x-token"), HeaderValue::from_static(token));
        SubgraphSubscription {
            field: "Subscription.n".into(),
            request: "{}".into(),
            headers: [token].into(),
            partition: partition.as_bytes().into(),
        }
    }

    #[test]
    fn the_headers_noted_last_count_while_the_partition_has_members() {
        let table = Arc::new(LatestHeaders::default());
        let [old, new, other] =
            [("a", "1"), ("a", "2"), ("b", "3")].map(|it| subscription(it.0, it.1));
        table.note(&new);
        let first = table.add(&old);
        assert_eq!(first.headers(), old.headers, "nothing is kept for a partition without members");
        let third = table.add(&other);
        table.note(&new);
        let sent = first.update(&old);
        assert_eq!((&sent.headers, &sent.request), (&new.headers, &old.request));
        assert_eq!(third.headers(), other.headers);
        // A reload begins an operation with the headers of an earlier client.
        let second = table.add(&old);
        assert_eq!(second.headers(), new.headers);
        drop(first);
        assert_eq!(second.headers(), new.headers);
        drop(second);
        assert_eq!(table.lock().len(), 1);
    }
}
