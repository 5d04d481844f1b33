//! `cargo xtask bench subscriptions`: what holding subscriptions and sending events costs, against the targets.
//!
//! Router or floor have core 0; broker, mocked subgraph and clients share core 1. Every measurement has a name for
//! `--filter`; what is compared runs in turn, pair by pair.
//!
//! - `against`: floor and router, the router with and without clients that never read.
//! - `holding`: memory, idleness, storms.
//! - `loaded`: more events than usual, more groups, reloads.
//! - `topics`: many of them at a time, and many that come and go, with each provider.

mod against;
mod holding;
mod loaded;
mod topics;

use super::machine::{Serving, free_address, write};
use super::{Bench, brokers};
use crate::Failure;
use serde_json::Value;
use std::path::PathBuf;

/// Seconds of events in one run, if nobody says otherwise: as many as the figures that others were measured with.
pub(super) const SECONDS_DEFAULT: u32 = 15;

/// Clients of a comparison.
const CLIENTS: u32 = 10_000;

/// Only what an event carries.
const PLAIN: &str = "subscription { tick { id } }";

/// The same, and a field that a subgraph has to be asked for.
const JOINED: &str = "subscription { tick { id name } }";

/// A measurement by its name.
type Measurement = (&'static str, fn(&Stage<'_>) -> Result<Vec<Value>, Failure>);

const MEASUREMENTS: [Measurement; 15] = [
    ("fan-out", |stage| against::floor(stage, PLAIN)),
    ("entity-join", |stage| against::floor(stage, JOINED)),
    ("never-readers", against::never_readers),
    ("memory", |stage| holding::memory(stage, false)),
    ("memory-tls", |stage| holding::memory(stage, true)),
    ("header-bytes", holding::header_bytes),
    ("idle", holding::idle),
    ("connect-storm", |stage| holding::storm(stage, "connect-storm")),
    ("reconnect-storm", |stage| holding::storm(stage, "reconnect-storm")),
    ("mass-disconnect", |stage| holding::storm(stage, "mass-disconnect")),
    ("sustained", loaded::sustained),
    ("partitions", loaded::partitions),
    ("reloads", |stage| {
        let subscribers = stage.bench.clients.unwrap_or(loaded::SUSTAINED_CLIENTS);
        loaded::reloads(stage, subscribers)
    }),
    ("subjects", |stage| topics::subjects(stage.bench)),
    ("resubscribe", |stage| topics::resubscribe(stage.bench)),
];

/// The broker, and what else every measurement needs.
struct Stage<'a> {
    bench: &'a Bench,
    nats: Serving,
}

/// Runs the measurement that is called `filter`, or else every one whose name contains it.
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
            "no measurement has `{}` in its name; there are: {}",
            filter.unwrap_or_default(),
            names.join(", ")
        ));
    }
    let stage = Stage { bench, nats: brokers::nats(bench, &[])? };
    for (name, measurement) in chosen {
        println!("\n## {name}\n");
        let runs = measurement(&stage)?;
        bench.report(&format!("subscriptions-{name}"), &runs)?;
    }
    Ok(())
}

/// Clients that come and go a second.
const CHURN_RATE: &str = "2000";

/// Clients come, subscribe, unsubscribe and go; the verdict on what the router keeps of them.
pub(super) fn churn(bench: &Bench) -> Result<(), Failure> {
    let stage = Stage { bench, nats: brokers::nats(bench, &[])? };
    let router = stage.router(None, "")?;
    let duration = format!("{}s", bench.seconds);
    let words = [
        ["--scenario", "churn"],
        ["--churn", CHURN_RATE],
        ["--duration", &duration],
        ["--query", PLAIN],
        ["--name", "churn"],
    ];
    let run =
        bench.subscriptions(&router, words.concat().into_iter().map(str::to_owned).collect())?;
    let churn = &run["churn"];
    println!("| | |\n|---|---|");
    println!("| came and went | {} in {:.0} s |", churn["cycles"], number(&churn["seconds"]));
    println!(
        "| could not begin, or came to no end | {} |",
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
        (true, true) => Err("connections ended that nobody meant to end".to_owned()),
        (false, _) => Err("memory grows".to_owned()),
        (_, false) => Err("descriptors were left open".to_owned()),
    }
}

/// The graph is loaded anew while so many get events; the verdict on whether they notice.
pub(super) fn reloads(bench: &Bench, subscribers: u32) -> Result<(), Failure> {
    let stage = Stage { bench, nats: brokers::nats(bench, &[])? };
    let runs = loaded::reloads(&stage, subscribers)?;
    bench.report("reloads", &runs)?;
    match runs.iter().all(loaded::is_undisturbed) {
        true => Ok(()),
        false => Err("subscribers noticed that the graph was loaded".to_owned()),
    }
}

