//! The keys that occur most often in a stream, in constant memory ("Space-Saving": Metwally, Agrawal, El Abbadi,
//! "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005).
//!
//! A fixed number of keys has counters. A key without one takes over the smallest counter, with its count, which is the
//! most that the new key can have had before. So a count is never too small, and too large by at most
//! [`HeavyKey::error`], which is at most the number of additions divided by the number of counters. Each key with more
//! additions than that has a counter.

use std::collections::HashMap;
use std::hash::Hash;

/// The counters of the most frequent keys. `L` is a description of a key.
#[derive(Debug)]
pub(crate) struct HeavyHitters<K, L> {
    capacity: usize,
    /// A binary heap with the smallest count first.
    heap: Vec<HeavyKey<K, L>>,
    /// The place of each key in the heap.
    places: HashMap<K, usize>,
}

/// A key with its counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeavyKey<K, L> {
    pub(crate) key: K,
    /// The number of additions: at least the true one.
    pub(crate) count: u64,
    /// The most by which the count is too large.
    pub(crate) error: u64,
    pub(crate) label: L,
}

impl<K: Copy + Eq + Hash, L> HeavyHitters<K, L> {
    /// Creates counters for `capacity` keys, at least one.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), heap: Vec::new(), places: HashMap::new() }
    }

    /// Counts a key. `label` is called if the key has no counter yet.
    pub(crate) fn add(&mut self, key: K, label: impl FnOnce() -> L) {
        if let Some(&place) = self.places.get(&key) {
            self.heap[place].count += 1;
            self.move_down(place);
        } else if self.heap.len() < self.capacity {
            let place = self.heap.len();
            self.heap.push(HeavyKey { key, count: 1, error: 0, label: label() });
            self.places.insert(key, place);
            self.move_up(place);
        } else {
            let smallest = &mut self.heap[0];
            self.places.remove(&smallest.key);
            let error = smallest.count;
            *smallest = HeavyKey { key, count: error + 1, error, label: label() };
            self.places.insert(key, 0);
            self.move_down(0);
        }
    }

    /// Halves all counts, so that old additions count less than new ones.
    pub(crate) fn halve(&mut self) {
        // Halving keeps the order of counts, and so the heap.
        for key in &mut self.heap {
            key.count /= 2;
            // Rounded up, because the count was rounded down.
            key.error = key.error.div_ceil(2).min(key.count);
        }
    }

    /// Returns all keys with counters, the most frequent first.
    pub(crate) fn sorted(&self) -> Vec<&HeavyKey<K, L>> {
        let mut all: Vec<_> = self.heap.iter().collect();
        all.sort_by_key(|it| std::cmp::Reverse(it.count));
        all
    }

    fn move_up(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].count <= self.heap[place].count {
                return;
            }
            self.swap(parent, place);
            place = parent;
        }
    }

    fn move_down(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2];
            let children = children.into_iter().filter(|child| *child < self.heap.len());
            let Some(child) = children.min_by_key(|child| self.heap[*child].count) else { return };
            if self.heap[place].count <= self.heap[child].count {
                return;
            }
            self.swap(place, child);
            place = child;
        }
    }

    fn swap(&mut self, left: usize, right: usize) {
        self.heap.swap(left, right);
        for place in [left, right] {
            self.places.insert(self.heap[place].key, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_are_within_the_bound_of_space_saving(
            keys in proptest::collection::vec(prop_oneof![0u32..4, 0u32..40], 1..600),
            capacity in 1usize..16,
        ) {
            let mut hitters = HeavyHitters::new(capacity);
            let mut truth = HashMap::<u32, u64>::new();
            for key in &keys {
                hitters.add(*key, || *key);
                *truth.entry(*key).or_default() += 1;
            }
            let bound = keys.len() as u64 / capacity as u64;
            let counted = hitters.sorted();
            prop_assert!(counted.len() <= capacity);
            prop_assert!(counted.windows(2).all(|pair| pair[0].count >= pair[1].count));
            prop_assert_eq!(counted.iter().map(|it| it.count).sum::<u64>(), keys.len() as u64);
            for it in &counted {
                let real = truth[&it.key];
                prop_assert_eq!(it.key, it.label);
                prop_assert!(real <= it.count && it.count - it.error <= real, "{:?} {}", it, real);
                prop_assert!(it.error <= bound, "{:?} {}", it, bound);
            }
            for (key, real) in truth {
                prop_assert!(real <= bound || counted.iter().any(|it| it.key == key), "{} {}", key, real);
            }
        }

        #[test]
        fn the_heap_stays_a_heap_when_counts_are_halved(
            keys in proptest::collection::vec(0u32..30, 1..200),
            halve_at in 0usize..200,
        ) {
            let mut hitters = HeavyHitters::new(8);
            for (number, key) in keys.iter().enumerate() {
                if number == halve_at {
                    hitters.halve();
                }
                hitters.add(*key, || ());
            }
            for (place, it) in hitters.heap.iter().enumerate() {
                prop_assert!(place == 0 || hitters.heap[(place - 1) / 2].count <= it.count);
                prop_assert_eq!(hitters.places[&it.key], place);
                prop_assert!(it.error <= it.count);
            }
        }
    }
}
