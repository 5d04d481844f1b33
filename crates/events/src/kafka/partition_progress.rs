//! How far one partition was read, and how much follows.
//!
//! Offsets do not tell how many events there are: the markers of transactions have offsets, too, and so has what
//! was compacted away or aborted. A reader that waits at such an end has read all there is.

use std::time::SystemTime;

pub(super) struct PartitionProgress {
    /// The offset that is read next.
    pub(super) next: u64,
    /// The time of the latest event that was read here.
    pub(super) read: Option<SystemTime>,
    /// None: the cluster has not said so far.
    end: Option<PartitionEnd>,
}

/// What the cluster last said of the end.
struct PartitionEnd {
    /// The offset that the next event gets.
    offset: u64,
    /// Where the partition was read at that time,
    next: u64,
    /// and from where on there may be events.
    events_from: u64,
}

impl PartitionProgress {
    pub(super) fn new(next: u64) -> Self {
        Self { next, read: None, end: None }
    }

    /// It ends there. `is_idle`: since the cluster was last asked, the library had at some time nothing more for
    /// the reader.
    pub(super) fn set_end(&mut self, offset: u64, is_idle: bool) {
        let next = self.next;
        // Who waits for more and gets nothing, though the partition was longer already, has read all of it.
        let events_from = match &self.end {
            Some(before) if before.next == next && is_idle => before.offset.max(before.events_from),
            Some(before) if before.next == next => before.events_from,
            _ => next,
        };
        self.end = Some(PartitionEnd { offset, next, events_from });
    }

    /// How many events may follow for one who is at `next`; none: it is not known.
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
    fn what_follows_is_known_when_the_cluster_has_said_where_the_end_is() {
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
        // And it stays like that until there is more.
        partition.set_end(6, false);
        assert_eq!(partition.events_behind(5), Some(0));
        partition.set_end(9, true);
        assert_eq!(partition.events_behind(5), Some(3));
        partition.next = 8;
        assert_eq!(partition.events_behind(8), Some(1));
    }
}
