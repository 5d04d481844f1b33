//! How many groups of one source each client has made. An event is resolved once for each group that it concerns, so a
//! client that subscribes to one source in many ways multiplies the requests that one event causes.
//!
//! A group keeps the operation of the subscriber that made it, and that keeps a [`GroupShare`]. Operations of subscribers
//! that join a group are dropped when they have.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use execute::{ClientKey, ErrorCode, GraphqlError};
use hub::LiveOperation;

/// A group with a filter gets only some of the events, so a client may have more of these.
const FILTERED_FACTOR: usize = 10;

/// All clients that have made groups.
#[derive(Debug, Default)]
pub(crate) struct GroupShares {
    counts: Mutex<HashMap<ShareKey, usize>>,
    hashes: RandomState,
}

/// Groups that count together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct ShareKey {
    client: ClientKey,
    /// The hash of the source. Sources with one hash count together, which no client can bring about: the hash is keyed.
    source: u64,
    has_filter: bool,
}

/// One group of a client; counted until dropped.
#[derive(Debug)]
pub(crate) struct GroupShare {
    shares: Arc<GroupShares>,
    key: ShareKey,
}

impl GroupShares {
    /// Counts a group that `client` makes for `operation`.
    ///
    /// # Errors
    /// `OVERLOADED`: the client has `most` groups of that source.
    pub(crate) fn enter(
        self: &Arc<Self>,
        client: ClientKey,
        operation: &LiveOperation,
        most: usize,
    ) -> Result<GroupShare, GraphqlError> {
        let has_filter = operation.filter.is_some();
        let source = self.hashes.hash_one(&operation.source);
        self.enter_as(ShareKey { client, source, has_filter }, most).ok_or_else(|| {
            let message = format!(
                "this client has subscribed to the same source in {most} different ways, the most it may \
                 (`subscriptions.max_groups_per_client`): complete a subscription first, or ask for the same \
                 fields in each"
            );
            GraphqlError::new(ErrorCode::Overloaded, message)
        })
    }

    fn enter_as(self: &Arc<Self>, key: ShareKey, most: usize) -> Option<GroupShare> {
        let factor = if key.has_filter { FILTERED_FACTOR } else { 1 };
        let mut counts = self.counts();
        let count = counts.entry(key).or_default();
        if *count >= most.saturating_mul(factor) {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(GroupShare { shares: Arc::clone(self), key })
    }

    /// Nothing panics under this lock, so a poisoned one holds sound numbers.
    fn counts(&self) -> MutexGuard<'_, HashMap<ShareKey, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GroupShare {
    fn drop(&mut self) {
        let mut counts = self.shares.counts();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_so_many_groups_of_a_source_and_more_with_a_filter() {
        let shares = Arc::<GroupShares>::default();
        let key = |name: &[u8], source, has_filter| ShareKey {
            client: ClientKey::of_identity(name),
            source,
            has_filter,
        };
        let mut groups: Vec<_> =
            (0..3).map_while(|_| shares.enter_as(key(b"a", 1, false), 2)).collect();
        assert_eq!(groups.len(), 2);
        for other in [key(b"b", 1, false), key(b"a", 2, false)] {
            assert!(shares.enter_as(other, 2).is_some());
        }
        let filtered = (0..30).map_while(|_| shares.enter_as(key(b"a", 1, true), 2));
        assert_eq!(filtered.collect::<Vec<_>>().len(), 20);
        groups.pop();
        assert!(shares.enter_as(key(b"a", 1, false), 2).is_some());
        drop(groups);
        assert!(shares.counts().is_empty());
    }
}
