//! The replay state of a trigger with a source that can be read again: its position, its latest events in a ring, the
//! groups that catch up, and the side readers that serve them. Data only: the other files of this folder act on it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use bindings::Source;
use events::{PartitionOffset, Position};
use indexmap::{IndexMap, IndexSet};

use super::group_progress::{CatchUpSource, CatchingUp, GroupProgress};
use super::ring::{Ring, RingEntry, RingRoom};
use super::side_reader::{SHARED, SideReader};
use crate::cursor::{Cursors, EventCursor, Resume, Scope};
use crate::shard::effect::Effect;
use crate::shard::pending_subscriber::PendingSubscriber;
use crate::shard::trigger_id::TriggerId;
use crate::{GroupId, HubSettings, TriggerEvent};

/// The number of positions without an event that are kept after they were sent, so that the ring serves subscribers
/// that resume from one: a partition that was read on without an event is at an offset that the ring does not have.
const SENT_POSITIONS_MAX: usize = 4;

type Hasher = foldhash::fast::RandomState;

/// The replay state of a trigger.
pub(crate) struct Replay {
    pub(super) source: Source,
    /// The position up to which the trigger's stream was read.
    pub(crate) position: Position,
    /// The number of changes of `position`.
    pub(crate) version: u64,
    /// The offset of the latest event with a position, and the time at which it was published.
    latest: Option<(PartitionOffset, Option<SystemTime>)>,
    /// The latest positions that were sent to subscribers, see [`SENT_POSITIONS_MAX`].
    sent_positions: VecDeque<Position>,
    /// The version of the position up to which a round has visited all groups.
    visited_version: u64,
    /// True if some group may need the position though its version has not changed.
    needs_visit: bool,
    /// The offset of each partition when the partition first appeared.
    begin: Position,
    /// True if a partition has appeared, and its earlier events may have been lost in a gap, in which the partition was
    /// unknown.
    has_partition_hole: bool,
    pub(super) ring: Ring,
    /// The number of the next event.
    pub(super) next_number: u64,
    /// The groups that catch up: they get no live events yet.
    pub(super) catching_up: CatchingUp,
    /// The groups among them that have got all of the ring and are further than the trigger in some partition.
    pub(super) ahead: IndexSet<GroupId, Hasher>,
    /// The side readers, made as they are needed. [`SHARED`] serves groups that came with a cursor,
    /// [`FALLEN_BEHIND`](super::side_reader::FALLEN_BEHIND) those that have fallen behind, and the others those that
    /// are slow. Groups that no side reader serves are served from the ring.
    pub(super) readers: Vec<SideReader>,
    /// The number of the next stream of a side reader.
    pub(super) next_stream_id: u64,
}

impl Replay {
    pub(super) fn new(source: Source, settings: &HubSettings, room: Arc<RingRoom>) -> Self {
        Self {
            source,
            position: Position::default(),
            version: 0,
            latest: None,
            sent_positions: VecDeque::new(),
            visited_version: 0,
            needs_visit: false,
            begin: Position::default(),
            has_partition_hole: false,
            ring: Ring::new(settings, room),
            next_number: 1,
            catching_up: IndexMap::default(),
            ahead: IndexSet::default(),
            readers: Vec::new(),
            next_stream_id: 0,
        }
    }

    /// Returns the name of the trigger's provider, for errors.
    pub(super) fn provider_name(&self) -> &str {
        self.source.name()
    }

    /// Returns the side reader of that number.
    pub(super) fn side(&mut self, index: usize) -> &mut SideReader {
        if self.readers.len() <= index {
            self.readers.resize_with(index + 1, SideReader::default);
        }
        &mut self.readers[index]
    }

    /// True if the shared side reader brings everything that `resume` asks for.
    pub(super) fn shared_reader_serves(&self, resume: &Resume) -> bool {
        self.readers.get(SHARED).is_some_and(|it| it.serves(resume))
    }

    /// True if the ring or the shared side reader has everything that `resume` asks for.
    pub(super) fn serves(&self, resume: &Resume) -> bool {
        self.shared_reader_serves(resume)
            || matches!(resume, Resume::After(position) if self.ring_serves(position))
    }

