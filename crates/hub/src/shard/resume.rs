//! Who comes with a cursor: first a group of its own, which is given what it missed in order, from the ring or from the side
//! reader; then, when it stands where the trigger stands, it gets live events like any other; and when an equal group and it
//! stand at the same event, they become one.
//!
//! A group on the way is never given more than it has room for, so nothing of what it missed is dropped: the ring waits, and
//! the reader is not read. There is one reader for all who come to a trigger with a cursor. It begins where the earliest
//! of them stands; when somebody comes from before its place it begins again, and those who have had more skip what they know.
//! Groups that have fallen behind have readers of their own, see [`super::fall_behind`].
//!
//! Nothing depends on when the reader meets the trigger: until a group stands in the ring in every lane the reader serves it.

use std::sync::Arc;

use events::{Event, Mark, Position, SourceError, SourceMessage, StreamEnd};
use execute::{ErrorCode, GraphqlError};

use super::group::{Catching, Group, Mode, Offered};
use super::outlets::Outlets;
use super::replay::{self, FALLEN, Gathering, Reader, SHARED};
use super::{
    Effect, Joining, Shard, State, TriggerId, refuse, source_end, source_error, without_payload,
};
use crate::cursor::{Place, Resume};
use crate::filter::FilteredEvent;
use crate::operation::ByKey;
use crate::stats;
use crate::{EndReason, GroupId, LiveOperation, OutletCommand, TriggerEvent};

/// Events from the reader or the ring that wait in one group before it is given more. They need not be many: the resolution
/// of an event takes longer than the way of the next one through the shard.
const READ_AHEAD: usize = 8;

/// How often in a row a group is looked after whose members do not keep up. Then it goes on, and the policy for slow clients
/// acts: one that takes nothing at all must not hold those who missed the same. With the pause of [`super::task`] these are
/// ten seconds: a slow network takes some for what may wait for a client.
const HELD_MAX: u32 = 2000;

/// Who comes when the reader has gone on waits for others who do: until nobody has come in so many looks of
/// [`super::task`], a tenth of a second, in which a client that lost its connection with all others is back.
const GATHER_QUIET: u32 = 4;

/// And in so many at most, a second: nobody waits for a stream of comers that does not end.
const GATHER_MAX: u32 = 40;

/// How often in a row the reader begins again because the broker has no more of what the earliest wants. Then all who wait
/// are refused: each attempt costs the broker a look.
const GONE_MAX: u32 = 16;

/// What becomes of the stream of a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// Its next message, please.
    On,
    /// Not before [`Effect::ReadOn`].
    Pause,
    /// It is not wanted any more.
    Over,
}

/// A group that became one with another. Its members leave under its name.
pub(super) struct Merged {
    into: GroupId,
    members: u64,
}

#[cfg(test)]
impl Merged {
    pub(super) fn into(&self) -> GroupId {
        self.into
    }
}

fn no_replay() -> GraphqlError {
    let message = "The events of this subscription are not kept; subscribe without a cursor.";
    GraphqlError::new(ErrorCode::CursorExpired, message)
}

fn other_reader() -> GraphqlError {
    let message = "Others are being brought up to date on these topics; try again in a moment.";
    GraphqlError::new(ErrorCode::Overloaded, message)
}

fn source_changed() -> GraphqlError {
    let message = "the graph was replaced, and the topics of this subscription with it, before all that it \
         missed was delivered; subscribe again without a cursor";
    GraphqlError::new(ErrorCode::GraphReloaded, message)
}

impl Group {
    /// Have its members taken what they were given, or did they have time enough?
    fn may_be_given(&mut self, outlets: &Outlets) -> bool {
        let Some(catching) = self.catching.as_deref_mut() else { return true };
        let has_room = outlets.have_room(self.id, &self.members);
        if has_room {
            catching.restore_patience();
        }
        has_room || catching.held >= HELD_MAX
    }
}

