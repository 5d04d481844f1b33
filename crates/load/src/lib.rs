//! Mock subgraphs and load: what serves or drives a router under test.
//!
//! [`subgraph`] is a small but real GraphQL-over-HTTP subgraph: the demo, the benchmark's subgraphs and the tests of
//! every other crate stand on it. Nothing here knows how the router works inside.

pub mod subgraph;
