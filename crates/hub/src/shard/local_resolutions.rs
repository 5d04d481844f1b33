//! Resolutions that wait for nothing. Each takes some microseconds, and waking a thread for it takes longer. A shard
//! therefore resolves some of them itself in each turn, and passes the others to workers, several together, so that all
//! processors resolve an event of many groups.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::AbortRegistration;
use tokio::sync::oneshot;

use super::ResolutionOutcome;
use crate::{GroupId, Resolve, TriggerEvent, Workers};

/// The number of resolutions that a shard does itself in one turn.
pub(super) const OWN_PER_TURN: usize = 64;

/// The number of resolutions that go to a worker together. The first one waits for the last one.
const TOGETHER_MAX: usize = 16;

/// The maximum size of the payload of an event that is resolved here or together with others, in bytes: a larger one
/// would delay them.
const PAYLOAD_BYTES_MAX: usize = 4096;

/// True if a resolution waits for nothing and does not take long.
pub(super) fn is_local(event: &TriggerEvent, resolve: &dyn Resolve) -> bool {
    !resolve.waits() && event.event.payload.len() <= PAYLOAD_BYTES_MAX
}

/// A resolution that the shard does itself.
pub(super) struct OwnResolution {
    pub(super) group: GroupId,
    pub(super) ticket: u64,
    pub(super) event: TriggerEvent,
    pub(super) resolve: Arc<dyn Resolve>,
    pub(super) abort: AbortRegistration,
}

impl OwnResolution {
    /// Resolves the event. `None` if that waits for something after all.
    // hot path: once per group and event.
    pub(super) fn resolve_now(&self) -> Option<ResolutionOutcome> {
        let resolving = || Arc::clone(&self.resolve).resolve(self.event.clone()).now_or_never();
        match catch_unwind(AssertUnwindSafe(resolving)) {
            Ok(payload) => payload.map(ResolutionOutcome::Payload),
            // The panic hook has reported it. It costs this event only, as on a worker.
            Err(_) => Some(ResolutionOutcome::BrokeOff),
        }
    }
}

/// Resolutions of one turn of a shard that have not been passed to a worker yet.
#[derive(Default)]
pub(super) struct WorkerBatch(Vec<BatchedResolution>);

struct BatchedResolution {
    event: TriggerEvent,
    resolve: Arc<dyn Resolve>,
    outcome: oneshot::Sender<ResolutionOutcome>,
}

impl WorkerBatch {
    /// Adds an event. Returns the channel of its outcome.
    pub(super) fn add(
        &mut self,
        event: TriggerEvent,
        resolve: Arc<dyn Resolve>,
    ) -> oneshot::Receiver<ResolutionOutcome> {
        let (outcome, receiver) = oneshot::channel();
        self.0.push(BatchedResolution { event, resolve, outcome });
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
                for BatchedResolution { event, resolve, outcome } in all {
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
