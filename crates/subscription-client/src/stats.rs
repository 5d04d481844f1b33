//! Counters of the subscriptions of one subgraph.

use std::sync::atomic::{AtomicU64, Ordering};

telemetry::counters! {
    /// Counts since the start.
    pub struct SubscriptionStats;
    /// The metrics of these counters. The label that names the subgraph is added by the caller.
    pub const SUBSCRIPTION_COUNTERS;
    {
        counter connections_opened = "starling_subgraph_subscription_connections_opened":
            "Connections opened for subscriptions at subgraphs";
        counter connect_failures = "starling_subgraph_subscription_connect_failures":
            "Attempts to connect for subscriptions that failed";
        counter connections_lost = "starling_subgraph_subscription_connections_lost":
            "Connections for subscriptions that ended while they were in use";
        counter started = "starling_subgraph_subscription_operations_started":
            "Subscriptions begun at subgraphs, those begun again included";
        counter resumed = "starling_subgraph_subscription_operations_resumed":
            "Subscriptions begun again after a connection was lost";
        counter failed = "starling_subgraph_subscription_operations_failed":
            "Subscriptions that ended with an error";
        counter results = "starling_subgraph_subscription_results": "Results received from subscriptions at subgraphs";
        counter dropped = "starling_subgraph_subscription_results_dropped":
            "Results dropped because they came faster than they could be processed";
        counter ignored = "starling_subgraph_subscription_messages_ignored":
            "Messages of subgraphs that broke the protocol and were ignored";
        counter rejected = "starling_subgraph_subscription_callbacks_rejected":
            "Requests to the callback listener that were refused";
        counter overloaded = "starling_subgraph_subscription_limit_reached":
            "Subscriptions refused because a limit on connections was reached";
        gauge connections = "starling_subgraph_subscription_connections":
            "Open connections for subscriptions at subgraphs, without those that wait for the acknowledgement or for \
             another attempt";
        gauge operations = "starling_subgraph_subscription_operations": "Subscriptions in progress at subgraphs";
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, number: usize) {
    counter.fetch_add(number as u64, Ordering::Relaxed);
}

/// Subtracts from a gauge.
pub(crate) fn subtract(gauge: &AtomicU64, number: usize) {
    gauge.fetch_sub(number as u64, Ordering::Relaxed);
}
