//! `cargo xtask bench subscriptions`: the cost of open subscriptions and of sending events, compared with the targets.
//!
//! Router or floor have core 0; broker, mocked subgraph and clients share core 1. Every measurement has a name for
//! `--filter`; compared servers run in turn, pair by pair.
//!
//! - `compare`: floor and router, the router with and without clients that never read.
//! - `idle_memory`: memory, idle CPU use, storms of connections.
//! - `sustained_load`: more events than usual, more groups, reloads.
//! - `topics`: many topics at a time, and topics that are opened and closed quickly, with each provider.

mod compare;
mod idle_memory;
mod sustained_load;
mod topics;

use super::server_process::{ServerProcess, free_address, write_file};
use super::{Bench, brokers};
use crate::Failure;
use serde_json::Value;
use std::path::PathBuf;

/// The default of the seconds of events in one run, the same as in the published figures.
pub(super) const SECONDS_DEFAULT: u32 = 15;

/// The number of clients of a comparison.
const CLIENTS: u32 = 10_000;

/// A subscription to fields that the event itself contains.
const PLAIN: &str = "subscription { tick { id } }";

/// A subscription with one field that is fetched from a subgraph.
const JOINED: &str = "subscription { tick { id name } }";

/// The name of a measurement, and the function that runs it.
type Measurement = (&'static str, fn(&Stage<'_>) -> Result<Vec<Value>, Failure>);

const MEASUREMENTS: [Measurement; 15] = [
    ("fan-out", |stage| compare::compare_with_floor(stage, PLAIN)),
    ("entity-join", |stage| compare::compare_with_floor(stage, JOINED)),
    ("never-readers", compare::compare_with_never_readers),
    ("memory", |stage| idle_memory::measure_memory(stage, false)),
    ("memory-tls", |stage| idle_memory::measure_memory(stage, true)),
    ("header-bytes", idle_memory::measure_header_memory),
    ("idle", idle_memory::measure_idle_cpu),
    ("connect-storm", |stage| idle_memory::run_connection_storm(stage, "connect-storm")),
    ("reconnect-storm", |stage| idle_memory::run_connection_storm(stage, "reconnect-storm")),
    ("mass-disconnect", |stage| idle_memory::run_connection_storm(stage, "mass-disconnect")),
    ("sustained", sustained_load::measure_sustained_rates),
    ("partitions", sustained_load::measure_partitions),
    ("reloads", |stage| {
        let subscribers = stage.bench.clients.unwrap_or(sustained_load::SUSTAINED_CLIENTS);
        sustained_load::measure_reloads(stage, subscribers)
    }),
    ("subjects", |stage| topics::measure_own_topics(stage.bench)),
    ("resubscribe", |stage| topics::measure_resubscribing(stage.bench)),
];

/// The broker and the options that every measurement needs.
struct Stage<'a> {
    bench: &'a Bench,
    nats: ServerProcess,
}

/// Runs the measurement named `filter`, or else every one with `filter` in its name.
pub(super) fn run(bench: &Bench, filter: Option<&str>) -> Result<(), Failure> {
    let is_name = MEASUREMENTS.iter().any(|(name, _)| Some(*name) == filter);
    let is_chosen = |name: &str| match filter {
        Some(filter) if is_name => name == filter,
        Some(filter) => name.contains(filter),
        None => true,
    };
    let chosen: Vec<&Measurement> =
        MEASUREMENTS.iter().filter(|(name, _)| is_chosen(name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = MEASUREMENTS.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "no measurement has `{}` in its name; the measurements are {}",
            filter.unwrap_or_default(),
            names.join(", ")
        ));
    }
    let stage = Stage { bench, nats: brokers::start_nats(bench, &[])? };
    for (name, measurement) in chosen {
        println!("\n## {name}\n");
        let runs = measurement(&stage)?;
        bench.report(&format!("subscriptions-{name}"), &runs)?;
    }
    Ok(())
}

/// The number of clients that connect and disconnect in a second.
const CHURN_RATE: &str = "2000";

