//! The parts of a router, created in the order of their dependencies. Each part gets only what it needs.

use std::sync::{Arc, Mutex};

use clients::access_log::AccessLog;
use clients::authentication::{Authenticator, ClientAuthentication};
use clients::client_deadline::DeadlineHeaders;
use clients::client_limits::ClientLimits;
use clients::connection_metrics::ConnectionMetrics;
use clients::handshake_pace::OperationLoad;
use clients::request_ids::RequestIds;
use clients::shutdown::Shutdown;
use clients::workers::Workers;
use config::Config;
use events::Providers;
use frontend::client_caching::ClientCacheRules;
use frontend::compression::Compressor;
use frontend::cors_rules::CorsRules;
use frontend::csrf::CsrfRules;
use frontend::endpoint::Endpoints;
use frontend::first_turn::FirstTurns;
use frontend::http_server::{ACCEPTED_PER_CORE, HttpServer, HurryLeaving, TLS_HANDSHAKES_PER_CORE};
use frontend::load_report::LoadReports;
use frontend::metrics::HttpMetrics;
use frontend::pipeline::Pipeline;
use frontend::received_request::RequestReceiver;
use frontend::refusal_pacing::RefusalPacer;
use frontend::uploads::UploadReceiver;
use hub::Cursors;
use ide::Page;
use live::live_server::LiveServer;
use live::metrics::SubscriptionMetrics;
use live::reactors::{ReactorHandles, Reactors};
use live::subscription_limits::SubscriptionLimits;
use otlp::MetricExportStats;
use persisted_documents::DocumentSet;
use redis_store::Stores;
use serving::generation::ServingGraph;
use serving::serving::Serving;
use subscription_client::CallbackEndpoint;
use telemetry::spans::Tracer;
use tokio::sync::{Semaphore, mpsc};

use crate::admin::state::Admin;
use crate::cache_page::CachePage;
use crate::callbacks;
use crate::composition::CompositionState;
use crate::console_api::state::ConsoleState;
use crate::document_load_metrics::DocumentLoadMetrics;
use crate::further_graphs::{self, FurtherGraph, GraphTasks, LoadedGraph};
use crate::generation_numbers::GenerationNumbers;
use crate::graph_assembly::{AssembledGraph, CommonParts, EventWorkers, GraphInputs};
use crate::graph_change::GraphChange;
use crate::metrics_export::{self, MetricsSources};
use crate::reload::Reloader;
use crate::reload_requests::ReloadRequests;
use crate::supergraph_download::SupergraphDownloadMetrics;
use crate::warming::Warming;

/// The inputs of the assembly.
pub(crate) struct RouterMaterial {
    /// The configuration.
    pub(crate) config: Config,
    /// The first graph.
    pub(crate) loaded: ServingGraph,
    /// The further graphs, each with its reactors, signer of cursors and page.
    pub(crate) further: Vec<FurtherMaterial>,
    /// The numbers of generations.
    pub(crate) numbers: Arc<GenerationNumbers>,
    /// The persisted documents.
    pub(crate) documents: DocumentSet,
    /// The brokers.
    pub(crate) providers: Arc<Providers>,
    /// The stores that several routers share.
    pub(crate) stores: Arc<Stores>,
    /// The endpoint for callbacks of subgraphs, if one is configured.
    pub(crate) callbacks: Option<Arc<CallbackEndpoint>>,
    /// Verification of tokens, if it is configured.
    pub(crate) authenticator: Option<Authenticator>,
    /// The signer of cursors, if they are enabled.
    pub(crate) cursors: Option<Cursors>,
    /// The page for browsers, unless it is turned off.
    pub(crate) page: Option<Page>,
    /// The maximum number of client connections; 0: no limit.
    pub(crate) connections_max: usize,
    /// The worker threads.
    pub(crate) workers: Arc<Workers>,
    /// The state of the shutdown.
    pub(crate) shutdown: Arc<Shutdown>,
    /// The state of composition, for metrics.
    pub(crate) composition: Arc<CompositionState>,
    /// The counters of requests for a supergraph by URL, if it has one.
    pub(crate) supergraph_download: Option<Arc<SupergraphDownloadMetrics>>,
    /// Passes requests of operators to the task that reloads.
    pub(crate) reload_requests: ReloadRequests,
    /// The access log, if it is written.
    pub(crate) access_log: Option<AccessLog>,
    /// Records traces, if any are exported.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// The counters of the export of metrics, if they are exported.
    pub(crate) metric_export: Option<Arc<MetricExportStats>>,
    /// The observer of reloads, if there is one.
    pub(crate) graph_changes: Option<mpsc::UnboundedSender<GraphChange>>,
}

