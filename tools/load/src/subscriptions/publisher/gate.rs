//! Limits how far a publisher is ahead of its receivers: a closed loop, in which nothing must be dropped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The sleep of a publisher between two checks of the gate. A confirmation wakes it earlier; the check serves a gate
/// that is closed meanwhile.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The gate, see the module. The confirming thread and the publisher share it.
#[derive(Debug)]
pub(in crate::subscriptions) struct Gate {
    /// The maximum number of events in flight.
    window: u64,
    /// The number of events that all clients have received.
    confirmed: AtomicU64,
    is_closed: AtomicBool,
}

impl Gate {
    /// Creates a gate with a maximum number of events in flight.
    pub(in crate::subscriptions) fn new(window: u64) -> Self {
        Self {
            window: window.max(1),
            confirmed: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Sets the number of events that all clients have received.
    pub(in crate::subscriptions) fn confirm(&self, count: u64) {
        self.confirmed.store(count, Ordering::Release);
    }

    /// Stops the publisher.
    pub(in crate::subscriptions) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Waits until further events may follow the `published` ones, and returns how many; `None` once the gate is
    /// closed.
    pub(super) fn pass(&self, published: u64) -> Option<u64> {
        loop {
            if self.is_closed.load(Ordering::Acquire) {
                return None;
            }
            let most = self.confirmed.load(Ordering::Acquire) + self.window;
            if most > published {
                return Some(most - published);
            }
            std::thread::park_timeout(CHECK_INTERVAL);
        }
    }
}
