//! Reloads of the graph: when `graph_watch` notices a change, or an operator asks for it, the graph is read again. A
//! new graph that loads becomes the next generation; one that does not is refused, logged and counted, and the old one
//! stays. An operator may also return to an earlier graph, which becomes the next generation, too.

use std::sync::Arc;
use std::time::Duration;

use clients::shutdown::Shutdown;
use config::Config;
use config::diagnostic::{self, Diagnostic, SourceText, Style};
use events::Providers;
use hub::{GroupId, Hub, LiveOperation, OperationUpdate};
use redis_store::Stores;
use serving::generation::{self, GraphMaterial, ServingGraph};
use serving::serving::Serving;
use serving::subscription_migration;
use subscription_client::CallbackEndpoint;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use crate::composition::ReadScope;
use crate::generation_numbers::GenerationNumbers;
use crate::graph_change::{GraphChange, GraphDifference};
use crate::graph_history::GraphHistory;
use crate::graph_load_metrics::{GraphLoadMetrics, ReloadResult};
use crate::graph_watch::GraphWatch;
use crate::preparation_pace::PreparationPace;
use crate::reload_requests::{ReloadOutcome, ReloadRequest, WaitingRequest};

/// The parts of the router that a reload reads and changes.
pub(crate) struct Reloader {
    /// The name of a further graph; `None` for the graph of `supergraph`.
    pub(crate) graph: Option<Box<str>>,
    /// The configuration of the graph, as loaded at the start.
    pub(crate) config: Arc<Config>,
    /// The graph that serves.
    pub(crate) serving: Arc<Serving>,
    /// Live subscriptions, which move to the new graph.
    pub(crate) hub: Arc<Hub>,
    /// The brokers.
    pub(crate) providers: Arc<Providers>,
    /// The stores that several routers share.
    pub(crate) stores: Arc<Stores>,
    /// The endpoint for callbacks of subgraphs, if one is configured.
    pub(crate) callbacks: Option<Arc<CallbackEndpoint>>,
    /// The numbers of generations.
    pub(crate) numbers: Arc<GenerationNumbers>,
    /// The pace at which operations are prepared in the background, which all graphs share.
    pub(crate) pace: Arc<PreparationPace>,
    /// The counters of reloads.
    pub(crate) metrics: Arc<GraphLoadMetrics>,
    /// The state of the shutdown.
    pub(crate) shutdown: Arc<Shutdown>,
    /// The observer of reloads, if there is one. It reports refused graphs instead of the log.
    pub(crate) changes: Option<mpsc::UnboundedSender<GraphChange>>,
}

impl Reloader {
    /// The name of a further graph, for the log.
    fn graph(&self) -> Option<&str> {
        self.graph.as_deref()
    }

    /// Passes a change to the observer. One that has gone is ignored.
    fn announce(&self, change: impl FnOnce() -> GraphChange) {
        if let Some(changes) = &self.changes {
            let _ = changes.send(change());
        }
    }
}

/// Loads changed graphs, and serves the requests of operators, until shutdown. `first` is the graph that serves.
pub(crate) async fn follow_changes(
    mut watch: GraphWatch,
    reloader: Arc<Reloader>,
    first: Arc<SourceText>,
    mut requests: mpsc::Receiver<WaitingRequest>,
) {
    let mut shutdown = reloader.shutdown.signal();
    let mut history = GraphHistory::new(first);
    loop {
        let cause = tokio::select! {
            scope = watch.wait_for_change() => ReloadCause::Change(scope),
            Some(waiting) = requests.recv() => ReloadCause::Request(waiting),
            _ = shutdown.wait_for(|stop| *stop) => return,
        };
        match cause {
            ReloadCause::Change(scope) => {
                reload(&reloader, &mut watch, &mut history, scope).await;
            }
            ReloadCause::Request(WaitingRequest { request, respond }) => {
                let outcome = match request {
                    ReloadRequest::Reload => {
                        reload(&reloader, &mut watch, &mut history, ReadScope::Everything).await
                    }
                    ReloadRequest::Rollback => roll_back(&reloader, &mut history).await,
                };
                // The log has the result for an operator that has gone.
                let _ = respond.send(outcome);
            }
        }
    }
}

