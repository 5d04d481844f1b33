//! When live queries are executed: state without a clock, a lock or a task.
//!
//! A query is executed when it begins, when something that it was made of is invalidated or expires, and after a
//! failure. It has one execution at a time, and there is a minimum time between the starts of two.
//!
//! Executions of queries that need a slow subgraph take long. So that the others have room meanwhile, only a part of
//! the executions may be of such queries; further ones wait until one of these has ended.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use cache::WatcherId;

/// The pause after a first execution with errors. It doubles with each further one.
const RETRY_MIN: Duration = Duration::from_secs(1);

/// The longest pause after an execution with errors.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The part of the remaining time by which an execution is delayed at random after the expiry of a part, so that
/// queries with a common part are not executed at the same moment.
const EXPIRY_SPREAD: u32 = 10;

/// The longest time by which an execution is delayed because of that.
const EXPIRY_SPREAD_MAX: Duration = Duration::from_millis(200);

/// The part of the executions, one in this number, that may be of queries that need a slow subgraph.
const SLOW_DIVISOR: usize = 2;

/// The live queries and the times of their next executions.
#[derive(Debug)]
pub(super) struct Schedule {
    queries: HashMap<WatcherId, ScheduledQuery>,
    /// The queries that wait for an execution, by its time.
    due: BTreeSet<(Instant, WatcherId)>,
    running: usize,
    running_max: usize,
    /// The queries that are due and need a slow subgraph, and wait for others of these. Some may be removed already.
    held: VecDeque<WatcherId>,
    /// The queries with executions that began while they needed a slow subgraph.
    running_slow: HashSet<WatcherId>,
}

#[derive(Debug)]
struct ScheduledQuery {
    /// The minimum time between the starts of two executions.
    throttle: Duration,
    last_start: Option<Instant>,
    due_at: Option<Instant>,
    is_running: bool,
    /// True if it is in [`Schedule::held`].
    is_held: bool,
    /// True if it is to be executed again when the present execution has ended.
    is_stale: bool,
    /// The number of executions with errors in a row.
    failures: u32,
}

/// The result of an execution, as far as it decides about the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Finished {
    /// True if a part was invalidated before the result was made.
    pub(super) is_stale: bool,
    /// True if it has errors, or was made of expired parts because a subgraph failed.
    pub(super) has_failed: bool,
    /// The time until the first part expires; `None` if no part does.
    pub(super) fresh_for: Option<Duration>,
}

/// The effect of an invalidation on a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StaleOutcome {
    /// It is due at once.
    Due,
    /// It waits for the minimum time, or for the end of the present execution.
    Delayed,
    /// It was to be executed for an earlier invalidation already, or is not known.
    Merged,
}

impl Schedule {
    /// Creates an empty schedule with at most `running_max` executions at a time.
    pub(super) fn new(running_max: usize) -> Self {
        Self {
            queries: HashMap::new(),
            due: BTreeSet::new(),
            running: 0,
            running_max,
            held: VecDeque::new(),
            running_slow: HashSet::new(),
        }
    }

    /// Adds a query, which is due at once.
    pub(super) fn add(&mut self, id: WatcherId, throttle: Duration, now: Instant) {
        let query = ScheduledQuery {
            throttle,
            last_start: None,
            due_at: None,
            is_running: false,
            is_held: false,
            is_stale: false,
            failures: 0,
        };
        self.queries.insert(id, query);
        self.set_due(id, Some(now));
    }

    /// Removes a query, if it is there. An execution of it continues to count until it has ended.
    pub(super) fn remove(&mut self, id: WatcherId) {
        self.set_due(id, None);
        self.queries.remove(&id);
    }

    /// Handles that something was invalidated that a query was made of.
    pub(super) fn on_invalidated(&mut self, id: WatcherId, now: Instant) -> StaleOutcome {
        let Some(query) = self.queries.get_mut(&id) else { return StaleOutcome::Merged };
        if std::mem::replace(&mut query.is_stale, true) {
            return StaleOutcome::Merged;
        }
        if query.is_running || query.is_held {
            return StaleOutcome::Delayed;
        }
        let at = query.earliest(now);
        self.set_due(id, Some(at));
        if at > now { StaleOutcome::Delayed } else { StaleOutcome::Due }
    }

