//! Settings of the trace that clients can request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The trace of a request in `extensions.trace` of its response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trace {
    /// Adds the trace to the response of requests with the header `starling-trace: 1`. With `starling-trace: execute`
    /// the operation is executed also if its response is in memory. On a WebSocket the header of the handshake counts.
    /// The trace contains names of subgraphs, so do not turn it on for untrusted clients.
    #[schemars(example = true)]
    pub enabled: bool,
}
