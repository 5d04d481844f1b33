//! The life of a process: from a configuration to a running router, and its shutdown.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use std::time::Instant;

use arc_swap::ArcSwap;
use config::ReactorCount;
use config::diagnostic::{self, Diagnostic, Style};
use config::{
    Config, Cursor, KafkaAuthentication, KafkaProvider, Listener, NatsAuthentication,
    OverflowPolicy, RedisAuthentication, ScramMechanism, Secret, WorkerCount,
};
use events::{
    KafkaSettings, Memory, MemorySettings, Nats, NatsSettings, Provider, Providers, Redis,
    RedisSettings,
};
use hub::{Cursors, Hub, HubSettings};
use ide::{Page, PageConfig, Tab};
use tokio::sync::watch;
use wire::websocket::ClientBounds;

use crate::admin;
use crate::byte_budget::ByteBudget;
use crate::certificates;
use crate::connections::{ConnectionLimits, Connections};
use crate::descriptors;
use crate::drain;
use crate::drain::DrainSchedule;
use crate::generation::{self, SupergraphSource};
use crate::graph_load_metrics::ReloadResult;
use crate::http::compression::Compressor;
use crate::http::listener::{self, BoundListener};
use crate::http::{tcp, unix};
use crate::live::QueueTotal;
use crate::live::reactors::Reactors;
use crate::live::sse_single_connection::{self, StreamTable};
use crate::metrics::Metrics;
use crate::offload::Offload;
use crate::reload;
use crate::router::Router;
use crate::sharing::SharedWork;
use crate::start_material::StartMaterial;
use crate::workers::{self, WorkerThreads, Workers};

/// The inputs of a start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration.
    pub config: Config,
    /// The supergraph.
    pub supergraph: SupergraphSource,
    /// The tabs that the page opens with.
    pub tabs: Vec<Tab>,
    /// Takes the next free port if a port of `listen` is in use: for the demo, where any port is good enough.
    pub next_free_port: bool,
    /// The same for the admin listener.
    pub next_free_admin_port: bool,
}

/// The reason why a router did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The graph or the configuration is invalid.
    #[error("{}", diagnostic::render(.0, Style::Plain))]
    Refused(Vec<Diagnostic>),
    /// The router cannot listen on an address.
    #[error("cannot listen on {address} ({key}): {source}{}", hint(.source))]
    Listen {
        /// The configuration key and the flag of the address.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The router cannot listen on a Unix domain socket.
    #[error("cannot listen on {} (`listen`): {source}{}", .path.display(), unix_hint(.source))]
    ListenUnix {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The worker threads cannot be started.
    #[error("cannot start the worker threads: {0}")]
    Workers(std::io::Error),
    /// A key for cursors cannot be generated.
    #[error("the system provides no random bytes for a cursor key; configure `cursor.keys`")]
    NoRandomBytes,
    /// `events.require_all` is set, and this provider is not connected.
    #[error("provider {0} is not connected and `events.require_all` is true")]
    ProviderAway(String),
}

fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "; another process listens there: stop it, or choose another address"
        }
        std::io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege",
        std::io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
        _ => "",
    }
}

fn unix_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "; another process listens there",
        std::io::ErrorKind::NotFound => "; the folder does not exist",
        _ => "",
    }
}

/// A router that serves. Dropping it closes everything at once; [`RunningRouter::stop`] drains it.
#[derive(Debug)]
pub struct RunningRouter {
    /// The bound TCP addresses for clients.
    pub addresses: Vec<SocketAddr>,
    /// The bound address of the admin listener.
    pub admin: SocketAddr,
    router: Arc<Router>,
    /// The reactors hold the router, so they are dropped with this struct and not with the router.
    reactors: Reactors,
    threads: WorkerThreads,
    stop: watch::Sender<bool>,
    /// Runs to the very end, so that operators can observe the shutdown.
    admin_task: AdminTask,
}

