//! The task that holds the connection: subscriptions, reconnecting, gaps.
//!
//! The client library reconnects by itself without end and without saying why it fails, so it gets one attempt
//! only; after that its client is thrown away and this task makes new ones until the provider is dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_nats::{Client, ClientError, ConnectOptions, Event as ClientEvent, ServerError};
use futures_util::future::{AbortHandle, BoxFuture};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::address::Address;
use super::headers;
use super::session::{Incoming, Line, SUBJECT_QUEUE_MESSAGES, Session};
use crate::backoff::Backoff;
use crate::event_queue::{EventSender, SendOutcome};
use crate::{
    ErrorKind, Event, EventStream, ProviderState, ProviderStats, Retry, Start, StreamEnd, Wanted,
};

/// Time to connect and sign in, after which the attempt counts as failed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Notices of the client library that wait for this task; those of slow consumers may come in thousands.
const NOTICES_MAX: usize = 256;

/// Messages handled before the other sources of work get their turn.
const MESSAGES_PER_TURN: usize = 64;

/// What the provider asks of its task.
pub(super) enum Command {
    /// Open a stream; the error says why there is no connection.
    Subscribe { wanted: Wanted, reply: oneshot::Sender<Result<EventStream, String>> },
}

/// The connection as the provider sees it.
#[derive(Debug)]
pub(super) enum Link {
    /// Usable.
    Up(Line),
    /// Not now, for this reason (no credentials in it).
    Away(Box<str>),
}

/// Why serving a connection ended.
enum Lost {
    /// The connection is gone for good; make another.
    Connection(Box<str>),
    /// The provider was dropped.
    Provider,
}

/// A distinct subject with a subscription at the broker.
struct Subject {
    /// Number of the subscription in the client library, which counts them from 1 in the order made.
    sid: u64,
    abort: AbortHandle,
    streams: Vec<u64>,
}

/// One open stream.
struct OpenStream {
    sender: EventSender,
    subjects: Vec<Arc<str>>,
}

pub(super) struct Connection {
    provider: Box<str>,
    addresses: Vec<Address>,
    next_address: usize,
    backoff: Backoff,
    /// Of the library's own attempt.
    after_loss: Backoff,
    queue_events: usize,
    stats: Arc<ProviderStats>,
    link: watch::Sender<Link>,
    commands: mpsc::Receiver<Command>,
    subjects: HashMap<Arc<str>, Subject>,
    streams: HashMap<u64, OpenStream>,
    next_stream: u64,
    /// Resolve to the number of a stream that was dropped.
    dropped: FuturesUnordered<BoxFuture<'static, u64>>,
    connections: u64,
    /// Last failure that was logged as a warning, so that an absent broker fills no log.
    warned_of: Box<str>,
}

impl Connection {
    pub(super) fn new(
        provider: Box<str>,
        addresses: Vec<Address>,
        retry: Retry,
        queue_events: usize,
        stats: Arc<ProviderStats>,
        link: watch::Sender<Link>,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        Self {
            provider,
            addresses,
            next_address: 0,
            backoff: Backoff::new(retry),
            after_loss: Backoff::new(retry),
            queue_events,
            stats,
            link,
            commands,
            subjects: HashMap::new(),
            streams: HashMap::new(),
            next_stream: 0,
            dropped: FuturesUnordered::new(),
            connections: 0,
            warned_of: "".into(),
        }
    }

    /// Until the provider is dropped.
    pub(super) async fn run(mut self) {
        let mut next_attempt = Instant::now();
        loop {
            let (notice_sender, mut notices) = mpsc::channel(NOTICES_MAX);
            let Some(attempt) = self.attempt(next_attempt, notice_sender).await else { break };
            let lost = match attempt {
                Ok(client) => match self.serve(client, &mut notices).await {
                    Lost::Connection(reason) => reason,
                    Lost::Provider => break,
                },
                Err(reason) => {
                    self.failed(&reason);
                    reason
                }
            };
            let _ = self.link.send_replace(Link::Away(lost));
            next_attempt = Instant::now() + self.backoff.next_delay();
        }
        for (_, stream) in self.streams.drain() {
            stream.sender.end(StreamEnd::Closed);
        }
    }

