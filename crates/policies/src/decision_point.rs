//! A decision point over HTTP, such as Open Policy Agent: `POST /v1/data/PATH` with `{"input": …}`. All policies of an
//! operation are in one request. Decisions are cached by the question, equal questions in flight are sent once, and
//! after failures no request is sent for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::FetchError;
use expressions::RequestFacts;
use http::HeaderMap;
use quick_cache::sync::Cache;
use sha2::{Digest, Sha256};
use single_flight::SingleFlight;
use telemetry::{DurationHistogram, LogLimit};
use tokio::sync::Semaphore;
use upstream::{Backoff, Resource, TargetError};

use crate::answer::{Decisions, read_answer};
use crate::input::InputShape;
use crate::settings::DecisionPointSettings;

/// The media type of responses.
const ACCEPT: &str = "application/json";

/// The hash of a question.
type InputHash = [u8; 32];

/// A decision point over HTTP.
pub struct DecisionPoint {
    resource: Resource,
    /// The URL for log lines: without its query, which may contain secrets.
    shown_url: String,
    headers: HeaderMap,
    shape: InputShape,
    timeout: Duration,
    ttl: Duration,
    cache: Cache<InputHash, CachedDecisions>,
    backoff: Mutex<Backoff>,
    flights: Arc<SingleFlight<InputHash, Decisions>>,
    permits: Semaphore,
    failure_log: LogLimit,
    /// The counters of requests.
    pub stats: DecisionPointStats,
}

/// Counters of a decision point since the start of the process.
#[derive(Debug, Default)]
pub struct DecisionPointStats {
    /// The number of responses with decisions.
    pub decided: AtomicU64,
    /// The number of requests without such a response.
    pub failed: AtomicU64,
    /// The number of questions that were not sent because of failures before.
    pub backoff: AtomicU64,
    /// The number of questions that waited too long for their turn.
    pub concurrency: AtomicU64,
    /// The number of questions that the cache decided.
    pub cached: AtomicU64,
    /// The durations of requests, also of those that failed.
    pub durations: DurationHistogram,
}

#[derive(Clone)]
struct CachedDecisions {
    decisions: Arc<[bool]>,
    until: Instant,
}

/// Prints nothing secret.
impl std::fmt::Debug for DecisionPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecisionPoint")
            .field("url", &self.shown_url)
            .field("shape", &self.shape)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl DecisionPoint {
    /// Creates the decision point, with no decision known.
    ///
    /// # Errors
    /// Its URL cannot be used.
    pub(crate) fn new(settings: &DecisionPointSettings) -> Result<Self, TargetError> {
        let (bytes_max, timeout) = (settings.response_bytes_max, settings.timeout);
        let resource =
            Resource::new(&settings.url, settings.tls.clone(), ACCEPT, bytes_max, timeout)?;
        Ok(Self {
            resource,
            shown_url: settings.url.split(['?', '#']).next().unwrap_or_default().to_owned(),
            headers: settings.headers.clone(),
            shape: InputShape::new(&settings.input),
            timeout,
            ttl: settings.ttl,
            cache: Cache::new(settings.cache_entries_max),
            backoff: Mutex::default(),
            flights: Arc::default(),
            permits: Semaphore::new(settings.concurrency_max),
            failure_log: LogLimit::new(),
            stats: DecisionPointStats::default(),
        })
    }

    /// Returns the facts that questions contain.
    pub(crate) fn shape(&self) -> &InputShape {
        &self.shape
    }

    /// Returns the number of cached decisions.
    pub(crate) fn cached_decisions(&self) -> u64 {
        self.cache.len() as u64
    }

    /// Decides about `policies`, which are sorted. `None` if the decision point does not work.
    ///
    /// Must be called inside a `tokio::task::LocalSet`, see [`SingleFlight::join`].
    pub(crate) async fn decide(
        self: &Arc<Self>,
        policies: &[&str],
        facts: &RequestFacts<'_>,
    ) -> Decisions {
        let input = self.shape.print_question(policies, facts);
        let hash = Sha256::digest(&input).into();
        let now = Instant::now();
        if let Some(known) = self.recall(&hash, now) {
            self.stats.cached.fetch_add(1, Ordering::Relaxed);
            return Some(known);
        }
        if self.backoff().is_paused(now) {
            self.stats.backoff.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let deadline = now + self.timeout;
        let start = || {
            let point = Arc::clone(self);
            let policies: Vec<String> = policies.iter().map(|&it| it.to_owned()).collect();
            async move { point.request(hash, Bytes::from(input), &policies, deadline).await }
        };
        let joined = self.flights.join(hash, deadline, start).await;
        joined.map_or(None, |(decisions, _)| decisions)
    }

    fn recall(&self, hash: &InputHash, now: Instant) -> Decisions {
        let known = self.cache.get(hash)?;
        (now < known.until).then_some(known.decisions)
    }

    async fn request(
        &self,
        hash: InputHash,
        input: Bytes,
        policies: &[String],
        deadline: Instant,
    ) -> Decisions {
        let permit = tokio::time::timeout_at(deadline.into(), self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            self.stats.concurrency.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        // The request of another caller may have ended just before.
        if let Some(known) = self.recall(&hash, Instant::now()) {
            return Some(known);
        }
        if !self.backoff().admit(Instant::now()) {
            self.stats.backoff.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let started = Instant::now();
        let request = self.resource.post_json(input, self.headers.clone());
        let response = tokio::time::timeout_at(deadline.into(), request).await;
        let response = response.unwrap_or(Err(FetchError::Timeout(self.timeout)));
        self.stats.durations.add(started.elapsed());
        let policies: Vec<_> = policies.iter().map(String::as_str).collect();
        let read = match response {
            Ok(response) => read_answer(&response, &policies).map_err(|defect| defect.to_string()),
            // The body of an error may repeat the input.
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(decisions) => {
                self.backoff().succeeded();
                self.stats.decided.fetch_add(1, Ordering::Relaxed);
                let decisions: Arc<[bool]> = decisions.into();
                if !self.ttl.is_zero() {
                    let until = Instant::now() + self.ttl;
                    let decisions = Arc::clone(&decisions);
                    self.cache.insert(hash, CachedDecisions { decisions, until });
                }
                Some(decisions)
            }
            Err(reason) => {
                self.record_failure(&reason);
                None
            }
        }
    }

    fn record_failure(&self, reason: &str) {
        self.stats.failed.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let pause = self.backoff().failed(now).unwrap_or_default();
        if let Some(suppressed) = self.failure_log.admit(now) {
            tracing::warn!(
                url = self.shown_url,
                reason,
                ?pause,
                suppressed,
                "policies could not be decided, and count as denied"
            );
        }
    }

    /// Locks the state of failures. No code panics under this lock, so a poisoned one holds a sound state.
    fn backoff(&self) -> MutexGuard<'_, Backoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