/// A task that ends with its owner.
#[derive(Debug)]
struct AdminTask(tokio::task::AbortHandle);

impl Drop for AdminTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The time that providers have to connect before `events.require_all` fails the start.
const PROVIDERS_TIME_MAX: Duration = Duration::from_secs(10);

/// The maximum number of simulated clients that subscribe at the same time: as many as may arrive at once after an
/// outage.
const SIMULATED_AT_ONCE: u64 = 4096;

/// The time without a further subscription after which the simulation stops waiting for more.
const SIMULATED_STALL: Duration = Duration::from_secs(5);

/// One reactor thread keeps up with two workers that resolve events for it.
const WORKERS_PER_REACTOR: usize = 2;

/// The configuration key and the flag of the addresses for clients.
const LISTEN: &str = "`listen`, --listen";

/// The configuration key and the flag of the admin address.
const ADMIN_LISTEN: &str = "`admin.listen`, --admin-listen";

/// The number of ports that are tried after one in use.
const PORTS_TRIED: u16 = 100;

/// The number of messages of the largest size that a client may send before its `connection_init` is acknowledged.
const INIT_MESSAGES: usize = 4;

/// Starts a router. Must be called on a multi-threaded runtime, which becomes the control runtime.
///
/// # Errors
/// Everything that prevents the router from serving. Parts that were already started are stopped again.
pub async fn start(options: Options) -> Result<RunningRouter, StartError> {
    let Options { config, supergraph, tabs, next_free_port, next_free_admin_port } = options;
    let descriptors = descriptors::raise_limit();
    let providers = Arc::new(providers(&config).map_err(StartError::Refused)?);
    // Watching starts before the first read, so that a change during the start is noticed.
    let changes = reload::Changes::watch(supergraph.clone()).await;
    let text = supergraph.read().map_err(|error| vec![*error]);
    let loaded =
        text.and_then(|text| generation::load(&config, &Arc::new(text), &providers, 1, None));
    let (loaded, material) = match (loaded, StartMaterial::load(&config)) {
        (Ok(loaded), Ok(material)) => (loaded, material),
        (loaded, material) => {
            let problems = loaded.err().into_iter().chain(material.err()).flatten();
            return Err(StartError::Refused(problems.collect()));
        }
    };
    let StartMaterial { authentication, certificates, tls } = material;
    if config.events.require_all {
        wait_for_providers(&providers).await?;
    }
    let listeners = bind_listeners(&config, tls, next_free_port)?;
    let admin_listener = bind(ADMIN_LISTEN, config.admin.listen, next_free_admin_port)?;
    let count = worker_count(config.workers);
    let (workers, threads) = Workers::start(count).map_err(StartError::Workers)?;
    let (reactors, reactor_handles) =
        Reactors::start(reactor_count(config.reactors, count), config.http.stall_timeout)
            .map_err(StartError::Workers)?;
    let (stop, shutdown) = watch::channel(false);
    let cursors = cursors(&config)?;
    let on_workers = Arc::clone(&workers) as Arc<dyn hub::Workers>;
    let hub = Hub::with_cursors(hub_settings(&config), on_workers, cursors);
    let page = page(&config, tabs);
    let router = Arc::new(Router {
        workers,
        generation: watch::Sender::new(loaded.generation.number),
        loaded: ArcSwap::from_pointee(loaded),
        providers,
        authentication,
        sharing: SharedWork::new(&config.sharing),
        hub,
        reactors: reactor_handles,
        page,
        connections: Connections::new(ConnectionLimits {
            all: connections_max(&config, descriptors),
            of_address: config.http.max_connections_per_ip as usize,
        }),
        group_shares: Arc::default(),
        kept_operation_bytes: Arc::default(),
        queue_total: Arc::new(QueueTotal::new(config.subscriptions.queue_bytes_total)),
        response_bytes: ByteBudget::new(config.http.response_queue_bytes_total),
        offload: Offload::new(count),
        metrics: Metrics::new(),
        compressor: Compressor::new(config.http.compression.clone(), count),
        streams: StreamTable::default(),
        websocket: Arc::new(websocket_settings(&config)),
        protocol: Arc::new(protocol_settings(&config)),
        is_leaving: AtomicBool::new(false),
        shutdown,
        drain_schedule: DrainSchedule::default(),
        config,
    });
    if let Some(authentication) = &router.authentication {
        authentication.key_sets().start(authentication.verifier(), &router.shutdown).await;
    }
    reactors.serve(&router);
    router.metrics.graph_loads.count(ReloadResult::loaded);
    let addresses: Vec<SocketAddr> = listeners.iter().filter_map(BoundListener::address).collect();
    let admin = admin_listener.local_addr().unwrap_or(router.config.admin.listen);
    let places: Vec<String> = listeners.iter().map(ToString::to_string).collect();
    for listener in listeners {
        tokio::spawn(listener::accept_connections(Arc::clone(&router), listener));
    }
    let admin_task = tokio::spawn(admin::serve(Arc::clone(&router), admin_listener));
    let admin_task = AdminTask(admin_task.abort_handle());
    tokio::spawn(changes.follow(Arc::clone(&router)));
    tokio::spawn(reload::watch_certificates(Arc::clone(&router)));
    tokio::spawn(sse_single_connection::sweep(Arc::clone(&router)));
    if !certificates.is_empty() {
        tokio::spawn(certificates::watch_files(certificates, router.shutdown.clone()));
    }
    log_listeners(&router, &places, admin);
    Ok(RunningRouter { addresses, admin, router, reactors, threads, stop, admin_task })
}

