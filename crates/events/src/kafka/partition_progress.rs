//! The progress of a consumer in one partition, and the number of events that follow.
//!
//! Offsets do not tell the number of events: the markers of transactions have offsets, too, and so have events that
//! were compacted away or aborted. A consumer that waits at such an end has read everything.

use std::time::SystemTime;

/// The progress of a consumer in one partition.
pub(super) struct PartitionProgress {
    /// The offset that is read next.
    pub(super) next: u64,
    /// The time of the latest event that was read.
    pub(super) read: Option<SystemTime>,
    /// The end of the partition, or `None` before the cluster has reported it.
    end: Option<PartitionEnd>,
}

/// The end of a partition as the cluster last reported it.
struct PartitionEnd {
    /// The offset of the next event that is published.
    offset: u64,
    /// The offset that was read next at the time of the report.
    next: u64,
    /// The first offset at which there may be an event.
    events_from: u64,
}

impl PartitionProgress {
    pub(super) fn new(next: u64) -> Self {
        Self { next, read: None, end: None }
    }

    /// Sets the end of the partition. `is_idle` is true if the library had no more messages for the consumer at some
    /// time since the previous report.
    pub(super) fn set_end(&mut self, offset: u64, is_idle: bool) {
        let next = self.next;
        // A consumer that waits at the same offset and gets nothing, although the partition was longer already, has
        // read all of it.
        let events_from = match &self.end {
            Some(before) if before.next == next && is_idle => before.offset.max(before.events_from),
            Some(before) if before.next == next => before.events_from,
            _ => next,
        };
        self.end = Some(PartitionEnd { offset, next, events_from });
    }

    /// Returns the maximum number of events behind `next`, or `None` if it is not known.
    pub(super) fn events_behind(&self, next: u64) -> Option<u64> {
        let end = self.end.as_ref()?;
        let next = if end.next == self.next { next.max(end.events_from) } else { next };
        Some(end.offset.saturating_sub(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_following_events_is_known_after_the_cluster_has_reported_the_end() {
        let mut partition = PartitionProgress::new(3);
        assert_eq!(partition.events_behind(3), None);
        partition.set_end(10, false);
        assert_eq!(
            [3, 9, 10, 12].map(|next| partition.events_behind(next)),
            [7, 1, 0, 0].map(Some)
        );
        partition.next = 8;
        assert_eq!(partition.events_behind(8), Some(2));
    }

    #[test]
    fn a_reader_that_waits_at_markers_of_transactions_has_read_everything() {
        let mut partition = PartitionProgress::new(5);
        partition.set_end(6, true);
        assert_eq!(partition.events_behind(5), Some(1), "an event may be on its way");
        partition.set_end(6, false);
        assert_eq!(partition.events_behind(5), Some(1), "the reader was busy elsewhere");
        partition.set_end(6, true);
        assert_eq!(partition.events_behind(5), Some(0));
        // The result stays the same until there is more.
        partition.set_end(6, false);
        assert_eq!(partition.events_behind(5), Some(0));
        partition.set_end(9, true);
        assert_eq!(partition.events_behind(5), Some(3));
        partition.next = 8;
        assert_eq!(partition.events_behind(8), Some(1));
    }
}
