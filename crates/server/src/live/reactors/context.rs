//! The parts of the router that reactor threads use. They are passed to the threads after their start, because the hub
//! needs the reactors' outlets first.

use std::sync::Arc;

use crate::connection_metrics::ConnectionMetrics;
use crate::live::client_context::NeededHeaders;
use crate::live::operation_runner::OperationRunner;
use crate::live::websocket_settings::WebSocketSettings;
use crate::workers::Workers;

/// The parts of the router that reactor threads use.
pub(crate) struct ReactorContext {
    /// Runs the operations of clients.
    pub(crate) runner: Arc<OperationRunner>,
    /// The settings of WebSocket connections.
    pub(crate) websocket: WebSocketSettings,
    /// Selects the headers that connections keep.
    pub(crate) needed_headers: NeededHeaders,
    /// Counts clients that take nothing of the data sent to them.
    pub(crate) connection_metrics: Arc<ConnectionMetrics>,
    /// The threads on which operations run.
    pub(crate) workers: Arc<Workers>,
}
