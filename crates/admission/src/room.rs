//! The room that the work in flight leaves to the requests of a lane.

use crate::class::{Class, is_within_floor};

/// The room for requests of a lane. All amounts are units of work.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// The class of the lane.
    pub(crate) class: Class,
    /// The work of the class in flight.
    pub(crate) own: u64,
    /// All work in flight.
    pub(crate) total: u64,
    /// The limit.
    pub(crate) limit: u64,
    /// The part of the limit that greedy clients and sheddable requests may fill.
    pub(crate) spare: u64,
    /// The part of it that greedy clients may fill.
    pub(crate) greedy: u64,
    /// The work in flight up to which requests are admitted that open streams; `None` for other requests.
    pub(crate) stream_bound: Option<u64>,
}

impl Room {
    /// True if a request of this weight may begin.
    pub(crate) fn fits(self, weight: u32) -> bool {
        let Self { class, own, total, limit, spare, stream_bound, .. } = self;
        let units = u64::from(weight);
        let fits = match stream_bound {
            Some(bound) => total + units <= bound,
            None => class.fits(units, own, total, limit, spare),
        };
        // A request that is heavier than the whole limit runs alone.
        total == 0 || fits
    }

    /// True if a request of this weight fits although its client is greedy.
    pub(crate) fn fits_greedy(self, weight: u32) -> bool {
        let Self { class, own, total, limit, greedy, .. } = self;
        let units = u64::from(weight);
        class == Class::Critical || total + units <= greedy || is_within_floor(units, own, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(total: u64) -> Room {
        let class = Class::Normal;
        let (spare, greedy) = (10_000, 8000);
        Room { class, own: total, total, limit: 20_000, spare, greedy, stream_bound: None }
    }

    #[test]
    fn a_request_fits_up_to_the_limit_and_that_of_a_greedy_client_up_to_its_bound() {
        assert!(room(19_000).fits(1000) && !room(19_001).fits(1000));
        assert!(room(7000).fits_greedy(1000) && !room(7001).fits_greedy(1000));
        let critical = Room { class: Class::Critical, ..room(19_000) };
        assert!(critical.fits_greedy(1000));
    }

    #[test]
    fn streams_have_a_bound_of_their_own() {
        let streams = Room { stream_bound: Some(15_000), ..room(14_000) };
        assert!(streams.fits(1000) && !streams.fits(1001));
        let behind_others = Room { stream_bound: Some(0), ..room(1) };
        assert!(!behind_others.fits(1));
    }

    #[test]
    fn a_request_that_is_heavier_than_the_limit_runs_alone() {
        assert!(room(0).fits(30_000) && !room(1).fits(30_000));
        let streams = Room { stream_bound: Some(0), ..room(0) };
        assert!(streams.fits(30_000));
    }
}
