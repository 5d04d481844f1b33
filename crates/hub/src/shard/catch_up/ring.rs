//! The latest events of a trigger, kept for groups that catch up.
//!
//! The ring holds every event after its base, partition by partition. It can serve a group that has reached the base in
//! every partition.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use events::{PartitionOffset, Position};

use crate::cursor::EventCursor;
use crate::{HubSettings, TriggerEvent};

/// The memory that the rings of all triggers may use.
#[derive(Debug)]
pub(crate) struct RingRoom {
    used: AtomicUsize,
    max: usize,
}

impl RingRoom {
    pub(crate) fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    /// Returns the number of bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.max);
        self.used.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Relaxed);
    }
}

/// An event that is kept.
pub(super) struct RingEntry {
    pub(super) event: TriggerEvent,
    pub(super) cursor: Arc<EventCursor>,
}

impl RingEntry {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.event.event.payload.len() + self.cursor.bytes()
    }
}

/// The latest events of a trigger.
pub(super) struct Ring {
    entry: VecDeque<RingEntry>,
    bytes: usize,
    /// The position after which every event is kept, in the partitions that it has.
    base: Position,
    /// True if a partition that appears held nothing before. No longer true after a gap.
    knows_partitions: bool,
    events_max: usize,
    bytes_max: usize,
    room: Arc<RingRoom>,
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.room.give_back(self.bytes);
    }
}

impl Ring {
    pub(super) fn new(settings: &HubSettings, room: Arc<RingRoom>) -> Self {
        Self {
            entry: VecDeque::new(),
            bytes: 0,
            base: Position::default(),
            knows_partitions: true,
            events_max: settings.ring_events,
            bytes_max: settings.ring_bytes,
            room,
        }
    }

    /// Drops all events, because events may be missing after them.
    pub(super) fn clear_after_gap(&mut self) {
        while self.drop_oldest() {}
        self.base = Position::default();
        self.knows_partitions = false;
    }

    pub(super) fn push(&mut self, entry: RingEntry) {
        let partition_offset = entry.cursor.partition_offset;
        if self.base.partition(partition_offset.partition).is_none() {
            if !self.knows_partitions {
                // Earlier events of the partition are unknown.
                while self.drop_oldest() {}
                self.base.advance(partition_offset);
                return;
            }
            self.base.advance(PartitionOffset {
                partition: partition_offset.partition,
                ..PartitionOffset::default()
            });
        }
        let bytes = entry.bytes();
        while (self.entry.len() >= self.events_max || self.bytes + bytes > self.bytes_max)
            && self.drop_oldest()
        {}
        let has_room = self.events_max > 0 && bytes <= self.bytes_max;
        while has_room && !self.room.take(bytes) {
            if !self.drop_oldest() {
                // The rings of other triggers use all of the memory.
                self.base.advance(partition_offset);
                return;
            }
        }
        if has_room {
            self.bytes += bytes;
            self.entry.push_back(entry);
        } else {
            self.base.advance(partition_offset);
        }
    }

    /// Drops the oldest event. False if there is none.
    fn drop_oldest(&mut self) -> bool {
        let Some(oldest) = self.entry.pop_front() else { return false };
        self.bytes -= oldest.bytes();
        self.room.give_back(oldest.bytes());
        self.base.advance(oldest.cursor.partition_offset);
        true
    }

    /// True if a partition that appears held nothing before. No longer true after a gap.
    pub(super) fn knows_partitions(&self) -> bool {
        self.knows_partitions
    }

    /// Adds a partition that begins at `partition_offset`, if the ring does not know it.
    pub(super) fn add_partition(&mut self, partition_offset: PartitionOffset) {
        if self.base.partition(partition_offset.partition).is_none() {
            self.base.advance(partition_offset);
        }
    }

    /// The number of partitions that the ring knows.
    pub(super) fn partitions(&self) -> usize {
        self.base.partition_offsets().len()
    }

    /// The number of the oldest kept event.
    pub(super) fn first_number(&self) -> Option<u64> {
        self.entry.front().map(|entry| entry.cursor.number)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entry.len()
    }

    /// True if every event after that position is kept. The position and the ring must know the same partitions.
    pub(super) fn covers(&self, position: &Position) -> bool {
        let (base, partition_offsets) =
            (self.base.partition_offsets(), position.partition_offsets());
        !base.is_empty()
            && base.len() == partition_offsets.len()
            && base.iter().zip(partition_offsets).all(|(base, partition_offset)| {
                base.partition == partition_offset.partition && base <= partition_offset
            })
    }

    /// True if the trigger has been at exactly that offset. The position in a cursor may come from another numbering of
    /// the same partition, which only the provider can tell.
    pub(super) fn has_seen(&self, partition_offset: PartitionOffset) -> bool {
        self.base.partition(partition_offset.partition) == Some(partition_offset)
            || self
                .entry
                .iter()
                .rev()
                .any(|entry| entry.cursor.partition_offset == partition_offset)
    }

    /// Returns the oldest kept event with that number or a later one.
    pub(super) fn first_from(&self, number: u64) -> Option<&RingEntry> {
        let at = self.entry.partition_point(|entry| entry.cursor.number < number);
        self.entry.get(at)
    }
}
