//! The spare share: the part of the limit that greedy clients, those far above their share, may fill while others have
//! work, and sheddable requests always.
//!
//! The limit keeps a bottleneck busy, so operations take a fifth longer at it than without load. That is right where
//! all clients want more than there is. A client that alone wants so much would make all others slower by that fifth.
//! So its work ends earlier: where operations take a little longer than without load. What the others may use is the
//! whole limit.

/// The bounds of the share, and the share at the start.
const MIN: f64 = 0.5;
const MAX: f64 = 0.85;
const INITIAL: f64 = 0.75;

/// The slow-down that such clients may cause.
const TOLERANCE: f64 = 1.015;

/// The factor by which one window changes the share at most, before [`STEP`].
const FALL_MAX: f64 = 0.5;
const RISE_MAX: f64 = 1.1;

/// The part of a computed change that is applied after each window.
const STEP: f64 = 0.5;

/// The slow-down above which operations are slow although the share is at its lowest. Chance alone may keep a lower one
/// above the tolerance for several windows.
const FUTILE: f64 = 1.1;

/// The number of windows with the lowest share and slow operations after which the share is opened: perhaps they are
/// slow for another reason, such as a slow subgraph.
const PATIENCE: u32 = 5;
const PATIENCE_MAX: u32 = 1000;

/// The change of the slow-down after which an open share is closed again. After a rise, the share had an effect, and it
/// is opened after four times as many windows. After a fall, a lower limit has made operations faster, and a share of
/// it may do the rest, or the other reason is gone.
const EFFECT: f64 = 1.1;

/// The spare share. It adapts in windows in which nothing but greedy clients reached their bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpareShare {
    share: f64,
    /// The windows with the lowest share and slow operations, and the number of them that opens the share.
    futile_windows: u32,
    patience: u32,
    slow_down_at_opening: f64,
}

impl SpareShare {
    pub(crate) fn new() -> Self {
        Self::with_share(INITIAL)
    }

    fn with_share(share: f64) -> Self {
        Self { share, futile_windows: 0, patience: PATIENCE, slow_down_at_opening: 1.0 }
    }

    /// True if the share has no effect at present: operations are slow for another reason.
    pub(crate) fn is_open(self) -> bool {
        self.futile_windows >= self.patience
    }

    /// Returns the units of work in flight up to which such clients are admitted, for a limit in units.
    pub(crate) fn of(self, limit: u64) -> u64 {
        match self.is_open() {
            true => limit,
            false => (limit as f64 * self.share) as u64,
        }
    }

    /// Notes that operations took this many times as long as without load, in a window.
    pub(crate) fn note(&mut self, slow_down: f64) {
        if slow_down < TOLERANCE {
            (self.futile_windows, self.patience) = (0, PATIENCE);
        } else if self.is_open() && slow_down > EFFECT * self.slow_down_at_opening {
            (self.futile_windows, self.patience) = (0, (4 * self.patience).min(PATIENCE_MAX));
        } else if self.is_open() && slow_down * EFFECT < self.slow_down_at_opening {
            self.futile_windows = 0;
        }
    }

    /// Changes the share after a window with this slow-down. With a limit that cannot grow the share may become the
    /// whole. Returns true if the share cannot grow any more although operations are not slow: then the limit itself is
    /// too low.
    pub(crate) fn adapt(&mut self, slow_down: f64, is_limit_fixed: bool) -> bool {
        let max = if is_limit_fixed { 1.0 } else { MAX };
        let factor = (TOLERANCE / slow_down.max(f64::MIN_POSITIVE)).clamp(FALL_MAX, RISE_MAX);
        self.share = (self.share * (1.0 + (factor - 1.0) * STEP)).clamp(MIN, max);
        if self.share <= MIN && slow_down > FUTILE && !self.is_open() {
            self.futile_windows += 1;
            self.slow_down_at_opening = slow_down;
        }
        self.share >= max && slow_down < TOLERANCE
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
                share.adapt((share.share / 0.6).max(1.0), false);
            }
            let slow_down = share.share / 0.6;
            assert!((1.01..1.02).contains(&slow_down), "{initial}: {slow_down}");
        }
    }

    #[test]
    fn without_a_slow_down_it_grows_and_then_the_limit_has_to() {
        let mut share = SpareShare::new();
        let grown = (1..).find(|_| share.adapt(1.0, false));
        assert_eq!(grown, Some(17));
        assert_eq!(share.of(1000), 850);
        assert!(!share.adapt(2.0, false), "slow operations are no reason for a higher limit");
    }

    #[test]
    fn with_a_limit_that_cannot_grow_it_becomes_the_whole() {
        let mut share = SpareShare::new();
        (0..50).for_each(|_| _ = share.adapt(1.0, true));
        assert_eq!(share.of(1000), 1000);
        share.adapt(1.5, true);
        assert!(share.of(1000) < 900);
    }

    /// Lowers the share until it is opened, and returns the number of windows with the lowest share.
    fn open(share: &mut SpareShare, slow_down: f64) -> usize {
        let mut lowest = 0;
        while !share.is_open() {
            assert!(!share.adapt(slow_down, false));
            lowest += usize::from(share.share <= MIN);
        }
        assert_eq!(share.of(1000), 1000);
        lowest
    }

    #[test]
    fn half_of_the_limit_is_left_and_all_of_it_if_that_changes_nothing() {
        let mut share = SpareShare::new();
        assert_eq!(open(&mut share, 10.0), 5);
        share.note(10.0);
        assert!(share.is_open(), "they are as slow with the whole limit");
        share.note(1.0);
        assert_eq!(share.of(1000), 500);
    }

    #[test]
    fn an_open_share_is_closed_when_operations_become_faster() {
        let mut share = SpareShare::new();
        open(&mut share, 10.0);
        share.note(9.5);
        assert!(share.is_open());
        share.note(9.0);
        assert_eq!(share.of(1000), 500);
    }

    #[test]
    fn a_share_that_had_an_effect_is_closed_again_and_opened_later() {
        let mut share = SpareShare::new();
        for windows in [5, 20, 80] {
            assert_eq!(open(&mut share, 1.5), windows);
            share.note(1.8);
            assert_eq!(share.of(1000), 500, "more work made them slower");
        }
    }
}
