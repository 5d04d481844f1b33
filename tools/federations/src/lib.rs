//! Random federations, and a reference server that determines the expected responses of the router.
//!
//! A [`Case`] is a supergraph, an operation with its variables, and an object store. It is executed twice: by the
//! router's own crates (prepare, plan, execute) over subgraphs that see their part of the store and reject requests
//! that real subgraphs could not resolve, and by a plain GraphQL execution over the whole store. Both responses must
//! have the same `data`, byte for byte. A federation from a seed is generated as subgraphs and goes through composition
//! first: if it composes, each operation must have a plan. Cases are folders or come from a seed; a failing case is
//! shrunk and written to a folder.
//!
//! Invariant: the expected response is determined without the planner, the normaliser or the executor of the router.

mod access_trials;
mod broker;
mod case;
mod composition;
mod denials;
mod executor;
mod federation_generator;
mod loaded_case;
mod object_store;
mod operation_generator;
mod random;
mod random_data;
mod reference_server;
mod request_log;
mod shrinker;
mod subgraph;
mod trials;
mod variations;
mod visible_schema_check;

pub use access_trials::run_access_trial;
pub use case::{Case, Variables};
pub use composition::{Composed, compose_federation};
pub use denials::add_requirements;
pub use federation_generator::{
    GeneratedFederation, generate_federation, generate_wide_federation,
};
pub use loaded_case::{Failure, FailureKind, LoadedCase, Outcome};
pub use object_store::ObjectStore;
pub use operation_generator::{
    GeneratedOperation, generate_operation, generate_operation_of, generate_wide_operation,
};
pub use random::Random;
pub use shrinker::{Shrunk, shrink};
pub use trials::{Tally, TrialFailure, run_trial};
pub use variations::{Variation, add_unused_subgraph};
