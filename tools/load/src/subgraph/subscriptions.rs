//! The subscriptions of one subgraph: their events, their operations, and the numbers of both.
//!
//! An event is the value of a subscription's root field, or nothing, in which case the value comes from the subgraph's
//! data. Every subscription in progress gets every event, whatever its arguments. `subscription_socket` serves the
//! operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tokio::sync::{broadcast, watch};

/// The maximum number of events that wait for a socket, each of them at most 1 MiB if it came over HTTP. A socket that
/// is further behind misses the oldest ones.
const EVENTS_WAITING_MAX: usize = 256;

/// An event of a subgraph.
#[derive(Debug)]
pub(super) struct SubscriptionEvent {
    /// The number of events before it.
    pub(super) number: u64,
    /// The value of the root field; `None` if it comes from the subgraph's data.
    pub(super) value: Option<Value>,
}

/// A message for all sockets of a subgraph.
#[derive(Debug, Clone)]
pub(super) enum SocketMessage {
    Event(Arc<SubscriptionEvent>),
    /// Closes the connection without a closing handshake, like a subgraph that is killed.
    Disconnect,
}

/// The numbers of a subgraph's sockets and operations. Queries and mutations over WebSocket are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriptionCounts {
    /// The number of open WebSockets.
    pub connections: u64,
    /// The maximum number of WebSockets that were open at the same time.
    pub connections_max: u64,
    /// The number of subscriptions in progress.
    pub operations: u64,
    /// The maximum number of subscriptions that were in progress at the same time.
    pub operations_max: u64,
    /// The number of subscriptions started.
    pub operations_started: u64,
    /// The number of results sent.
    pub results: u64,
    /// The number of events that a socket missed because its client did not read.
    pub events_dropped: u64,
}

/// The subscriptions of one served subgraph.
pub struct Subscriptions {
    messages: broadcast::Sender<SocketMessage>,
    counts: watch::Sender<SubscriptionCounts>,
    next_event: AtomicU64,
}

impl Subscriptions {
    pub(super) fn new() -> Self {
        Self {
            messages: broadcast::Sender::new(EVENTS_WAITING_MAX),
            counts: watch::Sender::new(SubscriptionCounts::default()),
            next_event: AtomicU64::new(0),
        }
    }

    /// Sends an event to every subscription in progress. `value` is the value of the root field, interpreted like that
    /// of a resolver: a member that is not given comes from the subgraph's data. Without a value, all of it does.
    pub fn publish(&self, value: Option<Value>) {
        let number = self.next_event.fetch_add(1, Ordering::Relaxed);
        let event = Arc::new(SubscriptionEvent { number, value });
        // There may be no sockets.
        let _ = self.messages.send(SocketMessage::Event(event));
    }

    /// Closes all WebSockets without a closing handshake.
    pub fn disconnect(&self) {
        let _ = self.messages.send(SocketMessage::Disconnect);
    }

    /// Returns the current numbers.
    pub fn counts(&self) -> SubscriptionCounts {
        *self.counts.borrow()
    }

    /// Waits until the numbers meet a condition.
    pub async fn reached(&self, mut condition: impl FnMut(&SubscriptionCounts) -> bool) {
        // `self` owns the sender, so the channel cannot be closed.
        let _ = self.counts.subscribe().wait_for(|counts| condition(counts)).await;
    }

    /// Registers a socket, which receives the messages from now on.
    pub(super) fn connect(&self) -> ConnectedSocket<'_> {
        let messages = self.messages.subscribe();
        self.counts.send_modify(|counts| {
            counts.connections += 1;
            counts.connections_max = counts.connections_max.max(counts.connections);
        });
        ConnectedSocket { subscriptions: self, messages, operations: 0 }
    }
}

/// A socket with its share of the numbers, which ends with it.
pub(super) struct ConnectedSocket<'a> {
    subscriptions: &'a Subscriptions,
    messages: broadcast::Receiver<SocketMessage>,
    operations: u64,
}

impl ConnectedSocket<'_> {
    /// Waits for the next message. Cancel safe.
    pub(super) async fn receive(&mut self) -> SocketMessage {
        loop {
            match self.messages.recv().await {
                Ok(message) => return message,
                Err(broadcast::error::RecvError::Lagged(count)) => {
                    self.change(|counts| counts.events_dropped += count);
                }
                // The subgraph is no longer served.
                Err(broadcast::error::RecvError::Closed) => return SocketMessage::Disconnect,
            }
        }
    }

    pub(super) fn start_operation(&mut self) {
        self.operations += 1;
        self.change(|counts| {
            counts.operations += 1;
            counts.operations_max = counts.operations_max.max(counts.operations);
            counts.operations_started += 1;
        });
    }

    pub(super) fn end_operation(&mut self) {
        self.operations -= 1;
        self.change(|counts| counts.operations -= 1);
    }

    pub(super) fn count_results(&self, results: u64) {
        self.change(|counts| counts.results += results);
    }

    fn change(&self, change: impl FnOnce(&mut SubscriptionCounts)) {
        self.subscriptions.counts.send_modify(change);
    }
}

impl Drop for ConnectedSocket<'_> {
    fn drop(&mut self) {
        let operations = self.operations;
        self.change(|counts| {
            counts.connections -= 1;
            counts.operations -= operations;
        });
    }
}
