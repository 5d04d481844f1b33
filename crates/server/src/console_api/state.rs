//! The state of the console: what it keeps between requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use config::DEFAULT_GRAPH;
use futures_util::future::join_all;
use http::HeaderValue;
use hub::Hub;
use live::live_server::LiveServer;
use serving::serving::Serving;
use telemetry::history::{History, INTERVAL};
use telemetry::spans::{FlightRecorder, Tracer};

use super::figures::FigureReader;
use super::graph_map::LastReload;
use super::log_level::TemporaryLevel;
use crate::admin::state::unknown_graph;
use crate::metrics_export::MetricsSources;

/// The state of the console.
#[derive(Debug)]
pub(crate) struct ConsoleState {
    pub(super) settings: config::Console,
    pub(super) figures: FigureReader,
    history: Mutex<History>,
    pub(super) started: Instant,
    pub(super) log_level: TemporaryLevel,
    /// The graphs, that of `supergraph` first.
    graphs: Box<[Arc<GraphState>]>,
    /// The tracer with the flight recorder, if there is one.
    tracer: Option<Arc<Tracer>>,
}

/// The parts of one graph that the pages read, and what is kept of it.
#[derive(Debug)]
pub(super) struct GraphState {
    pub(super) name: Box<str>,
    /// The graph that serves.
    pub(super) serving: Arc<Serving>,
    /// The groups of subscribers.
    pub(super) hub: Arc<Hub>,
    /// The subscribers of clients.
    pub(super) live: Arc<LiveServer>,
    pub(super) last_reload: LastReload,
}

impl GraphState {
    /// Creates the state of a graph. `live` has its subscribers.
    fn new(name: &str, live: &Arc<LiveServer>) -> Arc<Self> {
        let runner = live.runner();
        Arc::new(Self {
            name: name.into(),
            serving: Arc::clone(&runner.serving),
            hub: Arc::clone(&runner.hub),
            live: Arc::clone(live),
            last_reload: LastReload::default(),
        })
    }
}

impl ConsoleState {
    /// Creates the state of a console with these settings; `None` if there is none. `live` has the subscribers of the
    /// graph of `supergraph`.
    pub(crate) fn new(
        settings: &config::Console,
        sources: &Arc<MetricsSources>,
        live: &Arc<LiveServer>,
    ) -> Option<Arc<Self>> {
        let history = sources.history.as_ref().filter(|_| settings.enabled)?;
        let first = GraphState::new(DEFAULT_GRAPH, live);
        let further = sources.further.iter().map(|it| GraphState::new(&it.name, &it.live));
        Some(Arc::new(Self {
            settings: settings.clone(),
            figures: FigureReader::new(sources),
            history: Mutex::new(History::new(history)),
            started: Instant::now(),
            log_level: TemporaryLevel::default(),
            graphs: std::iter::once(first).chain(further).collect(),
            tracer: sources.http.pipeline.tracer.clone(),
        }))
    }

    /// Locks the history. Every change of it is complete, so the history behind a poisoned lock is sound.
    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn recorder(&self) -> Option<&FlightRecorder> {
        self.tracer.as_ref()?.recorder()
    }

    /// Returns the graph with this name; without a name, the graph of `supergraph`.
    ///
    /// # Errors
    /// There is none. The error is a line of text with the names that there are.
    pub(super) fn graph(&self, name: Option<&str>) -> Result<&Arc<GraphState>, String> {
        let name = name.unwrap_or(DEFAULT_GRAPH);
        let found = self.graphs.iter().find(|it| *it.name == *name);
        found.ok_or_else(|| unknown_graph(self.graph_names()))
    }

    /// Returns the names of the graphs.
    pub(super) fn graph_names(&self) -> impl Iterator<Item = &str> {
        self.graphs.iter().map(|it| &*it.name)
    }

    /// Returns the names of the graphs, separated by commas, as the value of a header. A name has at most 64 letters,
    /// digits, `-`, `_` and `.`; `None` never happens.
    pub(super) fn graphs_header(&self) -> Option<HeaderValue> {
        let names: Vec<&str> = self.graph_names().collect();
        HeaderValue::from_str(&names.join(",")).ok()
    }

    /// Returns the path below that of the console; `None` if the path is not below it.
    pub(super) fn path_below<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(self.settings.prefix())?.strip_prefix('/')
    }

    /// True if the console serves this path.
    pub(crate) fn serves(&self, path: &str) -> bool {
        path == self.settings.prefix() || self.path_below(path).is_some()
    }
}

/// Keeps the figures of the last hour and the last change of each graph for as long as the router runs, and forgets the
/// subscribers that no operator watches any more.
pub(crate) async fn follow(state: Arc<ConsoleState>) {
    let reloads = join_all(state.graphs.iter().map(|it| it.last_reload.follow(&it.serving)));
    tokio::join!(keep_figures(&state), reloads);
}

async fn keep_figures(state: &ConsoleState) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let sample = state.figures.read();
        state.history().record(Instant::now(), sample);
        let watched: usize = state.graphs.iter().map(|it| it.live.sweep_watched()).sum();
        // The graphs have these metrics in common.
        if let Some(first) = state.graphs.first() {
            first.live.runner().metrics.set_watched(watched);
        }
    }
}
