//! State of one subgraph that the whole process shares: counters, limits on connections, the
//! circuit breaker, the retry budget. It survives reloads that do not change the subgraph.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use execute::FetchError;
use telemetry::LogLimit;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::breaker::Breaker;
use crate::fastest_response::FastestResponse;
use crate::hedge::Hedging;
use crate::request_budget::{RETRY_LIMITS, RequestBudget};
use crate::reuse::ReuseGuard;
use crate::stats::Wait;
use crate::{UpstreamSettings, UpstreamStats};

/// Maximum number of requests on one HTTP/2 connection at a time: the minimum that RFC 9113 asks
/// servers to allow (section 6.5.2), and the limit of many servers.
pub(crate) const STREAMS_MAX: usize = 100;

/// State of one subgraph, shared by all workers.
#[derive(Debug)]
pub(crate) struct SubgraphState {
    /// Identifies the connections of this subgraph in `pool`.
    pub(crate) pool: PoolId,
    pub(crate) stats: Arc<UpstreamStats>,
    pub(crate) limits: Limits,
    pub(crate) breaker: Option<Breaker>,
    pub(crate) budget: RequestBudget,
    /// The state of hedging, if it is turned on.
    pub(crate) hedging: Option<Hedging>,
    /// The fastest response of late, which a retry takes at least.
    pub(crate) fastest: FastestResponse,
    /// True if the last TLS handshake agreed on HTTP/2.
    pub(crate) agreed_http2: AtomicBool,
    /// Decides whether HTTP/1.1 connections may carry several requests.
    pub(crate) reuse: Arc<ReuseGuard>,
    /// Limits the log lines about failed requests.
    pub(crate) failure_log: LogLimit,
    /// Limits the log lines about errors that the subgraph reported and that are hidden from
    /// clients.
    pub(crate) reported_log: LogLimit,
}

/// Identifies the connections of one subgraph in the pools of all workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PoolId(u64);

impl SubgraphState {
    pub(crate) fn new(
        subgraph: &str,
        settings: &UpstreamSettings,
        stats: Arc<UpstreamStats>,
        now: Instant,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // The counters survive a change of the settings, and what they counted before earns nothing.
        let requests = stats.requests.load(Ordering::Relaxed);
        let percent = settings.retry.budget_percent;
        Self {
            pool: PoolId(NEXT.fetch_add(1, Ordering::Relaxed)),
            reuse: Arc::new(ReuseGuard::new(subgraph, settings.probation, Arc::clone(&stats), now)),
            hedging: settings.hedge.as_ref().map(|it| Hedging::new(it, requests, now)),
            stats,
            limits: Limits::new(settings),
            breaker: settings.breaker.clone().map(|it| Breaker::new(it, now)),
            budget: RequestBudget::new(percent, RETRY_LIMITS, requests, now),
            fastest: FastestResponse::new(now),
            agreed_http2: AtomicBool::new(false),
            failure_log: LogLimit::default(),
            reported_log: LogLimit::default(),
        }
    }
}

/// Limits on connections, made of fair semaphores. A request with an exchange permit needs at most
/// one HTTP/1.1 connection, and there are as many permits as connections. So a request that waits
/// for a connection to open only waits for one that is idle on another worker, and that worker is
/// asked to close it.
#[derive(Debug)]
pub(crate) struct Limits {
    exchanges: Semaphore,
    streams: Semaphore,
    open: Arc<Semaphore>,
    waiting_max: usize,
    /// The number of requests that wait for a connection of another worker to be closed.
    wanted: AtomicUsize,
    wanting: Notify,
}

impl Limits {
    fn new(settings: &UpstreamSettings) -> Self {
        let connections = settings.max_connections.clamp(1, Semaphore::MAX_PERMITS / STREAMS_MAX);
        Self {
            exchanges: Semaphore::new(connections),
            streams: Semaphore::new(connections * STREAMS_MAX),
            open: Arc::new(Semaphore::new(connections)),
            waiting_max: settings.max_waiting,
            wanted: AtomicUsize::new(0),
            wanting: Notify::new(),
        }
    }

    /// Waits for the permit to have one more request in flight.
    pub(crate) async fn acquire(
        &self,
        speaks_http2: bool,
        stats: &UpstreamStats,
    ) -> Result<SemaphorePermit<'_>, FetchError> {
        let exchanges = if speaks_http2 { &self.streams } else { &self.exchanges };
        if let Ok(permit) = exchanges.try_acquire() {
            return Ok(permit);
        }
        let _wait = self.begin_wait(stats)?;
        // The semaphore is never closed, here and below.
        exchanges.acquire().await.map_err(|_| FetchError::Overloaded)
    }

    /// Waits for the permit to have one more connection open.
    pub(crate) async fn acquire_connection(
        &self,
        stats: &UpstreamStats,
    ) -> Result<OwnedSemaphorePermit, FetchError> {
        if let Ok(permit) = Arc::clone(&self.open).try_acquire_owned() {
            return Ok(permit);
        }
        let _wait = self.begin_wait(stats)?;
        let _want = WantedConnection::new(&self.wanted);
        self.wanting.notify_waiters();
        Arc::clone(&self.open).acquire_owned().await.map_err(|_| FetchError::Overloaded)
    }

    /// Returns the permit to have one more request in flight, if there is one.
    pub(crate) fn try_acquire(&self, speaks_http2: bool) -> Option<SemaphorePermit<'_>> {
        let exchanges = if speaks_http2 { &self.streams } else { &self.exchanges };
        exchanges.try_acquire().ok()
    }

    /// True if one more request may be in flight.
    pub(crate) fn has_room(&self, speaks_http2: bool) -> bool {
        let exchanges = if speaks_http2 { &self.streams } else { &self.exchanges };
        exchanges.available_permits() > 0
    }

    /// True if one more connection may be opened.
    pub(crate) fn has_connection(&self) -> bool {
        self.open.available_permits() > 0
    }

    fn begin_wait<'a>(&self, stats: &'a UpstreamStats) -> Result<Wait<'a>, FetchError> {
        let wait = Wait::begin(stats);
        if stats.waiting.load(Ordering::Relaxed) > self.waiting_max as u64 {
            return Err(FetchError::Overloaded);
        }
        Ok(wait)
    }

    /// The number of idle connections that other workers could use.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Acquire)
    }

    /// Completes when the number of wanted connections has grown since this call.
    pub(crate) fn wanting(&self) -> Notified<'_> {
        self.wanting.notified()
    }
}

/// Counts a request that waits for a connection to be closed.
struct WantedConnection<'a>(&'a AtomicUsize);

impl<'a> WantedConnection<'a> {
    fn new(wanted: &'a AtomicUsize) -> Self {
        wanted.fetch_add(1, Ordering::AcqRel);
        Self(wanted)
    }
}

impl Drop for WantedConnection<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
