//! Side readers are opened where all of their groups can begin, opened again further back or at the oldest stored event,
//! and closed when no group needs them.
//!
//! Subscribers that come with a cursor share one reader, which begins at the earliest of their positions. When one comes
//! from further back it begins again there, and the groups that have had more skip those events. Groups that have fallen
//! behind have readers of their own, see [`super::fall_behind`].

use events::{Position, SourceError};
use execute::{ErrorCode, GraphqlError};

use super::errors::{refuse, source_error};
use super::side_reader::{self, Reader, SHARED};
use super::{Effect, Joining, Shard, TriggerId};
use crate::cursor::Resume;
use crate::{EndReason, GroupId, stats};

/// How often in a row the reader begins again because the broker has no more of what the earliest wants. Then all who wait
/// are refused: each attempt costs the broker a look.
const GONE_MAX: u32 = 16;

fn other_reader() -> GraphqlError {
    let message = "Others are being brought up to date on these topics; try again in a moment.";
    GraphqlError::new(ErrorCode::Overloaded, message)
}

impl Shard {
    /// Opens a reader where all who need it can begin; one that is open begins again.
    pub(super) fn read(&mut self, id: TriggerId, index: usize) {
        let Some(trigger) = self.triggers.get_mut(&id) else { return };
        let Some(replay) = &mut trigger.replay else { return };
        if replay.side(index).stream.as_ref().is_some_and(|reader| !reader.is_open) {
            // Whoever it does not suit then is looked after when it is open.
            return;
        }
        if index == SHARED {
            // Those who wait for others are served along.
            replay.gathering = None;
            replay.waiting.retain(|joining| !joining.reply.is_closed());
        }
        let old = replay.side(index).stream.take();
        if let Some(old) = old {
            self.effects.push(Effect::CloseReader { trigger: id, pass: old.pass });
        }
        let catching = |id| self.groups.get(id).and_then(|it| it.catching.as_deref());
        let waiting: &[Joining] = if index == SHARED { &replay.waiting } else { &[] };
        let reading = replay.readers[index].reading.iter().filter_map(catching);
        let mut positions = reading
            .clone()
            .map(|it| &it.position)
            .chain(waiting.iter().filter_map(|joining| match &joining.resume {
                Some(Resume::After(position)) => Some(position),
                _ => None,
            }))
            .peekable();
        let start = match positions.peek() {
            _ if reading.clone().any(|it| it.from_oldest) => Some(Resume::Oldest),
            Some(_) => Some(Resume::After(side_reader::earliest(positions))),
            None => {
                let since = waiting.iter().filter_map(|it| it.resume.clone());
                since.min_by_key(|resume| match resume {
                    Resume::Since { time, .. } => Some(*time),
                    Resume::After(_) | Resume::Oldest => None,
                })
            }
        };
        let Some(start) = start else { return self.close_if_unused(id) };
        if index == SHARED && !matches!(start, Resume::Since { .. }) {
            let is_since = |it: &mut Joining| matches!(it.resume, Some(Resume::Since { .. }));
            for joining in replay.waiting.extract_if(.., is_since) {
                refuse(joining, other_reader());
            }
        }
        let pass = replay.next_pass;
        replay.next_pass += 1;
        let position = match &start {
            Resume::After(position) => position.clone(),
            Resume::Since { .. } | Resume::Oldest => Position::default(),
        };
        let wanted = trigger.source.read_from(side_reader::start_of(&start));
        let reader = Reader { pass, start, is_open: false, position, is_paused: false };
        replay.side(index).stream = Some(reader);
        stats::add(&self.stats.side_readers, 1);
        let source = trigger.source.clone();
        self.effects.push(Effect::OpenReader { trigger: id, pass, source, wanted });
    }

