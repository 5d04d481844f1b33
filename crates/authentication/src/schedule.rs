//! The schedule of a key set. The set is fetched at an interval, when a token has an unknown key, and again after a
//! failure; its keys expire if fetching fails for too long. The caller passes the time and fetches the set.

use std::time::{Duration, Instant};

/// The minimum interval between an attempt and another one because of an unknown key. Every client can create tokens
/// with unknown keys, so this bounds the load that a flood of them puts on the issuer.
const ASKED_INTERVAL_MIN: Duration = Duration::from_secs(10);

/// The first pause after a failure; it doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest pause after a failure, unless the interval itself is shorter.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The schedule of one key set. See the module.
#[derive(Clone, Debug)]
pub struct RefreshSchedule {
    interval: Duration,
    age_max: Duration,
    due: Instant,
    /// The last success, unless its keys have expired since.
    read: Option<Instant>,
    attempted: Option<Instant>,
    is_in_progress: bool,
    failures: u32,
}

impl RefreshSchedule {
    /// Creates a schedule that is due at once, and then every `interval`. Keys expire if they were read `age_max` ago
    /// and could not be read since; an `age_max` below the interval counts as the interval.
    pub fn new(interval: Duration, age_max: Duration, now: Instant) -> Self {
        Self {
            interval,
            age_max: age_max.max(interval),
            due: now,
            read: None,
            attempted: None,
            is_in_progress: false,
            failures: 0,
        }
    }

    /// Returns the age of the keys in use; `None` if there are none, or they have expired.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.read.map(|read| now.saturating_duration_since(read))
    }

    /// True if the last attempt failed, so that the issuer may have keys that are not in the set.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Returns true once when the keys have become too old to be used.
    pub fn expire(&mut self, now: Instant) -> bool {
        let is_too_old = self.age(now).is_some_and(|age| age >= self.age_max);
        if is_too_old {
            self.read = None;
        }
        is_too_old
    }

    /// Returns the time of the next attempt.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Requests an attempt because a token has an unknown key. True if the last attempt is long enough ago; then the
    /// next one is due now.
    pub fn ask(&mut self, now: Instant) -> bool {
        let may = self.attempted.is_none_or(|last| now >= last + ASKED_INTERVAL_MIN);
        if may {
            self.due = self.due.min(now);
        }
        may
    }

    /// Records that an attempt begins.
    pub fn begins(&mut self, now: Instant) {
        self.attempted = Some(now);
        self.is_in_progress = true;
    }

    /// True if an attempt is in progress, so that waiting for its result is worthwhile.
    pub fn is_in_progress(&self) -> bool {
        self.is_in_progress
    }

    /// Records that the attempt succeeded.
    pub fn succeeded(&mut self, now: Instant) {
        self.is_in_progress = false;
        self.failures = 0;
        self.read = Some(now);
        self.due = now + self.interval;
    }

    /// Records that the attempt failed. Returns the pause until the next one.
    pub fn failed(&mut self, now: Instant) -> Duration {
        self.is_in_progress = false;
        // Sixteen doublings exceed every bound.
        let pause = PAUSE_MIN * 2_u32.pow(self.failures.min(16));
        let pause = pause.min(PAUSE_MAX).min(self.interval);
        self.failures = self.failures.saturating_add(1);
        // Keys expire on time, not at the attempt after that.
        let expires = self.read.map(|read| read + self.age_max).filter(|expires| *expires > now);
        self.due = expires.map_or(now + pause, |expires| expires.min(now + pause));
        self.due - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn keys_that_cannot_be_read_again_expire_once_and_on_time() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut schedule = RefreshSchedule::new(60 * second, 100 * second, start);
        assert!(!schedule.expire(start + DAY), "no keys have been read yet");
        schedule.succeeded(start);
        assert!(!schedule.expire(start + 99 * second));
        let mut now = schedule.due();
        while schedule.age(now).is_some_and(|age| age < 100 * second) {
            schedule.failed(now);
            assert!(schedule.is_failing() && !schedule.expire(now));
            now = schedule.due();
        }
        assert_eq!(now, start + 100 * second);
        schedule.failed(now);
        assert!(schedule.expire(now));
        assert!(!schedule.expire(now), "once");
        assert_eq!(schedule.age(now), None);
        schedule.succeeded(now);
        assert!(!schedule.is_failing());
        assert_eq!(schedule.age(now + second), Some(second));
    }

    #[test]
    fn a_schedule_is_due_at_once_and_then_at_the_interval() {
        let start = Instant::now();
        let mut schedule = RefreshSchedule::new(Duration::from_secs(600), DAY, start);
        assert_eq!(schedule.due(), start);
        schedule.begins(start);
        schedule.succeeded(start);
        assert_eq!(schedule.due(), start + Duration::from_secs(600));
    }

    #[test]
    fn pauses_after_failures_double_up_to_a_bound() {
        let now = Instant::now();
        let mut schedule = RefreshSchedule::new(Duration::from_secs(600), DAY, now);
        let pauses: Vec<_> = (0..8).map(|_| schedule.failed(now).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        for _ in 0..100 {
            schedule.failed(now);
        }
        schedule.succeeded(now);
        assert_eq!(schedule.failed(now).as_secs(), 1);
        let mut quick = RefreshSchedule::new(Duration::from_secs(5), DAY, now);
        let longest = (0..8).map(|_| quick.failed(now)).max();
        assert_eq!(longest, Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_flood_of_unknown_keys_causes_one_attempt_in_ten_seconds() {
        let start = Instant::now();
        let mut schedule = RefreshSchedule::new(Duration::from_secs(3600), DAY, start);
        schedule.begins(start);
        schedule.succeeded(start);
        let mut attempts = 0;
        for millis in 0..60_000 {
            let now = start + Duration::from_millis(millis);
            if schedule.ask(now) {
                assert_eq!(schedule.due(), now);
                schedule.begins(now);
                schedule.succeeded(now);
                attempts += 1;
            }
        }
        assert_eq!(attempts, 5);
    }
}
