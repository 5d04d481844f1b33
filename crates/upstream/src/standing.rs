//! What the whole process shares about one subgraph: counters, bounds on connections, the circuit
//! breaker, the retry budget. It outlives reloads as long as the subgraph stays what it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use execute::FetchError;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::breaker::Breaker;
use crate::log_throttle::LogThrottle;
use crate::retry::Budget;
use crate::reuse::ReuseGuard;
use crate::stats::Wait;
use crate::{UpstreamSettings, UpstreamStats};

/// Requests on one HTTP/2 connection at a time: the least that servers are asked to allow (RFC 9113,
/// section 6.5.2), and what many do.
pub(crate) const STREAMS_MAX: usize = 100;

/// See the module.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Names the connections that belong to it: see `pool`.
    pub(crate) pool: PoolId,
    pub(crate) stats: Arc<UpstreamStats>,
    pub(crate) limits: Limits,
    pub(crate) breaker: Option<Breaker>,
    pub(crate) budget: Budget,
    /// The last TLS handshake agreed on HTTP/2.
    pub(crate) agreed_http2: AtomicBool,
    /// Whether HTTP/1.1 connections may carry several requests.
    pub(crate) reuse: Arc<ReuseGuard>,
    /// How often failed requests are logged.
    pub(crate) failure_log: LogThrottle,
    /// How often errors are logged that the subgraph reported and that clients do not see.
    pub(crate) reported_log: LogThrottle,
}

/// Identity of one subgraph's connections in the pools of all cores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PoolId(u64);

impl Standing {
    pub(crate) fn new(
        subgraph: &str,
        settings: &UpstreamSettings,
        stats: Arc<UpstreamStats>,
        now: Instant,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            pool: PoolId(NEXT.fetch_add(1, Ordering::Relaxed)),
            reuse: Arc::new(ReuseGuard::new(subgraph, settings.probation, Arc::clone(&stats), now)),
            stats,
            limits: Limits::new(settings),
            breaker: settings.breaker.clone().map(|it| Breaker::new(it, now)),
            budget: Budget::new(&settings.retry, now),
            agreed_http2: AtomicBool::new(false),
            failure_log: LogThrottle::default(),
            reported_log: LogThrottle::default(),
        }
    }
}

/// Bounds on connections. Two semaphores, both fair: who has a turn needs at most one connection (of
/// HTTP/1.1), and there are as many turns as connections. So who waits for a connection to open waits
/// only for one that is idle on another core, which is told to close it.
#[derive(Debug)]
pub(crate) struct Limits {
    turns: Semaphore,
    streams: Semaphore,
    open: Arc<Semaphore>,
    waiting_max: usize,
    /// How many wait for a connection to be closed somewhere.
    wanted: AtomicUsize,
    wanting: Notify,
}

impl Limits {
    fn new(settings: &UpstreamSettings) -> Self {
        let connections = settings.max_connections.clamp(1, Semaphore::MAX_PERMITS / STREAMS_MAX);
        Self {
            turns: Semaphore::new(connections),
            streams: Semaphore::new(connections * STREAMS_MAX),
            open: Arc::new(Semaphore::new(connections)),
            waiting_max: settings.max_waiting,
            wanted: AtomicUsize::new(0),
            wanting: Notify::new(),
        }
    }

    /// Waits until one more request may be in flight.
    pub(crate) async fn turn(
        &self,
        speaks_http2: bool,
        stats: &UpstreamStats,
    ) -> Result<SemaphorePermit<'_>, FetchError> {
        let turns = if speaks_http2 { &self.streams } else { &self.turns };
        if let Ok(turn) = turns.try_acquire() {
            return Ok(turn);
        }
        let _wait = self.wait(stats)?;
        // The semaphore is never closed, here and below.
        turns.acquire().await.map_err(|_| FetchError::Overloaded)
    }

    /// Waits until one more connection may be open.
    pub(crate) async fn open(
        &self,
        stats: &UpstreamStats,
    ) -> Result<OwnedSemaphorePermit, FetchError> {
        if let Ok(permit) = Arc::clone(&self.open).try_acquire_owned() {
            return Ok(permit);
        }
        let _wait = self.wait(stats)?;
        let _want = Want::new(&self.wanted);
        self.wanting.notify_waiters();
        Arc::clone(&self.open).acquire_owned().await.map_err(|_| FetchError::Overloaded)
    }

    fn wait<'a>(&self, stats: &'a UpstreamStats) -> Result<Wait<'a>, FetchError> {
        let wait = Wait::begin(stats);
        if stats.waiting.load(Ordering::Relaxed) > self.waiting_max as u64 {
            return Err(FetchError::Overloaded);
        }
        Ok(wait)
    }

    /// How many idle connections others could use.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Acquire)
    }

    /// Ends when one more is wanted than when this was called.
    pub(crate) fn wanting(&self) -> Notified<'_> {
        self.wanting.notified()
    }
}

/// Someone waits for a connection to be closed.
struct Want<'a>(&'a AtomicUsize);

impl<'a> Want<'a> {
    fn new(wanted: &'a AtomicUsize) -> Self {
        wanted.fetch_add(1, Ordering::AcqRel);
        Self(wanted)
    }
}

impl Drop for Want<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
