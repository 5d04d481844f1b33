//! The server of one subgraph's subscriptions: what all transports know of it.

use std::sync::Arc;

use events::SourceError;
use telemetry::LogLimit;
use upstream::Target;

use crate::settings::SubscriptionSettings;
use crate::stats::SubscriptionStats;

/// The server of the subscriptions, and everything that its connections share.
#[derive(Debug)]
pub(crate) struct SubscriptionEndpoint {
    /// The name of the source: `subgraph/` and the name of the subgraph.
    pub(crate) source_name: Box<str>,
    pub(crate) target: Target,
    pub(crate) settings: SubscriptionSettings,
    pub(crate) stats: Arc<SubscriptionStats>,
    /// Limits the log lines about failures: a server that fails ends thousands of operations at once, and clients try
    /// again.
    pub(crate) log_limit: LogLimit,
}

impl SubscriptionEndpoint {
    /// Returns the error of a subscription that could not begin.
    pub(crate) fn error(&self, reason: impl Into<String>) -> SourceError {
        SourceError::Subgraph { source_name: self.source_name.clone(), reason: reason.into() }
    }
}