    /// The time of the next execution. `None` if there is none, or no room for it before another one has ended.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.running >= self.running_max {
            return None;
        }
        self.due.first().map(|(at, _)| *at)
    }

    /// Starts the next execution that is due, if there is room for it. `is_slow` is true for a query that needs a slow
    /// subgraph.
    pub(super) fn start_next(
        &mut self,
        now: Instant,
        is_slow: impl Fn(WatcherId) -> bool,
    ) -> Option<WatcherId> {
        while self.running < self.running_max {
            let id = self.due.first().filter(|(at, _)| *at <= now)?.1;
            self.set_due(id, None);
            let query = self.queries.get_mut(&id)?;
            let is_slow = is_slow(id);
            if is_slow && self.running_slow.len() >= (self.running_max / SLOW_DIVISOR).max(1) {
                query.is_held = true;
                self.held.push_back(id);
                continue;
            }
            query.is_running = true;
            query.is_stale = false;
            query.last_start = Some(now);
            self.running += 1;
            if is_slow {
                self.running_slow.insert(id);
            }
            return Some(id);
        }
        None
    }

    /// Makes one of the queries due that wait for the end of another execution, or all if no execution is left that
    /// they wait for.
    fn release_held(&mut self, now: Instant) {
        while let Some(id) = self.held.pop_front() {
            let Some(query) = self.queries.get_mut(&id) else { continue };
            if std::mem::take(&mut query.is_held) {
                self.set_due(id, Some(now));
                if !self.running_slow.is_empty() {
                    return;
                }
            }
        }
    }

    /// Forgets the invalidations during the execution of a query so far. The caller then finds out whether the result
    /// has what they named.
    pub(super) fn forget_stale(&mut self, id: WatcherId) {
        if let Some(query) = self.queries.get_mut(&id) {
            query.is_stale = false;
        }
    }

    /// Handles the end of an execution. `random` must be uniform.
    pub(super) fn on_finished(
        &mut self,
        id: WatcherId,
        finished: Finished,
        now: Instant,
        random: u64,
    ) {
        self.running = self.running.saturating_sub(1);
        self.running_slow.remove(&id);
        self.release_held(now);
        let Some(query) = self.queries.get_mut(&id) else { return };
        query.is_running = false;
        let Finished { is_stale, has_failed, fresh_for } = finished;
        query.failures = if has_failed { query.failures.saturating_add(1) } else { 0 };
        query.is_stale |= is_stale;
        let earliest = query.earliest(now);
        let at = if query.is_stale {
            Some(earliest)
        } else if has_failed {
            let pause = RETRY_MIN.saturating_mul(1 << (query.failures - 1).min(16)).min(RETRY_MAX);
            // At least half of the pause.
            Some(earliest.max(now + pause / 2 + spread(pause / 2, random)))
        } else {
            fresh_for.map(|left| {
                let most = (left / EXPIRY_SPREAD).min(EXPIRY_SPREAD_MAX);
                earliest.max(now + left + spread(most, random))
            })
        };
        self.set_due(id, at);
    }

    /// Handles that an execution ended without a result: it is tried again like one with errors.
    pub(super) fn on_broken_off(&mut self, id: WatcherId, now: Instant, random: u64) {
        let finished = Finished { is_stale: false, has_failed: true, fresh_for: None };
        self.on_finished(id, finished, now, random);
    }

    /// The number of executions.
    #[cfg(test)]
    fn running(&self) -> usize {
        self.running
    }

    fn set_due(&mut self, id: WatcherId, at: Option<Instant>) {
        let Some(query) = self.queries.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut query.due_at, at) {
            self.due.remove(&(before, id));
        }
        if let Some(at) = at {
            self.due.insert((at, id));
        }
    }
}

