//! The state of one running router, shared by everything that serves. The graph changes and is read as a snapshot;
//! everything else is fixed at the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use arc_swap::ArcSwap;
use config::Config;
use events::Providers;
use http::HeaderMap;
use hub::Hub;
use ide::Page;
use tokio::sync::watch;

use crate::authentication::{
    Authenticator, Identity, InitIdentification, InitOutcome, PresentedToken, TokenRefusal,
};
use crate::byte_budget::ByteBudget;
use crate::connections::Connections;
use crate::drain::DrainSchedule;
use crate::generation::ServingGraph;
use crate::http::compression::Compressor;
use crate::live::QueueTotal;
use crate::live::group_shares::GroupShares;
use crate::live::reactors::ReactorHandles;
use crate::live::sse_single_connection::StreamTable;
use crate::metrics::Metrics;
use crate::offload::Offload;
use crate::sharing::SharedWork;
use crate::workers::Workers;

/// The state of one running router.
pub(crate) struct Router {
    /// The configuration, as loaded at the start.
    pub(crate) config: Config,
    /// The worker threads.
    pub(crate) workers: Arc<Workers>,
    /// The graph that serves now; see [`Router::serve`].
    pub(crate) loaded: ArcSwap<ServingGraph>,
    /// The number of the current generation, for tasks that wait for the next one.
    pub(crate) generation: watch::Sender<u64>,
    /// The brokers.
    pub(crate) providers: Arc<Providers>,
    /// Verification of tokens; `None`: tokens are not checked.
    pub(crate) authentication: Option<Authenticator>,
    /// Work in flight that several requests share.
    pub(crate) sharing: SharedWork,
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
    /// Open client connections.
    pub(crate) connections: Connections,
    /// The number of groups that each client has created.
    pub(crate) group_shares: Arc<GroupShares>,
    /// The number of bytes of texts and variables that live subscriptions keep.
    pub(crate) kept_operation_bytes: Arc<AtomicUsize>,
    /// The bytes that wait for slow clients.
    pub(crate) queue_total: Arc<QueueTotal>,
    /// The responses that clients have not read yet.
    pub(crate) response_bytes: Arc<ByteBudget>,
    /// Parses large requests.
    pub(crate) offload: Offload,
    /// Compresses responses.
    pub(crate) compressor: Compressor,
    /// The counters of the server.
    pub(crate) metrics: Metrics,
    /// True when the router is about to end and is not ready any more, though it serves as before.
    pub(crate) is_leaving: AtomicBool,
    /// Becomes true once, when the router ends.
    pub(crate) shutdown: watch::Receiver<bool>,
    /// The schedule by which connections are then closed.
    pub(crate) drain_schedule: DrainSchedule,
}

impl Router {
    /// Returns the graph that serves now.
    pub(crate) fn current(&self) -> Arc<ServingGraph> {
        self.loaded.load_full()
    }

    /// Returns the identity of a client that sends these headers; anonymous if tokens are not checked.
    ///
    /// # Errors
    /// The client has an invalid token.
    pub(crate) async fn authenticate(&self, headers: &HeaderMap) -> Result<Identity, TokenRefusal> {
        match &self.authentication {
            Some(authentication) => {
                authentication.authenticate(&self.metrics.authentication, headers).await
            }
            None => Ok(Identity::ANONYMOUS),
        }
    }

    /// Checks that the client may send operations.
    ///
    /// # Errors
    /// The client is anonymous and `authentication.jwt.required` is set.
    pub(crate) fn authorize(&self, identity: &Identity) -> Result<(), TokenRefusal> {
        match &self.authentication {
            Some(authentication) => {
                authentication.authorize(&self.metrics.authentication, identity)
            }
            None => Ok(()),
        }
    }

    /// Identifies the client of a `connection_init`, as far as that needs no verification. `before` is the identity of
    /// the handshake. Without authentication every client is anonymous.
    pub(crate) fn on_connection_init(
        &self,
        token: Result<Option<PresentedToken>, TokenRefusal>,
        before: &Identity,
    ) -> InitIdentification {
        match &self.authentication {
            Some(it) => it.on_connection_init(&self.metrics.authentication, token, before),
            None => InitIdentification::Known(Ok(InitOutcome::default())),
        }
    }

    /// Verifies the token of a `connection_init`.
    ///
    /// # Errors
    /// The token is not valid, or cannot be verified at present.
    pub(crate) async fn verify_init_token(
        &self,
        token: &PresentedToken,
    ) -> Result<InitOutcome, TokenRefusal> {
        match &self.authentication {
            Some(authentication) => {
                authentication.verify_init_token(&self.metrics.authentication, token).await
            }
            None => Ok(InitOutcome::default()),
        }
    }

    /// Puts another graph into service.
    pub(crate) fn serve(&self, loaded: Arc<ServingGraph>) {
        let number = loaded.generation.number;
        self.loaded.store(loaded);
        self.generation.send_replace(number);
    }

    /// Waits until the drain schedule closes one connection.
    pub(crate) async fn wait_for_drain(&self) {
        self.drain_schedule.turn(self.shutdown.clone()).await;
    }

    /// Waits for a graph with a later number than `number`, and returns it.
    pub(crate) async fn wait_for_graph_after(&self, number: u64) -> Arc<ServingGraph> {
        // This router owns the sender, so the wait cannot fail.
        let _ = self.generation.subscribe().wait_for(|generation| *generation > number).await;
        self.current()
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("graph", &self.current().generation).finish_non_exhaustive()
    }
}
