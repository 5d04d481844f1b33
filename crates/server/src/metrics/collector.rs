//! Collector of metrics of other parts, read when Prometheus requests them: prepared operations, subgraphs, providers,
//! the hub.

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use events::Providers;
use execute::SubgraphFlights;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use upstream::FailureKind;

use crate::authentication::{ClientAuthentication, FollowedKeySet};
use crate::http::http_server::HttpServer;
use crate::live::operation_runner::OperationRunner;
use crate::log_writer;

use super::Metrics;
use super::hub_metrics::{HUB_COUNTERS, HUB_GAUGES};
use super::subgraph_metrics::{SUBGRAPH_COUNTERS, SUBGRAPH_GAUGES};

/// The parts of a router that have counters.
#[derive(Clone)]
pub(crate) struct MetricsSources {
    /// Connections, responses and large requests.
    pub(crate) http: Arc<HttpServer>,
    /// Operations and subscriptions.
    pub(crate) runner: Arc<OperationRunner>,
    /// The key sets of issuers.
    pub(crate) authentication: Arc<ClientAuthentication>,
    /// The brokers.
    pub(crate) providers: Arc<Providers>,
    /// The counters of the server itself.
    pub(crate) metrics: Arc<Metrics>,
}

/// Reads the counters of a router's parts.
pub(crate) struct MetricsCollector(pub(crate) MetricsSources);

impl std::fmt::Debug for MetricsCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetricsCollector").finish_non_exhaustive()
    }
}

impl Collector for MetricsCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        MetricsEncoder(encoder).all(&self.0)
    }
}

struct MetricsEncoder<'a>(DescriptorEncoder<'a>);

