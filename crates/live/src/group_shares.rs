//! The number of groups that each client has made for a source. An event is resolved once for each group that it
//! concerns, so a client that subscribes to one source in many ways multiplies the requests that one event causes.
//!
//! A group keeps the operation of the subscriber that made it, and the operation keeps a [`GroupShare`]. Operations of
//! subscribers that join an existing group are dropped after they have joined. Until then they count as well, but equal
//! ones count once: a thousand connections with the token of one client may reconnect at the same time.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use execute::{ClientKey, ErrorCode, GraphqlError};
use hub::LiveOperation;

/// The factor by which a client may have more groups with a filter: each gets only some of the events.
const FILTERED_FACTOR: usize = 10;

/// The number of groups for which room is always kept.
const ROOM_KEPT: usize = 64;

/// The hash under which all live queries count.
const LIVE_QUERIES: u64 = 0;

/// The groups of all clients.
#[derive(Debug, Default)]
pub(crate) struct GroupShares {
    counts: Mutex<HashMap<ShareKey, Ways>>,
    hashes: RandomState,
}

/// The hashes of the groups that a client has made or is joining, and how many [`GroupShare`]s each has.
type Ways = HashMap<u64, usize>;

/// Groups that count together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct ShareKey {
    client: ClientKey,
    /// The keyed hash of the source. Sources with the same hash count together; clients cannot cause that.
    source: u64,
    has_filter: bool,
}

/// One group of a client; counted until dropped.
#[derive(Debug)]
pub(crate) struct GroupShare {
    shares: Arc<GroupShares>,
    key: ShareKey,
    /// The hash of the key of the group.
    way: u64,
}

impl GroupShares {
    /// Counts a group that `client` makes for `operation`.
    ///
    /// # Errors
    /// `OVERLOADED`: the client has `most` other groups of that source.
    pub(crate) fn enter(
        self: &Arc<Self>,
        client: ClientKey,
        operation: &LiveOperation,
        most: usize,
    ) -> Result<GroupShare, GraphqlError> {
        let has_filter = operation.filter.is_some();
        // Each live query is a source of its own, and costs an execution for each change.
        let source = match operation.source.has_states() {
            true => LIVE_QUERIES,
            false => self.hashes.hash_one(&operation.source),
        };
        let way = self.hashes.hash_one(&operation.group);
        self.enter_as(ShareKey { client, source, has_filter }, way, most).ok_or_else(|| {
            let message = match operation.source.has_states() {
                true => format!(
                    "this client has {most} different live queries, the maximum \
                     (`subscriptions.max_groups_per_client`): complete one first"
                ),
                false => format!(
                    "this client has subscribed to the same source in {most} different ways, the maximum \
                     (`subscriptions.max_groups_per_client`): complete a subscription first, or select the same \
                     fields in each"
                ),
            };
            GraphqlError::new(ErrorCode::Overloaded, message)
        })
    }

    fn enter_as(self: &Arc<Self>, key: ShareKey, way: u64, most: usize) -> Option<GroupShare> {
        let factor = if key.has_filter { FILTERED_FACTOR } else { 1 };
        let mut counts = self.counts();
        let ways = counts.entry(key).or_default();
        if ways.len() >= most.saturating_mul(factor) && !ways.contains_key(&way) {
            return None;
        }
        *ways.entry(way).or_default() += 1;
        drop(counts);
        Some(GroupShare { shares: Arc::clone(self), key, way })
    }

    /// Locks the counts. Nothing panics under this lock, so a poisoned lock holds valid numbers.
    fn counts(&self) -> MutexGuard<'_, HashMap<ShareKey, Ways>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GroupShare {
    fn drop(&mut self) {
        let mut counts = self.shares.counts();
        let Some(ways) = counts.get_mut(&self.key) else { return };
        if let Some(count) = ways.get_mut(&self.way) {
            *count -= 1;
            if *count == 0 {
                ways.remove(&self.way);
            }
        }
        if ways.is_empty() {
            counts.remove(&self.key);
        }
        // After a burst of clients that join, its room is freed.
        let len = counts.len();
        if counts.capacity() > ROOM_KEPT.max(8 * len) {
            counts.shrink_to(ROOM_KEPT.max(2 * len));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &[u8], source: u64, has_filter: bool) -> ShareKey {
        ShareKey { client: ClientKey::of_identity(name), source, has_filter }
    }

    #[test]
    fn the_groups_of_a_client_are_limited_per_source_and_filtered_ones_less() {
        let shares = Arc::<GroupShares>::default();
        let mut groups: Vec<_> =
            (0..3).map_while(|way| shares.enter_as(key(b"a", 1, false), way, 2)).collect();
        assert_eq!(groups.len(), 2);
        for other in [key(b"b", 1, false), key(b"a", 2, false)] {
            assert!(shares.enter_as(other, 7, 2).is_some());
        }
        let filtered = (0..30).map_while(|way| shares.enter_as(key(b"a", 1, true), way, 2));
        assert_eq!(filtered.collect::<Vec<_>>().len(), 20);
        groups.pop();
        assert!(shares.enter_as(key(b"a", 1, false), 7, 2).is_some());
        drop(groups);
        assert!(shares.counts().is_empty());
    }

    #[test]
    fn equal_subscribers_count_once_while_they_join() {
        let shares = Arc::<GroupShares>::default();
        let enter = |way| shares.enter_as(key(b"a", 1, false), way, 2);
        let joining: Vec<_> = (0..1000).map_while(|_| enter(1)).collect();
        assert_eq!(joining.len(), 1000);
        let other = enter(2);
        assert!(other.is_some() && enter(3).is_none());
        assert!(enter(1).is_some(), "a client with all of its groups joins one of them again");
        drop(joining);
        assert!(enter(3).is_some());
        drop(other);
        assert!(shares.counts().is_empty());
    }
}