/// Logs each listener with the size of the router behind it.
fn log_listeners(router: &Router, places: &[String], admin: SocketAddr) {
    let graph = router.current();
    for address in places {
        tracing::info!(
            %address,
            path = router.config.path,
            admin = %admin,
            cores = router.workers.len(),
            subgraphs = graph.generation.graph.subgraphs.len(),
            "serving"
        );
    }
}

/// Returns the number of worker threads.
fn worker_count(configured: WorkerCount) -> usize {
    match configured {
        WorkerCount::Auto => workers::available(),
        WorkerCount::Count(count) => usize::from(count),
    }
}

/// Binds all listeners for clients. `tls` contains the TLS of each, in their order.
fn bind_listeners(
    config: &Config,
    tls: Vec<Option<Arc<net::TlsServer>>>,
    next_free_port: bool,
) -> Result<Vec<BoundListener>, StartError> {
    let mut listeners = Vec::new();
    for (listener, tls) in config.listen.iter().zip(tls) {
        listeners.push(match listener {
            Listener::Address { address, .. } => {
                BoundListener::Tcp(bind(LISTEN, *address, next_free_port)?, tls)
            }
            Listener::Unix(socket) => {
                BoundListener::Unix(unix::bind(socket).map_err(|source| {
                    StartError::ListenUnix { path: socket.path.clone(), source }
                })?)
            }
        });
    }
    Ok(listeners)
}

/// Returns the settings of the hub.
fn hub_settings(config: &Config) -> HubSettings {
    let mut settings =
        HubSettings { event_bytes_max: config.events.max_event_size, ..HubSettings::default() };
    settings.group_waiting = config.subscriptions.group_queue_events as usize;
    if config.subscriptions.policy == OverflowPolicy::Latest {
        // For a group that resolves too slowly, too, only the newest event waits.
        settings.group_waiting = 1;
        settings.catch_up = false;
    }
    settings.ring_events = config.cursor.ring_events as usize;
    settings.ring_bytes = config.cursor.ring_bytes;
    settings.ring_bytes_total = config.cursor.ring_bytes_total;
    settings.position_interval = Some(config.cursor.heartbeat).filter(|it| !it.is_zero());
    settings
}