/// Labels and the value that belongs to them.
type Sample<const N: usize> = ([(&'static str, String); N], u64);

impl MetricsEncoder<'_> {
    fn all(&mut self, sources: &MetricsSources) -> Result<(), Error> {
        let version = vec![([("version", env!("CARGO_PKG_VERSION").to_owned())], 1)];
        self.gauges("starling_build_info", "The version, as a label; always 1", version)?;
        self.process()?;
        self.log()?;
        self.connections(sources)?;
        self.preparing(sources)?;
        self.sharing(sources)?;
        self.key_sets(sources)?;
        self.subgraphs(sources)?;
        self.providers(sources)?;
        self.hub(sources)
    }

    /// Encodes the metrics of the process, under the names that Prometheus' own clients use. CPU seconds divided by
    /// `starling_http_answers` is the cost of a request.
    fn process(&mut self) -> Result<(), Error> {
        let Some(usage) = profile::usage() else { return Ok(()) };
        let help = "CPU time of all threads";
        let metric = self.descriptor("process_cpu_seconds", help, MetricType::Counter)?;
        ConstCounter::new(usage.cpu_seconds).encode(metric)?;
        self.gauge("process_resident_memory_bytes", "Resident memory", usage.resident_bytes)?;
        self.gauge("process_virtual_memory_bytes", "Virtual memory", usage.virtual_bytes)?;
        self.gauge("process_threads", "Threads that are alive", usage.threads)?;
        if let Some(descriptors) = profile::descriptors() {
            self.gauge("process_open_fds", "Open file descriptors", descriptors.open)?;
            let help = "Limit on open file descriptors";
            self.gauge("process_max_fds", help, descriptors.limit)?;
        }
        if let Some(start) = usage.start_seconds {
            let help = "Start of the process, in seconds since 1970";
            let metric = self.descriptor("process_start_time_seconds", help, MetricType::Gauge)?;
            ConstGauge::new(start).encode(metric)?;
        }
        Ok(())
    }

    fn log(&mut self) -> Result<(), Error> {
        self.counter(
            "starling_log_lines_dropped",
            "Log lines dropped because standard error was not read or could not be written",
            log_writer::dropped_lines(),
        )
    }

    fn key_sets(&mut self, sources: &MetricsSources) -> Result<(), Error> {
        let Some(authentication) = sources.authentication.authenticator() else { return Ok(()) };
        let mut samples = Vec::new();
        for it in authentication.key_sets().iter() {
            for (result, count) in [("read", &it.fetched), ("failed", &it.failed)] {
                let labels = [("issuer", it.name.clone()), ("result", result.to_owned())];
                samples.push((labels, count.load(Ordering::Relaxed)));
            }
        }
        let help = "Reads of the key sets of issuers, by result";
        self.counters("starling_authentication_key_sets", help, samples)?;
        let now = Instant::now();
        let sets = || authentication.key_sets().iter();
        let keys =
            sets().map(|it| ([("issuer", it.name.clone())], it.keys.load(Ordering::Relaxed)));
        let help =
            "Keys of issuers that verify tokens; 0 if none could be read, or they are too old";
        self.gauges("starling_authentication_keys", help, keys.collect())?;
        let age = |it: &FollowedKeySet| it.age(now).map(|age| age.as_secs());
        let ages = sets().filter_map(|it| Some(([("issuer", it.name.clone())], age(it)?)));
        let help = "Seconds since the keys of an issuer were read; absent if there are none";
        self.gauges("starling_authentication_keys_age_seconds", help, ages.collect())?;
        let expired =
            sets().map(|it| ([("issuer", it.name.clone())], it.expired.load(Ordering::Relaxed)));
        let help = "Times that keys of an issuer were discarded because of max_age";
        self.counters("starling_authentication_keys_expired", help, expired.collect())
    }

    fn connections(&mut self, sources: &MetricsSources) -> Result<(), Error> {
        let connections = &sources.http.limits.connections;
        self.gauge(
            "starling_http_connections",
            "Open client connections",
            connections.open() as u64,
        )?;
        let [refused, refused_of_address] = connections.refused();
        self.counter(
            "starling_http_connections_refused",
            "Connections closed at once because of http.max_connections",
            refused as u64,
        )?;
        self.counter(
            "starling_http_connections_refused_per_ip",
            "Connections closed at once because of http.max_connections_per_ip",
            refused_of_address as u64,
        )?;
        self.gauge(
            "starling_subscriptions_queue_bytes",
            "Bytes of events that wait for slow clients; an event that waits for several counts for each",
            sources.runner.limits.queue_total.bytes() as u64,
        )?;
        self.counter(
            "starling_subscriptions_queue_full",
            "Events that exceeded subscriptions.queue_bytes_total, so that the policy applied",
            sources.runner.limits.queue_total.refused(),
        )?;
        self.gauge(
            "starling_subscriptions_operation_bytes",
            "Bytes of texts and variables of live subscriptions (subscriptions.max_operation_bytes for each connection)",
            sources.runner.limits.kept_operation_bytes.load(Ordering::Relaxed) as u64,
        )?;
        self.gauge(
            "starling_http_response_queue_bytes",
            "Bytes of responses that clients have not read yet (http.response_queue_bytes_total)",
            sources.http.limits.response_bytes.held() as u64,
        )?;
        self.counter(
            "starling_http_response_queue_evictions",
            "Connections closed because too many bytes of responses were unread",
            sources.http.limits.response_bytes.evicted(),
        )?;
        let [waiting, refused] = sources.http.limits.offload.counters();
        self.gauge(
            "starling_http_large_requests_waiting",
            "Large requests that wait to be expanded or parsed",
            waiting,
        )?;
        self.counter(
            "starling_http_large_requests_overloaded",
            "Large requests refused because too many waited, or because they waited too long",
            refused,
        )?;
        self.counter(
            "starling_http_accept_failures",
            "Connections that could not be accepted, most likely because no descriptor was free",
            sources.metrics.accept_failures(),
        )?;
        let [tls_failures, batches, batched_operations] = sources.metrics.http_counters();
        let [before, after, skipped] = sources.http.pipeline.compressor.counters();
        for (name, help, value) in [
            ("starling_http_tls_failures", "TLS handshakes that failed", tls_failures),
            ("starling_http_batches", "Requests with several operations", batches),
            ("starling_http_batched_operations", "Operations in batches", batched_operations),
            ("starling_http_compression_in_bytes", "Bytes of responses before compression", before),
            ("starling_http_compression_out_bytes", "Bytes of responses after compression", after),
            (
                "starling_http_compression_skipped",
                "Responses not compressed because all CPUs were compressing already",
                skipped,
            ),
        ] {
            self.counter(name, help, value)?;
        }
        Ok(())
    }

    fn preparing(&mut self, sources: &MetricsSources) -> Result<(), Error> {
        let loaded = sources.runner.serving.current();
        let (preparer, stats) = (&loaded.preparer, loaded.preparer.stats());
        self.gauge(
            "starling_graph_generation",
            "Number of the graph that serves",
            loaded.generation.number,
        )?;
        self.gauge(
            "starling_operations_prepared",
            "Prepared operations in the cache",
            preparer.len() as u64,
        )?;
        self.counter(
            "starling_operations_prepared_hits",
            "Operations found in the cache, since the graph was loaded",
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
        self.counter(
            "starling_operations_plans_shared",
            "Operations prepared without planning, because another text differed in literals or spelling only, \
             since the graph was loaded",
            read(&stats.plans_shared),
        )?;
        self.counter(
            "starling_operations_evicted",
            "Prepared operations evicted from the cache, since the graph was loaded",
            read(&stats.evicted),
        )?;
        self.gauge(
            "starling_operations_preparing_waiting",
            "Operations that wait to be prepared (limits.preparing_waiting)",
            read(&stats.waiting),
        )?;
        self.counter(
            "starling_operations_preparing_overloaded",
            "Operations refused because too many waited to be prepared, since the graph was loaded",
            read(&stats.overloaded),
        )?;
        self.counter(
            "starling_planning_greedy",
            "Operations planned greedily because comparing all choices would take too many steps, since the graph was loaded",
            read(&stats.greedy),
        )?;
        self.counter(
            "starling_planning_steps",
            "Planning steps, since the graph was loaded; an operation may take four million",
            read(&stats.planning_steps),
        )?;
        self.durations(
            "starling_planning_duration_seconds",
            "Time to plan an operation, since the graph was loaded",
            &stats.planning,
        )?;
        let seconds = Duration::from_micros(read(&stats.micros)).as_secs_f64();
        let metric = self.descriptor(
            "starling_operations_preparing_seconds",
            "Time spent preparing operations, since the graph was loaded",
            MetricType::Counter,
        )?;
        ConstCounter::new(seconds).encode(metric)
    }

    fn sharing(&mut self, sources: &MetricsSources) -> Result<(), Error> {
        let (mut leaders, mut followers, mut alone, mut cancelled) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let sharing = &sources.runner.serving.sharing;
        let operations = sharing.operations.as_ref().map(|flights| flights.stats());
        let subgraphs = sharing.subgraphs.subgraph_queries.as_ref().map(SubgraphFlights::stats);
        for (level, stats) in [("operation", operations), ("subgraph", subgraphs)] {
            // There is nothing to report for a level that is turned off.
            let Some(stats) = stats else { continue };
            let sample = |counter| ([("level", level.to_owned())], read(counter));
            leaders.push(sample(&stats.leaders));
            followers.push(sample(&stats.followers));
            alone.push(sample(&stats.alone));
            cancelled.push(sample(&stats.cancelled));
        }
        self.counters(
            "starling_sharing_leaders",
            "Queries that were started and could be joined while in flight, by level",
            leaders,
        )?;
        self.counters(
            "starling_sharing_followers",
            "Queries that joined an equal one in flight, by level",
            followers,
        )?;
        self.counters(
            "starling_sharing_alone",
            "Queries that could not be joined because too many were in flight, by level",
            alone,
        )?;
        self.counters(
            "starling_sharing_cancelled",
            "Queries cancelled because all waiting clients had disconnected, by level",
            cancelled,
        )
    }

    fn subgraphs(&mut self, sources: &MetricsSources) -> Result<(), Error> {
        let loaded = sources.runner.serving.current();
        let of = |pick: fn(&upstream::UpstreamStats) -> &AtomicU64| {
            let upstreams = loaded.upstreams.iter();
            upstreams
                .map(|it| ([("subgraph", it.name().to_owned())], read(pick(it.stats()))))
                .collect::<Vec<Sample<1>>>()
        };
        for (name, help, pick) in SUBGRAPH_COUNTERS {
            self.counters(name, help, of(pick))?;
        }
        for (name, help, pick) in SUBGRAPH_GAUGES {
            self.gauges(name, help, of(pick))?;
        }
        let breakers = loaded.upstreams.iter();
        let breakers = breakers
            .map(|it| ([("subgraph", it.name().to_owned())], it.breaker() as u64))
            .collect();
        self.gauges(
            "starling_subgraph_breaker_state",
            "Circuit breaker: 0 closed, 1 half-open, 2 open",
            breakers,
        )?;
        let mut queued = self.descriptor(
            "starling_subgraph_queue_seconds",
            "Time that requests waited for a connection",
            MetricType::Counter,
        )?;
        for upstream in &loaded.upstreams {
            let seconds = Duration::from_micros(read(&upstream.stats().queued_micros));
            let labels = [("subgraph", upstream.name())];
            let metric = queued.encode_family(&labels)?;
            ConstCounter::new(seconds.as_secs_f64()).encode(metric)?;
        }
        let mut durations = self.descriptor(
            "starling_subgraph_request_duration_seconds",
            "Time from the first attempt to the end of the response or the failure",
            MetricType::Histogram,
        )?;
        for upstream in &loaded.upstreams {
            let (sum, buckets) = upstream.stats().seconds.read();
            let count = buckets.iter().map(|it| it.1).sum();
            let labels = [("subgraph", upstream.name())];
            durations
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
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

    fn providers(&mut self, sources: &MetricsSources) -> Result<(), Error> {
        let of = |pick: fn(&events::ProviderStats) -> &AtomicU64| {
            let providers = sources.providers.iter();
            providers
                .map(|it| ([("provider", it.name().to_owned())], read(pick(it.stats()))))
                .collect::<Vec<Sample<1>>>()
        };
        let connected = sources.providers.iter();
        let connected = connected
            .map(|it| ([("provider", it.name().to_owned())], u64::from(it.is_connected())))
            .collect();
        self.gauges(
            "starling_events_provider_connected",
            "1 if the provider is connected",
            connected,
        )?;
        self.counters(
            "starling_events_received",
            "Events received from providers",
            of(|it| &it.received),
        )?;
        self.counters("starling_events_published", "Events published", of(|it| &it.published))?;
        let states = sources.providers.iter().flat_map(|it| {
            let now = it.stats().state();
            events::ProviderState::ALL.map(|state| {
                let labels =
                    [("provider", it.name().to_owned()), ("state", state.as_str().to_owned())];
                (labels, u64::from(state == now))
            })
        });
        self.gauges(
            "starling_events_provider_state",
            "1 for the current state of the provider",
            states.collect(),
        )?;
        let errors = sources.providers.iter().flat_map(|it| {
            events::ErrorKind::ALL.map(|kind| {
                let labels =
                    [("provider", it.name().to_owned()), ("kind", kind.as_str().to_owned())];
                (labels, it.stats().errors(kind))
            })
        });
        self.counters("starling_events_errors", "Errors of providers, by kind", errors.collect())?;
        self.topics(sources)?;
        self.counters(
            "starling_events_reconnects",
            "Connections opened after the first one",
            of(|it| &it.reconnects),
        )?;
        self.counters(
            "starling_events_dropped",
            "Events dropped because the queue of a stream was full",
            of(|it| &it.dropped),
        )?;
        self.counters(
            "starling_events_gaps",
            "Gaps that providers announced to streams",
            of(|it| &it.gaps),
        )?;
        self.gauges("starling_events_streams", "Open streams of providers", of(|it| &it.streams))
    }

    /// Encodes the metrics by provider and topic. The number of named topics is bounded, see
    /// [`events::TOPICS_NAMED_MAX`].
    fn topics(&mut self, sources: &MetricsSources) -> Result<(), Error> {
        let topics: Vec<_> = sources
            .providers
            .iter()
            .flat_map(|provider| {
                let topics = provider.stats().topics().into_iter();
                topics.map(|(topic, stats)| {
                    ([("provider", provider.name().to_owned()), ("topic", topic.into())], stats)
                })
            })
            .collect();
        let of = |pick: fn(&events::TopicStats) -> &AtomicU64| -> Vec<Sample<2>> {
            topics.iter().map(|(labels, stats)| (labels.clone(), read(pick(stats)))).collect()
        };
        for (name, help, pick) in [
            (
                "starling_events_topic_received",
                "Events for streams of a topic, once for each stream",
                (|it| &it.received) as fn(&events::TopicStats) -> &AtomicU64,
            ),
            ("starling_events_topic_published", "Events published to a topic", |it| &it.published),
            (
                "starling_events_topic_publish_failures",
                "Events that could not be published to a topic",
                |it| &it.publish_failures,
            ),
            (
                "starling_events_topic_dropped",
                "Events of a topic dropped because the queue of a stream was full",
                |it| &it.dropped,
            ),
        ] {
            self.counters(name, help, of(pick))?;
        }
        self.gauges(
            "starling_events_topic_streams",
            "Open streams of a topic",
            of(|it| &it.streams),
        )?;
        let lags: Vec<_> = topics.iter().map(|(labels, stats)| (labels, stats.lag())).collect();
        let behind = lags.iter().filter_map(|(labels, lag)| Some(((*labels).clone(), lag.events?)));
        self.gauges(
            "starling_events_topic_lag",
            "Events that the broker stores and the slowest stream of a topic has not read yet, if known",
            behind.collect(),
        )?;
        let help = "Age of the latest event that the slowest stream of a topic has read, if there are more";
        let name = "starling_events_topic_lag_seconds";
        let mut metric = self.descriptor(name, help, MetricType::Gauge)?;
        for (labels, lag) in lags {
            if let Some(time) = lag.time {
                ConstGauge::new(time.as_secs_f64()).encode(metric.encode_family(labels)?)?;
            }
        }
        Ok(())
    }

    fn hub(&mut self, sources: &MetricsSources) -> Result<(), Error> {
        let stats = sources.runner.hub.stats();
        for (name, help, pick) in HUB_GAUGES {
            self.gauge(name, help, read(pick(stats)))?;
        }
        self.gauge(
            "starling_hub_memo_bytes",
            "Bytes of subgraph responses kept while the groups of a trigger resolve their event",
            sources.runner.hub.memo_bytes() as u64,
        )?;
        self.gauge(
            "starling_hub_ring_bytes",
            "Bytes of events kept for subscribers that resume with a cursor",
            sources.runner.hub.ring_bytes() as u64,
        )?;
        self.durations(
            "starling_hub_resolve_duration_seconds",
            "Time to resolve an event for a group",
            &stats.resolve_durations,
        )?;
        for (name, help, pick) in HUB_COUNTERS {
            self.counter(name, help, read(pick(stats)))?;
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
            "starling_hub_resumed",
            "Subscriptions with a cursor, by what served them: a new group from kept events or from a side reader, or a \
             group that other subscribers with a cursor had created",
            vec![
                label("ring", &stats.resumed_from_ring),
                label("reader", &stats.resumed_from_reader),
                label("shared", &stats.resumed_shared),
            ],
        )?;
        self.counters(
            "starling_hub_cursors_refused",
            "Cursors refused, by reason",
            vec![
                label("invalid", &stats.cursors_invalid),
                label("foreign", &stats.cursors_foreign),
                label("expired", &stats.cursors_expired),
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

    /// Encodes a descriptor. The help ends with a full stop, as in the metrics of the server itself.
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

    fn durations(
        &mut self,
        name: &str,
        help: &str,
        durations: &prepare::DurationHistogram,
    ) -> Result<(), Error> {
        let bounds = prepare::BUCKETS_MICROS.iter();
        let bounds =
            bounds.map(|&it| Duration::from_micros(it).as_secs_f64()).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(durations.counts()).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = durations.sum().as_secs_f64();
        let mut metric = self.descriptor(name, help, MetricType::Histogram)?;
        metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
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
