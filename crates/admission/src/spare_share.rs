//! The spare share: the part of the limit that clients far above their share may fill while others have work.
//!
//! The limit keeps a bottleneck busy, so operations take a quarter longer at it than without load. That is right where
//! all clients want more than there is. A client that alone wants so much would make all others slower by that quarter.
//! So its work ends earlier: where operations take a little longer than without load. What the others may use is the
//! whole limit.

/// The bounds of the share, and the share at the start.
const MIN: f64 = 0.5;
const MAX: f64 = 0.85;
const INITIAL: f64 = 0.75;

/// The slow-down that such clients may cause.
const TOLERANCE: f64 = 1.02;

/// The factor by which one window changes the share at most, before [`STEP`].
const FALL_MAX: f64 = 0.5;
const RISE_MAX: f64 = 1.1;

/// The part of a computed change that is applied after each window.
const STEP: f64 = 0.5;

/// The number of windows after which the lowest share has no effect if operations are still slow: they are so for
/// another reason, such as a slow subgraph.
const FUTILE_WINDOWS: u32 = 5;

/// The spare share. It adapts in windows in which nothing but clients far above their share reached their bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpareShare {
    share: f64,
    /// The windows with the lowest share and slow operations.
    futile_windows: u32,
}

impl SpareShare {
    pub(crate) fn new() -> Self {
        Self::with_share(INITIAL)
    }

    fn with_share(share: f64) -> Self {
        Self { share, futile_windows: 0 }
    }

    /// Returns the units of work in flight up to which such clients are admitted, for a limit in units.
    pub(crate) fn of(self, limit: u64) -> u64 {
        if self.futile_windows >= FUTILE_WINDOWS {
            return limit;
        }
        (limit as f64 * self.share) as u64
    }

    /// Notes the slow-down of a window: operations took this many times as long as without load. Operations that are not
    /// slow any more end a time in which the share had no effect.
    pub(crate) fn note(&mut self, slow_down: f64) {
        if slow_down < TOLERANCE {
            self.futile_windows = 0;
        }
    }

    /// Changes the share after a window with this slow-down. Returns true if it cannot grow any more although operations
    /// are not slow: then the limit itself is too low.
    pub(crate) fn adapt(&mut self, slow_down: f64) -> bool {
        let factor = (TOLERANCE / slow_down.max(f64::MIN_POSITIVE)).clamp(FALL_MAX, RISE_MAX);
        self.share = (self.share * (1.0 + (factor - 1.0) * STEP)).clamp(MIN, MAX);
        if self.share <= MIN {
            self.futile_windows = self.futile_windows.saturating_add(1);
        }
        self.share >= MAX && slow_down < TOLERANCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_comes_to_rest_where_operations_are_a_little_slower() {
        for initial in [MIN, INITIAL, MAX] {
            let mut share = SpareShare::with_share(initial);
            for _ in 0..500 {
                // A queue begins at six tenths of the limit.
                share.adapt((share.share / 0.6).max(1.0));
            }
            let slow_down = share.share / 0.6;
            assert!((1.01..1.03).contains(&slow_down), "{initial}: {slow_down}");
        }
    }

    #[test]
    fn without_a_slow_down_it_grows_and_then_the_limit_has_to() {
        let mut share = SpareShare::new();
        let grown = (1..).find(|_| share.adapt(1.0));
        assert_eq!(grown, Some(7));
        assert_eq!(share.of(1000), 850);
        assert!(!share.adapt(2.0), "slow operations are no reason for a higher limit");
    }

    #[test]
    fn half_of_the_limit_is_left_and_all_of_it_if_that_changes_nothing() {
        let mut share = SpareShare::new();
        let parts: Vec<_> = (0..100)
            .map(|_| {
                assert!(!share.adapt(10.0));
                share.of(1000)
            })
            .collect();
        let least = parts.iter().position(|it| *it == 500).expect("it falls to a half");
        assert_eq!(parts[least..least + 4], [500; 4]);
        assert_eq!(parts[least + 4..], [1000].repeat(96 - least));
        share.note(1.5);
        assert_eq!(share.of(1000), 1000, "they are still slow");
        share.note(1.0);
        assert_eq!(share.of(1000), 500);
    }
}
