//! Telling clients what their request cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `extensions.trace` in answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trace {
    /// Answer requests that have the header `starling-trace: 1` with what they cost. On a WebSocket the handshake's
    /// header counts. It names subgraphs, so keep it from clients that you do not trust.
    #[schemars(example = true)]
    pub enabled: bool,
}
