//! The state of one running router, shared by everything that serves. The graph changes and is read as a snapshot;
//! everything else is fixed at the start.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use events::Providers;
use hub::Hub;
use ide::Page;

use crate::authentication::ClientAuthentication;
use crate::client_limits::ClientLimits;
use crate::config::Config;
use crate::http::compression::Compressor;
use crate::live::QueueTotal;
use crate::live::group_shares::GroupShares;
use crate::live::reactors::ReactorHandles;
use crate::live::sse_single_connection::StreamTable;
use crate::metrics::Metrics;
use crate::serving::Serving;
use crate::shutdown::Shutdown;
use crate::workers::Workers;

/// The state of one running router.
pub(crate) struct Router {
    /// The configuration, as loaded at the start.
    pub(crate) config: Config,
    /// The worker threads.
    pub(crate) workers: Arc<Workers>,
    /// The graph that serves now.
    pub(crate) serving: Arc<Serving>,
    /// The brokers.
    pub(crate) providers: Arc<Providers>,
    /// Verification of tokens.
    pub(crate) authentication: Arc<ClientAuthentication>,
    /// Live subscriptions.
    pub(crate) hub: Hub,
    /// The handles of the reactors, which hold WebSockets and event streams.
    pub(crate) reactors: ReactorHandles,
    /// Event streams that carry several operations.
    pub(crate) streams: StreamTable,
    /// The settings of WebSocket connections.
    pub(crate) websocket: Arc<wire::websocket::WebSocketConfig>,
    /// The settings of the GraphQL protocol on WebSockets.
    pub(crate) protocol: Arc<wire::graphql_transport_ws::ProtocolConfig>,
    /// The page for browsers, unless it is turned off.
    pub(crate) page: Option<Page>,
    /// The number of groups that each client has created.
    pub(crate) group_shares: Arc<GroupShares>,
    /// The number of bytes of texts and variables that live subscriptions keep.
    pub(crate) kept_operation_bytes: Arc<AtomicUsize>,
    /// The bytes that wait for slow clients.
    pub(crate) queue_total: Arc<QueueTotal>,
    /// The limits of clients.
    pub(crate) limits: Arc<ClientLimits>,
    /// Compresses responses.
    pub(crate) compressor: Compressor,
    /// The counters of the server.
    pub(crate) metrics: Arc<Metrics>,
    /// The state of the shutdown.
    pub(crate) shutdown: Arc<Shutdown>,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router")
            .field("graph", &self.serving.current().generation)
            .finish_non_exhaustive()
    }
}
