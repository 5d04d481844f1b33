//! The life of a process: from a configuration to a running router, and its shutdown.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use clients::access_log::AccessLog;
use clients::drain;
use clients::shutdown::Shutdown;
use clients::workers::{self, WorkerThreads, Workers};
use config::diagnostic::{self, Diagnostic, SourceText, Style};
use config::{Config, Cursor, Listener, ReactorCount};
use events::Providers;
use frontend::descriptors;
use frontend::listener::{self, BoundListener};
use frontend::{tcp, unix};
use hub::Cursors;
use ide::{Page, PageConfig, Tab};
use live::reactors::Reactors;
use live::sse_single_connection::requests;
use serving::generation::{self, GraphMaterial, ServingGraph};
use serving::shared_cache::SharedCacheTasks;
use subscription_client::CallbackEndpoint;
use tokio::sync::{mpsc, watch};

use crate::admin;
use crate::assembly::{self, FurtherMaterial, RouterMaterial, RouterParts};
use crate::cache_page;
use crate::callbacks;
use crate::certificates;
use crate::collector_export::{CollectorExports, ExportTasks};
use crate::composition::ReadScope;
use crate::console_api;
use crate::document_watch;
use crate::further_graphs::{self, SharedMaterial};
use crate::generation_numbers::GenerationNumbers;
use crate::graph_change::GraphChange;
use crate::graph_watch::GraphWatch;
use crate::invalidation_topics::InvalidationTopics;
use crate::load_watch;
use crate::manifest_downloads::ManifestDownloads;
use crate::memory_watch;
use crate::providers::providers;
use crate::reload;
use crate::reload_requests::ReloadRequests;
use crate::start_material::StartMaterial;
use crate::stores;
use crate::supergraph_source::SupergraphSource;
use crate::warming;

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
    /// Reads the graph again at SIGHUP, which otherwise ends the process.
    pub reloads_on_hang_up: bool,
    /// Gets the result of each reload. Refused graphs are then not logged.
    pub graph_changes: Option<mpsc::UnboundedSender<GraphChange>>,
    /// Waits until the graph can be loaded. Otherwise the start fails. The observer gets the reasons.
    pub waits_for_graph: bool,
}

impl Options {
    /// Returns the inputs for a router that follows changes of its graph.
    pub fn new(config: Config, supergraph: SupergraphSource) -> Self {
        Self {
            config,
            supergraph,
            tabs: Vec::new(),
            next_free_port: false,
            next_free_admin_port: false,
            reloads_on_hang_up: true,
            graph_changes: None,
            waits_for_graph: false,
        }
    }
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
    /// The bound address of the listener for callbacks of subgraphs, if they have one of their own.
    pub callbacks: Option<SocketAddr>,
    parts: RouterParts,
    shutdown: Arc<Shutdown>,
    /// The reactors of each graph, those of `supergraph` first. They hold parts of the router, so they are dropped with
    /// this struct and not with those.
    reactors: Vec<Reactors>,
    threads: WorkerThreads,
    stop: watch::Sender<bool>,
    /// Runs to the very end, so that operators can observe the shutdown.
    admin_task: OwnedTask,
    /// The listener for callbacks of subgraphs, if they have one of their own.
    callback_task: Option<OwnedTask>,
    /// The level of the cache that routers share, if it is configured.
    shared_cache: Option<SharedCacheTasks>,
    /// The exports of traces and metrics.
    exports: ExportTasks,
}

/// A task that ends with its owner.
#[derive(Debug)]
struct OwnedTask(tokio::task::AbortHandle);

