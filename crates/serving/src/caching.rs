//! The caches of the process and of one generation: built from the configuration, used by execution (entities and root
//! fields) and by `operation` (whole responses).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use cache::{
    EntryAddress, EntryKeyHasher, EntryKeys, EntryLabel, EntryTotals, FetchStart, FoldedPolicy,
    HashDomain, IgnoredHeaders, Invalidation, InvalidationPreview, InvalidationStats,
    InvalidationTable, Jitter, KeyHeaders, KeySecret, Lookup, LookupStats, NewEntry, Partition,
    PolicyFold, RefreshClaim, ResponseContent, Scope, StaleTags, Store, StoreOutcome,
    StoreSettings, SubgraphTtl, TagHasher, Timestamp, TtlRules, TtlSettings, TypeTtl, Validator,
};
use config::{Caching, Config};
use execute::{
    ClaimPath, Claims, FetchesInFlight, ForwardedHeaders, Payload, RequestCaching, SharedCache,
    SubgraphCache, SubgraphCaches,
};
use graph::{SubgraphId, SubgraphKind, Supergraph};
use http::{HeaderMap, HeaderName, HeaderValue};
use plan::Variables;
use redis_store::Stores;

use crate::cache_tags::{EntityTags, compile_tags};
use crate::live_queries::{LiveQueries, LiveQuerySettings};
use crate::shared_cache::{Confirmation, RedisCache, SharedCacheSettings};
use crate::trace::ResponseSource;

/// The expected sizes of entries.
const ENTITY_BYTES_EXPECTED: u64 = 1 << 10;
const RESPONSE_BYTES_EXPECTED: u64 = 16 << 10;

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
    secret: KeySecret,
    in_flight: Arc<FetchesInFlight>,
    /// The sizes with which the stores were created.
    sizes: [usize; 2],
}

/// The caches of one generation.
pub struct GenerationCaches {
    /// The caches of the process.
    pub process: Arc<ProcessCaches>,
    /// The caches of subgraphs.
    pub subgraphs: Arc<SubgraphCaches>,
    number: u64,
    private_claims: Vec<ClaimPath>,
    private_headers: Vec<HeaderName>,
}

impl ProcessCaches {
    fn new(
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
        let entities = store(config.memory, ENTITY_BYTES_EXPECTED);
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

impl std::fmt::Debug for GenerationCaches {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("GenerationCaches")
            .field("subgraphs", &self.subgraphs)
            .finish_non_exhaustive()
    }
}

/// The time, as entries have it.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the times to live that the configuration gives to the subgraphs of a graph. `None` if nothing is stored.
pub(crate) fn ttl_rules(config: &Caching, graph: &Supergraph) -> Option<TtlRules> {
    if !config.enabled {
        return None;
    }
    let all = subgraph_ttl(&config.subgraphs.all);
    let subgraphs = graph.subgraphs.iter().map(|subgraph| {
        let own = config.subgraphs.subgraphs.get(&*subgraph.name);
        let mut rules = own.map(subgraph_ttl).unwrap_or_default();
        rules.default = rules.default.or(all.default);
        for (name, of_type) in &all.types {
            rules.types.entry(name.clone()).or_insert_with(|| of_type.clone());
        }
        (subgraph.name.clone(), rules)
    });
    Some(TtlRules { default: None, subgraphs: subgraphs.collect() })
}

fn subgraph_ttl(config: &config::SubgraphCache) -> SubgraphTtl {
    let types = config.types.iter().map(|(name, of_type)| {
        let fields = of_type.fields.iter();
        let fields = fields.map(|(name, ttl)| (name.as_str().into(), ttl.0)).collect();
        (name.as_str().into(), TypeTtl { default: of_type.ttl, fields })
    });
    SubgraphTtl { default: config.ttl, types: types.collect() }
}

impl GenerationCaches {
    /// Creates the caches of a generation, with the stores of the `previous` one unless their sizes have changed.
    /// `None` if nothing is stored.
    ///
    /// # Errors
    /// The system has no random bytes, or a tag of the graph has a wrong format. The error is a message for operators.
    pub(crate) fn new(
        config: &Config,
        graph: &Supergraph,
        number: u64,
        stores: &Stores,
        previous: Option<&Self>,
    ) -> Result<Option<Self>, String> {
        let settings = &config.cache;
        if !settings.enabled {
            return Ok(None);
        }
        let sizes = [settings.memory, settings.response_memory];
        let known = previous.filter(|it| it.process.sizes == sizes);
        let process = match known {
            Some(previous) => Arc::clone(&previous.process),
            None => {
                let live = live_query_settings(config);
                let process = ProcessCaches::new(settings, live, stores).map_err(|error| {
                    format!("the system has no random bytes for the keys of the cache: {error}")
                })?;
                Arc::new(process)
            }
        };
        let tags = compile_tags(graph)?;
        let subgraphs = subgraph_caches(config, graph, tags, &process, previous);
        Ok(Some(Self {
            subgraphs: Arc::new(subgraphs),
            number,
            private_claims: settings.private_claims(),
            private_headers: settings.private_headers(),
            process,
        }))
    }

