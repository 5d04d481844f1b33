//! The scheduler of a shard's resolutions. It starts the events of a group while the group's window has room and
//! permits are left. Groups that lack a permit queue for one, and take turns when permits are released.
//!
//! Some resolutions give way to the others ([`Group::next_gives_way`]): the current state for new subscribers, so that
//! a thousand of them at once do not delay the events of those that are there, and events that need a slow subgraph, so
//! that they do not take the permits of all others. Only a part of the permits is for them. Beyond it their groups wait
//! in a queue of their own.

use std::collections::VecDeque;
use std::sync::Arc;

use super::concurrency_limit::ShardPermits;
use super::effect::Effect;
use super::group::Group;
use super::resolution::ResolutionWork;
use crate::stats::{self, HubStats};
use crate::{GroupId, HubSettings};

/// The maximum number of queue entries of removed groups, beyond two entries per live group. The entries are swept out
/// above it, so that sweeping costs little for each.
pub(super) const STALE_READY_MAX: usize = 64;

/// The part of the hub's permits, one in this number, for resolutions that give way to others.
const GIVING_WAY_DIVISOR: usize = 2;

/// The permits and the queues of groups of one shard.
pub(super) struct Scheduler {
    /// The maximum number of resolutions of one group.
    window: usize,
    /// The maximum number of events that are resolved together.
    batch_events: usize,
    permits: ShardPermits,
    /// Groups that could start an event if a permit were available.
    ready: VecDeque<GroupId>,
    /// Groups whose next resolution gives way to others, and waits until another one of these has ended.
    giving_way: VecDeque<GroupId>,
    /// The number of resolutions in flight that give way to others, and the number that may be.
    resolving_that_give_way: usize,
    giving_way_max: usize,
    /// True if the next group is taken from `giving_way`, if it has one: the queues take turns.
    is_turn_of_giving_way: bool,
    stats: Arc<HubStats>,
}

impl Scheduler {
    pub(super) fn new(settings: &HubSettings, permits: ShardPermits, stats: Arc<HubStats>) -> Self {
        Self {
            window: settings.group_in_flight.max(1),
            batch_events: settings.batch_events,
            permits,
            ready: VecDeque::new(),
            giving_way: VecDeque::new(),
            resolving_that_give_way: 0,
            // Each shard has its part of them. Where some wait, at least one is in flight, and its end starts the next.
            giving_way_max: (settings.resolutions_in_flight
                / GIVING_WAY_DIVISOR
                / settings.shards.max(1))
            .max(1),
            is_turn_of_giving_way: false,
            stats,
        }
    }

    /// Starts one event of a group, or a batch of those that wait. Returns false if there is none, its window is full,
    /// or no permit is left for it.
    pub(super) fn start(&mut self, group: &mut Group, effects: &mut Vec<Effect>) -> bool {
        if !group.can_start(self.window) {
            return false;
        }
        let gives_way = group.next_gives_way();
        if (gives_way && !self.has_room_to_give_way()) || !self.permits.acquire() {
            return false;
        }
        let resolve = Arc::clone(&group.operation.resolve);
        let most = if resolve.takes_batches() { self.batch_events } else { 1 };
        let Some(start) = group.start(self.window, most, gives_way) else { return false };
        self.resolving_that_give_way += usize::from(gives_way);
        let events = match &start.work {
            ResolutionWork::Batch(events) => events.len(),
            ResolutionWork::Event(_) | ResolutionWork::State(_) => 1,
        };
        match start.work {
            ResolutionWork::Event(_) => stats::add(&self.stats.resolutions, 1),
            ResolutionWork::Batch(_) => {
                stats::add(&self.stats.resolutions, events);
                stats::add(&self.stats.batches, 1);
                stats::add(&self.stats.batched_events, events);
            }
            ResolutionWork::State(_) if group.is_state(start.ticket) => {
                stats::add(&self.stats.states, 1);
            }
            ResolutionWork::State(_) => stats::add(&self.stats.resolutions, 1),
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

    /// Queues a group that could start an event if a permit were available.
    pub(super) fn queue_if_ready(&mut self, group: &mut Group) {
        if group.is_queued || !group.can_start(self.window) {
            return;
        }
        group.is_queued = true;
        match !self.has_room_to_give_way() && group.next_gives_way() {
            true => self.giving_way.push_back(group.id),
            false => self.ready.push_back(group.id),
        }
    }

    /// True if one more resolution may start that gives way to others.
    fn has_room_to_give_way(&self) -> bool {
        self.resolving_that_give_way < self.giving_way_max
    }

    /// Takes the next group out of a queue, if a permit is available for it. The group may have been removed.
    pub(super) fn next_ready(&mut self) -> Option<GroupId> {
        if !self.permits.has_available() {
            return None;
        }
        if self.giving_way.is_empty() || !self.has_room_to_give_way() {
            return self.ready.pop_front();
        }
        self.is_turn_of_giving_way = !self.is_turn_of_giving_way;
        match self.is_turn_of_giving_way {
            true => self.giving_way.pop_front(),
            false => self.ready.pop_front().or_else(|| self.giving_way.pop_front()),
        }
    }

    /// Releases permits of resolutions that have ended, of which some gave way to others.
    pub(super) fn release(&mut self, permits: usize, giving_way: usize) {
        self.permits.release(permits);
        self.resolving_that_give_way = self.resolving_that_give_way.saturating_sub(giving_way);
    }

    /// Sweeps the entries of removed groups out of the queues, before they pile up. `groups` is the number of groups,
    /// and `is_group` is true for those that were not removed.
    pub(super) fn sweep(&mut self, groups: usize, is_group: impl Fn(GroupId) -> bool) {
        if self.ready.len() + self.giving_way.len() > 2 * groups + STALE_READY_MAX {
            self.ready.retain(|id| is_group(*id));
            self.giving_way.retain(|id| is_group(*id));
        }
    }

    /// Returns the number of resolutions in flight.
    pub(super) fn resolutions(&self) -> usize {
        self.permits.taken()
    }

    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.ready.len() + self.giving_way.len()
    }

    /// True if a permit is available for the next resolution of a group.
    #[cfg(test)]
    pub(super) fn has_permit_for(&self, group: &Group) -> bool {
        let has_room = self.has_room_to_give_way() || !group.next_gives_way();
        self.permits.has_available() && has_room
    }
}
