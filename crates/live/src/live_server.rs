//! The live layer as the router uses it: it opens streams and WebSockets, and hands connections to the reactors.

use std::sync::Arc;

use bytes::Bytes;
use clients::connections::{ConnectionRefused, Connections, TakenOver};
use clients::shutdown::Shutdown;

use super::operation_runner::OperationRunner;
use super::reactors::ReactorHandles;
use super::reactors::context::ReactorContext;
use super::sse_single_connection::stream_table::StreamTable;
use super::takeover::LiveConnection;
use crate::watches::WatchBoard;

/// The live layer of one graph.
pub struct LiveServer {
    reactor: Arc<ReactorContext>,
    pub(super) reactors: ReactorHandles,
    /// The subscribers with a watched history.
    pub(super) board: WatchBoard,
    /// Event streams that carry several operations.
    pub(super) streams: Arc<StreamTable>,
    /// The maximum number of operations on one of them.
    pub(super) stream_operations_max: u32,
    /// The state of the shutdown.
    pub(super) shutdown: Arc<Shutdown>,
}

impl LiveServer {
    /// Creates the live layer over started reactors. A stream of single connection mode carries at most
    /// `stream_operations_max` operations.
    pub fn new(
        reactor: &Arc<ReactorContext>,
        reactors: ReactorHandles,
        stream_operations_max: u32,
        shutdown: &Arc<Shutdown>,
    ) -> Self {
        Self {
            reactor: Arc::clone(reactor),
            reactors,
            board: WatchBoard::default(),
            streams: Arc::default(),
            stream_operations_max,
            shutdown: Arc::clone(shutdown),
        }
    }

    /// Returns the part that runs operations.
    pub fn runner(&self) -> &Arc<OperationRunner> {
        &self.reactor.runner
    }

    /// Hands a connection that has left HTTP to a reactor.
    pub fn adopt(&self, live: LiveConnection, taken_over: TakenOver) {
        self.reactors.adopt(&self.reactor, live, taken_over);
    }

    /// Adds a WebSocket without a socket; see [`ReactorHandles::adopt_null_client`].
    ///
    /// # Errors
    /// The limit of connections is reached.
    pub fn adopt_null_client(
        &self,
        connections: &Connections,
        greeting: &[u8],
        said: &Bytes,
    ) -> Result<(), ConnectionRefused> {
        self.reactors.adopt_null_client((&self.reactor, connections), greeting, said)
    }
}

impl std::fmt::Debug for LiveServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveServer").field("streams", &self.streams).finish_non_exhaustive()
    }
}