    /// The claims that tell apart the clients of private responses.
    pub(crate) fn private_claims(&self) -> &[ClaimPath] {
        &self.private_claims
    }

    /// Returns the part of clients for which an operation reads and stores private responses.
    pub(crate) fn request_caching(
        &self,
        claims: Option<&Claims>,
        headers: &HeaderMap,
        is_live: bool,
    ) -> RequestCaching {
        let values = Claims::select(claims, &self.private_claims);
        let of_claims = self.private_claims.iter().map(|path| values.json(path).map(str::as_bytes));
        // A name of a claim is not the name of a header.
        let of_claims = of_claims.map(|value| ("claim", value));
        let of_headers = self.private_headers.iter();
        let of_headers =
            of_headers.map(|name| (name.as_str(), headers.get(name).map(HeaderValue::as_bytes)));
        let partition = Partition::of_values(of_claims.chain(of_headers));
        RequestCaching { partition, is_live, renew_within: None }
    }
}

/// Returns the settings of live queries. `None` if they are turned off.
fn live_query_settings(config: &Config) -> Option<LiveQuerySettings> {
    let settings = &config.live_queries;
    config.has_live_queries().then_some(LiveQuerySettings {
        throttle_min: settings.throttle_min,
        queries_max: settings.max_queries as usize,
        tags_max: settings.max_tags as usize,
        shares_requests: config.sharing.subgraph_queries,
    })
}

fn header_names(names: &[String]) -> Vec<HeaderName> {
    // Each name has been checked, so none is dropped here.
    names.iter().filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok()).collect()
}

fn subgraph_caches(
    config: &Config,
    graph: &Supergraph,
    mut tags: EntityTags,
    process: &ProcessCaches,
    previous: Option<&GenerationCaches>,
) -> SubgraphCaches {
    let settings = &config.cache;
    let ttl = TtlSettings {
        stale_for: settings.stale_while_revalidate,
        stale_if_error: settings.stale_if_error,
        not_found_for: Some(settings.not_found).filter(|it| *it > Duration::ZERO),
        jitter: Jitter::from_permille(u16::from(settings.jitter) * 10),
    };
    let ttl_header = settings.ttl_header.as_ref();
    let ttl_header = ttl_header.and_then(|name| HeaderName::from_bytes(name.as_bytes()).ok());
    let known: HashMap<&str, &SubgraphCache> = previous
        .into_iter()
        .flat_map(|it| it.subgraphs.subgraphs.iter().flatten())
        .map(|it| (&*it.name, it))
        .collect();
    let of = |(id, subgraph): (usize, &graph::Subgraph)| {
        let name = &*subgraph.name;
        if subgraph.kind == SubgraphKind::Events || !settings.stores(name) {
            return None;
        }
        let ignored = header_names(settings.ignored_headers(name));
        Some(SubgraphCache {
            name: subgraph.name.clone(),
            settings: ttl,
            ttl_header: ttl_header.clone(),
            key_headers: KeyHeaders::new(match ignored.is_empty() {
                true => IgnoredHeaders::None,
                false => IgnoredHeaders::Named(ignored),
            }),
            type_tags: tags
                .remove(&SubgraphId(id as u16))
                .unwrap_or_default()
                .into_iter()
                .collect(),
            stats: known.get(name).map(|it| Arc::clone(&it.stats)).unwrap_or_default(),
        })
    };
    SubgraphCaches {
        store: Arc::clone(&process.entities),
        secret: process.secret.clone(),
        tags: process.tags.clone(),
        shared: process.shared.clone().map(|it| it as Arc<dyn SharedCache>),
        in_flight: Arc::clone(&process.in_flight),
        subgraphs: graph.subgraphs.iter().enumerate().map(of).collect(),
        // The name has been checked.
        invalidate_header: HeaderName::from_bytes(settings.invalidate_header.as_bytes()).ok(),
        invalidation_stats: Arc::clone(&process.invalidation_stats),
        clock: now,
    }
}

