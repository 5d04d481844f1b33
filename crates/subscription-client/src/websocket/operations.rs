//! The operations of one connection, over all of its attempts: those that wait for the connection, and those with a
//! stream. No I/O.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use events::{EventSender, EventStream, StreamEnd, SubgraphSubscription};
use execute::FetchError;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::oneshot;
use wire::upstream::{OperationError, OperationId, UpstreamSocket};

use super::command::{NewOperation, OperationReply};
use crate::endpoint::SubscriptionEndpoint;
use crate::error_response;
use crate::http_exchange::AttemptFailure;
use crate::request_extensions;
use crate::result_queue;
use crate::stats::{add, subtract};

/// The operations of one connection.
pub(super) struct Operations {
    endpoint: Arc<SubscriptionEndpoint>,
    slots: HashMap<u64, Slot>,
    by_id: HashMap<OperationId, u64>,
    next_slot: u64,
    /// The slots that have not begun on the present connection, in their order. Some may be gone.
    to_start: Vec<u64>,
    /// The slots that wait for their stream, in their order. Some may be gone.
    to_open: Vec<u64>,
    /// Resolves to the slots with streams that were dropped.
    dropped: FuturesUnordered<BoxFuture<'static, u64>>,
}

/// One operation.
struct Slot {
    wanted: Arc<SubgraphSubscription>,
    topic: Arc<str>,
    /// The operation on the present connection.
    id: Option<OperationId>,
    state: SlotState,
}

/// The loss of a connection, or of an attempt to open one.
#[derive(Clone, Copy)]
pub(super) struct ConnectionLoss<'a> {
    pub(super) reason: &'a str,
    /// True if the subgraph has acknowledged or refused the connection.
    pub(super) was_reached: bool,
    /// True if another attempt may succeed.
    pub(super) may_succeed: bool,
}

enum SlotState {
    /// A subscription on a connection that has not been acknowledged yet.
    Waiting(oneshot::Sender<Result<EventStream, AttemptFailure>>),
    /// A subscription.
    Live(EventSender),
    /// A query or mutation, with its result if that has arrived.
    Single(oneshot::Sender<Result<Bytes, FetchError>>, Option<Bytes>),
}

