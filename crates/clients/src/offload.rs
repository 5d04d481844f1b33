//! Work on large texts away from the event loops: expanding and parsing the messages of clients. One event loop serves
//! many clients, so some milliseconds for one of them delay all of them.
//!
//! The number of jobs that run at the same time and the number of waiting bytes are limited, and clients take turns
//! ([`prepare::ConcurrencyLimit`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use execute::{ClientKey, ErrorCode, GraphqlError};
use prepare::{ConcurrencyBounds, ConcurrencyLimit, WhenFull};
use telemetry::{Metric, read};

/// The maximum size of a text that is handled on the event loop itself. Parsing this much takes about 50 µs, expanding
/// it about 200.
pub const INLINE_BYTES_MAX: usize = 64 << 10;

/// The maximum number of bytes of texts that may wait: 16 of the largest size by default (`limits.body`), which take a
/// processor a third of a second.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// The maximum number of bytes of texts that may wait for one client.
const WAITING_BYTES_PER_CLIENT_MAX: usize = WAITING_BYTES_MAX / 2;

/// The number of bytes that a shorter text counts as: a compressed text may expand to far more, and each job takes some
/// time. So at most 128 jobs wait, and 64 for one client.
const COUNTED_BYTES_MIN: usize = WAITING_BYTES_MAX / 128;

/// Runs work on large texts on the blocking pool, within limits. See the module.
#[derive(Debug)]
pub struct Offload {
    limit: Arc<ConcurrencyLimit>,
    waiting: Arc<AtomicU64>,
    refused: AtomicU64,
}

/// The reason why work was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffloadError {
    /// Too much work waits, or this job waited until its deadline.
    Overloaded,
    /// The job panicked.
    Failed,
}

impl OffloadError {
    /// Returns the request error that the client gets.
    pub fn error(self) -> GraphqlError {
        match self {
            Self::Overloaded => GraphqlError::no_room(
                "too many large requests are waiting to be parsed; try again later",
            ),
            Self::Failed => GraphqlError::new(
                ErrorCode::InternalServerError,
                "parsing the request failed because of a defect of the router",
            ),
        }
    }
}

/// The metrics of work on large requests.
pub const OFFLOAD_METRICS: &[Metric<Offload>] = &[
    Metric::gauge(
        "starling_http_large_requests_waiting",
        "Large requests that wait to be expanded or parsed",
        |it| read(&it.waiting),
    ),
    Metric::counter(
        "starling_http_large_requests_overloaded",
        "Large requests refused because too many waited, or because they waited too long",
        |it| read(&it.refused),
    ),
];

impl Offload {
    /// Creates an instance that runs at most `running_max` jobs at the same time.
    pub fn new(running_max: usize) -> Self {
        let waiting = Arc::<AtomicU64>::default();
        let bounds = ConcurrencyBounds {
            running_max,
            waiting_max: WAITING_BYTES_MAX,
            waiting_per_client_max: WAITING_BYTES_PER_CLIENT_MAX,
        };
        let limit = ConcurrencyLimit::new(bounds, Arc::clone(&waiting));
        Self { limit, waiting, refused: AtomicU64::new(0) }
    }

    /// Runs `work` on a text of this size for `client` on the blocking pool, when its turn comes.
    ///
    /// # Errors
    /// [`OffloadError`]. Work that has begun is finished even if the future is dropped.
    pub async fn run<T: Send + 'static>(
        &self,
        client: ClientKey,
        bytes: usize,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, OffloadError> {
        self.run_with(WhenFull::Refuse, client, bytes, deadline, work).await
    }

    /// The same as [`Offload::run`], but without a place in the queue, the work waits for one until `deadline`. For
    /// texts for which the connection of the client waits: each connection has at most one.
    ///
    /// # Errors
    /// [`OffloadError`].
    pub async fn run_or_wait<T: Send + 'static>(
        &self,
        client: ClientKey,
        bytes: usize,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, OffloadError> {
        self.run_with(WhenFull::Wait, client, bytes, deadline, work).await
    }

    async fn run_with<T: Send + 'static>(
        &self,
        when_full: WhenFull,
        client: ClientKey,
        bytes: usize,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, OffloadError> {
        let weight = bytes.max(COUNTED_BYTES_MIN);
        let permit = self.limit.acquire(client, weight, deadline, when_full).await;
        let permit = permit.map_err(|_| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            OffloadError::Overloaded
        })?;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        done.await.map_err(|_| OffloadError::Failed)
    }

    /// The number of jobs that wait now, and the number of refused jobs.
    #[cfg(test)]
    fn counters(&self) -> [u64; 2] {
        [self.waiting.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed)]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_runs_on_another_thread_and_is_refused_after_its_deadline() {
        let offload = Arc::new(Offload::new(1));
        let client = ClientKey::UNKNOWN;
        let soon = || Instant::now() + Duration::from_secs(30);
        let here = std::thread::current().id();
        let there = offload.run(client, 1, soon(), || std::thread::current().id()).await;
        assert!(there.is_ok_and(|there| there != here));
        let (release, held) = std::sync::mpsc::channel::<()>();
        let running = tokio::spawn({
            let offload = Arc::clone(&offload);
            async move { offload.run(client, 1, soon(), move || held.recv().is_err()).await }
        });
        // The first job has its permit when the second one has to wait.
        while offload.limit.acquire(client, 1, Instant::now(), WhenFull::Refuse).await.is_ok() {
            tokio::task::yield_now().await;
        }
        let late = offload.run(client, 1, Instant::now(), || ()).await;
        assert_eq!((late, offload.counters()), (Err(OffloadError::Overloaded), [0, 1]));
        drop(release);
        assert_eq!(running.await.ok(), Some(Ok(true)));
    }

    #[tokio::test]
    async fn waiting_bytes_are_bounded_and_the_client_with_the_most_makes_room() {
        const BODY: usize = 2 << 20;
        let offload = Offload::new(1);
        let deadline = Instant::now() + Duration::from_secs(60);
        let [busy, noisy, polite] =
            [1, 2, 3].map(|last| ClientKey::of_address([192, 0, 2, last].into()));
        let _running = offload.limit.acquire(busy, 1, deadline, WhenFull::Refuse).await;
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut jobs = Vec::new();
        let mut ask = |client| {
            let mut job = Box::pin(offload.run(client, BODY, deadline, || ()));
            let outcome = job.as_mut().poll(&mut context);
            jobs.push(job);
            outcome
        };
        let refused = std::task::Poll::Ready(Err(OffloadError::Overloaded));
        for _ in 0..WAITING_BYTES_PER_CLIENT_MAX / BODY {
            assert!(ask(noisy).is_pending() && ask(busy).is_pending());
        }
        assert_eq!((ask(noisy), ask(busy)), (refused, refused));
        let [waiting, _] = offload.counters();
        assert_eq!(waiting as usize * BODY, WAITING_BYTES_MAX);
        assert!(ask(polite).is_pending());
        assert_eq!(offload.counters()[0], waiting, "another job has made room for it");
    }
}
