//! Reloads of the graph: when `graph_watch` notices a change, the graph is read again. A new graph that loads becomes
//! the next generation; one that does not is refused, logged and counted, and the old one stays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clients::shutdown::Shutdown;
use config::Config;
use config::diagnostic::{self, Diagnostic, Style};
use events::Providers;
use hub::{GroupId, Hub, LiveOperation, OperationUpdate};
use redis_store::Stores;
use serving::generation::{self, ServingGraph};
use serving::serving::Serving;
use serving::subscription_migration;
use subscription_client::CallbackEndpoint;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::composition::ReadScope;
use crate::graph_change::{GraphChange, GraphDifference};
use crate::graph_load_metrics::{GraphLoadMetrics, ReloadResult};
use crate::graph_watch::GraphWatch;

/// The parts of the router that a reload reads and changes.
pub(crate) struct Reloader {
    /// The configuration, as loaded at the start.
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
    /// The counters of reloads.
    pub(crate) metrics: Arc<GraphLoadMetrics>,
    /// The state of the shutdown.
    pub(crate) shutdown: Arc<Shutdown>,
    /// The observer of reloads, if there is one. It reports refused graphs instead of the log.
    pub(crate) changes: Option<mpsc::UnboundedSender<GraphChange>>,
}

impl Reloader {
    /// Passes a change to the observer. One that has gone is ignored.
    fn announce(&self, change: impl FnOnce() -> GraphChange) {
        if let Some(changes) = &self.changes {
            let _ = changes.send(change());
        }
    }
}

/// Loads changed graphs, until shutdown.
pub(crate) async fn follow_changes(mut watch: GraphWatch, reloader: Arc<Reloader>) {
    let mut shutdown = reloader.shutdown.signal();
    loop {
        let scope = tokio::select! {
            scope = watch.wait_for_change() => scope,
            _ = shutdown.wait_for(|stop| *stop) => return,
        };
        reload(&reloader, &mut watch, scope).await;
    }
}

/// The maximum number of operations that a new graph prepares before it serves: the most used ones of the previous
/// graph. An application has some hundreds; the others are prepared on their first request.
const WARMED_MAX: usize = 256;

/// The maximum time for which a new graph waits for these operations.
const WARMING_TIME_MAX: Duration = Duration::from_secs(10);

/// Prepares the most used operations of `old` for `new`, while the old graph serves.
async fn warm(new: &ServingGraph, old: &ServingGraph) {
    let started = Instant::now();
    let mut prepared = 0_usize;
    for request in old.preparer.most_used(WARMED_MAX) {
        if started.elapsed() >= WARMING_TIME_MAX {
            break;
        }
        let one = Instant::now();
        // An operation that is not valid any more is reported to the next client that sends it.
        prepared += usize::from(new.preparer.prepare(&request).await.is_ok());
        // Requests have priority: this takes at most half of one CPU.
        tokio::time::sleep(one.elapsed()).await;
    }
    tracing::debug!(prepared, elapsed = ?started.elapsed(), "operations were prepared for the new supergraph");
}

/// Reads the graph, and puts it into service if it has changed.
async fn reload(reloader: &Arc<Reloader>, watch: &mut GraphWatch, scope: ReadScope) {
    let current = reloader.serving.current();
    let number = current.generation.number + 1;
    let read = match watch.read(scope).await {
        Ok(read) => read,
        Err(problems) => {
            let generation = current.generation.number;
            return refuse(reloader, generation, problems, watch.is_composed());
        }
    };
    let (loading, text) = (Arc::clone(reloader), read.text);
    let previous = Arc::clone(&current);
    // Reading a large schema takes a while, so it runs on the blocking pool.
    let result = tokio::task::spawn_blocking(move || {
        if generation::identity(&text.text) == previous.generation.graph_id {
            return Ok(None);
        }
        let Reloader { config, providers, stores, callbacks, .. } = &*loading;
        let callbacks = callbacks.as_ref();
        generation::load(config, &text, providers, stores, callbacks, number, Some(&previous))
            .map(Some)
    })
    .await;
    match result {
        Ok(Ok(None)) => {
            reloader.metrics.count(ReloadResult::unchanged);
            tracing::info!(
                generation = current.generation.number,
                "the supergraph has not changed (the configuration is read at the start only)"
            );
            reloader.announce(|| GraphChange::Unchanged);
        }
        Ok(Ok(Some(loaded))) => {
            log_if_enabled(&read.warnings);
            warm(&loaded, &current).await;
            let graph = Arc::clone(&loaded.generation.graph);
            put_into_service(reloader, loaded).await;
            reloader.metrics.count(ReloadResult::loaded);
            reloader.announce(|| {
                let old = &current.generation.graph;
                GraphChange::Replaced(GraphDifference::between(old, &graph))
            });
        }
        Ok(Err(problems)) => refuse(reloader, current.generation.number, problems, false),
        Err(panic) => {
            reloader.metrics.count(ReloadResult::refused);
            tracing::error!(%panic, "loading the supergraph failed because of a defect; the old one continues to serve");
        }
    }
}

