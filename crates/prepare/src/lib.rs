//! Operation text becomes a prepared operation: parsed, validated, normalised, planned, cached.
//!
//! Invariant: knows nothing of sockets. Everything hangs on one supergraph; a reload makes a new preparer.

mod prepared;

pub use prepared::{OperationRequest, Prepared};
