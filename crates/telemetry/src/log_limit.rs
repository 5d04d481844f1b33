//! A limit on log lines that clients can cause: one line per interval for each place in the code, with the number of
//! suppressed events since the last line.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time between two lines of one kind.
const INTERVAL_MIN: Duration = Duration::from_secs(10);

/// Limits the lines of one kind. Usually a `static`.
#[derive(Debug, Default)]
pub struct LogLimit {
    last: Mutex<Option<Instant>>,
    suppressed: AtomicU64,
}

impl LogLimit {
    /// Creates a limit that admits the first line.
    pub const fn new() -> Self {
        Self { last: Mutex::new(None), suppressed: AtomicU64::new(0) }
    }

    /// If another line may be written now, returns the number of suppressed events since the last one.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        // No code panics under this lock, so a poisoned lock holds a valid instant.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL_MIN) {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *last = Some(now);
        Some(self.suppressed.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_events_is_one_line_per_interval_that_counts_the_others() {
        let limit = LogLimit::new();
        let start = Instant::now();
        let at = |millis| limit.admit(start + Duration::from_millis(millis));
        assert_eq!(at(0), Some(0));
        assert_eq!(at(1), None);
        assert_eq!(at(9_999), None);
        assert_eq!(at(10_000), Some(2));
        assert_eq!(at(10_001), None);
    }
}
