//! The groups of one trigger, so that an event finds those that it may concern by its values: a hundred thousand groups
//! that each wait for an id of their own cost an event one look.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexSet;

use super::{FieldPath, Filter, FilteredEvent, Key};
use crate::GroupId;

type Hasher = foldhash::fast::RandomState;

/// See the module.
#[derive(Default)]
pub(crate) struct GroupIndex {
    /// Every event concerns these.
    unfiltered: IndexSet<GroupId, Hasher>,
    filtered: IndexSet<GroupId, Hasher>,
    /// Those of `filtered` that an event with a certain value may concern.
    by_value: HashMap<Arc<FieldPath>, HashMap<Key, Groups, Hasher>, Hasher>,
    /// Those of `filtered` that any event may concern.
    unindexed: IndexSet<GroupId, Hasher>,
}

/// How many groups a walk has yet to meet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    unfiltered: usize,
    filtered: usize,
}

/// Mostly one.
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

    /// A group that every event concerns.
    pub(crate) fn unfiltered(&self, index: usize) -> Option<GroupId> {
        self.unfiltered.get_index(index).copied()
    }

    /// How many groups have a filter.
    pub(crate) fn filtered(&self) -> usize {
        self.filtered.len()
    }

    /// Goes through all groups downward, from where `left` is: whoever is there all the time is met, whoever comes and
    /// goes meanwhile.
    pub(crate) fn walk(&self, left: &mut Left) -> Option<GroupId> {
        let step = |left: &mut usize, groups: &IndexSet<GroupId, Hasher>| {
            // The last one takes the place of one that goes, and has been met by then.
            *left = (*left).min(groups.len()).checked_sub(1)?;
            groups.get_index(*left).copied()
        };
        step(&mut left.filtered, &self.filtered)
            .or_else(|| step(&mut left.unfiltered, &self.unfiltered))
    }

    /// The begin of a [`GroupIndex::walk`].
    pub(crate) fn all(&self) -> Left {
        Left { unfiltered: self.unfiltered.len(), filtered: self.filtered.len() }
    }

    /// The groups with a filter that `event` may concern, each once.
    pub(crate) fn candidates(&self, event: &FilteredEvent) -> Vec<GroupId> {
        let mut candidates: Vec<GroupId> = self.unindexed.iter().copied().collect();
        for (path, groups) in &self.by_value {
            match event.key(path).and_then(|key| groups.get(&key)) {
                None => {}
                Some(Groups::One(id)) => candidates.push(*id),
                Some(Groups::Many(ids)) => candidates.extend(ids.iter()),
            }
        }
        // A condition with OR may be found by several of its fields. Sorted, the oldest group comes first too.
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

    /// Takes a group out that was put in with this filter.
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

    /// Some filter, decided by a number.
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
    fn whatever_a_filter_says_the_groups_that_it_lets_through_are_found() {
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
