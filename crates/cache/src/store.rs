//! The store of this process: entries by key, bounded in bytes.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use quick_cache::OptionsBuilder;
use quick_cache::sync::Cache;

use crate::address::EntryAddress;
use crate::entry::{ENTRY_OVERHEAD_BYTES, EXTRA_BYTES_MAX, EntryParts, StoredEntry};
use crate::entry_classes::CLASS_TAGS_MAX;
use crate::hot_entries::HotEntries;
use crate::insertion::{FetchStart, NewEntry, StoreOutcome};
use crate::invalidation::Invalidation;
use crate::invalidation_table::InvalidationTable;
use crate::keys::CacheKey;
use crate::lookup::{Hit, Lookup, MissReason};
use crate::refresh::{RefreshClaims, is_due_early};
use crate::shared_entry::SharedEntry;
use crate::shared_view::StaleTags;
use crate::stats::{LookupStats, StoreStats, count};
use crate::tags::{Tag, TagHasher};
use crate::time::Timestamp;

mod contents;
mod copies;
mod overview;
mod replacement;

use contents::{EntryWeight, Evicted, NoteEvictions, StoreContents, weight_of};
pub use overview::{HotEntry, InvalidationPreview, LargeEntry};

/// The minimum size of one of the independent parts of a store. An entry must fit into one of them, and a small part
/// evicts before the store is full.
const SHARD_BYTES_MIN: u64 = 4 << 20;

/// The number of evicted keys that are remembered, as a part of the expected entries. Each costs 48 bytes;
/// `benches/eviction.rs` shows what they are worth.
const GHOST_SHARE: f64 = 0.1;

/// The part of a shard that one entry may take: a larger one would evict most of the others.
const ENTRY_SHARE: u64 = 4;

/// The settings of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreSettings {
    /// The maximum size of all entries, with their overhead.
    pub bytes_max: u64,
    /// The expected size of tags, extra bytes and body of an entry. The tables of the store are made for that many
    /// entries, 65 bytes for each; if entries are smaller, the tables grow by doubling.
    pub entry_bytes_expected: u64,
    /// The time after which a refresh that has not ended is given to another caller; at least the timeout of a fetch.
    pub refresh_time_max: Duration,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            bytes_max: 256 << 20,
            entry_bytes_expected: 1024,
            refresh_time_max: Duration::from_secs(10),
        }
    }
}

/// The store, see the module. Share it by `Arc`.
pub struct Store {
    entries: Cache<CacheKey, StoredEntry, EntryWeight, KeyHash, NoteEvictions>,
    invalidations: Arc<InvalidationTable>,
    claims: Arc<RefreshClaims>,
    stats: Arc<StoreStats>,
    contents: Arc<StoreContents>,
    hot: HotEntries,
    bytes_max: u64,
}

impl Store {
    /// Creates an empty store. Stores that share `invalidations` become stale together.
    pub fn new(settings: &StoreSettings, invalidations: Arc<InvalidationTable>) -> Self {
        let stats = Arc::<StoreStats>::default();
        let expected = settings.entry_bytes_expected.max(1) + ENTRY_OVERHEAD_BYTES as u64;
        let items = usize::try_from(settings.bytes_max / expected).unwrap_or(usize::MAX);
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = usize::try_from(settings.bytes_max / SHARD_BYTES_MIN).unwrap_or(usize::MAX);
        // Rounded down to a power of two; the crate would round up.
        let shards = 1 << shards.clamp(1, workers * 4).ilog2();
        let options = OptionsBuilder::new()
            .shards(shards)
            .weight_capacity(settings.bytes_max)
            .estimated_items_capacity(items)
            .ghost_allocation(GHOST_SHARE)
            .build();
        // `build` fails only if one of the two capacities is missing.
        #[allow(clippy::expect_used, reason = "both capacities are set above")]
        let options = options.expect("both capacities are set");
        let contents = Arc::<StoreContents>::default();
        let lifecycle = NoteEvictions(Arc::clone(&contents));
        let entries = Cache::with_options(options, EntryWeight, KeyHash, lifecycle);
        // Tables that grow by doubling would leave up to half of their memory unused.
        entries.reserve(items);
        Self {
            entries,
            invalidations,
            claims: Arc::new(RefreshClaims::new(settings.refresh_time_max)),
            stats,
            contents,
            hot: HotEntries::default(),
            bytes_max: settings.bytes_max,
        }
    }