impl Shard {
    /// The group that somebody belongs to who joined `group`. To be asked once for each member that leaves.
    pub(super) fn leaves_from(&mut self, mut group: GroupId) -> GroupId {
        while let Some(merged) = self.merged.get_mut(&group) {
            let into = merged.into;
            merged.members -= 1;
            if merged.members == 0 {
                self.merged.remove(&group);
            }
            group = into;
        }
        group
    }

    /// Lets somebody in who comes with a cursor. The trigger is live.
    pub(super) fn resume(&mut self, id: TriggerId, mut joining: Joining) {
        let Some(trigger) = self.triggers.get_mut(&id) else { return };
        let Some(resume) = joining.resume.clone() else { return self.join(id, joining) };
        let Some(replay) = &mut trigger.replay else {
            stats::add(&self.stats.cursors_expired, 1);
            return refuse(joining, no_replay());
        };
        if joining.reply.is_closed() {
            return;
        }
        joining.operation.source = trigger.source.clone();
        let operation = Arc::new(joining.operation.clone());
        let key = (ByKey(Arc::clone(&operation)), resume);
        if let Some(&group) = replay.unserved.get(&key) {
            let is_told = replay.is_at(&key.1);
            stats::add(&self.stats.resumed_shared, 1);
            self.admit(group, joining);
            if !is_told {
                // The group may have been told more than what this one comes with.
                self.look_again(group);
            }
            return;
        }
        let resume = key.1;
        let mode = match &resume {
            Resume::After(position) if replay.ring_serves(position) => {
                stats::add(&self.stats.resumed_from_ring, 1);
                Mode::Ring { next: replay.ring_start() }
            }
            resume if replay.shared().is_some_and(|it| it.serves(resume)) => {
                stats::add(&self.stats.resumed_from_reader, 1);
                Mode::Reader
            }
            _ => {
                replay.waiting.push(joining);
                return self.gather(id);
            }
        };
        self.catch_up_anew(id, operation, resume, mode, joining);
    }