/// The reason to read the graph again or to return to the one before.
enum ReloadCause {
    /// The source has changed.
    Change(ReadScope),
    /// An operator asks for it.
    Request(WaitingRequest),
}

/// The maximum number of operations that a new graph prepares before it serves: the most used ones of the previous
/// graph. An application has some hundreds; the others are prepared on their first request.
const WARMED_MAX: usize = 256;

/// The maximum time for which a new graph waits for these operations.
const WARMING_TIME_MAX: Duration = Duration::from_secs(10);

/// Prepares the most used operations of `old` for `new`, while the old graph serves.
async fn warm(pace: &PreparationPace, new: &ServingGraph, old: &ServingGraph) {
    let started = Instant::now();
    let deadline = started + WARMING_TIME_MAX;
    let mut prepared = 0_usize;
    for used in old.preparer.most_used(WARMED_MAX) {
        let preparing = new.preparer.prepare(&used.request);
        let Some(result) = pace.run_before(deadline, preparing).await else { break };
        // An operation that is not valid any more is reported to the next client that sends it.
        if let Ok(operation) = result {
            // What is used no longer is forgotten after some graphs.
            operation.credit_uses(used.uses / 2);
            prepared += 1;
        }
    }
    tracing::debug!(prepared, elapsed = ?started.elapsed(), "operations were prepared for the new supergraph");
}

/// Reads the graph, and puts it into service if it has changed. A graph that an operator has left by a rollback is not
/// loaded again, unless everything is read anew.
async fn reload(
    reloader: &Arc<Reloader>,
    watch: &mut GraphWatch,
    history: &mut GraphHistory,
    scope: ReadScope,
) -> ReloadOutcome {
    let current = reloader.serving.current();
    let generation = current.generation.id();
    let read = match watch.read(scope).await {
        Ok(read) => read,
        Err(problems) => return refuse(reloader, &current, problems, watch.is_composed()),
    };
    let left = history.left().filter(|_| scope == ReadScope::Files);
    match load_next(reloader, &current, &read.text, left).await {
        Ok(NextGraph::Serving) => {
            history.on_unchanged();
            watch.on_loaded().await;
            reloader.metrics.count(ReloadResult::Unchanged);
            tracing::info!(
                graph = reloader.graph(),
                generation,
                "the supergraph has not changed (the configuration is read at the start only)"
            );
            reloader.announce(|| GraphChange::Unchanged);
            ReloadOutcome::Unchanged { generation }
        }
        Ok(NextGraph::Left) => {
            reloader.metrics.count(ReloadResult::Unchanged);
            tracing::info!(
                graph = reloader.graph(),
                generation,
                "the supergraph is still the one before the rollback; POST /admin/reload loads it again"
            );
            ReloadOutcome::Unchanged { generation }
        }
        Ok(NextGraph::Loaded(loaded)) => {
            diagnostic::log(&read.warnings);
            let loaded = serve_next(reloader, &current, *loaded).await;
            history.on_loaded(read.text);
            watch.on_loaded().await;
            reloader.metrics.count(ReloadResult::Loaded);
            reloader.metrics.set_earlier(history.len());
            ReloadOutcome::Loaded { generation: loaded, before: generation }
        }
        Err(problems) => refuse(reloader, &current, problems, false),
    }
}

