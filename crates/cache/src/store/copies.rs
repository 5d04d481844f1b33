//! Copies of the bodies of entries in other codings.

use std::fmt::{Debug, Formatter};
use std::sync::Arc;

use bytes::Bytes;

use super::Store;
use super::contents::{Evicted, weight_of};
use crate::body_copies::{BodyCopies, EntryId, StoredCopies};
use crate::entry::StoredEntry;
use crate::keys::CacheKey;
use crate::lookup::Hit;
use crate::stats::count;

/// The copies of one entry.
struct EntryCopies {
    store: Arc<Store>,
    key: CacheKey,
    entry: StoredEntry,
}

impl StoredCopies for EntryCopies {
    fn find(&self, coding: u8) -> Option<Bytes> {
        let stored = || self.store.same_response(self.key, &self.entry)?.copy_in(coding);
        self.entry.copy_in(coding).or_else(stored)
    }

    fn keep(&self, coding: u8, copy: &[u8]) -> bool {
        self.store.add_copy(self.key, &self.entry, coding, copy)
    }

    fn id(&self) -> EntryId {
        EntryId { key: self.key, sequence: self.entry.sequence(), began: self.entry.began() }
    }
}

impl Debug for EntryCopies {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("EntryCopies").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Store {
    /// Returns the copies of the body of an entry that was found in this store.
    pub fn copies_of(self: &Arc<Self>, hit: &Hit) -> BodyCopies {
        let (store, entry) = (Arc::clone(self), hit.entry.clone());
        BodyCopies::new(Arc::new(EntryCopies { store, key: hit.key, entry }))
    }

    /// Returns the entry under a key, if it is the same response as `known`.
    fn same_response(&self, key: CacheKey, known: &StoredEntry) -> Option<StoredEntry> {
        self.entries.peek(&key).filter(|entry| entry.is_same_response(known))
    }

    /// Adds a copy of its body to an entry. Returns false if the copy has no room, or if the entry has gone.
    ///
    /// An entry cannot be changed in its place, because readers have it: it is replaced by one with the copy. Another
    /// response that is stored at the same moment may be lost then, and this one stays until its time is over.
    fn add_copy(&self, key: CacheKey, known: &StoredEntry, coding: u8, copy: &[u8]) -> bool {
        let Some(is_added) = self.try_add_copy(key, known, coding, copy) else { return true };
        count(if is_added { &self.stats.copies } else { &self.stats.copies_refused });
        is_added
    }

