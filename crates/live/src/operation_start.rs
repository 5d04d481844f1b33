//! The time at which an operation of a live connection began, in four bytes: every idle connection has one.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The time at which an operation began, in whole seconds after the first operation of the process. That is enough for
/// 136 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct OperationStart(u32);

impl OperationStart {
    /// Returns the current time.
    pub(crate) fn now() -> Self {
        Self::after(first().elapsed())
    }

    /// Returns the time that is `elapsed` after the first operation.
    fn after(elapsed: Duration) -> Self {
        Self(elapsed.as_secs() as u32)
    }

    /// Returns the time since then, at most a second too much.
    pub(crate) fn age(self) -> Duration {
        self.age_after(first().elapsed())
    }

    /// Returns the age when `elapsed` has passed since the first operation.
    fn age_after(self, elapsed: Duration) -> Duration {
        elapsed.saturating_sub(Duration::from_secs(u64::from(self.0)))
    }
}

/// The time of the first operation.
fn first() -> &'static Instant {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_at_most_a_second_too_much() {
        let start = OperationStart::after(Duration::from_millis(7_900));
        assert_eq!(start.age_after(Duration::from_millis(7_900)), Duration::from_millis(900));
        assert_eq!(start.age_after(Duration::from_millis(9_000)), Duration::from_millis(2_000));
        assert_eq!(start.age_after(Duration::from_millis(6_900)), Duration::ZERO);
    }

    #[test]
    fn operations_are_ordered_by_their_start() {
        let first = OperationStart::now();
        assert!(first <= OperationStart::now());
    }
}
