//! The first turn of a connection, in which its first request begins.
//!
//! When a network or a load balancer has failed, thousands of clients connect, and then send their first requests at
//! about the same time. Reading all of them in one turn would keep a worker from everything else for hundreds of
//! milliseconds. So only a few connections have their first turn at a time ([`FIRST_TURNS_PER_CORE`]), and the requests
//! of all others come between them.

use std::pin::{Pin, pin};

use tokio::sync::Semaphore;

/// The number of connections that have their first turn at a time, for each worker on average. They take half a
/// millisecond.
pub const FIRST_TURNS_PER_CORE: usize = 8;

/// Serves a connection after its first bytes have arrived, once there is a place for its first turn.
pub(super) async fn serve_in_turn<F: Future>(
    places: &Semaphore,
    mut serving: Pin<&mut F>,
) -> F::Output {
    // Never fails, because the semaphore is never closed.
    let mut place = places.acquire().await.ok();
    // The turn ends when the worker has looked for input of other connections.
    let mut turn = pin!(tokio::task::yield_now());
    std::future::poll_fn(|context| {
        let polled = serving.as_mut().poll(context);
        if place.is_some() && turn.as_mut().poll(context).is_ready() {
            place = None;
        }
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::rc::Rc;

    use tokio::task::yield_now;

    use super::*;

    /// Counts the connections that have begun.
    async fn connection(begun: &Cell<u32>) -> Infallible {
        begun.set(begun.get() + 1);
        std::future::pending().await
    }

    #[tokio::test]
    async fn connections_begin_a_few_at_a_time() {
        let (places, begun) = (Semaphore::new(2), Cell::new(0));
        let serve = || async { serve_in_turn(&places, pin!(connection(&begun))).await };
        let mut connections: Vec<_> = (0..5).map(|_| Box::pin(serve())).collect();
        // Both places are taken by connections that begin elsewhere.
        let elsewhere = places.acquire_many(2).await;
        for connection in &mut connections {
            assert!(futures_util::poll!(connection).is_pending());
        }
        assert_eq!(begun.get(), 0);
        drop(elsewhere);
        let mut counts = Vec::new();
        // Each one is polled in its turn, and when the turn is over.
        for index in [0, 1, 2, 0, 1, 2, 3, 4] {
            assert!(futures_util::poll!(&mut connections[index]).is_pending());
            counts.push(begun.get());
        }
        assert_eq!(counts, [1, 2, 2, 2, 2, 3, 4, 4]);
    }

    #[tokio::test]
    async fn other_work_comes_between_first_turns() {
        const CONNECTIONS: u32 = 20;
        let work = async {
            let (places, begun) = (Rc::new(Semaphore::new(1)), Rc::new(Cell::new(0)));
            // Tasks of one worker, which are ready at the same time.
            for _ in 0..CONNECTIONS {
                let (places, begun) = (Rc::clone(&places), Rc::clone(&begun));
                tokio::task::spawn_local(async move {
                    serve_in_turn(&places, pin!(connection(&begun))).await
                });
            }
            let mut seen = 0;
            while seen < CONNECTIONS {
                yield_now().await;
                assert!(begun.get() <= seen + 2, "{} at once", begun.get() - seen);
                seen = begun.get();
            }
        };
        let tasks = tokio::task::LocalSet::new();
        let work = tasks.spawn_local(work);
        tasks.run_until(work).await.expect("the task has not panicked");
    }
}
