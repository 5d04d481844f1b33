//! The settings of a preparer.

use crate::limits::Limits;

/// Operations that may wait for their turn at being prepared. One takes some milliseconds, so the last of
/// them waits for a few seconds at most before it is its turn.
const WAITING_MAX: usize = 512;

/// Operations of one client that may wait. As many as in all: behind a proxy all clients may have its address, and
/// where too many wait, the client with the most makes room for others.
const WAITING_PER_CLIENT_MAX: usize = WAITING_MAX;

/// How a preparer behaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrepareSettings {
    /// Limits on operations.
    pub limits: Limits,
    /// May clients ask for the schema?
    pub introspection: bool,
    /// Bounds on planning and on the requests of plans.
    pub planning: plan::Limits,
    /// How many operations are prepared at the same time.
    pub at_once: usize,
    /// How many may wait for that; more are refused ([`PrepareError::Overloaded`]). A request of more than 32 KiB
    /// counts as several.
    pub waiting_max: usize,
    /// How many of one client may wait for that.
    pub waiting_per_client_max: usize,
    /// How many operations are kept at most: each counts as 64 KiB at least, and heavier ones as more.
    pub operations_max: u32,
}

impl Default for PrepareSettings {
    /// Two operations for each processor at once: one may wait for memory while the other computes.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            limits: Limits::default(),
            introspection: true,
            planning: plan::Limits::default(),
            at_once: 2 * processors,
            waiting_max: WAITING_MAX,
            waiting_per_client_max: WAITING_PER_CLIENT_MAX,
            operations_max: 2_048,
        }
    }
}
