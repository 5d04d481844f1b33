//! What the configuration says of one subgraph's traffic.

use std::time::Duration;

/// Limits of the traffic to one subgraph. They hold for the whole process, not per core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamSettings {
    /// From sending a request to the end of its answer, connecting and waiting included.
    pub timeout: Duration,
    /// For opening one connection, the TLS handshake included.
    pub connect_timeout: Duration,
    /// Bytes of one answer's body.
    pub max_response_size: u64,
    /// Requests at once; each needs a connection of its own. More wait in a queue. Connections
    /// that are kept idle come on top, at most 64 for each core.
    pub max_connections: usize,
    /// Requests that may wait for a connection; more are refused at once.
    pub max_waiting: usize,
    /// How long a connection without requests is kept.
    pub idle_timeout: Duration,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            max_response_size: 64 * 1024 * 1024,
            // What one server process comfortably holds; far below descriptor limits of 20,000.
            max_connections: 1024,
            // At 1,024 answers of 10 ms at once, 4,096 wait some 40 ms: past that it is overload.
            max_waiting: 4096,
            // Below the 60 s after which many servers and load balancers hang up.
            idle_timeout: Duration::from_secs(45),
        }
    }
}
