//! Turns at preparing: how many operations are prepared at the same time, and how many may wait for that.
//! Preparing is the one thing here that takes a processor for long, so an attack with ever new
//! operations, or a cold start, must not take the threads from those that are prepared already.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::PrepareError;

/// A turn lasts as long as this lives.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

/// Hands out turns.
#[derive(Debug)]
pub(crate) struct Turns {
    free: Arc<Semaphore>,
    waiting_max: u64,
}

impl Turns {
    /// `at_once` of them at the same time, at least one.
    pub(crate) fn new(at_once: usize, waiting_max: usize) -> Self {
        let at_once = at_once.clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(at_once)), waiting_max: waiting_max as u64 }
    }

    /// Waits for a turn, first come, first served; `waiting` counts those who do.
    ///
    /// # Errors
    /// [`PrepareError::Overloaded`] where too many wait already.
    pub(crate) async fn take(&self, waiting: &AtomicU64) -> Result<Turn, PrepareError> {
        let free = Arc::clone(&self.free);
        if let Ok(turn) = Arc::clone(&free).try_acquire_owned() {
            return Ok(Turn(turn));
        }
        let _waits = Waits::new(waiting, self.waiting_max)?;
        // The semaphore is never closed.
        free.acquire_owned().await.map(Turn).map_err(|_| PrepareError::Overloaded)
    }
}

/// One that waits.
struct Waits<'a>(&'a AtomicU64);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicU64, max: u64) -> Result<Self, PrepareError> {
        let waits = Self(waiting);
        if waiting.fetch_add(1, Ordering::Relaxed) < max {
            return Ok(waits);
        }
        // Dropping takes it off again.
        Err(PrepareError::Overloaded)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(waiting: &AtomicU64) -> u64 {
        waiting.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn one_over_the_bound_is_refused_at_once_and_the_others_get_their_turns() {
        let turns = Turns::new(1, 2);
        let waiting = AtomicU64::new(0);
        let first = turns.take(&waiting).await.unwrap();
        let mut second = std::pin::pin!(turns.take(&waiting));
        let mut third = std::pin::pin!(turns.take(&waiting));
        assert!(polled_once(second.as_mut()).is_none());
        assert!(polled_once(third.as_mut()).is_none());
        assert_eq!(turns.take(&waiting).await.unwrap_err(), PrepareError::Overloaded);
        assert_eq!(count(&waiting), 2);
        drop(first);
        drop(second.await.unwrap());
        assert!(third.await.is_ok());
        assert_eq!(count(&waiting), 0);
    }

    #[tokio::test]
    async fn who_gives_up_waiting_is_not_counted_any_more() {
        let turns = Turns::new(1, 1);
        let waiting = AtomicU64::new(0);
        let first = turns.take(&waiting).await.unwrap();
        {
            let mut second = std::pin::pin!(turns.take(&waiting));
            assert!(polled_once(second.as_mut()).is_none());
            assert_eq!(count(&waiting), 1);
        }
        assert_eq!(count(&waiting), 0);
        drop(first);
        assert!(turns.take(&waiting).await.is_ok());
    }

    /// Polls once.
    fn polled_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}
