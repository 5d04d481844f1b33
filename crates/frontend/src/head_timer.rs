//! The timer of one HTTP/1.1 connection, which bounds the time for the head of the next request.
//!
//! The HTTP library sets a deadline before each head, also on a connection with many requests a second. A timer of the
//! runtime for each of them would be an allocation, and two locks to enter and leave the timer wheel. Here all
//! deadlines of a connection share one such timer. It stays in the wheel with the first deadline, and moves to the
//! present one only when that time has come: once in `http.header_timeout`.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

/// The timer of a connection.
#[derive(Clone, Default)]
pub(super) struct HeadTimer(Arc<Mutex<SharedSleep>>);

/// The timer of the runtime, from the first deadline on.
type SharedSleep = Option<Pin<Box<tokio::time::Sleep>>>;

/// One deadline, the only one of its connection.
struct HeadDeadline {
    deadline: tokio::time::Instant,
    timer: HeadTimer,
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    // hot path: a small allocation
    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(HeadDeadline { deadline: deadline.into(), timer: self.clone() })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into()
    }
}

impl Sleep for HeadDeadline {}

impl Future for HeadDeadline {
    type Output = ();

    // hot path: no change of the timer wheel, unless the time of an earlier deadline has come
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        let mut shared = self.timer.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sleep = shared.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(context));
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(75);

    /// Sets a deadline for a head that arrives before it. Returns the time at which the runtime wakes the connection.
    async fn receive_head(timer: &HeadTimer) -> Option<tokio::time::Instant> {
        let mut waiting = timer.sleep(TIMEOUT);
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        let shared = timer.0.lock().expect("no panic");
        shared.as_ref().map(|it| it.deadline())
    }

    #[tokio::test(start_paused = true)]
    async fn each_head_has_its_time_and_all_of_them_one_timer() {
        let (timer, began) = (HeadTimer::default(), tokio::time::Instant::now());
        for _ in 0..5 {
            assert_eq!(receive_head(&timer).await, Some(began + TIMEOUT));
            tokio::time::advance(TIMEOUT / 10).await;
        }
        // The head that does not come.
        timer.sleep(TIMEOUT).await;
        assert_eq!(began.elapsed().as_secs(), (TIMEOUT / 2 + TIMEOUT).as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_was_due_while_a_request_was_served_is_set_again() {
        let (timer, began) = (HeadTimer::default(), tokio::time::Instant::now());
        receive_head(&timer).await;
        tokio::time::advance(2 * TIMEOUT).await;
        assert_eq!(receive_head(&timer).await, Some(began + 3 * TIMEOUT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_before_that_of_the_timer_is_kept() {
        let (timer, began) = (HeadTimer::default(), tokio::time::Instant::now());
        receive_head(&timer).await;
        timer.sleep(TIMEOUT / 5).await;
        assert_eq!(began.elapsed().as_secs(), (TIMEOUT / 5).as_secs());
    }
}