/// A query, by everything that may distinguish its response from another one on the same graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedQuery<'a> {
    /// The client's name of the operation, for operators only.
    pub(crate) name: Option<&'a str>,
    /// The id of the operation, which contains the rights of the client.
    pub(crate) operation_id: u128,
    pub(crate) variables: &'a Variables,
    pub(crate) headers: &'a ForwardedHeaders,
    pub(crate) caching: RequestCaching,
}

impl CachedQuery<'_> {
    /// Describes the whole response for operators: the operation, and the values of its variables in their order.
    fn label(&self, is_private: bool) -> EntryLabel {
        let name =
            format!("{} {:032x}", self.name.unwrap_or("(without a name)"), self.operation_id);
        let values = self.variables.values.iter().map(|it| it.as_deref().unwrap_or("–"));
        let values: Vec<&str> = values.collect();
        EntryLabel::new(None, &name, &values.join(", "), is_private)
    }
}

/// The place of a whole response in its store.
#[derive(Clone, Debug)]
pub(crate) struct ResponseSlot {
    address: EntryAddress,
    start: FetchStart,
}

/// A whole response from memory.
pub(crate) struct StoredResponse {
    pub(crate) payload: Payload,
    /// The time since it was stored.
    pub(crate) age: Duration,
    /// True if its time is over.
    pub(crate) is_stale: bool,
}

impl StoredResponse {
    /// The source, for a trace.
    pub(crate) fn source(&self) -> ResponseSource {
        ResponseSource::Memory { age: self.age, is_stale: self.is_stale }
    }
}

/// The result of looking up a whole response.
pub(crate) enum ResponseLookup {
    /// The response.
    Hit(StoredResponse),
    /// The response, and the right to execute the operation again in the background.
    Refresh(StoredResponse, ResponseSlot, ResponseRefresh),
    /// The operation must be executed, and its response may be stored here.
    Miss(ResponseSlot),
}

/// The right to execute the operation of a stored response again.
pub(crate) struct ResponseRefresh {
    /// The time for which the response is still fresh.
    pub(crate) fresh_for: Duration,
    /// Held until the new response is stored.
    pub(crate) claim: RefreshClaim,
}

impl GenerationCaches {
    /// Looks up the whole response of a query.
    pub(crate) fn look_up(&self, query: &CachedQuery<'_>) -> ResponseLookup {
        let ProcessCaches { responses, response_stats, secret, .. } = &*self.process;
        let address = EntryAddress {
            keys: response_keys(secret, self.number, query),
            tags: Default::default(),
        };
        let now = now();
        let slot = |address| ResponseSlot { address, start: responses.begin_fetch(now) };
        let random = fastrand::u64(..);
        match responses.lookup(&address, now, random, response_stats) {
            Lookup::Fresh(mut hit) | Lookup::Stale(mut hit) => {
                if cache::is_sampled(random) {
                    responses.count_hit(&hit, now, || query.label(hit.is_private()));
                }
                let mut fold = PolicyFold::default();
                // The headers for clients contain times, and the response is stored nowhere else.
                fold.add(&hit.times(), hit.age);
                let mut folded = fold.finish();
                if let Some(folded) = &mut folded {
                    folded.copies = Some(responses.copies_of(&hit));
                }
                let Some(payload) = stored_payload(hit.shared_body(), hit.extra(), folded) else {
                    return ResponseLookup::Miss(slot(address));
                };
                let (age, is_stale) = (hit.age, hit.age >= hit.times().fresh_for);
                let stored = StoredResponse { payload, age, is_stale };
                match hit.refresh.take() {
                    None => ResponseLookup::Hit(stored),
                    Some(claim) => {
                        let refresh = ResponseRefresh { fresh_for: hit.fresh_for(), claim };
                        ResponseLookup::Refresh(stored, slot(address), refresh)
                    }
                }
            }
            Lookup::StaleIfError(_) | Lookup::Miss(_) => ResponseLookup::Miss(slot(address)),
        }
    }

