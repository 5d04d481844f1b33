//! Other work than operations that takes the processors for some seconds and has a bound of its own: handshakes at
//! their pace, and thousands of connections that begin or end at once. It makes operations slow, and fewer operations
//! would not make them faster, so the limit is held.

use std::time::Duration;

/// The multiple of the expected work in flight below which other work does not lower the limit: operations may take
/// that much longer meanwhile, without being refused.
const HEADROOM: f64 = 2.0;

/// The multiple of the expected work in flight above which there is no room for other work. What is in flight shows at
/// once that operations become slower, and their latencies only when they have ended.
const PRESSED_RATIO: f64 = 1.35;

/// The time for which other work counts after it was noted.
const TIME: Duration = Duration::from_secs(1);

/// The share of a window in the expected work in flight, and in the usual limit.
const STEP: f64 = 0.1;

/// The other work, and what the operations need beside it.
#[derive(Debug)]
pub(crate) struct OtherWork {
    /// The work that would be in flight if the router did not make operations slower than usual, smoothed; 0 before the
    /// first window.
    expected_in_flight: f64,
    /// The limit without probes, smoothed.
    usual_limit: f64,
    /// Until this time, other work makes operations slow, and the limit is not lowered below `held`.
    until: Duration,
    held: f64,
}

impl OtherWork {
    /// Creates the state without other work, at this limit.
    pub(crate) fn new(limit: f64) -> Self {
        Self { expected_in_flight: 0.0, usual_limit: limit, until: Duration::ZERO, held: 0.0 }
    }

    /// Notes a window with this limit, in which the router made operations `excess` times slower than usual. By
    /// Little's law, as many times more were in flight.
    pub(crate) fn note_window(&mut self, in_flight: f64, excess: f64, limit: f64) {
        let expected = in_flight / excess;
        let step = if self.expected_in_flight == 0.0 { 1.0 } else { STEP };
        self.expected_in_flight += (expected - self.expected_in_flight) * step;
        self.usual_limit += (limit - self.usual_limit) * STEP;
    }

    /// Notes other work. Returns the least limit from now on if it has just begun.
    pub(crate) fn note(&mut self, now: Duration) -> Option<f64> {
        let begins = !self.is_present(now);
        if begins {
            // A router with too many operations gets no higher limit.
            self.held = self.usual_limit.min(self.expected_in_flight * HEADROOM);
        }
        self.until = now + TIME;
        begins.then_some(self.held)
    }

    /// True if there is other work.
    pub(crate) fn is_present(&self, now: Duration) -> bool {
        now < self.until
    }

    /// Returns the least limit because of other work: 0 without it.
    pub(crate) fn least_limit(&self, now: Duration) -> f64 {
        if self.is_present(now) { self.held } else { 0.0 }
    }

    /// True if this many average operations in flight, and more than `min`, leave no room for other work.
    pub(crate) fn is_pressed(&self, in_flight: f64, min: f64) -> bool {
        in_flight > (self.expected_in_flight * PRESSED_RATIO).max(min)
    }
}
