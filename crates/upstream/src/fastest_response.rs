//! The shortest time in which a subgraph has responded lately: what a further attempt takes at least.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The time after which a response is forgotten, at least; twice that at most.
const PERIOD: Duration = Duration::from_secs(30);

/// The duration of the fastest response of this period and of the one before, in microseconds; `u64::MAX` if there was
/// none. All workers share it. A response that races with the beginning of a period may count for the wrong one, which
/// changes nothing that matters.
#[derive(Debug)]
pub(crate) struct FastestResponse {
    started: Instant,
    /// The number of the current period, counted from `started`.
    period: AtomicU64,
    current: AtomicU64,
    previous: AtomicU64,
}

impl FastestResponse {
    pub(crate) fn new(now: Instant) -> Self {
        let [period, current, previous] = [0, u64::MAX, u64::MAX].map(AtomicU64::new);
        Self { started: now, period, current, previous }
    }

    /// Notes the duration of a response.
    pub(crate) fn note(&self, duration: Duration, now: Instant) {
        self.advance(now);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        // Most responses are not the fastest, and reading needs no exclusive cache line.
        if micros < self.current.load(Relaxed) {
            self.current.fetch_min(micros, Relaxed);
        }
    }

    /// Returns the duration of the fastest response; zero if none is known.
    pub(crate) fn duration(&self, now: Instant) -> Duration {
        self.advance(now);
        let micros = self.current.load(Relaxed).min(self.previous.load(Relaxed));
        if micros == u64::MAX { Duration::ZERO } else { Duration::from_micros(micros) }
    }

    fn advance(&self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.started);
        let period = elapsed.as_secs() / PERIOD.as_secs();
        let seen = self.period.load(Relaxed);
        if period <= seen || self.period.compare_exchange(seen, period, Relaxed, Relaxed).is_err() {
            return;
        }
        let last = self.current.swap(u64::MAX, Relaxed);
        let previous = if period == seen + 1 { last } else { u64::MAX };
        self.previous.store(previous, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_response_of_the_last_periods_counts() {
        let start = Instant::now();
        let fastest = FastestResponse::new(start);
        let millis = Duration::from_millis;
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(fastest.duration(at(0)), Duration::ZERO, "nothing is known yet");
        fastest.note(millis(50), at(1));
        fastest.note(millis(20), at(2));
        fastest.note(millis(80), at(3));
        assert_eq!(fastest.duration(at(4)), millis(20));
        fastest.note(millis(70), at(31));
        assert_eq!(fastest.duration(at(59)), millis(20), "the previous period counts");
        assert_eq!(fastest.duration(at(60)), millis(70));
        assert_eq!(fastest.duration(at(500)), Duration::ZERO, "all of it is too old");
    }
}
