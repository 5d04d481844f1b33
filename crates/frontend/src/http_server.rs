//! The HTTP server as a whole: what listeners and connections need, and the pipeline of their requests.

use std::sync::{Arc, Mutex};

use clients::client_limits::ClientLimits;
use clients::connection_metrics::ConnectionMetrics;
use clients::handshake_pace::OperationLoad;
use clients::shutdown::Shutdown;
use clients::workers::Workers;
use config::Http;
use tokio::sync::Semaphore;

use super::accept_pace::AcceptPace;
use super::pipeline::Pipeline;

/// The number of connections that are accepted before a worker serves them, for each worker on average. Further ones
/// wait in the kernel: workers with much to do serve these few between their requests.
pub const ACCEPTED_PER_CORE: usize = 16;

/// The number of handshakes that are handed to workers and not served yet after their parking, for each worker.
pub const UNPARKED_PER_CORE: usize = 64;

/// The number of TLS handshakes that are in progress at a time, for each worker on average. Computing so many takes a
/// worker some 0.2 s, far less than their clients wait: those that begin can finish. Further ones wait, which costs
/// little.
pub const TLS_HANDSHAKES_PER_CORE: usize = 256;

/// Asks for the ends of connections, and counts them; see [`HttpServer::hurry_leaving`].
pub type HurryLeaving = Box<dyn Fn() -> usize + Send + Sync>;

/// The HTTP server of the public listeners.
pub struct HttpServer {
    /// The settings of connections.
    pub settings: Http,
    /// The stages that each request passes.
    pub pipeline: Pipeline,
    /// The connections that are accepted before their worker has begun to serve them ([`ACCEPTED_PER_CORE`]).
    pub accepting: Arc<Semaphore>,
    /// The further ones that responses have earned.
    pub accept_pace: Mutex<AcceptPace>,
    /// The places of TLS handshakes in progress ([`TLS_HANDSHAKES_PER_CORE`]).
    pub tls_handshakes: Semaphore,
    /// Asks for the ends of connections that clients have closed, because there is no room for others, and counts them.
    pub hurry_leaving: HurryLeaving,
    /// The operations to which new connections give way; `None` without overload protection.
    pub operations: Option<Arc<dyn OperationLoad + Send + Sync>>,
    /// The limits of clients.
    pub limits: Arc<ClientLimits>,
    /// The threads that serve connections.
    pub workers: Arc<Workers>,
    /// The counters of connections that ended badly.
    pub metrics: Arc<ConnectionMetrics>,
    /// The state of the shutdown.
    pub shutdown: Arc<Shutdown>,
}
