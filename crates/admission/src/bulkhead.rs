//! The share of one subgraph in the work in flight.
//!
//! Operations that wait for a slow subgraph stay in flight for long. Without a bound they soon are all of the work that
//! the limit admits, and operations that do not need the subgraph are refused with them. A bulkhead keeps apart what
//! belongs to one subgraph: while it is slow, and the operations in flight that need it are its share of the limit,
//! further operations do without it.
//!
//! A subgraph is **slow** if its requests take several times longer than usual. A fast one may hold any part of the
//! limit, since it is what the work consists of, and the limit follows its latency. The latency is the mean of the
//! latest responses, or the mean age of the requests in flight if that is greater: a subgraph that hangs has no
//! responses. The usual latency falls with the mean of many responses, and rises slowly while that is greater, so that
//! a subgraph that stays slow is normal after some minutes. Until so many responses are known, it is the mean of those
//! that are, and that of the other subgraphs as long as there is none: a router that starts while a subgraph hangs
//! should not wait for it as long as the slowest of all subgraphs would take.
//!
//! **The share** is the part of the arriving work that needs the subgraph, if that is more than the configured one: a
//! subgraph that all operations need has no others to be kept apart from, and the limit alone decides.
//!
//! **What waits for a subgraph that hangs does not count in the limit**
//! ([`AdmissionControl::set_uncounted`](crate::AdmissionControl::set_uncounted)). The share bounds it, it costs memory
//! only, and nothing ends it before its time is over. If it counted, a limit that falls would leave nothing to
//! operations that do not need the subgraph: more than the share may have been admitted before the subgraph was known
//! to be slow, or while the limit was greater. A saturated router, for which all subgraphs are slow, has responses from
//! all of them, so that all of its work counts.
//!
//! **Neither oscillation nor starvation.** The bound is a part of the limit, which does not depend on how slow the
//! subgraph is or how much is refused, so there is no loop that could oscillate: a slow subgraph has its share of the
//! work in flight, and does as much as it can with that. When it recovers, its requests end soon, and it holds less
//! than its share within one of its latencies.

use std::time::Duration;

use crate::class::Class;

/// The multiple of the usual latency from which a subgraph is slow.
const SLOW_RATIO: f64 = 3.0;

/// A latency below this is never slow, in seconds. The router itself may be delayed as much.
const SLOW_MIN: f64 = 0.1;

/// The greatest usual latency of a subgraph of which few responses are known, and that of one of which none is known
/// and which has no others to be compared with, in seconds. Such a subgraph is slow after three seconds.
const UNKNOWN_USUAL: f64 = 1.0;

/// The number of responses over which the mean of the latest ones is taken.
const RECENT_RESPONSES: f64 = 64.0;

/// The number of responses and the time after which the usual latency is adapted.
const WINDOW_RESPONSES: u32 = 64;
const WINDOW_MIN: Duration = Duration::from_secs(1);

/// The share of a lower mean in the usual latency.
const USUAL_FALL: f64 = 0.5;

/// The rise of the usual latency for each second in which the mean is greater: ten times in about eight minutes.
const USUAL_RISE: f64 = 0.005;

/// The time over which the part of the arriving work is measured, and the share of a measurement in it.
const PART_WINDOW: Duration = Duration::from_secs(1);
const PART_STEP: f64 = 0.3;

/// The part of the arriving work up to which a subgraph has a bound, and the greatest share of one that has. What is
/// left is for others.
const BOUNDED_PART_MAX: f64 = 0.99;
const BOUNDED_SHARE_MAX: f64 = 0.9;

/// The longest time for which a window may count, in seconds.
const RISE_SECONDS_MAX: f64 = 10.0;

