//! Waiting for conditions that are not signalled.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time that a program may take to become ready or to end, on a busy machine.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval between two checks of a condition.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls `probe` until it returns a value.
///
/// # Panics
/// There is none after half a minute; the message contains `condition`.
pub fn eventually<T>(condition: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < deadline, "timed out waiting for {condition}");
        sleep(POLL_INTERVAL);
    }
}
