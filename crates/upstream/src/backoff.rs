//! The pauses after failures of an endpoint: after some failures in a row no request is sent for a while, then one,
//! whose result decides. The caller passes the time.

use std::time::{Duration, Instant};

/// The number of failures in a row after which requests pause. A single slow response is no outage.
const FAILURES_MAX: u32 = 3;

/// The first pause; it doubles with each failure after a pause.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest pause: the time after which an endpoint that works again is noticed.
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// The state of an endpoint. See the module.
#[derive(Debug, Default)]
pub struct Backoff {
    /// The number of failures since the last success.
    failures: u32,
    paused_until: Option<Instant>,
    /// True if a request was admitted after a pause, and its result has not been recorded.
    is_probing: bool,
}

impl Backoff {
    /// True if requests pause.
    pub fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Returns true if a request may be sent now. After a pause, one caller gets the permission; if its result is never
    /// recorded, another one gets it after one more pause.
    pub fn admit(&mut self, now: Instant) -> bool {
        match self.paused_until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                self.paused_until = Some(now + self.pause());
                self.is_probing = true;
                true
            }
        }
    }

    /// Records a response that makes sense.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Records a failure. Returns the pause that begins with it. Failures of requests that were sent before the pause
    /// do not make it longer.
    pub fn failed(&mut self, now: Instant) -> Option<Duration> {
        if self.is_paused(now) && !std::mem::take(&mut self.is_probing) {
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures < FAILURES_MAX {
            return None;
        }
        let pause = self.pause();
        self.paused_until = Some(now + pause);
        Some(pause)
    }

    fn pause(&self) -> Duration {
        // Sixteen doublings exceed the bound.
        let doublings = self.failures.saturating_sub(FAILURES_MAX).min(16);
        (PAUSE_MIN * 2_u32.pow(doublings)).min(PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn requests_pause_after_failures_in_a_row() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        for _ in 0..10 {
            assert_eq!((backoff.failed(now), backoff.failed(now)), (None, None));
            backoff.succeeded();
        }
        assert!(backoff.admit(now));
        assert_eq!((backoff.failed(now), backoff.failed(now)), (None, None));
        assert!(backoff.admit(now));
        assert_eq!(backoff.failed(now), Some(SECOND));
        assert!(backoff.is_paused(now) && !backoff.admit(now));
    }

    #[test]
    fn one_request_after_a_pause_decides_about_the_next() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        for _ in 0..3 {
            backoff.failed(now);
        }
        let after = now + SECOND;
        assert!(backoff.admit(after) && !backoff.admit(after));
        assert_eq!(backoff.failed(after), Some(2 * SECOND));
        let later = after + 2 * SECOND;
        assert!(backoff.admit(later));
        backoff.succeeded();
        assert!(backoff.admit(later) && backoff.admit(later) && !backoff.is_paused(later));
    }

    #[test]
    fn a_request_without_a_result_blocks_the_others_for_one_pause_only() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        for _ in 0..3 {
            backoff.failed(now);
        }
        assert!(backoff.admit(now + SECOND) && !backoff.admit(now + SECOND));
        assert!(backoff.admit(now + 2 * SECOND));
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        let mut now = now;
        let mut pauses = Vec::new();
        for _ in 0..100 {
            assert!(backoff.admit(now));
            let Some(pause) = backoff.failed(now) else { continue };
            // Requests that were sent before the pause.
            assert_eq!((backoff.failed(now), backoff.failed(now)), (None, None));
            pauses.push(pause.as_secs());
            now += pause;
        }
        assert_eq!(pauses[..6], [1, 2, 4, 8, 8, 8]);
        assert_eq!(pauses.last(), Some(&PAUSE_MAX.as_secs()));
    }
}
