//! Many topics: ten thousand at a time over one connection to the broker, and thousands a second opened and closed.

use super::stage::CLIENTS;
use crate::broker_connections::BrokerConnection;
use crate::brokers::Broker;
use crate::provider::Provider;
use crate::reports::{check_run, number, verdict};
use crate::server_process::ServerProcess;
use crate::setup::Bench;
use serde_json::Value;
use test_kit::commands::Failure;

/// A subscription with a topic for each client.
const OWN_TOPIC_QUERY: &str = "subscription ($key: ID!) { eventOf(key: $key) { id key } }";

/// A subscription with a key for each client in one topic.
const OWN_KEY_QUERY: &str = "subscription ($key: ID!) { eventWith(key: $key) { id key } }";

/// The variables of a client. The key is a variable, so that all clients share one prepared operation.
const VARIABLES: &str = r#"{"key":"$K"}"#;

/// A subscription that is the same for all clients.
const SHARED_QUERY: &str = "subscription { event { id key } }";

const EVENT: &str = r#"{"__typename":"Event","id":"$T","key":"$K"}"#;

/// A text that only results for client `$K` contain.
const EXPECTED: &str = r#""key":"$K""#;

/// Events a second where each topic gets one.
const RATE: &str = "5000";

/// The number of clients that repeatedly unsubscribe and subscribe. At the rate below each pauses 0.4 s in between.
const RESUBSCRIBING_CLIENTS: u32 = 2_000;

/// The number of such cycles of all clients in a second.
const RESUBSCRIBE_RATE: u32 = 5_000;

/// The share of the rate that must be reached: the last cycles end after the measured time.
const RATE_MET: f64 = 0.98;

/// Returns the subscription that differs by client, and the topic for its events. Kafka uses keys instead of many
/// topics.
fn own_subscription(provider: Provider) -> (&'static str, &'static str) {
    match provider {
        Provider::Kafka => (OWN_KEY_QUERY, ONE_TOPIC),
        Provider::Memory | Provider::Nats | Provider::Redis => (OWN_TOPIC_QUERY, "bench.$K"),
    }
}

/// The topic for events of subscriptions that do not differ by client.
const ONE_TOPIC: &str = "bench";

/// The time in which all clients must be subscribed.
const TIMEOUT: &str = "120s";

