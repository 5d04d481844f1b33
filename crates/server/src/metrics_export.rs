//! The walk over all tables of metrics, when Prometheus requests them or the collector gets them.
//!
//! The tables are declared beside what they count. This module knows where the counters of a running router are, and
//! under which labels those are written that exist several times.

use std::fmt;
use std::sync::Arc;

use cache::{LOOKUP_COUNTERS, LookupStats};
use clients::access_log::ACCESS_LOG_METRICS;
use clients::authentication::ClientAuthentication;
use clients::authentication::metrics::{
    AUTHENTICATION_METRICS, INTROSPECTION_METRICS, KEY_SET_METRICS,
};
use clients::byte_budget::RESPONSE_QUEUE_METRICS;
use clients::connection_metrics::CONNECTION_METRICS;
use clients::connections::OPEN_CONNECTION_METRICS;
use clients::handshake_pace::HANDSHAKE_METRICS;
use clients::kept_operations::KEPT_OPERATION_METRICS;
use clients::offload::OFFLOAD_METRICS;
use clients::operation_metrics::{OPERATION_METRICS, OperationMetrics};
use clients::served_connections::SERVED_CONNECTION_METRICS;
use config::DEFAULT_GRAPH;
use cost::COST_METRICS;
use events::{PROVIDER_METRICS, Provider, Providers, TOPIC_METRICS};
use execute::{RESPONSE_MEMORY_METRICS, SubgraphFlights};
use frontend::compression::COMPRESSION_METRICS;
use frontend::first_turn::FIRST_TURN_METRICS;
use frontend::http_server::HttpServer;
use frontend::metrics::HTTP_METRICS;
use frontend::refusal_pacing::REFUSAL_METRICS;
use frontend::uploads::UPLOAD_METRICS;
use hub::{HUB_COUNTERS, HUB_METRICS, HubStats};
use live::metrics::SUBSCRIPTION_METRICS;
use live::operation_runner::OperationRunner;
use live::queue_total::QUEUE_METRICS;
use otlp::{METRIC_EXPORT_METRICS, MetricExportStats};
use policies::{DECISION_POINT_METRICS, POLICY_METRICS, PolicyDecider, REGO_METRICS};
use prepare::PREPARER_METRICS;
use profile::{DESCRIPTOR_METRICS, USAGE_METRICS};
use redis_store::{STORE_COUNTERS, STORE_METRICS, Stores};
use serving::admission::Admission;
use serving::caching::GenerationCaches;
use serving::expression_stats::EXPRESSION_METRICS;
use serving::generation::{GRAPH_METRICS, ServingGraph};
use serving::known_operations::{
    DOCUMENT_VALIDITY_METRICS, KNOWN_OPERATION_COUNTERS, KNOWN_OPERATION_METRICS,
    SHARED_TEXT_COUNTERS,
};
use serving::live_queries::{LIVE_QUERY_COUNTERS, LIVE_QUERY_METRICS};
use serving::memory::MEMORY_METRICS;
use serving::overload::bulkheads::{BULKHEAD_METRICS, GraphBulkheads};
use serving::overload::metrics::{ADMISSION_CLASS_METRICS, ADMISSION_METRICS, READINESS_METRICS};
use serving::rate_limits::RATE_LIMIT_METRICS;
use single_flight::SINGLE_FLIGHT_METRICS;
use subscription_client::{CALLBACK_COUNTERS, CallbackEndpoint, SUBSCRIPTION_COUNTERS};
use telemetry::history::{HISTORY_METRICS, HistoryStats};
use telemetry::spans::{RECORDER_METRICS, SPAN_METRICS};
use telemetry::{LOG_METRICS, Metric, MetricsExporter, MetricsWriter};
use upstream::{UPSTREAM_COUNTERS, UPSTREAM_METRICS, Upstream};