    /// Takes the subscribers that wait for a side reader, as far as `is_wanted` selects them.
    pub(super) fn take_waiting(
        &mut self,
        is_wanted: impl Fn(&PendingSubscriber) -> bool,
    ) -> Vec<PendingSubscriber> {
        let mut taken = Vec::new();
        for side in &mut self.readers {
            taken.extend(side.waiting.extract_if(.., |it| is_wanted(it)));
        }
        taken
    }

    /// Returns the number of the side reader with that stream.
    pub(super) fn reader_of(&self, stream_id: u64) -> Option<usize> {
        let is_it =
            |side: &SideReader| side.stream.as_ref().is_some_and(|it| it.stream_id == stream_id);
        self.readers.iter().position(is_it)
    }

    /// Counts one group less without room for more from a reader. When all groups of a paused reader have room, it
    /// reads on.
    pub(super) fn decrement_full(&mut self, trigger: TriggerId, reader: usize) -> Option<Effect> {
        let side = self.side(reader);
        side.full -= 1;
        let stream_id = side.resume_if_free()?;
        Some(Effect::ResumeReader { trigger, stream_id })
    }

    /// Removes a group from those that catch up, and from its side reader. Returns its progress, and the effect if the
    /// reader waited for the group.
    pub(super) fn remove_group(
        &mut self,
        trigger: TriggerId,
        group: GroupId,
    ) -> Option<(Box<GroupProgress>, Option<Effect>)> {
        let progress = self.catching_up.swap_remove(&group)?;
        self.ahead.swap_remove(&group);
        let effect = self.leave_reader(trigger, group, progress.source);
        Some((progress, effect))
    }

    /// Removes a group from the side reader that it had as its source. Returns the effect if the reader waited for it.
    pub(super) fn leave_reader(
        &mut self,
        trigger: TriggerId,
        group: GroupId,
        source: CatchUpSource,
    ) -> Option<Effect> {
        let CatchUpSource::Reader { index, is_full } = source else { return None };
        self.side(index).reading.swap_remove(&group);
        is_full.then(|| self.decrement_full(trigger, index)).flatten()
    }

    /// True if no group catches up, and no subscriber waits to.
    pub(crate) fn is_idle(&self) -> bool {
        self.catching_up.is_empty() && self.readers.iter().all(|it| it.waiting.is_empty())
    }

    /// Records an event of the trigger; event numbers grow. `None` if the event is a repetition.
    pub(super) fn record_event(
        &mut self,
        event: &TriggerEvent,
        number: u64,
        partition_offset: PartitionOffset,
        published: Option<SystemTime>,
    ) -> Option<Arc<EventCursor>> {
        let is_known = self.position.partition(partition_offset.partition).is_some();
        if !self.position.advance(partition_offset) {
            return None;
        }
        if !is_known {
            // As in the ring: a partition that appears held nothing before.
            self.begin.advance(PartitionOffset {
                partition: partition_offset.partition,
                ..PartitionOffset::default()
            });
            self.has_partition_hole |= !self.ring.knows_partitions();
        }
        self.next_number = number + 1;
        self.version += 1;
        self.latest = Some((partition_offset, published));
        let cursor = EventCursor::new(number, partition_offset, self.position.clone(), published);
        let cursor = Arc::new(cursor.of_version(self.version));
        // The shared state is dropped when its groups are done.
        let event = TriggerEvent { sharing: None, ..event.clone() };
        self.ring.push(RingEntry { event, cursor: Arc::clone(&cursor) });
        Some(cursor)
    }

    /// Returns `position` with the partitions that it did not know yet, at the offsets where they appeared.
    pub(crate) fn with_partitions_since(&self, position: &Position) -> Position {
        let since = self.begin.partition_offsets().iter().map(|partition_offset| {
            position.partition(partition_offset.partition).unwrap_or(*partition_offset)
        });
        since.collect()
    }

