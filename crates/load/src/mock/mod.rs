//! `starling mock`: subgraphs that nobody has to write, from their schemas alone.
//!
//! [`subgraphs`] takes a supergraph apart; what they answer is made up by [`crate::subgraph`] (its `invention`), how
//! fast and how reliably they answer is its `weather`.

mod supergraph;

pub use supergraph::{SubgraphSchema, subgraphs};
