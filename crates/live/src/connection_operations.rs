//! The operations in progress on one connection of HTTP: started beside the connection, ended with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clients::authentication::{Identity, expired_error};
use clients::kept_operations::{ExistingAmounts, KeptTotal};
use execute::{ClientKey, GraphqlError};
use hub::Subscriber;
use serving::prepared_request::PreparedRequest;
use serving::subscription_count::SubscriptionCount;
use tokio::task::AbortHandle;

use super::client_work::{ClientWork, StartedOperation};
use super::end_reasons::{CLIENT_COMPLETED, EXPIRED, broken_off};
use super::operation_runner::{LiveSubscription, OperationRunner};
use super::outlet::{ConnectionOutlet, Delivery};
use crate::access_records::{LoggedClient, OpeningCounts, SubscriptionRecord};
use crate::metrics::{OpenGauge, Transport};

/// The operations of one connection and what they need to run. Clones share one list.
#[derive(Clone)]
pub(crate) struct ConnectionOperations {
    runner: Arc<OperationRunner>,
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
    /// The task that prepares the operation, joins its group, or executes it (queries), and the counts of a
    /// subscription for the access log before its record begins.
    Task(AbortHandle, OpeningCounts),
    /// A live subscription, which unsubscribes when dropped. The hub is notified through a queue, so nothing calls back
    /// into this list while it is locked.
    Subscription(
        #[expect(dead_code, reason = "held for its drop")] LiveSubscription,
        #[expect(dead_code, reason = "held for its drop")] OpenGauge,
        #[expect(dead_code, reason = "held for its drop")] Option<AbortOnDrop>,
        Option<Box<SubscriptionRecord>>,
    ),
}