impl Drop for OwnedTask {
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

/// The configuration key of the address for callbacks.
const CALLBACK_LISTEN: &str = "`subscriptions.callback.listen`";

/// The number of ports that are tried after one in use.
const PORTS_TRIED: u16 = 100;

/// Starts a router. Must be called on a multi-threaded runtime, which becomes the control runtime.
///
/// # Errors
/// Everything that prevents the router from serving. Parts that were already started are stopped again.
pub async fn start(options: Options) -> Result<RunningRouter, StartError> {
    let Options { config, tabs, next_free_port, next_free_admin_port, .. } = options;
    let descriptors = descriptors::raise_limit();
    let providers = Arc::new(providers(&config).map_err(StartError::Refused)?);
    let stores = Arc::new(stores::start(&config).map_err(StartError::Refused)?);
    let invalidation_topics =
        InvalidationTopics::new(&config, &providers).map_err(StartError::Refused)?;
    let callbacks = callbacks::callback_endpoint(&config);
    let watch = GraphWatch::new(options.supergraph, options.reloads_on_hang_up);
    let mut watch = watch.map_err(StartError::Refused)?;
    let numbers = Arc::new(GenerationNumbers::default());
    let load = |text: &Arc<SourceText>| {
        let callbacks = callbacks.as_ref();
        let (config, providers, stores) = (&config, &providers, &stores);
        let material = GraphMaterial { config, name: None, providers, stores, callbacks };
        numbers.load(|number| generation::load(material, text, number, None))
    };
    let mut scope = ReadScope::Everything;
    let loaded = loop {
        let loaded = first_graph(&mut watch, scope, load).await;
        match (loaded, &options.graph_changes) {
            (Err(problems), Some(observer)) if options.waits_for_graph => {
                let _ = observer.send(GraphChange::Refused(problems));
                scope = watch.wait_for_change().await;
            }
            (loaded, _) => break loaded,
        }
    };
    let downloads = ManifestDownloads::new(&config.persisted_documents);
    let downloads = match downloads {
        Ok(downloads) => downloads.read_first().await,
        Err(problems) => Err(problems),
    };
    let (downloads, followed_downloads) = downloads.map_err(StartError::Refused)?;
    let ((loaded, text), material) = match (loaded, StartMaterial::load(&config, &downloads)) {
        (Ok(loaded), Ok(material)) => (loaded, material),
        (loaded, material) => {
            let problems = loaded.err().into_iter().chain(material.err()).flatten();
            return Err(StartError::Refused(problems.collect()));
        }
    };
    let shared = SharedMaterial {
        providers: &providers,
        stores: &stores,
        callbacks: callbacks.as_ref(),
        numbers: &numbers,
    };
    let hang_ups = options.reloads_on_hang_up;
    let further = further_graphs::load_graphs(&config, shared, &loaded, hang_ups).await;
    let further = further.map_err(StartError::Refused)?;
    let StartMaterial { authentication: authenticator, certificates, tls, admin_tls, documents } =
        material;
    if config.events.require_all {
        wait_for_providers(&providers).await?;
    }
    let access_log = AccessLog::open(&config).map_err(|error| {
        let message = format!("the access log cannot be written: {error}");
        StartError::Refused(vec![Diagnostic::error("access-log", message)])
    })?;
    let exports = CollectorExports::new(&config).map_err(StartError::Refused)?;
    let listeners = bind_listeners(&config, tls, next_free_port)?;
    let callback_listener = callbacks::own_address(&config)
        .map(|address| bind(CALLBACK_LISTEN, address, false))
        .transpose()?;
    let admin_listener = bind(ADMIN_LISTEN, config.admin.listen, next_free_admin_port)?;
    let (workers, threads) =
        Workers::start(workers::count(config.workers)).map_err(StartError::Workers)?;
    let start_reactors = || {
        let count = reactor_count(config.reactors, workers.count());
        Reactors::start(count, config.http.stall_timeout).map_err(StartError::Workers)
    };
    let (first_reactors, reactor_handles) = start_reactors()?;
    let mut reactors = vec![first_reactors];
    let mut further_material = Vec::with_capacity(further.len());
    let cursors = cursors(&config)?;
    for graph in further {
        let (own, reactor_handles) = start_reactors()?;
        reactors.push(own);
        let cursors = cursors.clone().map(|it| it.for_graph(graph.name()));
        let page = page(&config, graph.path(), Vec::new());
        further_material.push(FurtherMaterial { graph, cursors, page, reactor_handles });
    }
    let (shutdown, stop) = Shutdown::new();
    let shutdown = Arc::new(shutdown);
    let (reload_requests, waiting_reloads) = ReloadRequests::new();
    let material = RouterMaterial {
        loaded,
        further: further_material,
        numbers,
        documents: documents.documents,
        authenticator,
        cursors,
        page: page(&config, &config.path, tabs),
        connections_max: connections_max(&config, descriptors),
        providers,
        stores,
        callbacks: callbacks.clone(),
        workers,
        shutdown: Arc::clone(&shutdown),
        composition: watch.composition_state(),
        supergraph_download: watch.download_metrics(),
        reload_requests,
        access_log,
        tracer: exports.tracer(),
        metric_export: exports.metric_stats(),
        graph_changes: options.graph_changes,
        config,
    };
    let (parts, graph_tasks) = assembly::assemble(material, &reactors, reactor_handles);
    let exports = exports.start(&parts.admin.metrics);
    if let Some(authenticator) = parts.authentication.authenticator() {
        let shutdown = shutdown.signal();
        authenticator.key_sets().start(authenticator.verifier(), &shutdown).await;
    }
    let shared_cache = parts.reloader.serving.current().caching.as_ref().and_then(|caching| {
        let shared = caching.process.shared.as_ref()?;
        Some(shared.start())
    });
    invalidation_topics.start(&parts.reloader.serving, &shutdown.signal());
    let addresses: Vec<SocketAddr> = listeners.iter().filter_map(BoundListener::address).collect();
    let admin = admin_listener.local_addr().unwrap_or(parts.admin.settings.listen);
    let callback_address = callback_listener.as_ref().and_then(|it| it.local_addr().ok());
    let places: Vec<String> = listeners.iter().map(ToString::to_string).collect();
    for listener in listeners {
        tokio::spawn(listener::accept_connections(Arc::clone(&parts.http), listener));
    }
    if parts.reloader.config.cache.enabled {
        let history = Arc::clone(&parts.admin.cache_page.history);
        let serving = Arc::clone(&parts.reloader.serving);
        tokio::spawn(cache_page::follow(history, serving));
    }
    let has_documents = !parts.reloader.config.persisted_documents.manifests.is_empty();
    warming::start(&parts.warming, parts.named_graphs(), has_documents, shutdown.signal());
    if let Some(console) = &parts.admin.console {
        tokio::spawn(console_api::state::follow(Arc::clone(console)));
    }
    let admin_task =
        tokio::spawn(admin::serve(Arc::clone(&parts.admin), admin_listener, admin_tls));
    let admin_task = OwnedTask(admin_task.abort_handle());
    let callback_task = callback_listener
        .zip(callbacks)
        .map(|(listener, endpoint)| serve_callbacks(&parts, &endpoint, listener));
    let overload = parts.reloader.serving.overload.clone();
    let (http, warming) = (Arc::clone(&parts.http), Arc::clone(&parts.warming));
    tokio::spawn(load_watch::watch_load(http, overload, warming, shutdown.signal()));
    let serving = Arc::clone(&parts.reloader.serving);
    let queues = Arc::clone(&parts.live.runner().limits.queue_total);
    tokio::spawn(memory_watch::watch_memory(serving, queues, shutdown.signal()));
    let reloader = Arc::clone(&parts.reloader);
    tokio::spawn(reload::follow_changes(watch, reloader, text, waiting_reloads));
    tokio::spawn(reload::watch_certificates(Arc::clone(&parts.reloader)));
    graph_tasks.into_iter().for_each(|it| it.start(&shutdown.signal()));
    if has_documents {
        let downloads = followed_downloads.start(&parts.document_loads, &shutdown.signal());
        document_watch::start(&parts, documents.versions, downloads);
    }
    tokio::spawn(requests::sweep(Arc::clone(&parts.live)));
    if !certificates.is_empty() {
        tokio::spawn(certificates::watch_files(certificates, shutdown.signal()));
    }
    log_listeners(&parts, &places, admin);
    Ok(RunningRouter {
        addresses,
        admin,
        callbacks: callback_address,
        parts,
        shutdown,
        reactors,
        threads,
        stop,
        admin_task,
        callback_task,
        shared_cache,
        exports,
    })
}

/// Reads and loads the first graph. One from a server that does not load gives way to the last good one on disk.
///
/// # Errors
/// All reasons why there is no graph.
pub(crate) async fn first_graph(
    watch: &mut GraphWatch,
    scope: ReadScope,
    load: impl Fn(&Arc<SourceText>) -> Result<ServingGraph, Vec<Diagnostic>>,
) -> Result<(ServingGraph, Arc<SourceText>), Vec<Diagnostic>> {
    let read = watch.read(scope).await?;
    diagnostic::log(&read.warnings);
    match load(&read.text) {
        Ok(loaded) => {
            watch.on_loaded().await;
            Ok((loaded, read.text))
        }
        Err(problems) => {
            let Some(text) = watch.take_fallback() else { return Err(problems) };
            let reasons = diagnostic::render(&problems, Style::Plain);
            tracing::error!(
                "the supergraph was refused; the router starts with the copy of the last good one:\n{reasons}"
            );
            let loaded = load(&text).map_err(|more| [problems, more].concat())?;
            Ok((loaded, text))
        }
    }
}

/// Serves the listener for callbacks of subgraphs.
fn serve_callbacks(
    parts: &RouterParts,
    endpoint: &Arc<CallbackEndpoint>,
    listener: std::net::TcpListener,
) -> OwnedTask {
    let config = &parts.reloader.config;
    let route = Arc::new(callbacks::route(config, endpoint, &parts.http.limits.memory));
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, path = route.path, "serving callbacks of subgraphs");
    }
    let task = tokio::spawn(callbacks::serve(route, config.http.header_timeout, listener));
    OwnedTask(task.abort_handle())
}

