//! The circuit breaker of one subgraph, for the whole process: while nearly all requests fail,
//! clients do not wait for them, and the subgraph has time to recover.
//!
//! Closed: every request is sent, failures are counted. Open: no request is sent for a while.
//! Half-open: one request at a time is sent as a probe; some successes in a row close the breaker,
//! a failure opens it again.
//!
//! One client must not make a subgraph unavailable to all others by requests that the subgraph
//! cannot handle. If the requests may be the cause of the failures
//! ([`Admission::failed_unclearly`]), a request of the router's own decides ([`HealthCheck`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::BreakerSettings;

/// Time for which a failure counts.
const WINDOW: Duration = Duration::from_secs(10);

/// Failures within this time are counted together: the window has at most ten such slices.
const SLICE: Duration = Duration::from_secs(1);

/// Minimum time between two checks that the subgraph has passed. It bounds the cost of failing
/// requests.
const CHECK_PAUSE: Duration = Duration::from_secs(1);

/// Number of successive probes that must succeed. One success may be luck, or come from the only
/// instance that is up.
const PROBES_TO_CLOSE: u32 = 3;

/// The state of a circuit breaker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BreakerState {
    /// Admits all requests.
    Closed = 0,
    /// Admits one request at a time.
    HalfOpen = 1,
    /// Admits no request.
    Open = 2,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    settings: BreakerSettings,
    state: AtomicU8,
    /// Number of all requests that did not fail.
    successes: AtomicU64,
    // A lock for failures and probes only; the path of a success through a closed breaker takes none.
    counts: Mutex<BreakerCounts>,
}

#[derive(Debug)]
struct BreakerCounts {
    /// Failures of the window, oldest first.
    slices: VecDeque<WindowSlice>,
    /// The end of the open state.
    until: Instant,
    /// In the half-open state: true while a probe is in flight, and the number that have succeeded.
    probing: bool,
    probes_succeeded: u32,
    /// True while a check of a closed breaker is in flight, and the time before which none begins.
    is_checking: bool,
    next_check: Instant,
}

#[derive(Debug)]
struct WindowSlice {
    since: Instant,
    failures: u64,
    /// Failures that may be due to the request, not included in `failures`.
    unclear: u64,
    /// Successes before the first failure of the slice.
    successes_before: u64,
}

/// The breaker is open, for this time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BreakerOpen(pub(crate) Duration);

/// A change of the state of the breaker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BreakerChange {
    /// Opened after this number of failures in the window, or after 1 failed probe.
    Opened {
        failures: u64,
    },
    Closed,
}

/// Permission for one request. Dropping it means that its outcome is unknown.
#[derive(Debug)]
pub(crate) struct Admission<'a> {
    breaker: &'a Breaker,
    is_probe: bool,
}

/// A request for a query that no client had a part in, which shows if the subgraph works. Dropping
/// it means that its outcome is unknown.
#[derive(Debug)]
#[must_use]
pub(crate) struct HealthCheck<'a> {
    breaker: &'a Breaker,
    /// True if the check replaces a probe, false if the breaker is closed.
    is_probe: bool,
    is_over: bool,
}

impl Breaker {
    pub(crate) fn new(settings: BreakerSettings, now: Instant) -> Self {
        Self {
            settings,
            state: AtomicU8::new(BreakerState::Closed as u8),
            successes: AtomicU64::new(0),
            counts: Mutex::new(BreakerCounts {
                slices: VecDeque::new(),
                until: now,
                probing: false,
                probes_succeeded: 0,
                is_checking: false,
                next_check: now,
            }),
        }
    }

    pub(crate) fn state(&self) -> BreakerState {
        match self.state.load(Ordering::Acquire) {
            0 => BreakerState::Closed,
            1 => BreakerState::HalfOpen,
            _ => BreakerState::Open,
        }
    }

