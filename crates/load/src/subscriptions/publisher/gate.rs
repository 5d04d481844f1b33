//! How far a publisher may be ahead of those who receive: a closed loop, in which nothing has to be dropped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a publisher sleeps that nobody wakes. Whoever confirms wakes it; this is for a gate that is closed meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// See the module. Whoever confirms and the publisher share it.
#[derive(Debug)]
pub(in crate::subscriptions) struct Gate {
    /// Events that may be on their way.
    window: u64,
    /// Events that everybody has got.
    confirmed: AtomicU64,
    is_closed: AtomicBool,
}

impl Gate {
    /// A gate for so many unconfirmed events.
    pub(in crate::subscriptions) fn new(window: u64) -> Self {
        Self {
            window: window.max(1),
            confirmed: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Says how many events everybody has got.
    pub(in crate::subscriptions) fn confirm(&self, count: u64) {
        self.confirmed.store(count, Ordering::Release);
    }

    /// Lets no further event through.
    pub(in crate::subscriptions) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Waits until one more event may follow `published` ones, and says how many may; nothing once the gate is closed.
    pub(super) fn pass(&self, published: u64) -> Option<u64> {
        loop {
            if self.is_closed.load(Ordering::Acquire) {
                return None;
            }
            let most = self.confirmed.load(Ordering::Acquire) + self.window;
            if most > published {
                return Some(most - published);
            }
            std::thread::park_timeout(LOOK);
        }
    }
}
