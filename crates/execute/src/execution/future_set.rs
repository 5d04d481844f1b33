//! The requests of an execution that are in flight, as a set of futures of which each is polled
//! only when it was woken.
//!
//! `FuturesUnordered` wakes its own task whenever it has polled all of its futures, so that the
//! task is polled again for nothing. An execution mostly waits for one request: each request would
//! cost a second poll of the whole connection.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// A set of futures, and the task that waits for them.
pub(super) struct FutureSet<F> {
    members: Vec<Member<F>>,
    task: Arc<AtomicWaker>,
}

struct Member<F> {
    future: Pin<Box<F>>,
    wakeup: Arc<Wakeup>,
    waker: Waker,
}

/// What a member wakes: itself, and the task that polls the set.
struct Wakeup {
    is_woken: AtomicBool,
    task: Arc<AtomicWaker>,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<F: Future> FutureSet<F> {
    pub(super) fn new() -> Self {
        Self { members: Vec::new(), task: Arc::default() }
    }

    /// Adds a future. The next [`Self::next`] polls it.
    pub(super) fn push(&mut self, future: F) {
        let task = Arc::clone(&self.task);
        let wakeup = Arc::new(Wakeup { is_woken: AtomicBool::new(true), task });
        let waker = Waker::from(Arc::clone(&wakeup));
        self.members.push(Member { future: Box::pin(future), wakeup, waker });
    }

    /// Waits for the next future that ends, and removes it. `None` if the set is empty. Loses
    /// nothing when it is dropped before.
    pub(super) async fn next(&mut self) -> Option<F::Output> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        if self.members.is_empty() {
            return Poll::Ready(None);
        }
        // Before the look at the members, so that none that is woken from here on is missed.
        self.task.register(context.waker());
        for index in 0..self.members.len() {
            let Member { future, wakeup, waker } = &mut self.members[index];
            if !wakeup.is_woken.swap(false, Ordering::AcqRel) {
                continue;
            }
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                // In order, so that the first polls are in the order in which futures were added.
                self.members.remove(index);
                return Poll::Ready(Some(output));
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;

    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    /// A waker that counts how often it is woken.
    #[derive(Default)]
    struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl CountingWaker {
        fn count(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn poll_once<F: Future>(
        set: &mut FutureSet<F>,
        task: &Arc<CountingWaker>,
    ) -> Poll<Option<F::Output>> {
        let waker = Waker::from(Arc::clone(task));
        pin!(set.next()).poll(&mut Context::from_waker(&waker))
    }

    #[test]
    fn a_task_is_not_woken_before_a_future_of_the_set_is() {
        let task = Arc::<CountingWaker>::default();
        let mut set = FutureSet::new();
        let (sender, receiver) = oneshot::channel();
        set.push(receiver);
        assert!(poll_once(&mut set, &task).is_pending());
        assert_eq!(task.count(), 0, "no future was woken");
        sender.send(7).unwrap();
        assert_eq!(task.count(), 1);
        assert_eq!(poll_once(&mut set, &task), Poll::Ready(Some(Ok(7))));
        assert_eq!(poll_once(&mut set, &task), Poll::Ready(None));
        assert_eq!(task.count(), 1);
    }

    #[test]
    fn only_a_future_that_was_woken_is_polled() {
        let task = Arc::<CountingWaker>::default();
        let polls = Cell::new(0);
        let mut set = FutureSet::new();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
        for mut receiver in receivers {
            let polls = &polls;
            set.push(poll_fn(move |context| {
                polls.set(polls.get() + 1);
                receiver.poll_unpin(context)
            }));
        }
        assert!(poll_once(&mut set, &task).is_pending());
        assert_eq!(polls.get(), 3);
        for (number, sender) in senders.into_iter().enumerate() {
            sender.send(number).unwrap();
            assert_eq!(poll_once(&mut set, &task), Poll::Ready(Some(Ok(number))));
        }
        assert_eq!(polls.get(), 6);
    }

    #[test]
    fn futures_that_are_ready_end_in_the_order_in_which_they_were_added() {
        let task = Arc::<CountingWaker>::default();
        let mut set = FutureSet::new();
        for number in 0..3 {
            set.push(std::future::ready(number));
        }
        for number in 0..3 {
            assert_eq!(poll_once(&mut set, &task), Poll::Ready(Some(number)));
        }
        assert_eq!(poll_once(&mut set, &task), Poll::Ready(None));
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_again() {
        let task = Arc::<CountingWaker>::default();
        let mut set = FutureSet::new();
        let mut is_first = true;
        set.push(poll_fn(move |context| {
            if std::mem::take(&mut is_first) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        }));
        assert!(poll_once(&mut set, &task).is_pending());
        assert_eq!(task.count(), 1);
        assert_eq!(poll_once(&mut set, &task), Poll::Ready(Some(())));
    }

    #[test]
    fn a_set_that_moved_to_another_task_wakes_that_one() {
        let (first, second) = (Arc::<CountingWaker>::default(), Arc::<CountingWaker>::default());
        let mut set = FutureSet::new();
        let (sender, receiver) = oneshot::channel::<()>();
        set.push(receiver);
        assert!(poll_once(&mut set, &first).is_pending());
        assert!(poll_once(&mut set, &second).is_pending());
        drop(sender);
        assert_eq!((first.count(), second.count()), (0, 1));
        assert!(matches!(poll_once(&mut set, &second), Poll::Ready(Some(Err(_)))));
    }
}
