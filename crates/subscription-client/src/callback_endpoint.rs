//! The process-wide endpoint for callbacks: the table of subscriptions by id, and the way from each to its stream. The
//! listener passes it requests; HTTP itself is in `frontend::callback`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use aws_lc_rs::rand;
use bytes::Bytes;
use telemetry::LogLimit;
use tokio::sync::{Notify, oneshot};
use wire::upstream::callback::{
    CallbackAction, CallbackEntropy, CallbackId, CallbackRejection, CallbackRequest,
};
use wire::upstream::{CallbackEvent, CallbackSettings, CallbackTable, OperationError};

use crate::operation_output::OperationOutput;
use crate::stats::add;

telemetry::counters! {
    /// Counts since the start, of all subgraphs.
    pub struct CallbackStats;
    /// The metrics of these counters.
    pub const CALLBACK_COUNTERS;
    {
        counter received = "starling_subgraph_callback_requests":
            "Requests to the endpoint for callbacks of subgraphs";
        counter rejected = "starling_subgraph_callback_requests_rejected":
            "Requests to the endpoint for callbacks of subgraphs that were refused";
    }
}

/// The endpoint for callbacks. It outlives the graph, because subgraphs send to it during a reload.
pub struct CallbackEndpoint {
    public_url: Box<str>,
    settings: CallbackSettings,
    state: Mutex<EndpointState>,
    /// Notified when a deadline may have moved forward.
    deadline_moved: Arc<Notify>,
    stats: CallbackStats,
    rejection_log: LogLimit,
}

struct EndpointState {
    table: CallbackTable,
    subscriptions: HashMap<CallbackId, CallbackSubscription>,
    /// True once the task of the deadlines runs.
    has_timer: bool,
}

/// A subscription in progress.
struct CallbackSubscription {
    output: Arc<OperationOutput>,
    end: oneshot::Sender<Result<(), OperationError>>,
}

/// An event on its way to its subscription.
enum Delivery {
    Result(Arc<OperationOutput>, Bytes),
    End(oneshot::Sender<Result<(), OperationError>>, Result<(), OperationError>),
}

/// The registration of a subscription at the endpoint. Dropping it removes the subscription, and the subgraph learns of
/// that by the status 404 of its next callback.
pub(crate) struct RegisteredCallback {
    endpoint: Arc<CallbackEndpoint>,
    id: CallbackId,
    /// The value of `extensions.subscription` of the request. It contains a secret.
    pub(crate) extension: Bytes,
    /// Resolves when the subgraph has ended the subscription, or is silent.
    pub(crate) end: oneshot::Receiver<Result<(), OperationError>>,
}

impl CallbackEndpoint {
    /// Creates an endpoint without subscriptions. `public_url` is the URL under which subgraphs reach it.
    pub fn new(public_url: &str, settings: CallbackSettings) -> Arc<Self> {
        let table = CallbackTable::new(settings);
        let state = EndpointState { table, subscriptions: HashMap::new(), has_timer: false };
        Arc::new(Self {
            public_url: public_url.into(),
            settings,
            state: Mutex::new(state),
            deadline_moved: Arc::default(),
            stats: CallbackStats::default(),
            rejection_log: LogLimit::new(),
        })
    }

    /// Returns the maximum size of a request in bytes.
    pub fn body_bytes_max(&self) -> usize {
        self.settings.body_bytes_max
    }

    /// Returns the counters.
    pub fn stats(&self) -> &CallbackStats {
        &self.stats
    }

    /// Checks that a subscription is in progress, before the body of a request to it is read. `path_id` is the last
    /// segment of the path.
    ///
    /// # Errors
    /// The subscription is not in progress.
    pub fn check_id(&self, path_id: &str) -> Result<(), CallbackRejection> {
        let id = CallbackId::parse(path_id);
        if id.is_some_and(|id| self.lock().subscriptions.contains_key(&id)) {
            return Ok(());
        }
        add(&self.stats.received, 1);
        let rejection = CallbackRejection::UnknownSubscription;
        self.record_rejection(&rejection);
        Err(rejection)
    }

    /// Takes a request with its body, and passes its event on. Events of one subscription are in the order of its
    /// requests if each is sent after the response to the one before.
    ///
    /// # Errors
    /// See [`CallbackRejection`].
    // hot path: once for each result of a subgraph.
    pub fn receive(
        &self,
        request: CallbackRequest<'_>,
    ) -> Result<CallbackAction, CallbackRejection> {
        add(&self.stats.received, 1);
        let id = CallbackId::parse(request.path_id);
        // The requests of all subgraphs need the lock, so the body is parsed before it is taken.
        let parsed = request.parse(&self.settings);
        let mut state = self.lock();
        let deadline = state.table.poll_timeout();
        let known = id.and_then(|id| state.subscriptions.get(&id));
        let known = known.map(|it| Arc::clone(it.output.endpoint()));
        let received = parsed.and_then(|it| state.table.receive_parsed(Instant::now(), it));
        let delivery = state.next_delivery();
        if state.table.poll_timeout() != deadline {
            self.deadline_moved.notify_one();
        }
        drop(state);
        if let Some(delivery) = delivery {
            delivery.deliver();
        }
        if let Err(rejection) = &received {
            if let Some(endpoint) = known {
                add(&endpoint.stats.rejected, 1);
            }
            self.record_rejection(rejection);
        }
        received
    }

