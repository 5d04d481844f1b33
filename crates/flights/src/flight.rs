//! One piece of work and those who wait for it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::SetOnce;
use tokio::task::AbortHandle;

/// See the module.
#[derive(Debug)]
pub(crate) struct Flight<T> {
    /// The result; `None`: the work broke off.
    landed: SetOnce<Option<T>>,
    /// How many wait. Counted up only while the flight stands in the map, under the lock of its part.
    aboard: AtomicUsize,
    /// The leader's deadline.
    deadline: Instant,
    task: OnceLock<AbortHandle>,
}

impl<T> Flight<T> {
    /// A flight with its leader aboard.
    pub(crate) fn new(deadline: Instant) -> Self {
        Self {
            landed: SetOnce::new(),
            aboard: AtomicUsize::new(1),
            deadline,
            task: OnceLock::new(),
        }
    }

    /// Who follows somebody with much less time would fail with him. A follower may give up half of its own
    /// time at most.
    pub(crate) fn may_be_joined(&self, now: Instant, deadline: Instant) -> bool {
        let wanted = deadline.saturating_duration_since(now) / 2;
        self.deadline.saturating_duration_since(now) >= wanted
    }

    /// One more waits. Only under the lock of the map.
    pub(crate) fn board(&self) {
        self.aboard.fetch_add(1, Ordering::Relaxed);
    }

    /// One fewer waits. True: that was the last one, and there is no result yet.
    pub(crate) fn leave(&self) -> bool {
        self.aboard.fetch_sub(1, Ordering::AcqRel) == 1 && !self.landed.initialized()
    }

    /// Does nobody wait? Final if asked under the lock of the map.
    pub(crate) fn is_empty(&self) -> bool {
        self.aboard.load(Ordering::Acquire) == 0
    }

    /// Does the leader alone wait, who is still aboard? Final if asked under the lock of the map.
    pub(crate) fn has_only_leader(&self) -> bool {
        self.aboard.load(Ordering::Acquire) == 1
    }

    /// The work has become a task: its leader has left.
    pub(crate) fn is_led_by(&self, task: AbortHandle) {
        // The leader calls this once.
        let _ = self.task.set(task);
    }

    /// The result is there. The first one counts.
    pub(crate) fn land(&self, result: Option<T>) {
        let _ = self.landed.set(result);
    }

    /// Ends the work: nobody wants its result.
    pub(crate) fn cancel(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    pub(crate) async fn wait(&self) -> Option<&T> {
        self.landed.wait().await.as_ref()
    }
}
