//! The circuit breaker of one subgraph, for the whole process: while nearly everything fails, nobody
//! is made to wait for it, and the subgraph gets the rest to recover.
//!
//! Closed: every request goes out, failures are counted. Open: none goes out for a while. Half-open:
//! one at a time goes out as a probe; some successes in a row close it, a failure opens it again.
//!
//! One client must not take a subgraph away from all others by requests that the subgraph cannot handle. Where failures
//! may be due to the requests ([`Admission::failed_unclearly`]), a request of the router's own decides ([`Check`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::BreakerSettings;

/// Failures older than this count no longer.
const WINDOW: Duration = Duration::from_secs(10);

/// Failures within this time are counted together: the window has at most ten such pieces.
const PIECE: Duration = Duration::from_secs(1);

/// The least time between two checks that the subgraph has passed: what failing requests may cost it.
const CHECK_PAUSE: Duration = Duration::from_secs(1);

/// Probes in a row that must succeed. One may be luck, or answered by the only instance that is up.
const PROBES_TO_CLOSE: u32 = 3;

/// What a breaker does with requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BreakerState {
    /// Lets all through.
    Closed = 0,
    /// Lets one at a time through.
    HalfOpen = 1,
    /// Lets none through.
    Open = 2,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    settings: BreakerSettings,
    state: AtomicU8,
    /// Requests that did not fail, ever.
    successes: AtomicU64,
    // A lock for failures and probes only; the path of a success through a closed breaker takes none.
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Failures of the window, oldest first.
    pieces: VecDeque<Piece>,
    /// While open.
    until: Instant,
    /// While half-open: is a probe out, and how many have succeeded?
    probing: bool,
    probes_succeeded: u32,
    /// Is a check of a closed breaker under way, and before when does none begin?
    is_checking: bool,
    next_check: Instant,
}

#[derive(Debug)]
struct Piece {
    since: Instant,
    failures: u64,
    /// Those that may be due to the request, apart from `failures`.
    unclear: u64,
    /// Successes before the first of them.
    successes_before: u64,
}

/// The breaker is open: how long it will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IsOpen(pub(crate) Duration);

/// What changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Opened,
    Closed,
}

/// One request that was let through. Dropping it says that nothing was learnt.
#[derive(Debug)]
pub(crate) struct Admission<'a> {
    breaker: &'a Breaker,
    is_probe: bool,
}

/// Asks for a request that no client had a part in: does the subgraph answer it? Dropping it says that nothing was
/// learnt.
#[derive(Debug)]
#[must_use]
pub(crate) struct Check<'a> {
    breaker: &'a Breaker,
    /// In place of the probe, or of a closed breaker?
    is_probe: bool,
    is_over: bool,
}