/// Returns to the graph before the one that serves.
async fn roll_back(reloader: &Arc<Reloader>, history: &mut GraphHistory) -> ReloadOutcome {
    let current = reloader.serving.current();
    let generation = current.generation.id();
    let Some(text) = history.before().cloned() else {
        return ReloadOutcome::NothingBefore { generation };
    };
    match load_next(reloader, &current, &text, None).await {
        Ok(NextGraph::Loaded(loaded)) => {
            let loaded = serve_next(reloader, &current, *loaded).await;
            history.on_rolled_back();
            reloader.metrics.count(ReloadResult::RolledBack);
            reloader.metrics.set_earlier(history.len());
            tracing::warn!(
                graph = reloader.graph(),
                generation = loaded,
                before = generation,
                "an operator has returned to the supergraph before; it serves until the source changes or is reloaded"
            );
            ReloadOutcome::Loaded { generation: loaded, before: generation }
        }
        // Neighbours in the history are different texts.
        Ok(NextGraph::Serving | NextGraph::Left) => ReloadOutcome::Unchanged { generation },
        Err(problems) => refuse(reloader, &current, problems, false),
    }
}

/// A text that was loaded, or need not be.
enum NextGraph {
    /// The graph serves already.
    Serving,
    /// An operator has left the graph by a rollback.
    Left,
    /// Another graph, which is loaded.
    Loaded(Box<ServingGraph>),
}

/// Loads a text as the next generation, unless that is the graph that serves, or the one with the hash `left`.
///
/// # Errors
/// The reasons why it does not load.
async fn load_next(
    reloader: &Arc<Reloader>,
    current: &Arc<ServingGraph>,
    text: &Arc<SourceText>,
    left: Option<u64>,
) -> Result<NextGraph, Vec<Diagnostic>> {
    let (reloader, previous, text) = (Arc::clone(reloader), Arc::clone(current), Arc::clone(text));
    // Reading a large schema takes a while, so it runs on the blocking pool.
    let result = tokio::task::spawn_blocking(move || {
        let identity = generation::identity(&text.text);
        if identity == previous.generation.graph_id {
            return Ok(NextGraph::Serving);
        }
        if left == Some(identity) {
            return Ok(NextGraph::Left);
        }
        let Reloader { config, providers, stores, callbacks, .. } = &*reloader;
        let (name, callbacks) = (reloader.graph(), callbacks.as_ref());
        let material = GraphMaterial { config, name, providers, stores, callbacks };
        let load = |number| generation::load(material, &text, number, Some(&previous));
        reloader.numbers.load(load).map(|loaded| NextGraph::Loaded(Box::new(loaded)))
    });
    result.await.unwrap_or_else(|panic| {
        let message = format!("loading the supergraph failed because of a defect: {panic}");
        Err(vec![Diagnostic::error("internal", message)])
    })
}

/// Puts the next generation into service, announces it, and returns its id.
async fn serve_next(
    reloader: &Arc<Reloader>,
    current: &ServingGraph,
    loaded: ServingGraph,
) -> String {
    warm(&reloader.pace, &loaded, current).await;
    let (generation, graph) = (loaded.generation.id(), Arc::clone(&loaded.generation.graph));
    put_into_service(reloader, loaded).await;
    reloader.announce(|| {
        let old = &current.generation.graph;
        GraphChange::Replaced(GraphDifference::between(old, &graph))
    });
    generation
}

/// Counts and reports a graph that does not replace the one that serves. Each problem of a composition is one line of
/// the log: there may be many, and each has a code that an operator can look up.
fn refuse(
    reloader: &Reloader,
    current: &ServingGraph,
    problems: Vec<Diagnostic>,
    is_composition: bool,
) -> ReloadOutcome {
    let generation = current.generation.id();
    let messages = problems.iter().map(ToString::to_string).collect();
    let outcome = ReloadOutcome::Refused { generation: generation.clone(), problems: messages };
    reloader.metrics.count(ReloadResult::Refused);
    if reloader.changes.is_some() {
        reloader.announce(|| GraphChange::Refused(problems));
        return outcome;
    }
    if is_composition {
        diagnostic::log(&problems);
        tracing::error!(
            graph = reloader.graph(),
            generation,
            errors = problems.len(),
            "the subgraphs do not compose; the last good graph continues to serve"
        );
        return outcome;
    }
    let problems = diagnostic::render(&problems, Style::Plain);
    tracing::error!(
        graph = reloader.graph(),
        generation,
        "the new supergraph was refused; the old one continues to serve:\n{problems}"
    );
    outcome
}

