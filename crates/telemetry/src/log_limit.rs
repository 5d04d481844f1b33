//! A limit on log lines that repeat, such as those that clients or failing servers cause: the first occurrence is
//! logged at once, then at most one line per interval gives the number of occurrences. When failures have stopped, one
//! more line can report that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time between two lines of one kind. People read them; more lines are no more useful.
const INTERVAL_MIN: Duration = Duration::from_secs(10);

/// Limits the lines of one kind. Often a `static`.
#[derive(Debug, Default)]
pub struct LogLimit {
    state: Mutex<LimitState>,
    /// True from the first occurrence until its end is reported. A success reads nothing else.
    is_active: AtomicBool,
}

#[derive(Debug, Default)]
struct LimitState {
    last_line: Option<Instant>,
    last_occurrence: Option<Instant>,
    /// The number of occurrences since the last line.
    unreported: u64,
    /// The number of occurrences since the first one.
    total: u64,
}

impl LogLimit {
    /// The time without a failure after which it counts as over. With a shorter time, a server that fails occasionally
    /// would be reported as failing and recovered in turn.
    pub const QUIET_TIME: Duration = Duration::from_secs(10);

    /// Creates a limit that admits the first line.
    pub const fn new() -> Self {
        let state = LimitState { last_line: None, last_occurrence: None, unreported: 0, total: 0 };
        Self { state: Mutex::new(state), is_active: AtomicBool::new(false) }
    }

    /// Counts one occurrence. If a line about it may be written now, returns the number of suppressed occurrences since
    /// the last line.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        self.record(1, now).map(|occurrences| occurrences.saturating_sub(1))
    }

    /// Counts `count` occurrences. If a line may be written now, returns the number of occurrences to report.
    pub fn record(&self, count: u64, now: Instant) -> Option<u64> {
        let mut state = self.lock();
        self.is_active.store(true, Ordering::Relaxed);
        state.last_occurrence = Some(now);
        state.unreported = state.unreported.saturating_add(count);
        state.total = state.total.saturating_add(count);
        let is_due = |last| now.saturating_duration_since(last) >= INTERVAL_MIN;
        if !state.last_line.is_none_or(is_due) {
            return None;
        }
        state.last_line = Some(now);
        Some(std::mem::take(&mut state.unreported))
    }

    /// Returns the number of all occurrences if they are over: once, at the first success after a quiet time. Costs one
    /// atomic read if there were none. hot path: every request to a subgraph that succeeds.
    pub fn record_success(&self, now: impl FnOnce() -> Instant) -> Option<u64> {
        if !self.is_active.load(Ordering::Relaxed) {
            return None;
        }
        let (now, mut state) = (now(), self.lock());
        let is_quiet = |last| now.saturating_duration_since(last) >= Self::QUIET_TIME;
        if !state.last_occurrence.is_some_and(is_quiet) {
            return None;
        }
        self.is_active.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut *state).total)
    }

    /// Locks the state. No code panics under this lock, so a poisoned lock holds a valid state.
    fn lock(&self) -> MutexGuard<'_, LimitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn the_first_occurrence_is_reported_at_once_and_the_others_once_per_interval_with_their_number()
    {
        let (limit, start) = (LogLimit::default(), Instant::now());
        assert_eq!(limit.record(1, start), Some(1));
        for millis in 1..=500 {
            assert_eq!(limit.record(2, start + Duration::from_millis(millis)), None);
        }
        assert_eq!(limit.record(1, start + INTERVAL_MIN), Some(1001));
        assert_eq!(limit.record(1, start + INTERVAL_MIN), None);
    }

    #[test]
    fn recovery_is_reported_once_and_only_after_a_quiet_time() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        assert_eq!(limit.record_success(|| start), None, "nothing has failed");
        let _ = limit.record(1, start);
        let second = start + Duration::from_secs(1);
        assert_eq!(limit.record_success(|| second), None, "it may fail again");
        let _ = limit.record(2, second);
        let quiet = second + LogLimit::QUIET_TIME;
        assert_eq!(limit.record_success(|| quiet - Duration::from_millis(1)), None);
        assert_eq!(limit.record_success(|| quiet), Some(3));
        assert_eq!(limit.record_success(|| quiet + LogLimit::QUIET_TIME), None);
        assert_eq!(limit.record(1, quiet), Some(1), "a new failure is reported at once");
    }
}
