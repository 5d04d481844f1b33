//! The clock of events: the same for the publisher and the clients, which may be different processes.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the microseconds since 1970.
pub(in crate::subscriptions) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
