//! The state of one running router, passed down to whoever serves. What changes (the graph) is read
//! as a snapshot; everything else is fixed at start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use arc_swap::ArcSwap;
use events::Providers;
use http::HeaderMap;
use hub::Hub;
use ide::Page;
use tokio::sync::watch;

use crate::authentication::{
    Authentication, Identity, InitOutcome, Introduced, PresentedToken, Refusal,
};
use crate::byte_budget::ByteBudget;
use crate::config::Config;
use crate::connections::Connections;
use crate::cores::Cores;
use crate::farewell::Farewell;
use crate::http::compression::Compressor;
use crate::live::QueueTotal;
use crate::live::group_shares::GroupShares;
use crate::live::reactors::ReactorHandles;
use crate::live::single::Streams;
use crate::loaded::Loaded;
use crate::metrics::Metrics;
use crate::offload::Offload;
use crate::sharing::Sharing;

/// One router.
pub(crate) struct Router {
    /// As loaded at start.
    pub(crate) config: Config,
    /// Where work runs.
    pub(crate) cores: Arc<Cores>,
    /// The graph that serves now; see [`Router::serve`].
    pub(crate) loaded: ArcSwap<Loaded>,
    /// Its number, for those who wait for the next one.
    pub(crate) generation: watch::Sender<u64>,
    /// Brokers.
    pub(crate) providers: Arc<Providers>,
    /// Who clients are; `None`: nobody is asked.
    pub(crate) authentication: Option<Authentication>,
    /// Work in flight that several requests wait for.
    pub(crate) sharing: Sharing,
    /// Live subscriptions.
    pub(crate) hub: Hub,
    /// Where WebSockets live.
    pub(crate) reactors: ReactorHandles,
    /// Event streams that carry several operations.
    pub(crate) streams: Streams,
    /// How WebSocket connections behave.
    pub(crate) websocket: Arc<wire::websocket::Config>,
    /// How the GraphQL protocol on them behaves.
    pub(crate) protocol: Arc<wire::graphql_transport_ws::Config>,
    /// The page for browsers, unless it is turned off.
    pub(crate) page: Option<Page>,
    /// Open client connections.
    pub(crate) connections: Connections,
    /// How many groups each client has made.
    pub(crate) group_shares: Arc<GroupShares>,
    /// Bytes of texts and variables that live subscriptions keep.
    pub(crate) kept_operation_bytes: Arc<AtomicUsize>,
    /// What waits for slow clients.
    pub(crate) queue_total: Arc<QueueTotal>,
    /// Responses that clients have not read yet.
    pub(crate) response_bytes: Arc<ByteBudget>,
    /// Reads large requests.
    pub(crate) offload: Offload,
    /// Compresses answers.
    pub(crate) compressor: Compressor,
    /// Counters.
    pub(crate) metrics: Metrics,
    /// True when the router is about to end and is not ready any more, though it serves as before.
    pub(crate) is_leaving: AtomicBool,
    /// Becomes true once, when the router ends.
    pub(crate) shutdown: watch::Receiver<bool>,
    /// Who is asked to leave when, then.
    pub(crate) farewell: Farewell,
}

impl Router {
    /// The graph that serves now.
    pub(crate) fn current(&self) -> Arc<Loaded> {
        self.loaded.load_full()
    }

    /// Who has sent a request with these headers; whoever it is, if nobody is asked.
    ///
    /// # Errors
    /// They have a token that is wrong.
    pub(crate) async fn identify(&self, headers: &HeaderMap) -> Result<Identity, Refusal> {
        match &self.authentication {
            Some(authentication) => authentication.of_request(&self.metrics, headers).await,
            None => Ok(Identity::ANONYMOUS),
        }
    }

    /// May they ask anything at all?
    ///
    /// # Errors
    /// There has to be a token, and there is none.
    pub(crate) fn admit(&self, identity: &Identity) -> Result<(), Refusal> {
        match &self.authentication {
            Some(authentication) => authentication.admit(&self.metrics, identity),
            None => Ok(()),
        }
    }

    /// Identifies the client of a `connection_init`, as far as that needs no verification. `before` is the identity of
    /// the handshake. Without authentication every client is anonymous.
    pub(crate) fn on_connection_init(
        &self,
        token: Result<Option<PresentedToken>, Refusal>,
        before: &Identity,
    ) -> Introduced {
        match &self.authentication {
            Some(it) => it.on_connection_init(&self.metrics, token, before),
            None => Introduced::Known(Ok(InitOutcome::default())),
        }
    }

    /// Verifies the token of a `connection_init`.
    ///
    /// # Errors
    /// The token is not valid, or cannot be verified at present.
    pub(crate) async fn verify_presented(
        &self,
        token: &PresentedToken,
    ) -> Result<InitOutcome, Refusal> {
        match &self.authentication {
            Some(authentication) => authentication.verify_presented(&self.metrics, token).await,
            None => Ok(InitOutcome::default()),
        }
    }

    /// Puts another graph into service.
    pub(crate) fn serve(&self, loaded: Arc<Loaded>) {
        let number = loaded.generation.number;
        self.loaded.store(loaded);
        self.generation.send_replace(number);
    }

    /// Returns when one connection is to ask its client to leave.
    pub(crate) async fn time_to_leave(&self) {
        self.farewell.turn(self.shutdown.clone()).await;
    }

    /// The graph that serves, as soon as it is a later one than `number`.
    pub(crate) async fn graph_after(&self, number: u64) -> Arc<Loaded> {
        // The sender is ours.
        let _ = self.generation.subscribe().wait_for(|generation| *generation > number).await;
        self.current()
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("graph", &self.current().generation).finish_non_exhaustive()
    }
}
