//! Where the responses to an operation came from: counters for its hit ratios.

use std::sync::atomic::{AtomicU64, Ordering};

use single_flight::Role;
use telemetry::read;

use crate::trace::ResponseSource;

/// The origin of one response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResponseOrigin {
    /// The operation was executed, and whole responses were not looked up for it.
    Executed,
    /// The operation was executed, because its response was not in memory.
    Missed,
    /// The whole response was in memory.
    Fresh,
    /// The whole response was in memory, and its time was over.
    Stale,
    /// It is the response to an equal operation in flight. Whole responses were not looked up.
    Shared,
    /// It is the response to an equal operation in flight, because it was not in memory.
    SharedMiss,
}

impl ResponseOrigin {
    /// All origins, in the order of their counters.
    pub(super) const ALL: [Self; 6] =
        [Self::Executed, Self::Missed, Self::Fresh, Self::Stale, Self::Shared, Self::SharedMiss];

    /// Returns the origin of a response. `role` is the way in which the operation was shared.
    pub(crate) fn of(role: Option<Role>, source: Option<ResponseSource>) -> Self {
        let is_shared = role == Some(Role::Follower);
        match source {
            Some(ResponseSource::Memory { is_stale: false, .. }) => Self::Fresh,
            Some(ResponseSource::Memory { is_stale: true, .. }) => Self::Stale,
            Some(ResponseSource::Executed) if is_shared => Self::SharedMiss,
            Some(ResponseSource::Executed) => Self::Missed,
            Some(ResponseSource::NotLookedUp) | None if is_shared => Self::Shared,
            Some(ResponseSource::NotLookedUp) | None => Self::Executed,
        }
    }
}

/// A counter for each origin with a prepared operation and without one, so that a request is one addition.
#[derive(Debug, Default)]
pub(super) struct OriginCounts([[AtomicU64; 2]; ResponseOrigin::ALL.len()]);

/// The hits and misses of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HitCounts {
    /// Requests with an operation that was prepared before.
    pub plan_hits: u64,
    /// Requests for which the operation was prepared.
    pub plan_misses: u64,
    /// Whole responses from memory, within their time.
    pub response_hits: u64,
    /// Whole responses from memory after their time, while the operation was executed again.
    pub response_stale_hits: u64,
    /// Whole responses that were looked up and were not in memory.
    pub response_misses: u64,
    /// Responses to equal operations in flight.
    pub shared: u64,
}

impl OriginCounts {
    /// Counts a response. `was_prepared` says whether its operation was prepared before.
    pub(super) fn count(&self, origin: ResponseOrigin, was_prepared: bool) {
        self.0[origin as usize][usize::from(was_prepared)].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds all counts of another row.
    pub(super) fn add_all(&self, other: &Self) {
        for (own, other) in self.0.as_flattened().iter().zip(other.0.as_flattened()) {
            own.fetch_add(read(other), Ordering::Relaxed);
        }
    }

    /// Returns the hits and misses.
    pub(super) fn read(&self) -> HitCounts {
        let mut hits = HitCounts::default();
        for (origin, [prepared_now, prepared_before]) in ResponseOrigin::ALL.iter().zip(&self.0) {
            let (misses, plan_hits) = (read(prepared_now), read(prepared_before));
            hits.plan_hits += plan_hits;
            hits.plan_misses += misses;
            let responses = plan_hits + misses;
            match origin {
                ResponseOrigin::Executed => {}
                ResponseOrigin::Missed => hits.response_misses += responses,
                ResponseOrigin::Fresh => hits.response_hits += responses,
                ResponseOrigin::Stale => hits.response_stale_hits += responses,
                ResponseOrigin::Shared => hits.shared += responses,
                ResponseOrigin::SharedMiss => {
                    hits.shared += responses;
                    hits.response_misses += responses;
                }
            }
        }
        hits
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_response_has_one_origin() {
        let memory = |is_stale| Some(ResponseSource::Memory { age: Duration::ZERO, is_stale });
        let (leader, follower) = (Some(Role::Leader), Some(Role::Follower));
        for (role, source, expected) in [
            (None, None, ResponseOrigin::Executed),
            (leader, Some(ResponseSource::NotLookedUp), ResponseOrigin::Executed),
            (leader, Some(ResponseSource::Executed), ResponseOrigin::Missed),
            (None, memory(false), ResponseOrigin::Fresh),
            (None, memory(true), ResponseOrigin::Stale),
            (follower, None, ResponseOrigin::Shared),
            (follower, Some(ResponseSource::Executed), ResponseOrigin::SharedMiss),
        ] {
            assert_eq!(ResponseOrigin::of(role, source), expected, "{role:?} {source:?}");
        }
    }

    #[test]
    fn the_hits_of_two_rows_are_added() {
        let (one, other) = (OriginCounts::default(), OriginCounts::default());
        for (index, origin) in ResponseOrigin::ALL.into_iter().enumerate() {
            assert_eq!(origin as usize, index);
            one.count(origin, true);
        }
        other.count(ResponseOrigin::SharedMiss, false);
        other.count(ResponseOrigin::Fresh, true);
        one.add_all(&other);
        let expected = HitCounts {
            plan_hits: 7,
            plan_misses: 1,
            response_hits: 2,
            response_stale_hits: 1,
            response_misses: 3,
            shared: 3,
        };
        assert_eq!(one.read(), expected);
    }
}
