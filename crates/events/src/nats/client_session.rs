//! What belongs to one client of the library and goes with it: its subscriptions, and the streams that wait
//! for the broker's word.
//!
//! NATS core does not confirm a subscription. So a message is sent to an inbox of our own after it: since
//! the broker works through a connection in order, its arrival proves that the subscription is in force.

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

/// Messages of one subject that wait for the connection's task inside the client library. The task never
/// waits for a stream, so more than a burst of that size means an overloaded process; the rest becomes a gap.
pub(super) const SUBJECT_QUEUE_MESSAGES: usize = 8192;

/// How long a new stream waits for the broker's word. A user without rights to an inbox never gets it,
/// and then streams start without it.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_millis(500);

/// What a broker subscription yields.
pub(super) enum Incoming {
    /// A message, and the subject as subscribed to.
    Message(Arc<str>, Message),
    /// From the own inbox: everything up to this ticket is in force.
    Confirmed(u64),
}

type SubjectStream = Pin<Box<dyn Stream<Item = Incoming> + Send>>;

/// A stream that waits for the broker's word.
struct Unconfirmed {
    ticket: u64,
    deadline: Instant,
    reply: oneshot::Sender<Result<EventStream, String>>,
    stream: EventStream,
}

/// The client of one connection, for all who use it.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) client: Client,
    /// The library numbers subscriptions from 1 in the order made, and names that number where it drops messages.
    /// So whoever subscribes does it here.
    subscriptions_made: Arc<Mutex<u64>>,
}

impl Line {
    fn new(client: Client) -> Self {
        Self { client, subscriptions_made: Arc::default() }
    }

    /// A subscription and the library's number for it.
    pub(super) async fn subscribe(&self, subject: String) -> Result<(u64, Subscriber), Box<str>> {
        let mut made = self.subscriptions_made.lock().await;
        let messages = self.client.subscribe(subject).await.map_err(|error| error.to_string())?;
        *made += 1;
        Ok((*made, messages))
    }
}

pub(super) struct Session {
    pub(super) line: Line,
    pub(super) messages: SelectAll<SubjectStream>,
    /// `None`: the broker gives us no inbox.
    inbox: Option<String>,
    unconfirmed: VecDeque<Unconfirmed>,
    next_ticket: u64,
}

impl Session {
    pub(super) async fn new(client: Client) -> Self {
        let mut session = Self {
            line: Line::new(client),
            messages: SelectAll::new(),
            inbox: None,
            unconfirmed: VecDeque::new(),
            next_ticket: 0,
        };
        let inbox = session.line.client.new_inbox();
        if let Ok((_, messages)) = session.line.subscribe(inbox.clone()).await {
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

    /// Subscribes; aborting the handle unsubscribes. Returns the library's number for it.
    pub(super) async fn subscribe(
        &mut self,
        name: &Arc<str>,
    ) -> Result<(u64, AbortHandle), Box<str>> {
        let (number, messages) = self.line.subscribe(name.to_string()).await?;
        let (abort, registration) = AbortHandle::new_pair();
        let name = Arc::clone(name);
        let messages = messages.map(move |message| Incoming::Message(Arc::clone(&name), message));
        self.messages.push(Box::pin(Abortable::new(messages, registration)));
        Ok((number, abort))
    }

    /// Hands `stream` over as soon as its subscriptions are in force.
    pub(super) async fn confirm(
        &mut self,
        stream: EventStream,
        reply: oneshot::Sender<Result<EventStream, String>>,
    ) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let sent = match self.inbox.clone() {
            Some(inbox) => self.line.client.publish(inbox, ticket.to_string().into()).await.is_ok(),
            None => false,
        };
        if sent {
            let deadline = Instant::now() + CONFIRMATION_TIMEOUT;
            self.unconfirmed.push_back(Unconfirmed { ticket, deadline, reply, stream });
        } else {
            // Nobody there to take it: the stream is dropped with the message, and closed.
            let _ = reply.send(Ok(stream));
        }
    }

    /// The broker's word for all tickets up to this one.
    pub(super) fn confirmed(&mut self, ticket: u64) {
        while let Some(first) = self.unconfirmed.pop_front_if(|first| first.ticket <= ticket) {
            let _ = first.reply.send(Ok(first.stream));
        }
    }

    /// When the oldest stream has waited long enough.
    pub(super) fn confirmation_due(&self) -> Option<Instant> {
        self.unconfirmed.front().map(|first| first.deadline)
    }

    /// Nobody confirms: hands over all that wait, and asks no more in this session.
    pub(super) fn stop_confirming(&mut self) {
        self.inbox = None;
        self.confirmed(u64::MAX);
    }
}
