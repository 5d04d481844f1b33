//! The walk over all tables of metrics, when Prometheus requests them.
//!
//! The tables are declared beside what they count. This module knows where the counters of a running router are, and
//! under which labels those are written that exist several times.

use std::fmt;
use std::sync::{Arc, Weak};

use events::{PROVIDER_METRICS, Provider, TOPIC_METRICS};
use execute::SubgraphFlights;
use hub::HUB_METRICS;
use prepare::PREPARER_METRICS;
use profile::{DESCRIPTOR_METRICS, USAGE_METRICS};
use single_flight::SINGLE_FLIGHT_METRICS;
use telemetry::{LOG_METRICS, Metric, MetricsExporter, MetricsWriter};
use upstream::UPSTREAM_METRICS;

use crate::authentication::metrics::{AUTHENTICATION_METRICS, KEY_SET_METRICS};
use crate::byte_budget::RESPONSE_QUEUE_METRICS;
use crate::connection_metrics::CONNECTION_METRICS;
use crate::connections::OPEN_CONNECTION_METRICS;
use crate::generation::GRAPH_METRICS;
use crate::graph_load_metrics::GRAPH_LOAD_METRICS;
use crate::http::compression::COMPRESSION_METRICS;
use crate::http::metrics::HTTP_METRICS;
use crate::live::kept_operations::KEPT_OPERATION_METRICS;
use crate::live::metrics::SUBSCRIPTION_METRICS;
use crate::live::queue_total::QUEUE_METRICS;
use crate::offload::OFFLOAD_METRICS;
use crate::operation_metrics::OPERATION_METRICS;
use crate::router::Router;

/// The metrics of the program itself.
const BUILD_METRICS: &[Metric<()>] =
    &[Metric::gauges("starling_build_info", "The version, as a label; always 1", |(), samples| {
        samples.add_labelled(("version", env!("CARGO_PKG_VERSION")), 1)
    })];

/// Creates the exporter of a router. It exports nothing once the router has been dropped.
pub(crate) fn exporter(router: &Arc<Router>) -> MetricsExporter {
    let router: Weak<Router> = Arc::downgrade(router);
    MetricsExporter::new(move |out| match router.upgrade() {
        Some(router) => write_all(out, &router),
        None => Ok(()),
    })
}

fn write_all(out: &mut MetricsWriter<'_>, router: &Router) -> fmt::Result {
    write_process(out)?;
    write_clients(out, router)?;
    write_operations(out, router)?;
    write_subgraphs(out, router)?;
    write_providers(out, router)?;
    out.write(HUB_METRICS, &router.hub)
}

fn write_process(out: &mut MetricsWriter<'_>) -> fmt::Result {
    out.write(BUILD_METRICS, &())?;
    if let Some(usage) = profile::usage() {
        out.write(USAGE_METRICS, &usage)?;
    }
    if let Some(descriptors) = profile::descriptors() {
        out.write(DESCRIPTOR_METRICS, &descriptors)?;
    }
    out.write(LOG_METRICS, &())
}

fn write_clients(out: &mut MetricsWriter<'_>, router: &Router) -> fmt::Result {
    out.write(OPEN_CONNECTION_METRICS, &router.connections)?;
    out.write(CONNECTION_METRICS, &router.metrics.connections)?;
    out.write(HTTP_METRICS, &router.metrics.http)?;
    out.write(COMPRESSION_METRICS, &router.compressor)?;
    out.write(RESPONSE_QUEUE_METRICS, &router.response_bytes)?;
    out.write(OFFLOAD_METRICS, &router.offload)?;
    out.write(SUBSCRIPTION_METRICS, &router.metrics.subscriptions)?;
    out.write(QUEUE_METRICS, &router.queue_total)?;
    out.write(KEPT_OPERATION_METRICS, &router.kept_operation_bytes)?;
    out.write(AUTHENTICATION_METRICS, &router.metrics.authentication)?;
    let Some(authentication) = &router.authentication else { return Ok(()) };
    let key_sets = authentication.key_sets().iter();
    let key_sets: Vec<_> = key_sets.map(|it| (vec![("issuer", &*it.name)], it)).collect();
    out.write_each(KEY_SET_METRICS, &key_sets)
}

fn write_operations(out: &mut MetricsWriter<'_>, router: &Router) -> fmt::Result {
    let serving = router.current();
    out.write(GRAPH_LOAD_METRICS, &router.metrics.graph_loads)?;
    out.write(GRAPH_METRICS, &serving)?;
    out.write(PREPARER_METRICS, &serving.preparer)?;
    out.write(OPERATION_METRICS, &router.metrics.operations)?;
    let operations = router.sharing.operations.as_ref().map(|flights| flights.stats());
    let subgraphs = router.sharing.subgraphs.subgraph_queries.as_ref();
    let levels = [("operation", operations), ("subgraph", subgraphs.map(SubgraphFlights::stats))];
    // A level that is turned off has no values.
    let levels = levels.into_iter().filter_map(|(level, it)| Some((vec![("level", level)], it?)));
    out.write_each(SINGLE_FLIGHT_METRICS, &levels.collect::<Vec<_>>())
}

fn write_subgraphs(out: &mut MetricsWriter<'_>, router: &Router) -> fmt::Result {
    let serving = router.current();
    let upstreams = serving.upstreams.iter();
    let upstreams: Vec<_> = upstreams.map(|it| (vec![("subgraph", it.name())], &**it)).collect();
    out.write_each(UPSTREAM_METRICS, &upstreams)
}

fn write_providers(out: &mut MetricsWriter<'_>, router: &Router) -> fmt::Result {
    let providers = router.providers.iter();
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
