//! Delays between attempts, for any kind of attempt.

use std::time::Duration;

/// The delays between attempts to connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retry {
    /// The delay before the second attempt. It doubles with each failure.
    pub initial: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { initial: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}

/// Doubling delays with jitter. Each delay is between half of the nominal delay and the whole, so that routers that
/// lost the same broker do not reconnect at the same moment.
#[derive(Debug)]
pub struct Backoff {
    retry: Retry,
    failures: u32,
    random: fastrand::Rng,
}

impl Backoff {
    /// Starts with the initial delay.
    pub fn new(retry: Retry) -> Self {
        Self { retry, failures: 0, random: fastrand::Rng::new() }
    }

    /// Starts again with the initial delay, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the delay before the next attempt, after a failure.
    pub fn next_delay(&mut self) -> Duration {
        let nominal = self
            .retry
            .initial
            .saturating_mul(2u32.saturating_pow(self.failures))
            .min(self.retry.max.max(self.retry.initial));
        self.failures = self.failures.saturating_add(1);
        nominal.mul_f64(0.5 + self.random.f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_and_start_again_after_success() {
        let retry = Retry { initial: Duration::from_millis(100), max: Duration::from_millis(1000) };
        let mut backoff = Backoff::new(retry);
        for nominal in [100, 200, 400, 800, 1000, 1000, 1000] {
            let delay = backoff.next_delay();
            let nominal = Duration::from_millis(nominal);
            assert!(delay >= nominal / 2 && delay <= nominal, "{delay:?} for {nominal:?}");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= Duration::from_millis(100));
    }

    #[test]
    fn a_thousand_failures_neither_overflow_nor_pass_the_maximum() {
        let mut backoff = Backoff::new(Retry::default());
        for _ in 0..1000 {
            assert!(backoff.next_delay() <= Duration::from_secs(5));
        }
    }
}
