//! Turns for large work on an event loop: reading and printing responses of megabytes.
//!
//! One such response takes milliseconds. A client that asks for many of them at once would otherwise stop its event
//! loop until all of them are done. Instead, an event loop does one piece of large work, then everything else that is
//! ready, and then the next piece.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Texts up to this size are not worth a turn: reading or printing so much takes some 100 µs.
const SMALL_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static TURN: Arc<Semaphore> = Arc::new(Semaphore::new(1));
}

/// Does `work` on a text of `bytes`, in turns with other large work of this thread.
pub(crate) async fn in_turn<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes <= SMALL_BYTES_MAX {
        return work();
    }
    // Fair: turns are given in the order in which they were asked for. The semaphore is never closed, so this cannot
    // fail.
    let turn = TURN.with(Arc::clone).acquire_owned().await;
    let done = work();
    // The turn ends after the tasks that are ready now have run.
    tokio::task::yield_now().await;
    drop(turn);
    done
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::task::LocalSet;

    use super::*;

    /// Starts ten pieces of work on texts of `bytes` and then a small one, and returns the place in which the small one
    /// was done.
    async fn place_of_small_work(bytes: usize) -> Option<usize> {
        let done = Rc::new(RefCell::new(Vec::new()));
        let tasks = LocalSet::new();
        for size in std::iter::repeat_n(bytes, 10).chain([1]) {
            let done = Rc::clone(&done);
            tasks.spawn_local(in_turn(size, move || done.borrow_mut().push(size)));
        }
        tasks.await;
        let done = done.borrow();
        assert_eq!(done.len(), 11);
        done.iter().position(|size| *size == 1)
    }

    #[tokio::test]
    async fn small_work_waits_for_one_piece_of_large_work_and_not_for_all() {
        assert_eq!(place_of_small_work(SMALL_BYTES_MAX + 1).await, Some(1));
        // What is small itself takes no turns.
        assert_eq!(place_of_small_work(SMALL_BYTES_MAX).await, Some(10));
    }

    #[tokio::test]
    async fn a_turn_that_is_given_up_goes_to_the_next() {
        let tasks = LocalSet::new();
        let given_up = tasks.spawn_local(in_turn(usize::MAX, || ()));
        let next = tasks.spawn_local(in_turn(usize::MAX, || ()));
        given_up.abort();
        tasks.await;
        assert!(next.await.is_ok());
    }
}
