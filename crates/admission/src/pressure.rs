//! How much of the offered work is refused, and the time after which refused clients should return.

use std::time::Duration;

/// The time in which the share of refused requests follows a change.
const MEMORY: Duration = Duration::from_secs(2);

/// The maximum of `Retry-After` in seconds. A client that waits longer does not learn that the load is over.
const RETRY_AFTER_SECONDS_MAX: u64 = 30;

/// The seconds over which refused clients are spread for each time by which the offered work exceeds the admitted.
const SPREAD_SECONDS: f64 = 2.0;

/// The share of refused requests, which forgets exponentially.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    refused: f64,
    admitted: f64,
    updated: Duration,
}

impl Pressure {
    fn decay(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.updated);
        if elapsed > MEMORY / 64 {
            let factor = (-elapsed.as_secs_f64() / MEMORY.as_secs_f64()).exp();
            self.refused *= factor;
            self.admitted *= factor;
            self.updated = now;
        }
    }

    pub(crate) fn count_admitted(&mut self, now: Duration) {
        self.decay(now);
        self.admitted += 1.0;
    }

    pub(crate) fn count_refused(&mut self, now: Duration) {
        self.decay(now);
        self.refused += 1.0;
    }

    /// Returns the offered requests for each admitted one; 1 if none is refused.
    pub(crate) fn offered_ratio(&self) -> f64 {
        (self.admitted + self.refused) / self.admitted.max(1.0)
    }

    /// Returns the whole seconds after which a refused client should return: a random number that grows with the load,
    /// so that clients come back spread out.
    pub(crate) fn retry_after_seconds(&self, random: u64) -> u64 {
        let spread = (self.offered_ratio().max(1.0) * SPREAD_SECONDS).round() as u64;
        1 + random % spread.clamp(1, RETRY_AFTER_SECONDS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(pressure: &Pressure) -> u64 {
        (0..1000).map(|it| pressure.retry_after_seconds(it)).max().unwrap()
    }

    #[test]
    fn the_time_to_wait_grows_with_the_load_and_is_bounded() {
        let mut pressure = Pressure::default();
        let now = Duration::from_secs(1);
        for _ in 0..100 {
            pressure.count_admitted(now);
        }
        assert_eq!(longest(&pressure), 2);
        for _ in 0..400 {
            pressure.count_refused(now);
        }
        assert_eq!(longest(&pressure), 10);
        for _ in 0..100_000 {
            pressure.count_refused(now);
        }
        assert_eq!(longest(&pressure), RETRY_AFTER_SECONDS_MAX);
        assert_eq!((0..1000).map(|it| pressure.retry_after_seconds(it)).min(), Some(1));
        pressure.count_admitted(now + MEMORY * 30);
        assert_eq!(longest(&pressure), 2, "the storm is forgotten");
    }
}
