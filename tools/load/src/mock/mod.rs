//! `starling mock`: subgraphs made from their schemas alone.
//!
//! [`subgraphs`] extracts the schemas from a supergraph. [`crate::subgraph`] makes up their data (`invention`) and
//! simulates latency and failures (`weather`).

mod supergraph;

pub use supergraph::{SubgraphSchema, subgraphs};
