//! An index of receivers of events, by the values that their filters need. With a hundred thousand receivers that each
//! wait for an id of their own, an event costs one lookup.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use indexmap::IndexSet;

use super::{FieldPath, Filter, FilterValue, FilteredEvent};

type Hasher = foldhash::fast::RandomState;

/// Receivers of the events of one source, identified by `Id` and indexed by the values that their filters need.
pub struct FilterIndex<Id> {
    /// The receivers without a filter, which get every event.
    unfiltered: IndexSet<Id, Hasher>,
    filtered: IndexSet<Id, Hasher>,
    /// The receivers of `filtered` that only events with a certain value may pass.
    by_value: HashMap<Arc<FieldPath>, HashMap<FilterValue, Receivers<Id>, Hasher>, Hasher>,
    /// The receivers of `filtered` that any event may pass.
    unindexed: IndexSet<Id, Hasher>,
}

/// The position of a walk over all receivers: the number of receivers that it has yet to visit.
#[derive(Clone, Copy, Debug)]
pub struct IndexWalk {
    unfiltered: usize,
    filtered: usize,
}

/// The receivers with the same value. In most cases it is one.
enum Receivers<Id> {
    One(Id),
    Many(Box<IndexSet<Id, Hasher>>),
}

impl<Id> Default for FilterIndex<Id> {
    fn default() -> Self {
        Self {
            unfiltered: IndexSet::default(),
            filtered: IndexSet::default(),
            by_value: HashMap::default(),
            unindexed: IndexSet::default(),
        }
    }
}

impl<Id: Copy + Eq + Hash + Ord> FilterIndex<Id> {
    /// Returns the number of receivers.
    pub fn len(&self) -> usize {
        self.unfiltered.len() + self.filtered.len()
    }

    /// True if it has no receiver.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if it has that receiver.
    pub fn contains(&self, id: Id) -> bool {
        self.unfiltered.contains(&id) || self.filtered.contains(&id)
    }

    /// Returns all receivers.
    pub fn iter(&self) -> impl Iterator<Item = Id> {
        self.unfiltered.iter().chain(&self.filtered).copied()
    }

    /// Returns a receiver without a filter, by index.
    pub fn unfiltered(&self, index: usize) -> Option<Id> {
        self.unfiltered.get_index(index).copied()
    }

    /// Returns the number of receivers with a filter.
    pub fn filtered(&self) -> usize {
        self.filtered.len()
    }

    /// Returns the next receiver of a walk, from the last to the first. A receiver that is present for the whole walk
    /// is visited, also if others are added or removed meanwhile.
    pub fn walk(&self, left: &mut IndexWalk) -> Option<Id> {
        let step = |left: &mut usize, receivers: &IndexSet<Id, Hasher>| {
            // The last receiver takes the index of a removed one, and was visited already.
            *left = (*left).min(receivers.len()).checked_sub(1)?;
            receivers.get_index(*left).copied()
        };
        step(&mut left.filtered, &self.filtered)
            .or_else(|| step(&mut left.unfiltered, &self.unfiltered))
    }

    /// Returns the start of a [`FilterIndex::walk`].
    pub fn all(&self) -> IndexWalk {
        IndexWalk { unfiltered: self.unfiltered.len(), filtered: self.filtered.len() }
    }

    /// Returns the receivers with a filter that `event` may pass, each once.
    pub fn candidates(&self, event: &FilteredEvent) -> Vec<Id> {
        let mut candidates: Vec<Id> = self.unindexed.iter().copied().collect();
        for (path, receivers) in &self.by_value {
            match event.key(path).and_then(|key| receivers.get(&key)) {
                None => {}
                Some(Receivers::One(id)) => candidates.push(*id),
                Some(Receivers::Many(ids)) => candidates.extend(ids.iter()),
            }
        }
        // A condition with OR may be found by several of its fields. Sorting also puts the oldest receiver first.
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }

    /// Adds a receiver with its filter.
    pub fn insert(&mut self, id: Id, filter: Option<&Filter>) {
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
            let receivers = self.by_value.entry(Arc::clone(path)).or_default();
            match receivers.get_mut(key) {
                None => {
                    receivers.insert(key.clone(), Receivers::One(id));
                }
                Some(Receivers::One(known)) if *known == id => {}
                Some(one @ Receivers::One(_)) => {
                    let Receivers::One(known) = *one else { continue };
                    *one = Receivers::Many(Box::new([known, id].into_iter().collect()));
                }
                Some(Receivers::Many(ids)) => {
                    ids.insert(id);
                }
            }
        }
    }

    /// Removes a receiver that was inserted with this filter.
    pub fn remove(&mut self, id: Id, filter: Option<&Filter>) {
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
            let Some(receivers) = self.by_value.get_mut(path) else { continue };
            let is_empty = match receivers.get_mut(key) {
                Some(Receivers::One(known)) => *known == id,
                Some(Receivers::Many(ids)) => {
                    ids.swap_remove(&id);
                    ids.is_empty()
                }
                None => false,
            };
            if is_empty {
                receivers.remove(key);
            }
            if receivers.is_empty() {
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
    fn every_receiver_with_a_passing_filter_is_a_candidate() {
        let mut index = FilterIndex::default();
        let filters: Vec<_> = (0..500).map(|number| filter(number * 13, 3)).collect();
        for (id, filter) in (0_u64..).zip(&filters) {
            index.insert(id, Some(filter));
        }
        for removed in 0..=1 {
            for (a, b) in (0..6).flat_map(|a| (0..6).map(move |b| (a, b))) {
                let event = event(a, b);
                let candidates = index.candidates(&event);
                assert!(candidates.is_sorted(), "each once: {candidates:?}");
                let live = (0_u64..).zip(&filters).skip(removed).step_by(1 + removed);
                for (id, filter) in live {
                    let is_found = candidates.contains(&id);
                    assert!(is_found || !filter.passes(&event), "{a} {b}: {filter:?}");
                }
            }
            if removed == 0 {
                for (id, filter) in (0_u64..).zip(&filters).step_by(2) {
                    index.remove(id, Some(filter));
                }
            }
        }
        for (id, filter) in (0_u64..).zip(&filters).skip(1).step_by(2) {
            index.remove(id, Some(filter));
        }
        assert!(index.is_empty() && index.by_value.is_empty() && index.unindexed.is_empty());
    }
}