use crate::composition::{COMPOSITION_METRICS, CompositionState};
use crate::document_load_metrics::{DOCUMENT_LOAD_METRICS, DocumentLoadMetrics};
use crate::further_graphs::FurtherGraph;
use crate::graph_load_metrics::{GRAPH_LOAD_METRICS, GraphLoadMetrics};
use crate::supergraph_download::{SUPERGRAPH_DOWNLOAD_METRICS, SupergraphDownloadMetrics};
use crate::warming::Warming;
use crate::warming::metrics::WARMING_METRICS;

/// The metrics of the program itself.
const BUILD_METRICS: &[Metric<()>] =
    &[Metric::gauges("starling_build_info", "The version, as a label; always 1", |(), samples| {
        samples.add_labelled(("version", env!("CARGO_PKG_VERSION")), 1)
    })];

/// The parts of a router that have counters.
pub(crate) struct MetricsSources {
    /// Connections, responses and large requests.
    pub(crate) http: Arc<HttpServer>,
    /// Operations and subscriptions.
    pub(crate) runner: Arc<OperationRunner>,
    /// The key sets of issuers, and refused clients.
    pub(crate) authentication: Arc<ClientAuthentication>,
    /// The further graphs.
    pub(crate) further: Arc<[FurtherGraph]>,
    /// The brokers.
    pub(crate) providers: Arc<Providers>,
    /// The stores that several routers share.
    pub(crate) stores: Arc<Stores>,
    /// The endpoint for callbacks of subgraphs, if one is configured.
    pub(crate) callbacks: Option<Arc<CallbackEndpoint>>,
    /// Attempts to load a graph.
    pub(crate) graph_loads: Arc<GraphLoadMetrics>,
    /// Changes of persisted documents.
    pub(crate) document_loads: Arc<DocumentLoadMetrics>,
    /// The progress of the start.
    pub(crate) warming: Arc<Warming>,
    /// The composition of the graph.
    pub(crate) composition: Arc<CompositionState>,
    /// The requests for a supergraph by URL, if it has one.
    pub(crate) supergraph_download: Option<Arc<SupergraphDownloadMetrics>>,
    /// The export to a collector, if there is one.
    pub(crate) metric_export: Option<Arc<MetricExportStats>>,
    /// The histories of the console; `None` without a console.
    pub(crate) history: Option<Arc<HistoryStats>>,
}

/// The labels of a source.
type Labels<'a> = Vec<(&'a str, &'a str)>;

impl MetricsSources {
    /// Returns the label of a graph. A process with one graph has none.
    fn label_of<'a>(&self, name: &'a str) -> Labels<'a> {
        match self.further.is_empty() {
            true => Vec::new(),
            false => vec![("graph", name)],
        }
    }

    /// Returns a part of each graph with its label, that of the graph of `supergraph` first.
    fn of_graphs<'a, T: ?Sized>(
        &'a self,
        first: &'a T,
        further: impl Fn(&'a FurtherGraph) -> &'a T,
    ) -> Vec<(Labels<'a>, &'a T)> {
        let further = self.further.iter().map(|it| (self.label_of(&it.name), further(it)));
        std::iter::once((self.label_of(DEFAULT_GRAPH), first)).chain(further).collect()
    }

    /// Returns the graphs that serve now, each with its name, that of `supergraph` first.
    pub(crate) fn serving_graphs(&self) -> Vec<(&str, Arc<ServingGraph>)> {
        let first = (DEFAULT_GRAPH, self.runner.serving.current());
        let further = self.further.iter().map(|it| (&*it.name, it.serving.current()));
        std::iter::once(first).chain(further).collect()
    }

    /// Returns the counters of the operations and of the hub of each graph, with the name of the graph.
    pub(crate) fn graph_counters(
        &self,
    ) -> impl Iterator<Item = (&str, &OperationMetrics, &HubStats)> {
        let OperationRunner { serving, hub, .. } = &*self.runner;
        let first = (DEFAULT_GRAPH, &*serving.metrics, hub.stats());
        let further =
            self.further.iter().map(|it| (&*it.name, &*it.serving.metrics, it.hub.stats()));
        std::iter::once(first).chain(further)
    }

    /// Returns the counters of all hubs.
    pub(crate) fn hub_stats(&self) -> impl Iterator<Item = &HubStats> {
        let hubs = std::iter::once(&self.runner.hub).chain(self.further.iter().map(|it| &it.hub));
        hubs.map(|it| it.stats())
    }
}

