//! The caches of the process and of one generation: built from the configuration, used by execution (entities and root
//! fields) and by `operation` (whole responses).
//!
//! [`ProcessCaches`] outlive graphs, [`GenerationCaches`] belong to one. `whole_responses` finds and stores the
//! responses to whole operations, by the keys of `response_keys` and in the form of `stored_payload`. `ttl_rules` has
//! the times to live of the configuration.

mod generation_caches;
mod process_caches;
mod response_keys;
mod stored_payload;
mod ttl_rules;
mod whole_responses;

pub use generation_caches::GenerationCaches;
pub use process_caches::ProcessCaches;
pub(crate) use response_keys::CachedQuery;
pub(crate) use ttl_rules::ttl_rules;
pub(crate) use whole_responses::{ResponseLookup, ResponseRefresh, ResponseSlot};
