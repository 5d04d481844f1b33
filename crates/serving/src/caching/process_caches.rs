//! The caches of the process: the stores, their invalidations, and the levels beyond this process.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use cache::{
    EntryTotals, Invalidation, InvalidationPreview, InvalidationStats, InvalidationTable,
    KeySecret, LookupStats, StaleTags, Store, StoreSettings, TagHasher, Timestamp,
};
use config::Caching;
use execute::{FetchesInFlight, ResponseMemory, SubgraphCaches};
use redis_store::Stores;

use crate::live_queries::{LiveQueries, LiveQuerySettings};
use crate::shared_cache::{Confirmation, RedisCache, SharedCacheSettings};

/// The expected sizes of entries.
const ENTITY_BYTES_EXPECTED: u64 = 1 << 10;
const RESPONSE_BYTES_EXPECTED: u64 = 16 << 10;

/// The part of the memory for entities that is for what is computed of them.
const RESPONSE_MEMORY_PART: usize = 16;

/// The caches of the process. They outlive generations.
pub struct ProcessCaches {
    /// Entities and root fields.
    pub entities: Arc<Store>,
    /// Whole responses.
    pub responses: Arc<Store>,
    /// The lookups of whole responses.
    pub response_stats: LookupStats,
    /// Makes tags of names.
    pub tags: TagHasher,
    /// Counts invalidations by source.
    pub invalidation_stats: Arc<InvalidationStats>,
    /// The level that routers share, if a store is configured.
    pub shared: Option<Arc<RedisCache>>,
    /// The live queries; `None` if they are turned off.
    pub live_queries: Option<Arc<LiveQueries>>,
    pub(super) secret: KeySecret,
    pub(super) in_flight: Arc<FetchesInFlight>,
    pub(super) memory: Arc<ResponseMemory>,
    /// The sizes with which the stores were created.
    pub(super) sizes: [usize; 2],
}

impl ProcessCaches {
    /// Creates empty caches.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn new(
        config: &Caching,
        live: Option<LiveQuerySettings>,
        stores: &Stores,
    ) -> Result<Self, getrandom::Error> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret)?;
        let secret = KeySecret::from_bytes(secret);
        let invalidations = Arc::<InvalidationTable>::default();
        let store = |bytes: usize, expected| {
            let settings = StoreSettings {
                bytes_max: bytes as u64,
                entry_bytes_expected: expected,
                ..StoreSettings::default()
            };
            Arc::new(Store::new(&settings, Arc::clone(&invalidations)))
        };
        let response_memory = config.memory / RESPONSE_MEMORY_PART;
        let entities = store(config.memory - response_memory, ENTITY_BYTES_EXPECTED);
        let invalidation_stats = Arc::<InvalidationStats>::default();
        // The configuration was checked, so that the store exists.
        let shared = config.store.as_ref().and_then(|id| stores.find(id)).map(|store| {
            let settings = SharedCacheSettings {
                lock_wait: config.lock_wait,
                follows_topics: !config.invalidate.is_empty(),
            };
            let (store, entities) = (Arc::clone(store), Arc::clone(&entities));
            RedisCache::new(store, entities, Arc::clone(&invalidation_stats), now, settings)
        });
        let shared = shared.transpose()?.map(Arc::new);
        // Routers that share entries make equal tags.
        let tags = match &shared {
            Some(shared) => TagHasher::new(&KeySecret::of_namespace(shared.namespace())),
            None => TagHasher::new(&secret),
        };
        let live_queries =
            live.map(|settings| Arc::new(LiveQueries::new(settings, Arc::clone(&invalidations))));
        Ok(Self {
            live_queries,
            entities,
            responses: store(config.response_memory, RESPONSE_BYTES_EXPECTED),
            response_stats: LookupStats::default(),
            tags,
            invalidation_stats,
            shared,
            secret,
            in_flight: Arc::default(),
            memory: Arc::new(ResponseMemory::new(response_memory as u64)),
            sizes: [config.memory, config.response_memory],
        })
    }

    /// Makes everything stale that the invalidations of an event name, at all levels of this router. When this returns,
    /// no lookup that begins later finds it. Other routers hear the event themselves.
    pub fn invalidate_by_event(&self, all: &[Invalidation], received: Instant) {
        if let Some(shared) = &self.shared {
            // Before the stores of the process: see `cache::SharedView`.
            shared.announce_event(StaleTags::of(all, &self.tags));
        }
        // Both stores share one table, so one call reaches both.
        self.entities.invalidate(all, &self.tags);
        self.invalidation_stats.event.count_message(all.len(), received.elapsed());
    }

    /// Returns the totals of the entries, with the names of level and subgraph. Entries of no subgraph of the graph,
    /// and whole responses, have an empty name. The totals of one level add up to those of its store.
    pub fn totals<'a>(
        &self,
        subgraphs: &'a SubgraphCaches,
    ) -> Vec<(&'static str, &'a str, EntryTotals)> {
        let names = || subgraphs.subgraphs.iter().flatten().map(|it| &*it.name);
        let tags: Vec<_> = names().map(|name| self.tags.subgraph(name)).collect();
        let known = names().zip(&tags);
        let known = known.map(|(name, tag)| ("subgraph", name, self.entities.totals_of(*tag)));
        let others = ("subgraph", "", self.entities.totals_of_others(&tags));
        known.chain([others, ("response", "", self.responses.totals())]).collect()
    }

    /// Returns what the invalidations would make stale, among the first `entries_max` entries of each level: of the
    /// subgraphs' responses and of whole responses. It walks over the entries, see [`Store::preview`].
    pub fn preview(&self, all: &[Invalidation], entries_max: u64) -> [InvalidationPreview; 2] {
        [&self.entities, &self.responses]
            .map(|store| store.preview(all, &self.tags, now(), entries_max))
    }

    /// The time, as entries have it.
    pub fn now(&self) -> Timestamp {
        now()
    }

    /// Makes everything stale because events have been lost, or because this router did not hear them before
    /// (`is_first`): other routers may have heard those, and have told this one.
    pub fn invalidate_unheard_events(&self, is_first: bool) {
        if let Some(shared) = self.shared.as_ref().filter(|_| !is_first) {
            shared.announce_event(StaleTags::All);
        }
        self.entities.invalidate(&[Invalidation::All], &self.tags);
    }

    /// Makes everything stale that the invalidations of an operator name, at all levels of this router, and waits until
    /// the routers that share a store have applied them, for two seconds at most. `None` if there is no such store.
    pub async fn invalidate_everywhere(
        &self,
        all: &[Invalidation],
        received: Instant,
    ) -> Option<Confirmation> {
        let confirmation = self.shared.as_ref().map(|shared| {
            // Before the stores of the process: see `cache::SharedView`.
            shared.announce_and_confirm(StaleTags::of(all, &self.tags), received)
        });
        self.entities.invalidate(all, &self.tags);
        self.invalidation_stats.admin.count_message(all.len(), received.elapsed());
        match confirmation {
            Some(confirmation) => Some(confirmation.await),
            None => None,
        }
    }
}

impl std::fmt::Debug for ProcessCaches {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ProcessCaches").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

/// The time, as entries have it.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
