//! The life of one operation by HTTP: begun once for the subscriber, then begun again after each loss.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use events::{Backoff, EventStream, SourceError, SubgraphSubscription};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::upstream::OperationError;

use crate::callback_endpoint::CallbackEndpoint;
use crate::callback_operation::CallbackOperation;
use crate::endpoint::SubscriptionEndpoint;
use crate::http_exchange::AttemptFailure;
use crate::http_stream::ResponseStream;
use crate::latest_headers::{AttemptHeaders, PartitionMember};
use crate::operation_outcome::{Begun, OperationOutcome};
use crate::operation_output::OperationOutput;
use crate::stats::add;

/// The maximum number of operations of one subgraph that are begun again at the same time, after a loss or because a
/// reload moves them. A server that was restarted has a queue for connections, in Node.js of 511, and would refuse
/// thousands at once.
pub(crate) const RESUMPTIONS_MAX: usize = 128;

/// The reason for refusing a subscription by callback.
pub(crate) const NO_CALLBACKS: &str =
    "the router has no endpoint for callbacks (`subscriptions.callback`)";

/// The operations of one subgraph that are transported by HTTP.
#[derive(Debug)]
pub(crate) struct HttpOperations {
    endpoint: Arc<SubscriptionEndpoint>,
    callbacks: Option<Arc<CallbackEndpoint>>,
    room: Arc<Semaphore>,
    resumptions: Arc<Semaphore>,
}

/// An operation in progress. Dropping it ends it.
enum OpenOperation {
    Response(Box<ResponseStream>),
    Callback(CallbackOperation),
}

/// The task of one operation.
struct OperationTask {
    wanted: Arc<SubgraphSubscription>,
    partition: PartitionMember,
    headers: Mutex<AttemptHeaders>,
    callbacks: Option<Arc<CallbackEndpoint>>,
    resumptions: Arc<Semaphore>,
    output: Arc<OperationOutput>,
    _permit: OwnedSemaphorePermit,
}

impl HttpOperations {
    pub(crate) fn new(
        endpoint: Arc<SubscriptionEndpoint>,
        callbacks: Option<Arc<CallbackEndpoint>>,
    ) -> Self {
        let room = endpoint.settings.operations_max.min(Semaphore::MAX_PERMITS);
        let room = Arc::new(Semaphore::new(room));
        let resumptions = Arc::new(Semaphore::new(RESUMPTIONS_MAX));
        Self { endpoint, callbacks, room, resumptions }
    }

    /// Returns the endpoint for callbacks.
    pub(crate) fn callbacks(&self) -> Option<&Arc<CallbackEndpoint>> {
        self.callbacks.as_ref()
    }

    /// Begins a subscription. Only one attempt is made, since the client can be told at once.
    pub(crate) async fn subscribe(
        &self,
        wanted: Arc<SubgraphSubscription>,
    ) -> Result<EventStream, SourceError> {
        let (task, stream) = self.new_task(wanted)?;
        let begun = task.begin().await;
        self.start(task, stream, begun)
    }

    /// Begins a subscription that moves here. If the first attempt fails for a reason that may pass, the others follow
    /// as after a loss.
    pub(crate) async fn resubscribe(
        &self,
        wanted: Arc<SubgraphSubscription>,
    ) -> Result<EventStream, SourceError> {
        let (task, stream) = self.new_task(wanted)?;
        // The semaphore is never closed.
        let turn = self.resumptions.acquire().await;
        let begun = task.begin().await;
        drop(turn);
        match begun {
            Err(AttemptFailure { reason, is_transient: true, .. }) => {
                tokio::spawn(task.run(Err(reason)));
                Ok(stream)
            }
            begun => self.start(task, stream, begun),
        }
    }

    /// Makes the task and the stream of an operation.
    fn new_task(
        &self,
        wanted: Arc<SubgraphSubscription>,
    ) -> Result<(OperationTask, EventStream), SourceError> {
        let endpoint = &self.endpoint;
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
            add(&endpoint.stats.overloaded, 1);
            let limit = endpoint.settings.operations_max;
            let reason = format!("there are {limit} operations, the most that are allowed");
            return Err(endpoint.refuse(&wanted.field, reason));
        };
        let (output, stream) = OperationOutput::new(endpoint, &wanted);
        let callbacks = self.callbacks.clone();
        let partition = endpoint.latest_headers.add(&wanted);
        let task = OperationTask {
            wanted,
            partition,
            headers: Mutex::default(),
            callbacks,
            resumptions: Arc::clone(&self.resumptions),
            output,
            _permit: permit,
        };
        Ok((task, stream))
    }

    /// Starts the task of an operation after its first attempt, with the result of that.
    fn start(
        &self,
        task: OperationTask,
        stream: EventStream,
        begun: Result<Begun<OpenOperation>, AttemptFailure>,
    ) -> Result<EventStream, SourceError> {
        match begun {
            Ok(Begun::Open(operation)) => {
                tokio::spawn(task.run(Ok(operation)));
            }
            Ok(Begun::Refused(errors)) => task.output.end(Err(OperationError::Errors(errors))),
            Err(AttemptFailure { reason, .. }) => {
                task.output.fail(&reason);
                return Err(self.endpoint.error(reason));
            }
        }
        Ok(stream)
    }
}

