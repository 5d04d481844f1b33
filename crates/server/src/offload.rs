//! Work on large texts, away from the event loops: expanding and parsing what a client has sent. One event loop
//! serves many clients, and some milliseconds for one of them are some milliseconds for all.
//!
//! How much of it runs at the same time is limited, and clients take turns ([`prepare::ConcurrencyLimit`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use execute::{ClientKey, ErrorCode, GraphqlError};
use prepare::{ConcurrencyBounds, ConcurrencyLimit};

/// Texts up to this size are handled where they are. Reading so much takes some 50 µs, expanding it some 200.
pub(crate) const INLINE_BYTES_MAX: usize = 64 << 10;

/// Jobs that may wait in all. Each holds a request body, 2 MiB by default at most.
const WAITING_MAX: usize = 128;

/// Jobs that may wait for one client.
const WAITING_PER_CLIENT_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Offload {
    limit: Arc<ConcurrencyLimit>,
    waiting: Arc<AtomicU64>,
    refused: AtomicU64,
}

/// Why work was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotDone {
    /// Too much of it waits, or it waited until its deadline.
    Overloaded,
    /// It panicked.
    Failed,
}

impl NotDone {
    /// The request error that the client gets.
    pub(crate) fn error(self) -> GraphqlError {
        match self {
            Self::Overloaded => GraphqlError::new(
                ErrorCode::Overloaded,
                "too many large requests are waiting to be read; try again later",
            ),
            Self::Failed => GraphqlError::new(
                ErrorCode::InternalServerError,
                "reading the request failed by a defect of the router",
            ),
        }
    }
}

impl Offload {
    /// Runs at most `running_max` jobs at the same time.
    pub(crate) fn new(running_max: usize) -> Self {
        let waiting = Arc::<AtomicU64>::default();
        let bounds = ConcurrencyBounds {
            running_max,
            waiting_max: WAITING_MAX,
            waiting_per_client_max: WAITING_PER_CLIENT_MAX,
        };
        let limit = ConcurrencyLimit::new(bounds, Arc::clone(&waiting));
        Self { limit, waiting, refused: AtomicU64::new(0) }
    }

    /// Runs `work` for `client` on the blocking pool, when it is its turn.
    ///
    /// # Errors
    /// [`NotDone`]. Work that has begun is done, whatever becomes of the future.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        client: ClientKey,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let permit = self.limit.acquire(client, deadline).await.map_err(|_| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            NotDone::Overloaded
        })?;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        done.await.map_err(|_| NotDone::Failed)
    }

    /// The number of jobs that wait now, and of those that were refused.
    pub(crate) fn counters(&self) -> [u64; 2] {
        [self.waiting.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed)]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_runs_elsewhere_and_one_that_comes_too_late_is_refused() {
        let offload = Arc::new(Offload::new(1));
        let client = ClientKey::UNKNOWN;
        let soon = || Instant::now() + Duration::from_secs(30);
        let here = std::thread::current().id();
        let there = offload.run(client, soon(), || std::thread::current().id()).await;
        assert!(there.is_ok_and(|there| there != here));
        let (release, held) = std::sync::mpsc::channel::<()>();
        let running = tokio::spawn({
            let offload = Arc::clone(&offload);
            async move { offload.run(client, soon(), move || held.recv().is_err()).await }
        });
        // The first job has its permit when the second one has to wait.
        while offload.limit.acquire(client, Instant::now()).await.is_ok() {
            tokio::task::yield_now().await;
        }
        let late = offload.run(client, Instant::now(), || ()).await;
        assert_eq!((late, offload.counters()), (Err(NotDone::Overloaded), [0, 1]));
        drop(release);
        assert_eq!(running.await.ok(), Some(Ok(true)));
    }
}
