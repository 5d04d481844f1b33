//! The clock of retries and the circuit breaker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A clock that tests can advance. Clones share the same time.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Milliseconds by which this clock is ahead of the system's.
    ahead: Arc<AtomicU64>,
}

impl Clock {
    /// Advances the clock, for tests that do not want to wait.
    pub fn advance(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.ahead.fetch_add(millis, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.ahead.load(Ordering::Relaxed))
    }
}
