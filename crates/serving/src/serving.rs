//! The graph that serves now, and the state that operations share across graphs. The graph changes and is read as a
//! snapshot; everything else is fixed at the start. `operation` prepares and runs operations with it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use clients::client_limits::ClientLimits;
use clients::operation_metrics::OperationMetrics;
use config::{Config, DEFAULT_GRAPH, TraceFetches};
use execute::{ClaimPath, ErrorCode};
use http::HeaderMap;
use persisted_documents::DocumentSet;
use redis_store::Stores;
use tokio::sync::watch;

use crate::figures::{FigureTables, RequestFigures};
use crate::generation::ServingGraph;
use crate::known_operations::{DocumentValidity, KnownOperations};
use crate::overload::OverloadProtection;
use crate::sharing::SharedWork;
use crate::trace::RequestTrace;

/// The graph that serves now, with the state of operations in flight.
pub struct Serving {
    /// The name of the graph, for logs and traces; `None` if the process serves one graph only.
    pub graph_name: Option<Arc<str>>,
    loaded: ArcSwap<ServingGraph>,
    /// The number of the current generation, for tasks that wait for the next one.
    generation: watch::Sender<u64>,
    /// The overload protection; `None` if it is turned off.
    pub overload: Option<Arc<OverloadProtection>>,
    /// The operations that clients may name by an id or a hash.
    pub known_operations: Arc<KnownOperations>,
    /// The validity of the persisted documents on this graph.
    pub document_validity: DocumentValidity,
    /// Work in flight that several requests share.
    pub sharing: SharedWork,
    /// The limits of clients, such as the one on parsing large requests.
    pub limits: Arc<ClientLimits>,
    /// The counters of the operations of this graph.
    pub metrics: Arc<OperationMetrics>,
    /// The metrics of single operations and clients; `None` if they are turned off.
    pub figures: Option<Arc<FigureTables>>,
    /// The time limit of an operation (`limits.time`).
    pub time_max: Duration,
    /// The path of the endpoint (`path`).
    pub path: Box<str>,
    /// The contents of traces that clients may request (`trace.enabled`); `None` if they may not.
    traces: Option<TraceFetches>,
}

impl Serving {
    /// Puts the first graph into service, with the documents of the manifests. Must be called inside a Tokio runtime,
    /// which then writes to the stores.
    pub fn new(
        config: &Config,
        loaded: ServingGraph,
        documents: DocumentSet,
        stores: &Stores,
        limits: &Arc<ClientLimits>,
    ) -> Self {
        Self {
            graph_name: (!config.graphs.is_empty()).then(|| DEFAULT_GRAPH.into()),
            generation: watch::Sender::new(loaded.generation.number),
            overload: loaded.overload.clone(),
            loaded: ArcSwap::from_pointee(loaded),
            known_operations: Arc::new(KnownOperations::new(config, documents, stores)),
            document_validity: DocumentValidity::default(),
            sharing: SharedWork::new(&config.sharing),
            limits: Arc::clone(limits),
            metrics: Arc::new(match config.graphs.is_empty() {
                true => OperationMetrics::default(),
                false => OperationMetrics::of_graph(&Arc::default()),
            }),
            figures: FigureTables::new(config).map(Arc::new),
            time_max: config.limits.time,
            path: config.path.as_str().into(),
            traces: config.trace.enabled.then_some(config.trace.fetches),
        }
    }

    /// Puts the first version of a further graph with this name into service, beside the graph of `first`. Both have
    /// the overload protection, the known operations, the limits and the counters of the process in common.
    pub fn beside(first: &Self, name: &str, config: &Config, loaded: ServingGraph) -> Self {
        Self {
            graph_name: Some(name.into()),
            generation: watch::Sender::new(loaded.generation.number),
            loaded: ArcSwap::from_pointee(loaded),
            overload: first.overload.clone(),
            known_operations: Arc::clone(&first.known_operations),
            document_validity: DocumentValidity::default(),
            // Its keys contain the number of the generation, which no two graphs of a process have in common.
            sharing: first.sharing.clone(),
            limits: Arc::clone(&first.limits),
            metrics: Arc::new(OperationMetrics::of_graph(first.process_metrics())),
            figures: first.figures.clone(),
            time_max: first.time_max,
            path: config.path.as_str().into(),
            traces: first.traces,
        }
    }

    /// Returns the counters of the operations of all graphs.
    pub fn process_metrics(&self) -> &Arc<OperationMetrics> {
        self.metrics.process().unwrap_or(&self.metrics)
    }

    /// Returns the graph that serves now.
    pub fn current(&self) -> Arc<ServingGraph> {
        self.loaded.load_full()
    }

    /// Returns the claims that operations on the current graph read, see [`ServingGraph::read_claims`].
    pub fn read_claims(&self) -> Arc<[ClaimPath]> {
        Arc::clone(&self.loaded.load().read_claims)
    }

    /// Puts another graph into service.
    pub fn serve(&self, loaded: Arc<ServingGraph>) {
        let number = loaded.generation.number;
        self.loaded.store(loaded);
        self.generation.send_replace(number);
    }

    /// Waits for a graph with a later number than `number`, and returns it.
    pub async fn wait_for_graph_after(&self, number: u64) -> Arc<ServingGraph> {
        // This struct owns the sender, so the wait cannot fail.
        let _ = self.generation.subscribe().wait_for(|generation| *generation > number).await;
        self.current()
    }

    /// Counts a prepared operation that is refused with this code: once among all operations, and once for its name and
    /// its client.
    pub fn count_refused(&self, request: Option<RequestFigures>, code: ErrorCode) {
        self.metrics.count_refusal(code);
        if let Some((figures, request)) = self.figures.as_ref().zip(request) {
            figures.count_without_response(request, Some(code));
        }
    }

    /// Starts a trace of a request with these headers, if its client requests one and the configuration has traces.
    /// Whether this client gets it (`trace.when`) is known once its operation is prepared.
    pub fn start_trace(&self, headers: &HeaderMap) -> Option<RequestTrace> {
        RequestTrace::requested(headers, self.traces?)
    }
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").field("graph", &self.current().generation).finish_non_exhaustive()
    }
}
