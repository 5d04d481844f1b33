//! Subscriptions that the subgraph serves itself: their cost beside the floor, their memory beside that of triggers of
//! a broker, and the number of operations and sockets that the router opens for them.

use super::compare::{SideSamples, print_comparison, print_run};
use super::idle_memory::{BYTES_MAX, IDLE_ARGUMENTS, MIB, SPREAD_MAX_MIB, WARM_UP_CLIENTS};
use super::stage::{CLIENTS, ClientSettings, Stage};
use crate::broker_connections::fetch_json_page;
use crate::reports::{check_run, number, verdict};
use crate::server_process::ServerProcess;
use crate::statistics::Samples;
use serde_json::Value;
use test_kit::commands::Failure;

/// The number of different operations of all clients.
const DISTINCT: u32 = 100;

/// The maximum CPU time of the router for a result, as a multiple of the floor's.
const CPU_MAX: f64 = 1.1;

/// A subscription that the subgraph serves. The key is a variable, so that all clients share one prepared operation.
const FROM_SERVER: &str = "subscription ($key: ID!) { tick: tickFromServer(key: $key) { id } }";

/// The same with a topic of the broker for each key.
const FROM_BROKER: &str = "subscription ($key: ID!) { tick: tickOf(key: $key) { id } }";

const VARIABLES: [&str; 2] = ["--variables", r#"{"key":"$D"}"#];

/// The path of the mocked subgraph's events and counts.
const EVENTS_PATH: &str = "/ticks/_events";

/// A router in front of a mocked subgraph that serves subscriptions.
struct UpstreamPair {
    router: ServerProcess,
    mock: ServerProcess,
}

impl UpstreamPair {
    fn start(stage: &Stage<'_>) -> Result<Self, Failure> {
        let supergraph = stage.bench.file("benches/subscriptions/supergraph.graphql");
        // Events come from the load generator only.
        let mock = stage.bench.start_mock_with(&supergraph, &["--event-rate", "0"])?;
        Ok(Self { router: stage.start_router(Some(&mock), "")?, mock })
    }

    /// Runs clients, publishes their events at the mock, and returns the report and the counts of the mock.
    fn run_clients(
        &self,
        stage: &Stage<'_>,
        clients: &ClientSettings<'_>,
    ) -> Result<(Value, UpstreamCounts), Failure> {
        let destination = format!("http://{}{EVENTS_PATH}", self.mock.address);
        let extra = [clients.extra, &["--publish", &destination]].concat();
        let run = stage.run_clients(&self.router, &ClientSettings { extra: &extra, ..*clients })?;
        check_run(&run)?;
        let counts = UpstreamCounts::read(&fetch_json_page(self.mock.address, EVENTS_PATH)?)?;
        Ok((run, counts))
    }
}

/// The maximum numbers of sockets and operations that a mock has seen at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UpstreamCounts {
    connections: u64,
    operations: u64,
}

impl UpstreamCounts {
    /// Reads the counts of a mock.
    ///
    /// # Errors
    /// It dropped events: the router did not read its socket in time, and other figures are not comparable.
    fn read(counts: &Value) -> Result<Self, Failure> {
        let count = |name: &str| {
            let count = counts[name].as_u64();
            count.ok_or_else(|| format!("the mock reports no `{name}`: {counts}"))
        };
        match count("eventsDropped")? {
            0 => Ok(Self {
                connections: count("connectionsMax")?,
                operations: count("operationsMax")?,
            }),
            dropped => Err(format!("the mock dropped {dropped} events: the router did not read")),
        }
    }

    /// True if operations are shared: one socket, and no more operations than are different.
    fn is_shared(self) -> bool {
        self.connections == 1 && self.operations <= u64::from(DISTINCT)
    }

    fn print(self) {
        let Self { connections, operations } = self;
        println!("\n| upstream, in the worst run | | at most | met |\n|---|---|---|---|");
        println!("| sockets | {connections} | 1 | {} |", verdict(connections == 1));
        let is_met = operations <= u64::from(DISTINCT);
        println!("| operations | {operations} | {DISTINCT} | {} |", verdict(is_met));
    }

    /// Returns the larger of each count.
    fn max(self, other: Self) -> Self {
        Self {
            connections: self.connections.max(other.connections),
            operations: self.operations.max(other.operations),
        }
    }
}