    /// Counts a request that was refused before its content was read, such as one with a wrong method.
    pub fn count_refused_request(&self) {
        add(&self.stats.received, 1);
        add(&self.stats.rejected, 1);
    }

    fn record_rejection(&self, rejection: &CallbackRejection) {
        add(&self.stats.rejected, 1);
        if let Some(suppressed) = self.rejection_log.admit(Instant::now()) {
            tracing::warn!(%rejection, suppressed, "a callback of a subgraph was refused");
        }
    }

    /// Adds a subscription, before the request that begins it is sent. Must be called on a runtime.
    pub(crate) fn register(
        self: &Arc<Self>,
        output: &Arc<OperationOutput>,
    ) -> Result<RegisteredCallback, String> {
        let entropy = random_entropy()?;
        let (sender, end) = oneshot::channel();
        let mut state = self.lock();
        let registered = state.table.register(Instant::now(), entropy);
        let registered = registered.map_err(|error| error.to_string())?;
        let subscription = CallbackSubscription { output: Arc::clone(output), end: sender };
        state.subscriptions.insert(registered.id, subscription);
        if !std::mem::replace(&mut state.has_timer, true) {
            tokio::spawn(watch_deadlines(Arc::downgrade(self), Arc::clone(&self.deadline_moved)));
        }
        drop(state);
        self.deadline_moved.notify_one();
        let extension = registered.extension(&self.public_url);
        Ok(RegisteredCallback { endpoint: Arc::clone(self), id: registered.id, extension, end })
    }

    /// Returns a value of `extensions.subscription` for a subscription that is not in progress, so that every callback
    /// to it is refused.
    pub(crate) fn unused_extension(&self) -> Result<Bytes, String> {
        let entropy = random_entropy()?;
        let mut state = self.lock();
        let registered = state.table.register(Instant::now(), entropy);
        let registered = registered.map_err(|error| error.to_string())?;
        state.table.remove(registered.id);
        Ok(registered.extension(&self.public_url))
    }

    fn lock(&self) -> MutexGuard<'_, EndpointState> {
        // The table is consistent after each statement that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EndpointState {
    /// Returns the delivery of the next event of the table. `None` once there is no event.
    fn next_delivery(&mut self) -> Option<Delivery> {
        while let Some(event) = self.table.poll_event() {
            let delivery = match event {
                CallbackEvent::Next { id, payload } => self.prepare_result(id, payload),
                CallbackEvent::Complete { id } => self.prepare_end(id, Ok(())),
                CallbackEvent::Failed { id, error } => self.prepare_end(id, Err(error)),
            };
            if delivery.is_some() {
                return delivery;
            }
        }
        None
    }

    fn prepare_result(&mut self, id: CallbackId, payload: Bytes) -> Option<Delivery> {
        let output = &self.subscriptions.get(&id)?.output;
        // The limit of the endpoint is that of the subgraph with the largest results.
        let limit = output.endpoint().settings.message_bytes_max;
        if payload.len() > limit {
            self.table.remove(id);
            return self.prepare_end(id, Err(OperationError::ResultTooBig { limit }));
        }
        Some(Delivery::Result(Arc::clone(output), payload))
    }

    /// Removes a subscription that is in the table no more.
    fn prepare_end(
        &mut self,
        id: CallbackId,
        result: Result<(), OperationError>,
    ) -> Option<Delivery> {
        let subscription = self.subscriptions.remove(&id)?;
        Some(Delivery::End(subscription.end, result))
    }
}

impl Delivery {
    /// Passes the event on. Called without the lock of the endpoint.
    fn deliver(self) {
        match self {
            Self::Result(output, payload) => output.send_result(payload),
            // The operation may have been dropped at this moment.
            Self::End(end, result) => _ = end.send(result),
        }
    }
}

/// Returns random bytes for one subscription.
fn random_entropy() -> Result<CallbackEntropy, String> {
    let mut entropy = CallbackEntropy { id: [0; 16], verifier: [0; 32] };
    let random = rand::fill(&mut entropy.id).and_then(|()| rand::fill(&mut entropy.verifier));
    random.map_err(|_| "the system has no random numbers".to_owned())?;
    Ok(entropy)
}

/// Fails the subscriptions of silent subgraphs, until the endpoint is dropped.
async fn watch_deadlines(endpoint: Weak<CallbackEndpoint>, deadline_moved: Arc<Notify>) {
    loop {
        let Some(strong) = endpoint.upgrade() else { return };
        let deadline = strong.lock().table.poll_timeout();
        drop(strong);
        let passed = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = deadline_moved.notified() => continue,
            () = passed => {}
        }
        let Some(strong) = endpoint.upgrade() else { return };
        let mut state = strong.lock();
        state.table.handle_timeout(Instant::now());
        let deliveries: Vec<_> = std::iter::from_fn(|| state.next_delivery()).collect();
        drop(state);
        deliveries.into_iter().for_each(Delivery::deliver);
    }
}

impl Drop for CallbackEndpoint {
    fn drop(&mut self) {
        // The task of the deadlines ends.
        self.deadline_moved.notify_one();
    }
}

impl Drop for RegisteredCallback {
    fn drop(&mut self) {
        let mut state = self.endpoint.lock();
        state.table.remove(self.id);
        state.subscriptions.remove(&self.id);
    }
}

impl std::fmt::Debug for CallbackEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The table contains secrets.
        f.debug_struct("CallbackEndpoint")
            .field("public_url", &self.public_url)
            .finish_non_exhaustive()
    }
}
