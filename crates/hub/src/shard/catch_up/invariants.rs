//! Checks of the simulations: the groups that catch up, side readers and polls agree with each other.

use std::sync::atomic::Ordering::Relaxed;

use super::side_reader::{FALLEN_BEHIND, FIRST_SLOW, ReaderState, SHARED};
use super::{CatchUpSource, CatchUps};
use crate::GroupId;
use crate::shard::trigger_id::TriggerId;

impl CatchUps {
    /// Panics if the lists of a trigger disagree.
    pub(crate) fn check_invariants(&self, id: TriggerId) {
        let Some(replay) = self.replay(id) else { return };
        let mut reading = 0;
        for (index, side) in replay.readers.iter().enumerate() {
            reading += side.reading.len();
            let progress = |id: &GroupId| replay.catching_up.get(id).expect("it catches up");
            for id in &side.reading {
                let source = progress(id).source;
                let is_of_reader =
                    matches!(source, CatchUpSource::Reader { index: it, .. } if it == index);
                assert!(is_of_reader, "{source:?} in the list of {index}");
            }
            let full = side.reading.iter().filter(|id| progress(id).is_full()).count();
            assert_eq!(full, side.full);
            assert!(index == SHARED || side.waiting.is_empty() && side.reopening.is_none());
            let waits = !side.waiting.is_empty() && side.reopening.is_none();
            let needs_stream = !side.reading.is_empty() || waits;
            assert_eq!(
                side.stream.is_some(),
                needs_stream && (side.stream.is_some() || !side.is_retrying),
                "a reader is there if it is needed"
            );
            let is_paused = side.stream.as_ref().is_some_and(|it| it.is_paused);
            assert!(!is_paused || side.full > 0, "a paused reader waits for a group");
        }
        let groups = replay.catching_up.values();
        let is_read = groups.filter(|it| matches!(it.source, CatchUpSource::Reader { .. })).count();
        assert_eq!(is_read, reading);
    }

    /// Panics if the places for opening side readers are not those of the readers that are being opened, or if a reader
    /// waits though there is a place. All triggers have one provider.
    pub(crate) fn check_openings(&self) {
        let sides = self.replays.values().flat_map(|it| &it.readers);
        let states: Vec<_> = sides.filter_map(|it| Some(it.stream.as_ref()?.state)).collect();
        let is_waiting = |it: &&ReaderState| matches!(it, ReaderState::Waiting { .. });
        let waiting = states.iter().filter(is_waiting).count();
        let opening = states.iter().filter(|it| **it == ReaderState::Opening).count();
        assert_eq!(self.openings.counts(), (opening, waiting));
        assert_eq!(self.stats.readers_waiting.load(Relaxed), waiting as u64);
        let places = self.openings.places(self.settings.readers_opening_max);
        // A success takes back the places that failures have given.
        assert!(waiting == 0 || opening >= places, "{opening} of {places}, {waiting} wait");
    }

    /// True if that stream of a side reader is for groups that have fallen behind.
    pub(crate) fn serves_groups_behind(&self, id: TriggerId, stream_id: u64) -> bool {
        self.replay(id).is_some_and(|it| it.reader_of(stream_id) == Some(FALLEN_BEHIND))
    }

    /// True if the trigger has an open side reader, or one that is being opened.
    pub(crate) fn has_open_reader(&self, id: TriggerId) -> bool {
        self.replay(id).is_some_and(|it| it.readers.iter().any(|side| side.stream.is_some()))
    }

    /// True if slow groups of the trigger have got a side reader of their own.
    pub(crate) fn has_separated(&self, id: TriggerId) -> bool {
        self.replay(id).is_some_and(|it| it.readers.len() > FIRST_SLOW)
    }

    /// Returns the number of bytes of events that all rings keep.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.ring_room.used()
    }
}
