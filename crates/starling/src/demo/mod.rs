//! The demo: a departure board with moving flights.
//!
//! Four subgraphs ([`subgraphs`]: flights, airports, airlines, weather) and one event subgraph without a server;
//! [`traffic`] produces its events. Data and schemas are in `data/`; [`supergraph`] composes the schemas. [`generator`]
//! connects the traffic to a provider; the command `starling demo` starts the router.

pub mod generator;
pub mod schedule;
pub mod subgraphs;
pub mod supergraph;
pub mod traffic;

/// The provider that the event subgraph names, as `kind/id`.
pub const PROVIDER: &str = "memory/default";

/// A query that joins all four subgraphs.
pub const QUERY: &str = include_str!("data/query.graphql");

/// A subscription with frequent events, with fields joined from all four subgraphs.
pub const SUBSCRIPTION: &str = include_str!("data/subscription.graphql");

/// A mutation that publishes an event: the flight's status changes on the board.
pub const MUTATION: &str = include_str!("data/mutation.graphql");
