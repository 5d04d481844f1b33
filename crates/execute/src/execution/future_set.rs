//! The requests of an execution that are in flight, as a set of futures of which each is polled
//! only when it was woken.
//!
//! `FuturesUnordered` wakes its own task whenever it has polled all of its futures, so that the
//! task is polled again for nothing. An execution mostly waits for one request: each request would
//! cost a second poll of the whole connection.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// A set of futures.
pub(super) struct FutureSet<F> {
    /// All futures in the order in which they were added; `None` where one has ended.
    members: Vec<Option<Member<F>>>,
    /// The number of futures that have not ended.
    running: usize,
    shared: Arc<Shared>,
}

struct Member<F> {
    future: Pin<Box<F>>,
    wakeup: Arc<Wakeup>,
    waker: Waker,
}

/// The part of a set that wakers reach, from any thread.
#[derive(Default)]
struct Shared {
    /// The indexes of the members to poll, in the order in which they were woken.
    woken: Mutex<VecDeque<usize>>,
    /// The waker of the task that polls the set.
    task: AtomicWaker,
}

/// Notes that a member was woken, and wakes the task that polls the set.
struct Wakeup {
    index: usize,
    /// True while the index is in the queue.
    is_queued: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.shared.woken().push_back(self.index);
        }
        self.shared.task.wake();
    }
}

impl Shared {
    fn woken(&self) -> MutexGuard<'_, VecDeque<usize>> {
        // The queue changes in one step, so that behind a poisoned lock is sound.
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future> FutureSet<F> {
    pub(super) fn new() -> Self {
        Self { members: Vec::new(), running: 0, shared: Arc::default() }
    }

    /// Adds a future. The next [`Self::next`] polls it.
    pub(super) fn push(&mut self, future: F) {
        let (index, shared) = (self.members.len(), Arc::clone(&self.shared));
        let wakeup = Arc::new(Wakeup { index, is_queued: AtomicBool::new(true), shared });
        let waker = Waker::from(Arc::clone(&wakeup));
        self.members.push(Some(Member { future: Box::pin(future), wakeup, waker }));
        self.running += 1;
        self.shared.woken().push_back(index);
    }

    /// Waits for the next future that ends, and removes it. Returns `None` if the set is empty.
    /// Dropping the future that this returns loses no result.
    pub(super) async fn next(&mut self) -> Option<F::Output> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        if self.running == 0 {
            return Poll::Ready(None);
        }
        // The task is registered before the queue is read, so that no later wake is missed.
        self.shared.task.register(context.waker());
        // A member that wakes itself meanwhile is polled the next time, so that others get a turn.
        let woken = self.shared.woken().len();
        for _ in 0..woken {
            let Some(index) = self.shared.woken().pop_front() else { break };
            let slot = &mut self.members[index];
            // A waker may outlive its future.
            let Some(Member { future, wakeup, waker }) = slot else { continue };
            // A wake before this swap is one that the poll sees: the swap synchronises with that of the
            // waker. A later wake puts the member into the queue again.
            wakeup.is_queued.swap(false, Ordering::AcqRel);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                *slot = None;
                self.running -= 1;
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

    /// Counts the times that a task is woken.
    #[derive(Default)]
    struct CountedWakes(AtomicUsize);

    impl Wake for CountedWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl CountedWakes {
        fn count(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn poll_once<F: Future>(
        set: &mut FutureSet<F>,
        task: &Arc<CountedWakes>,
    ) -> Poll<Option<F::Output>> {
        let waker = Waker::from(Arc::clone(task));
        pin!(set.next()).poll(&mut Context::from_waker(&waker))
    }

    #[test]
    fn a_task_is_not_woken_before_a_future_of_the_set_is() {
        let task = Arc::<CountedWakes>::default();
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
        let task = Arc::<CountedWakes>::default();
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
        let task = Arc::<CountedWakes>::default();
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
        let task = Arc::<CountedWakes>::default();
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

    #[tokio::test]
    async fn futures_that_other_threads_wake_all_end() {
        const FUTURES: usize = 20_000;
        let (senders, receivers) = std::sync::mpsc::channel::<oneshot::Sender<usize>>();
        let receivers = Arc::new(Mutex::new(receivers));
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let receivers = Arc::clone(&receivers);
                std::thread::spawn(move || {
                    while let Ok(sender) = { receivers.lock().unwrap().recv() } {
                        sender.send(number).unwrap();
                    }
                })
            })
            .collect();
        let mut set = FutureSet::new();
        let all = async {
            for _ in 0..FUTURES / 2 {
                for _ in 0..2 {
                    let (sender, receiver) = oneshot::channel();
                    set.push(receiver);
                    senders.send(sender).unwrap();
                }
                for _ in 0..2 {
                    set.next().await.unwrap().unwrap();
                }
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), all).await.expect("all end");
        drop(senders);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn a_set_that_moved_to_another_task_wakes_that_one() {
        let (first, second) = (Arc::<CountedWakes>::default(), Arc::<CountedWakes>::default());
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
