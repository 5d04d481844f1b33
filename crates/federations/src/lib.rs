//! Random federations, and a reference server that determines the expected responses of the router.
//!
//! A [`Case`] is a supergraph, an operation with its variables, and an object store. It is executed twice: by the
//! router's own crates (prepare, plan, execute) over subgraphs that see their part of the store and reject requests
//! that real subgraphs could not resolve, and by a plain GraphQL execution over the whole store. Both responses must
//! have the same `data`, byte for byte. Cases are folders or come from a seed; a failing case is shrunk and written to
//! a folder.
//!
//! Invariant: the expected response is determined without the planner, the normaliser or the executor of the router.

mod case;
mod data;
mod executor;
mod generate;
mod made_up;
mod monolith;
mod operation;
mod random;
mod shrink;
mod subgraph;
mod trial;
mod variations;
mod world;

pub use case::{Case, Variables};
pub use data::Data;
pub use generate::{federation, wide_federation};
pub use operation::{Asked, operation, wide_operation};
pub use random::Random;
pub use shrink::{Shrunk, shrink};
pub use trial::{Found, Tally, trial};
pub use variations::{Variation, with_unused_subgraph};
pub use world::{Answered, Failure, FailureKind, World};
