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
    /// How long the router goes on as before after SIGTERM, while `/health/ready` is 503 already: load balancers need
    /// this time to notice, and refuse nobody a connection meanwhile. Kubernetes sends SIGTERM at the same moment as
    /// it begins to take the pod out of its services; the sum of this and `subscriptions.drain_period` should be less
    /// than
    /// `terminationGracePeriodSeconds`. Ctrl-C (SIGINT) and a second signal do not wait.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationOrZeroText", example = &"10s")]
    pub delay: Duration,
}

impl Default for Shutdown {
    fn default() -> Self {
        // Endpoints of Kubernetes are up to date within a second or two; readiness probes that fail three times at the
        // default period of ten seconds are not what it waits for.
        Self { delay: Duration::from_secs(5) }
    }
}