/// The inputs of the assembly for a further graph.
pub(crate) struct FurtherMaterial {
    /// The graph.
    pub(crate) graph: LoadedGraph,
    /// The signer of cursors, if they are enabled.
    pub(crate) cursors: Option<Cursors>,
    /// The page for browsers, unless it is turned off.
    pub(crate) page: Option<Page>,
    /// The handles of its reactors.
    pub(crate) reactor_handles: ReactorHandles,
}

/// The assembled parts of a router.
pub(crate) struct RouterParts {
    /// Serves clients.
    pub(crate) http: Arc<HttpServer>,
    /// Serves live connections.
    pub(crate) live: Arc<LiveServer>,
    /// Serves operators.
    pub(crate) admin: Arc<Admin>,
    /// Replaces the graph.
    pub(crate) reloader: Arc<Reloader>,
    /// The further graphs.
    pub(crate) further: Arc<[FurtherGraph]>,
    /// Verifies tokens.
    pub(crate) authentication: Arc<ClientAuthentication>,
    /// Counts changes of persisted documents.
    pub(crate) document_loads: Arc<DocumentLoadMetrics>,
    /// The progress of the start.
    pub(crate) warming: Arc<Warming>,
}

impl std::fmt::Debug for RouterParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let serving = &self.reloader.serving;
        f.debug_struct("RouterParts").field("serving", serving).finish_non_exhaustive()
    }
}

/// Returns what asks for the ends of connections that clients have closed.
fn hurry_leaving(reactors: &[Reactors]) -> HurryLeaving {
    let of_each: Vec<_> = reactors.iter().map(Reactors::hurry_leaving).collect();
    Box::new(move || of_each.iter().map(|hurry| hurry()).sum())
}

/// Returns the operations of the process for its listeners.
fn operation_load(serving: &Serving) -> Option<Arc<dyn OperationLoad + Send + Sync>> {
    serving.overload.clone().map(|overload| overload as _)
}

