//! Mock subgraphs and load generators: the servers and clients around a router under test.
//!
//! - [`subgraph`]: a small but real GraphQL-over-HTTP subgraph, used by the demo, the benchmark's subgraphs and the
//!   tests of every other crate.
//! - [`mock`]: extracts subgraph schemas from a supergraph, so that a mock needs nothing else.
//! - [`query`]: sends operations and measures the responses.
//! - [`surge`]: sends a load that changes over time, from clients that cache, repeat and give up.
//! - [`subscriptions`]: holds subscriptions open and measures their events.
//! - [`report`]: shows the measurements.
//! - [`floor`]: servers with the minimum cost of responding, as a baseline.
//!
//! The crate knows nothing of the router's internals.

#[cfg(target_os = "linux")]
mod client_socket;
#[cfg(target_os = "linux")]
mod clock;
#[cfg(target_os = "linux")]
mod descriptors;
#[cfg(target_os = "linux")]
pub mod floor;
pub mod histogram;
pub mod mock;
pub mod process;
#[cfg(target_os = "linux")]
pub mod query;
pub mod random;
pub mod rate;
pub mod report;
pub mod subgraph;
#[cfg(target_os = "linux")]
pub mod subscriptions;
pub mod surge;
pub mod units;