    /// Stores a whole response, if its policy allows it and all clients with its key may get it.
    pub(crate) fn store(&self, slot: &ResponseSlot, query: &CachedQuery<'_>, payload: &Payload) {
        let Some(caching) = &payload.caching else { return };
        // Headers of subgraphs are not stored.
        if payload.errors > 0 || payload.headers.is_some() {
            return;
        }
        let responses = &self.process.responses;
        if payload.bytes.len() as u64 > responses.entry_bytes_max() {
            // Hashing it would be in vain.
            self.process.response_stats.count_store(StoreOutcome::TooLarge);
            return;
        }
        let now = now();
        let validator = Validator::of(&payload.bytes);
        let extra = StoredExtra { splice: payload.splice as u64, validator, cost: payload.cost };
        let extra = extra.to_bytes();
        let new = NewEntry {
            policy: &caching.policy,
            start: slot.start.counted_from(now),
            content: ResponseContent::Data,
            extra: &extra,
            body: &payload.bytes,
        };
        let responses = &self.process.responses;
        responses.insert(&slot.address, &new, now, &self.process.response_stats);
        let scope = caching.policy.scope;
        let label = || query.label(scope == Scope::Private);
        responses.note_stored(&slot.address, scope, &payload.bytes, label);
    }
}

/// Returns the keys of a whole response on the graph with this number. Each list is hashed behind its length, so that
/// different queries are different lists of parts.
fn response_keys(secret: &KeySecret, number: u64, query: &CachedQuery<'_>) -> EntryKeys {
    let CachedQuery { operation_id, variables, headers, caching, .. } = query;
    let mut hasher = EntryKeyHasher::new(secret, HashDomain::Response);
    // One part for everything of fixed size: each part costs two calls of the hash function.
    let mut fixed = [0; 48];
    fixed[..8].copy_from_slice(&number.to_le_bytes());
    fixed[8..24].copy_from_slice(&operation_id.to_le_bytes());
    fixed[24..32].copy_from_slice(&(headers.all.len() as u64).to_le_bytes());
    fixed[32..40].copy_from_slice(&(headers.by_subgraph.len() as u64).to_le_bytes());
    fixed[40..].copy_from_slice(&(variables.values.len() as u64).to_le_bytes());
    hasher.part(&fixed);
    hash_headers(&headers.all, &mut hasher);
    for (subgraph, list) in &headers.by_subgraph {
        hasher.part(&subgraph.0.to_le_bytes());
        hasher.part(&(list.len() as u64).to_le_bytes());
        hash_headers(list, &mut hasher);
    }
    for value in &variables.values {
        match value {
            // No JSON text is empty.
            None => hasher.part(b""),
            Some(text) => hasher.part(text.as_bytes()),
        }
    }
    hasher.finish(caching.partition)
}

