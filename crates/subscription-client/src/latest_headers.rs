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
}

/// The headers of one connection or operation over all of its attempts. They are the latest ones of the partition; if
/// the subgraph has refused these, they are the last ones that it has accepted. So a client that joins with a bad token
/// does not end what it shares with others.
#[derive(Default)]
pub(crate) struct AttemptHeaders {
    /// The headers of the last attempt.
    current: ForwardedHeaders,
    /// The latest headers at the time of the last attempt, or later ones that were sent in a `ping` since.
    sent: ForwardedHeaders,
    /// The headers of the last attempt that has succeeded.
    accepted: Option<ForwardedHeaders>,
    /// The latest headers that the subgraph has refused.
    refused: Option<ForwardedHeaders>,
}

impl AttemptHeaders {
    /// Begins an attempt while these headers are the latest. Returns the headers that it sends.
    pub(crate) fn begin(&mut self, latest: &ForwardedHeaders) -> ForwardedHeaders {
        self.current = self.choose(latest);
        self.sent = Arc::clone(latest);
        Arc::clone(&self.current)
    }

    /// Notes that the subgraph has accepted the headers of the last attempt.
    pub(crate) fn note_accepted(&mut self) {
        self.accepted = Some(Arc::clone(&self.current));
    }

    /// Notes that the subgraph has refused the headers of the last attempt, or, if `was_open`, has ended with such a
    /// refusal what it had accepted.
    pub(crate) fn note_refused(&mut self, was_open: bool) {
        let are_latest = self.current == self.sent;
        if are_latest && !was_open {
            self.refused = Some(Arc::clone(&self.current));
        }
        // The headers of a `ping` may be the reason for the end of an open connection.
        if (are_latest || !was_open) && self.accepted.as_ref() == Some(&self.current) {
            self.accepted = None;
        }
    }

    /// True if another attempt would send headers that were not refused, while these are the latest.
    pub(crate) fn may_succeed(&self, latest: &ForwardedHeaders) -> bool {
        let next = self.choose(latest);
        next != self.current && self.refused.as_ref() != Some(&next)
    }

    /// Notes that these headers are sent on the open connection. Returns whether they are new there.
    pub(crate) fn renew(&mut self, latest: &ForwardedHeaders) -> bool {
        let is_new = self.sent != *latest;
        self.sent = Arc::clone(latest);
        is_new
    }

    /// Forgets what was refused. The next attempt is for other operations.
    pub(crate) fn forget_refused(&mut self) {
        self.refused = None;
    }

    fn choose(&self, latest: &ForwardedHeaders) -> ForwardedHeaders {
        match &self.accepted {
            Some(accepted) if self.refused.as_ref() == Some(latest) => Arc::clone(accepted),
            _ => Arc::clone(latest),
        }
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
            trace: Arc::default(),
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
        assert_eq!(first.headers(), new.headers);
        assert_eq!(third.headers(), other.headers);
        // A reload begins an operation with the headers of an earlier client.
        let second = table.add(&old);
        assert_eq!(second.headers(), new.headers);
        drop(first);
        assert_eq!(second.headers(), new.headers);
        drop(second);
        assert_eq!(table.lock().len(), 1);
    }

    #[test]
    fn refused_headers_are_replaced_by_accepted_ones_once() {
        let [good, bad, other] = ["good", "bad", "other"].map(|it| subscription("", it).headers);
        let mut attempts = AttemptHeaders::default();
        assert_eq!(attempts.begin(&good), good);
        attempts.note_accepted();
        assert_eq!(attempts.begin(&bad), bad);
        attempts.note_refused(false);
        assert!(attempts.may_succeed(&bad));
        assert_eq!(attempts.begin(&bad), good);
        attempts.note_accepted();
        assert!(!attempts.renew(&bad), "refused headers are not sent again");
        assert!(attempts.renew(&other));
        // The connection is lost, and later the accepted headers are refused too.
        assert_eq!(attempts.begin(&bad), good);
        attempts.note_refused(false);
        assert!(!attempts.may_succeed(&bad));
        assert!(attempts.may_succeed(&other));
    }

    #[test]
    fn headers_that_end_an_open_connection_are_not_tried_again_unless_later_ones_were_sent() {
        let [old, new] = ["old", "new"].map(|it| subscription("", it).headers);
        for is_renewed in [false, true] {
            let mut attempts = AttemptHeaders::default();
            attempts.begin(&old);
            attempts.note_accepted();
            assert!(!is_renewed || attempts.renew(&new));
            attempts.note_refused(true);
            assert!(attempts.may_succeed(&new));
            assert_eq!(attempts.begin(&new), new);
            attempts.note_refused(false);
            assert_eq!(attempts.may_succeed(&new), is_renewed);
        }
    }
}
