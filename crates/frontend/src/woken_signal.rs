//! A signal that is polled only when it was woken, for a task that is polled much more often than its signals come.
//!
//! A task polls all of its futures each time that one of them is woken. Each signal of a connection would take a lock
//! for that with each request, and that of the shutdown one that all workers share.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A future that is polled only when it was woken.
pub(super) struct WokenSignal<F> {
    future: F,
    shared: Arc<WakeState>,
    /// The waker of `shared`, which `future` gets.
    own_waker: Waker,
    /// The waker of the task, a copy of that in `shared`.
    task_waker: Option<Waker>,
}

/// The part of a signal that its waker reaches, from any thread.
struct WakeState {
    is_woken: AtomicBool,
    task_waker: Mutex<Option<Waker>>,
}

impl<F: Future + Unpin> WokenSignal<F> {
    /// Wraps a future, which is polled for the first time with its task.
    pub(super) fn new(future: F) -> Self {
        let (is_woken, task_waker) = (AtomicBool::new(true), Mutex::default());
        let shared = Arc::new(WakeState { is_woken, task_waker });
        let own_waker = Waker::from(Arc::clone(&shared));
        Self { future, shared, own_waker, task_waker: None }
    }
}

impl<F: Future + Unpin> Future for WokenSignal<F> {
    type Output = F::Output;

    // hot path: some nanoseconds with each request
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let known = this.task_waker.as_ref();
        if !known.is_some_and(|known| known.will_wake(context.waker())) {
            this.task_waker = Some(context.waker().clone());
            // Before the look at the flag: `wake_by_ref` sets the flag first, so one of both notices the other.
            *this.shared.task_waker() = this.task_waker.clone();
        }
        if !this.shared.is_woken.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        // Before the future is polled, which may be woken again meanwhile.
        this.shared.is_woken.store(false, Ordering::SeqCst);
        Pin::new(&mut this.future).poll(&mut Context::from_waker(&this.own_waker))
    }
}

impl WakeState {
    fn task_waker(&self) -> MutexGuard<'_, Option<Waker>> {
        // The waker is replaced in one step, so that behind a poisoned lock is sound.
        self.task_waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for WakeState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        let task_waker = self.task_waker().clone();
        if let Some(task_waker) = task_waker {
            task_waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use tokio::sync::Notify;

    use super::super::counted_wakes::CountedWakes;
    use super::*;

    #[tokio::test]
    async fn a_signal_is_polled_when_it_was_woken_and_not_with_its_task() {
        let (notify, polls) = (Notify::new(), Cell::new(0));
        let mut notified = pin!(notify.notified());
        let counted = std::future::poll_fn(|context| {
            polls.set(polls.get() + 1);
            notified.as_mut().poll(context)
        });
        let counted = pin!(counted);
        let mut signal = WokenSignal::new(counted);
        for _ in 0..3 {
            assert!(futures_util::poll!(&mut signal).is_pending());
        }
        assert_eq!(polls.get(), 1);
        notify.notify_waiters();
        assert!(futures_util::poll!(&mut signal).is_ready());
        assert_eq!(polls.get(), 2);
    }

    #[test]
    fn the_task_that_has_polled_last_is_woken() {
        let (notify, wakes) = (Notify::new(), Arc::new(CountedWakes::default()));
        let notified = pin!(notify.notified());
        let mut signal = WokenSignal::new(notified);
        let mut first_task = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut signal).poll(&mut first_task).is_pending());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut last_task = Context::from_waker(&waker);
        assert!(Pin::new(&mut signal).poll(&mut last_task).is_pending());
        notify.notify_waiters();
        assert_eq!(wakes.count(), 1);
        assert!(Pin::new(&mut signal).poll(&mut last_task).is_ready());
    }
}