impl Operations {
    pub(super) fn new(endpoint: Arc<SubscriptionEndpoint>) -> Self {
        Self {
            endpoint,
            slots: HashMap::new(),
            by_id: HashMap::new(),
            next_slot: 0,
            to_start: Vec::new(),
            to_open: Vec::new(),
            dropped: FuturesUnordered::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// True if an operation has a stream, so that it must be begun again if the connection is lost.
    pub(super) fn has_live(&self) -> bool {
        self.slots.values().any(|slot| matches!(slot.state, SlotState::Live(_)))
    }

    /// Adds an operation. It is begun with [`Operations::start_all`].
    pub(super) fn add(&mut self, new: NewOperation) {
        let NewOperation { wanted, reply } = new;
        let (number, topic) = (self.next_slot, Arc::from(&*wanted.field));
        self.next_slot += 1;
        let state = match reply {
            OperationReply::Stream(reply) => {
                self.to_open.push(number);
                SlotState::Waiting(reply)
            }
            OperationReply::Open(sender) => {
                self.dropped.push(sender.closed().map(move |()| number).boxed());
                SlotState::Live(sender)
            }
            OperationReply::Single { result, waiting } => {
                self.dropped.push(waiting.map(move |_| number).boxed());
                SlotState::Single(result, None)
            }
        };
        self.slots.insert(number, Slot { wanted, topic, id: None, state });
        self.to_start.push(number);
        add(&self.endpoint.stats.operations, 1);
    }

    /// Begins the operations that have not begun on this connection.
    pub(super) fn start_all(&mut self, socket: &mut UpstreamSocket) {
        for number in std::mem::take(&mut self.to_start) {
            let Some(slot) = self.slots.get_mut(&number) else { continue };
            let request = request_extensions::with_trace(&slot.wanted);
            // The pool bounds the number of operations, and a connection that has ended is not used.
            let Ok(id) = socket.subscribe(request) else { continue };
            slot.id = Some(id);
            self.by_id.insert(id, number);
            add(&self.endpoint.stats.started, 1);
        }
    }

    /// Passes a stream to each operation that waits for the acknowledgement of the connection, and announces a gap to
    /// the others. Returns the number of operations that were removed because their subscribers had left.
    pub(super) fn on_ready(&mut self, socket: &mut UpstreamSocket) -> usize {
        for slot in self.slots.values_mut() {
            if let SlotState::Live(sender) = &mut slot.state {
                sender.announce_gap();
                add(&self.endpoint.stats.resumed, 1);
            }
        }
        self.open_waiting(socket)
    }

    /// Passes a stream to each operation that waits. Returns the number of those that were removed because their
    /// subscribers had left.
    pub(super) fn open_waiting(&mut self, socket: &mut UpstreamSocket) -> usize {
        let mut abandoned = Vec::new();
        for number in std::mem::take(&mut self.to_open) {
            let Some(slot) = self.slots.get_mut(&number) else { continue };
            let (sender, stream) = result_queue::new();
            let dropped = sender.closed();
            // Only slots that wait are in the list.
            let SlotState::Waiting(reply) =
                std::mem::replace(&mut slot.state, SlotState::Live(sender))
            else {
                continue;
            };
            match reply.send(Ok(stream)) {
                Ok(()) => self.dropped.push(dropped.map(move |()| number).boxed()),
                Err(_) => abandoned.push(number),
            }
        }
        for number in &abandoned {
            self.unsubscribe(*number, socket);
        }
        abandoned.len()
    }

    /// Waits for a stream that was dropped. For ever if there are no streams.
    pub(super) async fn next_dropped(&mut self) -> u64 {
        match self.dropped.next().await {
            Some(number) => number,
            None => std::future::pending().await,
        }
    }

    /// Ends an operation that is not needed any more, also at the subgraph. Returns whether it was in progress.
    pub(super) fn unsubscribe(&mut self, number: u64, socket: &mut UpstreamSocket) -> bool {
        let Some(slot) = self.remove(number) else { return false };
        if let Some(id) = slot.id {
            socket.unsubscribe(id);
        }
        true
    }

    /// Removes an operation while there is no connection. Returns whether it was there.
    pub(super) fn forget(&mut self, number: u64) -> bool {
        self.remove(number).is_some()
    }

    /// Passes on a result.
    // hot path: once for each result of the subgraph.
    pub(super) fn on_result(&mut self, id: OperationId, payload: Bytes) {
        let slot = self.by_id.get(&id).and_then(|number| self.slots.get_mut(number));
        let Some(Slot { topic, state, .. }) = slot else { return };
        let sender = match state {
            SlotState::Live(sender) => sender,
            SlotState::Single(_, result) => {
                result.get_or_insert(payload);
                return;
            }
            SlotState::Waiting(_) => return,
        };
        add(&self.endpoint.stats.results, 1);
        if !result_queue::offer(sender, topic, payload) {
            add(&self.endpoint.stats.dropped, 1);
        }
    }

    /// Ends an operation that the subgraph has ended. Returns whether it was in progress.
    pub(super) fn on_ended(&mut self, id: OperationId, result: Result<(), OperationError>) -> bool {
        let number = self.by_id.get(&id).copied();
        let Some(slot) = number.and_then(|number| self.remove(number)) else { return false };
        match slot.state {
            SlotState::Live(sender) => self.end_stream(sender, slot.topic, result),
            SlotState::Single(reply, received) => {
                // Sending fails if the receiver has gone.
                let _ = reply.send(single_result(received, result));
            }
            // An operation is in progress only if the connection is acknowledged, so it has a stream.
            SlotState::Waiting(_) => {}
        }
        true
    }

    fn end_stream(&self, sender: EventSender, topic: Arc<str>, result: Result<(), OperationError>) {
        let Err(error) = result else { return sender.end(StreamEnd::Complete) };
        add(&self.endpoint.stats.failed, 1);
        match error {
            OperationError::Errors(errors) => {
                self.endpoint.log_errors(&topic, &errors);
                error_response::end_with_errors(sender, topic, &errors);
            }
            error => {
                let reason = error.to_string();
                self.endpoint.log_failure(&topic, &reason, &error.without_subgraph_text());
                sender.end(StreamEnd::Failed(reason));
            }
        }
    }

    /// Notes that the connection is gone, so that all operations begin again on the next one.
    pub(super) fn detach(&mut self) {
        self.by_id.clear();
        for slot in self.slots.values_mut() {
            slot.id = None;
        }
        self.to_start = self.slots.keys().copied().collect();
        self.to_start.sort_unstable();
    }

    /// Notes that the connection was lost: operations have to begin again. Those that still wait for their first
    /// connection, and queries and mutations, fail. Returns the number of those that were removed.
    pub(super) fn on_connection_lost(&mut self, loss: ConnectionLoss<'_>) -> usize {
        let ConnectionLoss { reason, was_reached, may_succeed } = loss;
        self.detach();
        let is_waiting = |_: &u64, slot: &mut Slot| !matches!(slot.state, SlotState::Live(_));
        let waiting: Vec<_> = self.slots.extract_if(is_waiting).collect();
        let count = waiting.len();
        subtract(&self.endpoint.stats.operations, count);
        add(&self.endpoint.stats.failed, count);
        for (_, slot) in waiting {
            // Sending fails if the receiver has gone.
            match slot.state {
                SlotState::Waiting(reply) => {
                    let failure = match may_succeed {
                        true => AttemptFailure::transient(reason.to_owned()),
                        false => AttemptFailure::permanent(reason),
                    };
                    _ = reply.send(Err(failure));
                }
                SlotState::Single(reply, _) => {
                    // A refusal concerns the client's credentials or the configuration. As `Connect` it would count
                    // for the circuit breaker, and one client with a bad token could open that for all.
                    let error = match was_reached {
                        true => FetchError::Closed(reason.to_owned()),
                        false => FetchError::Connect(reason.to_owned()),
                    };
                    _ = reply.send(Err(error));
                }
                SlotState::Live(_) => {}
            }
        }
        count
    }

    /// Ends all operations. Returns their number.
    pub(super) fn fail_all(&mut self, loss: ConnectionLoss<'_>) -> usize {
        let refused = self.on_connection_lost(loss);
        let live = std::mem::take(&mut self.slots);
        subtract(&self.endpoint.stats.operations, live.len());
        add(&self.endpoint.stats.failed, live.len());
        let count = refused + live.len();
        for slot in live.into_values() {
            if let SlotState::Live(sender) = slot.state {
                sender.end(StreamEnd::Failed(loss.reason.to_owned()));
            }
        }
        count
    }

    fn remove(&mut self, number: u64) -> Option<Slot> {
        let slot = self.slots.remove(&number)?;
        if let Some(id) = slot.id {
            self.by_id.remove(&id);
        }
        subtract(&self.endpoint.stats.operations, 1);
        Some(slot)
    }
}

/// Returns the outcome of a query or mutation that the subgraph has ended.
fn single_result(
    received: Option<Bytes>,
    end: Result<(), OperationError>,
) -> Result<Bytes, FetchError> {
    match (received, end) {
        (Some(result), _) => Ok(result),
        (None, Err(OperationError::Errors(errors))) => Ok(error_response::error_response(&errors)),
        (None, Err(error)) => Err(FetchError::Protocol(error.to_string())),
        (None, Ok(())) => {
            Err(FetchError::Protocol("the subgraph ended the operation without a result".into()))
        }
    }
}
