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
        Self(first().elapsed().as_secs() as u32)
    }

    /// Returns the time since then, at most a second too much.
    pub(crate) fn age(self) -> Duration {
        first().elapsed().saturating_sub(Duration::from_secs(u64::from(self.0)))
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
    fn an_operation_that_begins_now_is_younger_than_two_seconds() {
        let start = OperationStart::now();
        assert!(start.age() < Duration::from_secs(2), "{:?}", start.age());
        assert!(start <= OperationStart::now());
    }
}
