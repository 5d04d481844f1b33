//! The caches of one generation: the settings of its subgraphs, over the stores of the process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cache::{IgnoredHeaders, Jitter, KeyHeaders, Partition, TtlSettings};
use config::Config;
use execute::{ClaimPath, Claims, RequestCaching, SharedCache, SubgraphCache, SubgraphCaches};
use graph::{SubgraphId, SubgraphKind, Supergraph};
use http::{HeaderMap, HeaderName, HeaderValue};
use redis_store::Stores;

use super::process_caches::{ProcessCaches, now};
use crate::cache_tags::{EntityTags, compile_tags};
use crate::live_queries::LiveQuerySettings;

/// The caches of one generation.
pub struct GenerationCaches {
    /// The caches of the process.
    pub process: Arc<ProcessCaches>,
    /// The caches of subgraphs.
    pub subgraphs: Arc<SubgraphCaches>,
    /// The number of the graph, which is part of the keys of whole responses.
    pub(super) number: u64,
    private_claims: Vec<ClaimPath>,
    private_headers: Vec<HeaderName>,
}

impl std::fmt::Debug for GenerationCaches {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("GenerationCaches")
            .field("subgraphs", &self.subgraphs)
            .finish_non_exhaustive()
    }
}

impl GenerationCaches {
    /// Creates the caches of a generation, with the stores of the `previous` one unless their sizes have changed.
    /// `None` if nothing is stored. A further graph has a name, see [`SubgraphCache::graph`].
    ///
    /// # Errors
    /// The system has no random bytes, or a tag of the graph has a wrong format. The error is a message for operators.
    pub(crate) fn new(
        config: &Config,
        (graph, name): (&Supergraph, Option<&str>),
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
        let subgraphs = subgraph_caches(config, (graph, name), tags, &process, previous);
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
    (graph, graph_name): (&Supergraph, Option<&str>),
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
            graph: graph_name.map(Into::into),
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
        memory: Arc::clone(&process.memory),
        in_flight: Arc::clone(&process.in_flight),
        subgraphs: graph.subgraphs.iter().enumerate().map(of).collect(),
        // The name has been checked.
        invalidate_header: HeaderName::from_bytes(settings.invalidate_header.as_bytes()).ok(),
        invalidation_stats: Arc::clone(&process.invalidation_stats),
        clock: now,
    }
}
