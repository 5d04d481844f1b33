//! The brokers that events come from: starts a server of each kind on the load generator's core, and the router that
//! takes its events from it.

use crate::broker_connections::{
    BrokerConnection, count_connections, fetch_json_page, list_nats_connections,
    list_redis_connections,
};
use crate::kafka;
use crate::provider::Provider;
use crate::server_process::{ServerProcess, free_address};
use crate::servers::replace_subgraph_urls;
use crate::setup::{Bench, read_file, write_file};
use crate::subscriptions::stage::UNPACED;
use std::net::SocketAddr;
use test_kit::commands::Failure;
use test_kit::installation::find_or_install;
use test_kit::programs::{NATS_SERVER, REDIS_SERVER};

/// A running broker, or the router's own memory provider.
pub(crate) struct Broker {
    pub(crate) provider: Provider,
    server: Option<ServerProcess>,
    /// The address of the HTTP monitoring endpoint of NATS.
    monitor: Option<SocketAddr>,
}

impl Broker {
    /// Starts a fresh server.
    pub(crate) fn start(bench: &Bench, provider: Provider) -> Result<Self, Failure> {
        let (server, monitor) = match provider {
            Provider::Memory => (None, None),
            Provider::Nats => {
                let monitor = free_address()?;
                let server = start_nats(bench, &["--http_port", &monitor.port().to_string()])?;
                (Some(server), Some(monitor))
            }
            Provider::Redis => (Some(start_redis(bench)?), None),
            Provider::Kafka => (Some(kafka::start(bench)?), None),
        };
        Ok(Self { provider, server, monitor })
    }

    fn address(&self) -> String {
        self.server.as_ref().map(|server| server.address.to_string()).unwrap_or_default()
    }

    /// Returns the section of the router's configuration that names this broker.
    fn config(&self) -> String {
        let address = self.address();
        match self.provider {
            // The memory provider needs no configuration.
            Provider::Memory => String::new(),
            Provider::Nats => {
                format!(
                    "events: {{providers: {{nats: [{{id: default, url: \"nats://{address}\"}}]}}}}\n"
                )
            }
            Provider::Redis => {
                format!(
                    "events: {{providers: {{redis: [{{id: default, urls: [\"redis://{address}\"]}}]}}}}\n"
                )
            }
            Provider::Kafka => {
                format!(
                    "events: {{providers: {{kafka: [{{id: default, brokers: [\"{address}\"]}}]}}}}\n"
                )
            }
        }
    }

    /// Returns the value of `providerId` for this broker.
    fn id(&self) -> String {
        format!("{}/default", self.provider.key())
    }

    /// Returns the URL to which the load generator publishes the events of `topic`.
    pub(crate) fn destination(
        &self,
        router: &ServerProcess,
        topic: &str,
    ) -> Result<String, Failure> {
        let address = match self.provider {
            Provider::Memory => router.admin.ok_or("the router has no admin listener")?.to_string(),
            _ => self.address(),
        };
        Ok(format!("{}://{address}/{topic}", self.provider.key()))
    }

    /// Lists the router's connections to this broker. `None` for the memory provider, which has none.
    pub(crate) fn connections(
        &self,
        router: &ServerProcess,
    ) -> Result<Option<Vec<BrokerConnection>>, Failure> {
        match self.provider {
            Provider::Memory => Ok(None),
            Provider::Kafka => {
                let port = self.server.as_ref().map_or(0, |server| server.address.port());
                let count = count_connections(router.pid(), port);
                Ok(Some(vec![BrokerConnection { subscriptions: None }; count]))
            }
            Provider::Nats => list_nats_connections(self.monitor_address()?).map(Some),
            Provider::Redis => list_redis_connections(&self.address()).map(Some),
        }
    }

    /// Returns the number of subscriptions that the broker has added and removed since its start, if it counts them.
    pub(crate) fn subscriptions(&self) -> Result<Option<(u64, u64)>, Failure> {
        if self.provider != Provider::Nats {
            return Ok(None);
        }
        let response = fetch_json_page(self.monitor_address()?, "/subsz")?;
        Ok(response["num_inserts"].as_u64().zip(response["num_removes"].as_u64()))
    }

    fn monitor_address(&self) -> Result<SocketAddr, Failure> {
        self.monitor.ok_or_else(|| "this broker has no monitoring endpoint".to_owned())
    }

    /// Starts a router that takes its events from this broker, in front of a mocked subgraph.
    pub(crate) fn start_router(
        &self,
        bench: &Bench,
        mock: &ServerProcess,
    ) -> Result<ServerProcess, Failure> {
        let scratch = bench.scratch_folder("events")?;
        let text = read_file(&bench.file("benches/events/supergraph.graphql"))?
            .replace("\"PROVIDER\"", &format!("\"{}\"", self.id()));
        let [supergraph, config] =
            ["supergraph.graphql", "starling.yaml"].map(|name| scratch.join(name));
        write_file(&supergraph, &replace_subgraph_urls(&text, &["fields"], mock.address))?;
        // No pings: an idle connection must cause no work.
        let settings = format!("{}websocket: {{ping_interval: 1h}}\n{UNPACED}", self.config());
        write_file(&config, &settings)?;
        bench.start_starling(&config, &supergraph)
    }
}

/// Starts a Redis server.
pub(crate) fn start_redis(bench: &Bench) -> Result<ServerProcess, Failure> {
    let program = find_or_install(&REDIS_SERVER)?;
    bench.start_broker("redis-server", &program, |address| {
        test_kit::redis::arguments_on(address.port())
    })
}

/// Starts a NATS server with extra arguments.
pub(crate) fn start_nats(bench: &Bench, arguments: &[&str]) -> Result<ServerProcess, Failure> {
    let program = find_or_install(&NATS_SERVER)?;
    bench.start_broker("nats-server", &program, |address| {
        let mut words = test_kit::nats::arguments_on(address.port().into());
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        words
    })
}
