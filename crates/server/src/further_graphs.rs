//! The further graphs of a process (`graphs`): they are loaded at the start, and each gets the parts of the router that
//! belong to one graph. Everything else they have in common with the graph of `supergraph`.

use std::sync::Arc;

use config::diagnostic::{Diagnostic, SourceText};
use config::{Config, GraphSettings};
use events::Providers;
use frontend::endpoint::{Endpoint, EndpointCondition};
use hub::Hub;
use live::live_server::LiveServer;
use live::operation_runner::OperationRunner;
use live::reactors::Reactors;
use redis_store::Stores;
use serving::generation::{self, GraphMaterial, ServingGraph};
use serving::serving::Serving;
use subscription_client::CallbackEndpoint;
use tokio::sync::{mpsc, watch};

use crate::assembly::{FurtherMaterial, RouterParts};
use crate::composition::{CompositionState, ReadScope};
use crate::generation_numbers::GenerationNumbers;
use crate::graph_assembly::{AssembledGraph, CommonParts, GraphInputs};
use crate::graph_load_metrics::GraphLoadMetrics;
use crate::graph_watch::GraphWatch;
use crate::invalidation_topics::InvalidationTopics;
use crate::reload::{self, Reloader};
use crate::reload_requests::{ReloadRequests, WaitingRequest};
use crate::start::first_graph;
use crate::supergraph_download::SupergraphDownloadMetrics;
use crate::supergraph_source::SupergraphSource;

/// A further graph that has been loaded.
pub(crate) struct LoadedGraph {
    settings: GraphSettings,
    /// The configuration of this graph.
    config: Config,
    watch: GraphWatch,
    loaded: ServingGraph,
    text: Arc<SourceText>,
    topics: InvalidationTopics,
}

impl LoadedGraph {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// The path of its endpoint.
    pub(crate) fn path(&self) -> &str {
        &self.config.path
    }
}

/// The parts of the process that graphs are loaded with.
#[derive(Clone, Copy)]
pub(crate) struct SharedMaterial<'a> {
    pub(crate) providers: &'a Arc<Providers>,
    pub(crate) stores: &'a Stores,
    pub(crate) callbacks: Option<&'a Arc<CallbackEndpoint>>,
    pub(crate) numbers: &'a GenerationNumbers,
}

/// Reads and loads the further graphs of a configuration, beside the graph of `supergraph`.
///
/// # Errors
/// The reasons why graphs do not load, each with the name of its graph.
pub(crate) async fn load_graphs(
    config: &Config,
    shared: SharedMaterial<'_>,
    first: &ServingGraph,
    reloads_on_hang_up: bool,
) -> Result<Vec<LoadedGraph>, Vec<Diagnostic>> {
    let (mut graphs, mut problems) = (Vec::new(), Vec::new());
    for settings in &config.graphs {
        match load_graph(config, settings, shared, first, reloads_on_hang_up).await {
            Ok(graph) => graphs.push(graph),
            Err(found) => problems.extend(found.into_iter().map(|it| with_name(settings, it))),
        }
    }
    if problems.is_empty() { Ok(graphs) } else { Err(problems) }
}

/// Says in a message which graph it is about.
pub(crate) fn with_name(settings: &GraphSettings, mut found: Diagnostic) -> Diagnostic {
    found.message = format!("graph `{}`: {}", settings.name, found.message);
    found
}

async fn load_graph(
    config: &Config,
    settings: &GraphSettings,
    shared: SharedMaterial<'_>,
    first: &ServingGraph,
    reloads_on_hang_up: bool,
) -> Result<LoadedGraph, Vec<Diagnostic>> {
    let SharedMaterial { providers, stores, callbacks, numbers } = shared;
    let mut config = config.of_graph(settings);
    // The graph of `supergraph` follows the topics of the configuration, and the caches are the same.
    config.cache.invalidate.clear();
    let topics = InvalidationTopics::new(&config, providers)?;
    let source = SupergraphSource::of(&config);
    let mut watch = GraphWatch::new(source, reloads_on_hang_up)?;
    let (loaded, text) = first_graph(&mut watch, ReadScope::Everything, |text| {
        let name = Some(&*settings.name);
        let material = GraphMaterial { config: &config, name, providers, stores, callbacks };
        numbers.load(|number| generation::load(material, text, number, Some(first)))
    })
    .await?;
    Ok(LoadedGraph { settings: settings.clone(), config, watch, loaded, text, topics })
}

