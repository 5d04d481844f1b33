//! The stage of measurements of subscriptions: a NATS server, routers and mocks for one graph, and groups of clients.

use crate::brokers::start_nats;
use crate::server_process::{ServerProcess, free_address};
use crate::servers::replace_subgraph_urls;
use crate::setup::{Bench, read_file, write_file};
use serde_json::Value;
use std::path::PathBuf;
use test_kit::commands::Failure;

/// The number of clients of a comparison.
pub(crate) const CLIENTS: u32 = 10_000;

/// A subscription to fields that the event itself contains.
pub(crate) const PLAIN: &str = "subscription { tick { id } }";

/// A subscription with one field that is fetched from a subgraph.
pub(crate) const JOINED: &str = "subscription { tick { id name } }";

/// The setting without a pace of WebSocket handshakes. Most measurements are not about connecting, and with 1,200 a
/// second the 10,000 clients of a run would need 8 s to connect.
pub(crate) const UNPACED: &str = "admission: {handshakes_per_core: 0}\n";

/// The broker and the options that every measurement needs.
pub(crate) struct Stage<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) nats: ServerProcess,
}

/// The parameters of a group of clients.
#[derive(Clone, Copy)]
pub(crate) struct ClientSettings<'a> {
    pub(crate) name: &'a str,
    pub(crate) count: u32,
    pub(crate) query: &'a str,
    /// Further arguments of `starling bench subscriptions`.
    pub(crate) extra: &'a [&'a str],
}

impl<'a> Stage<'a> {
    /// Starts the broker.
    pub(crate) fn start(bench: &'a Bench) -> Result<Self, Failure> {
        Ok(Self { bench, nats: start_nats(bench, &[])? })
    }

    /// Starts the router without a pace of handshakes, in front of a mocked subgraph if there is one. `extra_config` is
    /// appended to its configuration.
    pub(crate) fn start_router(
        &self,
        mock: Option<&ServerProcess>,
        extra_config: &str,
    ) -> Result<ServerProcess, Failure> {
        self.start_paced_router(mock, &format!("{UNPACED}{extra_config}"))
    }

    /// Starts the router as [`Stage::start_router`] does, with the default pace of handshakes.
    pub(crate) fn start_paced_router(
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
        let scratch = self.bench.scratch_folder("subscriptions")?;
        // No pings: an idle connection must cause no work.
        let config = format!(
            "events: {{providers: {{nats: [{{id: default, url: \"nats://{}\"}}]}}}}\n\
             websocket: {{ping_interval: 1h}}\n{extra_config}",
            self.nats.address
        );
        let config_path = scratch.join("starling.yaml");
        write_file(&config_path, &config)?;
        let supergraph = self.write_supergraph(mock)?;
        Ok((config_path, supergraph))
    }

    /// Starts the router without a subgraph, behind TLS, and returns the arguments for clients that connect to it.
    pub(crate) fn start_tls_router(&self) -> Result<(ServerProcess, [String; 4]), Failure> {
        let bench = self.bench;
        let address = free_address()?;
        let certificates = bench.file("crates/net/tests/certificates");
        let [cert, key, ca] =
            ["localhost.pem", "localhost.key", "ca.pem"].map(|it| certificates.join(it));
        let (config_path, supergraph) = self.write_config(
            None,
            &format!(
                "{UNPACED}listen: [{{address: '{address}', tls: {{cert: '{}', key: '{}'}}}}]\n",
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
    pub(crate) fn write_supergraph(
        &self,
        mock: Option<&ServerProcess>,
    ) -> Result<PathBuf, Failure> {
        let path = self.bench.file("benches/subscriptions/supergraph.graphql");
        let text = read_file(&path)?;
        let placed = match mock {
            Some(mock) => replace_subgraph_urls(&text, &["ticks"], mock.address),
            None => text,
        };
        let target = self.bench.reports.join("scratch/subscriptions/supergraph.graphql");
        write_file(&target, &placed)?;
        Ok(target)
    }

    /// Starts a mock of the subgraph with the given latency.
    pub(crate) fn start_mock(&self, latency_ms: u32) -> Result<ServerProcess, Failure> {
        let path = self.bench.file("benches/subscriptions/supergraph.graphql");
        self.bench.start_mock_with(&path, &["--latency", &format!("{latency_ms}ms")])
    }

    /// Runs clients to their end and returns the report.
    pub(crate) fn run_clients(
        &self,
        server: &ServerProcess,
        clients: &ClientSettings<'_>,
    ) -> Result<Value, Failure> {
        self.bench.run_subscription_load(server, self.arguments(clients))
    }

    /// Returns the arguments of `starling bench subscriptions` for these clients.
    pub(crate) fn arguments(&self, clients: &ClientSettings<'_>) -> Vec<String> {
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
    pub(crate) fn seconds(&self) -> String {
        self.bench.seconds.to_string()
    }
}
