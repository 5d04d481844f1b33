//! Resolutions that wait for nothing. Each takes some microseconds, less than waking a thread for it, so several go to
//! a worker together, and their outcomes come back together.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::ResolutionOutcome;
use crate::{Resolve, TriggerEvent, Workers};

/// The number of resolutions that go to a worker together. The first one waits for the last one.
const TOGETHER_MAX: usize = 16;

/// The maximum size of the payload of an event that is resolved together with others, in bytes: a larger one would
/// delay them.
const PAYLOAD_BYTES_MAX: usize = 4096;

/// The resolutions of one turn of a shard that have not been passed to a worker yet.
#[derive(Default)]
pub(super) struct LocalResolutions(Vec<LocalResolution>);

struct LocalResolution {
    event: TriggerEvent,
    resolve: Arc<dyn Resolve>,
    outcome: oneshot::Sender<ResolutionOutcome>,
}

impl LocalResolutions {
    /// True if an event can be resolved together with others.
    pub(super) fn accepts(&self, event: &TriggerEvent, resolve: &dyn Resolve) -> bool {
        !resolve.waits() && event.event.payload.len() <= PAYLOAD_BYTES_MAX
    }

    /// Adds an event. Returns the channel of its outcome.
    pub(super) fn add(
        &mut self,
        event: TriggerEvent,
        resolve: Arc<dyn Resolve>,
    ) -> oneshot::Receiver<ResolutionOutcome> {
        let (outcome, receiver) = oneshot::channel();
        self.0.push(LocalResolution { event, resolve, outcome });
        receiver
    }

    /// Passes the resolutions to a worker if there are as many as go together.
    pub(super) fn spawn_if_full(&mut self, cores: &dyn Workers) {
        if self.0.len() >= TOGETHER_MAX {
            self.spawn(cores);
        }
    }

    /// Passes the resolutions to a worker, if there are any.
    pub(super) fn spawn(&mut self, cores: &dyn Workers) {
        if self.0.is_empty() {
            return;
        }
        let all = std::mem::take(&mut self.0);
        cores.run(Box::new(move || {
            Box::pin(async move {
                let mut resolved = Vec::with_capacity(all.len());
                for LocalResolution { event, resolve, outcome } in all {
                    // The outcome of a group that has ended is not needed.
                    if !outcome.is_closed() {
                        let payload = resolve.resolve(event).await;
                        resolved.push((outcome, ResolutionOutcome::Payload(payload)));
                    }
                }
                // The shard wakes once for all of them.
                for (sender, outcome) in resolved {
                    // Fails only if the outcome is no longer needed.
                    let _ = sender.send(outcome);
                }
            })
        }));
    }
}
