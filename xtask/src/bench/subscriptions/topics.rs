//! Many topics: ten thousand at a time over one connection to the broker, and thousands a second that come and go.

use super::{CLIENTS, check, number, verdict};
use crate::Failure;
use crate::bench::Bench;
use crate::bench::brokers::{Broker, Held, Provider};
use crate::bench::events;
use crate::bench::machine::Serving;
use serde_json::Value;

/// Every client has a topic of its own.
const OWN: &str = "subscription ($key: ID!) { eventOf(key: $key) { id key } }";

/// Every client has a key of its own in one topic.
const OWN_KEY: &str = "subscription ($key: ID!) { eventWith(key: $key) { id key } }";

/// Its key is a variable, so that all clients have one operation and nothing is prepared for each.
const VARIABLES: &str = r#"{"key":"$K"}"#;

/// All of them want the same.
const SAME: &str = "subscription { event { id key } }";

const EVENT: &str = r#"{"__typename":"Event","id":"$T","key":"$K"}"#;

/// What a result of client `$K` has in it, and no other.
const EXPECTED: &str = r#""key":"$K""#;

/// Events a second where each topic gets one.
const RATE: &str = "5000";

/// Clients that unsubscribe and subscribe again: at the rate below each of them rests for 0.4 s in between.
const RESUBSCRIBING: u32 = 2_000;

/// How many of them a second.
const RESUBSCRIBED_PER_SECOND: u32 = 5_000;

/// A rate is met from this share of it on: the last ones end after the time.
const RATE_MET: f64 = 0.98;

/// What each client wants of its own, and where that is published. Kafka has keys in place of many topics.
fn own(provider: Provider) -> (&'static str, &'static str) {
    match provider {
        Provider::Kafka => (OWN_KEY, ONE_TOPIC),
        Provider::Memory | Provider::Nats | Provider::Redis => (OWN, "bench.$K"),
    }
}

/// Where everything is published that is no client's own.
const ONE_TOPIC: &str = "bench";

/// How long clients may take to subscribe.
const TIMEOUT: &str = "120s";

/// A topic for each client, over one connection to each broker.
pub(super) fn subjects(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let clients = bench.clients.unwrap_or(CLIENTS);
    println!(
        "| provider | clients | subscribed within, s | bytes a client, one topic | own topics | a topic | connections with topics / of the router | topics on it | events | each once, at its own | within, s | met |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut runs = Vec::new();
    for &provider in &bench.providers {
        let name = |what: &str| format!("{}, {what}", provider.name());
        let idle = ["--scenario", "idle", "--hold", "1s"].as_slice();
        let (want, topic) = own(provider);
        let (same, seen_same) =
            run(bench, provider, &name("one topic"), clients, (SAME, ONE_TOPIC), idle)?;
        let keys = clients.to_string();
        let words = [idle, &["--keys", &keys]].concat();
        let (own, _) = run(bench, provider, &name("own topics"), clients, (want, topic), &words)?;
        let words = [
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
            run(bench, provider, &name("one event each"), clients, (want, topic), &words)?;
        let bytes = |run: &Value| number(&run["server"]["bytes_per_subscription"]);
        let once = each["expected"] == each["received"] && each["received"] == clients;
        let is_one = match (&seen, &seen_same) {
            (Some(own), Some(same)) if own.topics.is_some() => {
                own.with_topics == 1
                    && own.topics >= Some(clients.into())
                    && own.connections == same.connections
            }
            // A broker that does not tell: as many as for one topic.
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

/// Topics that come and go.
pub(super) fn resubscribe(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let clients = bench.clients.unwrap_or(RESUBSCRIBING);
    println!(
        "| provider | clients | asked, 1/s | unsubscribed and subscribed, 1/s | failures | p50, ms | p99, ms | CPU each, µs | router cores | memory before / warm / end, MiB | flat | at the broker: subscribed / unsubscribed | met |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut runs = Vec::new();
    for &provider in &bench.providers {
        let (keys, rate) = (clients.to_string(), RESUBSCRIBED_PER_SECOND.to_string());
        let duration = format!("{}s", bench.seconds);
        let words = [
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
        let (run, seen) = run(bench, provider, provider.name(), clients, own(provider), &words)?;
        let again = &run["resubscribed"];
        let failures = number(&again["skipped"]) + number(&again["unfinished"]);
        let achieved = number(&again["cycles_per_second"]);
        let is_flat = again["is_memory_flat"] == true;
        let is_met =
            failures == 0.0 && is_flat && achieved >= f64::from(RESUBSCRIBED_PER_SECOND) * RATE_MET;
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

/// What a broker saw of the router.
#[derive(Debug, Default)]
struct Seen {
    /// Connections of the router, at most.
    connections: usize,
    /// Those of them that held topics, at most.
    with_topics: usize,
    /// Topics of the one that held most, where the broker tells.
    topics: Option<u64>,
    /// Subscriptions that came and went, where the broker counts them.
    counts: Option<(u64, u64)>,
}

impl Seen {
    fn add(&mut self, held: &[Held]) {
        self.connections = self.connections.max(held.len());
        let with_topics = held.iter().filter(|it| it.subscriptions > Some(0)).count();
        self.with_topics = self.with_topics.max(with_topics);
        let most = held.iter().filter_map(|it| it.subscriptions).max();
        self.topics = self.topics.max(most);
    }
}

/// Runs clients against a fresh router and a fresh broker, which is watched meanwhile.
fn run(
    bench: &Bench,
    provider: Provider,
    name: &str,
    clients: u32,
    (query, topic): (&str, &str),
    extra: &[&str],
) -> Result<(Value, Option<Seen>), Failure> {
    let broker = Broker::start(bench, provider)?;
    let mock = bench.start_mock(&bench.file("benches/events/supergraph.graphql"))?;
    let router: Serving = events::router(bench, &broker, &mock)?;
    let count = clients.to_string();
    let publish = broker.destination(&router, topic)?;
    let words = [
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
    let variables = if query == SAME { &[][..] } else { &["--variables", VARIABLES] };
    let words = words.iter().chain(variables).chain(extra).map(|word| (*word).to_owned()).collect();
    let mut seen: Option<Seen> = None;
    let run = bench.begin_subscriptions(&router, words)?.finish_watching(|| {
        if let Some(held) = broker.connections(&router)? {
            seen.get_or_insert_default().add(&held);
        }
        Ok(())
    })?;
    if let Some(seen) = &mut seen {
        seen.counts = broker.subscriptions()?;
    }
    check(&run)?;
    Ok((run, seen))
}
