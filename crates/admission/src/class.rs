//! The classes of requests, and the part of the limit that each may use.

/// The importance of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Class {
    /// Never refused while other classes hold work: it may use the whole limit, whatever they use.
    Critical,
    /// May use the whole limit together with the other classes.
    #[default]
    Normal,
    /// Refused first: may use what is left below three quarters of the limit, or below the spare share if that is less.
    Sheddable,
}

/// The part of the limit up to which sheddable requests are admitted. The rest stays free for the others.
pub(crate) const SHEDDABLE_SHARE: f64 = 0.75;

/// The part of the limit that a class may always use, so that it never starves. Together with the work of other classes
/// the limit can be exceeded by this part, or by one operation if that is heavier.
pub(crate) const CLASS_FLOOR: f64 = 0.05;

impl Class {
    /// All classes, the most important first.
    pub const ALL: [Self; 3] = [Self::Critical, Self::Normal, Self::Sheddable];

    /// The position of the class in [`Class::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name of the class, as in the configuration and the labels of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Normal => "normal",
            Self::Sheddable => "sheddable",
        }
    }

    /// True if one more request of the class fits. All amounts are in units of work: `weight` of the request, `own` in
    /// flight of the class, and `total` in flight of all classes. `spare` is the part of the limit that is not kept for
    /// others.
    pub(crate) fn fits(self, weight: u64, own: u64, total: u64, limit: u64, spare: u64) -> bool {
        let (own_after, total_after) = (own + weight, total + weight);
        match self {
            // The work of other classes does not count.
            Self::Critical => own == 0 || own_after <= limit,
            Self::Normal => total_after <= limit || is_within_floor(weight, own, limit),
            Self::Sheddable => {
                total_after <= part(limit, SHEDDABLE_SHARE).min(spare)
                    || is_within_floor(weight, own, limit)
            }
        }
    }
}

/// True if a request of a class with `own` work in flight is admitted whatever other classes hold. One operation always
/// is: a heavy one, or any at a low limit, may be more than the part.
pub(crate) fn is_within_floor(weight: u64, own: u64, limit: u64) -> bool {
    own == 0 || own + weight <= part(limit, CLASS_FLOOR)
}

/// Returns a part of an amount of work.
pub(crate) fn part(limit: u64, share: f64) -> u64 {
    (limit as f64 * share) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(class: Class, weight: u64, own: u64, total: u64, limit: u64) -> bool {
        class.fits(weight, own, total, limit, limit)
    }

    #[test]
    fn critical_requests_fit_beside_any_work_of_others() {
        assert!(fits(Class::Critical, 1000, 0, 500_000, 100_000));
        assert!(fits(Class::Critical, 1000, 99_000, 500_000, 100_000));
        assert!(!fits(Class::Critical, 1001, 99_000, 99_000, 100_000));
    }

    #[test]
    fn the_last_quarter_of_the_limit_is_not_for_sheddable_requests() {
        assert!(fits(Class::Sheddable, 1000, 70_000, 74_000, 100_000));
        assert!(!fits(Class::Sheddable, 1000, 70_000, 74_001, 100_000));
        assert!(fits(Class::Normal, 1000, 0, 99_000, 100_000));
        assert!(!fits(Class::Normal, 1000, 50_000, 99_001, 100_000));
    }

    #[test]
    fn sheddable_requests_are_held_to_the_spare_share() {
        assert!(Class::Sheddable.fits(1000, 49_000, 49_000, 100_000, 50_000));
        assert!(!Class::Sheddable.fits(1000, 49_001, 49_001, 100_000, 50_000));
        assert!(Class::Normal.fits(1000, 99_000, 99_000, 100_000, 50_000));
    }

    #[test]
    fn no_class_starves_while_another_holds_the_limit() {
        assert!(fits(Class::Normal, 1000, 4_000, 200_000, 100_000));
        assert!(!fits(Class::Normal, 1000, 4_001, 200_000, 100_000));
        assert!(fits(Class::Sheddable, 1000, 4_000, 200_000, 100_000));
        assert!(!fits(Class::Sheddable, 1000, 4_001, 200_000, 100_000));
    }

    #[test]
    fn each_class_has_one_operation_in_flight_however_heavy_it_is() {
        for class in Class::ALL {
            assert!(fits(class, 10_000, 0, 200_000, 100_000), "{class:?}: a heavy one");
            assert!(fits(class, 1000, 0, 10_000, 10_000), "{class:?}: a low limit");
            assert!(!fits(class, 10_000, 100_000, 200_000, 100_000), "{class:?}");
        }
    }
}
