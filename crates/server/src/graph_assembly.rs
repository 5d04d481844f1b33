//! The parts of the router that belong to one graph, assembled in the same way for each: the hub, the operation runner,
//! the live layer, the endpoint, and the parts that a reload changes. `assembly` has the parts that all graphs have in
//! common.

use std::sync::Arc;

use clients::access_log::AccessLog;
use clients::authentication::ClientAuthentication;
use clients::connection_metrics::ConnectionMetrics;
use clients::request_ids::RequestIds;
use clients::shutdown::Shutdown;
use clients::workers::{Job, Workers};
use config::{Config, OverflowPolicy};
use events::Providers;
use frontend::endpoint::Endpoint;
use frontend::page::EndpointPage;
use hub::{Cursors, EventTracer, Hub, HubSettings};
use ide::Page;
use live::client_context::NeededHeaders;
use live::live_server::LiveServer;
use live::metrics::SubscriptionMetrics;
use live::operation_runner::OperationRunner;
use live::reactors::context::ReactorContext;
use live::reactors::{ReactorHandles, Reactors};
use live::subscription_limits::SubscriptionLimits;
use live::websocket_settings::WebSocketSettings;
use redis_store::Stores;
use serving::serving::Serving;
use subscription_client::CallbackEndpoint;
use telemetry::spans::Tracer;
use tokio::sync::mpsc;

use crate::generation_numbers::GenerationNumbers;
use crate::graph_change::GraphChange;
use crate::graph_load_metrics::{GraphLoadMetrics, ReloadResult};
use crate::graphql_service::GraphqlEndpoint;
use crate::preparation_pace::PreparationPace;
use crate::reload::Reloader;

/// The parts that all graphs of the process have in common.
pub(crate) struct CommonParts {
    /// Verifies tokens.
    pub(crate) authentication: Arc<ClientAuthentication>,
    /// The access log, if it is written.
    pub(crate) access_log: Option<Arc<AccessLog>>,
    /// Gives requests their ids, if they have any.
    pub(crate) request_ids: Option<Arc<RequestIds>>,
    /// Records traces, if any are exported.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// The counters of subscriptions.
    pub(crate) subscription_metrics: Arc<SubscriptionMetrics>,
    /// The counters of connections.
    pub(crate) connection_metrics: Arc<ConnectionMetrics>,
    /// The brokers.
    pub(crate) providers: Arc<Providers>,
    /// The stores that several routers share.
    pub(crate) stores: Arc<Stores>,
    /// The endpoint for callbacks of subgraphs, if one is configured.
    pub(crate) callbacks: Option<Arc<CallbackEndpoint>>,
    /// The numbers of generations.
    pub(crate) numbers: Arc<GenerationNumbers>,
    /// The pace at which operations are prepared in the background.
    pub(crate) pace: Arc<PreparationPace>,
    /// The worker threads.
    pub(crate) workers: Arc<Workers>,
    /// The state of the shutdown.
    pub(crate) shutdown: Arc<Shutdown>,
}

/// The parts of a graph that exist before it is assembled.
pub(crate) struct GraphInputs<'a> {
    /// The name of a further graph; `None` for the graph of `supergraph`.
    pub(crate) name: Option<Box<str>>,
    /// The graph that serves.
    pub(crate) serving: Arc<Serving>,
    /// The configuration of the graph.
    pub(crate) config: Arc<Config>,
    /// The limits of its subscriptions.
    pub(crate) limits: SubscriptionLimits,
    /// The signer of its cursors, if they are enabled.
    pub(crate) cursors: Option<Cursors>,
    /// The page for browsers, unless it is turned off.
    pub(crate) page: Option<Page>,
    /// The threads of its connections that have left HTTP.
    pub(crate) reactors: Option<&'a Reactors>,
    /// The handles of these threads.
    pub(crate) reactor_handles: ReactorHandles,
    /// The observer of its reloads, if there is one.
    pub(crate) changes: Option<mpsc::UnboundedSender<GraphChange>>,
}

/// A graph that is ready to serve.
pub(crate) struct AssembledGraph {
    /// Runs the operations of live connections.
    pub(crate) runner: Arc<OperationRunner>,
    /// Serves live connections.
    pub(crate) live: Arc<LiveServer>,
    /// The endpoint for clients.
    pub(crate) endpoint: Endpoint,
    /// Replaces the graph.
    pub(crate) reloader: Arc<Reloader>,
}

/// The workers as the hub uses them: its events run before connections and operations.
pub(crate) struct EventWorkers(pub(crate) Arc<Workers>);

impl hub::Workers for EventWorkers {
    fn run(&self, job: Job) {
        self.0.run_first(job);
    }
}

impl CommonParts {
    /// Assembles a graph that has been loaded, and passes its reactors what they use.
    pub(crate) fn assemble_graph(&self, inputs: GraphInputs<'_>) -> AssembledGraph {
        let GraphInputs { name, serving, config, limits, cursors, page, reactors, .. } = inputs;
        let on_workers = Arc::new(EventWorkers(Arc::clone(&self.workers)));
        let tracer = self.tracer.as_ref().map(|tracer| EventTracer {
            tracer: Arc::clone(tracer),
            graph: serving.graph_name.clone(),
        });
        let hub = Hub::with_traces(hub_settings(&config), on_workers, cursors, tracer);
        let hub = Arc::new(hub);
        let runner = Arc::new(OperationRunner {
            serving: Arc::clone(&serving),
            hub: Arc::clone(&hub),
            limits,
            metrics: Arc::clone(&self.subscription_metrics),
            authentication: Arc::clone(&self.authentication),
            access_log: self.access_log.clone(),
            request_ids: self.request_ids.clone(),
            tracer: self.tracer.clone(),
        });
        let reactor = Arc::new(ReactorContext {
            runner: Arc::clone(&runner),
            websocket: WebSocketSettings::new(&config),
            needed_headers: NeededHeaders::new(&config),
            connection_metrics: Arc::clone(&self.connection_metrics),
            workers: Arc::clone(&self.workers),
        });
        if let Some(reactors) = reactors {
            reactors.serve(&reactor);
        }
        let stream_operations_max = config.websocket.max_subscriptions_per_connection;
        let handles = inputs.reactor_handles;
        let live = LiveServer::new(&reactor, handles, stream_operations_max, &self.shutdown);
        let live = Arc::new(live);
        let endpoint = Endpoint {
            graph: serving.graph_name.clone(),
            page: EndpointPage {
                path: config.path.clone(),
                has_documents: !config.persisted_documents.manifests.is_empty(),
                page,
            },
            service: Arc::new(GraphqlEndpoint::new(&serving, &live)),
        };
        let graph_loads = GraphLoadMetrics::new();
        graph_loads.count(ReloadResult::Loaded);
        let reloader = Arc::new(Reloader {
            graph: name,
            config,
            serving,
            hub,
            providers: Arc::clone(&self.providers),
            stores: Arc::clone(&self.stores),
            callbacks: self.callbacks.clone(),
            numbers: Arc::clone(&self.numbers),
            pace: Arc::clone(&self.pace),
            metrics: Arc::new(graph_loads),
            shutdown: Arc::clone(&self.shutdown),
            changes: inputs.changes,
        });
        AssembledGraph { runner, live, endpoint, reloader }
    }
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
