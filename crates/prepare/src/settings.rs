//! The settings of a preparer.

use std::sync::Arc;

use crate::limits::Limits;

/// Default number of operations that may wait to be prepared. One takes some milliseconds, so the
/// last of them waits for a few seconds at most.
const WAITING_MAX: usize = 512;

/// Default number of operations of one client that may wait. It equals the total: behind a proxy
/// all clients may have its address, and if too many wait, the client with the most makes room for
/// others.
const WAITING_PER_CLIENT_MAX: usize = WAITING_MAX;

/// The settings of a preparer.
#[derive(Clone, Debug)]
pub struct PrepareSettings {
    /// Limits on operations.
    pub limits: Limits,
    /// True if clients may query the schema.
    pub introspection: bool,
    /// True if introspection shows a client only the types and fields that it may use.
    pub filters_introspection: bool,
    /// True if clients may send live queries (`query @live { … }`).
    pub live_queries: bool,
    /// True if operations have their [`FieldUse`](crate::FieldUse).
    pub field_use: bool,
    /// Bounds on planning and on the requests of plans.
    pub planning: plan::Limits,
    /// Number of operations that are prepared at the same time.
    pub at_once: usize,
    /// Number of operations that may wait to be prepared; more are refused
    /// ([`PrepareError::Overloaded`](crate::PrepareError::Overloaded)). A request of more than 32 KiB counts as
    /// several.
    pub waiting_max: usize,
    /// Number of operations of one client that may wait to be prepared.
    pub waiting_per_client_max: usize,
    /// Maximum number of operations in the cache: each counts as 64 KiB at least, and heavier ones
    /// as more.
    pub operations_max: u32,
    /// The settings of costs; `None` if costs are neither estimated nor measured.
    pub cost: Option<cost::CostSettings>,
    /// The times to live of the configuration; `None` if responses of subgraphs are not stored.
    pub caching: Option<Arc<cache::TtlRules>>,
}

impl Default for PrepareSettings {
    /// Allows two operations for each processor at once: one may wait for memory while the other
    /// computes.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            limits: Limits::default(),
            introspection: true,
            filters_introspection: false,
            live_queries: false,
            field_use: false,
            planning: plan::Limits::default(),
            at_once: 2 * processors,
            waiting_max: WAITING_MAX,
            waiting_per_client_max: WAITING_PER_CLIENT_MAX,
            operations_max: 2_048,
            cost: None,
            caching: None,
        }
    }
}
