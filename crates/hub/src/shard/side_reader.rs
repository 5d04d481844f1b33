//! Side readers: streams beside a trigger's own that read older events for groups that catch up. Data only:
//! [`super::open_reader`] opens them and [`super::reader_messages`] handles what they read.

use events::{Position, Start};
use indexmap::IndexSet;

use crate::GroupId;
use crate::cursor::Resume;

/// The stream that is read for those who come from before the ring.
pub(super) struct Reader {
    /// Tells it from the ones before.
    pub(super) pass: u64,
    pub(super) start: Resume,
    pub(super) is_open: bool,
    /// How far it was read.
    pub(super) position: Position,
    /// Nothing is read until all who listen have room again.
    pub(super) is_paused: bool,
}

/// The side reader of groups that came with a cursor.
pub(super) const SHARED: usize = 0;

/// The side reader of groups that have fallen behind. They have one of their own: subscribers that come again may make
/// theirs begin anew at any time.
pub(super) const FALLEN: usize = 1;

/// The first of the side readers for groups that others would have to wait for.
pub(super) const FIRST_SLOW: usize = 2;

/// The maximum number of side readers of one trigger. Each is a consumer at the broker.
pub(super) const SIDE_READERS_MAX: usize = 5;

/// A stream beside the trigger's, and the groups that it serves.
#[derive(Default)]
pub(super) struct SideReader {
    /// `None`: it is not needed, or could not be opened and is tried again.
    pub(super) stream: Option<Reader>,
    pub(super) reading: IndexSet<GroupId, foldhash::fast::RandomState>,
    /// How many of `reading` have no room for more.
    pub(super) full: usize,
    /// How often it was found waiting for some of its groups.
    pub(super) stalled: u32,
    /// It is looked after because of that.
    pub(super) is_watched: bool,
    /// It is going to be opened again.
    pub(super) is_retrying: bool,
}

impl SideReader {
    /// True if some groups wait only because others have no room.
    pub(super) fn is_stalled(&self) -> bool {
        let is_paused = self.stream.as_ref().is_some_and(|it| it.is_paused);
        is_paused && self.full < self.reading.len()
    }
}

impl Reader {
    /// Does it bring everything to somebody who comes with that?
    pub(super) fn serves(&self, resume: &Resume) -> bool {
        self.is_open
            && match (&self.start, resume) {
                (Resume::After(_), Resume::After(position)) => is_before(&self.position, position),
                (Resume::Since { time: begin, .. }, Resume::Since { time, .. }) => {
                    begin <= time && self.position.marks().is_empty()
                }
                _ => false,
            }
    }
}

/// Is `first` nowhere further than `second`?
pub(super) fn is_before(first: &Position, second: &Position) -> bool {
    first.marks().iter().all(|mark| second.lane(mark.lane).is_some_and(|other| *mark <= other))
}

/// Where to begin to bring everything to all of them.
pub(super) fn earliest<'a>(positions: impl IntoIterator<Item = &'a Position>) -> Position {
    let mut positions = positions.into_iter();
    let first = positions.next().cloned().unwrap_or_default();
    positions.fold(first, |earliest, position| {
        // A lane that one of them has not read at all is read from its begin.
        let both = earliest
            .marks()
            .iter()
            .filter_map(|mark| position.lane(mark.lane).map(|other| other.min(*mark)));
        both.collect()
    })
}

/// How long those have waited who need the reader elsewhere, in looks.
#[derive(Default)]
pub(super) struct Gathering {
    pub(super) looks: u32,
    /// Since the last one came.
    pub(super) quiet: u32,
}

/// How a provider is asked.
pub(super) fn start_of(resume: &Resume) -> Start {
    match resume {
        Resume::After(position) => Start::After(position.clone()),
        Resume::Since { time, .. } => Start::Since(*time),
        Resume::Oldest => Start::All,
    }
}