    /// One attempt at the next address, not before `at`. Answers commands meanwhile. `None`: the provider was dropped.
    async fn attempt(
        &mut self,
        at: Instant,
        notices: mpsc::Sender<ClientEvent>,
    ) -> Option<Result<Client, Box<str>>> {
        let address = self.addresses[self.next_address % self.addresses.len()].clone();
        self.next_address = self.next_address.wrapping_add(1);
        // The library waits before its first attempt too, which has waited here already.
        let (after_loss, is_first) = (self.after_loss.next_delay(), AtomicBool::new(true));
        self.after_loss.reset();
        let options = ConnectOptions::new()
            .name("starling")
            .connection_timeout(CONNECT_TIMEOUT)
            .subscription_capacity(SUBJECT_QUEUE_MESSAGES)
            // The library's one attempt of its own after a loss; see the head of this file.
            .max_reconnects(1)
            .reconnect_delay_callback(move |_| {
                if is_first.swap(false, Relaxed) { Duration::ZERO } else { after_loss }
            })
            .ignore_discovered_servers()
            .event_callback(move |event| {
                let notices = notices.clone();
                async move {
                    // Fails only when this session is over.
                    let _ = notices.send(event).await;
                }
            });
        let connecting = async move {
            sleep_until(at).await;
            address.connect(options).await
        };
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                result = &mut connecting => return Some(result),
                command = self.commands.recv() => match command? {
                    Command::Subscribe { reply, .. } => {
                        let reason = match &*self.link.borrow() {
                            Link::Away(reason) => reason.to_string(),
                            Link::Up(_) => "the connection was lost".to_owned(),
                        };
                        let _ = reply.send(Err(reason));
                    }
                },
                Some(stream) = self.dropped.next() => self.close_stream(stream),
            }
        }
    }

    /// Works with `client` until it is lost.
    async fn serve(&mut self, client: Client, notices: &mut mpsc::Receiver<ClientEvent>) -> Lost {
        let mut session = Session::new(client).await;
        for (name, subject) in &mut self.subjects {
            match session.subscribe(name).await {
                Ok((sid, abort)) => (subject.sid, subject.abort) = (sid, abort),
                Err(reason) => return Lost::Connection(reason),
            }
        }
        self.up(&session);
        // The library announces the connection that was just made as well.
        let mut is_up = true;
        let mut first_notice = true;
        let lost = loop {
            let confirmation_due = session.confirmation_due();
            tokio::select! {
                Some(incoming) = session.messages.next() => {
                    self.incoming(incoming, &mut session);
                    self.incoming_ready(&mut session, MESSAGES_PER_TURN);
                }
                command = self.commands.recv() => match command {
                    None => break Lost::Provider,
                    Some(Command::Subscribe { reply, .. }) if !is_up => {
                        let _ = reply.send(Err("the connection was lost".into()));
                    }
                    Some(Command::Subscribe { wanted, reply }) => {
                        self.open_stream(wanted, reply, &mut session).await;
                    }
                },
                Some(stream) = self.dropped.next() => self.close_stream(stream),
                () = sleep_until(confirmation_due.unwrap_or_else(Instant::now)),
                    if confirmation_due.is_some() => session.stop_confirming(),
                notice = notices.recv() => match notice {
                    Some(ClientEvent::Connected) if first_notice => first_notice = false,
                    Some(ClientEvent::Connected) => {
                        if is_up {
                            self.down(&mut session);
                        }
                        is_up = true;
                        self.up(&session);
                    }
                    Some(ClientEvent::Disconnected) => {
                        if is_up {
                            self.down(&mut session);
                        }
                        is_up = false;
                    }
                    None | Some(ClientEvent::Closed | ClientEvent::ClientError(ClientError::MaxReconnects)) => {
                        break Lost::Connection("the connection was lost".into());
                    }
                    Some(notice) => self.notice(notice),
                },
            }
        };
        if is_up && matches!(lost, Lost::Connection(_)) {
            self.down(&mut session);
        }
        session.stop_confirming();
        lost
    }

    fn up(&mut self, session: &Session) {
        self.connections += 1;
        if self.connections > 1 {
            ProviderStats::add(&self.stats.reconnects, 1);
        }
        self.backoff.reset();
        self.warned_of = "".into();
        self.stats.set_state(ProviderState::Connected);
        self.link.send_replace(Link::Up(session.line.clone()));
        tracing::info!(provider = %self.provider, connections = self.connections, "connected to the broker");
    }

    /// The connection is gone: what was received before goes out before the gap.
    fn down(&mut self, session: &mut Session) {
        self.incoming_ready(session, usize::MAX);
        self.stats.set_state(ProviderState::Disconnected);
        self.link.send_replace(Link::Away("the connection was lost".into()));
        for stream in self.streams.values_mut() {
            ProviderStats::add(&self.stats.gaps, stream.sender.announce_gap().into());
        }
        tracing::warn!(
            provider = %self.provider,
            streams = self.streams.len(),
            "lost the connection to the broker; events may be missing until it is back"
        );
    }

    fn failed(&mut self, reason: &str) {
        self.stats.record_error(ErrorKind::Connection);
        let tried = self.next_address.wrapping_sub(1) % self.addresses.len();
        let server = self.addresses[tried].host_and_port();
        if *self.warned_of == *reason {
            tracing::debug!(provider = %self.provider, server, reason, "still no connection to the broker");
        } else {
            tracing::warn!(provider = %self.provider, server, reason, "no connection to the broker; trying again");
            self.warned_of = reason.into();
        }
    }

    /// What came from the broker.
    // hot path: once per message; its budget is the number of streams, not of subjects.
    fn incoming(&mut self, incoming: Incoming, session: &mut Session) {
        let (name, message) = match incoming {
            Incoming::Confirmed(ticket) => return session.confirmed(ticket),
            Incoming::Message(name, message) => (name, message),
        };
        let Some(subject) = self.subjects.get(&name) else { return };
        ProviderStats::add(&self.stats.received, 1);
        let topic = if *message.subject == *name { name } else { message.subject.as_str().into() };
        let headers = headers::from_nats(message.headers.as_ref());
        let event = Arc::new(Event { headers, ..Event::new(topic, message.payload) });
        for stream in &subject.streams {
            let Some(stream) = self.streams.get_mut(stream) else { continue };
            // A stream that is gone is closed through `dropped`.
            if let SendOutcome::Dropped { starts_gap } = stream.sender.try_send(Arc::clone(&event)) {
                ProviderStats::add(&self.stats.dropped, 1);
                ProviderStats::add(&self.stats.gaps, starts_gap.into());
            }
        }
    }

    fn incoming_ready(&mut self, session: &mut Session, most: usize) {
        for _ in 0..most {
            let Some(Some(incoming)) = session.messages.next().now_or_never() else { break };
            self.incoming(incoming, session);
        }
    }

    async fn open_stream(
        &mut self,
        Wanted { topics, start, .. }: Wanted,
        reply: oneshot::Sender<Result<EventStream, String>>,
        session: &mut Session,
    ) {
        let id = self.next_stream;
        self.next_stream += 1;
        let (mut sender, stream) = EventSender::new(self.queue_events);
        sender.set_counts(self.stats.stream_counts(topics.iter().map(|topic| &**topic)));
        if start != Start::New {
            ProviderStats::add(&self.stats.gaps, sender.announce_gap().into());
        }
        self.dropped.push(sender.closed().map(move |()| id).boxed());
        let mut subjects = Vec::with_capacity(topics.len());
        for topic in topics {
            let name: Arc<str> = topic.into();
            if subjects.contains(&name) {
                continue;
            }
            if let Some(subject) = self.subjects.get_mut(&name) {
                subject.streams.push(id);
            } else {
                match session.subscribe(&name).await {
                    Ok((sid, abort)) => {
                        let subject = Subject { sid, abort, streams: vec![id] };
                        self.subjects.insert(Arc::clone(&name), subject);
                    }
                    Err(reason) => {
                        // `stream` is dropped here, which undoes what was done so far.
                        self.streams.insert(id, OpenStream { sender, subjects });
                        ProviderStats::add(&self.stats.streams, 1);
                        let _ = reply.send(Err(reason.into()));
                        return;
                    }
                }
            }
            subjects.push(name);
        }
        self.streams.insert(id, OpenStream { sender, subjects });
        ProviderStats::add(&self.stats.streams, 1);
        session.confirm(stream, reply).await;
    }

    /// The stream was dropped: subjects that nobody else wants are unsubscribed.
    fn close_stream(&mut self, id: u64) {
        let Some(stream) = self.streams.remove(&id) else { return };
        ProviderStats::subtract(&self.stats.streams, 1);
        self.leave_subjects(id, &stream.subjects);
    }

    fn leave_subjects(&mut self, id: u64, subjects: &[Arc<str>]) {
        for name in subjects {
            let Some(subject) = self.subjects.get_mut(name) else { continue };
            subject.streams.retain(|&stream| stream != id);
            if subject.streams.is_empty()
                && let Some(subject) = self.subjects.remove(name)
            {
                subject.abort.abort();
            }
        }
    }

    /// What the library tells beside connecting and disconnecting.
    fn notice(&mut self, notice: ClientEvent) {
        match notice {
            ClientEvent::SlowConsumer(sid) => {
                ProviderStats::add(&self.stats.dropped, 1);
                // What is not known was unsubscribed, or belongs to a reader of JetStream, which counts for itself.
                let known = self.subjects.values().find(|subject| subject.sid == sid);
                let streams = known.map(|subject| subject.streams.clone());
                for stream in streams.unwrap_or_default() {
                    if let Some(stream) = self.streams.get_mut(&stream) {
                        ProviderStats::add(&self.stats.gaps, stream.sender.announce_gap().into());
                    }
                }
            }
            ClientEvent::ServerError(error) => {
                self.stats.record_error(ErrorKind::Other);
                tracing::warn!(provider = %self.provider, %error, "the broker complains");
                if let ServerError::Other(text) = &error
                    && let Some(subject) = refused_subscription(text)
                {
                    self.refuse(subject, text);
                }
            }
            ClientEvent::ClientError(error) => {
                self.stats.record_error(ErrorKind::Other);
                tracing::debug!(provider = %self.provider, %error, "the client complains");
            }
            ClientEvent::LameDuckMode => {
                tracing::info!(provider = %self.provider, "the broker is about to shut down");
            }
            // Handled where the session is served; we never drain.
            ClientEvent::Connected
            | ClientEvent::Disconnected
            | ClientEvent::Draining
            | ClientEvent::Closed => {}
        }
    }

    /// Ends the streams of a subject that the user may not subscribe to.
    fn refuse(&mut self, subject: &str, reason: &str) {
        let Some(streams) = self.subjects.get(subject).map(|subject| subject.streams.clone())
        else {
            return;
        };
        for id in streams {
            let Some(stream) = self.streams.remove(&id) else { continue };
            ProviderStats::subtract(&self.stats.streams, 1);
            self.leave_subjects(id, &stream.subjects);
            stream.sender.end(StreamEnd::Refused(reason.to_owned()));
        }
    }
}

/// The subject in `Permissions Violation for Subscription to "orders.>"`.
fn refused_subscription(error: &str) -> Option<&str> {
    let (_, rest) = error.split_once("Permissions Violation for Subscription to \"")?;
    rest.split_once('"').map(|(subject, _)| subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_subject_is_read_from_the_brokers_words() {
        let text = r#"Permissions Violation for Subscription to "orders.>""#;
        assert_eq!(refused_subscription(text), Some("orders.>"));
        let queue = r#"Permissions Violation for Subscription to "orders" using queue "q""#;
        assert_eq!(refused_subscription(queue), Some("orders"));
        assert_eq!(refused_subscription(r#"Permissions Violation for Publish to "x""#), None);
    }
}
