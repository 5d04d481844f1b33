//! One piece of work in flight and the callers that wait for its result.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::SetOnce;
use tokio::task::AbortHandle;

/// One piece of work in flight.
#[derive(Debug)]
pub(crate) struct Flight<T> {
    /// The result. `None` if the work failed.
    result: SetOnce<Option<T>>,
    /// The number of callers that wait. Incremented only while the flight is in the map, under the lock of its shard.
    waiters: AtomicUsize,
    /// The leader's deadline.
    deadline: Instant,
    task: OnceLock<AbortHandle>,
}

impl<T> Flight<T> {
    /// Creates a flight with its leader as the only waiter.
    pub(crate) fn new(deadline: Instant) -> Self {
        Self {
            result: SetOnce::new(),
            waiters: AtomicUsize::new(1),
            deadline,
            task: OnceLock::new(),
        }
    }

    /// True if a caller with `deadline` may follow the leader. A follower waits for the leader's work, which ends at
    /// the leader's deadline: an eighth of its own time later at most, because callers of the same moment may come in
    /// either order. And a follower of a leader with much less time would fail with it, so a follower gives up half of
    /// its own time at most.
    pub(crate) fn may_be_joined(&self, now: Instant, deadline: Instant) -> bool {
        let own = deadline.saturating_duration_since(now);
        let leaders = self.deadline.saturating_duration_since(now);
        leaders >= own / 2 && leaders <= own + own / 8
    }

    /// Counts a waiter. Must be called under the lock of the map.
    pub(crate) fn add_waiter(&self) {
        self.waiters.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a waiter. Returns true if it was the last one and there is no result yet.
    pub(crate) fn remove_waiter(&self) -> bool {
        self.waiters.fetch_sub(1, Ordering::AcqRel) == 1 && !self.result.initialized()
    }

    /// True if no caller waits. Final if it is called under the lock of the map.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.load(Ordering::Acquire) == 0
    }

    /// True if the leader is the only waiter. Final if it is called under the lock of the map.
    pub(crate) fn has_only_leader(&self) -> bool {
        self.waiters.load(Ordering::Acquire) == 1
    }

    /// Sets the task that the work continues in after its leader has left.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        // The leader calls this once, so the value is never set already.
        let _ = self.task.set(task);
    }

    /// Sets the result and wakes the waiters. Only the first call has an effect.
    pub(crate) fn complete(&self, result: Option<T>) {
        let _ = self.result.set(result);
    }

    /// Aborts the work after its last waiter has left.
    pub(crate) fn cancel(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    pub(crate) async fn wait(&self) -> Option<&T> {
        self.result.wait().await.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn followers_have_about_as_much_time_as_their_leader() {
        let now = Instant::now();
        let at = |millis| now + Duration::from_millis(millis);
        for (leader, follower, may_join) in [
            (60_000, 60_000, true),
            // Two callers come at the same moment, and the later one leads.
            (60_010, 60_000, true),
            (30_000, 60_000, true),
            (29_999, 60_000, false),
            // It would wait for much longer than it wants to.
            (60_000, 500, false),
            (560, 500, true),
            (0, 500, false),
        ] {
            let flight = Flight::<()>::new(at(leader));
            assert_eq!(flight.may_be_joined(now, at(follower)), may_join, "{leader} {follower}");
        }
    }
}
