//! A count of what happened lately.

use std::time::Instant;

/// A count of what happened lately: each counts less with time. Divided by its seconds, it is a rate.
#[derive(Debug)]
pub(crate) struct RecentCount {
    count: f64,
    /// The time of the last one.
    at: Option<Instant>,
    /// The time in which one comes to count a third.
    seconds: f64,
}

impl RecentCount {
    /// Creates a count that is about that of the last `seconds`.
    pub(crate) fn new(seconds: f64) -> Self {
        Self { count: 0.0, at: None, seconds }
    }

    /// Adds some that happen now.
    pub(crate) fn add(&mut self, count: usize, now: Instant) {
        self.count = self.until(now) + count as f64;
        self.at = Some(now);
    }

    /// Returns the count at this time.
    pub(crate) fn until(&self, now: Instant) -> f64 {
        let Some(at) = self.at else { return 0.0 };
        self.count * (-now.saturating_duration_since(at).as_secs_f64() / self.seconds).exp()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_happens_at_an_even_pace_counts_for_about_the_seconds() {
        let (mut count, mut now) = (RecentCount::new(2.0), Instant::now());
        assert_eq!(count.until(now), 0.0);
        for _ in 0..1000 {
            now += Duration::from_millis(10);
            count.add(1, now);
        }
        assert!((199.0..202.0).contains(&count.until(now)), "{count:?}");
        let later = count.until(now + Duration::from_secs(2));
        assert!((73.0..75.0).contains(&later), "{later}");
    }
}