/// The parts of several graphs that have names of their own, such as their subgraphs. Parts with the same counters are
/// listed once; another part of the same name has the label `graph`.
struct NamedParts<'a, T: ?Sized>(Vec<(Labels<'a>, &'a T)>);

impl<'a, T: ?Sized> NamedParts<'a, T> {
    fn add(
        &mut self,
        (label, name): (&'a str, &'a str),
        graph: &'a str,
        part: &'a T,
        is_same: impl Fn(&T, &T) -> bool,
    ) {
        let mut known = self.0.iter().filter(|(labels, _)| labels.contains(&(label, name)));
        let mut labels = vec![(label, name)];
        match known.next() {
            Some((_, first)) if is_same(first, part) => return,
            Some(_) if known.any(|(_, other)| is_same(other, part)) => return,
            Some(_) => labels.push(("graph", graph)),
            None => {}
        }
        self.0.push((labels, part));
    }
}

/// Creates the exporter of a router.
pub(crate) fn exporter(sources: Arc<MetricsSources>) -> MetricsExporter {
    MetricsExporter::new(move |out| write_all(out, &sources))
}

impl fmt::Debug for MetricsSources {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("MetricsSources")
    }
}

fn write_all(out: &mut MetricsWriter<'_>, sources: &MetricsSources) -> fmt::Result {
    write_process(out, sources)?;
    if let Some(stats) = &sources.metric_export {
        out.write(METRIC_EXPORT_METRICS, &**stats)?;
    }
    write_clients(out, sources)?;
    write_operations(out, sources)?;
    write_subgraphs(out, sources)?;
    write_providers(out, sources)?;
    write_stores(out, sources)?;
    let hubs = sources.of_graphs(&*sources.runner.hub, |it| &*it.hub);
    let stats: Vec<_> = hubs.iter().map(|(labels, it)| (labels.clone(), it.stats())).collect();
    out.write_each(HUB_COUNTERS, &stats)?;
    out.write_each(HUB_METRICS, &hubs)
}

fn write_process(out: &mut MetricsWriter<'_>, sources: &MetricsSources) -> fmt::Result {
    out.write(BUILD_METRICS, &())?;
    if let Some(usage) = profile::usage() {
        out.write(USAGE_METRICS, &usage)?;
    }
    if let Some(descriptors) = profile::descriptors() {
        out.write(DESCRIPTOR_METRICS, &descriptors)?;
    }
    if let Some(history) = &sources.history {
        out.write(HISTORY_METRICS, &**history)?;
    }
    out.write(LOG_METRICS, &())
}

