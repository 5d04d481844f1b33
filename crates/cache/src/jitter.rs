//! Jitter: shortens times by a random part, so that entries and clients that began together do not end together.

use std::time::Duration;

/// The largest part of a time that jitter takes away.
///
/// Jitter never makes a time longer, so no response is used longer than its subgraph allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jitter {
    permille: u16,
}

impl Jitter {
    /// No jitter: times stay as they are.
    pub const NONE: Self = Self { permille: 0 };

    /// Creates a jitter that takes away at most this part, in thousandths; more than 1000 counts as 1000.
    pub const fn from_permille(permille: u16) -> Self {
        Self { permille: if permille > 1000 { 1000 } else { permille } }
    }

    /// Returns `time`, shortened by a part that `random` chooses: uniform 64 bits choose uniformly.
    pub fn apply(self, time: Duration, random: u64) -> Duration {
        if self.permille == 0 {
            return time;
        }
        // At most 2^94 nanoseconds; divided by 1000 before they are multiplied by up to 2^42, they fit.
        let share = u128::from(self.permille) * u128::from(random >> 32);
        let cut = (time.as_nanos() / 1000 * share) >> 32;
        let left = time.as_nanos().saturating_sub(cut);
        let seconds = u64::try_from(left / 1_000_000_000).unwrap_or(u64::MAX);
        Duration::new(seconds, (left % 1_000_000_000) as u32)
    }
}

impl Default for Jitter {
    /// A tenth.
    fn default() -> Self {
        Self::from_permille(100)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tenth_at_most_is_taken_away() {
        let jitter = Jitter::default();
        let minute = Duration::from_secs(60);
        assert_eq!(jitter.apply(minute, 0), minute);
        assert_eq!(jitter.apply(minute, 1 << 63), Duration::from_secs(57));
        let shortest = jitter.apply(minute, u64::MAX);
        assert!(shortest > Duration::from_secs(54) && shortest < Duration::from_millis(54_001));
        assert_eq!(Jitter::NONE.apply(minute, u64::MAX), minute);
    }

    proptest! {
        #[test]
        fn jitter_never_makes_a_time_longer(seconds: u64, nanos in 0u32..1_000_000_000, permille: u16, random: u64) {
            let time = Duration::new(seconds, nanos);
            let left = Jitter::from_permille(permille).apply(time, random);
            prop_assert!(left <= time);
            let most = time.as_nanos() * u128::from(permille.min(1000)) / 1000;
            prop_assert!(time.as_nanos() - left.as_nanos() <= most);
        }
    }
}
