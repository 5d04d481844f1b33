//! The decision that a server is unusable, from the outcomes of commands. It has no clock: a server is usable again
//! when it has responded to a command of the router's own (`server_link`).

use std::sync::atomic::{AtomicU32, Ordering};

/// The weight of a failure. A success weighs one, so a server of which more than one of five commands fail for a while
/// counts as unusable.
const FAILURE: u32 = 4;

/// The weight at which the breaker opens: five failures in a row.
const OPEN_AT: u32 = 5 * FAILURE;

/// The outcomes of the commands of one connection. Once the breaker is open it stays open.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    weight: AtomicU32,
}

impl Breaker {
    /// Counts a success. hot path: one load as long as nothing fails.
    pub(crate) fn record_success(&self) {
        if self.weight.load(Ordering::Relaxed) > 0 {
            // Commands that were in flight when the breaker opened may still succeed.
            let less = |weight: u32| if weight < OPEN_AT { weight.checked_sub(1) } else { None };
            // Another thread may have subtracted the last one.
            let _ = self.weight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Counts a failure. Returns true if it opens the breaker, which happens once.
    pub(crate) fn record_failure(&self) -> bool {
        let before = self.weight.fetch_add(FAILURE, Ordering::Relaxed);
        before < OPEN_AT && before + FAILURE >= OPEN_AT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_failures_in_a_row_open_it_once() {
        let breaker = Breaker::default();
        let fail =
            |count: usize| -> Vec<bool> { (0..count).map(|_| breaker.record_failure()).collect() };
        assert_eq!(fail(8), [false, false, false, false, true, false, false, false]);
        (0..100).for_each(|_| breaker.record_success());
        assert_eq!(fail(8), [false; 8], "it stays open");
    }

    #[test]
    fn it_stays_closed_if_one_of_ten_fails_and_opens_if_one_of_three_does() {
        for (period, opens) in [(10, false), (3, true)] {
            let breaker = Breaker::default();
            let opened = (0..1000).any(|number| {
                if number % period == 0 {
                    return breaker.record_failure();
                }
                breaker.record_success();
                false
            });
            assert_eq!(opened, opens, "one of {period}");
        }
    }
}