/// Measures one topic for each client, over one connection to each broker.
pub(crate) fn measure_own_topics(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let clients = bench.clients.unwrap_or(CLIENTS);
    println!(
        "| provider | clients | subscribed within, s | bytes a client, one topic | own topics | a topic | connections with topics / of the router | topics on it | events | each once, at its own | within, s | met |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut runs = Vec::new();
    for &provider in &bench.providers {
        let name = |what: &str| format!("{}, {what}", provider.name());
        let idle = ["--scenario", "idle", "--hold", "1s"].as_slice();
        let (want, topic) = own_subscription(provider);
        let (same, seen_same) =
            run(bench, provider, &name("one topic"), clients, (SHARED_QUERY, ONE_TOPIC), idle)?;
        let keys = clients.to_string();
        let arguments = [idle, &["--keys", &keys]].concat();
        let (own, _) =
            run(bench, provider, &name("own topics"), clients, (want, topic), &arguments)?;
        let arguments = [
            "--scenario",
            "filters",
            "--keys",
            &keys,
            "--events",
            &keys,
            "--rate",
            RATE,
            "--expect",
            EXPECTED,
        ];
        let (each, seen) =
            run(bench, provider, &name("one event each"), clients, (want, topic), &arguments)?;
        let bytes = |run: &Value| number(&run["server"]["bytes_per_subscription"]);
        let once = each["expected"] == each["received"] && each["received"] == clients;
        let is_one = match (&seen, &seen_same) {
            (Some(own), Some(same)) if own.topics.is_some() => {
                own.with_topics == 1
                    && own.topics >= Some(clients.into())
                    && own.connections == same.connections
            }
            // For a broker that does not report topics: as many connections as for one topic.
            (Some(own), Some(same)) => own.connections == same.connections,
            _ => true,
        };
        let took = number(&each["events"]) / number(&each["deliveries_per_second"]).max(1.0);
        println!(
            "| {} | {clients} | {:.2} | {:.0} | {:.0} | {:.0} | {} | {} | {} | {} | {took:.2} | {} |",
            provider.name(),
            number(&own["joining_seconds"]),
            bytes(&same),
            bytes(&own),
            bytes(&own) - bytes(&same),
            seen.as_ref().map_or("–".to_owned(), |it| match it.topics {
                Some(_) => format!("{} / {}", it.with_topics, it.connections),
                None => format!("– / {}", it.connections),
            }),
            seen.as_ref().and_then(|it| it.topics).map_or("–".to_owned(), |it| it.to_string()),
            each["events"],
            each["received"],
            verdict(once && is_one),
        );
        if !(once && is_one) {
            return Err(format!(
                "{}: not each event once over one connection: {seen:?}",
                provider.name()
            ));
        }
        runs.extend([same, own, each]);
    }
    Ok(runs)
}

/// Measures topics that are opened and closed quickly.
pub(crate) fn measure_resubscribing(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let clients = bench.clients.unwrap_or(RESUBSCRIBING_CLIENTS);
    println!(
        "| provider | clients | requested, 1/s | unsubscribed and subscribed, 1/s | failures | p50, ms | p99, ms | CPU each, µs | router cores | memory before / warm / end, MiB | flat | at the broker: subscribed / unsubscribed | met |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut runs = Vec::new();
    for &provider in &bench.providers {
        let (keys, rate) = (clients.to_string(), RESUBSCRIBE_RATE.to_string());
        let duration = format!("{}s", bench.seconds);
        let arguments = [
            "--scenario",
            "resubscribe",
            "--churn",
            &rate,
            "--duration",
            &duration,
            "--keys",
            &keys,
            "--events",
            &keys,
            "--rate",
            RATE,
            "--expect",
            EXPECTED,
        ];
        let (run, seen) =
            run(bench, provider, provider.name(), clients, own_subscription(provider), &arguments)?;
        let again = &run["resubscribed"];
        let failures = number(&again["skipped"]) + number(&again["unfinished"]);
        let achieved = number(&again["cycles_per_second"]);
        let is_flat = again["is_memory_flat"] == true;
        let is_met =
            failures == 0.0 && is_flat && achieved >= f64::from(RESUBSCRIBE_RATE) * RATE_MET;
        println!(
            "| {} | {clients} | {rate} | {achieved:.0} | {failures} | {:.2} | {:.2} | {:.1} | {:.2} | {:.1} / {:.1} / {:.1} | {} | {} | {} |",
            provider.name(),
            number(&again["latency"]["p50_us"]) / 1e3,
            number(&again["latency"]["p99_us"]) / 1e3,
            number(&again["server_cpu_us_per_cycle"]),
            number(&again["server_cores"]),
            number(&again["resident_before_mib"]),
            number(&again["resident_warm_mib"]),
            number(&again["resident_end_mib"]),
            verdict(is_flat),
            seen.as_ref()
                .and_then(|it| it.counts)
                .map_or("–".to_owned(), |(came, went)| format!("{came} / {went}")),
            verdict(is_met),
        );
        runs.push(run);
    }
    Ok(runs)
}

/// The router's connections as a broker reported them.
#[derive(Debug, Default)]
struct BrokerObservation {
    /// The maximum number of connections of the router.
    connections: usize,
    /// The maximum number of those connections that had topics.
    with_topics: usize,
    /// The maximum number of topics on one connection, if the broker reports it.
    topics: Option<u64>,
    /// The numbers of subscriptions opened and closed, if the broker counts them.
    counts: Option<(u64, u64)>,
}

impl BrokerObservation {
    fn add(&mut self, held: &[BrokerConnection]) {
        self.connections = self.connections.max(held.len());
        let with_topics = held.iter().filter(|it| it.subscriptions > Some(0)).count();
        self.with_topics = self.with_topics.max(with_topics);
        let most = held.iter().filter_map(|it| it.subscriptions).max();
        self.topics = self.topics.max(most);
    }
}

/// Runs clients against a fresh router and a fresh broker, and observes the broker meanwhile.
fn run(
    bench: &Bench,
    provider: Provider,
    name: &str,
    clients: u32,
    (query, topic): (&str, &str),
    extra: &[&str],
) -> Result<(Value, Option<BrokerObservation>), Failure> {
    let broker = Broker::start(bench, provider)?;
    let mock = bench.start_mock(&bench.file("benches/events/supergraph.graphql"))?;
    let router: ServerProcess = broker.start_router(bench, &mock)?;
    let count = clients.to_string();
    let publish = broker.destination(&router, topic)?;
    let arguments = [
        "--name",
        name,
        "--query",
        query,
        "--clients",
        &count,
        "--event",
        EVENT,
        "--publish",
        &publish,
        "--timeout",
        TIMEOUT,
    ];
    let variables = if query == SHARED_QUERY { &[][..] } else { &["--variables", VARIABLES] };
    let arguments =
        arguments.iter().chain(variables).chain(extra).map(|word| (*word).to_owned()).collect();
    let mut seen: Option<BrokerObservation> = None;
    let run = bench.start_subscription_load(&router, arguments)?.observe_to_end(|| {
        if let Some(held) = broker.connections(&router)? {
            seen.get_or_insert_default().add(&held);
        }
        Ok(())
    })?;
    if let Some(seen) = &mut seen {
        seen.counts = broker.subscriptions()?;
    }
    check_run(&run)?;
    Ok((run, seen))
}