/// The maximum time for which a new graph waits for operations to be prepared before it serves. The remaining ones
/// follow while it serves.
const RENEWING_TIME_MAX: Duration = Duration::from_secs(10);

/// The maximum number of operations that are prepared in one turn. One that the preparer knows takes some microseconds.
const RENEWED_PER_TURN: usize = 64;

/// The time after which a turn prepares no further operation, because other graphs wait for theirs. One that the
/// preparer does not know takes some milliseconds, and that of a large graph more.
const TURN_TIME_MAX: Duration = Duration::from_millis(10);

/// The minimum number of operations that are passed to the hub together while the new graph already serves, but not
/// less than a sixteenth of the remaining ones: each call visits all groups.
const PORTION_MIN: usize = 1024;

/// Puts `loaded` into service, and migrates every live operation to it.
async fn put_into_service(reloader: &Reloader, loaded: ServingGraph) {
    let loaded = Arc::new(loaded);
    let number = loaded.generation.number;
    let started = Instant::now();
    let old = reloader.hub.operations_before(number).await;
    let (count, deadline) = (old.len(), started + RENEWING_TIME_MAX);
    let renewals = renew_all(&reloader.pace, &loaded, &old, Some(deadline)).await;
    drop(old);
    let mut left = reloader.hub.advance(number, renewals).await;
    reloader.serving.serve(Arc::clone(&loaded));
    let (graph, generation) = (reloader.graph(), loaded.generation.id());
    tracing::info!(graph, generation, "a new supergraph serves now");
    while !left.is_empty() {
        let portion = PORTION_MIN.max(left.len() / 16).min(left.len());
        let rest = left.split_off(portion);
        let renewals = renew_all(&reloader.pace, &loaded, &left, None).await;
        // The result contains the remaining groups, and those that have ended since.
        reloader.hub.advance(number, renewals).await;
        left = rest;
    }
    tracing::debug!(groups = count, elapsed = ?started.elapsed(), "live operations have moved to the new supergraph");
}

/// Prepares `old` for a new graph, turn by turn, until `deadline`.
async fn renew_all(
    pace: &PreparationPace,
    loaded: &Arc<ServingGraph>,
    old: &[(GroupId, Arc<LiveOperation>)],
    deadline: Option<Instant>,
) -> Vec<OperationUpdate> {
    let mut renewals = Vec::with_capacity(old.len());
    while renewals.len() < old.len() {
        let turn = renew_some(loaded, &old[renewals.len()..]);
        let renewed = match deadline {
            Some(deadline) => pace.run_before(deadline, turn).await,
            None => Some(pace.run(turn).await),
        };
        let Some(renewed) = renewed else { break };
        renewals.extend(renewed);
    }
    renewals
}

/// Prepares the first operations of `old` for a new graph: those that fit into one turn, at least one.
async fn renew_some(
    loaded: &Arc<ServingGraph>,
    old: &[(GroupId, Arc<LiveOperation>)],
) -> Vec<OperationUpdate> {
    let began = Instant::now();
    let mut renewals = Vec::with_capacity(old.len().min(RENEWED_PER_TURN));
    for (group, operation) in old.iter().take(RENEWED_PER_TURN) {
        let renewal = subscription_migration::renew(loaded, operation).await;
        renewals.push((*group, renewal.map_err(Box::new)));
        if began.elapsed() >= TURN_TIME_MAX {
            break;
        }
    }
    renewals
}

/// The interval at which files of subgraph certificates are checked. A new file is used after two checks.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Reads changed files of subgraph certificates, until shutdown.
pub(crate) async fn watch_certificates(reloader: Arc<Reloader>) {
    let mut shutdown = reloader.shutdown.signal();
    let mut ticks = tokio::time::interval(CERTIFICATE_CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        let loaded = reloader.serving.current();
        // A panic there has been reported; the next check tries again.
        let _ = tokio::task::spawn_blocking(move || loaded.certificates.reload_if_changed()).await;
    }
}
