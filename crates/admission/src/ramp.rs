//! The start of a router: it takes a small share of the load first, and all of it after a while.

use std::time::Duration;

/// The share at the beginning. Less would need more time to show what a router can do than a ramp takes.
const SHARE_MIN: f64 = 0.1;

/// The share of the full load that a router takes, which grows evenly from a tenth to the whole. Times are those of the
/// caller's clock.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Ramp {
    length: Duration,
    started: Option<Duration>,
}

impl Ramp {
    /// Creates a ramp of this length that has not begun. Without a length the share is always the whole.
    pub fn new(length: Duration) -> Self {
        Self { length, started: None }
    }

    /// Begins to grow. Only the first call counts.
    pub fn begin(&mut self, now: Duration) {
        self.started.get_or_insert(now);
    }

    /// Returns the share, from a tenth to 1.
    pub fn share(&self, now: Duration) -> f64 {
        if self.length.is_zero() {
            return 1.0;
        }
        let elapsed = self.started.map_or(Duration::ZERO, |started| now.saturating_sub(started));
        let part = elapsed.as_secs_f64() / self.length.as_secs_f64();
        (SHARE_MIN + part * (1.0 - SHARE_MIN)).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_share_grows_evenly_from_a_tenth_once_the_ramp_has_begun() {
        let mut ramp = Ramp::new(SECONDS(30));
        assert!((ramp.share(SECONDS(100)) - 0.1).abs() < 1e-9, "it has not begun");
        ramp.begin(SECONDS(100));
        ramp.begin(SECONDS(110));
        for (now, share) in [(100, 0.1), (110, 0.4), (120, 0.7), (130, 1.0), (500, 1.0)] {
            let actual = ramp.share(SECONDS(now));
            assert!((actual - share).abs() < 1e-9, "{now}: {actual}");
        }
    }

    #[test]
    fn without_a_length_the_share_is_the_whole() {
        assert!(Ramp::default().share(Duration::ZERO) >= 1.0);
    }
}
