//! Facts about all entries of a store: counts by class, and the largest ones. It follows each entry that
//! is stored, replaced, removed or evicted.

use std::sync::Arc;

use quick_cache::{Lifecycle, Weighter};
use smallvec::SmallVec;

use crate::entry::{ENTRY_OVERHEAD_BYTES, StoredEntry};
use crate::entry_classes::EntryClasses;
use crate::keys::CacheKey;
use crate::large_entries::LargeEntries;

/// The size of entries for the bound of a store.
#[derive(Clone)]
pub(super) struct EntryWeight;

impl Weighter<CacheKey, StoredEntry> for EntryWeight {
    fn weight(&self, _key: &CacheKey, entry: &StoredEntry) -> u64 {
        weight_of(entry)
    }
}

/// The size of an entry with its overhead.
pub(super) fn weight_of(entry: &StoredEntry) -> u64 {
    (entry.len() + ENTRY_OVERHEAD_BYTES) as u64
}

/// Facts about the entries of a store, beside the entries.
#[derive(Debug, Default)]
pub(super) struct StoreContents {
    pub(super) classes: EntryClasses,
    pub(super) large: LargeEntries,
}

impl StoreContents {
    /// Notes that an entry is no longer stored.
    pub(super) fn note_removed(&self, key: CacheKey, entry: &StoredEntry) {
        let bytes = weight_of(entry);
        self.classes.count_removed(entry.class(), bytes);
        self.large.remove(key, bytes);
    }
}

/// Notes evictions, and the entries that others replace.
#[derive(Clone)]
pub(super) struct NoteEvictions(pub(super) Arc<StoreContents>);

/// The entries that leave because of one insertion. They are dropped outside of the lock.
#[derive(Default)]
pub(super) struct Evicted {
    /// The key of the new entry.
    inserted: Option<CacheKey>,
    /// One insertion seldom evicts more than two entries.
    entries: SmallVec<[StoredEntry; 2]>,
}

impl Evicted {
    /// The state of the insertion of an entry under this key.
    pub(super) fn by_insertion(key: CacheKey) -> Self {
        Self { inserted: Some(key), entries: SmallVec::new() }
    }
}

impl Lifecycle<CacheKey, StoredEntry> for NoteEvictions {
    type RequestState = Evicted;

    // Runs under the lock of a shard, and waits for nothing that could wait for it.
    fn on_evict(&self, state: &mut Evicted, key: CacheKey, entry: StoredEntry) {
        self.0.note_removed(key, &entry);
        if state.inserted != Some(key) {
            self.0.classes.count_evicted(entry.class());
        }
        state.entries.push(entry);
    }
}
