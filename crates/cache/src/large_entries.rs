//! The largest entries of a store, with their labels.
//!
//! An entry that is stored while the list is full of larger ones is not listed later, when those have gone. The list is
//! longer than what operators see, so that this makes no difference to them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::entry_label::EntryLabel;
use crate::keys::CacheKey;

/// The number of entries in the list.
const ENTRIES_MAX: usize = 128;

/// The largest entries.
#[derive(Debug, Default)]
pub(crate) struct LargeEntries {
    /// The size of the smallest entry of a full list; 0 while there is room.
    smallest: AtomicU64,
    list: Mutex<HashMap<CacheKey, (u64, EntryLabel)>>,
}

impl LargeEntries {
    /// True if an entry of this size belongs into the list.
    ///
    /// Hot path: the only cost of storing an entry that does not.
    pub(crate) fn admits(&self, bytes: u64) -> bool {
        bytes > self.smallest.load(Relaxed)
    }

    /// Adds an entry. The smallest one leaves if there is no room.
    pub(crate) fn add(&self, key: CacheKey, bytes: u64, label: EntryLabel) {
        let mut list = self.lock();
        if list.len() >= ENTRIES_MAX && !list.contains_key(&key) {
            let smallest =
                list.iter().map(|(key, (bytes, _))| (*bytes, *key)).min_by_key(|it| it.0);
            match smallest {
                Some((size, smallest)) if size < bytes => list.remove(&smallest),
                _ => return,
            };
        }
        list.insert(key, (bytes, label));
        self.note_smallest(&list);
    }

    /// Removes an entry of this size, if it is in the list.
    pub(crate) fn remove(&self, key: CacheKey, bytes: u64) {
        // Entries below the smallest one are not in the list. An entry that is added at this moment may stay in it;
        // callers of `sorted` look whether an entry exists.
        if bytes < self.smallest.load(Relaxed) {
            return;
        }
        let mut list = self.lock();
        if list.remove(&key).is_some() {
            self.note_smallest(&list);
        }
    }

    /// Returns the label of an entry that is in the list.
    pub(crate) fn label_of(&self, key: CacheKey) -> Option<EntryLabel> {
        self.lock().get(&key).map(|(_, label)| label.clone())
    }

    /// Returns all entries of the list, the largest first.
    pub(crate) fn sorted(&self) -> Vec<(CacheKey, u64, EntryLabel)> {
        let list = self.lock();
        let mut all: Vec<_> =
            list.iter().map(|(key, (bytes, label))| (*key, *bytes, label.clone())).collect();
        drop(list);
        all.sort_by_key(|it| std::cmp::Reverse(it.1));
        all
    }

    fn note_smallest(&self, list: &HashMap<CacheKey, (u64, EntryLabel)>) {
        let smallest = match list.len() < ENTRIES_MAX {
            true => 0,
            false => list.values().map(|(bytes, _)| *bytes).min().unwrap_or_default(),
        };
        self.smallest.store(smallest, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CacheKey, (u64, EntryLabel)>> {
        // A map is consistent at any time, so the map behind a poisoned lock is sound.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keys::{HashDomain, KeyBase, KeySecret};

    fn key(number: u64) -> CacheKey {
        let base = KeyBase::new(&KeySecret::from_bytes([0; 16]), HashDomain::Entity);
        base.keys_of(&number.to_le_bytes()).public
    }

    fn label() -> EntryLabel {
        EntryLabel::new(None, "a", &[], false)
    }

    proptest! {
        #[test]
        fn the_largest_of_all_stored_entries_are_listed(sizes in proptest::collection::vec(1u64..500, 1..400)) {
            let large = LargeEntries::default();
            for (number, size) in sizes.iter().enumerate() {
                if large.admits(*size) {
                    large.add(key(number as u64), *size, label());
                }
            }
            let mut expected = sizes.clone();
            expected.sort_unstable_by(|left, right| right.cmp(left));
            expected.truncate(ENTRIES_MAX);
            let listed: Vec<u64> = large.sorted().iter().map(|it| it.1).collect();
            prop_assert_eq!(listed, expected);
        }
    }

    #[test]
    fn an_entry_that_is_removed_makes_room() {
        let large = LargeEntries::default();
        for number in 0..ENTRIES_MAX as u64 {
            assert!(large.admits(10));
            large.add(key(number), 10 + number, label());
        }
        assert!(!large.admits(10) && large.admits(11));
        large.remove(key(ENTRIES_MAX as u64), 9);
        assert_eq!(large.sorted().len(), ENTRIES_MAX, "it was never in the list");
        large.remove(key(5), 15);
        assert!(large.admits(1));
        assert_eq!(large.sorted().len(), ENTRIES_MAX - 1);
        // The same entry with another size.
        large.add(key(7), 1_000, label());
        assert_eq!((large.sorted().len(), large.sorted()[0].1), (ENTRIES_MAX - 1, 1_000));
    }
}
