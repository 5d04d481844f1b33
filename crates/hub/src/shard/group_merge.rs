//! Merging of equal groups. A group that has caught up, or that began with a state of its own, becomes one with the
//! equal group that new subscribers join, as soon as both have delivered the same events and have none left to deliver.

use super::Shard;
use super::group::Group;
use crate::GroupId;

impl Shard {
    /// Merges a group into the equal group that new subscribers join, if both have delivered the same events and have
    /// none left to deliver. With states it may also be another equal group that waits for that: groups with patches
    /// have different revisions for a while.
    pub(super) fn merge(&mut self, from: GroupId) {
        let Some(group) = self.groups.get(from) else { return };
        let id = group.trigger;
        let Some(trigger) = self.triggers.get_mut(id) else { return };
        let first = trigger.merge_target(from, &group.operation);
        if first == from {
            trigger.merge_candidates.swap_remove(&from);
            return;
        }
        let next = trigger.next_number();
        let has_states = group.operation.source.has_states();
        let others =
            trigger.merge_candidates.iter().copied().filter(|id| has_states && *id != from);
        let fits = |into: &GroupId| {
            self.groups.get(*into).is_some_and(|other| {
                other.operation.group == group.operation.group && group.can_merge_into(other, next)
            })
        };
        let Some(into) = std::iter::once(first).chain(others).find(fits) else { return };
        let is_later = self.groups.merge(from, into);
        if is_later && let Some(replay) = self.catch_up.replay_mut(id) {
            replay.schedule_position_update();
        }
        self.remove_group(from);
    }
}

impl Group {
    /// True if both groups run on the same graph and stay at their trigger, have delivered the same events (of a live
    /// query the same state), and have none left to deliver. `next` is the number of the trigger's next event.
    fn can_merge_into(&self, other: &Self, next: u64) -> bool {
        let same_graph = self.operation.generation == other.operation.generation;
        let moves = self.phase.moving_to().is_some() || other.phase.moving_to().is_some();
        // A group that a side reader brought ahead of the trigger would get those events again in the other group.
        let next_undelivered = self.next_undelivered(next).filter(|next_undelivered| {
            *next_undelivered >= self.in_order_from.max(other.in_order_from)
        });
        same_graph
            && !moves
            && self.has_same_state(other)
            && next_undelivered.is_some()
            && next_undelivered == other.next_undelivered(next)
    }
}
