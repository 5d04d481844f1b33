//! The router under test.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use config::{Overrides, parse};
use server::{Options, RunningRouter, StartError, SupergraphSource};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::http::request;

/// A graph with one subscription, `tick`, to the topic `ticks`.
pub(crate) const SUPERGRAPH: &str = include_str!("ticks.graphql");

/// The time limit of each step, long enough for a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A router. Dropping it closes everything.
pub(crate) struct Router {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) callbacks: Option<SocketAddr>,
    running: Option<RunningRouter>,
    runtime: Runtime,
}

/// A router that is stopping.
pub(crate) struct Stopping {
    pub(crate) admin: SocketAddr,
    stopped: JoinHandle<()>,
    runtime: Runtime,
}

impl Router {
    /// Starts a router with these lines in its configuration file.
    pub(crate) fn start(configuration: &str) -> Self {
        let sdl = SUPERGRAPH.to_owned();
        Self::serving(SupergraphSource::Text { name: "ticks.graphql".into(), sdl }, configuration)
    }

    pub(crate) fn serving(supergraph: SupergraphSource, configuration: &str) -> Self {
        let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
        let started = Self::try_start(supergraph, configuration, Some(any_port));
        started.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts a router with the supergraph that its configuration names.
    pub(crate) fn with_supergraph_of(configuration: &str) -> Self {
        let parsed =
            parse(configuration, "starling.yaml", Path::new(""), &Overrides::default(), &|_| None)
                .unwrap_or_else(|errors| panic!("{errors:?}"));
        Self::serving(SupergraphSource::of(&parsed.config), configuration)
    }

    /// Starts a router with its own listeners in these lines.
    pub(crate) fn listening(configuration: &str) -> Result<Self, StartError> {
        let sdl = SUPERGRAPH.to_owned();
        let supergraph = SupergraphSource::Text { name: "ticks.graphql".into(), sdl };
        Self::try_start(supergraph, configuration, None)
    }

    fn try_start(
        supergraph: SupergraphSource,
        configuration: &str,
        listen: Option<SocketAddr>,
    ) -> Result<Self, StartError> {
        let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
        let overrides = Overrides { listen, admin_listen: Some(any_port), ..Overrides::default() };
        let text = format!("workers: 1\nide: {{enabled: false}}\n{configuration}");
        let config = parse(&text, "starling.yaml", Path::new(""), &overrides, &|_| None)
            .unwrap_or_else(|errors| panic!("{errors:?}"))
            .config;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let options = Options::new(config, supergraph);
        let running = runtime.block_on(server::start(options))?;
        // A router that listens only on a socket has no address.
        let address = running.addresses.first().copied().unwrap_or(any_port);
        let (admin, callbacks) = (running.admin, running.callbacks);
        Ok(Self { address, admin, callbacks, running: Some(running), runtime })
    }

    /// Runs a client to its end, on the router's control runtime.
    pub(crate) fn block_on<T>(&self, client: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(TIMEOUT, client).await }).unwrap()
    }

    /// Publishes an event to `ticks`.
    pub(crate) fn publish(&self, event: &str) {
        let target = "/admin/publish?topic=ticks";
        let response = request(self.admin, "POST", target, &[], event);
        assert_eq!((response.status, &*response.body), (200, "published\n"));
    }

    /// Waits until a metric has this value.
    pub(crate) fn wait_for(&self, metric: &str, value: u64) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let text = request(self.admin, "GET", "/metrics", &[], "").body;
            let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
            let now = line.map_or(0, |value| value.parse().unwrap());
            if now == value {
                return;
            }
            assert!(Instant::now() < deadline, "{metric} is {now} and not {value}:\n{text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the router and waits for its end. For a router without clients, which could end before [`Router::stop`]
    /// has observed that it is stopping.
    pub(crate) fn end(mut self) {
        let running = self.running.take().unwrap();
        self.block_on(running.stop());
    }

    /// Runs `act` while the end of the router is announced, before it stops.
    pub(crate) fn announce_shutdown(&self, act: impl FnOnce()) {
        let running = self.running.as_ref().unwrap();
        let mut announced = std::pin::pin!(running.announce_shutdown());
        let is_over = self.runtime.block_on(async {
            // The first poll announces the shutdown; its delay ends later.
            futures_util::poll!(announced.as_mut()).is_ready()
        });
        assert!(!is_over);
        act();
    }

    /// Starts the shutdown.
    pub(crate) fn stop(mut self) -> Stopping {
        let running = self.running.take().unwrap();
        let stopped = self.runtime.spawn(running.stop());
        let admin = self.admin;
        // The shutdown has started when the router is no longer ready.
        while request(admin, "GET", "/health/ready", &[], "").body != "shutting down\n" {
            std::thread::yield_now();
        }
        Stopping { admin, stopped, runtime: self.runtime }
    }
}

impl Stopping {
    /// The same as [`Router::block_on`].
    pub(crate) fn block_on<T>(&self, client: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(TIMEOUT, client).await }).unwrap()
    }

    /// Stops waiting, as the command line does after a second signal.
    pub(crate) fn give_up(&self) {
        self.stopped.abort();
    }

    /// Waits for the end of the shutdown.
    pub(crate) fn wait(self) {
        let stopped = async { tokio::time::timeout(TIMEOUT, self.stopped).await };
        self.runtime.block_on(stopped).unwrap().unwrap();
    }
}