/// Creates the parts of a router, and passes the reactors what they use: the first ones are those of the graph of
/// `supergraph`, the others those of the further graphs. The tasks are those of the further graphs.
pub(crate) fn assemble(
    material: RouterMaterial,
    reactors: &[Reactors],
    reactor_handles: ReactorHandles,
) -> (RouterParts, Vec<GraphTasks>) {
    let RouterMaterial { config, loaded, providers, authenticator, workers, shutdown, .. } =
        material;
    let config = Arc::new(config);
    let document_loads = Arc::new(DocumentLoadMetrics::new());
    let warming = Arc::new(Warming::new(&config.warming));
    let limits = Arc::new(ClientLimits::new(
        (&config.http, &config.admission),
        material.connections_max,
        workers.count(),
        &loaded.memory,
    ));
    let authentication = Arc::new(ClientAuthentication::new(authenticator));
    let common = CommonParts {
        authentication: Arc::clone(&authentication),
        access_log: material.access_log.map(Arc::new),
        request_ids: RequestIds::new(&config.request_id).map(Arc::new),
        tracer: material.tracer,
        subscription_metrics: Arc::new(SubscriptionMetrics::default()),
        connection_metrics: Arc::new(ConnectionMetrics::default()),
        providers: Arc::clone(&providers),
        stores: material.stores,
        callbacks: material.callbacks,
        numbers: material.numbers,
        pace: Arc::clone(&warming.pace),
        workers: Arc::clone(&workers),
        shutdown: Arc::clone(&shutdown),
    };
    let (documents, stores) = (material.documents, &common.stores);
    let serving = Arc::new(Serving::new(&config, loaded, documents, stores, &limits));
    start_live_queries(&serving, &workers, common.tracer.clone(), &shutdown);
    let (first_reactors, further_reactors) = reactors.split_first().unzip();
    let AssembledGraph { runner, live, endpoint, reloader } = common.assemble_graph(GraphInputs {
        name: None,
        serving: Arc::clone(&serving),
        config: Arc::clone(&config),
        limits: SubscriptionLimits::new(&config.subscriptions),
        cursors: material.cursors,
        page: material.page,
        reactors: first_reactors,
        reactor_handles,
        changes: material.graph_changes,
    });
    let (mut further, mut endpoints, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
    for (graph, reactors) in material.further.into_iter().zip(further_reactors.unwrap_or_default())
    {
        let (graph, endpoint, graph_tasks) =
            further_graphs::assemble_graph(graph, reactors, &common, &runner);
        further.push(graph);
        endpoints.push(endpoint);
        tasks.push(graph_tasks);
    }
    let further: Arc<[FurtherGraph]> = further.into();
    // Callbacks with a listener of their own are not served to clients.
    let has_own_listener = callbacks::own_address(&config).is_some();
    let shared_callbacks = common.callbacks.as_ref().filter(|_| !has_own_listener);
    let http = Arc::new(HttpServer {
        settings: config.http.clone(),
        pipeline: Pipeline {
            authentication: Arc::clone(&authentication),
            cors: CorsRules::new(&config.cors),
            csrf: CsrfRules::new(&config.csrf),
            compressor: Compressor::new(config.http.compression.clone(), workers.count()),
            endpoints: Endpoints { default: endpoint, further: endpoints },
            receiver: RequestReceiver::new(
                &config,
                &limits,
                &common.connection_metrics,
                serving.process_metrics(),
            ),
            uploads: UploadReceiver::new(&config.uploads, &limits.memory),
            has_websocket_compression: config.websocket.compression.enabled,
            callbacks: shared_callbacks.map(|it| callbacks::route(&config, it, &limits.memory)),
            caching: ClientCacheRules::new(&config, authentication.token_sources()),
            metrics: HttpMetrics::default(),
            access_log: common.access_log.clone(),
            request_ids: common.request_ids.clone(),
            deadline_headers: DeadlineHeaders::new(&config.limits.deadline_headers),
            load_reports: LoadReports::new(&config.http.load_report),
            shows_generation: config.supergraph.expose_generation,
            tracer: common.tracer.clone(),
            refusals: RefusalPacer::new(
                config.admission.refusals_per_core,
                workers.count(),
                config.http.http2.max_concurrent_streams,
                &limits.memory,
                &shutdown,
            ),
            first_turns: FirstTurns::new(workers.count()),
        },
        accepting: Arc::new(Semaphore::new(ACCEPTED_PER_CORE * workers.count())),
        accept_pace: Mutex::default(),
        tls_handshakes: Semaphore::new(TLS_HANDSHAKES_PER_CORE * workers.count()),
        hurry_leaving: hurry_leaving(reactors),
        operations: operation_load(&serving),
        limits,
        workers: Arc::clone(&workers),
        metrics: Arc::clone(&common.connection_metrics),
        shutdown: Arc::clone(&shutdown),
    });
    let sources = Arc::new(MetricsSources {
        http: Arc::clone(&http),
        runner,
        further: Arc::clone(&further),
        authentication: Arc::clone(&authentication),
        providers: Arc::clone(&providers),
        stores: Arc::clone(&common.stores),
        callbacks: common.callbacks.clone(),
        graph_loads: Arc::clone(&reloader.metrics),
        document_loads: Arc::clone(&document_loads),
        warming: Arc::clone(&warming),
        composition: material.composition,
        supergraph_download: material.supergraph_download,
        metric_export: material.metric_export,
        history: config.admin.console.enabled.then(Arc::default),
    });
    let console = ConsoleState::new(&config.admin.console, &sources, &live);
    let admin = Arc::new(Admin {
        settings: config.admin.clone(),
        publish_timeout: config.events.publish_timeout,
        metrics: Arc::new(metrics_export::exporter(sources)),
        hub: Arc::clone(&reloader.hub),
        providers,
        serving,
        further: Arc::clone(&further),
        reload_requests: material.reload_requests,
        cache_page: CachePage::new(),
        console,
        workers,
        shutdown,
        warming: Arc::clone(&warming),
    });
    let parts = RouterParts {
        http,
        live,
        admin,
        reloader,
        further,
        authentication,
        document_loads,
        warming,
    };
    (parts, tasks)
}

/// Starts the task that executes live queries, if they are turned on. It ends with the shutdown.
fn start_live_queries(
    serving: &Serving,
    workers: &Arc<Workers>,
    tracer: Option<Arc<Tracer>>,
    shutdown: &Shutdown,
) {
    let graph = serving.current();
    let queries = graph.caching.as_ref().and_then(|it| it.process.live_queries.as_ref());
    let Some(queries) = queries else { return };
    let on_workers = Arc::new(EventWorkers(Arc::clone(workers)));
    let running = Arc::clone(queries).run(on_workers as Arc<dyn hub::Workers>, tracer);
    let mut stop = shutdown.signal();
    tokio::spawn(async move {
        tokio::select! {
            () = running => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    });
}