fn write_clients(out: &mut MetricsWriter<'_>, sources: &MetricsSources) -> fmt::Result {
    out.write(OPEN_CONNECTION_METRICS, &sources.http.limits.connections)?;
    out.write(SERVED_CONNECTION_METRICS, &sources.http.limits.served)?;
    out.write(CONNECTION_METRICS, &sources.http.metrics)?;
    out.write(HTTP_METRICS, &sources.http.pipeline.metrics)?;
    out.write(REFUSAL_METRICS, &sources.http.pipeline.refusals)?;
    out.write(FIRST_TURN_METRICS, &sources.http.pipeline.first_turns)?;
    if let Some(uploads) = &sources.http.pipeline.uploads {
        out.write(UPLOAD_METRICS, uploads)?;
    }
    out.write(COMPRESSION_METRICS, &sources.http.pipeline.compressor)?;
    out.write(RESPONSE_QUEUE_METRICS, &sources.http.limits.response_bytes)?;
    out.write(OFFLOAD_METRICS, &sources.http.limits.offload)?;
    if sources.http.limits.memory.budget().is_some() {
        out.write(MEMORY_METRICS, &sources.http.limits.memory)?;
    }
    out.write(ACCESS_LOG_METRICS, &sources.runner.access_log)?;
    if let Some(tracer) = &sources.http.pipeline.tracer {
        out.write(SPAN_METRICS, &tracer.stats)?;
        if let Some(recorder) = tracer.recorder() {
            out.write(RECORDER_METRICS, &recorder.stats)?;
        }
    }
    out.write(SUBSCRIPTION_METRICS, &sources.runner.metrics)?;
    out.write(QUEUE_METRICS, &sources.runner.limits.queue_total)?;
    out.write(KEPT_OPERATION_METRICS, &sources.runner.limits.kept_operation_bytes)?;
    out.write(AUTHENTICATION_METRICS, &sources.authentication.metrics)?;
    let Some(authentication) = sources.authentication.authenticator() else { return Ok(()) };
    let key_sets = authentication.key_sets().iter();
    let key_sets: Vec<_> = key_sets.map(|it| (vec![("issuer", &*it.name)], it)).collect();
    out.write_each(KEY_SET_METRICS, &key_sets)?;
    let introspector = authentication.introspector();
    introspector.map_or(Ok(()), |it| out.write(INTROSPECTION_METRICS, &**it))
}

fn write_operations(out: &mut MetricsWriter<'_>, sources: &MetricsSources) -> fmt::Result {
    let serving = sources.runner.serving.current();
    write_graphs(out, sources)?;
    out.write(OPERATION_METRICS, sources.runner.serving.process_metrics())?;
    if let Some(figures) = &sources.runner.serving.figures {
        figures.write_metrics(out)?;
    }
    out.write(EXPRESSION_METRICS, &serving.expressions)?;
    if let Some(overload) = &serving.overload {
        let reading = overload.reading();
        out.write(ADMISSION_METRICS, &reading)?;
        out.write(READINESS_METRICS, overload)?;
        if let Some(pace) = &sources.http.limits.handshakes {
            out.write(HANDSHAKE_METRICS, pace)?;
        }
        let classes = reading.classes();
        let classes = classes.iter().map(|(name, it)| (vec![("class", *name)], it));
        out.write_each(ADMISSION_CLASS_METRICS, &classes.collect::<Vec<_>>())?;
    }
    let limits = serving.admission.iter().flat_map(Admission::limit_states);
    let limits = limits.map(|it| (vec![("limit", &*it.name)], &**it));
    out.write_each(RATE_LIMIT_METRICS, &limits.collect::<Vec<_>>())?;
    if let Some(cost) = &serving.cost {
        out.write(COST_METRICS, cost.stats())?;
    }
    if let Some(policies) = &serving.policies {
        write_policies(out, policies)?;
    }
    if let Some(caching) = &serving.caching {
        write_caches(out, sources, caching)?;
    }
    let known = &sources.runner.serving.known_operations;
    out.write(KNOWN_OPERATION_METRICS, known)?;
    out.write(KNOWN_OPERATION_COUNTERS, known.stats())?;
    let validity = &sources.runner.serving.document_validity;
    let validity = sources.of_graphs(validity, |it| &it.serving.document_validity);
    out.write_each(DOCUMENT_VALIDITY_METRICS, &validity)?;
    if let Some(shared) = known.shared_text_stats() {
        out.write(SHARED_TEXT_COUNTERS, shared)?;
    }
    out.write(DOCUMENT_LOAD_METRICS, &sources.document_loads)?;
    out.write(WARMING_METRICS, &sources.warming)?;
    let operations =
        sources.runner.serving.sharing.operations.as_ref().map(|flights| flights.stats());
    let subgraphs = sources.runner.serving.sharing.subgraphs.subgraph_queries.as_ref();
    let levels = [("operation", operations), ("subgraph", subgraphs.map(SubgraphFlights::stats))];
    // A level that is turned off has no values.
    let levels = levels.into_iter().filter_map(|(level, it)| Some((vec![("level", level)], it?)));
    out.write_each(SINGLE_FLIGHT_METRICS, &levels.collect::<Vec<_>>())
}