/// The state of one subgraph. All times are durations since any fixed point, and must not go back.
#[derive(Debug)]
pub struct Bulkhead {
    /// The latency without trouble, in seconds; 0 if it is not known.
    usual: f64,
    /// The usual latency as long as there was no response, in seconds.
    assumed: f64,
    /// The mean latency of the latest responses, in seconds, and their number up to [`RECENT_RESPONSES`].
    recent: f64,
    recent_count: f64,
    window_started: Duration,
    window_sum: f64,
    window_count: u32,
    /// The number of requests in flight, and the sum of the times at which they began, in nanoseconds.
    requests: u64,
    began_sum: u128,
    /// The units of work in flight that need the subgraph: of critical requests, and of others.
    held_critical: u64,
    held_others: u64,
    /// The units of work that have arrived and need the subgraph.
    arrived: u64,
    /// The time of the last response.
    responded: Option<Duration>,
    /// The part of the arriving work that needs the subgraph: that of the first measurement, as far as it has come,
    /// until one is complete.
    part: f64,
    is_part_measured: bool,
    /// The beginning of the measurement, with the units that had arrived then: those that need the subgraph, and all.
    /// The first measurement begins with the first work that needs the subgraph.
    part_started: Option<Duration>,
    part_counts: (u64, u64),
}

/// The work of the whole router, in units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouterWork {
    /// The limit on the work in flight.
    pub limit: u64,
    /// The work that has arrived so far, also that which needs no subgraph.
    pub arrived: u64,
}

/// A place of one operation in the share of a subgraph. It is given back by [`Bulkhead::leave`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a place that is not given back stays taken"]
pub struct BulkheadPlace {
    class: Class,
    weight: u32,
}

impl Default for Bulkhead {
    fn default() -> Self {
        Self {
            usual: 0.0,
            assumed: UNKNOWN_USUAL,
            recent: 0.0,
            recent_count: 0.0,
            window_started: Duration::ZERO,
            window_sum: 0.0,
            window_count: 0,
            requests: 0,
            began_sum: 0,
            held_critical: 0,
            held_others: 0,
            arrived: 0,
            responded: None,
            part: 1.0,
            is_part_measured: false,
            part_started: None,
            part_counts: (0, 0),
        }
    }
}

impl Bulkhead {
    /// Notes that a request to the subgraph begins. It must be ended by [`Bulkhead::end_request`] with the same time.
    pub fn begin_request(&mut self, now: Duration) {
        self.requests += 1;
        self.began_sum += now.as_nanos();
    }

    /// Notes the end of a request that began at `began`. `has_ended` is false if its client has gone, or if it has
    /// failed, so that its time says little.
    pub fn end_request(&mut self, began: Duration, has_ended: bool, now: Duration) {
        self.requests = self.requests.saturating_sub(1);
        self.began_sum = self.began_sum.saturating_sub(began.as_nanos());
        let latency = now.saturating_sub(began).as_secs_f64();
        if has_ended {
            self.responded = Some(now);
        }
        if !has_ended && (self.recent_count == 0.0 || latency < self.recent) {
            return;
        }
        self.recent_count = (self.recent_count + 1.0).min(RECENT_RESPONSES);
        self.recent += (latency - self.recent) / self.recent_count;
        if self.window_count == 0 {
            self.window_started = now;
        }
        self.window_sum += latency;
        self.window_count += 1;
        let elapsed = now.saturating_sub(self.window_started);
        if self.window_count >= WINDOW_RESPONSES && elapsed >= WINDOW_MIN {
            self.adapt(self.window_sum / f64::from(self.window_count), elapsed);
            (self.window_sum, self.window_count) = (0.0, 0);
        }
    }

    fn adapt(&mut self, mean: f64, elapsed: Duration) {
        if self.usual == 0.0 {
            // A router may start while the subgraph is slow.
            self.usual = mean.min(UNKNOWN_USUAL);
        } else if mean < self.usual {
            self.usual += (mean - self.usual) * USUAL_FALL;
        } else {
            let rise = 1.0 + USUAL_RISE * elapsed.as_secs_f64().min(RISE_SECONDS_MAX);
            self.usual = (self.usual * rise).min(mean);
        }
    }

    /// Returns the latency without trouble in seconds, as far as it is known: `None` if there was no response.
    pub fn usual_latency(&self) -> Option<f64> {
        match self.usual {
            0.0 if self.recent_count == 0.0 => None,
            0.0 => Some(self.recent.min(UNKNOWN_USUAL)),
            usual => Some(usual),
        }
    }

