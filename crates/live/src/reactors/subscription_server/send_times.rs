//! The times at which the results of a pass were sent, for the traces of events and the histories of subscribers.
//!
//! A pass of several results takes up to 120 ms, and the last recipient of one of them may be served long before the
//! end. So each result has a time of its own: that of its last recipient. A counter for each result finds this
//! recipient, and the clock is read once for each result. A recipient costs a decrement; for a result that needs no
//! time it costs a comparison, and a pass without timed results allocates nothing here.

use std::time::Instant;

/// The times at which the results of one pass were sent, see the module. Results have numbers.
#[derive(Default, Debug)]
pub(super) struct SendTimes {
    /// The number of recipients that have not been served, by result: 0 for results that are not timed. Ends with the
    /// last timed result.
    unserved: Vec<usize>,
    /// The times of these results; `None` for those that are not timed or still have unserved recipients.
    sent_at: Vec<Option<Instant>>,
}

impl SendTimes {
    /// Adds a timed result with so many recipients. The numbers of added results must ascend.
    pub(super) fn add_result(&mut self, result: usize, recipients: usize) {
        debug_assert!(result >= self.unserved.len(), "a result is added once, in order");
        self.unserved.resize(result, 0);
        self.unserved.push(recipients);
        self.sent_at.resize(result + 1, None);
    }

    /// Counts a recipient of a result that has been served: the bytes were written, or cannot be because the socket is
    /// full or gone. Calls `now` if this was the last recipient of a timed result.
    // hot path: once per recipient and event.
    pub(super) fn count_served(&mut self, result: usize, now: impl FnOnce() -> Instant) {
        let Some(unserved) = self.unserved.get_mut(result) else { return };
        let Some(left) = unserved.checked_sub(1) else { return };
        *unserved = left;
        if left == 0
            && let Some(sent_at) = self.sent_at.get_mut(result)
        {
            *sent_at = Some(now());
        }
    }

    /// Returns the time at which a result was sent. `None` if it is not timed, has no recipients, or has not been sent
    /// to all of them yet.
    pub(super) fn time_of(&self, result: usize) -> Option<Instant> {
        self.sent_at.get(result).copied().flatten()
    }

    /// True if no result is timed.
    pub(super) fn is_empty(&self) -> bool {
        self.unserved.is_empty()
    }

    /// True if all recipients of timed results have been served.
    pub(super) fn is_complete(&self) -> bool {
        self.unserved.iter().all(|unserved| *unserved == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A clock that shows a millisecond more with each look at it.
    struct TestClock {
        start: Instant,
        looks: u64,
    }

    impl TestClock {
        fn new() -> Self {
            Self { start: Instant::now(), looks: 0 }
        }

        fn look(&mut self) -> Instant {
            self.looks += 1;
            self.at(self.looks)
        }

        fn at(&self, looks: u64) -> Instant {
            self.start + Duration::from_millis(looks)
        }
    }

    #[test]
    fn a_result_is_sent_when_its_last_recipient_is_served() {
        let (mut times, mut clock) = (SendTimes::default(), TestClock::new());
        times.add_result(0, 2);
        times.add_result(1, 1);
        times.count_served(0, || clock.look());
        assert_eq!((times.time_of(0), clock.looks), (None, 0));
        times.count_served(1, || clock.look());
        assert!(!times.is_complete());
        times.count_served(0, || clock.look());
        assert_eq!((times.time_of(1), times.time_of(0)), (Some(clock.at(1)), Some(clock.at(2))));
        assert!(times.is_complete());
    }

    #[test]
    fn the_clock_is_not_read_for_results_that_are_not_timed() {
        let (mut times, mut clock) = (SendTimes::default(), TestClock::new());
        times.count_served(0, || clock.look());
        assert!(times.is_empty() && times.is_complete());
        times.add_result(2, 1);
        for result in [0, 1, 3] {
            times.count_served(result, || clock.look());
            assert_eq!(times.time_of(result), None);
        }
        assert_eq!((clock.looks, times.is_empty(), times.is_complete()), (0, false, false));
        times.count_served(2, || clock.look());
        assert_eq!((clock.looks, times.time_of(2)), (1, Some(clock.at(1))));
    }

    #[test]
    fn a_result_without_recipients_has_no_time() {
        let mut times = SendTimes::default();
        times.add_result(0, 0);
        assert!(times.is_complete());
        assert_eq!(times.time_of(0), None);
    }
}