/// Counts and reports a graph that does not replace the one of `generation`. Each problem of a composition is one line
/// of the log: there may be many, and each has a code that an operator can look up.
fn refuse(reloader: &Reloader, generation: u64, problems: Vec<Diagnostic>, is_composition: bool) {
    reloader.metrics.count(ReloadResult::refused);
    if reloader.changes.is_some() {
        return reloader.announce(|| GraphChange::Refused(problems));
    }
    if is_composition {
        log_if_enabled(&problems);
        tracing::error!(
            generation,
            errors = problems.len(),
            "the subgraphs do not compose; the last good graph continues to serve"
        );
        return;
    }
    let problems = diagnostic::render(&problems, Style::Plain);
    tracing::error!(
        generation,
        "the new supergraph was refused; the old one continues to serve:\n{problems}"
    );
}

/// Logs messages, except at the level `off`: at that level [`diagnostic::log`] prints the reasons of a failed start,
/// and these are none.
pub(crate) fn log_if_enabled(messages: &[Diagnostic]) {
    if tracing::enabled!(tracing::Level::ERROR) {
        diagnostic::log(messages);
    }
}

/// The maximum time for which a new graph waits for operations to be prepared before it serves. The remaining ones
/// follow while it serves.
const RENEWING_TIME_MAX: Duration = Duration::from_secs(10);

/// The number of operations prepared before other tasks get their turn. One that the preparer knows takes some
/// microseconds.
const RENEWED_PER_TURN: usize = 64;

/// The minimum number of operations that are passed to the hub together while the new graph already serves, but not
/// less than a sixteenth of the remaining ones: each call visits all groups.
const PORTION_MIN: usize = 1024;

/// Puts `loaded` into service, and migrates every live operation to it.
async fn put_into_service(reloader: &Reloader, loaded: ServingGraph) {
    let loaded = Arc::new(loaded);
    let number = loaded.generation.number;
    let started = Instant::now();
    let old = reloader.hub.operations_before(number).await;
    let count = old.len();
    let renewals = renew_all(&loaded, &old, Some(started + RENEWING_TIME_MAX)).await;
    drop(old);
    let mut left = reloader.hub.advance(number, renewals).await;
    reloader.serving.serve(Arc::clone(&loaded));
    tracing::info!(generation = number, "a new supergraph serves now");
    while !left.is_empty() {
        let portion = PORTION_MIN.max(left.len() / 16).min(left.len());
        let rest = left.split_off(portion);
        let renewals = renew_all(&loaded, &left, None).await;
        // The result contains the remaining groups, and those that have ended since.
        reloader.hub.advance(number, renewals).await;
        left = rest;
    }
    tracing::debug!(groups = count, elapsed = ?started.elapsed(), "live operations have moved to the new supergraph");
}

/// Prepares `old` for a new graph, until `deadline`. Requests have priority: this takes at most half of one CPU.
async fn renew_all(
    loaded: &Arc<ServingGraph>,
    old: &[(GroupId, Arc<LiveOperation>)],
    deadline: Option<Instant>,
) -> Vec<OperationUpdate> {
    let mut renewals = Vec::with_capacity(old.len());
    for turn in old.chunks(RENEWED_PER_TURN) {
        let began = Instant::now();
        if deadline.is_some_and(|deadline| began >= deadline) {
            break;
        }
        for (group, operation) in turn {
            renewals.push((
                *group,
                subscription_migration::renew(loaded, operation).await.map_err(Box::new),
            ));
        }
        tokio::time::sleep(began.elapsed()).await;
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