    /// Begins a fetch, before its request is sent.
    pub fn begin_fetch(&self, now: Timestamp) -> FetchStart {
        FetchStart { sequence: self.invalidations.now(), at: now, requested: now }
    }

    /// Looks up an entry: the private one of the client's partition first, then the public one. Entries that are no
    /// longer usable are removed.
    ///
    /// `random` decides about an early refresh; it must be uniform and different for each call.
    ///
    /// Hot path: see `benches/calls.rs`.
    pub fn lookup(
        &self,
        address: &EntryAddress,
        now: Timestamp,
        random: u64,
        stats: &LookupStats,
    ) -> Lookup {
        let mut reason = MissReason::Absent;
        for key in address.keys.private.into_iter().chain([address.keys.public]) {
            match self.find(key, &address.tags, now, random) {
                Lookup::Miss(MissReason::Absent) => {}
                Lookup::Miss(found) => reason = found,
                hit => {
                    stats.count_lookup(&hit);
                    return hit;
                }
            }
        }
        let miss = Lookup::Miss(reason);
        stats.count_lookup(&miss);
        miss
    }

    fn find(&self, key: CacheKey, implied: &[Tag], now: Timestamp, random: u64) -> Lookup {
        let Some(entry) = self.entries.get(&key) else { return Lookup::Miss(MissReason::Absent) };
        if !self.is_valid(&entry, implied) {
            self.remove(key, &entry);
            count(&self.stats.removed_invalidated);
            return Lookup::Miss(MissReason::Invalidated);
        }
        let age = now.since(entry.began());
        let fresh_for = entry.fresh_for();
        if age < fresh_for {
            let is_due = is_due_early(fresh_for - age, entry.fetch_took(), random);
            let refresh = if is_due { self.claims.claim(key, now) } else { None };
            Lookup::Fresh(Hit { key, entry, age, refresh })
        } else if age < fresh_for + entry.stale_for() {
            let refresh = self.claims.claim(key, now);
            Lookup::Stale(Hit { key, entry, age, refresh })
        } else if age < fresh_for + entry.stale_if_error() {
            Lookup::StaleIfError(Hit { key, entry, age, refresh: None })
        } else {
            self.remove(key, &entry);
            count(&self.stats.removed_expired);
            Lookup::Miss(MissReason::Expired)
        }
    }

    fn is_valid(&self, entry: &StoredEntry, implied: &[Tag]) -> bool {
        let tags = implied.iter().copied().chain(entry.stored_tags());
        self.invalidations.is_valid(entry.sequence(), tags, entry.is_unbounded())
    }

    /// Removes an entry, unless another one has taken its place.
    fn remove(&self, key: CacheKey, entry: &StoredEntry) {
        if let Some((key, entry)) = self.entries.remove_if(&key, |known| known.is_same(entry)) {
            self.contents.note_removed(key, &entry);
        }
    }

    /// Stores a response. Call it when the whole response has arrived.
    pub fn insert(
        &self,
        address: &EntryAddress,
        new: &NewEntry<'_>,
        now: Timestamp,
        stats: &LookupStats,
    ) -> StoreOutcome {
        let outcome = self.try_insert(address, new, now);
        stats.count_store(outcome);
        outcome
    }

    fn try_insert(
        &self,
        address: &EntryAddress,
        new: &NewEntry<'_>,
        now: Timestamp,
    ) -> StoreOutcome {
        let took = now.since(new.start.requested);
        self.insert_fetched(address, new, took, now)
    }

    /// Copies a valid entry of a store that several routers share. `start` was taken before the entry was read, so that
    /// an invalidation meanwhile makes it stale. The entry keeps its age.
    pub fn adopt(
        &self,
        address: &EntryAddress,
        entry: &SharedEntry,
        start: FetchStart,
        now: Timestamp,
    ) -> StoreOutcome {
        let new = NewEntry {
            policy: &entry.policy,
            start: FetchStart { at: entry.began, ..start },
            content: entry.content,
            extra: b"",
            body: &entry.body,
        };
        self.insert_fetched(address, &new, entry.fetch_took, now)
    }

