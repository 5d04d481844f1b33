//! Random federations, and the one server that knows what the router must answer.
//!
//! A [`Case`] is a supergraph, an operation with its variables, and a store of objects. It is answered
//! twice: by the router's own crates (prepare, plan, execute) over subgraphs that see their part of the
//! store and refuse what real ones could not do, and by a plain GraphQL execution over the whole store.
//! Both answers must have the same `data`, byte for byte. Cases are folders or come from a seed; one
//! that fails is made smaller and written down as a folder.
//!
//! Invariant: what is right is decided here without the planner, the normaliser or the executor.

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