impl Breaker {
    pub(crate) fn new(settings: BreakerSettings, now: Instant) -> Self {
        Self {
            settings,
            state: AtomicU8::new(BreakerState::Closed as u8),
            successes: AtomicU64::new(0),
            inner: Mutex::new(Inner {
                pieces: VecDeque::new(),
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

    /// May a request go out?
    pub(crate) fn admit(&self, now: Instant) -> Result<Admission<'_>, IsOpen> {
        if self.state() == BreakerState::Closed {
            return Ok(Admission { breaker: self, is_probe: false });
        }
        let mut inner = self.lock();
        match self.state() {
            BreakerState::Closed => return Ok(Admission { breaker: self, is_probe: false }),
            BreakerState::Open if now < inner.until => {
                return Err(IsOpen(inner.until.saturating_duration_since(now)));
            }
            BreakerState::Open => {
                self.set(BreakerState::HalfOpen);
                inner.probing = false;
                inner.probes_succeeded = 0;
            }
            BreakerState::HalfOpen => {}
        }
        if inner.probing {
            return Err(IsOpen(Duration::ZERO));
        }
        inner.probing = true;
        Ok(Admission { breaker: self, is_probe: true })
    }

    fn failed(&self, is_probe: bool, now: Instant) -> Option<Change> {
        let mut inner = self.lock();
        match self.state() {
            // Let through before it opened: that failures go on is known.
            BreakerState::Open => return None,
            BreakerState::HalfOpen if !is_probe => return None,
            BreakerState::HalfOpen => {}
            BreakerState::Closed => {
                let successes = self.successes.load(Ordering::Relaxed);
                inner.piece(successes, now).failures += 1;
                if !inner.is_too_much(&self.settings, successes, |it| it.failures) {
                    return None;
                }
            }
        }
        Some(self.open(&mut inner, now))
    }

    fn failed_unclearly(&self, is_probe: bool, now: Instant) -> Option<Check<'_>> {
        let mut inner = self.lock();
        match self.state() {
            BreakerState::Open => None,
            // It stays the probe.
            BreakerState::HalfOpen => is_probe.then(|| Check::new(self, true)),
            BreakerState::Closed => {
                let successes = self.successes.load(Ordering::Relaxed);
                inner.piece(successes, now).unclear += 1;
                let is_due = !inner.is_checking && now >= inner.next_check;
                let count = |it: &Piece| it.failures + it.unclear;
                if !is_due || !inner.is_too_much(&self.settings, successes, count) {
                    return None;
                }
                inner.is_checking = true;
                Some(Check::new(self, false))
            }
        }
    }

    /// A probe that nobody waited for: the next request is one.
    fn release_probe(&self) {
        let mut inner = self.lock();
        if self.state() == BreakerState::HalfOpen {
            inner.probing = false;
        }
    }

    fn open(&self, inner: &mut Inner, now: Instant) -> Change {
        inner.until = now + self.settings.open_for;
        inner.pieces.clear();
        inner.probing = false;
        self.set(BreakerState::Open);
        Change::Opened
    }

    fn probe_succeeded(&self) -> Option<Change> {
        let mut inner = self.lock();
        if self.state() != BreakerState::HalfOpen {
            return None;
        }
        inner.probing = false;
        inner.probes_succeeded += 1;
        if inner.probes_succeeded < PROBES_TO_CLOSE {
            return None;
        }
        self.set(BreakerState::Closed);
        Some(Change::Closed)
    }

    fn set(&self, state: BreakerState) {
        self.state.store(state as u8, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Where a failure of now is counted.
    fn piece(&mut self, successes: u64, now: Instant) -> &mut Piece {
        while self.pieces.front().is_some_and(|it| now.duration_since(it.since) >= WINDOW) {
            self.pieces.pop_front();
        }
        let is_new = self.pieces.back().is_none_or(|it| now.duration_since(it.since) >= PIECE);
        if is_new {
            let piece = Piece { since: now, failures: 0, unclear: 0, successes_before: successes };
            self.pieces.push_back(piece);
        }
        let last = self.pieces.len() - 1;
        &mut self.pieces[last]
    }

    /// Are these failures too much? The share is taken of what has happened since the oldest failure of the window:
    /// before it there was nothing to conclude from.
    fn is_too_much(
        &self,
        settings: &BreakerSettings,
        successes: u64,
        failures: impl Fn(&Piece) -> u64,
    ) -> bool {
        let failures: u64 = self.pieces.iter().map(failures).sum();
        let before = self.pieces.front().map_or(successes, |it| it.successes_before);
        let all = failures + successes.saturating_sub(before);
        all >= u64::from(settings.min_requests)
            && failures * 100 >= all * u64::from(settings.failure_percent)
    }
}

impl<'a> Admission<'a> {
    /// The subgraph works.
    pub(crate) fn succeeded(mut self) -> Option<Change> {
        if std::mem::take(&mut self.is_probe) {
            return self.breaker.probe_succeeded();
        }
        self.breaker.successes.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// The subgraph does not work.
    pub(crate) fn failed(mut self, now: Instant) -> Option<Change> {
        self.breaker.failed(std::mem::take(&mut self.is_probe), now)
    }

    /// The subgraph does not work, or it cannot handle this request. Where the difference matters, a check must tell.
    pub(crate) fn failed_unclearly(mut self, now: Instant) -> Option<Check<'a>> {
        let check = self.breaker.failed_unclearly(self.is_probe, now);
        self.is_probe &= check.is_none();
        check
    }
}

impl<'a> Check<'a> {
    fn new(breaker: &'a Breaker, is_probe: bool) -> Self {
        Self { breaker, is_probe, is_over: false }
    }

    /// The subgraph works: those failures say nothing of it.
    pub(crate) fn passed(mut self, now: Instant) -> Option<Change> {
        self.is_over = true;
        if self.is_probe {
            return self.breaker.probe_succeeded();
        }
        let mut inner = self.breaker.lock();
        inner.is_checking = false;
        inner.next_check = now + CHECK_PAUSE;
        inner.pieces.iter_mut().for_each(|it| it.unclear = 0);
        None
    }

    /// The subgraph does not work.
    pub(crate) fn failed(mut self, now: Instant) -> Option<Change> {
        self.is_over = true;
        if self.is_probe {
            return self.breaker.failed(true, now);
        }
        let mut inner = self.breaker.lock();
        inner.is_checking = false;
        // Others may have opened it meanwhile.
        let is_closed = self.breaker.state() == BreakerState::Closed;
        is_closed.then(|| self.breaker.open(&mut inner, now))
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if self.is_probe {
            self.breaker.release_probe();
        }
    }
}

impl Drop for Check<'_> {
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
    fn old_failures_count_no_longer() {
        let mut case = Case::new();
        for _ in 0..20 {
            case.fail(1).after(4_000);
        }
        assert_eq!(case.breaker.state(), BreakerState::Closed);
        case.fail(2);
        assert_eq!(case.breaker.state(), BreakerState::Open);
    }

    #[test]
    fn while_open_it_says_how_long_and_then_lets_one_probe_through_at_a_time() {
        let mut case = Case::open();
        case.after(3_000);
        assert_eq!(case.breaker.admit(case.now).unwrap_err(), IsOpen(Duration::from_secs(2)));
        case.after(2_000);
        let probe = case.breaker.admit(case.now).unwrap();
        assert_eq!(case.breaker.state(), BreakerState::HalfOpen);
        assert_eq!(case.breaker.admit(case.now).unwrap_err(), IsOpen(Duration::ZERO));
        assert_eq!(probe.succeeded(), None);
        let abandoned = case.breaker.admit(case.now).unwrap();
        drop(abandoned);
        assert_eq!(case.breaker.admit(case.now).unwrap().succeeded(), None);
        assert_eq!(case.breaker.admit(case.now).unwrap().succeeded(), Some(Change::Closed));
        assert_eq!(case.breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn a_failed_probe_opens_it_again() {
        let mut case = Case::open();
        case.after(5_000);
        let probe = case.breaker.admit(case.now).unwrap();
        assert_eq!(probe.failed(case.now), Some(Change::Opened));
        assert_eq!(case.breaker.admit(case.now).unwrap_err(), IsOpen(Duration::from_secs(5)));
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
        assert_eq!(fail(later).unwrap().failed(later), Some(Change::Opened));
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
            assert_eq!(case.breaker.admit(case.now).unwrap_err(), IsOpen(Duration::ZERO));
            let _ = check.passed(case.now);
        }
        assert_eq!(case.breaker.state(), BreakerState::Closed);

        let mut case = Case::open();
        case.after(5_000);
        let Case { breaker, now } = &case;
        let probe = || breaker.admit(*now).unwrap().failed_unclearly(*now).unwrap();
        drop(probe());
        let change = probe().failed(*now);
        assert_eq!(change, Some(Change::Opened));
    }

    #[test]
    fn what_went_out_before_it_opened_has_no_say_afterwards() {
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
