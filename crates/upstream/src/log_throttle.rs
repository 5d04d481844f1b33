//! Limits log lines that repeat: the first occurrence is logged at once, then at most one line per
//! interval gives the number of occurrences since the line before. When the failures have stopped,
//! one more line reports it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines of one kind about one subgraph. People read them; more lines are no more
/// useful.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Time without a failure after which a subgraph counts as recovered. With a shorter time, a subgraph that fails
/// occasionally would be reported as failing and recovered in turn.
const QUIET_TIME: Duration = Duration::from_secs(10);

/// Limits the rate of one kind of log line.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    state: Mutex<ThrottleState>,
    /// True from the first occurrence until its end is reported. A success reads nothing else.
    is_active: AtomicBool,
}

#[derive(Debug, Default)]
struct ThrottleState {
    last_line: Option<Instant>,
    last_occurrence: Option<Instant>,
    /// Occurrences since the last line.
    unreported: u64,
    /// Occurrences since the first one.
    total: u64,
}

impl LogThrottle {
    /// Counts `count` occurrences. Returns the number of occurrences to report if a line is due.
    pub(crate) fn record(&self, count: u64, now: Instant) -> Option<u64> {
        let mut state = self.lock();
        self.is_active.store(true, Ordering::Relaxed);
        state.last_occurrence = Some(now);
        state.unreported = state.unreported.saturating_add(count);
        state.total = state.total.saturating_add(count);
        let is_due = |last| now.saturating_duration_since(last) >= LINE_INTERVAL;
        if !state.last_line.is_none_or(is_due) {
            return None;
        }
        state.last_line = Some(now);
        Some(std::mem::take(&mut state.unreported))
    }

    /// Returns the number of all occurrences if they are over: once, at the first success after a
    /// quiet time. Costs one atomic read if there were none. hot path: every request that succeeds.
    pub(crate) fn record_success(&self, now: impl FnOnce() -> Instant) -> Option<u64> {
        if !self.is_active.load(Ordering::Relaxed) {
            return None;
        }
        let (now, mut state) = (now(), self.lock());
        let is_quiet = |last| now.saturating_duration_since(last) >= QUIET_TIME;
        if !state.last_occurrence.is_some_and(is_quiet) {
            return None;
        }
        self.is_active.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut *state).total)
    }

    fn lock(&self) -> MutexGuard<'_, ThrottleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_occurrence_is_reported_at_once_and_the_others_once_per_interval_with_their_number()
    {
        let (throttle, start) = (LogThrottle::default(), Instant::now());
        assert_eq!(throttle.record(1, start), Some(1));
        for millis in 1..=500 {
            assert_eq!(throttle.record(2, start + Duration::from_millis(millis)), None);
        }
        assert_eq!(throttle.record(1, start + LINE_INTERVAL), Some(1001));
        assert_eq!(throttle.record(1, start + LINE_INTERVAL), None);
    }

    #[test]
    fn recovery_is_reported_once_and_only_after_a_quiet_time() {
        let (throttle, start) = (LogThrottle::default(), Instant::now());
        assert_eq!(throttle.record_success(|| start), None, "nothing has failed");
        let _ = throttle.record(1, start);
        let second = start + Duration::from_secs(1);
        assert_eq!(throttle.record_success(|| second), None, "it may fail again");
        let _ = throttle.record(2, second);
        let quiet = second + QUIET_TIME;
        assert_eq!(throttle.record_success(|| quiet - Duration::from_millis(1)), None);
        assert_eq!(throttle.record_success(|| quiet), Some(3));
        assert_eq!(throttle.record_success(|| quiet + QUIET_TIME), None);
        assert_eq!(throttle.record(1, quiet), Some(1), "a new failure is reported at once");
    }
}
