//! The triggers of a shard, by id and by source.

use std::collections::HashMap;

use bindings::Source;

use super::TriggerId;
use super::group::Group;
use super::replay::Replay;
use super::trigger::Trigger;

type Hasher = foldhash::fast::RandomState;

/// The triggers of a shard.
#[derive(Default)]
pub(super) struct TriggerTable {
    /// Boxed because up to half of the places in a table that doubles are empty.
    triggers: HashMap<TriggerId, Box<Trigger>, Hasher>,
    /// The trigger of each source that is opening or live.
    by_source: HashMap<Source, TriggerId, Hasher>,
    next_id: u64,
}

impl TriggerTable {
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

    /// Returns the replay state of a trigger, if its source can be read again.
    pub(super) fn replay_mut(&mut self, id: TriggerId) -> Option<&mut Replay> {
        self.get_mut(id)?.replay.as_deref_mut()
    }

    /// Returns the name of a trigger's provider, for errors.
    pub(super) fn provider_name(&self, id: TriggerId) -> &str {
        self.get(id).map_or("", |it| it.source.provider().name())
    }

    /// Stops subscribers from joining a group by its cursor or for its state: it has delivered something, or its
    /// operation was replaced.
    pub(super) fn stop_joining(&mut self, group: &mut Group) {
        let Some(trigger) = self.get_mut(group.trigger) else { return };
        trigger.remove_joinable_for_state(group.id, &group.operation);
        let Some(key) = group.catch_up_key.take() else { return };
        if let Some(replay) = &mut trigger.replay {
            replay.remove_catch_up_key(group.id, Some(&key));
        }
    }

    /// Returns all triggers, oldest first.
    pub(super) fn ids(&self) -> Vec<TriggerId> {
        let mut ids: Vec<_> = self.triggers.keys().copied().collect();
        ids.sort_unstable_by_key(|id| id.0);
        ids
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Trigger> {
        self.triggers.values_mut().map(Box::as_mut)
    }

    /// Returns the trigger of a source that is opening or live.
    pub(super) fn find(&self, source: &Source) -> Option<TriggerId> {
        self.by_source.get(source).copied()
    }

    /// Adds a trigger, which is found by its source.
    pub(super) fn insert(&mut self, trigger: Trigger) -> TriggerId {
        let id = TriggerId(self.next_id);
        self.next_id += 1;
        self.by_source.insert(trigger.source.clone(), id);
        self.triggers.insert(id, Box::new(trigger));
        id
    }

    /// Hides a trigger that ends from new subscribers: they need a new one for its source.
    pub(super) fn hide(&mut self, id: TriggerId) {
        let Some(trigger) = self.triggers.get(&id) else { return };
        // A newer trigger may have the source already.
        if self.by_source.get(&trigger.source) == Some(&id) {
            self.by_source.remove(&trigger.source);
        }
    }

    /// Removes a trigger. Returns false if there is none.
    pub(super) fn remove(&mut self, id: TriggerId) -> bool {
        self.hide(id);
        self.triggers.remove(&id).is_some()
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
