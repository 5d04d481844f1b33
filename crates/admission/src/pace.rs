//! The pace of what comes in bursts: each one has its turn, and those that would wait for too long have none.

use std::time::Duration;

/// The turns that may be taken at once after a pause, as the time in which they become due.
const BURST: Duration = Duration::from_millis(100);

/// Turns at an even rate (GCRA). Times are those of the caller's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// The time between two turns.
    interval: Duration,
    /// The next turn.
    next: Duration,
}

impl Pace {
    /// Creates a pace of this number of turns in a second; `None` for 0.
    pub fn new(per_second: u64) -> Option<Self> {
        let nanos = 1_000_000_000_u64.checked_div(per_second)?;
        Some(Self { interval: Duration::from_nanos(nanos), next: Duration::ZERO })
    }

    /// Takes the next turn. Returns the time until it comes, or `None` if that is more than `wait_max`: then no turn is
    /// taken.
    pub fn take(&mut self, now: Duration, wait_max: Duration) -> Option<Duration> {
        let turn = self.next.max(now.saturating_sub(BURST));
        let wait = turn.saturating_sub(now);
        if wait > wait_max {
            return None;
        }
        self.next = turn + self.interval;
        Some(wait)
    }

    /// True if turns of late were not taken, which may be taken at once: less is wanted than the pace allows.
    pub fn has_unused(&self, now: Duration) -> bool {
        self.next + BURST / 2 <= now
    }

    /// Returns the time until the next turn comes.
    pub fn until_next(&self, now: Duration) -> Duration {
        self.next.saturating_sub(now)
    }

    /// Skips turns after one that was taken.
    pub fn skip(&mut self, turns: u32) {
        self.next += self.interval * turns;
    }

    /// Gives back a turn that was taken and is not used.
    pub fn give_back(&mut self) {
        self.next = self.next.saturating_sub(self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn turns_have_an_even_distance_after_a_short_burst() {
        let mut pace = Pace::new(100).expect("a pace");
        let waits: Vec<_> = (0..14).map(|_| pace.take(MS(1000), MS(1000))).collect();
        let expected = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 20, 30].map(|it| Some(MS(it)));
        assert_eq!(waits, expected, "those of the last 100 ms at once, and then one each 10 ms");
        assert_eq!(
            pace.take(MS(1020), MS(1000)),
            Some(MS(20)),
            "time that passes shortens the wait"
        );
    }

    #[test]
    fn nobody_waits_for_longer_than_asked_and_a_refused_turn_is_not_taken() {
        let mut pace = Pace::new(10).expect("a pace");
        let taken = (0..1000).filter_map(|_| pace.take(MS(500), MS(2000))).count();
        assert_eq!(taken, 22, "two at once, and 20 in the two seconds after them");
        assert_eq!(pace.take(MS(500), MS(2000)), None);
        assert_eq!(pace.take(MS(600), MS(2000)), Some(MS(2000)));
    }

    #[test]
    fn turns_that_are_skipped_are_not_taken() {
        let mut pace = Pace::new(10).expect("a pace");
        assert_eq!(pace.take(MS(0), MS(0)), Some(MS(0)));
        pace.skip(2);
        assert_eq!((pace.take(MS(299), MS(0)), pace.take(MS(300), MS(0))), (None, Some(MS(0))));
    }

    #[test]
    fn a_turn_that_is_given_back_is_the_next_one() {
        let mut pace = Pace::new(10).expect("a pace");
        assert_eq!(pace.take(MS(0), MS(0)), Some(MS(0)));
        assert_eq!((pace.until_next(MS(0)), pace.until_next(MS(150))), (MS(100), MS(0)));
        pace.give_back();
        assert_eq!(pace.take(MS(0), MS(0)), Some(MS(0)));
    }

    #[test]
    fn turns_are_left_unused_while_less_is_wanted() {
        let mut pace = Pace::new(100).expect("a pace");
        let mut unused = |from: u64, interval: usize| {
            let taken = (from..from + 1000).step_by(interval);
            taken.fold(true, |_, now| {
                let _ = pace.take(MS(now), MS(0));
                pace.has_unused(MS(now))
            })
        };
        assert!(unused(1000, 20), "half of the pace");
        assert!(!unused(2000, 5), "twice the pace");
        assert!(unused(3000, 20));
    }

    #[test]
    fn without_a_rate_there_is_no_pace() {
        assert_eq!(Pace::new(0), None);
    }
}
