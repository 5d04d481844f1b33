//! The time that workers spend on work.

use std::pin::Pin;
use std::time::{Duration, Instant};

/// Work that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeasuredWork<T> {
    /// The result.
    pub output: T,
    /// The time that the worker has spent on it; zero if it was not measured.
    pub busy: Duration,
    /// The time at which it ended; `None` if it was not measured.
    pub ended: Option<Instant>,
}

/// Runs a piece of work that begins now, at `began`, and measures the time that the worker spends on it. Waiting, such
/// as for subgraphs, costs nothing. Without `is_wanted` nothing is measured. `count` gets the time of each step, also
/// if the work is dropped before its end.
///
/// The work is pinned by the caller: its state is large, and would be moved twice on its way here.
// hot path: one reading of the clock for work that never waits, and two for each further time that it is polled; each
// takes about 50 ns
pub async fn measure<F: Future>(
    mut work: Pin<&mut F>,
    began: Instant,
    is_wanted: bool,
    mut count: impl FnMut(Duration),
) -> MeasuredWork<F::Output> {
    let mut first_began = Some(began);
    let mut busy = Duration::ZERO;
    let measured = std::future::poll_fn(|context| {
        if !is_wanted {
            let polled = work.as_mut().poll(context);
            return polled.map(|output| MeasuredWork { output, busy: Duration::ZERO, ended: None });
        }
        let step_began = first_began.take().unwrap_or_else(Instant::now);
        let polled = work.as_mut().poll(context);
        let ended = Instant::now();
        let step = ended.saturating_duration_since(step_began);
        busy += step;
        count(step);
        polled.map(|output| MeasuredWork { output, busy, ended: Some(ended) })
    });
    measured.await
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

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
        let began = Instant::now();
        let MeasuredWork { output, busy, ended } = measure(pin!(work()), began, true, |_| {}).await;
        assert_eq!(output, 7);
        assert!(busy >= 2 * took && busy < Duration::from_secs(60), "{busy:?}");
        assert!(ended.is_some_and(|ended| ended >= began + busy), "{ended:?}");
        let unmeasured = MeasuredWork { output: 7, busy: Duration::ZERO, ended: None };
        assert_eq!(measure(pin!(work()), began, false, |_| {}).await, unmeasured);
    }

    #[tokio::test]
    async fn the_first_step_begins_when_its_caller_says() {
        let took = Duration::from_millis(3);
        let mut steps = Vec::new();
        let work = tokio::task::yield_now();
        let began = Instant::now().checked_sub(took).expect("it runs for longer");
        let measured = measure(pin!(work), began, true, |step| steps.push(step)).await;
        assert_eq!((steps.len(), steps.iter().sum::<Duration>()), (2, measured.busy));
        assert!(steps[0] >= took, "{steps:?}");
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
            let work = pin!(work);
            let measured = pin!(measure(work, Instant::now(), true, |step| busy += step));
            assert!(futures_util::poll!(measured).is_pending());
        }
        assert!(busy >= took, "{busy:?}");
    }
}