    /// The provider answered [`Effect::OpenReader`]. False: nobody wants the stream any more.
    pub(crate) fn reader_opened(
        &mut self,
        id: TriggerId,
        pass: u64,
        result: Result<(), SourceError>,
    ) -> bool {
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return false;
        };
        let Some(index) = replay.reader_of(pass) else { return false };
        let side = replay.side(index);
        let Some(reader) = &mut side.stream else { return false };
        reader.is_open = true;
        let begins_with_time = matches!(reader.start, Resume::Since { .. });
        if result.is_ok() && begins_with_time && !side.reading.is_empty() {
            // They fell out of the ring meanwhile, and what follows their places may be older than that time.
            replay.gone = 0;
            self.read(id, index);
            return false;
        }
        match result {
            Ok(()) => {
                replay.gone = 0;
                // Some may be served by the ring meanwhile, most by the reader; for the others it begins again.
                let mut others = false;
                let waiting = match index {
                    SHARED => std::mem::take(&mut replay.waiting),
                    _ => Vec::new(),
                };
                for joining in waiting {
                    if self.is_served(id, &joining) {
                        self.resume(id, joining);
                    } else if let Some(replay) =
                        self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut())
                    {
                        replay.waiting.push(joining);
                        others = true;
                    }
                }
                if !self.reading_is_served(id, index) {
                    self.read(id, index);
                } else if others {
                    self.gather(id);
                }
            }
            Err(SourceError::Gone { provider }) => {
                self.gone(id, index, SourceError::Gone { provider });
            }
            Err(error) => self.reader_failed(id, index, &source_error(&error)),
        }
        self.close_reader_if_unused(id);
        // All who waited may have gone.
        self.close_if_unused(id);
        let replay = self.triggers.get(&id).and_then(|it| it.replay.as_ref());
        replay.is_some_and(|it| it.reader_of(pass).is_some())
    }

    fn is_served(&self, id: TriggerId, joining: &Joining) -> bool {
        let replay = self.triggers.get(&id).and_then(|it| it.replay.as_ref());
        let (Some(replay), Some(resume)) = (replay, &joining.resume) else { return false };
        replay.shared().is_some_and(|reader| reader.serves(resume))
            || matches!(resume, Resume::After(position) if replay.ring_serves(position))
    }

    /// Groups that fell out of the ring while the reader was being opened may stand before it.
    fn reading_is_served(&self, id: TriggerId, index: usize) -> bool {
        let replay = self.triggers.get(&id).and_then(|it| it.replay.as_ref());
        let Some(side) = replay.and_then(|it| it.readers.get(index)) else { return true };
        let Some(reader) = &side.stream else { return side.reading.is_empty() };
        side.reading.iter().filter_map(|id| self.groups.get(id)?.catching.as_deref()).all(|it| {
            matches!(reader.start, Resume::Since { .. } | Resume::Oldest)
                || side_reader::is_before(&reader.position, &it.position)
        })
    }

    /// The broker has no more of what the earliest wants: it is told so, and the others get another try. A group that
    /// was live goes on with the oldest event instead.
    fn gone(&mut self, id: TriggerId, index: usize, error: SourceError) {
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return;
        };
        replay.side(index).stream = None;
        replay.gone += 1;
        let age = |position: &Position| -> u128 {
            position.marks().iter().map(|mark| u128::from(mark.offset)).sum()
        };
        let of_joining = |joining: &Joining| match &joining.resume {
            Some(Resume::After(position)) => age(position),
            Some(Resume::Since { .. } | Resume::Oldest) | None => 0,
        };
        let groups = &self.groups;
        let of_group = |id: &GroupId| Some(age(&groups.get(id)?.catching.as_deref()?.position));
        let waiting: &[Joining] = if index == SHARED { &replay.waiting } else { &[] };
        let reading = &replay.readers[index].reading;
        let ages = waiting.iter().map(of_joining);
        let earliest = ages.chain(reading.iter().filter_map(of_group)).min();
        let limit = if replay.gone >= GONE_MAX { Some(u128::MAX) } else { earliest };
        let is_gone = |age: u128| limit.is_some_and(|limit| age <= limit);
        let gone: Vec<_> =
            reading.iter().copied().filter(|id| of_group(id).is_some_and(is_gone)).collect();
        let refused: Vec<_> = match index {
            SHARED => {
                replay.waiting.extract_if(.., |joining| is_gone(of_joining(joining))).collect()
            }
            _ => Vec::new(),
        };
        stats::add(&self.stats.cursors_expired, refused.len());
        let error = source_error(&error);
        for joining in refused {
            refuse(joining, error.clone());
        }
        for group_id in gone {
            let group = self.groups.get_mut(&group_id);
            match group.and_then(|it| it.catching.as_deref_mut()) {
                Some(catching) if catching.was_live => catching.from_oldest = true,
                _ => {
                    stats::add(&self.stats.cursors_expired, 1);
                    self.end_group(group_id, &EndReason::Error(Box::new(error.clone())));
                }
            }
        }
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return;
        };
        let waits = index == SHARED && !replay.waiting.is_empty();
        if waits || !replay.side(index).reading.is_empty() {
            self.read(id, index);
        } else {
            self.close_if_unused(id);
        }
    }

    /// Whoever needs the reader is told that it cannot be served. Groups that were live wait until it can be opened.
    pub(super) fn reader_failed(&mut self, id: TriggerId, index: usize, error: &GraphqlError) {
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return;
        };
        if let Some(reader) = replay.side(index).stream.take() {
            self.effects.push(Effect::CloseReader { trigger: id, pass: reader.pass });
        }
        if index == SHARED {
            for joining in std::mem::take(&mut replay.waiting) {
                refuse(joining, error.clone());
            }
        }
        let reading: Vec<_> = replay.side(index).reading.iter().copied().collect();
        let mut stays = false;
        for group_id in reading {
            let group = self.groups.get(&group_id);
            if group.and_then(|it| it.catching.as_deref()).is_some_and(|it| it.was_live) {
                stays = true;
            } else {
                self.end_group(group_id, &EndReason::Error(Box::new(error.clone())));
            }
        }
        if stays {
            self.retry_reader(id, index);
        }
        self.close_if_unused(id);
    }

    /// A reader whom nobody needs goes.
    pub(super) fn close_reader_if_unused(&mut self, id: TriggerId) {
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return;
        };
        // Those who are gathered get one of their own.
        let waits = !replay.waiting.is_empty() && replay.gathering.is_none();
        for (index, side) in replay.readers.iter_mut().enumerate() {
            if side.reading.is_empty()
                && !(index == SHARED && waits)
                && let Some(reader) = side.stream.take()
            {
                self.effects.push(Effect::CloseReader { trigger: id, pass: reader.pass });
            }
        }
    }
}
