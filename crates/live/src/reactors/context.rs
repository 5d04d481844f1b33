//! The parts of the router that reactor threads use. They are passed to the threads after their start, because the hub
//! needs the reactors' outlets first.

use std::sync::Arc;

use clients::connection_metrics::ConnectionMetrics;
use clients::workers::Workers;

use crate::client_context::NeededHeaders;
use crate::operation_runner::OperationRunner;
use crate::websocket_settings::WebSocketSettings;

/// The parts of the router that reactor threads use.
pub struct ReactorContext {
    /// Runs the operations of clients.
    pub runner: Arc<OperationRunner>,
    /// The settings of WebSocket connections.
    pub websocket: WebSocketSettings,
    /// Selects the headers that connections keep.
    pub needed_headers: NeededHeaders,
    /// Counts clients that take nothing of the data sent to them.
    pub connection_metrics: Arc<ConnectionMetrics>,
    /// The threads on which operations run.
    pub workers: Arc<Workers>,
}
