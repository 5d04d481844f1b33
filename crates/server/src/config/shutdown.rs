//! How the router ends.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration;
use super::format::DurationOrZeroText;

/// The end of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// How long the router serves as before after SIGTERM, while `/health/ready` is 503 already. Load balancers need
    /// this time to notice, and send connections to the router meanwhile. Kubernetes sends SIGTERM at the moment when
    /// it begins to take the pod out of its services; the sum of this and `subscriptions.drain_period` should be less
    /// than `terminationGracePeriodSeconds`. Ctrl-C (SIGINT) and a second signal do not wait.
    #[serde(with = "duration::text")]
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
