//! Operation text becomes a prepared operation: parsed, validated, normalised, planned, cached.
//!
//! Invariant: knows nothing of sockets. Everything hangs on one supergraph; a reload makes a new preparer.

mod coerce;
mod compact_text;
mod concurrency_limit;
mod diagnostic_text;
mod durations;
mod error;
mod identity;
mod input_types;
mod introspection;
mod introspection_size;
mod lexical;
mod lifting;
mod limits;
mod merging;
mod normalise;
mod override_labels;
mod plans;
mod preparation;
mod prepared;
mod preparer;
mod settings;
mod stats;
mod usages;

#[cfg(test)]
mod tests;

pub use concurrency_limit::{ConcurrencyBounds, ConcurrencyLimit, NoPermit, Permit, WithoutPlace};
pub use durations::{BUCKETS_MICROS, Durations};
pub use error::{Limit, PrepareError, Problem};
pub use limits::Limits;
pub use override_labels::{LabelShare, LabelShares};
pub use prepared::{OperationRequest, Prepared};
pub use preparer::Preparer;
pub use settings::PrepareSettings;
pub use stats::PrepareStats;
