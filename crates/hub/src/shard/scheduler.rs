//! The scheduler of a shard's resolutions. It starts the events of a group while the group's window has room and
//! permits are left. Groups that lack a permit queue for one, and take turns when permits are released.

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

/// The permits and the queue of groups of one shard.
pub(super) struct Scheduler {
    /// The maximum number of resolutions of one group.
    window: usize,
    /// The maximum number of events that are resolved together.
    batch_events: usize,
    permits: ShardPermits,
    /// Groups that could start an event if a permit were available.
    ready: VecDeque<GroupId>,
    stats: Arc<HubStats>,
}

impl Scheduler {
    pub(super) fn new(settings: &HubSettings, permits: ShardPermits, stats: Arc<HubStats>) -> Self {
        Self {
            window: settings.group_in_flight.max(1),
            batch_events: settings.batch_events,
            permits,
            ready: VecDeque::new(),
            stats,
        }
    }

    /// Starts one event of a group, or a batch of those that wait. Returns false if there is none, its window is full,
    /// or no permit is left.
    pub(super) fn start(&mut self, group: &mut Group, effects: &mut Vec<Effect>) -> bool {
        if !group.can_start(self.window) || !self.permits.acquire() {
            return false;
        }
        let resolve = Arc::clone(&group.operation.resolve);
        let most = if resolve.takes_batches() { self.batch_events } else { 1 };
        let Some(start) = group.start(self.window, most) else { return false };
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
        if !group.is_queued && group.can_start(self.window) {
            group.is_queued = true;
            self.ready.push_back(group.id);
        }
    }

    /// Takes the next group out of the queue, if a permit is available. The group may have been removed.
    pub(super) fn next_ready(&mut self) -> Option<GroupId> {
        self.permits.has_available().then(|| self.ready.pop_front()).flatten()
    }

    /// Releases permits of resolutions that have ended.
    pub(super) fn release(&mut self, permits: usize) {
        self.permits.release(permits);
    }

    /// Sweeps the entries of removed groups out of the queue, before they pile up. `groups` is the number of groups,
    /// and `is_group` is true for those that were not removed.
    pub(super) fn sweep(&mut self, groups: usize, is_group: impl Fn(GroupId) -> bool) {
        if self.ready.len() > 2 * groups + STALE_READY_MAX {
            self.ready.retain(|id| is_group(*id));
        }
    }

    /// Returns the number of resolutions in flight.
    pub(super) fn resolutions(&self) -> usize {
        self.permits.taken()
    }

    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.ready.len()
    }

    #[cfg(test)]
    pub(super) fn has_permit(&self) -> bool {
        self.permits.has_available()
    }
}
