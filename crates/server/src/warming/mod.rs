//! The start of a router that takes load from others: it prepares the operations that are in use elsewhere, for each of
//! its graphs, before it is ready, and then takes its full share of the load after a while.
//!
//! - `source` reads the operations from a file or from another router.
//! - `export` is the list of operations that a router offers to others.
//! - `metrics` has the metrics.

pub(crate) mod export;
pub(crate) mod metrics;
mod source;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use admission::Ramp;
use config::WarmingSource;
use futures_util::future::join_all;
use persisted_documents::PersistedDocument;
use prepare::{OperationRequest, PrepareError};
use tokio::sync::watch;

use crate::further_graphs::NamedGraph;
use crate::preparation_pace::PreparationPace;

/// The progress of a start, which the readiness check, load reports and metrics show.
#[derive(Debug)]
pub(crate) struct Warming {
    settings: config::Warming,
    started: Instant,
    is_over: AtomicBool,
    /// The number of graphs for which the persisted documents have been prepared.
    graphs_with_documents: watch::Sender<usize>,
    ramp: Mutex<Ramp>,
    counts: WarmingCounts,
    /// The pace of all graphs, also for persisted documents and reloads.
    pub(crate) pace: Arc<PreparationPace>,
}

/// Counts of the operations of the source, as sums over all graphs.
#[derive(Debug, Default)]
struct WarmingCounts {
    wanted: AtomicU64,
    prepared: AtomicU64,
    invalid: AtomicU64,
    source_failures: AtomicU64,
    /// The time that warming took, in microseconds.
    micros: AtomicU64,
}

impl Warming {
    /// Creates the progress of a start that begins now.
    pub(crate) fn new(settings: &config::Warming) -> Self {
        Self {
            started: Instant::now(),
            is_over: AtomicBool::new(false),
            graphs_with_documents: watch::Sender::new(0),
            ramp: Mutex::new(Ramp::new(settings.ramp)),
            counts: WarmingCounts::default(),
            pace: Arc::new(PreparationPace::new()),
            settings: settings.clone(),
        }
    }

    /// Returns the reason why the router is not ready yet, for the readiness check; `None` once it is.
    pub(crate) fn unready_reason(&self) -> Option<String> {
        if self.is_over.load(Relaxed) {
            return None;
        }
        let (wanted, prepared) = (self.counts.wanted.load(Relaxed), self.counts.handled());
        Some(format!("warming: {prepared} of {wanted} operations are prepared\n"))
    }

    /// Returns the share of the load that the router takes now, from a tenth to 1.
    pub(crate) fn share(&self) -> f64 {
        self.ramp().share(self.started.elapsed())
    }

    /// Notes that the persisted documents have been prepared for one more graph. Must be called once for each.
    pub(crate) fn note_documents_prepared(&self) {
        self.graphs_with_documents.send_modify(|it| *it += 1);
    }

    /// Prepares what the configuration names for all graphs, within its time limit. The router is ready when this
    /// returns.
    async fn run(&self, graphs: &[NamedGraph], waits_for_documents: bool) {
        let prepare = async {
            if let Some(source) = &self.settings.operations {
                self.prepare_operations(graphs, source).await;
            }
            if waits_for_documents {
                let mut prepared = self.graphs_with_documents.subscribe();
                // The sender lives as long as this.
                let _ = prepared.wait_for(|it| *it >= graphs.len()).await;
            }
        };
        let is_complete = tokio::time::timeout(self.settings.timeout, prepare).await.is_ok();
        self.log_end(is_complete);
        self.finish(graphs);
    }

    /// Ends the warming, and begins the ramp.
    fn finish(&self, graphs: &[NamedGraph]) {
        let elapsed = self.started.elapsed();
        self.ramp().begin(elapsed);
        // All graphs have the overload protection in common.
        if let Some(overload) = graphs.first().and_then(|it| it.serving.overload.as_ref()) {
            overload.begin_ramp();
        }
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.counts.micros.store(micros, Relaxed);
        self.is_over.store(true, Relaxed);
    }

