//! Work that a worker does while it has nothing else to do. Each worker has a queue of its own.
//!
//! A task of the worker looks for such moments while something waits: it yields, and when it runs again, everything
//! that was ready has run, and the event loop has looked for input. If no connection and no event had a turn meanwhile,
//! the next one that waits begins. A worker that is busy for longer than 100 ms lets it begin nevertheless.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// The maximum time for which work waits for its worker to be idle. Work that is to be refused must be refused soon,
/// and a worker may be busy for hours.
const WAIT_MAX: Duration = Duration::from_millis(100);

thread_local! {
    static WORKER: IdleTurns = const { IdleTurns::new() };
}

/// The idle turns of one worker.
struct IdleTurns {
    is_worker: Cell<bool>,
    waiting: RefCell<VecDeque<WaitingWork>>,
    /// True while a task looks for idle moments.
    is_watched: Cell<bool>,
    /// The turns of connections and events since the task has looked.
    turns: Cell<u32>,
    /// How many of these turns are those of work that the task has let begin.
    given: Cell<u32>,
}

struct WaitingWork {
    since: Instant,
    /// Gets true if the worker is idle.
    begin: oneshot::Sender<bool>,
}

/// Says that this thread is a worker. On other threads, nothing waits.
pub(crate) fn begin_worker() {
    WORKER.with(|it| it.is_worker.set(true));
}

/// Notes that a connection or an event has a turn on this worker.
// hot path: one addition to memory of this thread
pub fn note_turn() {
    WORKER.with(|it| it.turns.set(it.turns.get().saturating_add(1)));
}

/// Waits until this worker has nothing else to do, for 100 ms at most. Returns false if it never had such a moment, and
/// at once on a thread that is no worker.
pub async fn idle_turn() -> bool {
    let turn = WORKER.with(|it| {
        if !it.is_worker.get() {
            return None;
        }
        let (begin, turn) = oneshot::channel();
        it.waiting.borrow_mut().push_back(WaitingWork { since: Instant::now(), begin });
        if !it.is_watched.replace(true) {
            it.turns.set(0);
            tokio::task::spawn_local(watch());
        }
        Some(turn)
    });
    match turn {
        // Fails only while the worker ends.
        Some(turn) => turn.await.unwrap_or(false),
        None => false,
    }
}

/// Looks for idle moments until nothing waits.
async fn watch() {
    loop {
        tokio::task::yield_now().await;
        if !WORKER.with(|it| it.give_turns(Instant::now())) {
            return;
        }
    }
}

impl IdleTurns {
    const fn new() -> Self {
        Self {
            is_worker: Cell::new(false),
            waiting: RefCell::new(VecDeque::new()),
            is_watched: Cell::new(false),
            turns: Cell::new(0),
            given: Cell::new(0),
        }
    }

    /// Lets work begin: the next one if the worker was idle since the last call, and all that has waited for too long.
    /// Returns false if nothing waits any more.
    fn give_turns(&self, now: Instant) -> bool {
        let is_idle = self.turns.replace(0) <= self.given.replace(0);
        let mut waiting = self.waiting.borrow_mut();
        let mut given = 0;
        while let Some(first) = waiting.front()
            && ((is_idle && given == 0) || now.duration_since(first.since) >= WAIT_MAX)
            && let Some(work) = waiting.pop_front()
        {
            // Fails if the client has gone.
            given += u32::from(work.begin.send(is_idle && given == 0).is_ok());
        }
        self.given.set(given);
        self.is_watched.set(!waiting.is_empty());
        !waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::task::Poll;

    use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};

    use super::*;

    /// Runs a test as the task of a worker.
    async fn on_worker(test: impl Future<Output = ()> + 'static) {
        let tasks = LocalSet::new();
        let test = tasks.spawn_local(async {
            begin_worker();
            test.await;
        });
        tasks.run_until(test).await.expect("the task has not panicked");
    }

    /// Begins work that waits for idle turns, and counts what has begun.
    fn wait_for_turns(count: u32) -> Rc<Cell<u32>> {
        let begun = Rc::new(Cell::new(0));
        for _ in 0..count {
            let begun = Rc::clone(&begun);
            spawn_local(async move {
                idle_turn().await;
                note_turn();
                begun.set(begun.get() + 1);
            });
        }
        begun
    }

    /// Begins a connection that always has input.
    fn busy_connection() -> JoinHandle<()> {
        spawn_local(std::future::poll_fn(|context| {
            note_turn();
            context.waker().wake_by_ref();
            Poll::Pending
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn work_begins_while_no_connection_has_a_turn() {
        on_worker(async {
            let (connection, begun) = (busy_connection(), wait_for_turns(3));
            for _ in 0..100 {
                yield_now().await;
            }
            assert_eq!(begun.get(), 0, "a connection has turns all the time");
            connection.abort();
            let mut last = 0;
            while last < 3 {
                yield_now().await;
                assert!(begun.get() <= last + 1, "one at a time");
                last = begun.get();
            }
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn work_waits_for_a_busy_worker_for_a_bounded_time() {
        on_worker(async {
            let (_connection, begun) = (busy_connection(), wait_for_turns(3));
            yield_now().await;
            let last = Duration::from_millis(1);
            for (step, expected) in [(WAIT_MAX - last, 0), (last, 3)] {
                tokio::time::advance(step).await;
                for _ in 0..100 {
                    yield_now().await;
                }
                assert_eq!(begun.get(), expected, "{step:?}");
            }
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn work_of_a_client_that_has_gone_uses_no_turn() {
        on_worker(async {
            let gone = spawn_local(idle_turn());
            let begun = wait_for_turns(1);
            yield_now().await;
            gone.abort();
            while begun.get() == 0 {
                yield_now().await;
            }
            WORKER.with(|it| assert!(!it.is_watched.get() && it.waiting.borrow().is_empty()));
        })
        .await;
    }

    #[tokio::test]
    async fn nothing_waits_on_other_threads() {
        assert!(!idle_turn().await);
    }
}
