//! Single flight: equal work that is in flight at the same time is done once, for all callers that wait for it.
//!
//! The first caller for a key becomes the *leader*: the work starts at once, within the leader's own task. A caller for
//! an equal key that arrives before the work is done becomes a *follower*, on any core, and gets a clone of the result.
//! Then the flight ends; the next caller leads a new one.
//!
//! - No caller waits in order to be joined, and no caller gets a result that was there before its call.
//! - The work belongs to all callers that wait: it continues when its leader leaves, and is cancelled when the last
//!   waiter leaves.
//! - All waiters of work that fails (a panic, a core that stops) get [`WorkFailed`].
//!
//! Invariant: this crate knows nothing of GraphQL or HTTP. The key defines which requests are equal, and must contain
//! everything that keeps two of them apart.

mod flight;
mod metrics;
mod single_flight;

pub use metrics::SINGLE_FLIGHT_METRICS;
pub use single_flight::{Role, SingleFlight, SingleFlightStats, WorkFailed};
