//! The turns of an event loop. At the beginning of each turn the loop asks the system which sockets
//! have received data, and then it runs the tasks that are ready. Bytes that a socket receives
//! during a turn are noticed in the next one.

use tokio::runtime::{Handle, RuntimeFlavor};

/// One turn of the event loop of this thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EventLoopTurn(u64);

impl EventLoopTurn {
    /// The current turn. `None` outside of an event loop, and if several threads share one: then
    /// the beginning of a turn says nothing about this thread. hot path: no system call. Turns that
    /// follow each other without a pause for new events may count as one.
    pub(crate) fn now() -> Option<Self> {
        let runtime = Handle::try_current().ok()?;
        let is_alone = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        is_alone.then(|| Self(runtime.metrics().worker_park_count(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_ends_when_the_event_loop_waits_for_sockets_and_not_before() {
        let first = EventLoopTurn::now();
        assert!(first.is_some());
        std::future::ready(()).await;
        assert_eq!(EventLoopTurn::now(), first);
        // A timer can fire only after the loop has waited.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert_ne!(EventLoopTurn::now(), first);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_event_loop_of_several_threads_has_no_turns() {
        assert_eq!(EventLoopTurn::now(), None);
    }

    #[test]
    fn without_an_event_loop_there_are_no_turns() {
        assert_eq!(EventLoopTurn::now(), None);
    }
}
