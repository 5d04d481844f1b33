//! The time as retries and the circuit breaker see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Tells the time. Clones tell the same.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Milliseconds that this clock is ahead.
    ahead: Arc<AtomicU64>,
}

impl Clock {
    /// Puts the clock forward: for tests, which wait for nothing.
    pub fn advance(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.ahead.fetch_add(millis, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.ahead.load(Ordering::Relaxed))
    }
}