/// Returns the page for browsers, unless it is turned off.
fn page(config: &Config, tabs: Vec<Tab>) -> Option<Page> {
    config.ide.enabled.then(|| {
        Page::new(&PageConfig {
            title: "Starling".to_owned(),
            endpoint: config.path.clone(),
            tabs: if tabs.is_empty() {
                vec![Tab { query: "{ __typename }".into(), variables: None }]
            } else {
                tabs
            },
        })
    })
}

/// Returns the settings of WebSocket connections.
fn websocket_settings(config: &Config) -> wire::websocket::WebSocketConfig {
    wire::websocket::WebSocketConfig {
        message_bytes_max: config.websocket.max_message_size,
        ping_interval: Some(config.websocket.ping_interval),
        pong_timeout: config.websocket.ping_interval,
        deflate_bytes_min: config.websocket.compression.min_size,
        client_bounds: Some(ClientBounds {
            init_message_bytes_max: config.websocket.max_init_message_size,
            init_bytes_max: config.websocket.max_init_message_size.saturating_mul(INIT_MESSAGES),
            ..ClientBounds::default()
        }),
        ..wire::websocket::WebSocketConfig::default()
    }
}

/// Returns the settings of the GraphQL protocol on WebSockets.
fn protocol_settings(config: &Config) -> wire::graphql_transport_ws::ProtocolConfig {
    wire::graphql_transport_ws::ProtocolConfig {
        init_timeout: config.websocket.init_timeout,
        subscriptions_max: config.websocket.max_subscriptions_per_connection as usize,
        keep_alive: Some(config.subscriptions.heartbeat),
        ..wire::graphql_transport_ws::ProtocolConfig::default()
    }
}

/// Returns the signer of cursors, if they are enabled.
fn cursors(config: &Config) -> Result<Option<Cursors>, StartError> {
    let Cursor { enabled, keys, memory, .. } = &config.cursor;
    if !enabled {
        return Ok(None);
    }
    if lacks_cursor_keys(config) {
        tracing::warn!(
            "no `cursor.keys` are configured: cursors are valid on this instance only, and until it ends; subscribers that \
             reconnect to another one are refused with CURSOR_INVALID"
        );
    }
    let keys = keys.iter().map(|key| key.expose().as_bytes());
    let cursors = Cursors::new(keys).map_err(|_| StartError::NoRandomBytes)?;
    Ok(Some(cursors.with_memory_providers(*memory)))
}

/// True if subscribers get cursors of a broker's events that no other router can verify.
fn lacks_cursor_keys(config: &Config) -> bool {
    let Cursor { enabled, keys, .. } = &config.cursor;
    *enabled && keys.is_empty() && config.events.providers.has_brokers()
}

impl RunningRouter {
    /// Returns the providers, for publishers in this process (the demo's generator).
    pub fn providers(&self) -> Arc<Providers> {
        Arc::clone(&self.router.providers)
    }

