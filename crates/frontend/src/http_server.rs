//! The HTTP server as a whole: what listeners and connections need, and the pipeline of their requests.

use std::sync::Arc;

use clients::client_limits::ClientLimits;
use clients::connection_metrics::ConnectionMetrics;
use clients::shutdown::Shutdown;
use clients::workers::Workers;
use config::Http;

use super::pipeline::Pipeline;

/// The HTTP server of the public listeners.
pub struct HttpServer {
    /// The settings of connections.
    pub settings: Http,
    /// The stages that each request passes.
    pub pipeline: Pipeline,
    /// The limits of clients.
    pub limits: Arc<ClientLimits>,
    /// The threads that serve connections.
    pub workers: Arc<Workers>,
    /// The counters of connections that ended badly.
    pub metrics: Arc<ConnectionMetrics>,
    /// The state of the shutdown.
    pub shutdown: Arc<Shutdown>,
}