    /// Records that a partition was read up to `partition_offset`.
    pub(super) fn record_passed(&mut self, partition_offset: PartitionOffset) {
        if self.position.partition(partition_offset.partition).is_none() {
            self.begin.advance(partition_offset);
            self.has_partition_hole |= !self.ring.knows_partitions();
        }
        if self.position.advance(partition_offset) {
            self.version += 1;
        }
        self.ring.add_partition(partition_offset);
    }

    /// Handles a gap: events may be missing after those that the ring has.
    pub(super) fn on_gap(&mut self) {
        self.ring.clear_after_gap();
    }

    /// True if the ring has every event after that position. False while a partition that was read before a gap has had
    /// no event since: subscribers with none and with all of its events would have the same position.
    pub(super) fn ring_covers(&self, position: &Position) -> bool {
        self.ring.partitions() == self.position.partition_offsets().len()
            && self.ring.covers(position)
    }

    /// Takes the groups that were ahead of the trigger, which has been read further.
    pub(super) fn take_ahead(&mut self) -> impl Iterator<Item = GroupId> + use<> {
        std::mem::take(&mut self.ahead).into_iter()
    }

    /// Takes the note that a partition has appeared after a gap, so that subscribers with a position from before the
    /// gap may have missed its first events. The caller announces it to all live groups, since positions do not show
    /// which of them are concerned.
    pub(super) fn take_partition_hole(&mut self) -> bool {
        std::mem::take(&mut self.has_partition_hole)
    }

    /// True if the ring can serve a subscriber that comes with that position.
    pub(super) fn ring_serves(&self, position: &Position) -> bool {
        let is_sent = |partition_offset: &PartitionOffset| {
            self.sent_positions
                .iter()
                .any(|it| it.partition(partition_offset.partition) == Some(*partition_offset))
        };
        let is_seen = |partition_offset: &PartitionOffset| {
            self.position.partition(partition_offset.partition) == Some(*partition_offset)
                || self.ring.has_seen(*partition_offset)
                || is_sent(partition_offset)
        };
        self.ring_covers(position) && position.partition_offsets().iter().all(is_seen)
    }

    /// True if the cursor is at the trigger's current position.
    pub(super) fn is_at(&self, resume: &Resume) -> bool {
        matches!(resume, Resume::After(position) if *position == self.position)
    }

    /// Returns the cursor of the current position. `None` if no position is known, or if it does not fit into a cursor
    /// and no event gives the time.
    pub(crate) fn cursor(&mut self, cursors: &Cursors, scope: Scope) -> Option<String> {
        if self.position.partition_offsets().is_empty() {
            return None;
        }
        let (partition_offset, published) = self.latest.unwrap_or_default();
        if self.sent_positions.back() != Some(&self.position) {
            if self.sent_positions.len() == SENT_POSITIONS_MAX {
                self.sent_positions.pop_front();
            }
            self.sent_positions.push_back(self.position.clone());
        }
        cursors.encode(scope, &self.position, partition_offset, published)
    }

    /// Schedules a visit of the groups, because the subscribers of one may need the position.
    pub(crate) fn schedule_position_update(&mut self) {
        self.needs_visit = true;
    }

    /// True if the subscribers of some group may need the position. Must be called before all groups are visited.
    pub(crate) fn take_position_update(&mut self) -> bool {
        let has_changed = self.visited_version != self.version;
        self.visited_version = self.version;
        std::mem::take(&mut self.needs_visit) || has_changed
    }