    /// Subscribes simulated clients without sockets. `greeting` is what each of them sends after its handshake, `said`
    /// the message after the acknowledgement. Returns the number of subscribed clients, which is smaller than `count`
    /// if there is no room, or if their operation is refused.
    pub async fn simulate_subscribers(&self, count: u64, greeting: &[u8], said: &[u8]) -> u64 {
        let said = bytes::Bytes::copy_from_slice(said);
        let subscribers = || self.router.hub.stats().subscribers.load(Relaxed);
        let before = subscribers();
        let (mut begun, mut seen, mut seen_at) = (0, 0, Instant::now());
        loop {
            let subscribed = subscribers().saturating_sub(before);
            if subscribed > seen {
                (seen, seen_at) = (subscribed, Instant::now());
            }
            if subscribed >= count || seen_at.elapsed() > SIMULATED_STALL {
                return subscribed;
            }
            while begun < count && begun < subscribed + SIMULATED_AT_ONCE {
                if self.router.reactors.adopt_null_client(&self.router, greeting, &said).is_err() {
                    return subscribers().saturating_sub(before);
                }
                begun += 1;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The number of messages and bytes that were sent to simulated clients.
    pub async fn simulated_deliveries(&self) -> (u64, u64) {
        let discard_stats = self.reactors.discard_stats().await;
        (discard_stats.messages, discard_stats.bytes)
    }

    /// Fails the readiness check and serves as before for `shutdown.delay`, so that load balancers send their clients
    /// elsewhere before this router refuses any.
    pub async fn announce_shutdown(&self) {
        let delay = self.router.config.shutdown.delay;
        self.router.is_leaving.store(true, SeqCst);
        tracing::info!(
            ?delay,
            "the router is no longer ready, and serves as before until load balancers have noticed"
        );
        tokio::time::sleep(delay).await;
    }

    /// Drains the router: stops accepting, lets requests finish and asks subscribers to reconnect elsewhere, spread
    /// over time if there are many. Connections that remain after `subscriptions.drain_period` are closed.
    pub async fn stop(self) {
        let router = &self.router;
        let drain_period = router.config.subscriptions.drain_period;
        let open = router.connections.open();
        let spread = router.drain_schedule.plan(open, drain_period);
        tracing::info!(open, ?drain_period, ?spread, "shutting down; connections may finish");
        let _ = self.stop.send(true);
        let closing = async {
            for batch in 0..drain::DRAIN_BATCHES {
                self.reactors.shut_down(batch);
                if !spread.is_zero() {
                    tokio::time::sleep(spread / drain::DRAIN_BATCHES).await;
                }
            }
            std::future::pending::<()>().await;
        };
        let drained = async {
            // Connections end on their own after this signal; there is no event for the end of the last one.
            while router.connections.open() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = drained => {}
            () = closing => {}
            () = tokio::time::sleep(drain_period) => {}
        }
        let left = router.connections.open();
        if left > 0 {
            tracing::warn!(left, "closing connections that did not end in time");
        }
        router.hub.shutdown().await;
        let threads = self.threads;
        let reactors = self.reactors;
        let ended = tokio::task::spawn_blocking(move || {
            drop(reactors);
            threads.stop();
        });
        let _ = ended.await;
        drop(self.admin_task);
        tracing::info!("stopped");
    }
}

/// Creates the configured providers for checks: none of them ever connects.
///
/// # Errors
/// The same as for [`providers`], or there is no runtime.
pub(crate) fn idle_providers(config: &Config) -> Result<Providers, Vec<Diagnostic>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        vec![Diagnostic::error("internal", format!("no runtime for checking providers: {error}"))]
    })?;
    // Tasks are spawned here and never run, because this runtime is never driven.
    let _entered = runtime.enter();
    providers(config)
}

