//! The triggers of a shard, by id and by source.

use std::collections::HashMap;
use std::sync::Arc;

use bindings::Source;
use execute::{EventFetchCache, FetchCacheBudget, Sharing};

use super::group::Group;
use super::trigger::{PendingOpen, Trigger};
use super::trigger_id::TriggerId;
use crate::stats::{self, HubStats};
use crate::{GroupId, LiveOperation, TriggerEvent};

/// The number of bits in a [`TriggerId`] for the triggers that one shard ever makes; the bits above are the shard's
/// number, so that operators can tell the triggers of the whole hub apart.
const TRIGGER_NUMBER_BITS: u32 = 48;

/// The number of triggers to check for which the list keeps its memory. Only a new graph concerns more at once.
const CHECKS_KEPT_MAX: usize = 1024;

type Hasher = foldhash::fast::RandomState;

/// The triggers of a shard.
pub(super) struct TriggerTable {
    /// Boxed because up to half of the places in a table that doubles are empty.
    triggers: HashMap<TriggerId, Box<Trigger>, Hasher>,
    /// The trigger of each source that is opening or live.
    by_source: HashMap<Source, TriggerId, Hasher>,
    next_id: u64,
    /// The triggers that may have become unused.
    to_check: Vec<TriggerId>,
    /// The memory for shared responses of the whole hub.
    memo_room: Arc<FetchCacheBudget>,
    stats: Arc<HubStats>,
}

impl TriggerTable {
    /// Creates the table of the shard with that number.
    pub(super) fn new(
        shard: usize,
        memo_room: Arc<FetchCacheBudget>,
        stats: Arc<HubStats>,
    ) -> Self {
        Self {
            triggers: HashMap::default(),
            by_source: HashMap::default(),
            next_id: (shard as u64) << TRIGGER_NUMBER_BITS,
            to_check: Vec::new(),
            memo_room,
            stats,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.triggers.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.triggers.is_empty()
    }

    pub(super) fn contains(&self, id: TriggerId) -> bool {
        self.triggers.contains_key(&id)
    }

    pub(super) fn get(&self, id: TriggerId) -> Option<&Trigger> {
        self.triggers.get(&id).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, id: TriggerId) -> Option<&mut Trigger> {
        self.triggers.get_mut(&id).map(Box::as_mut)
    }

    /// Returns the groups of a trigger that get its live events.
    pub(super) fn live_groups(&self, id: TriggerId) -> impl Iterator<Item = GroupId> {
        self.get(id).into_iter().flat_map(|it| it.groups.iter())
    }

    /// Returns all triggers, oldest first.
    pub(super) fn ids(&self) -> Vec<TriggerId> {
        let mut ids: Vec<_> = self.triggers.keys().copied().collect();
        ids.sort_unstable_by_key(|id| id.0);
        ids
    }

    /// Returns the trigger of a source that is opening or live.
    pub(super) fn find(&self, source: &Source) -> Option<TriggerId> {
        self.by_source.get(source).copied()
    }

    /// Adds a trigger with a stream that is being opened. It is found by its source.
    pub(super) fn insert(&mut self, source: Source, waiting: PendingOpen) -> TriggerId {
        let id = TriggerId(self.next_id);
        self.next_id += 1;
        self.by_source.insert(source.clone(), id);
        self.triggers.insert(id, Box::new(Trigger::new(source, waiting)));
        stats::add(&self.stats.triggers, 1);
        id
    }

    /// Counts an event of a trigger, and returns it with the state that the trigger's groups share. `None` if the
    /// trigger gets no more events.
    pub(super) fn record_event(
        &mut self,
        id: TriggerId,
        event: TriggerEvent,
    ) -> Option<(TriggerEvent, u64)> {
        let trigger = self.triggers.get_mut(&id).filter(|it| !it.is_ending())?;
        trigger.events += 1;
        stats::add(&self.stats.events, 1);
        stats::add(&self.stats.events_too_large, usize::from(event.too_large.is_some()));
        // A single group shares its fetches with no other.
        let sharing = (trigger.groups.len() > 1).then(|| {
            let event = Some(EventFetchCache::new(Arc::clone(&self.memo_room)));
            Arc::new(Sharing { event, ..Sharing::default() })
        });
        Some((TriggerEvent { sharing, ..event }, trigger.events))
    }

    /// Hides a trigger that ends from new subscribers: they need a new one for its source.
    pub(super) fn hide(&mut self, id: TriggerId) {
        let Some(trigger) = self.triggers.get(&id) else { return };
        // A newer trigger may have the source already.
        if self.by_source.get(&trigger.source) == Some(&id) {
            self.by_source.remove(&trigger.source);
        }
    }

    /// Stops subscribers from joining a group, see [`Trigger::stop_joining`].
    pub(super) fn stop_joining(&mut self, group: &mut Group) {
        if let Some(trigger) = self.get_mut(group.trigger) {
            trigger.stop_joining(group);
        }
    }

    /// Removes a group from its trigger, and from the one that it waits for.
    pub(super) fn remove_group(&mut self, group: &mut Group) {
        if let Some(trigger) = self.get_mut(group.trigger) {
            trigger.remove_group(group);
        }
        self.check_later(group.trigger);
        if let Some(target) = group.phase.moving_to() {
            self.cancel_move(group.id, target);
        }
    }

    /// Cancels the move of a group that waits for the trigger `target`. Returns the operation that it was to have
    /// there.
    pub(super) fn cancel_move(
        &mut self,
        group: GroupId,
        target: TriggerId,
    ) -> Option<Arc<LiveOperation>> {
        self.check_later(target);
        self.get_mut(target)?.take_move(group)
    }

    /// Records that a trigger may be unused. It is checked at the end of the shard's turn, because another group may
    /// need it by then.
    pub(super) fn check_later(&mut self, id: TriggerId) {
        if self.to_check.last() != Some(&id) {
            self.to_check.push(id);
        }
    }

    /// Takes a trigger that may be unused.
    pub(super) fn next_to_check(&mut self) -> Option<TriggerId> {
        let id = self.to_check.pop();
        if id.is_none() && self.to_check.capacity() > CHECKS_KEPT_MAX {
            self.to_check = Vec::new();
        }
        id
    }

    /// Removes a trigger, if it is there.
    pub(super) fn remove(&mut self, id: TriggerId) {
        self.hide(id);
        if self.triggers.remove(&id).is_some() {
            stats::subtract(&self.stats.triggers, 1);
        }
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (TriggerId, &Trigger)> {
        self.triggers.iter().map(|(id, trigger)| (*id, trigger.as_ref()))
    }

    #[cfg(test)]
    pub(super) fn has_no_source(&self) -> bool {
        self.by_source.is_empty()
    }
}

#[cfg(test)]
impl std::ops::Index<&TriggerId> for TriggerTable {
    type Output = Trigger;

    fn index(&self, id: &TriggerId) -> &Trigger {
        &self.triggers[id]
    }
}
