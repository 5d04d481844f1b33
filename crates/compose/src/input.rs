//! The input of composition.

use graph::SubscriptionEndpoint;

/// The schema of one subgraph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubgraphInput {
    /// The name in configuration, logs and metrics.
    pub name: String,
    /// The URL of the subgraph's server; empty for an event subgraph.
    pub url: String,
    /// The name of the file or URL that the schema was read from, for messages.
    pub file: String,
    /// The schema.
    pub sdl: String,
    /// How the subscriptions of the subgraph are reached, for the supergraph. An event subgraph has none.
    pub subscription: Option<SubscriptionEndpoint>,
}