impl ScheduledQuery {
    /// The earliest time of the next execution.
    fn earliest(&self, now: Instant) -> Instant {
        self.last_start.map_or(now, |last| now.max(last + self.throttle))
    }
}

/// Returns a part of `most`.
fn spread(most: Duration, random: u64) -> Duration {
    // The upper half is as random as the whole, and the product fits.
    let millis = most.as_millis().min(u128::from(u32::MAX)) as u64;
    Duration::from_millis((millis * (random >> 32)) >> 32)
}

#[cfg(test)]
mod tests {
    use cache::InvalidationTable;

    use super::*;

    const DONE: Finished = Finished { is_stale: false, has_failed: false, fresh_for: None };

    struct Fixture {
        schedule: Schedule,
        id: WatcherId,
        began: Instant,
    }

    impl Fixture {
        fn new(throttle: u64) -> Self {
            let began = Instant::now();
            let mut schedule = Schedule::new(2);
            let id = InvalidationTable::with_buckets(1).watch();
            schedule.add(id, Duration::from_millis(throttle), began);
            Self { schedule, id, began }
        }

        fn at(&self, millis: u64) -> Instant {
            self.began + Duration::from_millis(millis)
        }

        fn start(&mut self, millis: u64) -> bool {
            self.schedule.start_next(self.at(millis), |_| false).is_some()
        }

        fn invalidate(&mut self, millis: u64) -> StaleOutcome {
            self.schedule.on_invalidated(self.id, self.at(millis))
        }

        fn finish(&mut self, millis: u64, finished: Finished) {
            self.schedule.on_finished(self.id, finished, self.at(millis), 0);
        }

        fn next(&self) -> Option<u64> {
            let next = self.schedule.next_due()?;
            Some(next.duration_since(self.began).as_millis() as u64)
        }
    }

    #[test]
    fn a_query_is_executed_at_once_and_then_no_more_often_than_its_throttle() {
        let mut it = Fixture::new(500);
        assert!(it.start(0) && !it.start(0));
        it.finish(20, DONE);
        assert_eq!(it.next(), None);
        assert_eq!(it.invalidate(100), StaleOutcome::Delayed);
        assert_eq!(it.invalidate(200), StaleOutcome::Merged);
        assert_eq!(it.next(), Some(500));
        assert!(!it.start(499) && it.start(500));
        it.finish(510, DONE);
        assert_eq!(it.invalidate(1_100), StaleOutcome::Due);
        assert_eq!(it.next(), Some(1_100));
    }

    #[test]
    fn invalidations_during_an_execution_cause_one_more() {
        let mut it = Fixture::new(0);
        assert!(it.start(0));
        assert_eq!(
            [it.invalidate(1), it.invalidate(2)],
            [StaleOutcome::Delayed, StaleOutcome::Merged]
        );
        assert_eq!(it.next(), None);
        it.finish(10, DONE);
        assert_eq!(it.next(), Some(10));
        assert!(it.start(10));
        it.finish(20, DONE);
        assert_eq!(it.next(), None);
        assert_eq!(it.invalidate(30), StaleOutcome::Due);
        assert!(it.start(30));
        it.invalidate(31);
        it.schedule.forget_stale(it.id);
        it.finish(40, DONE);
        assert_eq!(it.next(), None, "the result was made after the invalidation");
        it.schedule.add(it.id, Duration::ZERO, it.at(50));
        assert!(it.start(50));
        it.finish(60, Finished { is_stale: true, ..DONE });
        assert_eq!(it.next(), Some(60));
    }

