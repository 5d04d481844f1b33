//! Jitter for intervals of connections: pings and heartbeats of connections that were opened at the same time, or got
//! an event at the same time, must not coincide.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The part of an interval that jitter may shorten it by: a quarter.
const PART: u32 = 4;

static TURN: AtomicU32 = AtomicU32::new(0);

/// Returns a part of `interval`, up to a quarter, and another one with each call. The parts are spread evenly, whatever
/// the number of calls.
pub(super) fn next_fraction(interval: Duration) -> Duration {
    // The fractional parts of multiples of the golden ratio leave no large gaps (Weyl's sequence).
    let turn = TURN.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9);
    let nanos = (interval.as_nanos() / u128::from(PART) * u128::from(turn)) >> u32::BITS;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_spread_over_a_quarter() {
        let interval = Duration::from_secs(40);
        let mut parts: Vec<Duration> = (0..100).map(|_| next_fraction(interval)).collect();
        parts.sort_unstable();
        assert!(parts.iter().all(|part| *part < interval / PART));
        // Other tests may call the function meanwhile, so the gaps are not the smallest possible.
        let gaps = parts.windows(2).map(|two| two[1] - two[0]);
        assert!(gaps.max().is_some_and(|gap| gap < interval / PART / 20), "{parts:?}");
        assert_eq!(next_fraction(Duration::ZERO), Duration::ZERO);
    }
}