    /// The number of the oldest event in the ring, or of the next event if the ring is empty.
    pub(super) fn ring_start(&self) -> u64 {
        self.ring.first_number().unwrap_or(self.next_number)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use events::{Memory, MemorySettings};

    use super::*;

    fn partition_offset(partition: u32, offset: u64) -> PartitionOffset {
        PartitionOffset { partition, offset, part: 0 }
    }

    fn position(partition_offsets: &[(u32, u64)]) -> Position {
        partition_offsets
            .iter()
            .map(|&(partition, offset)| partition_offset(partition, offset))
            .collect()
    }

    fn replay(ring_events: usize, room: &Arc<RingRoom>) -> Replay {
        let settings = HubSettings { ring_events, ..HubSettings::default() };
        let provider = Arc::new(Memory::new("default", MemorySettings::default()));
        Replay::new(Source::new(provider, vec!["t".into()]), &settings, Arc::clone(room))
    }

    fn event(replay: &mut Replay, partition: u32, offset: u64) -> bool {
        let event = events::Event::new("t", Bytes::from_static(b"12345678"));
        let event =
            TriggerEvent { event: Arc::new(event), too_large: None, sharing: None, spans: None };
        replay
            .record_event(&event, replay.next_number, partition_offset(partition, offset), None)
            .is_some()
    }

    #[test]
    fn the_ring_serves_positions_at_or_behind_its_base_in_every_partition() {
        let room = Arc::new(RingRoom::new(1 << 20));
        let mut replay = replay(3, &room);
        replay.record_passed(partition_offset(0, 10));
        replay.record_passed(partition_offset(1, 5));
        for (partition, offset) in [(0, 11), (1, 6), (0, 12)] {
            assert!(event(&mut replay, partition, offset));
        }
        assert!(!event(&mut replay, 0, 12), "what came before is not repeated");
        for (partitions, serves) in [
            (&[(0, 10), (1, 5)][..], true),
            (&[(0, 11), (1, 5)], true),
            (&[(0, 12), (1, 6)], true),
            (&[(0, 9), (1, 6)], false),
            (&[(0, 12)], false),
            (&[(0, 13), (1, 6)], false),
            (&[(0, 12), (1, 6), (2, 1)], false),
        ] {
            assert_eq!(replay.ring_serves(&position(partitions)), serves, "{partitions:?}");
        }
        assert!(event(&mut replay, 1, 7));
        assert!(!replay.ring_serves(&position(&[(0, 10), (1, 5)])), "the oldest had to go");
        assert!(replay.ring_serves(&position(&[(0, 11), (1, 5)])));
        // An unknown partition was empty.
        assert!(event(&mut replay, 2, 0));
        assert!(!replay.ring_serves(&position(&[(0, 12), (1, 6)])), "the reader knows its begin");
        assert!(replay.ring_serves(&position(&[(0, 12), (1, 6), (2, 0)])));
    }

    #[test]
    fn an_offset_of_another_count_is_not_taken_for_one_of_the_ring() {
        let room = Arc::new(RingRoom::new(1 << 20));
        let mut replay = replay(8, &room);
        replay.record_passed(PartitionOffset { part: 7, ..partition_offset(0, 10) });
        let other: Position =
            [PartitionOffset { part: 8, ..partition_offset(0, 10) }].into_iter().collect();
        assert!(replay.ring_covers(&other) && !replay.ring_serves(&other));
    }

    #[test]
    fn after_a_gap_nothing_older_is_served() {
        let room = Arc::new(RingRoom::new(1 << 20));
        let mut replay = replay(8, &room);
        replay.record_passed(partition_offset(0, 1));
        event(&mut replay, 0, 2);
        replay.on_gap();
        assert!(!replay.ring_serves(&position(&[(0, 2)])));
        event(&mut replay, 0, 9);
        event(&mut replay, 0, 10);
        assert!(!replay.ring_serves(&position(&[(0, 2)])));
        assert!(replay.ring_serves(&position(&[(0, 9)])));
    }

    #[test]
    fn rings_share_one_room_and_give_it_back() {
        let room = Arc::new(RingRoom::new(2000));
        let (mut one, mut other) = (replay(100, &room), replay(100, &room));
        for offset in 1..20 {
            event(&mut one, 0, offset);
        }
        assert!(room.used() <= 2000 && one.ring.len() > 1);
        event(&mut other, 0, 1);
        assert!(other.ring.len() == 0 && other.ring_serves(&position(&[(0, 1)])));
        drop(one);
        assert_eq!(room.used(), 0);
        event(&mut other, 0, 2);
        assert!(other.ring_serves(&position(&[(0, 1)])) && room.used() > 0);
        let mut none = replay(0, &room);
        event(&mut none, 0, 1);
        assert!(none.ring.len() == 0 && none.ring_serves(&position(&[(0, 1)])));
    }
}