    /// Makes a group that is on its way.
    fn catch_up_anew(
        &mut self,
        id: TriggerId,
        operation: Arc<LiveOperation>,
        resume: Resume,
        mode: Mode,
        joining: Joining,
    ) {
        let group_id = self.new_group_id();
        let scope = self.scope(&operation);
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return;
        };
        replay.catching.insert(group_id);
        if mode == Mode::Reader {
            replay.side(SHARED).reading.insert(group_id);
        }
        let told = if replay.is_at(&resume) { replay.version } else { 0 };
        let key = (ByKey(Arc::clone(&operation)), resume.clone());
        replay.unserved.insert(key.clone(), group_id);
        let position = match resume {
            Resume::After(position) => position,
            // Of the other lanes the reader will tell.
            Resume::Since { mark, .. } => [mark].into_iter().collect(),
            Resume::Oldest => Position::default(),
        };
        let mut group = Group::new(group_id, id, operation, scope);
        group.told = told;
        group.unserved = Some(Box::new(key));
        group.catching = Some(Box::new(Catching::new(position, mode)));
        self.groups.insert(group_id, Box::new(group));
        stats::add(&self.stats.groups, 1);
        stats::add(&self.stats.catching_up, 1);
        self.admit(group_id, joining);
        self.feed(group_id);
    }

    /// Somebody needs the reader where it is no more. It begins again for all who come in a moment; without a reader it begins
    /// at once.
    fn gather(&mut self, id: TriggerId) {
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return;
        };
        let shared = replay.readers.get(SHARED).and_then(|it| it.stream.as_ref());
        match (&mut replay.gathering, shared) {
            (Some(gathering), _) => gathering.quiet = 0,
            (None, None) => self.read(id, SHARED),
            (None, Some(reader)) if reader.is_open => {
                replay.gathering = Some(Gathering::default());
                self.gathering.push(id);
            }
            // Whoever it does not suit then is looked after when it is open.
            (None, Some(_)) => {}
        }
    }

    /// Does anybody wait for others who come again, or for a reader? Then [`Shard::look_after_gathered`] is to be called in a
    /// moment.
    pub(crate) fn is_gathering(&self) -> bool {
        !self.gathering.is_empty() || !self.stalled.is_empty() || !self.retrying.is_empty()
    }

    /// Begins again for those who have waited long enough.
    pub(crate) fn look_after_gathered(&mut self) {
        self.poll_stalled_readers();
        self.poll_retries();
        for id in std::mem::take(&mut self.gathering) {
            let replay = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut());
            let Some(replay) = replay else { continue };
            let Some(gathering) = &mut replay.gathering else { continue };
            gathering.quiet += 1;
            gathering.looks += 1;
            if gathering.quiet < GATHER_QUIET && gathering.looks < GATHER_MAX {
                self.gathering.push(id);
                continue;
            }
            replay.gathering = None;
            replay.waiting.retain(|joining| !joining.reply.is_closed());
            if !replay.waiting.is_empty() {
                self.read(id, SHARED);
            }
            self.close_reader_if_unused(id);
            self.close_if_unused(id);
        }
    }

    /// A group waits until its members have taken more of what they were given.
    fn hold(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        if let Some(catching) = group.catching.as_deref_mut()
            && !std::mem::replace(&mut catching.is_held, true)
        {
            self.held.push(group_id);
        }
    }

    /// Does any group wait for its members? Then [`Shard::look_after_held`] is to be called in a moment: outlets say nothing
    /// of themselves, since hardly anybody ever waits for them.
    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty() || !self.held_back.is_empty()
    }

    /// Goes on with those whose members have room again.
    pub(crate) fn look_after_held(&mut self) {
        self.release_held_back();
        for group_id in std::mem::take(&mut self.held) {
            let Some(group) = self.groups.get_mut(&group_id) else { continue };
            let has_room = self.outlets.have_room(group_id, &group.members);
            if let Some(catching) = group.catching.as_deref_mut() {
                catching.is_held = false;
                if has_room {
                    catching.restore_patience();
                } else {
                    catching.held += 1;
                }
                self.moved_on(group_id);
            }
        }
    }

    /// Gives a group on the way what the ring has for it, as far as it has room; in the end it gets live events.
    fn feed(&mut self, group_id: GroupId) {
        loop {
            let Some(group) = self.groups.get_mut(&group_id) else { return };
            let may_be_given = group.may_be_given(&self.outlets);
            // What waits is for a batch: one by one, nothing is gained by it.
            let takes_batches = group.operation.resolve.takes_batches();
            let batch = READ_AHEAD.max(self.settings.batch_events);
            let Some(Catching { position, mode: Mode::Ring { next }, .. }) =
                group.catching.as_deref_mut()
            else {
                return;
            };
            if group.waiting.len() >= if takes_batches { batch } else { 1 } {
                return;
            }
            let has_all = group.waiting.is_empty();
            let trigger_id = group.trigger;
            let Some(trigger) = self.triggers.get_mut(&trigger_id) else { return };
            let is_over = matches!(trigger.state, State::Ending(_));
            let Some(replay) = &mut trigger.replay else { return };
            if !replay.ring_covers(position) {
                return self.hand_to_reader(group_id);
            }
            let Some(kept) = replay.ring.from(*next) else {
                // What comes live may make it drop what waits.
                if !has_all {
                    return;
                }
                if is_over || replay::is_before(position, &replay.position) {
                    return self.go_live(group_id);
                }
                // The reader was quicker than the trigger, which has yet to bring what the group has had.
                replay.ahead.insert(group_id);
                return;
            };
            if !may_be_given {
                return self.hold(group_id);
            }
            *next = kept.place.number + 1;
            if !position.advance(kept.place.mark) {
                group.even_from = *next;
                continue;
            }
            let filter = group.operation.filter.as_deref();
            let passes = filter.is_none_or(|filter| {
                FilteredEvent::read(&kept.event.event).is_some_and(|event| filter.passes(&event))
            });
            if passes {
                let (event, place) = (kept.event.clone(), Some(Arc::clone(&kept.place)));
                let number = kept.place.number;
                group.offer(Offered { event, number, place, is_stored: self.settings.catch_up });
                stats::add(&self.stats.replayed, 1);
                stats::add(&self.stats.waiting, 1);
                while self.start(group_id) {}
                self.queue_if_ready(group_id);
            }
        }
    }

    /// The ring has lost what a group needs next.
    fn hand_to_reader(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        let Some(catching) = group.catching.as_deref_mut() else { return };
        let reader = if catching.was_live { FALLEN } else { SHARED };
        (catching.mode, catching.reader) = (Mode::Reader, reader);
        let id = group.trigger;
        let resume = Resume::After(catching.position.clone());
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return;
        };
        let side = replay.side(reader);
        side.reading.insert(group_id);
        let is_served = side.stream.as_ref().is_some_and(|it| it.serves(&resume));
        if !is_served && !side.is_retrying {
            self.read(id, reader);
        }
    }

    /// The trigger was read further: those who were ahead of it may be no more.
    pub(super) fn feed_those_ahead(&mut self, id: TriggerId) {
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return;
        };
        for group in std::mem::take(&mut replay.ahead) {
            self.feed(group);
        }
    }

    /// All that it missed is on its way to a group's members: from now on it gets what comes.
    fn go_live(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        if group.catching.take().is_some() {
            stats::subtract(&self.stats.catching_up, 1);
        }
        let Some(trigger) = self.triggers.get_mut(&group.trigger) else { return };
        trigger.attach(group_id, &group.operation, true);
        if !trigger.is_found(group_id, &group.operation) {
            trigger.twins.insert(group_id);
        }
        if let Some(replay) = &mut trigger.replay {
            replay.catching.swap_remove(&group_id);
            replay.look_again();
        }
        if self.apply_deferred_move(group_id) {
            return;
        }
        self.merge(group_id);
        self.end_if_drained(group_id);
    }

    /// Something of a group has moved on: there may be room in it, or it may have met its twin.
    pub(super) fn moved_on(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        let may_be_given = group.may_be_given(&self.outlets);
        match group.catching.as_deref_mut() {
            Some(Catching { mode: Mode::Ring { .. }, .. }) => return self.feed(group_id),
            Some(Catching { mode: Mode::Reader, is_full, reader, .. }) => {
                if *is_full && group.waiting.len() < READ_AHEAD {
                    if !may_be_given {
                        return self.hold(group_id);
                    }
                    *is_full = false;
                    let (id, reader) = (group.trigger, *reader);
                    self.fewer_full(id, reader);
                }
                return;
            }
            None => {}
        }
        let Some(group) = self.groups.get(&group_id) else { return };
        let Some(trigger) = self.triggers.get(&group.trigger) else { return };
        if trigger.twins.is_empty() {
            return;
        }
        if trigger.twins.contains(&group_id) {
            return self.merge(group_id);
        }
        let key = &group.operation.group;
        let is_twin =
            |id: &GroupId| self.groups.get(id).is_some_and(|it| it.operation.group == *key);
        let twins: Vec<_> = trigger.twins.iter().copied().filter(is_twin).collect();
        for twin in twins {
            self.merge(twin);
        }
    }

    fn fewer_full(&mut self, id: TriggerId, reader: usize) {
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return;
        };
        let side = replay.side(reader);
        side.full -= 1;
        if side.full == 0
            && let Some(reader) = side.stream.as_mut().filter(|it| it.is_paused)
        {
            reader.is_paused = false;
            self.effects.push(Effect::ReadOn { trigger: id, pass: reader.pass });
        }
    }

    /// Makes a group and the one that is found in its place one, if both have delivered the same and owe nothing.
    fn merge(&mut self, from: GroupId) {
        let Some(group) = self.groups.get(&from) else { return };
        let Some(trigger) = self.triggers.get_mut(&group.trigger) else { return };
        let into = *trigger.by_key.entry(ByKey(Arc::clone(&group.operation))).or_insert(from);
        if into == from {
            trigger.twins.swap_remove(&from);
            return;
        }
        let next = trigger.next_number();
        let Some(other) = self.groups.get(&into) else { return };
        let same_graph = group.operation.generation == other.operation.generation;
        let stays = group.moving_to.is_some() || other.moving_to.is_some();
        // An event that the group has had before its turn would come again from the other one.
        let edge = group.edge(next).filter(|edge| *edge >= group.even_from.max(other.even_from));
        if stays || !same_graph || edge.is_none() || edge != other.edge(next) {
            return;
        }
        let Some(group) = self.groups.get_mut(&from) else { return };
        let members = group.take_members();
        let mut count = 0;
        for (outlet, of_outlet) in members.by_outlet() {
            self.outlets.send(outlet, OutletCommand::Merge { from, into });
            count += of_outlet;
        }
        let told = group.told;
        if let Some(other) = self.groups.get_mut(&into) {
            other.add_members(&members);
            if told < other.told {
                other.told = told;
                if let Some(replay) = &mut trigger.replay {
                    replay.look_again();
                }
            }
        }
        self.merged.insert(from, Merged { into, members: count });
        stats::add(&self.stats.merged, 1);
        self.remove_group(from);
    }

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
            Some(_) => Some(Resume::After(replay::earliest(positions))),
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
        let wanted = trigger.source.read_from(replay::start_of(&start));
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
                || replay::is_before(&reader.position, &it.position)
        })
    }

    /// The broker has no more of what the earliest wants: it is told so, and the others get another try. A group that was live
    /// goes on with the oldest event instead.
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
    fn reader_failed(&mut self, id: TriggerId, index: usize, error: &GraphqlError) {
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

    /// What came from a reader's stream. `None`: the stream was dropped without a word.
    pub(crate) fn reader_message(
        &mut self,
        id: TriggerId,
        pass: u64,
        message: Option<SourceMessage>,
    ) -> Reading {
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return Reading::Over;
        };
        let Some(index) = replay.reader_of(pass) else { return Reading::Over };
        let Some(reader) = &mut replay.side(index).stream else { return Reading::Over };
        let (event, mark) = match message {
            Some(SourceMessage::Event(event)) => match event.mark {
                Some(mark) => (Some(event), mark),
                None => {
                    let message = "The broker does not say where its events stand.";
                    let error = GraphqlError::new(ErrorCode::ProviderUnavailable, message);
                    self.reader_failed(id, index, &error);
                    return Reading::Over;
                }
            },
            Some(SourceMessage::Passed(mark)) => (None, mark),
            Some(SourceMessage::Gap) => {
                // Nothing is lost: what is missing is read again.
                self.read(id, index);
                return Reading::Over;
            }
            Some(SourceMessage::End(end)) => {
                let end = source_end(self.provider_of(id), &end);
                self.reader_failed(id, index, &end);
                return Reading::Over;
            }
            None => {
                let end = source_end(self.provider_of(id), &StreamEnd::Closed);
                self.reader_failed(id, index, &end);
                return Reading::Over;
            }
        };
        let is_known = reader.position.lane(mark.lane).is_some();
        reader.position.advance(mark);
        let begins_lane = event.is_none() && !is_known;
        match reader.start {
            Resume::Since { .. } if begins_lane => self.expire_those_before(id, index, mark),
            Resume::Oldest if begins_lane => {
                self.announce_deleted(id, index, mark);
                self.expire_those_before(id, index, mark);
            }
            Resume::Oldest if event.is_some() => self.oldest_is_known(id, index),
            _ => {}
        }
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return Reading::Over;
        };
        let reading: Vec<_> = replay.side(index).reading.iter().copied().collect();
        // Nothing holds the bytes of what nobody will read.
        let bytes = event.as_ref().map(|event| event.payload.len());
        let too_large = bytes.filter(|bytes| *bytes > self.settings.event_bytes_max);
        let event = event.map(|event| match too_large {
            Some(_) => Arc::new(without_payload(&event)),
            None => event,
        });
        let values = event.as_ref().and_then(FilteredEvent::read);
        for group in reading {
            self.read_by(group, mark, event.as_ref().zip(Some(too_large)), values.as_ref());
        }
        self.close_reader_if_unused(id);
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return Reading::Over;
        };
        let side = replay.side(index);
        match side.stream.as_mut().filter(|it| it.pass == pass) {
            None => Reading::Over,
            Some(reader) if side.full > 0 => {
                reader.is_paused = true;
                if side.is_stalled() {
                    self.watch_stalled_reader(id, index);
                }
                Reading::Pause
            }
            Some(_) => Reading::On,
        }
    }

    /// A reader that begins at a time, which is before the places of all whom it serves, begins a lane with that mark. Who
    /// stands before it misses what the broker has no more.
    fn expire_those_before(&mut self, id: TriggerId, index: usize, begin: Mark) {
        let Some(replay) = self.triggers.get(&id).and_then(|it| it.replay.as_ref()) else { return };
        let Some(side) = replay.readers.get(index) else { return };
        let stands_before = |group: &GroupId| {
            let catching = self.groups.get(group).and_then(|it| it.catching.as_deref());
            let catching = catching.filter(|it| !it.was_live);
            let place = catching.and_then(|it| it.position.lane(begin.lane));
            place.is_some_and(|place| place < begin)
        };
        let expired: Vec<_> = side.reading.iter().copied().filter(stands_before).collect();
        stats::add(&self.stats.cursors_expired, expired.len());
        let error = source_error(&SourceError::Gone { provider: self.provider_of(id).into() });
        for group in expired {
            self.end_group(group, &EndReason::Error(Box::new(error.clone())));
        }
    }

    fn provider_of(&self, id: TriggerId) -> &str {
        self.triggers.get(&id).map_or("", |it| it.source.provider().name())
    }

    /// The reader has come to `mark`; with an event, or because nothing there is wanted.
    fn read_by(
        &mut self,
        group_id: GroupId,
        mark: Mark,
        event: Option<(&Arc<Event>, Option<usize>)>,
        values: Option<&FilteredEvent>,
    ) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        let id = group.trigger;
        let Some(catching) = group.catching.as_deref_mut() else { return };
        let is_new = catching.position.advance(mark);
        let position = catching.position.clone();
        let filter = group.operation.filter.as_deref();
        let passes = || filter.is_none_or(|filter| values.is_some_and(|it| filter.passes(it)));
        if let Some((event, too_large)) = event.filter(|_| is_new && passes()) {
            let place = Place::new(0, mark, position.clone(), event.published);
            let place = Some(Arc::new(place));
            let event = TriggerEvent { event: Arc::clone(event), too_large, sharing: None };
            let is_stored = self.settings.catch_up;
            group.offer(Offered { event, number: 0, place, is_stored });
            stats::add(&self.stats.replayed, 1);
            stats::add(&self.stats.waiting, 1);
            while self.start(group_id) {}
            self.queue_if_ready(group_id);
        }
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return;
        };
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        let has_room = group.may_be_given(&self.outlets);
        let is_crowded = group.waiting.len() >= READ_AHEAD || !has_room;
        let Some(catching) = group.catching.as_deref_mut() else { return };
        let reader = catching.reader;
        if replay.ring_covers(&position) {
            catching.mode = Mode::Ring { next: replay.ring_start() };
            replay.side(reader).reading.swap_remove(&group_id);
            if std::mem::take(&mut catching.is_full) {
                self.fewer_full(id, reader);
            }
            self.feed(group_id);
        } else if is_crowded && !catching.is_full {
            catching.is_full = true;
            replay.side(reader).full += 1;
            if !has_room {
                self.hold(group_id);
            }
        }
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

    /// A group goes, or goes elsewhere: it is no longer on the way anywhere.
    pub(super) fn forget_resumed(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        let id = group.trigger;
        let (catching, unserved) = (group.catching.take(), group.unserved.take());
        let Some(trigger) = self.triggers.get_mut(&id) else { return };
        trigger.twins.swap_remove(&group_id);
        trigger.forget_fresh(group_id, &group.operation);
        let Some(replay) = trigger.replay.as_mut() else { return };
        replay.forget_unserved(group_id, unserved.as_deref());
        replay.catching.swap_remove(&group_id);
        replay.ahead.swap_remove(&group_id);
        if let Some(catching) = catching {
            stats::subtract(&self.stats.catching_up, 1);
            let reader = catching.reader;
            replay.side(reader).reading.swap_remove(&group_id);
            if catching.is_full {
                self.fewer_full(id, reader);
            }
        }
        self.close_reader_if_unused(id);
    }

    /// Something of a group was delivered, or it is not what it was: nobody joins it by its position any more.
    pub(super) fn served(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        if let Some(trigger) = self.triggers.get_mut(&group.trigger) {
            trigger.forget_fresh(group_id, &group.operation);
        }
        let Some(key) = group.unserved.take() else { return };
        let replay = self.triggers.get_mut(&group.trigger).and_then(|it| it.replay.as_mut());
        if let Some(replay) = replay {
            replay.forget_unserved(group_id, Some(&key));
        }
    }

    /// Live events may be missing: whoever is not live yet reads them.
    pub(super) fn gap_for_those_on_the_way(&mut self, id: TriggerId) {
        let Some(replay) = self.triggers.get_mut(&id).and_then(|it| it.replay.as_mut()) else {
            return;
        };
        replay.gap();
        let on_ring: Vec<_> =
            replay.catching.iter().copied().filter(|id| !replay.is_reading(*id)).collect();
        for group in on_ring {
            self.hand_to_reader(group);
        }
    }

    /// No live event follows, so nobody gets where it wanted to.
    pub(super) fn end_those_on_the_way(&mut self, id: TriggerId) {
        let Some(trigger) = self.triggers.get_mut(&id) else { return };
        let State::Ending(reason) = &trigger.state else { return };
        let reason = reason.clone();
        let Some(replay) = &mut trigger.replay else { return };
        let EndReason::Error(error) = &reason else {
            // They get what they miss, and then end like the others.
            for group in std::mem::take(&mut replay.ahead) {
                self.feed(group);
            }
            return;
        };
        for joining in std::mem::take(&mut replay.waiting) {
            refuse(joining, (**error).clone());
        }
        let catching: Vec<_> = replay.catching.iter().copied().collect();
        for group_id in catching {
            let group = self.groups.get(&group_id);
            if group.and_then(|it| it.catching.as_deref()).is_some_and(|it| it.was_live) {
                // Like a live group it delivers what it holds, and then ends or goes on at another source.
                self.forget_resumed(group_id);
                self.go_live(group_id);
            } else {
                self.end_group(group_id, &reason);
            }
        }
        self.close_reader_if_unused(id);
    }

    /// A graph took over, and with it the operation of a group on the way. False: it is none.
    pub(super) fn splice_on_the_way(
        &mut self,
        group_id: GroupId,
        operation: &LiveOperation,
    ) -> bool {
        let scope = self.scope(operation);
        let Some(group) = self.groups.get_mut(&group_id) else { return false };
        let Some(was_live) = group.catching.as_deref().map(|it| it.was_live) else { return false };
        let Some(trigger) = self.triggers.get(&group.trigger) else { return false };
        // A graph that came in between has decided otherwise.
        group.moving_later = None;
        if trigger.source == operation.source {
            let source = trigger.source.clone();
            group.operation = Arc::new(LiveOperation { source, ..operation.clone() });
            group.change_scope(scope);
            stats::add(&self.stats.spliced, 1);
            self.served(group_id);
        } else if was_live {
            // First it gets all of the source that it leaves.
            group.moving_later = Some(Box::new(operation.clone()));
        } else {
            stats::add(&self.stats.ended_by_reload, 1);
            self.end_group(group_id, &EndReason::Error(Box::new(source_changed())));
        }
        true
    }
}