    fn log_end(&self, is_complete: bool) {
        let counts = &self.counts;
        let (wanted, handled) = (counts.wanted.load(Relaxed), counts.handled());
        let (invalid, elapsed) = (counts.invalid.load(Relaxed), self.started.elapsed());
        if is_complete {
            tracing::info!(prepared = handled - invalid, invalid, ?elapsed, "the router is warm");
        } else {
            tracing::warn!(
                prepared = handled - invalid,
                invalid,
                left = wanted.saturating_sub(handled),
                ?elapsed,
                "the router is ready before all operations are prepared (`warming.timeout`)"
            );
        }
    }

    /// Reads the operations of a source, and prepares them for all graphs at the same time. A file is read once and
    /// tried for each graph; a URL is requested for each graph.
    async fn prepare_operations(&self, graphs: &[NamedGraph], source: &WarmingSource) {
        let file = match &source.file {
            Some(_) => match self.read_operations(source, None).await {
                Some(operations) => Some(operations),
                None => return,
            },
            None => None,
        };
        let prepared = graphs.iter().map(|it| self.prepare_for_graph(it, source, file.as_deref()));
        join_all(prepared).await;
    }

    async fn prepare_for_graph(
        &self,
        graph: &NamedGraph,
        source: &WarmingSource,
        file: Option<&[PersistedDocument]>,
    ) {
        if let Some(operations) = file {
            return self.prepare_all(graph, source, operations).await;
        }
        if let Some(operations) = self.read_operations(source, graph.name.as_deref()).await {
            self.prepare_all(graph, source, &operations).await;
        }
    }

    /// Reads the operations of a source. One that cannot be used is counted and logged.
    async fn read_operations(
        &self,
        source: &WarmingSource,
        graph: Option<&str>,
    ) -> Option<Vec<PersistedDocument>> {
        match source::read_operations(source, graph, self.settings.timeout).await {
            Ok(operations) => Some(operations),
            Err(reason) => {
                self.counts.source_failures.fetch_add(1, Relaxed);
                tracing::warn!(
                    graph,
                    source = source::shown_name(source),
                    reason,
                    "the operations of `warming.operations` cannot be read; the router starts without them"
                );
                None
            }
        }
    }

    async fn prepare_all(
        &self,
        graph: &NamedGraph,
        source: &WarmingSource,
        operations: &[PersistedDocument],
    ) {
        self.counts.wanted.fetch_add(operations.len() as u64, Relaxed);
        let current = graph.serving.current();
        let (mut invalid, mut first_invalid) = (0_u64, None);
        for document in operations {
            let request = OperationRequest {
                query: document.text.clone(),
                operation_name: document.name.clone(),
                ..OperationRequest::default()
            };
            match self.pace.prepare(&current.preparer, &request).await {
                Ok(prepared) => {
                    // It is in use elsewhere, so the next graph and other routers get it from here, too.
                    prepared.credit_uses(1);
                    self.counts.prepared.fetch_add(1, Relaxed);
                }
                // Clients have priority.
                Err(PrepareError::Overloaded) => {}
                Err(error) => {
                    self.counts.invalid.fetch_add(1, Relaxed);
                    invalid += 1;
                    first_invalid.get_or_insert_with(|| error.to_string());
                }
            }
        }
        if let Some(reason) = first_invalid {
            tracing::info!(
                graph = graph.name.as_deref(),
                source = source::shown_name(source),
                invalid,
                of = operations.len(),
                reason,
                "operations of `warming.operations` are not valid on this graph"
            );
        }
    }

    fn ramp(&self) -> MutexGuard<'_, Ramp> {
        // Each change is one step.
        self.ramp.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WarmingCounts {
    /// The number of operations that were prepared or are not valid.
    fn handled(&self) -> u64 {
        self.prepared.load(Relaxed) + self.invalid.load(Relaxed)
    }
}

/// Warms the router, as a task of this runtime that ends with the shutdown. Without anything to prepare, the router is
/// ready when this returns. `graphs` are all graphs of the router. `has_documents` says whether persisted documents are
/// prepared ahead.
pub(crate) fn start(
    warming: &Arc<Warming>,
    graphs: Vec<NamedGraph>,
    has_documents: bool,
    mut stop: watch::Receiver<bool>,
) {
    let waits_for_documents = warming.settings.persisted_documents && has_documents;
    if warming.settings.operations.is_none() && !waits_for_documents {
        return warming.finish(&graphs);
    }
    let warming = Arc::clone(warming);
    tokio::spawn(async move {
        tokio::select! {
            () = warming.run(&graphs, waits_for_documents) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    });
}
