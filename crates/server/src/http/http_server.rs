//! The HTTP server as a whole: what listeners and connections need, and the pipeline of their requests.

use std::sync::Arc;

use super::pipeline::Pipeline;
use crate::client_limits::ClientLimits;
use crate::connection_metrics::ConnectionMetrics;
use crate::shutdown::Shutdown;
use crate::workers::Workers;
use config::Http;

/// The HTTP server of the public listeners.
pub(crate) struct HttpServer {
    /// The settings of connections.
    pub(crate) settings: Http,
    /// The path of their requests.
    pub(crate) pipeline: Pipeline,
    /// The limits of clients.
    pub(crate) limits: Arc<ClientLimits>,
    /// The threads that serve connections.
    pub(crate) workers: Arc<Workers>,
    /// The counters of connections.
    pub(crate) metrics: Arc<ConnectionMetrics>,
    /// The state of the shutdown.
    pub(crate) shutdown: Arc<Shutdown>,
}
