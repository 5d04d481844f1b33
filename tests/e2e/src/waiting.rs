//! Waiting for what nobody announces.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Until a started program is ready or a told one has ended, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How often a condition that nobody announces is looked at.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The first answer of `look`, which is asked again and again.
///
/// # Panics
/// With `what` was waited for, if there is none for half a minute.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited for {what} in vain");
        sleep(POLL_INTERVAL);
    }
}