fn write_graphs(out: &mut MetricsWriter<'_>, sources: &MetricsSources) -> fmt::Result {
    let loads = sources.of_graphs(&*sources.graph_loads, |it| &*it.graph_loads);
    out.write_each(GRAPH_LOAD_METRICS, &loads)?;
    let compositions = sources.of_graphs(&*sources.composition, |it| &*it.composition);
    out.write_each(COMPOSITION_METRICS, &compositions)?;
    let downloads = sources.of_graphs(&sources.supergraph_download, |it| &it.supergraph_download);
    let downloads =
        downloads.into_iter().filter_map(|(labels, it)| Some((labels, &**it.as_ref()?)));
    let downloads: Vec<(_, &SupergraphDownloadMetrics)> = downloads.collect();
    if !downloads.is_empty() {
        out.write_each(SUPERGRAPH_DOWNLOAD_METRICS, &downloads)?;
    }
    let graphs = sources.serving_graphs();
    let graphs: Vec<_> =
        graphs.iter().map(|(name, graph)| (sources.label_of(name), &**graph)).collect();
    out.write_each(GRAPH_METRICS, &graphs)?;
    let preparers: Vec<_> =
        graphs.iter().map(|(labels, graph)| (labels.clone(), &graph.preparer)).collect();
    out.write_each(PREPARER_METRICS, &preparers)
}

fn write_policies(out: &mut MetricsWriter<'_>, policies: &PolicyDecider) -> fmt::Result {
    out.write(POLICY_METRICS, &policies.stats)?;
    if let Some(point) = policies.decision_point() {
        out.write(DECISION_POINT_METRICS, point)?;
    }
    policies.rego().map_or(Ok(()), |rego| out.write(REGO_METRICS, rego))
}

fn write_caches(
    out: &mut MetricsWriter<'_>,
    sources: &MetricsSources,
    caching: &GenerationCaches,
) -> fmt::Result {
    let process = &caching.process;
    let level = |level| vec![("level", level)];
    let graphs = sources.serving_graphs();
    let mut lookups = NamedParts(Vec::new());
    for (graph, loaded) in &graphs {
        let caches = loaded.caching.iter().flat_map(|it| it.subgraphs.subgraphs.iter().flatten());
        for cache in caches {
            let is_same = |a: &LookupStats, b: &LookupStats| std::ptr::eq(a, b);
            lookups.add(("subgraph", &cache.name), graph, &*cache.stats, is_same);
        }
    }
    let mut lookups = lookups.0;
    lookups.iter_mut().for_each(|(labels, _)| labels.insert(0, ("level", "subgraph")));
    lookups.push((vec![("level", "response"), ("subgraph", "")], &process.response_stats));
    out.write_each(LOOKUP_COUNTERS, &lookups)?;
    if let Some(live) = &process.live_queries {
        out.write(LIVE_QUERY_COUNTERS, &live.stats)?;
        out.write(LIVE_QUERY_METRICS, &**live)?;
    }
    let stores = [("subgraph", &*process.entities), ("response", &*process.responses)];
    let stores = stores.map(|(name, store)| (level(name), store));
    out.write_each(cache::STORE_METRICS, &stores)?;
    out.write(RESPONSE_MEMORY_METRICS, &*caching.subgraphs.memory)?;
    let stats: Vec<_> =
        stores.iter().map(|(labels, store)| (labels.clone(), store.stats())).collect();
    out.write_each(cache::STORE_COUNTERS, &stats)?;
    let totals = process.totals(&caching.subgraphs);
    let totals: Vec<_> = totals
        .iter()
        .map(|(level, subgraph, totals)| (vec![("level", *level), ("subgraph", *subgraph)], totals))
        .collect();
    out.write_each(cache::ENTRY_METRICS, &totals)?;
    let sources = process.invalidation_stats.sources();
    let sources = sources.map(|(name, stats)| (vec![("source", name)], stats));
    out.write_each(cache::INVALIDATION_SOURCE_COUNTERS, &sources)?;
    out.write_each(cache::INVALIDATION_SOURCE_METRICS, &sources)?;
    let Some(shared) = &process.shared else { return Ok(()) };
    out.write(cache::SHARED_CACHE_COUNTERS, shared.stats())?;
    out.write(cache::SHARED_CACHE_METRICS, shared.stats())
}