impl OperationTask {
    /// Makes an attempt, with the latest headers of the partition, or with those that worked if they were refused.
    async fn begin(&self) -> Result<Begun<OpenOperation>, AttemptFailure> {
        let headers = self.lock_headers().begin(&self.partition.headers());
        let wanted = SubgraphSubscription { headers, ..(*self.wanted).clone() };
        let begun = self.send(&wanted).await;
        match &begun {
            Ok(Begun::Open(_)) => self.lock_headers().note_accepted(),
            Ok(Begun::Refused(_)) => self.lock_headers().note_refused(false),
            Err(failure) if !failure.is_transient => self.lock_headers().note_refused(false),
            Err(_) => {}
        }
        begun
    }

    fn lock_headers(&self) -> MutexGuard<'_, AttemptHeaders> {
        // No code that could panic runs between two changes that belong together.
        self.headers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(
        &self,
        wanted: &SubgraphSubscription,
    ) -> Result<Begun<OpenOperation>, AttemptFailure> {
        let endpoint = self.output.endpoint();
        let begun = match (endpoint.settings.protocol.is_callback(), &self.callbacks) {
            (false, _) => {
                let begun = ResponseStream::begin(endpoint, wanted).await?;
                begun.map(|it| OpenOperation::Response(Box::new(it)))
            }
            (true, Some(callbacks)) => {
                let begun = CallbackOperation::begin(callbacks, wanted, &self.output).await?;
                begun.map(OpenOperation::Callback)
            }
            (true, None) => return Err(AttemptFailure::permanent(NO_CALLBACKS)),
        };
        if matches!(begun, Begun::Open(_)) {
            add(&endpoint.stats.started, 1);
        }
        Ok(begun)
    }

    /// Runs until the operation has ended, or its stream was dropped. `operation` is the operation in progress, or the
    /// reason why it has to begin again.
    async fn run(self, operation: Result<OpenOperation, String>) {
        tokio::select! {
            () = self.output.closed() => {}
            () = self.follow(operation) => {}
        }
    }

    async fn follow(&self, mut operation: Result<OpenOperation, String>) {
        let endpoint = self.output.endpoint();
        let reconnect = &endpoint.settings.reconnect;
        let (mut backoff, mut attempts) = (Backoff::new(reconnect.delays), 0);
        loop {
            let begun = Instant::now();
            // The operation is dropped with its connection before the next attempt.
            let outcome = match operation {
                Ok(OpenOperation::Response(response)) => Ok(response.run(&self.output).await),
                Ok(OpenOperation::Callback(callback)) => Ok(callback.wait_for_end().await),
                Err(reason) => Err(reason),
            };
            let mut reason = match outcome {
                Ok(OperationOutcome::Ended(result)) => return self.output.end(result),
                Ok(OperationOutcome::Lost(reason)) => {
                    add(&endpoint.stats.connections_lost, 1);
                    let is_stable = begun.elapsed() >= reconnect.stable_after();
                    if self.output.take_has_result() || is_stable {
                        backoff.reset();
                        attempts = 0;
                    }
                    reason
                }
                Err(reason) => reason,
            };
            operation = loop {
                if attempts >= reconnect.attempts {
                    return self.output.fail(&reason);
                }
                if let Some(suppressed) = endpoint.log_limit.admit(Instant::now()) {
                    let (source, address) =
                        (&*endpoint.source_name, endpoint.target.address_text());
                    tracing::warn!(
                        source,
                        address,
                        reason,
                        attempts,
                        suppressed,
                        "a subscription of a subgraph was lost; subscribing again"
                    );
                }
                attempts += 1;
                tokio::time::sleep(backoff.next_delay()).await;
                match self.begin_again().await {
                    Ok(Begun::Open(operation)) => break Ok(operation),
                    Ok(Begun::Refused(errors)) => {
                        return self.output.end(Err(OperationError::Errors(errors)));
                    }
                    Err(failure) if failure.is_transient => reason = failure.reason,
                    Err(failure) => return self.output.fail(&failure.reason),
                }
            };
        }
    }

    /// Makes another attempt. A refusal is transient if other headers may succeed.
    async fn begin_again(&self) -> Result<Begun<OpenOperation>, AttemptFailure> {
        let SubscriptionEndpoint { settings, stats, .. } = &**self.output.endpoint();
        // The semaphore is never closed.
        let _turn = self.resumptions.acquire().await;
        let is_callback = settings.protocol.is_callback();
        if is_callback {
            // The first result may come before the response.
            self.output.announce_gap();
        }
        let begun = self.begin().await;
        // A refused token may have been renewed since, or another client's token works.
        let may_succeed = || self.lock_headers().may_succeed(&self.partition.headers());
        let begun = match begun {
            Err(failure) if !failure.is_transient && may_succeed() => {
                return Err(AttemptFailure::transient(failure.reason));
            }
            Ok(Begun::Refused(_)) if may_succeed() => {
                let reason = "the subgraph refused the operation with errors";
                return Err(AttemptFailure::transient(reason.into()));
            }
            begun => begun?,
        };
        if matches!(begun, Begun::Open(_)) {
            if !is_callback {
                self.output.announce_gap();
            }
            add(&stats.resumed, 1);
        }
        Ok(begun)
    }
}