/// A further graph that serves.
pub(crate) struct FurtherGraph {
    /// The name of the graph.
    pub(crate) name: Box<str>,
    /// The graph that serves now.
    pub(crate) serving: Arc<Serving>,
    /// Live subscriptions.
    pub(crate) hub: Arc<Hub>,
    /// The subscribers of clients.
    pub(crate) live: Arc<LiveServer>,
    /// Attempts to load the graph.
    pub(crate) graph_loads: Arc<GraphLoadMetrics>,
    /// The composition of the graph.
    pub(crate) composition: Arc<CompositionState>,
    /// The requests for the graph by URL, if it has one.
    pub(crate) supergraph_download: Option<Arc<SupergraphDownloadMetrics>>,
    /// Passes requests of operators to the task that reloads the graph.
    pub(crate) reload_requests: ReloadRequests,
}

/// A graph that serves, for the tasks that prepare operations ahead for it.
pub(crate) struct NamedGraph {
    /// The name of a further graph; `None` for the graph of `supergraph`.
    pub(crate) name: Option<Box<str>>,
    /// The graph that serves now.
    pub(crate) serving: Arc<Serving>,
}

/// The tasks of a further graph, which run once the router serves.
pub(crate) struct GraphTasks {
    reloader: Arc<Reloader>,
    live: Arc<LiveServer>,
    watch: GraphWatch,
    text: Arc<SourceText>,
    waiting_reloads: mpsc::Receiver<WaitingRequest>,
    topics: InvalidationTopics,
}

/// Assembles a further graph beside the graph of `first`. Its connections that have left HTTP are on reactors of its
/// own.
pub(crate) fn assemble_graph(
    material: FurtherMaterial,
    reactors: &Reactors,
    common: &CommonParts,
    first: &OperationRunner,
) -> (FurtherGraph, (EndpointCondition, Endpoint), GraphTasks) {
    let FurtherMaterial { graph, cursors, page, reactor_handles } = material;
    let LoadedGraph { settings, config, watch, loaded, text, topics } = graph;
    let AssembledGraph { live, endpoint, reloader, .. } = common.assemble_graph(GraphInputs {
        name: Some(settings.name.as_str().into()),
        serving: Arc::new(Serving::beside(&first.serving, &settings.name, &config, loaded)),
        config: Arc::new(config),
        limits: first.limits.of_another_graph(),
        cursors,
        page,
        reactors: Some(reactors),
        reactor_handles,
        changes: None,
    });
    let (reload_requests, waiting_reloads) = ReloadRequests::new();
    let further = FurtherGraph {
        name: settings.name.as_str().into(),
        serving: Arc::clone(&reloader.serving),
        hub: Arc::clone(&reloader.hub),
        live: Arc::clone(&live),
        graph_loads: Arc::clone(&reloader.metrics),
        composition: watch.composition_state(),
        supergraph_download: watch.download_metrics(),
        reload_requests,
    };
    let tasks = GraphTasks { reloader, live, watch, text, waiting_reloads, topics };
    (further, (EndpointCondition::new(&settings), endpoint), tasks)
}

impl GraphTasks {
    /// Starts the tasks. They end with the shutdown.
    pub(crate) fn start(self, shutdown: &watch::Receiver<bool>) {
        let Self { reloader, live, watch, text, waiting_reloads, topics } = self;
        topics.start(&reloader.serving, shutdown);
        tokio::spawn(reload::watch_certificates(Arc::clone(&reloader)));
        tokio::spawn(reload::follow_changes(watch, reloader, text, waiting_reloads));
        tokio::spawn(live::sse_single_connection::requests::sweep(live));
    }
}

impl RouterParts {
    /// Returns all graphs, that of `supergraph` first.
    pub(crate) fn named_graphs(&self) -> Vec<NamedGraph> {
        let first = NamedGraph { name: None, serving: Arc::clone(&self.reloader.serving) };
        let further = self.further.iter().map(|FurtherGraph { name, serving, .. }| NamedGraph {
            name: Some(name.clone()),
            serving: Arc::clone(serving),
        });
        std::iter::once(first).chain(further).collect()
    }

    /// Ends the live subscriptions of all graphs.
    pub(crate) async fn end_subscriptions(&self) {
        self.reloader.hub.shutdown().await;
        for graph in self.further.iter() {
            graph.hub.shutdown().await;
        }
    }
}
