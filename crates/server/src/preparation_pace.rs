//! The pace at which operations are prepared in the background: those of other routers at the start, persisted
//! documents, and those of the old graph at a reload. All graphs of the process share one pace, because requests have
//! priority however many graphs there are.

use std::sync::Arc;
use std::time::Duration;

use clients::workers;
use prepare::{OperationRequest, PrepareError, Prepared, Preparer};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// The number of processors for each graph that prepares operations. Each takes half of one, so all graphs together
/// take a quarter of the machine.
const PROCESSORS_PER_GRAPH: usize = 2;

/// The longest time for which work keeps its turn. Work that takes longer waits for a busy preparer. It would keep
/// other graphs from their turns and use no processor, so it continues without the turn.
const TURN_KEPT_MAX: Duration = Duration::from_millis(500);

/// Bounds the work of graphs that prepare operations at the same time. Each piece of work waits for its turn, in the
/// order of the calls. The turn ends with a pause as long as the work, so a graph takes at most half of one CPU.
#[derive(Debug)]
pub(crate) struct PreparationPace(Semaphore);

impl PreparationPace {
    /// Creates the pace of all graphs of this machine. One graph at least is always at work.
    pub(crate) fn new() -> Self {
        Self(Semaphore::new((workers::available() / PROCESSORS_PER_GRAPH).max(1)))
    }

    /// Prepares an operation in a turn of its own.
    ///
    /// # Errors
    /// As [`Preparer::prepare`].
    pub(crate) async fn prepare(
        &self,
        preparer: &Preparer,
        request: &OperationRequest,
    ) -> Result<Arc<Prepared>, PrepareError> {
        self.run(preparer.prepare(request)).await
    }

    /// Does the work once it is its turn. The turn should be short, because other graphs wait for theirs.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        // The semaphore is never closed, so there always is a permit.
        let turn = self.0.acquire().await.ok();
        work_and_pause(turn, work).await
    }

    /// Does the work once it is its turn; `None` if its turn does not come before `deadline`.
    pub(crate) async fn run_before<T>(
        &self,
        deadline: Instant,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        // A permit that is free is returned also after the deadline.
        if Instant::now() >= deadline {
            return None;
        }
        let turn = timeout_at(deadline, self.0.acquire()).await.ok()?.ok();
        Some(work_and_pause(turn, work).await)
    }
}

/// Does the work, and then pauses for as long as that took. Work that takes longer than [`TURN_KEPT_MAX`] gives its
/// turn up, and ends without a pause.
async fn work_and_pause<T>(turn: Option<SemaphorePermit<'_>>, work: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let mut work = std::pin::pin!(work);
    let result = timeout(TURN_KEPT_MAX, &mut work).await;
    if let Ok(result) = result {
        sleep(began.elapsed()).await;
        return result;
    }
    drop(turn);
    work.await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    const WORK: Duration = Duration::from_millis(300);

    /// Takes [`WORK`] from its first poll.
    async fn work() {
        sleep(WORK).await;
    }

    /// Returns a pace at which one graph is at work at a time.
    fn narrow() -> PreparationPace {
        PreparationPace(Semaphore::new(1))
    }

    #[tokio::test]
    async fn graphs_beyond_the_pace_wait_for_their_turn() {
        let pace = narrow();
        let (end, ended) = oneshot::channel();
        let mut first = Box::pin(pace.run(ended));
        let mut second = Box::pin(pace.run(ready("second")));
        assert!(first.as_mut().now_or_never().is_none(), "it works");
        assert!(second.as_mut().now_or_never().is_none(), "it waits");
        end.send("first").expect("the work waits for it");
        assert_eq!(tokio::join!(first, second), (Ok("first"), "second"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_takes_twice_the_time_of_its_work() {
        let (pace, began) = (narrow(), Instant::now());
        tokio::join!(pace.run(work()), pace.run(work()));
        let took = began.elapsed();
        assert!(took >= 4 * WORK && took < 5 * WORK, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_waits_for_long_gives_its_turn_up() {
        let pace = narrow();
        let mut first = Box::pin(pace.run(pending::<()>()));
        assert!(first.as_mut().now_or_never().is_none(), "it works");
        let second = timeout(2 * TURN_KEPT_MAX, pace.run(ready("second")));
        tokio::select! {
            () = first => panic!("its work never ends"),
            second = second => assert_eq!(second, Ok("second")),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_whose_turn_comes_after_its_deadline_is_not_done() {
        let pace = narrow();
        let deadline = Instant::now() + Duration::from_secs(1);
        assert_eq!(pace.run_before(deadline, ready(1)).await, Some(1));
        let mut other = Box::pin(pace.run(pending::<()>()));
        assert!(other.as_mut().now_or_never().is_none(), "it works");
        assert_eq!(pace.run_before(deadline, ready(2)).await, None, "the other one has the turn");
        drop(other);
        assert_eq!(pace.run_before(deadline, ready(3)).await, None, "the deadline has passed");
        assert_eq!(pace.run(ready(4)).await, 4);
    }
}
