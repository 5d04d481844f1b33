//! The index of the groups of one trigger by the values that their filters need. With a hundred thousand groups that
//! each wait for an id of their own, an event costs one lookup.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexSet;

use super::{FieldPath, Filter, FilteredEvent, Key};
use crate::GroupId;

type Hasher = foldhash::fast::RandomState;

/// The groups of one trigger, indexed by the values that their filters need.
#[derive(Default)]
pub(crate) struct GroupIndex {
    /// The groups without a filter, which get every event.
    unfiltered: IndexSet<GroupId, Hasher>,
    filtered: IndexSet<GroupId, Hasher>,
    /// The groups of `filtered` that only events with a certain value may pass.
    by_value: HashMap<Arc<FieldPath>, HashMap<Key, Groups, Hasher>, Hasher>,
    /// The groups of `filtered` that any event may pass.
    unindexed: IndexSet<GroupId, Hasher>,
}

/// The position of a walk over all groups: the number of groups that it has yet to visit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupWalk {
    unfiltered: usize,
    filtered: usize,
}

/// The groups with the same value. In most cases it is one.
enum Groups {
    One(GroupId),
    Many(Box<IndexSet<GroupId, Hasher>>),
}

impl GroupIndex {
    pub(crate) fn len(&self) -> usize {
        self.unfiltered.len() + self.filtered.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cfg(test)]
    pub(crate) fn contains(&self, id: GroupId) -> bool {
        self.unfiltered.contains(&id) || self.filtered.contains(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = GroupId> {
        self.unfiltered.iter().chain(&self.filtered).copied()
    }

    /// Returns a group without a filter, by index.
    pub(crate) fn unfiltered(&self, index: usize) -> Option<GroupId> {
        self.unfiltered.get_index(index).copied()
    }

    /// Returns the number of groups with a filter.
    pub(crate) fn filtered(&self) -> usize {
        self.filtered.len()
    }

    /// Returns the next group of a walk, from the last to the first. A group that is present for the whole walk is
    /// visited, also if others are added or removed meanwhile.
    pub(crate) fn walk(&self, left: &mut GroupWalk) -> Option<GroupId> {
        let step = |left: &mut usize, groups: &IndexSet<GroupId, Hasher>| {
            // The last group takes the index of a removed one, and was visited already.
            *left = (*left).min(groups.len()).checked_sub(1)?;
            groups.get_index(*left).copied()
        };
        step(&mut left.filtered, &self.filtered)
            .or_else(|| step(&mut left.unfiltered, &self.unfiltered))
    }

    /// Returns the start of a [`GroupIndex::walk`].
    pub(crate) fn all(&self) -> GroupWalk {
        GroupWalk { unfiltered: self.unfiltered.len(), filtered: self.filtered.len() }
    }

    /// Returns the groups with a filter that `event` may pass, each once.
    pub(crate) fn candidates(&self, event: &FilteredEvent) -> Vec<GroupId> {
        let mut candidates: Vec<GroupId> = self.unindexed.iter().copied().collect();
        for (path, groups) in &self.by_value {
            match event.key(path).and_then(|key| groups.get(&key)) {
                None => {}
                Some(Groups::One(id)) => candidates.push(*id),
                Some(Groups::Many(ids)) => candidates.extend(ids.iter()),
            }
        }
        // A condition with OR may be found by several of its fields. Sorting also puts the oldest group first.
        candidates.sort_unstable_by_key(|id| id.0);
        candidates.dedup();
        candidates
    }

    pub(crate) fn insert(&mut self, id: GroupId, filter: Option<&Filter>) {
        let Some(filter) = filter else {
            self.unfiltered.insert(id);
            return;
        };
        self.filtered.insert(id);
        let Some(needs) = filter.needs() else {
            self.unindexed.insert(id);
            return;
        };
        for (path, key) in needs {
            let groups = self.by_value.entry(Arc::clone(path)).or_default();
            match groups.get_mut(key) {
                None => {
                    groups.insert(key.clone(), Groups::One(id));
                }
                Some(Groups::One(known)) if *known == id => {}
                Some(one @ Groups::One(_)) => {
                    let Groups::One(known) = *one else { continue };
                    *one = Groups::Many(Box::new([known, id].into_iter().collect()));
                }
                Some(Groups::Many(ids)) => {
                    ids.insert(id);
                }
            }
        }
    }

    /// Removes a group that was inserted with this filter.
    pub(crate) fn remove(&mut self, id: GroupId, filter: Option<&Filter>) {
        let Some(filter) = filter else {
            self.unfiltered.swap_remove(&id);
            return;
        };
        self.filtered.swap_remove(&id);
        let Some(needs) = filter.needs() else {
            self.unindexed.swap_remove(&id);
            return;
        };
        for (path, key) in needs {
            let Some(groups) = self.by_value.get_mut(path) else { continue };
            let is_empty = match groups.get_mut(key) {
                Some(Groups::One(known)) => *known == id,
                Some(Groups::Many(ids)) => {
                    ids.swap_remove(&id);
                    ids.is_empty()
                }
                None => false,
            };
            if is_empty {
                groups.remove(key);
            }
            if groups.is_empty() {
                self.by_value.remove(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(a: u64, b: u64) -> FilteredEvent {
        let payload = format!("{{\"a\":{a},\"b\":\"{b}\"}}");
        let event = Arc::new(events::Event::new("t", payload));
        FilteredEvent::read(&event).expect("an object")
    }

    /// Returns a filter that is derived from a number.
    fn filter(number: u64, depth: u32) -> Filter {
        let field = if number.is_multiple_of(2) { "a" } else { "b" };
        let values = [number % 5, number / 7 % 5];
        let plain = Filter::one_of(field, &values[..1 + (number % 3 % 2) as usize]);
        if depth == 0 {
            return plain;
        }
        let other = filter(number / 3 + 1, depth - 1);
        match number % 7 {
            0 | 1 => plain.and(other),
            2 | 3 => plain.or(other),
            4 => other.negated(),
            _ => plain,
        }
    }

    #[test]
    fn every_group_with_a_passing_filter_is_a_candidate() {
        let mut index = GroupIndex::default();
        let filters: Vec<_> = (0..500).map(|number| filter(number * 13, 3)).collect();
        for (id, filter) in (0..).zip(&filters) {
            index.insert(GroupId(id), Some(filter));
        }
        for removed in 0..=1 {
            for (a, b) in (0..6).flat_map(|a| (0..6).map(move |b| (a, b))) {
                let event = event(a, b);
                let candidates = index.candidates(&event);
                assert!(candidates.is_sorted_by_key(|id| id.0), "each once: {candidates:?}");
                let live = (0..).zip(&filters).skip(removed).step_by(1 + removed);
                for (id, filter) in live {
                    let is_found = candidates.contains(&GroupId(id));
                    assert!(is_found || !filter.passes(&event), "{a} {b}: {filter:?}");
                }
            }
            if removed == 0 {
                for (id, filter) in (0..).zip(&filters).step_by(2) {
                    index.remove(GroupId(id), Some(filter));
                }
            }
        }
        for (id, filter) in (0..).zip(&filters).skip(1).step_by(2) {
            index.remove(GroupId(id), Some(filter));
        }
        assert!(index.is_empty() && index.by_value.is_empty() && index.unindexed.is_empty());
    }
}