/// Creates the configured providers; `memory/default` is always among them.
///
/// # Errors
/// Settings that no provider can use.
pub(crate) fn providers(config: &Config) -> Result<Providers, Vec<Diagnostic>> {
    let mut list: Vec<Arc<dyn Provider>> = Vec::new();
    let mut problems = Vec::new();
    let providers = &config.events.providers;
    for memory in &providers.memory {
        let ring_events = memory.ring_events as usize;
        let settings = MemorySettings { ring_events, ..MemorySettings::default() };
        list.push(Arc::new(Memory::new(&memory.id, settings)));
    }
    for nats in &providers.nats {
        let settings = NatsSettings {
            authentication: nats.authentication.as_ref().map(
                |authentication| match authentication {
                    NatsAuthentication::Token(token) => {
                        events::NatsAuthentication::Token(token.expose().to_owned())
                    }
                    NatsAuthentication::UserInfo(user) => {
                        events::NatsAuthentication::UserPassword {
                            user: user.username.clone(),
                            password: user.password.expose().to_owned(),
                        }
                    }
                    NatsAuthentication::Nkey(seed) => {
                        events::NatsAuthentication::Nkey(seed.expose().to_owned())
                    }
                    NatsAuthentication::CredentialsFile(path) => {
                        events::NatsAuthentication::CredentialsFile(path.clone())
                    }
                },
            ),
            tls: nats.tls.broker_settings(),
            publish_ack: nats.jetstream.publish_ack,
            instance: config.events.instance.as_deref().map(Into::into),
            retry: events::Retry { initial: nats.retry.initial, max: nats.retry.max },
            idle: NatsSettings::IDLE_DEFAULT,
            id: nats.id.as_str().into(),
            url: nats.url.clone(),
            queue_events: MemorySettings::default().queue_events,
        };
        match Nats::start(settings) {
            Ok(provider) => list.push(Arc::new(provider)),
            Err(error) => problems.push(Diagnostic::error(
                "events",
                format!("events.providers.nats `{}`: {error}", nats.id),
            )),
        }
    }
    for kafka in &providers.kafka {
        match events::start_kafka(kafka_settings(kafka, config.events.publish_timeout)) {
            Ok(provider) => list.push(provider),
            Err(error) => problems.push(Diagnostic::error(
                "events",
                format!("events.providers.kafka `{}`: {error}", kafka.id),
            )),
        }
    }
    for redis in &providers.redis {
        let tls = match redis.tls.broker_settings().map(|tls| tls.client()).transpose() {
            Ok(tls) => tls,
            Err(error) => {
                problems.push(Diagnostic::error(
                    "events",
                    format!("events.providers.redis `{}`: tls: {error}", redis.id),
                ));
                continue;
            }
        };
        let settings = RedisSettings {
            tls,
            authentication: redis.authentication.as_ref().map(redis_authentication),
            cluster: redis.cluster_enabled,
            sharded: redis.sharded_channels,
            sentinel: redis.sentinel.as_ref().map(|it| events::RedisSentinel {
                master: it.master.as_str().into(),
                authentication: it.authentication.as_ref().map(redis_authentication),
            }),
            retry: events::Retry { initial: redis.retry.initial, max: redis.retry.max },
            stream_entries_max: redis.streams.max_len,
            ..RedisSettings::new(&redis.id, redis.urls.clone())
        };
        match Redis::start(settings) {
            Ok(provider) => list.push(Arc::new(provider)),
            Err(error) => problems.push(Diagnostic::error(
                "events",
                format!("events.providers.redis `{}`: {error}", redis.id),
            )),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Providers::new(list).map_err(|error| vec![Diagnostic::error("events", error.to_string())])
}

fn redis_authentication(given: &RedisAuthentication) -> events::RedisAuthentication {
    events::RedisAuthentication {
        user: given.username.clone(),
        password: given.password.expose().to_owned(),
    }
}

fn kafka_settings(kafka: &KafkaProvider, publish_timeout: Duration) -> KafkaSettings {
    let user = |username: &str, password: &Secret| events::KafkaUser {
        username: username.into(),
        password: password.expose().into(),
    };
    let authentication = kafka.authentication.as_ref().map(|authentication| match authentication {
        KafkaAuthentication::SaslPlain(it) => {
            events::KafkaAuthentication::Plain(user(&it.username, &it.password))
        }
        KafkaAuthentication::SaslScram(it) => match it.mechanism {
            ScramMechanism::Sha256 => {
                events::KafkaAuthentication::ScramSha256(user(&it.username, &it.password))
            }
            ScramMechanism::Sha512 => {
                events::KafkaAuthentication::ScramSha512(user(&it.username, &it.password))
            }
        },
        KafkaAuthentication::OauthToken(token) => {
            events::KafkaAuthentication::Token(token.expose().into())
        }
        KafkaAuthentication::OauthTokenFile(path) => {
            events::KafkaAuthentication::TokenFile(path.clone())
        }
    });
    let tls = kafka.tls.as_ref().filter(|tls| tls.enabled);
    KafkaSettings {
        id: kafka.id.as_str().into(),
        brokers: kafka.brokers.clone(),
        authentication,
        tls: tls.map(|tls| events::BrokerTls {
            ca: tls.files.ca.clone(),
            certificate: tls.files.certificate.clone(),
            key: tls.files.key.clone(),
        }),
        retry: events::Retry { initial: kafka.retry.initial, max: kafka.retry.max },
        metadata_refresh: kafka.metadata_refresh,
        fetch: events::KafkaFetch {
            wait_max: kafka.fetch.max_wait,
            response_bytes: kafka.fetch.max_bytes,
            queue_bytes: kafka.fetch.queue_bytes,
            readers: kafka.fetch.readers,
        },
        publish_timeout,
        queue_events: MemorySettings::default().queue_events,
    }
}

async fn wait_for_providers(providers: &Providers) -> Result<(), StartError> {
    let deadline = tokio::time::Instant::now() + PROVIDERS_TIME_MAX;
    for provider in providers.iter() {
        while !provider.is_connected() {
            if tokio::time::Instant::now() > deadline {
                return Err(StartError::ProviderAway(provider.name().to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

fn bind(
    key: &'static str,
    wanted: SocketAddr,
    next_free_port: bool,
) -> Result<std::net::TcpListener, StartError> {
    let mut address = wanted;
    for _ in 0..PORTS_TRIED {
        match tcp::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error)
                if next_free_port
                    && error.kind() == std::io::ErrorKind::AddrInUse
                    && address.port() < u16::MAX =>
            {
                address.set_port(address.port() + 1);
            }
            Err(source) => return Err(StartError::Listen { key, address, source }),
        }
    }
    let source = std::io::ErrorKind::AddrInUse.into();
    Err(StartError::Listen { key, address: wanted, source })
}

/// Returns the number of reactor threads for this number of workers.
fn reactor_count(configured: ReactorCount, workers: usize) -> usize {
    match configured {
        ReactorCount::Auto => (workers / WORKERS_PER_REACTOR).max(1),
        ReactorCount::Count(count) => usize::from(count),
    }
}

/// Returns the maximum number of client connections: as configured, or else the number that the descriptors allow. 0:
/// no limit.
fn connections_max(config: &Config, descriptors: Option<usize>) -> usize {
    let configured = config.http.max_connections as usize;
    let connections = match (configured, descriptors) {
        (0, Some(descriptors)) => descriptors::connections_for(descriptors),
        (configured, _) => configured,
    };
    match descriptors {
        Some(descriptors) => {
            tracing::info!(
                descriptors,
                connections,
                "limits of open files and of client connections"
            );
            if connections > descriptors::connections_for(descriptors) {
                tracing::warn!(
                    connections,
                    descriptors,
                    "`http.max_connections` leaves too few descriptors for health checks and subgraphs; raise \
                     `ulimit -n` or lower it"
                );
            }
        }
        None => tracing::info!("open files are not limited"),
    }
    connections
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use config::{Overrides, parse};

    fn lacks_keys(configuration: &str) -> bool {
        let name = "starling.yaml";
        let loaded = parse(configuration, name, Path::new(""), &Overrides::default(), &|_| None);
        lacks_cursor_keys(&loaded.expect("a valid configuration").config)
    }

    #[test]
    fn every_kind_of_broker_needs_cursor_keys() {
        assert!(!lacks_keys("events: {providers: {memory: [{id: other}]}}"));
        for provider in [
            "nats: [{id: default, url: 'nats://n'}]",
            "kafka: [{id: default, brokers: ['k:9092']}]",
            "redis: [{id: default, urls: ['redis://r']}]",
        ] {
            let events = format!("events: {{providers: {{{provider}}}}}");
            assert!(lacks_keys(&events), "{provider}");
            let keys = "cursor: {keys: [sixteen-bytes-or-more]}";
            assert!(!lacks_keys(&format!("{events}\n{keys}")), "{provider}");
            assert!(!lacks_keys(&format!("{events}\ncursor: {{enabled: false}}")), "{provider}");
        }
    }
}
