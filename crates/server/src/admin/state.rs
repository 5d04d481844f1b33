//! The parts of the router that the handlers of the admin listener and of the console read and act on.

use std::sync::Arc;
use std::time::Duration;

use clients::shutdown::Shutdown;
use clients::workers::Workers;
use config::DEFAULT_GRAPH;
use events::Providers;
use hub::Hub;
use serving::serving::Serving;
use telemetry::MetricsExporter;

use crate::cache_page::CachePage;
use crate::console_api::state::ConsoleState;
use crate::further_graphs::FurtherGraph;
use crate::reload_requests::ReloadRequests;
use crate::warming::Warming;

/// The parts of the router that operators see. Those of a graph are those of the graph of `supergraph`.
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
    /// The further graphs.
    pub(crate) further: Arc<[FurtherGraph]>,
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

/// The graph that a request of an operator is about.
#[derive(Clone, Copy)]
pub(crate) struct SelectedGraph<'a> {
    /// Live subscriptions.
    pub(crate) hub: &'a Hub,
    /// The graph that serves.
    pub(crate) serving: &'a Serving,
    /// Passes requests to the task that reloads the graph.
    pub(crate) reload_requests: &'a ReloadRequests,
}

impl Admin {
    /// Returns the graph of `supergraph`.
    pub(crate) fn first_graph(&self) -> SelectedGraph<'_> {
        let Self { hub, serving, reload_requests, .. } = self;
        SelectedGraph { hub, serving, reload_requests }
    }

    /// Returns the graph with this name; without a name, the graph of `supergraph`.
    ///
    /// # Errors
    /// There is none. The error is a line of text with the names that there are.
    pub(crate) fn graph(&self, name: Option<&str>) -> Result<SelectedGraph<'_>, String> {
        let name = name.unwrap_or(DEFAULT_GRAPH);
        if name == DEFAULT_GRAPH {
            return Ok(self.first_graph());
        }
        let found = self.further.iter().find(|it| *it.name == *name);
        let found = found.map(|FurtherGraph { hub, serving, reload_requests, .. }| SelectedGraph {
            hub,
            serving,
            reload_requests,
        });
        found.ok_or_else(|| {
            let further = self.further.iter().map(|it| &*it.name);
            unknown_graph(std::iter::once(DEFAULT_GRAPH).chain(further))
        })
    }
}

/// Returns the message about a graph that does not exist: a line of text with the names that there are.
pub(crate) fn unknown_graph<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    format!("there is no graph of this name; there are: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_about_an_unknown_graph_has_the_names_that_there_are() {
        let message = unknown_graph([DEFAULT_GRAPH, "partners"].into_iter());
        assert_eq!(message, "there is no graph of this name; there are: default, partners");
    }
}
