//! Counters of the parts, read when Prometheus asks: prepared operations, subgraphs, providers, the hub.

use std::fmt::Error;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use upstream::FailureKind;

use crate::router::Router;

/// Reads a router's parts; nothing once it is gone.
#[derive(Debug)]
pub(crate) struct Scrape(pub(crate) Weak<Router>);

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        match self.0.upgrade() {
            Some(router) => Writer(encoder).all(&router),
            None => Ok(()),
        }
    }
}

struct Writer<'a>(DescriptorEncoder<'a>);

/// Labels and the value that belongs to them.
type Sample<const N: usize> = ([(&'static str, String); N], u64);

impl Writer<'_> {
    fn all(&mut self, router: &Router) -> Result<(), Error> {
        let version = vec![([("version", env!("CARGO_PKG_VERSION").to_owned())], 1)];
        self.gauges("starling_build_info", "Which version this is; always 1", version)?;
        self.connections(router)?;
        self.preparing(router)?;
        self.subgraphs(router)?;
        self.providers(router)?;
        self.hub(router)
    }

    fn connections(&mut self, router: &Router) -> Result<(), Error> {
        let connections = &router.connections;
        self.gauge(
            "starling_http_connections",
            "Open client connections",
            connections.open() as u64,
        )?;
        self.counter(
            "starling_http_connections_refused",
            "Connections closed at once because of subscriptions.max_connections",
            connections.refused() as u64,
        )?;
        self.counter(
            "starling_http_accept_failures",
            "Connections that could not be accepted, most likely for want of descriptors",
            router.metrics.accept_failures(),
        )
    }

    fn preparing(&mut self, router: &Router) -> Result<(), Error> {
        let loaded = router.current();
        let (preparer, stats) = (&loaded.preparer, loaded.preparer.stats());
        self.gauge(
            "starling_graph_generation",
            "Number of the graph that serves",
            loaded.generation.number,
        )?;
        self.gauge(
            "starling_operations_prepared",
            "Prepared operations kept",
            preparer.len() as u64,
        )?;
        self.counter(
            "starling_operations_prepared_hits",
            "Operations found prepared, since the graph was loaded",
            read(&stats.hits),
        )?;
        self.counter(
            "starling_operations_prepared_misses",
            "Operations that had to be prepared, since the graph was loaded",
            read(&stats.misses),
        )?;
        self.counter(
            "starling_operations_limited",
            "Operations refused by a limit, since the graph was loaded",
            read(&stats.limited),
        )?;
        let seconds = Duration::from_micros(read(&stats.micros)).as_secs_f64();
        let metric = self.descriptor(
            "starling_operations_preparing_seconds",
            "Time spent preparing operations, since the graph was loaded",
            MetricType::Counter,
        )?;
        ConstCounter::new(seconds).encode(metric)
    }

    fn subgraphs(&mut self, router: &Router) -> Result<(), Error> {
        let loaded = router.current();
        let of = |pick: fn(&upstream::UpstreamStats) -> &AtomicU64| {
            let upstreams = loaded.upstreams.iter();
            upstreams
                .map(|it| ([("subgraph", it.name().to_owned())], read(pick(it.stats()))))
                .collect::<Vec<Sample<1>>>()
        };
        self.counters(
            "starling_subgraph_requests",
            "Requests to subgraphs",
            of(|it| &it.requests),
        )?;
        self.counters(
            "starling_subgraph_retries",
            "Requests sent again because a reused connection had died",
            of(|it| &it.retries),
        )?;
        self.counters(
            "starling_subgraph_connections_opened",
            "Connections opened to subgraphs",
            of(|it| &it.connections_opened),
        )?;
        self.gauges(
            "starling_subgraph_requests_in_flight",
            "Requests in flight",
            of(|it| &it.in_flight),
        )?;
        self.gauges(
            "starling_subgraph_requests_waiting",
            "Requests that wait for a connection",
            of(|it| &it.waiting),
        )?;
        let mut failures: Vec<Sample<2>> = Vec::new();
        for upstream in &loaded.upstreams {
            for kind in FailureKind::ALL {
                let labels =
                    [("subgraph", upstream.name().to_owned()), ("kind", kind.as_str().to_owned())];
                failures.push((labels, upstream.stats().failures(kind)));
            }
        }
        self.counters(
            "starling_subgraph_failures",
            "Requests to subgraphs that failed, by kind",
            failures,
        )
    }

    fn providers(&mut self, router: &Router) -> Result<(), Error> {
        let of = |pick: fn(&events::ProviderStats) -> &AtomicU64| {
            let providers = router.providers.iter();
            providers
                .map(|it| ([("provider", it.name().to_owned())], read(pick(it.stats()))))
                .collect::<Vec<Sample<1>>>()
        };
        let connected = router.providers.iter();
        let connected = connected
            .map(|it| ([("provider", it.name().to_owned())], u64::from(it.is_connected())))
            .collect();
        self.gauges(
            "starling_events_provider_connected",
            "1 where the provider is connected",
            connected,
        )?;
        self.counters(
            "starling_events_received",
            "Events that came from providers",
            of(|it| &it.received),
        )?;
        self.counters("starling_events_published", "Events published", of(|it| &it.published))?;
        self.counters("starling_events_errors", "Errors of providers", of(|it| &it.errors))?;
        self.counters(
            "starling_events_reconnects",
            "Connections made after the first one",
            of(|it| &it.reconnects),
        )?;
        self.counters(
            "starling_events_dropped",
            "Events that did not fit the queue of a stream",
            of(|it| &it.dropped),
        )?;
        self.counters(
            "starling_events_gaps",
            "Gaps that providers announced to streams",
            of(|it| &it.gaps),
        )?;
        self.gauges("starling_events_streams", "Open streams of providers", of(|it| &it.streams))
    }

    fn hub(&mut self, router: &Router) -> Result<(), Error> {
        let stats = router.hub.stats();
        self.gauge("starling_hub_triggers", "Open triggers", read(&stats.triggers))?;
        self.gauge("starling_hub_groups", "Groups of equal subscribers", read(&stats.groups))?;
        self.gauge("starling_hub_subscribers", "Subscribers", read(&stats.subscribers))?;
        for (name, help, counter) in [
            ("starling_hub_events", "Events that reached triggers", &stats.events),
            ("starling_hub_resolutions", "Events resolved, once per group", &stats.resolutions),
            (
                "starling_hub_resolutions_failed",
                "Resolutions that broke off by a defect",
                &stats.resolutions_failed,
            ),
            ("starling_hub_broadcasts", "Payloads handed to outlets", &stats.broadcasts),
            ("starling_hub_deliveries", "Payloads for subscribers", &stats.deliveries),
            ("starling_hub_gaps", "Gaps that reached triggers", &stats.gaps),
        ] {
            self.counter(name, help, read(counter))?;
        }
        let label =
            |reason: &str, counter: &AtomicU64| ([("reason", reason.to_owned())], read(counter));
        self.counters(
            "starling_hub_dropped",
            "Events not delivered to a group, by reason",
            vec![
                label("group_behind", &stats.dropped_group_behind),
                label("group_left", &stats.dropped_group_left),
            ],
        )?;
        self.counters(
            "starling_hub_refused",
            "Subscriptions refused, by reason",
            vec![
                label("provider", &stats.refused_provider),
                label("overload", &stats.refused_overload),
            ],
        )
    }

    /// With a full stop behind the help, as the metrics of the server itself have it.
    fn descriptor<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, Error> {
        self.0.encode_descriptor(name, &format!("{help}."), None, kind)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let metric = self.descriptor(name, help, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let metric = self.descriptor(name, help, MetricType::Gauge)?;
        ConstGauge::new(value).encode(metric)
    }

    fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: Vec<Sample<N>>,
    ) -> Result<(), Error> {
        let mut metric = self.descriptor(name, help, MetricType::Counter)?;
        for (labels, value) in &samples {
            ConstCounter::new(*value).encode(metric.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn gauges<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: Vec<Sample<N>>,
    ) -> Result<(), Error> {
        let mut metric = self.descriptor(name, help, MetricType::Gauge)?;
        for (labels, value) in &samples {
            ConstGauge::new(*value).encode(metric.encode_family(labels)?)?;
        }
        Ok(())
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