/// Compares the floor with the router, which receives each event once for each different operation. `rate` is the
/// number of events in a second.
pub(super) fn compare_with_floor(stage: &Stage<'_>, rate: u32) -> Result<Vec<Value>, Failure> {
    let count = stage.bench.clients.unwrap_or(CLIENTS);
    let [events, rate] = [stage.bench.seconds * rate, rate].map(|it| it.to_string());
    let distinct = DISTINCT.min(count).to_string();
    let extra = ["--events", &events, "--rate", &rate, "--never-sleep", "--distinct", &distinct];
    let extra = [&extra[..], &VARIABLES].concat();
    let clients = |name| ClientSettings { name, count, query: FROM_SERVER, extra: &extra };
    // The floor's message is taken from a first run of the router, with a client for each operation.
    let first = ClientSettings { count: DISTINCT.min(count), ..clients("first") };
    let (message, mut counts) = UpstreamPair::start(stage)?.run_clients(stage, &first)?;
    let message = message["message"].as_str().unwrap_or_default().to_owned();
    let (mut runs, mut floor_side, mut router_side) =
        (Vec::new(), SideSamples::default(), SideSamples::default());
    for _ in 0..stage.bench.pairs {
        let floor = stage.bench.start_broadcast_floor(&message, stage.nats.address, "tick")?;
        let run = stage.run_clients(&floor, &clients("floor"))?;
        check_run(&run)?;
        drop(floor);
        print_run("floor", &run);
        floor_side.add(&run);
        runs.push(run);

        let pair = UpstreamPair::start(stage)?;
        let (run, seen) = pair.run_clients(stage, &clients("router"))?;
        print_run("router", &run);
        counts = counts.max(seen);
        router_side.add(&run);
        runs.push(run);
    }
    println!(
        "\n{count} clients, {distinct} different operations, {events} events, {rate} a second."
    );
    print_comparison(stage.bench.pairs, &floor_side, &router_side, CPU_MAX);
    counts.print();
    match counts.is_shared() {
        true => Ok(runs),
        false => Err(format!("operations are not shared: {counts:?}")),
    }
}

/// Compares the memory of idle clients with that of as many clients of as many triggers of a broker.
pub(super) fn compare_memory_with_broker(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    let count = stage.bench.clients.unwrap_or(CLIENTS);
    let distinct = DISTINCT.min(count).min(WARM_UP_CLIENTS).to_string();
    let extra = [&IDLE_ARGUMENTS[..], &["--distinct", &distinct], &VARIABLES].concat();
    let [mut broker_side, mut upstream_side] = [Samples::default(), Samples::default()];
    let mut runs = Vec::new();
    let mut worst: Option<UpstreamCounts> = None;
    for _ in 0..stage.bench.pairs {
        for (name, query, side) in [
            ("broker", FROM_BROKER, &mut broker_side),
            ("upstream", FROM_SERVER, &mut upstream_side),
        ] {
            let pair = UpstreamPair::start(stage)?;
            let clients = |name, count| ClientSettings { name, count, query, extra: &extra };
            // The warm-up loads the program's own pages, which would otherwise count as memory of clients.
            pair.run_clients(stage, &clients("warm", WARM_UP_CLIENTS))?;
            let (run, counts) = pair.run_clients(stage, &clients(name, count))?;
            if query == FROM_SERVER {
                worst = Some(worst.map_or(counts, |worst| worst.max(counts)));
            }
            let bytes = number(&run["server"]["bytes_per_subscription"]);
            println!("{name}: {bytes:.0} bytes");
            side.push(bytes);
            runs.push(run);
        }
    }
    println!(
        "\n{count} idle clients, {distinct} different operations; median (smallest–largest) of {} routers each.\n\n\
         | triggers of | bytes a subscription |\n|---|---|",
        stage.bench.pairs
    );
    println!("| a broker | {} |", broker_side.format_with_range(0));
    println!("| a subgraph | {} |", upstream_side.format_with_range(0));
    let (broker, upstream) = (broker_side.median(), upstream_side.median());
    let more_mib = (upstream - broker) * f64::from(count) / MIB;
    println!("\n| | | at most | met |\n|---|---|---|---|");
    println!(
        "| bytes a subscription | {upstream:.0} | {BYTES_MAX} | {} |",
        verdict(upstream <= BYTES_MAX)
    );
    println!(
        "| more than with a broker, MiB of all | {more_mib:.1} | {SPREAD_MAX_MIB:.1} | {} |",
        verdict(more_mib <= SPREAD_MAX_MIB)
    );
    if let Some(counts) = worst {
        counts.print();
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_are_shared_on_one_socket_and_at_most_as_many_as_are_different() {
        let counts = |connections: u64, operations: u64, dropped: u64| {
            UpstreamCounts::read(&json!({
                "connectionsMax": connections, "operationsMax": operations, "eventsDropped": dropped
            }))
        };
        for (counts, expected) in [
            (counts(1, 100, 0), Ok(true)),
            (counts(1, 1, 0), Ok(true)),
            (counts(2, 100, 0), Ok(false)),
            (counts(1, 101, 0), Ok(false)),
            (counts(0, 0, 0), Ok(false)),
        ] {
            assert_eq!(counts.map(UpstreamCounts::is_shared), expected);
        }
        assert!(counts(1, 100, 1).is_err());
        assert!(UpstreamCounts::read(&json!({ "connections": 1 })).is_err());
    }
}
