//! The operations in progress on one connection of HTTP: started beside the connection, ended with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use execute::{ClientKey, ErrorCode, GraphqlError};
use hub::{SubscribeRequest, Subscriber, Subscription};
use plan::OperationKind;
use tokio::task::AbortHandle;

use super::client_work::{ClientWork, StartedOperation};
use super::end_reasons::broken_off;
use super::kept_operations::{ExistingAmounts, KeptOperation, KeptShare, KeptTotal};
use super::outlet::{ConnectionOutlet, Delivery};
use crate::authentication::{EXPIRED, Identity, expired_error};
use crate::byte_budget::ByteAccount;
use crate::live::metrics::{OpenGauge, Transport};
use crate::operation;
use crate::prepared_request::PreparedRequest;
use crate::router::Router;
use crate::subscription_migration;

/// The operations of one connection and what they need to run. Clones share one list.
#[derive(Clone)]
pub(crate) struct ConnectionOperations {
    router: Arc<Router>,
    outlet: Arc<ConnectionOutlet>,
    transport: Transport,
    operations: OperationList,
    work: Arc<ClientWork>,
    kept: Arc<KeptTotal>,
}

/// A list of operations in progress, usable on any thread. Clones share one list.
#[derive(Clone, Default)]
pub(crate) struct OperationList(Arc<Mutex<HashMap<u32, ListedOperation>>>);

enum ListedOperation {
    /// The task that prepares the operation, joins its group, or executes it (queries).
    Task(AbortHandle),
    /// A live subscription, which unsubscribes when dropped. The hub is notified through a queue, so nothing calls back
    /// into this list while it is locked.
    #[expect(dead_code, reason = "held for its drop")]
    Subscription(LiveSubscription, OpenGauge, Option<AbortOnDrop>),
}

