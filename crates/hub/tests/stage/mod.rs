//! The environment of a hub in these tests: a core, and an outlet that passes all commands to the test.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod orders;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hub::{Cursors, EndReason, EventTracer, Hub, HubSettings, Job, Outlet, OutletCommand, Workers};
use telemetry::spans::Tracer;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

/// The maximum time of a step of these tests, also on a busy machine.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// One core: the owner of the receiver runs the jobs.
pub(crate) struct OneWorker(mpsc::UnboundedSender<Job>);

impl OneWorker {
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Job>) {
        let (sender, jobs) = mpsc::unbounded_channel();
        (Arc::new(Self(sender)), jobs)
    }
}

impl Workers for OneWorker {
    fn run(&self, job: Job) {
        let _ = self.0.send(job);
    }
}

/// Runs `test` with a hub and one core on this thread.
pub(crate) async fn with_hub<F: Future<Output = ()>>(
    settings: HubSettings,
    test: impl FnOnce(Arc<Hub>) -> F,
) {
    run_with_hub(settings, None, None, test).await;
}

/// Does the same with cursors in payloads, also for the memory provider.
pub(crate) async fn with_hub_and_cursors<F: Future<Output = ()>>(
    settings: HubSettings,
    test: impl FnOnce(Arc<Hub>) -> F,
) {
    let cursors =
        Cursors::new(std::iter::empty()).expect("random bytes").with_memory_providers(true);
    run_with_hub(settings, Some(cursors), None, test).await;
}

/// Does the same with traces of events, for a graph named `beta`.
pub(crate) async fn with_traced_hub<F: Future<Output = ()>>(
    settings: HubSettings,
    tracer: &Arc<Tracer>,
    test: impl FnOnce(Arc<Hub>) -> F,
) {
    let tracer = EventTracer { tracer: Arc::clone(tracer), graph: Some("beta".into()) };
    run_with_hub(settings, None, Some(tracer), test).await;
}

/// Does the same with cursors in payloads, also for the memory provider.
pub(crate) async fn with_traced_hub_and_cursors<F: Future<Output = ()>>(
    settings: HubSettings,
    tracer: &Arc<Tracer>,
    test: impl FnOnce(Arc<Hub>) -> F,
) {
    let tracer = EventTracer { tracer: Arc::clone(tracer), graph: Some("beta".into()) };
    let cursors =
        Cursors::new(std::iter::empty()).expect("random bytes").with_memory_providers(true);
    run_with_hub(settings, Some(cursors), Some(tracer), test).await;
}

async fn run_with_hub<F: Future<Output = ()>>(
    settings: HubSettings,
    cursors: Option<Cursors>,
    tracer: Option<EventTracer>,
    test: impl FnOnce(Arc<Hub>) -> F,
) {
    let local = LocalSet::new();
    let (cores, mut jobs) = OneWorker::new();
    local.spawn_local(async move {
        while let Some(job) = jobs.recv().await {
            tokio::task::spawn_local(job());
        }
    });
    let hub = Arc::new(Hub::with_traces(settings, cores, cursors, tracer));
    local.run_until(tokio::time::timeout(STEP_TIMEOUT * 2, test(hub))).await.expect("in time");
}

/// An outlet that passes every command on.
pub(crate) struct RecordingOutlet(mpsc::UnboundedSender<OutletCommand>);

impl Outlet for RecordingOutlet {
    fn send(&self, command: OutletCommand) {
        let _ = self.0.send(command);
    }
}

/// An outlet, and the commands that it received.
pub(crate) struct Listener {
    pub(crate) outlet: Arc<RecordingOutlet>,
    pub(crate) commands: mpsc::UnboundedReceiver<OutletCommand>,
}

impl Listener {
    pub(crate) fn new() -> Self {
        let (sender, commands) = mpsc::unbounded_channel();
        Self { outlet: Arc::new(RecordingOutlet(sender)), commands }
    }

    /// Returns the next command: `join`, a payload's text, or `end: reason`.
    pub(crate) async fn next(&mut self) -> String {
        let command = tokio::time::timeout(STEP_TIMEOUT, self.commands.recv()).await;
        match command.expect("the command arrives in time").expect("the hub holds the outlet") {
            OutletCommand::Join { .. } => "join".into(),
            OutletCommand::Deliver { payload, spans, .. } => {
                if let Some(spans) = spans {
                    spans.note_sent(Instant::now(), 0);
                }
                String::from_utf8(payload.bytes.to_vec()).expect("payloads are text")
            }
            OutletCommand::Position { cursor, .. } => {
                format!("position: {}", String::from_utf8_lossy(&cursor))
            }
            OutletCommand::Merge { .. } => "merged".into(),
            OutletCommand::Leave { .. } => "end: unsubscribed".into(),
            OutletCommand::End { reason, .. } => match reason {
                EndReason::Complete => "end: complete".into(),
                EndReason::Error(error) => format!("end: {}", error.code.as_str()),
            },
        }
    }
}