fn write_subgraphs(out: &mut MetricsWriter<'_>, sources: &MetricsSources) -> fmt::Result {
    let graphs = sources.serving_graphs();
    let (mut upstreams, mut bulkheads, mut streams) =
        (NamedParts(Vec::new()), NamedParts(Vec::new()), NamedParts(Vec::new()));
    for (graph, loaded) in &graphs {
        for it in &loaded.upstreams {
            let is_same = |a: &Upstream, b: &Upstream| std::ptr::eq(a.stats(), b.stats());
            upstreams.add(("subgraph", it.name()), graph, &**it, is_same);
        }
        for it in loaded.bulkheads.iter().flat_map(GraphBulkheads::bulkheads) {
            bulkheads.add(("subgraph", it.name()), graph, &**it, |a, b| std::ptr::eq(a, b));
        }
        for it in loaded.streams.iter().flatten().map(|it| &it.client) {
            streams
                .add(("subgraph", it.subgraph()), graph, &**it.stats(), |a, b| std::ptr::eq(a, b));
        }
    }
    let stats: Vec<_> =
        upstreams.0.iter().map(|(labels, it)| (labels.clone(), it.stats())).collect();
    out.write_each(UPSTREAM_COUNTERS, &stats)?;
    out.write_each(UPSTREAM_METRICS, &upstreams.0)?;
    out.write_each(BULKHEAD_METRICS, &bulkheads.0)?;
    out.write_each(SUBSCRIPTION_COUNTERS, &streams.0)?;
    match &sources.callbacks {
        Some(callbacks) => out.write(CALLBACK_COUNTERS, callbacks.stats()),
        None => Ok(()),
    }
}

fn write_stores(out: &mut MetricsWriter<'_>, sources: &MetricsSources) -> fmt::Result {
    let stores: Vec<_> =
        sources.stores.iter().map(|it| (vec![("store", it.id())], &**it)).collect();
    let stats: Vec<_> = stores.iter().map(|(labels, it)| (labels.clone(), it.stats())).collect();
    out.write_each(STORE_COUNTERS, &stats)?;
    out.write_each(STORE_METRICS, &stores)
}

fn write_providers(out: &mut MetricsWriter<'_>, sources: &MetricsSources) -> fmt::Result {
    let providers = sources.providers.iter();
    let providers: Vec<(_, &dyn Provider)> =
        providers.map(|it| (vec![("provider", it.name())], &**it)).collect();
    out.write_each(PROVIDER_METRICS, &providers)?;
    let topics: Vec<_> = providers.iter().map(|(_, it)| (it.name(), it.stats().topics())).collect();
    let topics = topics.iter().flat_map(|(provider, topics)| {
        let labels = |topic| vec![("provider", *provider), ("topic", topic)];
        topics.iter().map(move |(topic, stats)| (labels(&**topic), &**stats))
    });
    out.write_each(TOPIC_METRICS, &topics.collect::<Vec<_>>())
}