/// Clients connect, subscribe, unsubscribe and disconnect; fails if the router keeps memory or descriptors of them.
pub(super) fn churn(bench: &Bench) -> Result<(), Failure> {
    let stage = Stage { bench, nats: brokers::start_nats(bench, &[])? };
    let router = stage.router(None, "")?;
    let duration = format!("{}s", bench.seconds);
    let arguments = [
        ["--scenario", "churn"],
        ["--churn", CHURN_RATE],
        ["--duration", &duration],
        ["--query", PLAIN],
        ["--name", "churn"],
    ];
    let run = bench
        .subscriptions(&router, arguments.concat().into_iter().map(str::to_owned).collect())?;
    let churn = &run["churn"];
    println!("| | |\n|---|---|");
    println!(
        "| connected and disconnected | {} in {:.0} s |",
        churn["cycles"],
        number(&churn["seconds"])
    );
    println!(
        "| not started or not finished | {} |",
        number(&churn["skipped"]) + number(&churn["unfinished"])
    );
    println!(
        "| memory warm / at the end | {:.1} / {:.1} MiB |",
        number(&churn["resident_warm_mib"]),
        number(&churn["resident_end_mib"])
    );
    println!(
        "| descriptors before / after | {} / {} |",
        churn["descriptors_before"], churn["descriptors_after"]
    );
    for end in run["ends"].as_array().map(Vec::as_slice).unwrap_or_default() {
        println!("| {} | {} |", end["what"].as_str().unwrap_or("?"), end["count"]);
    }
    bench.report("churn", std::slice::from_ref(&run))?;
    let is = |what: &str| churn[what] == true;
    match (is("is_memory_flat"), is("are_descriptors_closed")) {
        (true, true) if run["ends"] == serde_json::json!([]) => {
            println!("\nmemory is flat, and no descriptor was left open");
            Ok(())
        }
        (true, true) => Err("connections ended unexpectedly".to_owned()),
        (false, _) => Err("memory grows".to_owned()),
        (_, false) => Err("descriptors were left open".to_owned()),
    }
}

/// Reloads the graph while `subscribers` clients receive events; fails if any client is disturbed.
pub(super) fn reloads(bench: &Bench, subscribers: u32) -> Result<(), Failure> {
    let stage = Stage { bench, nats: brokers::start_nats(bench, &[])? };
    let runs = sustained_load::measure_reloads(&stage, subscribers)?;
    bench.report("reloads", &runs)?;
    match runs.iter().all(sustained_load::is_undisturbed) {
        true => Ok(()),
        false => Err("reloads of the graph disturbed subscribers".to_owned()),
    }
}

/// The parameters of a group of clients.
#[derive(Clone, Copy)]
struct ClientSettings<'a> {
    name: &'a str,
    count: u32,
    query: &'a str,
    /// Further arguments of `starling bench subscriptions`.
    extra: &'a [&'a str],
}