    /// Admits a request, or returns the time for which the breaker is open.
    pub(crate) fn admit(&self, now: Instant) -> Result<Admission<'_>, BreakerOpen> {
        if self.state() == BreakerState::Closed {
            return Ok(Admission { breaker: self, is_probe: false });
        }
        let mut counts = self.lock();
        match self.state() {
            BreakerState::Closed => return Ok(Admission { breaker: self, is_probe: false }),
            BreakerState::Open if now < counts.until => {
                return Err(BreakerOpen(counts.until.saturating_duration_since(now)));
            }
            BreakerState::Open => {
                self.set(BreakerState::HalfOpen);
                counts.probing = false;
                counts.probes_succeeded = 0;
            }
            BreakerState::HalfOpen => {}
        }
        if counts.probing {
            return Err(BreakerOpen(Duration::ZERO));
        }
        counts.probing = true;
        Ok(Admission { breaker: self, is_probe: true })
    }

    fn failed(&self, is_probe: bool, now: Instant) -> Option<BreakerChange> {
        let mut counts = self.lock();
        match self.state() {
            // Admitted before the breaker opened: it is known that requests fail.
            BreakerState::Open => return None,
            BreakerState::HalfOpen if !is_probe => return None,
            BreakerState::HalfOpen => {}
            BreakerState::Closed => {
                let successes = self.successes.load(Ordering::Relaxed);
                counts.current_slice(successes, now).failures += 1;
                if !counts.exceeds_threshold(&self.settings, successes, |it| it.failures) {
                    return None;
                }
            }
        }
        Some(self.open(&mut counts, now))
    }

    fn failed_unclearly(&self, is_probe: bool, now: Instant) -> Option<HealthCheck<'_>> {
        let mut counts = self.lock();
        match self.state() {
            BreakerState::Open => None,
            // The check becomes the probe.
            BreakerState::HalfOpen => is_probe.then(|| HealthCheck::new(self, true)),
            BreakerState::Closed => {
                let successes = self.successes.load(Ordering::Relaxed);
                counts.current_slice(successes, now).unclear += 1;
                let is_due = !counts.is_checking && now >= counts.next_check;
                let count = |it: &WindowSlice| it.failures + it.unclear;
                if !is_due || !counts.exceeds_threshold(&self.settings, successes, count) {
                    return None;
                }
                counts.is_checking = true;
                Some(HealthCheck::new(self, false))
            }
        }
    }

    /// Ends a probe without a result: the next request is one.
    fn release_probe(&self) {
        let mut counts = self.lock();
        if self.state() == BreakerState::HalfOpen {
            counts.probing = false;
        }
    }

    fn open(&self, counts: &mut BreakerCounts, now: Instant) -> BreakerChange {
        let failures: u64 = counts.slices.iter().map(|it| it.failures + it.unclear).sum();
        counts.until = now + self.settings.open_for;
        counts.slices.clear();
        counts.probing = false;
        self.set(BreakerState::Open);
        // The window is empty if a probe has failed.
        BreakerChange::Opened { failures: failures.max(1) }
    }

    fn probe_succeeded(&self) -> Option<BreakerChange> {
        let mut counts = self.lock();
        if self.state() != BreakerState::HalfOpen {
            return None;
        }
        counts.probing = false;
        counts.probes_succeeded += 1;
        if counts.probes_succeeded < PROBES_TO_CLOSE {
            return None;
        }
        self.set(BreakerState::Closed);
        Some(BreakerChange::Closed)
    }

    fn set(&self, state: BreakerState) {
        self.state.store(state as u8, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, BreakerCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BreakerCounts {
    /// The slice that counts a failure at this time.
    fn current_slice(&mut self, successes: u64, now: Instant) -> &mut WindowSlice {
        while self.slices.front().is_some_and(|it| now.duration_since(it.since) >= WINDOW) {
            self.slices.pop_front();
        }
        let is_new = self.slices.back().is_none_or(|it| now.duration_since(it.since) >= SLICE);
        if is_new {
            let slice =
                WindowSlice { since: now, failures: 0, unclear: 0, successes_before: successes };
            self.slices.push_back(slice);
        }
        let last = self.slices.len() - 1;
        &mut self.slices[last]
    }

    /// True if there are too many of these failures. The share is that of all requests since the
    /// oldest failure of the window: before it there was nothing to conclude from.
    fn exceeds_threshold(
        &self,
        settings: &BreakerSettings,
        successes: u64,
        failures: impl Fn(&WindowSlice) -> u64,
    ) -> bool {
        let failures: u64 = self.slices.iter().map(failures).sum();
        let before = self.slices.front().map_or(successes, |it| it.successes_before);
        let all = failures + successes.saturating_sub(before);
        all >= u64::from(settings.min_requests)
            && failures * 100 >= all * u64::from(settings.failure_percent)
    }
}

impl<'a> Admission<'a> {
    /// Records that the subgraph works.
    pub(crate) fn succeeded(mut self) -> Option<BreakerChange> {
        if std::mem::take(&mut self.is_probe) {
            return self.breaker.probe_succeeded();
        }
        self.breaker.successes.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Records that the subgraph does not work.
    pub(crate) fn failed(mut self, now: Instant) -> Option<BreakerChange> {
        self.breaker.failed(std::mem::take(&mut self.is_probe), now)
    }

    /// Records that the subgraph does not work, or cannot handle this request. Returns a check if
    /// the difference matters.
    pub(crate) fn failed_unclearly(mut self, now: Instant) -> Option<HealthCheck<'a>> {
        let check = self.breaker.failed_unclearly(self.is_probe, now);
        self.is_probe &= check.is_none();
        check
    }
}

impl<'a> HealthCheck<'a> {
    fn new(breaker: &'a Breaker, is_probe: bool) -> Self {
        Self { breaker, is_probe, is_over: false }
    }

    /// Records that the subgraph works, so that the unclear failures do not count.
    pub(crate) fn passed(mut self, now: Instant) -> Option<BreakerChange> {
        self.is_over = true;
        if self.is_probe {
            return self.breaker.probe_succeeded();
        }
        let mut counts = self.breaker.lock();
        counts.is_checking = false;
        counts.next_check = now + CHECK_PAUSE;
        counts.slices.iter_mut().for_each(|it| it.unclear = 0);
        None
    }

    /// Records that the subgraph does not work.
    pub(crate) fn failed(mut self, now: Instant) -> Option<BreakerChange> {
        self.is_over = true;
        if self.is_probe {
            return self.breaker.failed(true, now);
        }
        let mut counts = self.breaker.lock();
        counts.is_checking = false;
        // Other requests may have opened it meanwhile.
        let is_closed = self.breaker.state() == BreakerState::Closed;
        is_closed.then(|| self.breaker.open(&mut counts, now))
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if self.is_probe {
            self.breaker.release_probe();
        }
    }
}

impl Drop for HealthCheck<'_> {
    fn drop(&mut self) {
        match (self.is_over, self.is_probe) {
            (true, _) => {}
            (false, true) => self.breaker.release_probe(),
            (false, false) => self.breaker.lock().is_checking = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        breaker: Breaker,
        now: Instant,
    }

    impl Case {
        fn new() -> Self {
            let now = Instant::now();
            let settings = BreakerSettings {
                failure_percent: 50,
                min_requests: 4,
                open_for: Duration::from_secs(5),
            };
            Self { breaker: Breaker::new(settings, now), now }
        }

        fn after(&mut self, millis: u64) -> &mut Self {
            self.now += Duration::from_millis(millis);
            self
        }

        fn succeed(&mut self, times: u32) -> &mut Self {
            for _ in 0..times {
                self.breaker.admit(self.now).unwrap().succeeded();
            }
            self
        }

        fn fail(&mut self, times: u32) -> &mut Self {
            for _ in 0..times {
                self.breaker.admit(self.now).unwrap().failed(self.now);
            }
            self
        }

        fn open() -> Self {
            let mut case = Self::new();
            case.fail(4);
            assert_eq!(case.breaker.state(), BreakerState::Open);
            case
        }
    }

    #[test]
    fn few_failures_among_many_successes_change_nothing() {
        let mut case = Case::new();
        for _ in 0..100 {
            case.succeed(9).fail(3).after(300);
        }
        assert_eq!(case.breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn it_opens_when_half_of_enough_requests_have_failed() {
        let mut case = Case::new();
        case.succeed(1000).fail(3);
        assert_eq!(case.breaker.state(), BreakerState::Closed);
        case.fail(1);
        assert_eq!(case.breaker.state(), BreakerState::Open);
    }

    #[test]
    fn old_failures_no_longer_count() {
        let mut case = Case::new();
        for _ in 0..20 {
            case.fail(1).after(4_000);
        }
        assert_eq!(case.breaker.state(), BreakerState::Closed);
        case.fail(2);
        assert_eq!(case.breaker.state(), BreakerState::Open);
    }

    #[test]
    fn while_open_it_returns_the_pause_and_then_admits_one_probe_at_a_time() {
        let mut case = Case::open();
        case.after(3_000);
        assert_eq!(case.breaker.admit(case.now).unwrap_err(), BreakerOpen(Duration::from_secs(2)));
        case.after(2_000);
        let probe = case.breaker.admit(case.now).unwrap();
        assert_eq!(case.breaker.state(), BreakerState::HalfOpen);
        assert_eq!(case.breaker.admit(case.now).unwrap_err(), BreakerOpen(Duration::ZERO));
        assert_eq!(probe.succeeded(), None);
        let abandoned = case.breaker.admit(case.now).unwrap();
        drop(abandoned);
        assert_eq!(case.breaker.admit(case.now).unwrap().succeeded(), None);
        assert_eq!(case.breaker.admit(case.now).unwrap().succeeded(), Some(BreakerChange::Closed));
        assert_eq!(case.breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn a_failed_probe_opens_it_again() {
        let mut case = Case::open();
        case.after(5_000);
        let probe = case.breaker.admit(case.now).unwrap();
        assert_eq!(probe.failed(case.now), Some(BreakerChange::Opened { failures: 1 }));
        assert_eq!(case.breaker.admit(case.now).unwrap_err(), BreakerOpen(Duration::from_secs(5)));
    }

    #[test]
    fn failures_that_requests_may_have_caused_open_it_only_if_the_check_fails() {
        let Case { breaker, now } = Case::new();
        let fail = |now| breaker.admit(now).unwrap().failed_unclearly(now);
        for _ in 0..3 {
            assert!(fail(now).is_none());
        }
        let check = fail(now).unwrap();
        assert!(fail(now).is_none(), "one check at a time");
        assert_eq!(check.passed(now), None);
        for _ in 0..10 {
            assert!(fail(now).is_none(), "it has just passed one");
        }
        let later = now + CHECK_PAUSE;
        drop(fail(later).unwrap());
        let opened = Some(BreakerChange::Opened { failures: 12 });
        assert_eq!(fail(later).unwrap().failed(later), opened);
        assert_eq!(breaker.state(), BreakerState::Open);
    }

    #[test]
    fn failures_that_requests_may_have_caused_do_not_count_with_others() {
        let mut case = Case::new();
        case.succeed(4);
        for _ in 0..100 {
            let admission = case.breaker.admit(case.now).unwrap();
            admission.failed_unclearly(case.now).map(|it| it.passed(case.now));
        }
        case.fail(3);
        assert_eq!(case.breaker.state(), BreakerState::Closed);
        case.fail(1);
        assert_eq!(case.breaker.state(), BreakerState::Open);
    }

    #[test]
    fn a_check_takes_the_place_of_a_probe_that_failed_unclearly() {
        let mut case = Case::open();
        case.after(5_000);
        for _ in 0..PROBES_TO_CLOSE {
            assert_ne!(case.breaker.state(), BreakerState::Closed);
            let check = case.breaker.admit(case.now).unwrap().failed_unclearly(case.now).unwrap();
            assert_eq!(case.breaker.admit(case.now).unwrap_err(), BreakerOpen(Duration::ZERO));
            let _ = check.passed(case.now);
        }
        assert_eq!(case.breaker.state(), BreakerState::Closed);

        let mut case = Case::open();
        case.after(5_000);
        let Case { breaker, now } = &case;
        let probe = || breaker.admit(*now).unwrap().failed_unclearly(*now).unwrap();
        drop(probe());
        let change = probe().failed(*now);
        assert_eq!(change, Some(BreakerChange::Opened { failures: 1 }));
    }

    #[test]
    fn requests_admitted_before_it_opened_do_not_change_it_afterwards() {
        let Case { breaker, now } = Case::new();
        let early = breaker.admit(now).unwrap();
        let late = breaker.admit(now).unwrap();
        for _ in 0..4 {
            breaker.admit(now).unwrap().failed(now);
        }
        let later = now + Duration::from_secs(5);
        let probe = breaker.admit(later).unwrap();
        assert_eq!((early.succeeded(), late.failed(later)), (None, None));
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        drop(probe);
    }
}