/// A task that is aborted when its owner is dropped.
#[derive(Debug)]
pub(super) struct AbortOnDrop(pub(super) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ConnectionOperations {
    /// Makes an empty list for a connection. Its subscriptions count in `kept`.
    pub(crate) fn new(
        router: &Arc<Router>,
        outlet: &Arc<ConnectionOutlet>,
        transport: Transport,
        (client, kept): (ClientKey, Arc<KeptTotal>),
    ) -> Self {
        let account = response_account(router, client);
        // There is only one operation, so the connection is never held.
        let work = ClientWork::new(account, Box::new(|| {}));
        Self::with_list(router, outlet, transport, (OperationList::default(), work, kept))
    }

    /// Makes a handle that starts operations in an existing list.
    pub(crate) fn with_list(
        router: &Arc<Router>,
        outlet: &Arc<ConnectionOutlet>,
        transport: Transport,
        (operations, work, kept): (OperationList, Arc<ClientWork>, Arc<KeptTotal>),
    ) -> Self {
        let (router, outlet) = (Arc::clone(router), Arc::clone(outlet));
        Self { router, outlet, transport, operations, work, kept }
    }

    /// Starts a prepared operation.
    pub(crate) fn start_prepared(&self, number: u32, ready: PreparedRequest) {
        let (this, started) = (self.clone(), self.work.start_operation());
        self.spawn(number, async move { this.run_operation(number, ready, started).await });
    }

    fn spawn(&self, number: u32, task: impl Future<Output = ()> + 'static) {
        let guard = PanicGuard { operations: self.clone(), number };
        // The task does not run before this function has returned: both run on one thread.
        let task = tokio::task::spawn_local(async move {
            let _guard = guard;
            task.await;
        });
        self.operations.insert(number, task.abort_handle());
    }

    async fn run_operation(&self, number: u32, ready: PreparedRequest, started: StartedOperation) {
        if ready.prepared.kind == OperationKind::Subscription {
            return self.subscribe(number, ready).await;
        }
        // Without a permit the connection is about to be closed, since its client reads nothing.
        let Some(_permit) = started.permit().await else { return };
        match operation::run(&self.router, ready, None).await {
            Ok(payload) => {
                let payload = started.charge(payload);
                self.remove(number);
                self.outlet.push_response(number, payload);
                self.outlet.push_end(Delivery::Complete { operation: number });
            }
            Err(errors) => self.on_failed(number, errors),
        }
    }

    async fn subscribe(&self, number: u32, ready: PreparedRequest) {
        let identity = ready.identity.clone();
        let outlet = Arc::clone(&self.outlet) as Arc<dyn hub::Outlet>;
        // The outlet has one connection only, so its number is arbitrary.
        let member = Subscriber { connection: 0, operation: number };
        let held = ExistingAmounts::Total(Arc::clone(&self.kept));
        match subscribe(&self.router, ready, outlet, member, held).await {
            Ok(subscribed) => {
                let open = self.router.metrics.subscriptions.open_subscription(self.transport);
                let expiry = self.end_on_expiry(number, identity);
                let mut operations = self.operations.lock();
                // Without an entry the client has gone, or the operation has ended: the subscription is dropped.
                if let Some(entry) = operations.get_mut(&number) {
                    *entry = ListedOperation::Subscription(subscribed, open, expiry);
                }
            }
            Err(error) => self.on_failed(number, vec![error]),
        }
    }

    /// Starts a task that ends a subscription when the token expires that it was started with. Anonymous clients need
    /// none.
    fn end_on_expiry(&self, number: u32, identity: Identity) -> Option<AbortOnDrop> {
        if identity.is_anonymous() {
            return None;
        }
        let this = self.clone();
        let task = tokio::task::spawn_local(async move {
            identity.expiry().await;
            this.router.metrics.authentication.count_refusal(EXPIRED);
            // Removal aborts this task, so it comes last.
            this.outlet
                .push_end(Delivery::Failed { operation: number, errors: vec![expired_error()] });
            this.remove(number);
        });
        Some(AbortOnDrop(task.abort_handle()))
    }

    fn on_failed(&self, number: u32, errors: Vec<GraphqlError>) {
        self.remove(number);
        self.outlet.push_end(Delivery::Failed { operation: number, errors });
    }

    /// Removes an operation that has ended by itself.
    pub(crate) fn remove(&self, number: u32) {
        self.operations.remove(number);
    }

    /// Stops all operations at the end of the connection.
    pub(crate) fn stop_all(&self) {
        self.operations.stop_all();
    }

    /// Returns the record of the connection's operations and unread responses.
    pub(crate) fn work(&self) -> &Arc<ClientWork> {
        &self.work
    }
}

impl OperationList {
    /// Adds an operation that a task runs.
    pub(super) fn insert(&self, number: u32, task: AbortHandle) {
        self.lock().insert(number, ListedOperation::Task(task));
    }

    /// Removes an operation that has ended by itself.
    pub(crate) fn remove(&self, number: u32) {
        let over = self.lock().remove(&number);
        drop(over);
    }

    /// Stops an operation that the client has completed.
    pub(crate) fn stop(&self, number: u32) {
        let stopped = self.lock().remove(&number);
        if let Some(ListedOperation::Task(task)) = stopped {
            task.abort();
        }
    }

    /// True if no operation is in progress.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Stops all operations at the end of the connection.
    pub(crate) fn stop_all(&self) {
        let stopped = std::mem::take(&mut *self.lock());
        for operation in stopped.into_values() {
            if let ListedOperation::Task(task) = operation {
                task.abort();
            }
        }
    }

    /// Locks the list. No code of the application runs under this lock, so a poisoned lock holds a valid list.
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, ListedOperation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the account of the responses that a connection of that client has not read.
pub(super) fn response_account(router: &Router, client: ClientKey) -> Arc<ByteAccount> {
    router.response_bytes.open(client, router.config.http.response_queue_bytes)
}

/// A live subscription with the memory that is counted for it.
pub(super) struct LiveSubscription {
    pub(super) subscription: Subscription,
    pub(super) kept: KeptOperation,
    #[expect(dead_code, reason = "held for its drop")]
    pub(super) share: Option<KeptShare>,
}

/// Returns the bytes of text and variables that a live subscription keeps.
fn kept_bytes(ready: &PreparedRequest) -> usize {
    let values = ready.variables.values.iter().flatten();
    ready.prepared.query.len()
        + ready.variables_text.len()
        + values.map(|value| value.len()).sum::<usize>()
}

/// Joins the group of a prepared subscription. `held` is what the live subscriptions of the connection keep already.
///
/// # Errors
/// Those of [`hub::Hub::subscribe`], and if the operation's root field has no source in this graph.
pub(super) async fn subscribe(
    router: &Router,
    ready: PreparedRequest,
    outlet: Arc<dyn hub::Outlet>,
    member: Subscriber,
    held: ExistingAmounts,
) -> Result<LiveSubscription, GraphqlError> {
    let started = Instant::now();
    let mut kept = KeptOperation::new(&router.kept_operation_bytes, kept_bytes(&ready));
    let subscribed = join_group(router, ready, outlet, member, (&mut kept, held)).await;
    router.metrics.operations.count(
        OperationKind::Subscription,
        subscribed.is_err(),
        started.elapsed(),
    );
    subscribed.map(|(subscription, share)| LiveSubscription { subscription, kept, share })
}

/// Returns the key under which the groups of a client count together: its identity or, if it is anonymous, the
/// connection, since many clients may share the address of one proxy. All streams of an HTTP/2 connection are one
/// client.
fn group_share_key(
    identity: &Identity,
    outlet: &Arc<dyn hub::Outlet>,
    member: Subscriber,
    held: &ExistingAmounts,
) -> ClientKey {
    identity.client_key().unwrap_or_else(|| match held {
        ExistingAmounts::Total(connection) => {
            ClientKey::of_identity(&connection.id().to_ne_bytes())
        }
        // The outlet of a reactor lives as long as the process, so its address is unique.
        ExistingAmounts::Amounts(_) => {
            let outlet = Arc::as_ptr(outlet).addr() as u64;
            let connection = [outlet, member.connection].map(u64::to_ne_bytes);
            ClientKey::of_identity(connection.as_flattened())
        }
    })
}

async fn join_group(
    router: &Router,
    mut ready: PreparedRequest,
    outlet: Arc<dyn hub::Outlet>,
    member: Subscriber,
    (kept, held): (&mut KeptOperation, ExistingAmounts),
) -> Result<(Subscription, Option<KeptShare>), GraphqlError> {
    let client = group_share_key(&ready.identity, &outlet, member, &held);
    let resume = ready.resume.take();
    let claims = subscription_migration::claims_of(&ready);
    let operation =
        subscription_migration::live_operation(ready, claims, router.config.limits.time)?;
    kept.set_topics(operation.source.topics().len());
    let kept_share = kept.check(&router.config.subscriptions, &held);
    let kept_share =
        kept_share.inspect_err(|error| router.metrics.operations.count_refusal(error.code))?;
    let most = router.config.subscriptions.max_groups_per_client as usize;
    let share = router.group_shares.enter(client, &operation, most);
    let share = share.inspect_err(|error| router.metrics.operations.count_refusal(error.code))?;
    let mut operation = subscription_migration::holding(operation, Some(Arc::new(share)));
    loop {
        let generation = operation.generation;
        let request = SubscribeRequest {
            operation: operation.clone(),
            outlet: Arc::clone(&outlet),
            member,
            resume: resume.clone(),
        };
        match router.hub.subscribe(request).await {
            Err(error) if error.code == ErrorCode::GraphReloaded => {
                // The graph is being replaced. The next one serves in a moment.
                let next = router.wait_for_graph_after(generation);
                let next = tokio::time::timeout(router.config.limits.time, next).await;
                operation =
                    subscription_migration::renew(&next.map_err(|_| error)?, &operation).await?;
            }
            subscribed => return subscribed.map(|subscription| (subscription, kept_share)),
        }
    }
}

/// Reports an operation that panicked to its client, which would wait for ever otherwise.
struct PanicGuard {
    operations: ConnectionOperations,
    number: u32,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.operations.remove(self.number);
            let errors = vec![broken_off()];
            self.operations.outlet.push_end(Delivery::Failed { operation: self.number, errors });
        }
    }
}
