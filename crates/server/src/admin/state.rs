//! The parts of the router that the handlers of the admin listener and of the console read and act on.

use std::sync::Arc;
use std::time::Duration;

use clients::shutdown::Shutdown;
use clients::workers::Workers;
use events::Providers;
use hub::Hub;
use serving::serving::Serving;
use telemetry::MetricsExporter;

use crate::cache_page::CachePage;
use crate::console_api::state::ConsoleState;
use crate::reload_requests::ReloadRequests;
use crate::warming::Warming;

/// The parts of the router that operators see.
pub(crate) struct Admin {
    /// The settings of the listener.
    pub(crate) settings: config::Admin,
    /// The time limit for publishing a test event.
    pub(crate) publish_timeout: Duration,
    /// The metrics.
    pub(crate) metrics: Arc<MetricsExporter>,
    /// Live subscriptions.
    pub(crate) hub: Arc<Hub>,
    /// The brokers.
    pub(crate) providers: Arc<Providers>,
    /// The graph that serves.
    pub(crate) serving: Arc<Serving>,
    /// Passes requests to the task that reloads the graph.
    pub(crate) reload_requests: ReloadRequests,
    /// The page of the caches.
    pub(crate) cache_page: CachePage,
    /// The console; `None` if it is turned off.
    pub(crate) console: Option<Arc<ConsoleState>>,
    /// The worker threads.
    pub(crate) workers: Arc<Workers>,
    /// The state of the shutdown.
    pub(crate) shutdown: Arc<Shutdown>,
    /// The progress of the start.
    pub(crate) warming: Arc<Warming>,
}
