//! The queue of one operation's results on their way to the hub: bounded in number and in bytes.

use std::sync::Arc;

use bytes::Bytes;
use events::{Event, EventSender, EventStream, SendOutcome};

/// The maximum number of results that wait. The hub takes them as fast as they arrive, unless the machine is
/// overloaded.
const RESULTS_MAX: usize = 256;

/// The maximum size of all results that wait, in bytes. A single result may be larger.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Makes an empty queue.
pub(crate) fn new() -> (EventSender, EventStream) {
    EventSender::new(RESULTS_MAX)
}

/// Adds a result. Returns false if it was dropped because there is no room; the stream then gets a gap.
// hot path: once for each result of a subgraph.
pub(crate) fn offer(sender: &mut EventSender, topic: &Arc<str>, payload: Bytes) -> bool {
    // Results of one operation have similar sizes, so the size of this one is an estimate for those that wait.
    if sender.waiting().saturating_mul(payload.len()) > BYTES_MAX {
        sender.announce_gap();
        return false;
    }
    let sent = sender.try_send(Event::new(Arc::clone(topic), payload));
    !matches!(sent, SendOutcome::Dropped { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_that_wait_are_bounded_in_number_and_in_bytes() {
        let topic = Arc::from("Subscription.n");
        let fill = |size: usize| {
            let (mut sender, _stream) = new();
            let result = Bytes::from(vec![b' '; size]);
            (0..2 * RESULTS_MAX).filter(|_| offer(&mut sender, &topic, result.clone())).count()
        };
        assert_eq!(fill(100), RESULTS_MAX);
        assert_eq!(fill(BYTES_MAX / 4), 5);
        assert_eq!(fill(2 * BYTES_MAX), 1);
    }
}
