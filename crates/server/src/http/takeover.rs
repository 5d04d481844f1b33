//! The end of HTTP/1.1 on a connection that continues as a WebSocket or as a body without end.

use std::fmt;

use bytes::Bytes;
use execute::LocalFuture;

use super::stream::ClientStream;
use crate::connections::ConnectionPermit;

/// A connection that has left HTTP.
#[derive(Debug)]
pub(crate) struct TakenOver {
    /// The stream, on which the last HTTP head has been written.
    pub(crate) stream: ClientStream,
    /// The bytes that the client sent behind its request.
    pub(crate) early: Bytes,
    /// The permit, which still counts the connection.
    pub(crate) permit: ConnectionPermit,
}

/// The work that serves a connection after the last HTTP head has been written on it.
pub(crate) struct Takeover(Box<dyn FnOnce(TakenOver) -> LocalFuture<'static, ()> + Send>);

impl Takeover {
    /// Returns a takeover. `run` gets the connection and returns when it has ended or is served elsewhere.
    pub(crate) fn new(
        run: impl FnOnce(TakenOver) -> LocalFuture<'static, ()> + Send + 'static,
    ) -> Self {
        Self(Box::new(run))
    }

    /// Passes the connection to the takeover.
    pub(super) async fn run(self, left: TakenOver) {
        (self.0)(left).await;
    }
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takeover").finish_non_exhaustive()
    }
}
