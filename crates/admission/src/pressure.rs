//! How much of the offered work is refused, and the time after which refused clients should return.

use std::time::Duration;

use crate::lane::Lane;

/// The time in which the share of refused requests follows a change.
const MEMORY: Duration = Duration::from_secs(2);

/// The maximum of `Retry-After` in seconds. A client that waits longer does not learn that the load is over.
const RETRY_AFTER_SECONDS_MAX: u64 = 30;

/// The seconds over which refused clients are spread for each time by which the offered work exceeds the admitted.
const SPREAD_SECONDS: f64 = 2.0;

/// The pressures of the requests that are refused for different reasons: a greedy client, a storm of sheddable requests
/// and one of new subscriptions do not make other requests wait.
#[derive(Debug, Default)]
pub(crate) struct Pressures {
    /// The requests of each lane, without those of clients above their share.
    lanes: [Pressure; Lane::COUNT],
    /// The requests that are refused because of their client's share, beside all that are admitted.
    client_share: Pressure,
}

impl Pressures {
    pub(crate) fn count_admitted(&mut self, lane: Lane, now: Duration) {
        self.lanes[lane.index()].count_admitted(now);
        self.client_share.count_admitted(now);
    }

    /// Counts a refused request, and returns the whole seconds after which its client should return.
    pub(crate) fn refuse(&mut self, lane: Lane, now: Duration, random: u64) -> u64 {
        self.lanes[lane.index()].refuse(now, random)
    }

    /// Does the same for a request that is refused because of its client's share.
    pub(crate) fn refuse_client(&mut self, now: Duration, random: u64) -> u64 {
        self.client_share.refuse(now, random)
    }
}

/// The share of refused requests, which forgets exponentially.
#[derive(Debug, Default)]
struct Pressure {
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

    fn count_admitted(&mut self, now: Duration) {
        self.decay(now);
        self.admitted += 1.0;
    }

    fn count_refused(&mut self, now: Duration) {
        self.decay(now);
        self.refused += 1.0;
    }

    fn refuse(&mut self, now: Duration, random: u64) -> u64 {
        self.count_refused(now);
        self.retry_after_seconds(random)
    }

    /// Returns the offered requests for each admitted one; 1 if none is refused.
    fn offered_ratio(&self) -> f64 {
        (self.admitted + self.refused) / self.admitted.max(1.0)
    }

    /// Returns the whole seconds after which a refused client should return: a random number that grows with the load,
    /// so that clients come back spread out.
    fn retry_after_seconds(&self, random: u64) -> u64 {
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

    #[test]
    fn refusals_of_another_lane_or_of_a_greedy_client_do_not_make_a_client_wait() {
        let (mut pressures, now) = (Pressures::default(), Duration::from_secs(1));
        for _ in 0..100 {
            pressures.count_admitted(Lane::Normal, now);
            pressures.count_admitted(Lane::NormalStream, now);
            pressures.count_admitted(Lane::Sheddable, now);
        }
        for _ in 0..10_000 {
            pressures.refuse(Lane::Sheddable, now, 0);
            pressures.refuse(Lane::NormalStream, now, 0);
            pressures.refuse_client(now, 0);
        }
        // The random number that gives the longest time for any load.
        let longest = 59;
        assert_eq!(pressures.refuse(Lane::Normal, now, longest), 2);
        for lane in [Lane::Sheddable, Lane::NormalStream] {
            assert_eq!(pressures.refuse(lane, now, longest), RETRY_AFTER_SECONDS_MAX);
        }
        assert_eq!(pressures.refuse_client(now, longest), RETRY_AFTER_SECONDS_MAX);
    }
}
