//! A result of a live query.

use std::sync::{Arc, OnceLock};

use execute::Payload;

/// A result of a query.
#[derive(Clone, Debug)]
pub(super) struct LiveResult {
    pub(super) payload: Payload,
    /// Its number among the results of all queries.
    pub(super) number: u64,
    /// True if no patch may be sent in its place.
    pub(super) must_be_complete: bool,
    /// The payload of the complete result for clients that ask for patches, made when the first one needs it.
    pub(super) complete: Arc<OnceLock<Payload>>,
}
