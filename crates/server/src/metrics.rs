//! The counters of the server, one struct for each part. Each struct has its table of metrics beside it;
//! [`crate::metrics_export`] walks the tables.

use crate::authentication::metrics::AuthenticationMetrics;
use crate::connection_metrics::ConnectionMetrics;
use crate::graph_load_metrics::GraphLoadMetrics;
use crate::http::metrics::HttpMetrics;
use crate::live::metrics::SubscriptionMetrics;
use crate::operation_metrics::OperationMetrics;

/// The counters of the server.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) connections: ConnectionMetrics,
    pub(crate) http: HttpMetrics,
    pub(crate) operations: OperationMetrics,
    pub(crate) authentication: AuthenticationMetrics,
    pub(crate) subscriptions: SubscriptionMetrics,
    pub(crate) graph_loads: GraphLoadMetrics,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            connections: ConnectionMetrics::new(),
            http: HttpMetrics::new(),
            operations: OperationMetrics::new(),
            authentication: AuthenticationMetrics::default(),
            subscriptions: SubscriptionMetrics::new(),
            graph_loads: GraphLoadMetrics::new(),
        }
    }
}