/// How clients are run.
#[derive(Clone, Copy)]
struct Clients<'a> {
    name: &'a str,
    count: u32,
    query: &'a str,
    /// Further words of `starling bench subscriptions`.
    extra: &'a [&'a str],
}

impl Stage<'_> {
    /// The router in front of one mocked subgraph, whose answers take so long. `more` is added to its configuration.
    fn router(&self, mock: Option<&Serving>, more: &str) -> Result<Serving, Failure> {
        let (config_path, supergraph) = self.configured(mock, more)?;
        self.bench.start_starling(&config_path, &supergraph)
    }

    /// Writes a router's configuration and its supergraph.
    fn configured(
        &self,
        mock: Option<&Serving>,
        more: &str,
    ) -> Result<(PathBuf, PathBuf), Failure> {
        let scratch = self.bench.reports.join("scratch").join("subscriptions");
        std::fs::create_dir_all(&scratch)
            .map_err(|error| format!("{}: {error}", scratch.display()))?;
        // No client is asked whether it is there: idle is idle.
        let config = format!(
            "events: {{providers: {{nats: [{{id: default, url: \"nats://{}\"}}]}}}}\n\
             websocket: {{ping_interval: 1h}}\n{more}",
            self.nats.address
        );
        let config_path = scratch.join("starling.yaml");
        write(&config_path, &config)?;
        let supergraph = self.supergraph(mock)?;
        Ok((config_path, supergraph))
    }

    /// The same without a subgraph, behind TLS; and the words for clients that connect to it.
    fn tls_router(&self) -> Result<(Serving, [String; 4]), Failure> {
        let bench = self.bench;
        let address = free_address()?;
        let certificates = bench.file("crates/net/tests/certificates");
        let [cert, key, ca] =
            ["localhost.pem", "localhost.key", "ca.pem"].map(|it| certificates.join(it));
        let (config_path, supergraph) = self.configured(
            None,
            &format!(
                "listen: [{{address: '{address}', tls: {{cert: '{}', key: '{}'}}}}]\n",
                cert.display(),
                key.display()
            ),
        )?;
        let router = bench.start_starling_at(&config_path, &supergraph, address)?;
        let url = format!("wss://localhost:{}/graphql", address.port());
        let words = ["--url".to_owned(), url, "--ca".to_owned(), ca.display().to_string()];
        Ok((router, words))
    }

    /// The supergraph with its subgraph where it is mocked, if it is; written anew, which a running router notices.
    fn supergraph(&self, mock: Option<&Serving>) -> Result<PathBuf, Failure> {
        let path = self.bench.file("benches/subscriptions/supergraph.graphql");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let placed = match mock {
            Some(mock) => super::machine::with_urls(&text, &["ticks"], mock.address),
            None => text,
        };
        let target = self.bench.reports.join("scratch/subscriptions/supergraph.graphql");
        write(&target, &placed)?;
        Ok(target)
    }

    /// Mocks the subgraph; its answers take so many milliseconds.
    fn mock(&self, latency_ms: u32) -> Result<Serving, Failure> {
        let path = self.bench.file("benches/subscriptions/supergraph.graphql");
        self.bench.start_mock_with(&path, &["--latency", &format!("{latency_ms}ms")])
    }

    /// Runs clients to their end and answers with the report.
    fn clients(&self, server: &Serving, clients: &Clients<'_>) -> Result<Value, Failure> {
        self.bench.subscriptions(server, self.words(clients))
    }

    /// The words of `starling bench subscriptions` for these clients.
    fn words(&self, clients: &Clients<'_>) -> Vec<String> {
        let mut words: Vec<String> =
            ["--name", clients.name, "--query", clients.query].map(str::to_owned).into();
        words.extend(["--clients".to_owned(), clients.count.to_string()]);
        let own = |flag: &str| clients.extra.contains(&flag);
        if !own("--publish") {
            words.extend(["--publish".to_owned(), format!("nats://{}/tick", self.nats.address)]);
        }
        words.extend(clients.extra.iter().map(|word| (*word).to_owned()));
        words
    }

    /// `--events` and `--rate` of an ordinary run: one a second.
    fn seconds(&self) -> String {
        self.bench.seconds.to_string()
    }
}

/// A number of a report; 0 where there is none.
pub(super) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// A run that lost something without a word, or did not get everybody subscribed, is none.
pub(super) fn check(run: &Value) -> Result<(), Failure> {
    for (what, bad) in [
        ("results missing", number(&run["missing"])),
        ("results too many", number(&run["surplus"])),
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

/// `yes` or `NO`, for the column of targets.
fn verdict(is_met: bool) -> &'static str {
    if is_met { "yes" } else { "NO" }
}
