//! The demo: a departure board that moves.
//!
//! Four subgraphs ([`subgraphs`]: flights, airports, airlines, weather) and one event subgraph without a server, whose
//! events are what [`traffic`] publishes. Data and schemas lie in `data/`. What connects the traffic to a provider, and
//! the router itself, are elsewhere: this module knows neither.

pub mod generator;
pub mod schedule;
pub mod subgraphs;
pub mod traffic;

/// The supergraph; the URLs of the subgraphs are placeholders such as `$FLIGHTS_URL`.
pub const SUPERGRAPH: &str = include_str!("data/supergraph.graphql");

/// The event subgraph's SDL, for those who want to compose the supergraph themselves.
pub const EVENTS_SDL: &str = include_str!("data/events.graphql");

/// The provider that the event subgraph names, as `kind/id`.
pub const PROVIDER: &str = "memory/default";

/// A query that joins all four subgraphs.
pub const QUERY: &str = include_str!("data/query.graphql");

/// A subscription that ticks, with fields joined from all four subgraphs.
pub const SUBSCRIPTION: &str = include_str!("data/subscription.graphql");

/// A mutation that publishes: the flight's status changes on the board.
pub const MUTATION: &str = include_str!("data/mutation.graphql");