    /// Sets what the usual latency is taken for as long as there was no response: that of the other subgraphs, in
    /// seconds. It is a second at most.
    pub fn assume_usual(&mut self, latency: f64) {
        self.assumed = latency.min(UNKNOWN_USUAL);
    }

    /// Returns the time after which the subgraph is slow, as long as no request begins or ends: zero if it is slow
    /// already, and `None` if it is not and has no requests in flight, so that no time makes it slow.
    pub fn slow_after(&self) -> Option<Duration> {
        let slow = self.slow_latency();
        if self.recent > slow.as_secs_f64() {
            return Some(Duration::ZERO);
        }
        // The mean age of the requests in flight is the age of one that began at the mean of their times.
        let began = self.began_sum.checked_div(u128::from(self.requests))?;
        let began = Duration::from_nanos(u64::try_from(began).unwrap_or(u64::MAX));
        Some(began.saturating_add(slow))
    }

    /// Returns the latency from which the subgraph is slow.
    fn slow_latency(&self) -> Duration {
        let slow = (self.usual_latency().unwrap_or(self.assumed) * SLOW_RATIO).max(SLOW_MIN);
        Duration::try_from_secs_f64(slow).unwrap_or(Duration::MAX)
    }

    /// Returns the units of work in flight that need the subgraph, if it hangs: they do not count in the limit. 0 for
    /// one that responds, and for one that all operations need.
    pub fn waiting_in_vain(&self, now: Duration) -> u64 {
        let is_silent = |responded: Duration| now.saturating_sub(responded) > self.slow_latency();
        let hangs =
            self.requests > 0 && self.responded.is_none_or(is_silent) && self.is_kept_apart(now);
        if hangs { self.held() } else { 0 }
    }

    /// True if requests take much longer than they usually do.
    pub fn is_slow(&self, now: Duration) -> bool {
        self.slow_after().is_some_and(|time| now > time)
    }

    /// True if the subgraph is slow and has a bound: its share, and not the limit, is what keeps the operations that
    /// need it from those that do not.
    pub fn is_kept_apart(&self, now: Duration) -> bool {
        self.part <= BOUNDED_PART_MAX && self.is_slow(now)
    }

    /// Returns the units of work in flight that need the subgraph.
    pub fn held(&self) -> u64 {
        self.held_critical + self.held_others
    }

    /// Takes a place for an operation that needs the subgraph, and has arrived now. `share` is the part of the limit
    /// that a slow subgraph may hold. For critical requests only those of other critical requests count. Returns `None`
    /// if the operation must do without the subgraph.
    pub fn enter(
        &mut self,
        class: Class,
        weight: u32,
        share: f64,
        work: RouterWork,
        now: Duration,
    ) -> Option<BulkheadPlace> {
        self.note_arrival(weight, work.arrived, now);
        let held = match class {
            Class::Critical => self.held_critical,
            Class::Normal | Class::Sheddable => self.held(),
        };
        // One operation is always let through: its response shows that the subgraph has recovered.
        let is_beyond = held + u64::from(weight) > self.bound(share, work.limit);
        if held > 0 && is_beyond && self.is_slow(now) {
            return None;
        }
        *self.held_by(class) += u64::from(weight);
        Some(BulkheadPlace { class, weight })
    }

    /// Returns the units of work that the subgraph may hold while it is slow.
    fn bound(&self, share: f64, limit: u64) -> u64 {
        if self.part > BOUNDED_PART_MAX {
            return u64::MAX;
        }
        (limit as f64 * self.part.min(BOUNDED_SHARE_MAX).max(share)) as u64
    }

    /// Measures the part of the arriving work that needs the subgraph. `all` is all work that has arrived.
    fn note_arrival(&mut self, weight: u32, all: u64, now: Duration) {
        let before = (self.arrived, all.saturating_sub(weight.into()));
        self.arrived += u64::from(weight);
        let Some(started) = self.part_started else {
            (self.part_started, self.part_counts) = (Some(now), before);
            return;
        };
        let (arrived, all_before) = self.part_counts;
        let is_complete = now.saturating_sub(started) >= PART_WINDOW;
        if (self.is_part_measured && !is_complete) || all <= all_before {
            return;
        }
        let measured = (self.arrived - arrived) as f64 / (all - all_before) as f64;
        let step = if self.is_part_measured { PART_STEP } else { 1.0 };
        self.part += (measured.min(1.0) - self.part) * step;
        if is_complete {
            self.is_part_measured = true;
            (self.part_started, self.part_counts) = (Some(now), (self.arrived, all));
        }
    }

