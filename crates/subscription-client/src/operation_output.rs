//! The stream of one operation by HTTP, as its transport fills it: bounded, counted, and ended once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use events::{EventSender, EventStream, StreamEnd, SubgraphSubscription};
use futures_util::future::{BoxFuture, FutureExt};
use wire::upstream::OperationError;

use crate::endpoint::SubscriptionEndpoint;
use crate::error_response::end_with_errors;
use crate::result_queue;
use crate::stats::{add, subtract};

/// The sending half of one operation's stream.
pub(crate) struct OperationOutput {
    endpoint: Arc<SubscriptionEndpoint>,
    topic: Arc<str>,
    /// `None` once the stream has ended. Callbacks arrive on other threads than the operation's task.
    sender: Mutex<Option<EventSender>>,
    /// True if a result has arrived since [`OperationOutput::take_has_result`].
    has_result: AtomicBool,
}

impl OperationOutput {
    /// Makes the stream of an operation.
    pub(crate) fn new(
        endpoint: &Arc<SubscriptionEndpoint>,
        wanted: &SubgraphSubscription,
    ) -> (Arc<Self>, EventStream) {
        let (sender, stream) = result_queue::new();
        add(&endpoint.stats.operations, 1);
        let output = Self {
            endpoint: Arc::clone(endpoint),
            topic: Arc::from(&*wanted.field),
            sender: Mutex::new(Some(sender)),
            has_result: AtomicBool::new(false),
        };
        (Arc::new(output), stream)
    }

    /// Returns the server of the operation.
    pub(crate) fn endpoint(&self) -> &Arc<SubscriptionEndpoint> {
        &self.endpoint
    }

    /// Passes on a result. If the queue is full, the result is dropped, and the stream gets a gap.
    // hot path: once for each result of the subgraph.
    pub(crate) fn send_result(&self, payload: Bytes) {
        add(&self.endpoint.stats.results, 1);
        self.has_result.store(true, Ordering::Relaxed);
        let Some(sender) = &mut *self.lock() else { return };
        if !result_queue::offer(sender, &self.topic, payload) {
            add(&self.endpoint.stats.dropped, 1);
        }
    }

    /// Returns whether a result has arrived since the last call.
    pub(crate) fn take_has_result(&self) -> bool {
        self.has_result.swap(false, Ordering::Relaxed)
    }

    /// Announces that results may be missing here.
    pub(crate) fn announce_gap(&self) {
        if let Some(sender) = &mut *self.lock() {
            sender.announce_gap();
        }
    }

    /// Ends the stream as the subgraph has ended the operation. Its errors become a result.
    pub(crate) fn end(&self, result: Result<(), OperationError>) {
        match result {
            Ok(()) => self.end_with(StreamEnd::Complete),
            Err(OperationError::Errors(errors)) => {
                add(&self.endpoint.stats.failed, 1);
                self.endpoint.log_errors(&self.topic, &errors);
                if let Some(sender) = self.lock().take() {
                    end_with_errors(sender, Arc::clone(&self.topic), &errors);
                }
            }
            Err(error) => self.fail_with(&error.to_string(), &error.without_subgraph_text()),
        }
    }

    /// Ends the stream with an error that has no text of the subgraph.
    pub(crate) fn fail(&self, reason: &str) {
        self.fail_with(reason, reason);
    }

    /// Ends the stream with an error. The warning has `shown` in its place.
    fn fail_with(&self, reason: &str, shown: &str) {
        add(&self.endpoint.stats.failed, 1);
        self.endpoint.log_failure(&self.topic, reason, shown);
        self.end_with(StreamEnd::Failed(reason.to_owned()));
    }

    /// Resolves when the stream was dropped or has ended.
    pub(crate) fn closed(&self) -> BoxFuture<'static, ()> {
        match &*self.lock() {
            Some(sender) => sender.closed().boxed(),
            None => std::future::ready(()).boxed(),
        }
    }

    fn end_with(&self, end: StreamEnd) {
        if let Some(sender) = self.lock().take() {
            sender.end(end);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<EventSender>> {
        // The sender is consistent after each statement that could panic.
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OperationOutput {
    fn drop(&mut self) {
        subtract(&self.endpoint.stats.operations, 1);
    }
}
