//! The state that belongs to one client of the library and ends with it: its subscriptions, and the streams that wait
//! for the broker's confirmation.
//!
//! NATS core does not confirm a subscription. A message is therefore sent to an inbox of the router after it. The
//! broker processes a connection in order, so the arrival of that message proves that the subscription is in force.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, Message, Subscriber};
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{SelectAll, Stream};
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;

use crate::EventStream;

/// The number of messages of one subject that wait inside the client library for the connection's task. The task never
/// waits for a stream, so more than a burst of that size means an overloaded process; further messages become a gap.
pub(super) const SUBJECT_QUEUE_MESSAGES: usize = 8192;

/// The maximum time that a new stream waits for the broker's confirmation. A user without rights to an inbox never gets
/// it, and then streams start without it.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_millis(500);

/// An item of a broker subscription.
pub(super) enum Incoming {
    /// A message, with the subject that was subscribed to.
    Message(Arc<str>, Message),
    /// A message from the router's inbox: all subscriptions up to this ticket are in force.
    Confirmed(u64),
}

/// The messages of one subscription.
type SubjectStream = Pin<Box<dyn Stream<Item = Incoming> + Send>>;

/// A stream that waits for the broker's confirmation.
struct UnconfirmedStream {
    ticket: u64,
    deadline: Instant,
    reply: oneshot::Sender<Result<EventStream, String>>,
    stream: EventStream,
}

/// The client of one connection, shared by all its users. All subscriptions must be made through it.
#[derive(Clone, Debug)]
pub(super) struct SharedClient {
    pub(super) nats: Client,
    /// The number of subscriptions made so far. The library numbers subscriptions from 1 in the order made, and refers
    /// to that number when it drops messages.
    subscriptions_made: Arc<Mutex<u64>>,
}

impl SharedClient {
    fn new(nats: Client) -> Self {
        Self { nats, subscriptions_made: Arc::default() }
    }

    /// Subscribes and returns the library's number of the subscription.
    pub(super) async fn subscribe(&self, subject: String) -> Result<(u64, Subscriber), Box<str>> {
        let mut made = self.subscriptions_made.lock().await;
        let messages = self.nats.subscribe(subject).await.map_err(|error| error.to_string())?;
        *made += 1;
        Ok((*made, messages))
    }
}

/// The subscriptions of one client, and the streams that wait for confirmation.
pub(super) struct ClientSession {
    pub(super) client: SharedClient,
    pub(super) messages: SelectAll<SubjectStream>,
    /// The inbox for confirmations, or `None` if the broker allows no inbox.
    inbox: Option<String>,
    unconfirmed: VecDeque<UnconfirmedStream>,
    next_ticket: u64,
}

impl ClientSession {
    pub(super) async fn new(client: Client) -> Self {
        let mut session = Self {
            client: SharedClient::new(client),
            messages: SelectAll::new(),
            inbox: None,
            unconfirmed: VecDeque::new(),
            next_ticket: 0,
        };
        let inbox = session.client.nats.new_inbox();
        if let Ok((_, messages)) = session.client.subscribe(inbox.clone()).await {
            let tickets = messages.filter_map(|message| {
                let ticket =
                    std::str::from_utf8(&message.payload).ok().and_then(|it| it.parse().ok());
                std::future::ready(ticket.map(Incoming::Confirmed))
            });
            session.messages.push(Box::pin(tickets));
            session.inbox = Some(inbox);
        }
        session
    }

    /// Subscribes and returns the library's number of the subscription. Aborting the handle unsubscribes.
    pub(super) async fn subscribe(
        &mut self,
        name: &Arc<str>,
    ) -> Result<(u64, AbortHandle), Box<str>> {
        let (number, messages) = self.client.subscribe(name.to_string()).await?;
        let (abort, registration) = AbortHandle::new_pair();
        let name = Arc::clone(name);
        let messages = messages.map(move |message| Incoming::Message(Arc::clone(&name), message));
        self.messages.push(Box::pin(Abortable::new(messages, registration)));
        Ok((number, abort))
    }

    /// Sends `stream` to its requester as soon as its subscriptions are in force.
    pub(super) async fn confirm(
        &mut self,
        stream: EventStream,
        reply: oneshot::Sender<Result<EventStream, String>>,
    ) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let sent = match self.inbox.clone() {
            Some(inbox) => self.client.nats.publish(inbox, ticket.to_string().into()).await.is_ok(),
            None => false,
        };
        if sent {
            let deadline = Instant::now() + CONFIRMATION_TIMEOUT;
            self.unconfirmed.push_back(UnconfirmedStream { ticket, deadline, reply, stream });
        } else {
            // If the requester is gone, the stream is dropped with the message, and thereby closed.
            let _ = reply.send(Ok(stream));
        }
    }

    /// Sends all streams up to this ticket, which the broker has confirmed, to their requesters.
    pub(super) fn confirmed(&mut self, ticket: u64) {
        while let Some(first) = self.unconfirmed.pop_front_if(|first| first.ticket <= ticket) {
            let _ = first.reply.send(Ok(first.stream));
        }
    }

    /// Returns the time at which the oldest stream has waited long enough.
    pub(super) fn confirmation_due(&self) -> Option<Instant> {
        self.unconfirmed.front().map(|first| first.deadline)
    }

    /// Sends all waiting streams to their requesters, and requests no confirmations any more in this session.
    pub(super) fn stop_confirming(&mut self) {
        self.inbox = None;
        self.confirmed(u64::MAX);
    }
}
