//! The end of HTTP/1.1 on a connection that continues as a WebSocket or as a body without end.

use std::fmt;

use clients::connections::TakenOver;

/// The receiver of one connection, which gets it after the last HTTP head has been written.
pub struct Takeover(Box<dyn FnOnce(TakenOver) + Send>);

impl Takeover {
    /// Returns a takeover by `receive`, which must not wait.
    pub fn new(receive: impl FnOnce(TakenOver) + Send + 'static) -> Self {
        Self(Box::new(receive))
    }

    /// Passes the connection on.
    pub(super) fn complete(self, taken_over: TakenOver) {
        (self.0)(taken_over);
    }
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takeover").finish_non_exhaustive()
    }
}