    #[test]
    fn a_query_is_executed_when_its_first_part_expires() {
        let mut it = Fixture::new(100);
        assert!(it.start(0));
        let fresh_for = Some(Duration::from_millis(1_000));
        it.finish(50, Finished { fresh_for, ..DONE });
        assert_eq!(it.next(), Some(1_050));
        assert_eq!(it.invalidate(300), StaleOutcome::Due);
        assert_eq!(it.next(), Some(300), "an invalidation comes first");
        assert!(it.start(300));
        it.finish(310, Finished { fresh_for: Some(Duration::from_millis(10)), ..DONE });
        assert_eq!(it.next(), Some(400), "the throttle holds for expiry, too");
        let at = it.at(400);
        assert!(it.start(400));
        it.schedule.on_finished(it.id, Finished { fresh_for, ..DONE }, at, u64::MAX);
        assert_eq!(it.next(), Some(1_499), "put off by a tenth of the time");
    }

    #[test]
    fn failures_are_tried_again_with_growing_pauses_and_at_once_after_an_invalidation() {
        let mut it = Fixture::new(0);
        let failed = Finished { has_failed: true, ..DONE };
        let mut now = 0;
        for expected in [500, 1_000, 2_000] {
            assert!(it.start(now));
            it.finish(now, failed);
            assert_eq!(it.next(), Some(now + expected));
            now += expected;
        }
        assert!(it.start(now));
        it.finish(now, failed);
        assert_eq!(it.invalidate(now + 1), StaleOutcome::Due);
        assert!(it.start(now + 1));
        it.finish(now + 2, DONE);
        assert_eq!(it.next(), None);
        it.schedule.on_invalidated(it.id, it.at(now + 3));
        assert!(it.start(now + 3));
        it.schedule.on_broken_off(it.id, it.at(now + 3), 0);
        assert_eq!(it.next(), Some(now + 503), "the pauses begin anew");
    }

    #[test]
    fn executions_wait_for_room_and_removed_queries_are_not_started() {
        let table = InvalidationTable::with_buckets(1);
        let (mut schedule, now) = (Schedule::new(2), Instant::now());
        let ids: Vec<_> = (0..4).map(|_| table.watch()).collect();
        ids.iter().for_each(|id| schedule.add(*id, Duration::ZERO, now));
        schedule.remove(ids[0]);
        let started: Vec<_> = std::iter::from_fn(|| schedule.start_next(now, |_| false)).collect();
        assert_eq!((started.len(), schedule.next_due()), (2, None));
        schedule.remove(started[0]);
        schedule.on_finished(started[0], DONE, now, 0);
        assert_eq!((schedule.running(), schedule.next_due()), (1, Some(now)));
        assert_eq!(schedule.start_next(now, |_| false), Some(ids[3]));
        assert_eq!(schedule.on_invalidated(ids[0], now), StaleOutcome::Merged);
    }

    #[test]
    fn queries_that_need_a_slow_subgraph_leave_half_of_the_executions_to_others() {
        let table = InvalidationTable::with_buckets(1);
        let (mut schedule, now) = (Schedule::new(4), Instant::now());
        let slow: Vec<_> = (0..5).map(|_| table.watch()).collect();
        let quick: Vec<_> = (0..2).map(|_| table.watch()).collect();
        slow.iter().chain(&quick).for_each(|id| schedule.add(*id, Duration::ZERO, now));
        let start = |schedule: &mut Schedule| -> Vec<WatcherId> {
            let next = || schedule.start_next(now, |id| slow.contains(&id));
            std::iter::from_fn(next).collect()
        };
        assert_eq!(start(&mut schedule), [slow[0], slow[1], quick[0], quick[1]]);
        assert_eq!(schedule.on_invalidated(slow[2], now), StaleOutcome::Delayed, "it waits");
        for id in &quick {
            schedule.on_finished(*id, DONE, now, 0);
        }
        assert!(start(&mut schedule).is_empty(), "they wait for others of the slow subgraph");
        schedule.on_finished(slow[0], DONE, now, 0);
        assert_eq!(start(&mut schedule).len(), 1);
        // The subgraph has recovered: none is forgotten.
        schedule.on_finished(slow[1], DONE, now, 0);
        let mut executed = 3;
        while let Some(id) = schedule.start_next(now, |_| false) {
            executed += 1;
            schedule.on_finished(id, DONE, now, 0);
        }
        assert_eq!((executed, schedule.held.len()), (5, 0));
    }
}