impl Stage<'_> {
    /// Starts the router, in front of a mocked subgraph if there is one. `extra_config` is appended to its
    /// configuration.
    fn router(
        &self,
        mock: Option<&ServerProcess>,
        extra_config: &str,
    ) -> Result<ServerProcess, Failure> {
        let (config_path, supergraph) = self.write_config(mock, extra_config)?;
        self.bench.start_starling(&config_path, &supergraph)
    }

    /// Writes a router's configuration and its supergraph and returns both paths.
    fn write_config(
        &self,
        mock: Option<&ServerProcess>,
        extra_config: &str,
    ) -> Result<(PathBuf, PathBuf), Failure> {
        let scratch = self.bench.reports.join("scratch").join("subscriptions");
        std::fs::create_dir_all(&scratch)
            .map_err(|error| format!("{}: {error}", scratch.display()))?;
        // No pings: an idle connection must cause no work.
        let config = format!(
            "events: {{providers: {{nats: [{{id: default, url: \"nats://{}\"}}]}}}}\n\
             websocket: {{ping_interval: 1h}}\n{extra_config}",
            self.nats.address
        );
        let config_path = scratch.join("starling.yaml");
        write_file(&config_path, &config)?;
        let supergraph = self.supergraph(mock)?;
        Ok((config_path, supergraph))
    }

    /// Starts the router without a subgraph, behind TLS, and returns the arguments for clients that connect to it.
    fn tls_router(&self) -> Result<(ServerProcess, [String; 4]), Failure> {
        let bench = self.bench;
        let address = free_address()?;
        let certificates = bench.file("crates/net/tests/certificates");
        let [cert, key, ca] =
            ["localhost.pem", "localhost.key", "ca.pem"].map(|it| certificates.join(it));
        let (config_path, supergraph) = self.write_config(
            None,
            &format!(
                "listen: [{{address: '{address}', tls: {{cert: '{}', key: '{}'}}}}]\n",
                cert.display(),
                key.display()
            ),
        )?;
        let router = bench.start_starling_at(&config_path, &supergraph, address)?;
        let url = format!("wss://localhost:{}/graphql", address.port());
        let arguments = ["--url".to_owned(), url, "--ca".to_owned(), ca.display().to_string()];
        Ok((router, arguments))
    }

    /// Writes the supergraph, with the mock's URL if there is one. A running router notices the new file.
    fn supergraph(&self, mock: Option<&ServerProcess>) -> Result<PathBuf, Failure> {
        let path = self.bench.file("benches/subscriptions/supergraph.graphql");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let placed = match mock {
            Some(mock) => {
                super::server_process::replace_subgraph_urls(&text, &["ticks"], mock.address)
            }
            None => text,
        };
        let target = self.bench.reports.join("scratch/subscriptions/supergraph.graphql");
        write_file(&target, &placed)?;
        Ok(target)
    }

    /// Starts a mock of the subgraph with the given latency.
    fn mock(&self, latency_ms: u32) -> Result<ServerProcess, Failure> {
        let path = self.bench.file("benches/subscriptions/supergraph.graphql");
        self.bench.start_mock_with(&path, &["--latency", &format!("{latency_ms}ms")])
    }

    /// Runs clients to their end and returns the report.
    fn clients(
        &self,
        server: &ServerProcess,
        clients: &ClientSettings<'_>,
    ) -> Result<Value, Failure> {
        self.bench.subscriptions(server, self.arguments(clients))
    }

    /// Returns the arguments of `starling bench subscriptions` for these clients.
    fn arguments(&self, clients: &ClientSettings<'_>) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["--name", clients.name, "--query", clients.query].map(str::to_owned).into();
        arguments.extend(["--clients".to_owned(), clients.count.to_string()]);
        let own = |flag: &str| clients.extra.contains(&flag);
        if !own("--publish") {
            arguments
                .extend(["--publish".to_owned(), format!("nats://{}/tick", self.nats.address)]);
        }
        arguments.extend(clients.extra.iter().map(|word| (*word).to_owned()));
        arguments
    }

    /// Returns the value of `--events` for a run with one event a second.
    fn seconds(&self) -> String {
        self.bench.seconds.to_string()
    }
}

/// Returns a number of a report, or 0 if it is missing.
pub(super) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// Fails if a run lost results without notice, received wrong ones, or did not subscribe all clients.
pub(super) fn check(run: &Value) -> Result<(), Failure> {
    for (what, bad) in [
        ("results missing", number(&run["missing"])),
        ("surplus results", number(&run["surplus"])),
        ("results out of order", number(&run["disordered"])),
        ("results with errors", number(&run["errors"])),
        ("results of other clients", number(&run["foreign"])),
        ("clients not subscribed", number(&run["clients"]) - number(&run["subscribed"])),
    ] {
        if bad > 0.0 {
            let (ends, example) = (&run["ends"], &run["example"]);
            return Err(format!(
                "{}: {bad} {what}; connections ended: {ends}; {example}",
                run["name"]
            ));
        }
    }
    Ok(())
}

/// Returns `yes` or `NO`, for the column of targets.
fn verdict(is_met: bool) -> &'static str {
    if is_met { "yes" } else { "NO" }
}
