//! The state of the console: what it keeps between requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use live::live_server::LiveServer;
use serving::serving::Serving;
use telemetry::history::{History, INTERVAL};
use telemetry::spans::{FlightRecorder, Tracer};

use super::figures::FigureReader;
use super::graph_map::LastReload;
use super::log_level::TemporaryLevel;
use crate::metrics_export::MetricsSources;

/// The state of the console.
#[derive(Debug)]
pub(crate) struct ConsoleState {
    pub(super) settings: config::Console,
    pub(super) figures: FigureReader,
    history: Mutex<History>,
    pub(super) started: Instant,
    pub(super) log_level: TemporaryLevel,
    pub(super) last_reload: LastReload,
    /// The subscribers of clients.
    pub(super) live: Arc<LiveServer>,
    /// The tracer with the flight recorder, if there is one.
    tracer: Option<Arc<Tracer>>,
}

impl ConsoleState {
    /// Creates the state of a console with these settings; `None` if there is none.
    pub(crate) fn new(
        settings: &config::Console,
        sources: &Arc<MetricsSources>,
        live: &Arc<LiveServer>,
    ) -> Option<Arc<Self>> {
        let history = sources.history.as_ref().filter(|_| settings.enabled)?;
        Some(Arc::new(Self {
            settings: settings.clone(),
            figures: FigureReader::new(sources),
            history: Mutex::new(History::new(history)),
            started: Instant::now(),
            log_level: TemporaryLevel::default(),
            last_reload: LastReload::default(),
            live: Arc::clone(live),
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

    /// Returns the path below that of the console; `None` if the path is not below it.
    pub(super) fn path_below<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(self.settings.prefix())?.strip_prefix('/')
    }

    /// True if the console serves this path.
    pub(crate) fn serves(&self, path: &str) -> bool {
        path == self.settings.prefix() || self.path_below(path).is_some()
    }
}

/// Keeps the figures of the last hour and the last change of the graph for as long as the router runs, and forgets the
/// subscribers that no operator watches any more.
pub(crate) async fn follow(state: Arc<ConsoleState>, serving: Arc<Serving>) {
    tokio::join!(keep_figures(&state), state.last_reload.follow(&serving));
}

async fn keep_figures(state: &ConsoleState) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let sample = state.figures.read();
        state.history().record(Instant::now(), sample);
        state.live.sweep_watched();
    }
}