/// Logs each listener with the size of the router behind it.
fn log_listeners(parts: &RouterParts, places: &[String], admin: SocketAddr) {
    let graph = parts.reloader.serving.current();
    for address in places {
        tracing::info!(
            %address,
            path = parts.http.pipeline.endpoints.default.page.path,
            admin = %admin,
            cores = parts.http.workers.count(),
            subgraphs = graph.generation.graph.subgraphs.len(),
            "serving"
        );
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

/// Returns the page for browsers of an endpoint, unless pages are turned off.
fn page(config: &Config, path: &str, tabs: Vec<Tab>) -> Option<Page> {
    config.ide.enabled.then(|| {
        Page::new(&PageConfig {
            title: "Starling".to_owned(),
            endpoint: path.to_owned(),
            tabs: if tabs.is_empty() {
                vec![Tab { query: "{ __typename }".into(), variables: None }]
            } else {
                tabs
            },
        })
    })
}

/// Returns the signer of cursors of the first graph, if they are enabled.
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
        Arc::clone(&self.parts.reloader.providers)
    }

    /// Subscribes simulated clients without sockets. `greeting` is what each of them sends after its handshake, `said`
    /// the message after the acknowledgement. Returns the number of subscribed clients, which is smaller than `count`
    /// if there is no room, or if their operation is refused.
    pub async fn simulate_subscribers(&self, count: u64, greeting: &[u8], said: &[u8]) -> u64 {
        let said = bytes::Bytes::copy_from_slice(said);
        let subscribers = || self.parts.reloader.hub.stats().subscribers.load(Relaxed);
        let connections = &self.parts.http.limits.connections;
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
                if self.parts.live.adopt_null_client(connections, greeting, &said).is_err() {
                    return subscribers().saturating_sub(before);
                }
                begun += 1;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The number of messages and bytes that were sent to simulated clients.
    pub async fn simulated_deliveries(&self) -> (u64, u64) {
        let Some(reactors) = self.reactors.first() else { return (0, 0) };
        let discard_stats = reactors.discard_stats().await;
        (discard_stats.messages, discard_stats.bytes)
    }

    /// Fails the readiness check and serves as before for `shutdown.delay`, so that load balancers send their clients
    /// elsewhere before this router refuses any.
    pub async fn announce_shutdown(&self) {
        let delay = self.parts.reloader.config.shutdown.delay;
        self.shutdown.announce();
        tracing::info!(
            ?delay,
            "the router is no longer ready, and serves as before until load balancers have noticed"
        );
        tokio::time::sleep(delay).await;
    }

    /// Drains the router: stops accepting, lets requests finish and asks subscribers to reconnect elsewhere, spread
    /// over time if there are many. Connections that remain after `subscriptions.drain_period` are closed.
    pub async fn stop(self) {
        let RouterParts { http, reloader, .. } = &self.parts;
        let drain_period = reloader.config.subscriptions.drain_period;
        let open = http.limits.connections.open();
        let spread = self.shutdown.plan_drain(open, drain_period);
        tracing::info!(open, ?drain_period, ?spread, "shutting down; connections may finish");
        let _ = self.stop.send(true);
        let closing = async {
            for batch in 0..drain::DRAIN_BATCHES {
                self.reactors.iter().for_each(|it| it.shut_down(batch));
                if !spread.is_zero() {
                    tokio::time::sleep(spread / drain::DRAIN_BATCHES).await;
                }
            }
            std::future::pending::<()>().await;
        };
        let drained = async {
            // Connections end on their own after this signal; there is no event for the end of the last one.
            while http.limits.connections.open() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = drained => {}
            () = closing => {}
            () = tokio::time::sleep(drain_period) => {}
        }
        let left = http.limits.connections.open();
        if left > 0 {
            tracing::warn!(left, "closing connections that did not end in time");
        }
        self.parts.end_subscriptions().await;
        let threads = self.threads;
        let reactors = self.reactors;
        let ended = tokio::task::spawn_blocking(move || {
            drop(reactors);
            threads.stop();
        });
        let _ = ended.await;
        drop(self.callback_task);
        if let Some(shared_cache) = self.shared_cache {
            shared_cache.end().await;
        }
        // After the last request has ended. Tasks that still run hold the access log, so it is not dropped here.
        if let Some(log) = self.parts.live.runner().access_log.clone() {
            let _ = tokio::task::spawn_blocking(move || log.end()).await;
        }
        self.exports.end().await;
        drop(self.admin_task);
        tracing::info!("stopped");
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