/// Writes the values of variables so that different ones are different texts.
pub(crate) fn variables_text(variables: &Variables) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    for value in &variables.values {
        match value {
            None => out.push(0),
            Some(text) => {
                out.push(1);
                out.extend_from_slice(&(text.len() as u64).to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
    out
}

fn hash_headers(list: &[(HeaderName, HeaderValue)], hasher: &mut EntryKeyHasher) {
    for (name, value) in list {
        hasher.part(name.as_str().as_bytes());
        hasher.part(value.as_bytes());
    }
}

/// The parts of a payload beside its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct StoredExtra {
    splice: u64,
    /// Computed once, because hashing the text costs as much as everything else that a hit does.
    validator: Validator,
    cost: Option<u64>,
}

impl StoredExtra {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        bytes.extend_from_slice(&self.splice.to_le_bytes());
        bytes.extend_from_slice(&self.validator.hash().to_le_bytes());
        bytes.extend(self.cost.into_iter().flat_map(u64::to_le_bytes));
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let splice = words.next()?;
        let (low, high) = (words.next()?, words.next()?);
        let validator = Validator::from_hash(u128::from(high) << 64 | u128::from(low));
        Some(Self { splice, validator, cost: words.next() })
    }
}

fn stored_payload(body: Bytes, extra: &[u8], mut caching: Option<FoldedPolicy>) -> Option<Payload> {
    let StoredExtra { splice, validator, cost } = StoredExtra::from_bytes(extra)?;
    if let Some(caching) = &mut caching {
        caching.validator = Some(validator);
    }
    Some(Payload {
        splice: usize::try_from(splice).ok().filter(|it| *it <= body.len())?,
        bytes: body,
        has_data: true,
        errors: 0,
        headers: None,
        cost,
        caching: caching.map(Arc::new),
        revision: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_that_differ_in_anything_have_different_keys() {
        let name = HeaderName::from_static;
        let value = HeaderValue::from_static;
        let header = |key, text| vec![(name(key), value(text))];
        let all = |all| ForwardedHeaders { all, ..ForwardedHeaders::default() };
        let one = |id, list| ForwardedHeaders {
            by_subgraph: vec![(SubgraphId(id), list)],
            ..ForwardedHeaders::default()
        };
        let two = vec![(name("x-a"), value("1")), (name("x-b"), value("2"))];
        let headers = [
            all(Vec::new()),
            all(header("x-a", "1")),
            all(header("x-a", "2")),
            all(header("x-b", "1")),
            all(header("x-a", "1x-b2")),
            all(two.clone()),
            one(0, header("x-a", "1")),
            one(1, header("x-a", "1")),
            one(0, two),
            one(0, Vec::new()),
        ];
        let variables = [
            vec![],
            vec![None],
            vec![None, None],
            vec![Some("null")],
            vec![Some("\"a\"")],
            vec![Some("1"), Some("2")],
            vec![Some("12"), None],
            vec![None, Some("12")],
        ];
        let variables = variables.map(|values| Variables {
            values: values.into_iter().map(|value| value.map(Into::into)).collect(),
        });
        let partition = |text: &'static str| Partition::of_values([("sub", Some(text.as_bytes()))]);
        let partitions = [None, partition("a"), partition("b")];
        let secret = KeySecret::from_bytes([7; 16]);
        let mut seen = std::collections::HashSet::new();
        let mut count = 0;
        for number in [1, 2] {
            for operation_id in [1, 1 << 64] {
                for headers in &headers {
                    for variables in &variables {
                        for (index, partition) in partitions.into_iter().enumerate() {
                            let caching =
                                RequestCaching { partition, is_live: false, renew_within: None };
                            let query = CachedQuery {
                                operation_id,
                                variables,
                                headers,
                                caching,
                                name: None,
                            };
                            let keys = response_keys(&secret, number, &query);
                            assert_eq!(keys, response_keys(&secret, number, &query));
                            // The public key is the same for all clients, and the private one is not.
                            let own = keys.private.filter(|_| index > 0);
                            count += usize::from(index == 0) + usize::from(own.is_some());
                            seen.extend((index == 0).then_some(keys.public).into_iter().chain(own));
                            assert_eq!(keys.private.is_some(), index > 0);
                        }
                    }
                }
            }
        }
        assert_eq!((seen.len(), count), (count, 2 * 2 * 10 * 8 * 3));
    }

    #[test]
    fn a_stored_response_is_the_payload_that_was_stored() {
        let text = r#"{"data":{"a":1}}"#;
        let validator = Validator::of(text.as_bytes());
        for cost in [None, Some(7)] {
            let extra = StoredExtra { splice: 12, validator, cost };
            assert_eq!(StoredExtra::from_bytes(&extra.to_bytes()), Some(extra));
            let caching = Some(FoldedPolicy::default());
            let payload = stored_payload(text.into(), &extra.to_bytes(), caching);
            let payload = payload.expect("a payload");
            assert_eq!((payload.splice, payload.cost, payload.errors), (12, cost, 0));
            assert_eq!(payload.caching.as_ref().expect("a policy").validator, Some(validator));
            let changed = payload.with_extension("cost", "1");
            assert_eq!(changed.caching.expect("a policy").validator, None);
        }
        assert!(stored_payload("{}".into(), &[1, 0, 0], None).is_none());
        let beyond = StoredExtra { splice: 3, validator, cost: None };
        assert!(stored_payload("{}".into(), &beyond.to_bytes(), None).is_none());
    }
}
