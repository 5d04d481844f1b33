//! The time that workers spend on work.

use std::pin::pin;
use std::time::{Duration, Instant};

/// Runs a piece of work, and returns its result with the time that the worker has spent on it. Waiting, such as for
/// subgraphs, costs nothing. Without `is_wanted` nothing is measured. `count` gets the time of each step, also if the
/// work is dropped before its end.
// hot path: two readings of the clock for each time that the work is polled, about 100 ns
pub async fn measure<F: Future>(
    work: F,
    is_wanted: bool,
    mut count: impl FnMut(Duration),
) -> (F::Output, Duration) {
    let mut work = pin!(work);
    let mut busy = Duration::ZERO;
    let output = std::future::poll_fn(|context| {
        if !is_wanted {
            return work.as_mut().poll(context);
        }
        let started = Instant::now();
        let polled = work.as_mut().poll(context);
        let step = started.elapsed();
        busy += step;
        count(step);
        polled
    });
    (output.await, busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes for this long.
    fn compute(duration: Duration) {
        let began = Instant::now();
        while began.elapsed() < duration {}
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_is_no_work() {
        let took = Duration::from_millis(3);
        let work = || async {
            compute(took);
            // The clock of the runtime stands still, so this does not take the time of a test.
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            compute(took);
            7
        };
        let (result, busy) = measure(work(), true, |_| {}).await;
        assert_eq!(result, 7);
        assert!(busy >= 2 * took && busy < Duration::from_secs(60), "{busy:?}");
        assert_eq!(measure(work(), false, |_| {}).await, (7, Duration::ZERO));
    }

    #[tokio::test]
    async fn the_time_of_work_that_is_dropped_is_known() {
        let took = Duration::from_millis(3);
        let mut busy = Duration::ZERO;
        {
            let work = async {
                compute(took);
                std::future::pending::<()>().await;
            };
            let measured = pin!(measure(work, true, |step| busy += step));
            assert!(futures_util::poll!(measured).is_pending());
        }
        assert!(busy >= took, "{busy:?}");
    }
}
