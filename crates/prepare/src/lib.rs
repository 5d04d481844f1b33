//! Prepares operations: parses, validates, normalises, plans and caches them.
//!
//! Invariant: knows nothing of sockets. All state belongs to one supergraph; a reload creates a new
//! preparer.

mod coerce;
mod compact_text;
mod concurrency_limit;
mod diagnostic_text;
mod error;
mod field_merging;
mod identity;
mod input_types;
mod introspection;
mod introspection_size;
mod lexical;
mod limits;
mod literal_extraction;
mod metrics;
mod normalise;
mod override_labels;
mod pipeline;
mod plan_cache;
mod prepared;
mod preparer;
mod settings;
mod stats;
mod variable_usage;

#[cfg(test)]
mod tests;

pub use concurrency_limit::{ConcurrencyBounds, ConcurrencyLimit, NoPermit, Permit, WhenFull};
pub use error::{Limit, PrepareError, Problem};
pub use limits::Limits;
pub use metrics::PREPARER_METRICS;
pub use override_labels::{LabelShare, LabelShares};
pub use prepared::{OperationRequest, Prepared};
pub use preparer::Preparer;
pub use settings::PrepareSettings;
pub use stats::PrepareStats;
