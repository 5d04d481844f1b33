//! The view of operators on a store: the entries that are found most often, the largest ones, totals by subgraph, and
//! what an invalidation would make stale.

use std::collections::HashSet;

use smallvec::SmallVec;

use super::Store;
use super::contents::weight_of;
use crate::address::EntryAddress;
use crate::entry::{ENTRY_OVERHEAD_BYTES, StoredEntry};
use crate::entry_classes::EntryTotals;
use crate::entry_label::EntryLabel;
use crate::hot_entries::HotKey;
use crate::invalidation::Invalidation;
use crate::lookup::Hit;
use crate::scope::Scope;
use crate::tags::{Tag, TagHasher};
use crate::time::Timestamp;

/// An entry that is found often, by a sample of the lookups.
#[derive(Clone, PartialEq, Debug)]
pub struct HotEntry {
    /// The description of the entry.
    pub label: EntryLabel,
    /// The estimated number of hits. Those of the last minute count once, those of the minute before half, and so on.
    pub hits: u64,
    /// The most by which `hits` is too large because the number of counters is bounded. The error of sampling is
    /// added to it, in both directions.
    pub error: u64,
    /// The estimated number of hits in a second.
    pub per_second: f64,
    /// The size with the overhead; `None` if the entry is no longer stored.
    pub bytes: Option<u64>,
}

/// A large entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LargeEntry {
    /// The description of the entry.
    pub label: EntryLabel,
    /// The size with the overhead.
    pub bytes: u64,
}

/// The entries that an invalidation would make stale at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InvalidationPreview {
    /// The number of entries that can be served now, and could not be served then.
    pub entries: u64,
    /// Their size, with the overhead.
    pub bytes: u64,
    /// The number of entries that were looked at.
    pub scanned: u64,
    /// False if there are more entries than were looked at.
    pub is_complete: bool,
}

impl Store {
    /// Counts a hit among those of the entries that are found most often. Call it for hits whose lookup had a random
    /// number that [`crate::is_sampled`] accepts; `label` is called if the entry is not among them yet.
    pub fn count_hit(&self, hit: &Hit, now: Timestamp, label: impl FnOnce() -> EntryLabel) {
        self.hot.record(hit.key, now, label);
    }

    /// Adds an entry that was stored to the largest ones, if it is one of them. `body` is its body; `label` is called
    /// if it is.
    pub fn note_stored(
        &self,
        address: &EntryAddress,
        scope: Scope,
        body: &[u8],
        label: impl FnOnce() -> EntryLabel,
    ) {
        // Without tags and extra bytes, which make little difference to a large entry.
        if !self.contents.large.admits((body.len() + ENTRY_OVERHEAD_BYTES) as u64) {
            return;
        }
        let Some(key) = address.key(scope) else { return };
        if let Some(entry) = self.entries.peek(&key) {
            self.contents.large.add(key, weight_of(&entry), label());
        }
    }

    /// Returns at most `count` entries that are found most often, the first one most often.
    pub fn hottest(&self, count: usize, now: Timestamp) -> Vec<HotEntry> {
        let hot = self.hot.sorted(now).into_iter().take(count);
        let entry = |hot: HotKey| HotEntry {
            label: hot.label,
            hits: hot.hits,
            error: hot.error,
            per_second: hot.per_second,
            bytes: self.entries.peek(&hot.key).map(|it| weight_of(&it)),
        };
        hot.map(entry).collect()
    }

    /// Returns at most `count` of the largest entries, the largest first.
    pub fn largest(&self, count: usize) -> Vec<LargeEntry> {
        let listed = self.contents.large.sorted().into_iter();
        let stored = listed.filter_map(|(key, _, label)| {
            Some(LargeEntry { label, bytes: weight_of(&self.entries.peek(&key)?) })
        });
        stored.take(count).collect()
    }

    /// The totals of the entries of one subgraph, by its tag.
    pub fn totals_of(&self, subgraph: Tag) -> EntryTotals {
        self.contents.classes.totals(|first| first == Some(subgraph))
    }

    /// The totals of the entries of no subgraph in this list: whole responses, and entries of subgraphs that the graph
    /// has no longer.
    pub fn totals_of_others(&self, subgraphs: &[Tag]) -> EntryTotals {
        self.contents.classes.totals(|first| first.is_none_or(|tag| !subgraphs.contains(&tag)))
    }

    /// The totals of all entries.
    pub fn totals(&self) -> EntryTotals {
        self.contents.classes.totals(|_| true)
    }

    /// Returns what the invalidations would make stale, among the first `entries_max` entries. Nothing is changed.
    ///
    /// It walks over the entries, with a short lock for each. Run it where that delays nothing. Entries that are stored
    /// or leave meanwhile may or may not count.
    pub fn preview<'a>(
        &self,
        invalidations: impl IntoIterator<Item = &'a Invalidation>,
        hasher: &TagHasher,
        now: Timestamp,
        entries_max: u64,
    ) -> InvalidationPreview {
        let mut tags = HashSet::new();
        let mut is_all = false;
        for invalidation in invalidations {
            match invalidation.tag(hasher) {
                Some(tag) => {
                    tags.insert(tag);
                }
                None => is_all = true,
            }
        }
        let classes = self.contents.classes.matching(|tag| tags.contains(&tag));
        let entities: HashSet<Tag> =
            tags.iter().map(|tag| Tag::from_40_bits(tag.to_40_bits())).collect();
        let names = |entry: &StoredEntry| {
            is_all
                || (entry.is_unbounded() && !tags.is_empty())
                || classes[usize::from(entry.class().0)]
                || entry.entity().is_some_and(|tag| entities.contains(&tag))
                || entry.stored_tags().any(|tag| tags.contains(&tag))
        };
        let mut preview = InvalidationPreview { is_complete: true, ..Default::default() };
        for (_, entry) in self.entries.iter() {
            if preview.scanned >= entries_max {
                preview.is_complete = false;
                break;
            }
            preview.scanned += 1;
            if names(&entry) && self.is_usable(&entry, now) {
                preview.entries += 1;
                preview.bytes += weight_of(&entry);
            }
        }
        preview
    }

    /// True if a lookup could return the entry.
    fn is_usable(&self, entry: &StoredEntry, now: Timestamp) -> bool {
        let stale = entry.stale_for().max(entry.stale_if_error());
        let of_class = self.contents.classes.tags(entry.class()).iter().copied();
        let tags: SmallVec<[Tag; 4]> = of_class.chain(entry.entity()).collect();
        now.since(entry.began()) < entry.fresh_for() + stale && self.is_valid(entry, &tags)
    }
}