impl ListedOperation {
    /// Notes the reason for which a subscription ends, for the access log.
    fn note_end(&mut self, reason: &'static str) {
        match self {
            Self::Task(_, counts) => counts.note_end(reason),
            Self::Subscription(.., Some(record)) => record.set_reason(reason),
            Self::Subscription(.., None) => {}
        }
    }
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
        runner: &Arc<OperationRunner>,
        outlet: &Arc<ConnectionOutlet>,
        transport: Transport,
        (client, kept): (ClientKey, Arc<KeptTotal>),
    ) -> Self {
        let account = runner.open_account(client);
        // There is only one operation, so the connection is never held.
        let work = ClientWork::new(account, Box::new(|| {}));
        Self::with_list(runner, outlet, transport, (OperationList::default(), work, kept))
    }

    /// Makes a handle that starts operations in an existing list.
    pub(crate) fn with_list(
        runner: &Arc<OperationRunner>,
        outlet: &Arc<ConnectionOutlet>,
        transport: Transport,
        (operations, work, kept): (OperationList, Arc<ClientWork>, Arc<KeptTotal>),
    ) -> Self {
        let (runner, outlet) = (Arc::clone(runner), Arc::clone(outlet));
        Self { runner, outlet, transport, operations, work, kept }
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

    async fn run_operation(
        &self,
        number: u32,
        mut ready: PreparedRequest,
        started: StartedOperation,
    ) {
        if ready.prepared.has_stream() {
            return self.subscribe(number, ready).await;
        }
        // Without a permit the connection is about to be closed, since its client reads nothing.
        let permit = match started.permit_for(&mut ready, self.runner.serving.time_max).await {
            Ok(Some(permit)) => permit,
            Ok(None) => return,
            Err(error) => return self.on_failed(number, vec![error]),
        };
        match self.runner.run(ready, None).await {
            Ok(payload) => {
                let payload = started.charge(payload);
                self.remove(number);
                self.outlet.push_response(number, payload);
                self.outlet.push_end(Delivery::Complete { operation: number });
            }
            Err(errors) => self.on_failed(number, errors),
        }
        drop(permit);
    }

    async fn subscribe(&self, number: u32, mut ready: PreparedRequest) {
        let identity = ready.identity.clone();
        let outlet = Arc::clone(&self.outlet) as Arc<dyn hub::Outlet>;
        // The outlet has one connection only, so its number is arbitrary.
        let member = Subscriber { connection: 0, operation: number };
        let held = ExistingAmounts::Total(Arc::clone(&self.kept));
        let logged = self.runner.logged_operation(&ready);
        let client = ready.logged.take().map(LoggedClient::Request);
        let count = SubscriptionCount::begin(&self.runner.serving, ready.figures);
        match self.runner.subscribe(ready, outlet, (member, self.transport), held).await {
            Ok(subscribed) => {
                count.count_opened();
                let open = self.runner.metrics.open_subscription(self.transport);
                let mut record = self.runner.begin_subscription(self.transport, logged, client);
                let expiry = self.end_on_expiry(number, identity);
                let mut operations = self.operations.lock();
                // Without an entry the client has gone: the subscription is dropped.
                let Some(entry) = operations.get_mut(&number) else { return };
                let counts = match entry {
                    ListedOperation::Task(_, counts) => *counts,
                    ListedOperation::Subscription(..) => OpeningCounts::default(),
                };
                if let Some(record) = &mut record {
                    record.add_counts(counts);
                }
                if counts.has_ended() {
                    operations.remove(&number);
                } else {
                    *entry = ListedOperation::Subscription(subscribed, open, expiry, record);
                }
            }
            Err(error) => {
                count.count_failed(&error);
                self.on_failed(number, vec![error]);
            }
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
            this.runner.authentication.count_expired();
            this.note_end(number, EXPIRED);
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

    /// Notes the reason for which a subscription ends, for the access log.
    pub(crate) fn note_end(&self, number: u32, reason: &'static str) {
        self.operations.note_end(number, reason);
    }

    /// Counts a result that was sent to the client, for the access log.
    pub(crate) fn count_event(&self, number: u32) {
        if self.runner.access_log.is_some() {
            self.operations.count_event(number);
        }
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
        self.lock().insert(number, ListedOperation::Task(task, OpeningCounts::default()));
    }

    /// Removes an operation that has ended by itself.
    pub(crate) fn remove(&self, number: u32) {
        let over = self.lock().remove(&number);
        drop(over);
    }

    /// Removes an operation with an end that was delivered. If the hub has ended a subscription before its task knows
    /// that it has begun, the task removes it.
    pub(crate) fn remove_delivered(&self, number: u32) {
        let is_opening = match self.lock().get(&number) {
            Some(ListedOperation::Task(task, counts)) => counts.has_ended() && !task.is_finished(),
            Some(ListedOperation::Subscription(..)) | None => false,
        };
        if !is_opening {
            self.remove(number);
        }
    }

    /// Stops an operation that the client has completed.
    pub(crate) fn stop(&self, number: u32) {
        let stopped = self.lock().remove(&number);
        match stopped {
            Some(ListedOperation::Task(task, _)) => task.abort(),
            Some(ListedOperation::Subscription(.., Some(mut record))) => {
                record.set_reason(CLIENT_COMPLETED);
            }
            Some(ListedOperation::Subscription(.., None)) | None => {}
        }
    }

    /// Counts a result of a subscription, for the access log.
    pub(crate) fn count_event(&self, number: u32) {
        match self.lock().get_mut(&number) {
            Some(ListedOperation::Task(_, counts)) => counts.count_event(),
            Some(ListedOperation::Subscription(.., Some(record))) => record.count_event(),
            Some(ListedOperation::Subscription(.., None)) | None => {}
        }
    }

    /// Notes the reason for which a subscription ends, for the access log.
    pub(crate) fn note_end(&self, number: u32, reason: &'static str) {
        if let Some(operation) = self.lock().get_mut(&number) {
            operation.note_end(reason);
        }
    }

    /// Notes the reason for which all subscriptions end, for the access log.
    pub(crate) fn note_all_ends(&self, reason: &'static str) {
        self.lock().values_mut().for_each(|operation| operation.note_end(reason));
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
            if let ListedOperation::Task(task, _) = operation {
                task.abort();
            }
        }
    }

    /// Locks the list. No code of the application runs under this lock, so a poisoned lock holds a valid list.
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, ListedOperation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
