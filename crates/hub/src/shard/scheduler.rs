//! The scheduler of a shard's resolutions. It starts the events of a group while the group's window has room and
//! permits are left. Groups that lack a permit queue for one, and take turns when permits are released.
//!
//! Some resolutions give way to the others ([`Yielding`]). Only a part of the permits is for them, and each kind has a
//! queue of its own. The queues take turns, so a group does not wait longer because thousands wait in another queue.

use std::collections::VecDeque;
use std::sync::Arc;

use super::concurrency_limit::{ShardPermits, Yielding};
use super::effect::Effect;
use super::group::Group;
use super::resolution::ResolutionWork;
use crate::stats::{self, HubStats};
use crate::{GroupId, HubSettings};

/// The maximum number of void queue entries, beyond two entries per live group. The entries are swept out above it, so
/// that sweeping costs little for each.
pub(super) const STALE_READY_MAX: usize = 64;

/// An entry in a queue. It is void if the group was removed, or has another [`QueuePlace`] since.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueEntry {
    pub(super) group: GroupId,
    /// The number of the entry, which no other one of the shard has.
    pub(super) number: u64,
}

/// The place of a group in a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueuePlace {
    /// The number of the entry.
    pub(super) number: u64,
    /// The kind whose queue it is. `None`: the queue of the resolutions that give way to none.
    yielding: Option<Yielding>,
}

/// The permits and the queues of groups of one shard.
pub(super) struct Scheduler {
    /// The maximum number of resolutions of one group.
    window: usize,
    /// The maximum number of events that are resolved together.
    batch_events: usize,
    permits: ShardPermits,
    /// Groups that could start an event if a permit were available.
    ready: VecDeque<QueueEntry>,
    /// For each kind of resolutions that give way to others, the groups with a next resolution of that kind. They also
    /// wait until the limit of the kind has room.
    yielding: [VecDeque<QueueEntry>; Yielding::COUNT],
    /// The number of the next entry.
    next_number: u64,
    /// The queue from which the last group was taken, because they take turns: 0 is `ready`, and the others are those
    /// of [`Yielding::ALL`] in their order.
    turn: usize,
    stats: Arc<HubStats>,
}

impl Scheduler {
    pub(super) fn new(settings: &HubSettings, permits: ShardPermits, stats: Arc<HubStats>) -> Self {
        Self {
            window: settings.group_in_flight.max(1),
            batch_events: settings.batch_events,
            permits,
            ready: VecDeque::new(),
            yielding: Default::default(),
            next_number: 0,
            turn: 0,
            stats,
        }
    }

    /// Starts one event of a group, or a batch of those that wait. Returns false if there is none, its window is full,
    /// or no permit is left for it.
    pub(super) fn start(&mut self, group: &mut Group, effects: &mut Vec<Effect>) -> bool {
        if !group.can_start(self.window) {
            return false;
        }
        let yielding = group.next_yielding();
        if !self.permits.acquire(yielding) {
            return false;
        }
        let resolve = Arc::clone(&group.operation.resolve);
        let most = if resolve.takes_batches() { self.batch_events } else { 1 };
        let Some(start) = group.start(self.window, most, yielding) else { return false };
        let events = match &start.work {
            ResolutionWork::Batch(events) => events.len(),
            ResolutionWork::Event(_) | ResolutionWork::State { .. } => 1,
        };
        match start.work {
            ResolutionWork::Event(_) => stats::add(&self.stats.resolutions, 1),
            ResolutionWork::Batch(_) => {
                stats::add(&self.stats.resolutions, events);
                stats::add(&self.stats.batches, 1);
                stats::add(&self.stats.batched_events, events);
            }
            ResolutionWork::State { .. } if group.is_state(start.ticket) => {
                stats::add(&self.stats.states, 1);
            }
            ResolutionWork::State { .. } => stats::add(&self.stats.resolutions, 1),
        }
        stats::add(&self.stats.resolving, events);
        stats::subtract(&self.stats.waiting, events);
        let (group, ticket, work, abort) = (group.id, start.ticket, start.work, start.abort);
        effects.push(Effect::Resolve { group, ticket, work, resolve, abort });
        true
    }

    /// Starts as many events of a group as possible, and queues the group if some are left for want of a permit.
    pub(super) fn start_all(&mut self, group: &mut Group, effects: &mut Vec<Effect>) {
        while self.start(group, effects) {}
        self.queue_if_ready(group);
    }

    /// Queues a group that could start an event if a permit were available. A group in the queue of a kind that its
    /// next resolution no longer has, such as one that has caught up, changes to the right queue.
    pub(super) fn queue_if_ready(&mut self, group: &mut Group) {
        if !group.can_start(self.window) {
            return;
        }
        let yielding = group.next_yielding();
        let is_well_placed =
            |place: QueuePlace| place.yielding.is_none_or(|kind| Some(kind) == yielding);
        if group.queue_place.is_some_and(is_well_placed) {
            return;
        }
        let number = self.next_number;
        self.next_number += 1;
        group.queue_place = Some(QueuePlace { number, yielding });
        let queue = match yielding {
            Some(kind) => &mut self.yielding[kind as usize],
            None => &mut self.ready,
        };
        queue.push_back(QueueEntry { group: group.id, number });
    }

    /// Takes the next entry out of a queue, if a permit is available for it. The entry may be void, see
    /// [`Group::has_place`].
    pub(super) fn next_ready(&mut self) -> Option<QueueEntry> {
        if !self.permits.has_available() {
            return None;
        }
        for _ in 0..=Yielding::COUNT {
            self.turn = (self.turn + 1) % (1 + Yielding::COUNT);
            let next = match self.turn {
                0 => self.ready.pop_front(),
                turn => self.next_of(Yielding::ALL[turn - 1]),
            };
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Takes the next entry of a group that waits with a resolution of this kind, if the limit of the kind leaves room.
    fn next_of(&mut self, kind: Yielding) -> Option<QueueEntry> {
        match self.permits.has_room_for(kind) {
            true => self.yielding[kind as usize].pop_front(),
            false => None,
        }
    }

    /// Releases permits of resolutions that have ended, and says how many of them were of each kind that gives way.
    pub(super) fn release(&mut self, permits: usize, of_kinds: [usize; Yielding::COUNT]) {
        self.permits.release(permits, of_kinds);
    }

    /// Sweeps void entries out of the queues, before they pile up. `groups` is the number of groups, of which each has
    /// one entry at most that is not void.
    pub(super) fn sweep(&mut self, groups: usize, is_void: impl Fn(QueueEntry) -> bool) {
        if self.queue_entries() > 2 * groups + STALE_READY_MAX {
            for queue in self.yielding.iter_mut().chain([&mut self.ready]) {
                queue.retain(|entry| !is_void(*entry));
            }
        }
    }

    /// Returns the number of resolutions in flight.
    pub(super) fn resolutions(&self) -> usize {
        self.permits.taken()
    }

    fn queue_entries(&self) -> usize {
        self.ready.len() + self.yielding.iter().map(VecDeque::len).sum::<usize>()
    }

    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.queue_entries()
    }

    /// True if a permit is available for the next resolution of a group.
    #[cfg(test)]
    pub(super) fn has_permit_for(&self, group: &Group) -> bool {
        let has_room = group.next_yielding().is_none_or(|kind| self.permits.has_room_for(kind));
        self.permits.has_available() && has_room
    }
}
