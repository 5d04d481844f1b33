//! What connections do at an interval must not happen at one moment for all of them, though they may have come, or
//! have got an event, at one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How much of an interval is given up for that: a quarter.
const PART: u32 = 4;

static TURN: AtomicU32 = AtomicU32::new(0);

/// A part of `interval`, up to a quarter, another one with each call: whatever the number of calls, they are spread
/// evenly.
pub(super) fn next_fraction(interval: Duration) -> Duration {
    // Multiples of the golden ratio, without their whole part, leave no large gaps (Weyl's sequence).
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
        // Others may call it meanwhile, so the gaps are not the smallest possible.
        let gaps = parts.windows(2).map(|two| two[1] - two[0]);
        assert!(gaps.max().is_some_and(|gap| gap < interval / PART / 20), "{parts:?}");
        assert_eq!(next_fraction(Duration::ZERO), Duration::ZERO);
    }
}