    fn insert_fetched(
        &self,
        address: &EntryAddress,
        new: &NewEntry<'_>,
        fetch_took: Duration,
        now: Timestamp,
    ) -> StoreOutcome {
        let NewEntry { policy, start, content, extra, body } = *new;
        let Some(key) = address.key(policy.scope) else { return StoreOutcome::NoPartition };
        let age = now.since(start.at);
        let stale = policy.stale_for.max(policy.stale_if_error);
        if age >= policy.fresh_for.saturating_add(stale) {
            return StoreOutcome::Expired;
        }
        let tags = (address.tags.len() + policy.tags.iter().len()) * size_of::<Tag>();
        if extra.len() > EXTRA_BYTES_MAX
            || (tags + extra.len() + body.len()) as u64 > self.entry_bytes_max()
        {
            return StoreOutcome::TooLarge;
        }
        let (class, common) = self.contents.classes.class_of(&address.tags);
        let (implied, rest) = address.tags.split_at(common);
        let (entity, own) = match (implied.len(), rest) {
            (CLASS_TAGS_MAX, [entity, own @ ..]) => (Some(*entity), own),
            _ => (None, rest),
        };
        let entry = StoredEntry::new(&EntryParts {
            sequence: start.sequence,
            began: start.at,
            fetch_took,
            policy,
            class,
            implied,
            entity,
            own,
            content,
            extra,
            body,
        });
        if !self.is_valid(&entry, &address.tags) {
            return StoreOutcome::Outdated;
        }
        let newer = self.entries.peek(&key).filter(|known| known.began() > start.at);
        if newer.is_some_and(|known| self.is_valid(&known, &address.tags)) {
            return StoreOutcome::Superseded;
        }
        if policy.tags.is_unbounded() {
            count(&self.stats.unbounded_tags);
        }
        // Before the entry can be evicted.
        self.contents.classes.count_stored(class, weight_of(&entry));
        let mut evicted = Evicted::by_insertion(key);
        // An invalidation between the check and this line is found by the next lookup.
        self.entries.insert_with_lifecycle(key, entry, &mut evicted);
        StoreOutcome::Stored
    }

    /// Makes everything stale that the invalidations name, in all stores that share the table. When this returns, no
    /// lookup that begins later finds it.
    pub fn invalidate<'a>(
        &self,
        invalidations: impl IntoIterator<Item = &'a Invalidation>,
        hasher: &TagHasher,
    ) {
        let stale = StaleTags::of(
            invalidations.into_iter().inspect(|_| count(&self.stats.invalidations)),
            hasher,
        );
        self.invalidate_tags(&stale);
    }

    /// As [`Store::invalidate`], for tags that are known already.
    pub fn invalidate_tags(&self, stale: &StaleTags) {
        match stale {
            StaleTags::All => self.invalidations.invalidate_all(),
            StaleTags::Tags(tags) if tags.is_empty() => {}
            StaleTags::Tags(tags) => self.invalidations.invalidate(tags.iter().copied()),
        }
    }

    /// The maximum size of all entries, with their overhead.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bounds the entries to the configured maximum, halved so many times. Entries beyond it are evicted. For use while
    /// the memory of the process is short.
    pub fn shrink(&self, halvings: u32) {
        self.entries.set_capacity(self.bytes_max >> halvings.min(63));
    }

    /// The maximum size of an entry without its overhead.
    pub fn entry_bytes_max(&self) -> u64 {
        self.entries.shard_capacity() / ENTRY_SHARE
    }

    /// The number of entries, also of those that are stale and have not been looked up since.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The size of all entries, with their overhead.
    pub fn bytes(&self) -> u64 {
        self.entries.weight()
    }

    /// The number of refreshes that were not begun because too many were in progress.
    pub fn refreshes_refused(&self) -> u64 {
        self.claims.refused()
    }

    /// The counters.
    pub fn stats(&self) -> &StoreStats {
        &self.stats
    }

    /// The table of invalidations.
    pub fn invalidations(&self) -> &Arc<InvalidationTable> {
        &self.invalidations
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Store")
            .field("entries", &self.len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// Keys are hashes with a secret already: their first half is the hash of the map.
#[derive(Clone)]
struct KeyHash;

impl BuildHasher for KeyHash {
    type Hasher = FirstWord;

    fn build_hasher(&self) -> FirstWord {
        FirstWord(0)
    }
}

struct FirstWord(u64);

impl Hasher for FirstWord {
    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    /// Never called: a [`CacheKey`] writes one word.
    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(false, "a key writes one word, not {} bytes", bytes.len());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
