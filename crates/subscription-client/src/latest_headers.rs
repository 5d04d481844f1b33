//! The latest headers of each partition. An operation that is begun again sends the headers of the newest subscription
//! of its partition, because a token may have been renewed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use events::SubgraphSubscription;
use http::{HeaderName, HeaderValue};

/// The headers of a subscription.
pub(crate) type ForwardedHeaders = Arc<[(HeaderName, HeaderValue)]>;

/// The headers of all partitions that have operations.
#[derive(Default)]
pub(crate) struct LatestHeaders {
    by_partition: Mutex<HashMap<Box<[u8]>, PartitionHeaders>>,
}

struct PartitionHeaders {
    headers: ForwardedHeaders,
    /// The number of operations.
    operations: usize,
}

/// The membership of one operation in its partition.
pub(crate) struct PartitionMember {
    table: Arc<LatestHeaders>,
    partition: Box<[u8]>,
}

impl LatestHeaders {
    /// Notes the headers of a new operation, until the returned value is dropped.
    pub(crate) fn add(self: &Arc<Self>, wanted: &SubgraphSubscription) -> PartitionMember {
        let (partition, headers) = (wanted.partition.clone(), Arc::clone(&wanted.headers));
        let mut table = self.lock();
        let operations = table.get(&partition).map_or(0, |it| it.operations) + 1;
        table.insert(partition.clone(), PartitionHeaders { headers, operations });
        drop(table);
        PartitionMember { table: Arc::clone(self), partition }
    }

    /// Replaces the headers of a partition that has operations.
    pub(crate) fn renew(&self, wanted: &SubgraphSubscription) {
        if let Some(partition) = self.lock().get_mut(&wanted.partition) {
            partition.headers = Arc::clone(&wanted.headers);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, PartitionHeaders>> {
        // Each change of the table is one call.
        self.by_partition.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartitionMember {
    /// Returns the operation with the latest headers of its partition.
    pub(crate) fn renew(&self, wanted: &SubgraphSubscription) -> SubgraphSubscription {
        let latest = self.table.lock().get(&self.partition).map(|it| Arc::clone(&it.headers));
        let headers = latest.unwrap_or_else(|| Arc::clone(&wanted.headers));
        SubgraphSubscription { headers, ..wanted.clone() }
    }
}

impl Drop for PartitionMember {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        if let Some(partition) = table.get_mut(&self.partition) {
            partition.operations -= 1;
            if partition.operations == 0 {
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
    fn the_newest_headers_of_a_partition_count_while_it_has_operations() {
        let table = Arc::new(LatestHeaders::default());
        let [old, new, other] =
            [("a", "1"), ("a", "2"), ("b", "3")].map(|it| subscription(it.0, it.1));
        let members = [&old, &new, &other].map(|it| table.add(it));
        let sent = members[0].renew(&old);
        assert_eq!((&sent.headers, &sent.request), (&new.headers, &old.request));
        assert_eq!(members[2].renew(&other).headers, other.headers);
        let [first, second, _third] = members;
        drop(second);
        assert_eq!(first.renew(&old).headers, new.headers);
        drop(first);
        assert_eq!(table.lock().len(), 1);
    }
}
