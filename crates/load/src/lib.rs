//! Mock subgraphs and load: what serves or drives a router under test.
//!
//! [`subgraph`] is a small but real GraphQL-over-HTTP subgraph: the demo, the benchmark's subgraphs and the tests of
//! every other crate stand on it. [`mock`] makes subgraphs of nothing but their schemas. [`query`] sends operations and measures the answers,
//! [`subscriptions`] holds subscriptions and measures their events, [`report`] shows what was measured, [`floor`] is the
//! least that answering can cost. Nothing here knows how the router works inside.

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
pub mod units;
