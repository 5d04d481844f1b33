//! The circuit breaker of one subgraph, for the whole process: while nearly everything fails, nobody
//! is made to wait for it, and the subgraph gets the rest to recover.
//!
//! Closed: every request goes out, failures are counted. Open: none goes out for a while. Half-open:
//! one at a time goes out as a probe; some successes in a row close it, a failure opens it again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::BreakerSettings;

/// Failures older than this count no longer.
const WINDOW: Duration = Duration::from_secs(10);

/// Failures within this time are counted together: the window has at most ten such pieces.
const PIECE: Duration = Duration::from_secs(1);

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
}

#[derive(Debug)]
struct Piece {
    since: Instant,
    failures: u64,
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
                if !inner.is_too_much(&self.settings, successes, now) {
                    return None;
                }
            }
        }
        inner.until = now + self.settings.open_for;
        inner.pieces.clear();
        inner.probing = false;
        self.set(BreakerState::Open);
        Some(Change::Opened)
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
    /// Counts one more failure. Is that too much? The share is taken of what has happened since the
    /// oldest failure of the window: before it there was nothing to conclude from.
    fn is_too_much(&mut self, settings: &BreakerSettings, successes: u64, now: Instant) -> bool {
        while self.pieces.front().is_some_and(|it| now.duration_since(it.since) >= WINDOW) {
            self.pieces.pop_front();
        }
        match self.pieces.back_mut() {
            Some(piece) if now.duration_since(piece.since) < PIECE => piece.failures += 1,
            _ => self.pieces.push_back(Piece {
                since: now,
                failures: 1,
                successes_before: successes,
            }),
        }
        let failures: u64 = self.pieces.iter().map(|it| it.failures).sum();
        let before = self.pieces.front().map_or(successes, |it| it.successes_before);
        let all = failures + successes.saturating_sub(before);
        all >= u64::from(settings.min_requests)
            && failures * 100 >= all * u64::from(settings.failure_percent)
    }
}

impl Admission<'_> {
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
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        // A probe that nobody waited for: the next request is one.
        if self.is_probe {
            let mut inner = self.breaker.lock();
            if self.breaker.state() == BreakerState::HalfOpen {
                inner.probing = false;
            }
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
