//! Settings of the end of the process.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::DurationOrZeroText;
use super::quantity;

/// The end of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// The time for which the router continues to serve after SIGTERM while `/health/ready` already returns 503. Load
    /// balancers need this time to notice, and still send connections to the router meanwhile. Kubernetes sends SIGTERM
    /// at the moment when it begins to remove the pod from its services; the sum of this and
    /// `subscriptions.drain_period` should be less than `terminationGracePeriodSeconds`. Ctrl-C (SIGINT) and a second
    /// signal skip this time.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"10s")]
    pub delay: Duration,
}

impl Default for Shutdown {
    fn default() -> Self {
        // Endpoints of Kubernetes are up to date within a second or two. Readiness probes, which fail three times at a
        // default period of ten seconds, take longer and are not needed for it.
        Self { delay: Duration::from_secs(5) }
    }
}
