//! The task of an exporter, and its end with the router.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::transport::Signal;

/// The time that the end of the router waits for the last traces or metrics.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(5);

/// The time that a task has after that to count what is lost.
const COUNT_TIME_MAX: Duration = Duration::from_millis(500);

/// The task of an exporter.
#[derive(Debug)]
pub struct ExporterTask {
    signal: Signal,
    stop: watch::Sender<Option<Instant>>,
    task: JoinHandle<()>,
}

/// Tells the task of an exporter that the router ends, and until when data may be sent.
#[derive(Clone)]
pub(crate) struct StopSignal(watch::Receiver<Option<Instant>>);

impl ExporterTask {
    /// Starts the task that exports data of one kind. Must be called inside a Tokio runtime.
    pub(crate) fn start<F>(signal: Signal, run: impl FnOnce(StopSignal) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = watch::channel(None);
        Self { signal, stop, task: tokio::spawn(run(StopSignal(stopped))) }
    }

    /// Exports what waits, and ends the task. Waits for a few seconds at most: what the collector has not taken then is
    /// lost, and the log says so.
    pub async fn end(self) {
        self.end_within(FLUSH_TIME_MAX).await;
    }

    /// Ends the task as [`ExporterTask::end`] does, within this time.
    pub async fn end_within(mut self, time: Duration) {
        let _ = self.stop.send(Some(Instant::now() + time));
        let ended = tokio::time::timeout(time + COUNT_TIME_MAX, &mut self.task);
        if ended.await.is_err() {
            self.task.abort();
            let data = self.signal.name();
            tracing::warn!("the last {data} are lost: the collector did not take them in time");
        }
    }
}

/// A task without an owner ends.
impl Drop for ExporterTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StopSignal {
    /// True if the router ends.
    pub(crate) fn is_given(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Returns the time until which data may be sent, if the router ends.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Waits until the router ends.
    pub(crate) async fn wait(&mut self) {
        // The wait fails without a sender: the task is about to be aborted.
        let _ = self.0.wait_for(Option::is_some).await;
    }

    /// Waits for `pause`, but not longer than until the router ends.
    pub(crate) async fn wait_at_most(&mut self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.wait() => {}
        }
    }
}