    /// `None` if the entry has a copy in this coding already: a request that made one may have been given up.
    fn try_add_copy(
        &self,
        key: CacheKey,
        known: &StoredEntry,
        coding: u8,
        copy: &[u8],
    ) -> Option<bool> {
        let Some(entry) = self.same_response(key, known) else { return Some(false) };
        if entry.copy_in(coding).is_some() {
            return None;
        }
        if (entry.len() + entry.copy_bytes(copy.len())) as u64 > self.entry_bytes_max() {
            return Some(false);
        }
        let (class, with_copy) = (entry.class(), entry.with_copy(coding, copy));
        let weight = weight_of(&with_copy);
        let label = self.contents.large.label_of(key);
        // Before the entry can be evicted, as for every new entry.
        self.contents.classes.count_stored(class, weight);
        let mut evicted = Evicted::by_insertion(key);
        let replaced = self.entries.replace_with_lifecycle(key, with_copy, true, &mut evicted);
        if let Err((_, with_copy)) = replaced {
            // The entry has just gone.
            self.contents.note_removed(key, &with_copy);
            return Some(false);
        }
        if let Some(label) = label {
            self.contents.large.add(key, weight, label);
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::entry::ENTRY_OVERHEAD_BYTES;
    use crate::store::StoreSettings;
    use crate::{
        CachePolicy, EntryAddress, EntryLabel, HashDomain, KeyBase, KeySecret, Lookup, LookupStats,
        NewEntry, ResponseContent, Scope, StoreOutcome, Timestamp,
    };

    use super::*;

    const GZIP: u8 = 0;
    const BROTLI: u8 = 1;

    fn store(bytes_max: u64) -> Arc<Store> {
        let settings = StoreSettings { bytes_max, ..StoreSettings::default() };
        Arc::new(Store::new(&settings, Arc::default()))
    }

    fn address(number: u32) -> EntryAddress {
        let base = KeyBase::new(&KeySecret::from_bytes([5; 16]), HashDomain::Response);
        EntryAddress { keys: base.keys_of(&number.to_le_bytes()), tags: Default::default() }
    }

    fn insert(store: &Store, number: u32, body: &[u8], now: u64) {
        let fresh_for = Duration::from_secs(60);
        let policy = CachePolicy { fresh_for, ..CachePolicy::default() };
        let (start, content) = (store.begin_fetch(Timestamp(now)), ResponseContent::Data);
        let new = NewEntry { policy: &policy, start, content, extra: b"extra", body };
        let stats = LookupStats::default();
        let outcome = store.insert(&address(number), &new, Timestamp(now), &stats);
        assert_eq!(outcome, StoreOutcome::Stored);
    }

    fn find(store: &Store, number: u32) -> Option<Hit> {
        let stats = LookupStats::default();
        match store.lookup(&address(number), Timestamp(50), u64::MAX, &stats) {
            Lookup::Fresh(hit) => Some(hit),
            _ => None,
        }
    }

    fn copies(store: &Arc<Store>, number: u32) -> BodyCopies {
        store.copies_of(&find(store, number).expect("an entry"))
    }

    fn counts(store: &Store) -> [u64; 2] {
        [&store.stats().copies, &store.stats().copies_refused].map(telemetry::read)
    }

    #[test]
    fn a_copy_is_stored_with_its_entry_and_counts_as_its_bytes() {
        let store = store(64 << 20);
        insert(&store, 1, b"a long body", 10);
        let before = store.bytes();
        let label = || EntryLabel::new(None, "query", &[], false);
        store.note_stored(&address(1), Scope::Public, b"a long body", label);
        let first = copies(&store, 1);
        assert_eq!(first.find(GZIP), None);
        assert!(first.keep(GZIP, b"short"));
        assert!(first.keep(BROTLI, b"tiny"), "the entry that was found has no copy yet");
        assert_eq!(first.find(BROTLI).as_deref(), Some(&b"tiny"[..]), "stored meanwhile");
        let hit = find(&store, 1).expect("an entry");
        assert_eq!((hit.body(), hit.extra()), (&b"a long body"[..], &b"extra"[..]));
        assert_eq!(store.copies_of(&hit).find(GZIP).as_deref(), Some(&b"short"[..]));
        assert_eq!(store.copies_of(&hit).id(), first.id());
        assert!(first.keep(GZIP, b"another"), "it has one already");
        let added = store.bytes() - before;
        assert_eq!(added, (b"short".len() + b"tiny".len() + 2 * 5 + 1) as u64);
        let totals = store.totals();
        assert_eq!((totals.entries, totals.bytes), (1, store.bytes()));
        let largest = store.largest(10);
        assert_eq!(largest.len(), 1, "it is still listed");
        assert_eq!(counts(&store), [2, 0]);
    }

    #[test]
    fn a_copy_of_a_response_that_has_gone_is_not_stored() {
        let store = store(64 << 20);
        insert(&store, 1, b"first", 10);
        let old = copies(&store, 1);
        insert(&store, 1, b"second", 20);
        assert!(!old.keep(GZIP, b"copy of the first"));
        assert_eq!((old.find(GZIP), copies(&store, 1).find(GZIP)), (None, None));
        assert_ne!(old.id(), copies(&store, 1).id());
        let hit = Hit { key: address(2).keys.public, ..find(&store, 1).expect("an entry") };
        assert!(!store.copies_of(&hit).keep(GZIP, b"copy"), "there is no entry");
        assert_eq!(counts(&store), [0, 2]);
        assert_eq!(store.totals().bytes, store.bytes());
    }

    #[test]
    fn copies_do_not_exceed_the_bound_of_the_store() {
        let store = store(4 << 20);
        let largest = store.entry_bytes_max() as usize;
        insert(&store, 1, &vec![b'a'; largest - 100], 10);
        assert!(!copies(&store, 1).keep(GZIP, &[b'b'; 100]), "larger than an entry may be");
        let body = vec![b'a'; 64 << 10];
        for number in 2..200 {
            insert(&store, number, &body, 10);
            if find(&store, number).is_some() {
                copies(&store, number).keep(GZIP, &body);
            }
            assert!(store.bytes() <= store.bytes_max(), "{} bytes", store.bytes());
        }
        let totals = store.totals();
        assert_eq!((totals.entries, totals.bytes), (store.len() as u64, store.bytes()));
        assert!(store.bytes() >= (body.len() + ENTRY_OVERHEAD_BYTES) as u64);
    }
}
