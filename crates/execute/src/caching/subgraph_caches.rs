//! The caches of one generation: the store of the process with the rules for each subgraph.

use std::sync::Arc;
use std::time::Duration;

use cache::{
    Invalidation, InvalidationStats, KeyHeaders, KeySecret, LookupStats, Partition, StaleTags,
    Store, TagHasher, TagTemplate, Timestamp, TtlSettings,
};
use foldhash::HashMap;
use graph::SubgraphId;
use http::HeaderName;

use crate::caching::{Announcement, FetchesInFlight, ResponseMemory, SharedCache};

/// The caches of one generation. The store, the secret and the fetches in flight belong to the process.
pub struct SubgraphCaches {
    /// The store of entities and root fields.
    pub store: Arc<Store>,
    /// The secret of the store's keys.
    pub secret: KeySecret,
    /// Makes the tags of the store's entries.
    pub tags: TagHasher,
    /// The store that several routers share, if there is one.
    pub shared: Option<Arc<dyn SharedCache>>,
    /// The parsed responses of stored entries.
    pub memory: Arc<ResponseMemory>,
    /// The fetches that will store their responses.
    pub in_flight: Arc<FetchesInFlight>,
    /// The rules of each subgraph, by [`SubgraphId`]; `None` for those without stored responses.
    pub subgraphs: Vec<Option<SubgraphCache>>,
    /// The header of responses to mutations that names stale tags.
    pub invalidate_header: Option<HeaderName>,
    /// Counts invalidations by source.
    pub invalidation_stats: Arc<InvalidationStats>,
    /// Returns the time: milliseconds since the UNIX epoch.
    pub clock: fn() -> Timestamp,
}

/// The rules for the responses of one subgraph.
#[derive(Debug)]
pub struct SubgraphCache {
    /// The name of the subgraph.
    pub name: Box<str>,
    /// The name of the graph if its entries are not those of the graph of the configuration's `supergraph`: equal names
    /// of subgraphs in several graphs of one process need not mean the same server.
    pub graph: Option<Box<str>>,
    /// The settings of the operator.
    pub settings: TtlSettings,
    /// A header of responses that contains their time to live in seconds.
    pub ttl_header: Option<HeaderName>,
    /// The forwarded headers that are part of keys.
    pub key_headers: KeyHeaders,
    /// The tags of entities, by the name of their type.
    pub type_tags: HashMap<Box<str>, TypeTags>,
    /// Counts lookups.
    pub stats: Arc<LookupStats>,
}

/// The templates of the tags of one entity type (`@cacheTag`).
pub type TypeTags = Vec<TagTemplate>;

/// The part of clients for which one operation reads and stores private responses. Operations without this neither read
/// nor store; mutations only store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestCaching {
    /// `None` if private responses are not stored for this client.
    pub partition: Option<Partition>,
    /// True for a live query: nothing is served that has expired, and the tags of all responses are collected, also of
    /// those that are not stored.
    pub is_live: bool,
    /// Set while a whole response is refreshed: stored parts that are fresh for no longer than this are fetched again.
    /// They would end the new response as early as the old one.
    pub renew_within: Option<Duration>,
}

impl SubgraphCaches {
    /// Makes everything stale that the invalidations name, at this router when this returns. With a shared store, the
    /// announcement to the other routers is returned; it also takes effect if it is not awaited.
    pub fn invalidate(&self, all: &[Invalidation]) -> Option<Announcement> {
        let shared = self.shared.as_ref();
        // Before the store of the process: see `cache::SharedView`.
        let announcement = shared.map(|shared| shared.announce(StaleTags::of(all, &self.tags)));
        self.store.invalidate(all, &self.tags);
        announcement
    }

    /// Returns the rules of a subgraph, if its responses may be stored.
    pub fn of(&self, subgraph: SubgraphId) -> Option<&SubgraphCache> {
        self.subgraphs.get(usize::from(subgraph.0))?.as_ref()
    }
}

impl std::fmt::Debug for SubgraphCaches {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SubgraphCaches")
            .field("subgraphs", &self.subgraphs)
            .finish_non_exhaustive()
    }
}