    /// Gives back a place.
    pub fn leave(&mut self, place: BulkheadPlace) {
        let held = self.held_by(place.class);
        *held = held.saturating_sub(u64::from(place.weight));
    }

    fn held_by(&mut self, class: Class) -> &mut u64 {
        match class {
            Class::Critical => &mut self.held_critical,
            Class::Normal | Class::Sheddable => &mut self.held_others,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UNITS;

    /// Ten operations.
    const SHARE: f64 = 0.1;
    const LIMIT: u64 = 100 * UNITS as u64;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Returns a subgraph with requests of 20 ms, and the time.
    fn usual(bulkhead: &mut Bulkhead) -> u64 {
        for request in 0..200 {
            bulkhead.begin_request(at(request * 20));
            bulkhead.end_request(at(request * 20), true, at(request * 20 + 20));
        }
        200 * 20
    }

    /// Lets an operation arrive, one of twenty of which the others do not need the subgraph.
    fn enter(bulkhead: &mut Bulkhead, class: Class, now: u64) -> Option<BulkheadPlace> {
        enter_with(bulkhead, class, UNITS, now)
    }

    fn enter_with(
        bulkhead: &mut Bulkhead,
        class: Class,
        weight: u32,
        now: u64,
    ) -> Option<BulkheadPlace> {
        let arrived = (bulkhead.arrived + u64::from(weight)) * 20;
        bulkhead.enter(class, weight, SHARE, RouterWork { limit: LIMIT, arrived }, at(now))
    }

    #[test]
    fn a_fast_subgraph_holds_any_part_of_the_work() {
        let mut bulkhead = Bulkhead::default();
        let now = usual(&mut bulkhead);
        let places: Vec<_> =
            (0..100).map(|_| enter(&mut bulkhead, Class::Normal, now).unwrap()).collect();
        assert_eq!(bulkhead.held(), 100 * u64::from(UNITS));
        places.into_iter().for_each(|it| bulkhead.leave(it));
        assert_eq!(bulkhead.held(), 0);
    }

    #[test]
    fn a_subgraph_that_hangs_holds_its_share_until_it_responds() {
        let mut bulkhead = Bulkhead::default();
        let now = usual(&mut bulkhead);
        let mut places: Vec<_> =
            (0..10).map(|_| enter(&mut bulkhead, Class::Normal, now).unwrap()).collect();
        bulkhead.begin_request(at(now));
        assert!(!bulkhead.is_slow(at(now + 90)));
        places.push(enter(&mut bulkhead, Class::Normal, now + 90).unwrap());
        assert!(bulkhead.is_slow(at(now + 110)), "it is older than five responses");
        assert!(enter(&mut bulkhead, Class::Normal, now + 110).is_none());
        assert!(enter(&mut bulkhead, Class::Sheddable, now + 110).is_none());
        // Operations below the share go on using it.
        let left: Vec<_> = places.drain(..2).collect();
        left.into_iter().for_each(|it| bulkhead.leave(it));
        places.push(enter(&mut bulkhead, Class::Normal, now + 120).unwrap());
        assert!(enter(&mut bulkhead, Class::Normal, now + 120).is_none());
        bulkhead.end_request(at(now), true, at(now + 150));
        assert!(!bulkhead.is_slow(at(now + 150)), "one response is not the mean of the latest");
        assert!(enter(&mut bulkhead, Class::Normal, now + 150).is_some());
    }

    #[test]
    fn a_subgraph_without_responses_is_compared_with_others() {
        // The assumed latency, the times of the responses, and the age from which the subgraph is slow.
        for (assumed, responses, expected) in [
            (None, &[][..], 3000),
            (Some(0.05), &[], 150),
            (Some(0.001), &[], 100),
            (Some(20.0), &[], 3000),
            (Some(0.05), &[80], 240),
            (Some(0.05), &[300, 500], 1200),
            (Some(0.05), &[5000], 3000),
        ] {
            let mut bulkhead = Bulkhead::default();
            if let Some(assumed) = assumed {
                bulkhead.assume_usual(assumed);
            }
            for millis in responses {
                bulkhead.begin_request(at(0));
                bulkhead.end_request(at(0), true, at(*millis));
            }
            // A response of five seconds is slow already.
            let is_slow_already = responses == [5000];
            bulkhead.begin_request(at(10_000));
            let slow_after = bulkhead.slow_after().map(|it| it.as_millis() as u64);
            let expected = if is_slow_already { 0 } else { 10_000 + expected };
            assert_eq!(slow_after, Some(expected), "{assumed:?} {responses:?}");
        }
    }

    #[test]
    fn what_waits_for_a_hanging_subgraph_does_not_count() {
        let mut bulkhead = Bulkhead::default();
        let now = usual(&mut bulkhead);
        bulkhead.begin_request(at(now));
        let mut places: Vec<_> =
            (0..30).map(|_| enter(&mut bulkhead, Class::Normal, now).unwrap()).collect();
        let all = 30 * u64::from(UNITS);
        assert_eq!(bulkhead.waiting_in_vain(at(now + 90)), 0, "it is not slow");
        assert_eq!(bulkhead.waiting_in_vain(at(now + 110)), all);
        // A response shows that it works, though it is slow: those that wait have theirs soon.
        bulkhead.begin_request(at(now));
        bulkhead.end_request(at(now), true, at(now + 150));
        assert!(bulkhead.is_slow(at(now + 200)));
        assert_eq!(bulkhead.waiting_in_vain(at(now + 200)), 0);
        assert_eq!(bulkhead.waiting_in_vain(at(now + 300)), all, "it hangs again");
        places.drain(..).for_each(|it| bulkhead.leave(it));
        assert_eq!(bulkhead.waiting_in_vain(at(now + 300)), 0);
    }

    #[test]
    fn the_share_is_known_before_the_first_second_has_passed() {
        let mut bulkhead = Bulkhead::default();
        bulkhead.assume_usual(0.02);
        bulkhead.begin_request(at(100_000));
        // One of four operations needs it, from a minute after the start of a router that had others before.
        let mut places = Vec::new();
        for number in 1..=100 {
            let arrived = 1_000_000 + number * 4 * u64::from(UNITS);
            let work = RouterWork { limit: LIMIT, arrived };
            let now = at(100_000 + number * 2);
            places.extend(bulkhead.enter(Class::Normal, UNITS, SHARE, work, now));
        }
        assert_eq!(places.len(), 50, "those of the first 100 ms");
        places.drain(..40).for_each(|it| bulkhead.leave(it));
        assert!((bulkhead.part - 0.25).abs() < 0.01, "{}", bulkhead.part);
    }

    #[test]
    fn the_time_after_which_a_subgraph_is_slow_is_known_before() {
        // The times at which requests begin, and the time after which the subgraph is slow.
        for (begin, expected) in [
            (&[][..], None),
            (&[0], Some(100)),
            (&[40], Some(140)),
            (&[0, 40, 80], Some(140)),
            (&[0; 1000], Some(100)),
        ] {
            let mut bulkhead = Bulkhead::default();
            let now = usual(&mut bulkhead);
            begin.iter().for_each(|after| bulkhead.begin_request(at(now + after)));
            let expected = expected.map(|after| at(now + after));
            assert_eq!(bulkhead.slow_after(), expected, "{begin:?}");
            let is_slow = |time| bulkhead.is_slow(time);
            assert!(expected.is_none_or(|time| !is_slow(time) && is_slow(time + at(1))));
            assert_eq!(is_slow(at(now + 1_000_000)), expected.is_some());
        }
        let mut bulkhead = Bulkhead::default();
        let now = usual(&mut bulkhead);
        bulkhead.begin_request(at(now));
        bulkhead.end_request(at(now), true, at(now + 60_000));
        assert_eq!(bulkhead.slow_after(), Some(Duration::ZERO), "its latest responses were slow");
    }

    #[test]
    fn critical_operations_use_a_slow_subgraph_beside_those_of_others() {
        let mut bulkhead = Bulkhead::default();
        let now = usual(&mut bulkhead);
        bulkhead.begin_request(at(now));
        let later = now + 1000;
        let others: Vec<_> =
            (0..20).map_while(|_| enter(&mut bulkhead, Class::Normal, later)).collect();
        assert_eq!(others.len(), 10);
        let critical: Vec<_> =
            (0..20).map_while(|_| enter(&mut bulkhead, Class::Critical, later)).collect();
        assert_eq!(critical.len(), 10);
    }

    #[test]
    fn a_single_operation_is_let_through_however_heavy_it_is() {
        let mut bulkhead = Bulkhead::default();
        let first = enter(&mut bulkhead, Class::Normal, 0).unwrap();
        bulkhead.leave(first);
        bulkhead.begin_request(at(0));
        assert!(bulkhead.is_slow(at(3001)), "a subgraph that has never responded");
        let place = enter_with(&mut bulkhead, Class::Normal, 20 * UNITS, 3001).unwrap();
        assert!(enter_with(&mut bulkhead, Class::Normal, UNITS / 10, 3001).is_none());
        bulkhead.leave(place);
    }

    #[test]
    fn the_share_is_the_part_of_the_work_that_needs_the_subgraph_if_that_is_more() {
        // Of a hundred operations, this number needs the subgraph.
        let held = |of_hundred: u64| {
            let mut bulkhead = Bulkhead::default();
            let start = usual(&mut bulkhead);
            bulkhead.begin_request(at(start));
            let mut places = Vec::new();
            for number in 1..=200 {
                let now = start + 1000 + number * 10;
                let arrived = number * u64::from(UNITS) * 100 / of_hundred;
                let work = RouterWork { limit: LIMIT, arrived };
                places.extend(bulkhead.enter(Class::Normal, UNITS, SHARE, work, at(now)));
            }
            places.len()
        };
        assert_eq!([2, 10, 40, 80].map(held), [10, 10, 40, 80]);
        assert_eq!(held(95), 90, "something is left for others");
        assert_eq!(held(100), 200, "there are no others");
    }

    #[test]
    fn a_slow_subgraph_that_all_operations_need_is_not_kept_apart() {
        for (of_hundred, is_kept_apart) in [(50, true), (100, false)] {
            let mut bulkhead = Bulkhead::default();
            let start = usual(&mut bulkhead);
            bulkhead.begin_request(at(start));
            for number in 1..=200 {
                let now = start + 1000 + number * 10;
                let arrived = number * u64::from(UNITS) * 100 / of_hundred;
                let work = RouterWork { limit: LIMIT, arrived };
                _ = bulkhead.enter(Class::Normal, UNITS, SHARE, work, at(now));
            }
            assert_eq!(bulkhead.is_kept_apart(at(start + 3000)), is_kept_apart);
        }
    }

    #[test]
    fn a_lasting_change_of_the_latency_becomes_usual_after_minutes() {
        let mut bulkhead = Bulkhead::default();
        let start = usual(&mut bulkhead);
        let mut slow_until = 0;
        for request in 0..6000 {
            let began = at(start + request * 200);
            bulkhead.begin_request(began);
            let ended = began + at(200);
            bulkhead.end_request(began, true, ended);
            if bulkhead.is_slow(ended) {
                slow_until = request / 5;
            }
        }
        assert!((120..900).contains(&slow_until), "{slow_until} s");
        // The way back is short.
        let start = start + 6000 * 200;
        for request in 0..1000 {
            let began = at(start + request * 20);
            bulkhead.begin_request(began);
            bulkhead.end_request(began, true, began + at(20));
        }
        assert!(bulkhead.usual < 0.025, "{}", bulkhead.usual);
    }

    #[test]
    fn requests_of_clients_that_have_gone_do_not_make_a_subgraph_look_fast() {
        let mut bulkhead = Bulkhead::default();
        let now = usual(&mut bulkhead);
        for request in 0..1000 {
            bulkhead.begin_request(at(now + request));
            bulkhead.end_request(at(now + request), false, at(now + request + 1));
        }
        assert!((bulkhead.recent - 0.02).abs() < 1e-9);
    }
}
