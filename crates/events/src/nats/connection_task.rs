//! The task that holds the connection: subscriptions, reconnecting and gaps.
//!
//! The client library reconnects by itself without limit and without reporting why it fails. It therefore gets only one
//! attempt; after that its client is dropped, and this task makes new ones until the provider is dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_nats::{Client, ClientError, ConnectOptions, Event as ClientEvent, ServerError};
use futures_util::future::{AbortHandle, BoxFuture};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::address::NatsAddress;
use super::client_session::{ClientSession, Incoming, SUBJECT_QUEUE_MESSAGES, SharedClient};
use super::headers;
use crate::backoff::Backoff;
use crate::connection_state::{ConnectionState, LOST, ServeEnd, SubscribeCommand};
use crate::provider_log::{LoggedConnection, ProviderLog, quoted_part};
use crate::shared_subscriptions::SharedSubscriptions;
use crate::{ErrorKind, Event, ProviderState, ProviderStats, Retry, StreamRequest};

/// The maximum time to connect and sign in, after which the attempt counts as failed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of notices of the client library that wait for this task. Notices about slow consumers may come in
/// thousands.
const NOTICES_MAX: usize = 256;

/// The time in which a broker closes a connection after it has reported an error that is the reason for it.
const ERROR_BEFORE_LOSS: Duration = Duration::from_secs(1);

/// The number of messages that are dispatched before other work gets its turn.
const MESSAGES_PER_TURN: usize = 64;

/// The subscription to a distinct subject at the broker.
struct SubjectSubscription {
    /// The number of the subscription in the client library, which counts subscriptions from 1 in the order made.
    sid: u64,
    /// Aborting it unsubscribes.
    abort: AbortHandle,
}

/// The task that holds the connection of one provider.
pub(super) struct ConnectionTask {
    log: Arc<ProviderLog>,
    addresses: Vec<NatsAddress>,
    next_address: usize,
    backoff: Backoff,
    /// The delay before the library's own attempt.
    after_loss: Backoff,
    stats: Arc<ProviderStats>,
    state: watch::Sender<ConnectionState<SharedClient>>,
    commands: mpsc::Receiver<SubscribeCommand>,
    subjects: SharedSubscriptions<SubjectSubscription>,
    /// Futures that resolve to the number of a stream that was dropped.
    dropped: FuturesUnordered<BoxFuture<'static, u64>>,
    was_connected: bool,
    /// The latest error that the broker has reported, and its time. The library does not say why a connection was lost.
    latest_error: Option<(Instant, Box<str>)>,
}

impl ConnectionTask {
    pub(super) fn new(
        log: Arc<ProviderLog>,
        addresses: Vec<NatsAddress>,
        retry: Retry,
        queue_events: usize,
        stats: Arc<ProviderStats>,
        state: watch::Sender<ConnectionState<SharedClient>>,
        commands: mpsc::Receiver<SubscribeCommand>,
    ) -> Self {
        Self {
            log,
            addresses,
            next_address: 0,
            backoff: Backoff::new(retry),
            after_loss: Backoff::new(retry),
            subjects: SharedSubscriptions::new(queue_events, Arc::clone(&stats)),
            stats,
            state,
            commands,
            dropped: FuturesUnordered::new(),
            was_connected: false,
            latest_error: None,
        }
    }

    /// Runs until the provider is dropped.
    pub(super) async fn run(mut self) {
        let mut next_attempt = Instant::now();
        loop {
            let (notice_sender, mut notices) = mpsc::channel(NOTICES_MAX);
            let Some(attempt) = self.connect(next_attempt, notice_sender).await else { break };
            let lost = match attempt {
                Ok(client) => match self.serve(client, &mut notices).await {
                    ServeEnd::ConnectionLost(reason) => reason,
                    ServeEnd::ProviderDropped => break,
                },
                Err(reason) => {
                    self.record_failed_attempt(&reason);
                    reason
                }
            };
            self.state.send_replace(ConnectionState::Disconnected(lost));
            next_attempt = Instant::now() + self.backoff.next_delay();
        }
        self.subjects.end_all();
    }

    /// Makes one attempt at the next address, not before `at`, and rejects commands meanwhile. Returns `None` if the
    /// provider was dropped.
    async fn connect(
        &mut self,
        at: Instant,
        notices: mpsc::Sender<ClientEvent>,
    ) -> Option<Result<Client, Box<str>>> {
        let address = self.addresses[self.next_address % self.addresses.len()].clone();
        self.next_address = self.next_address.wrapping_add(1);
        // The library also delays its first attempt, for which this task has already waited.
        let (after_loss, is_first) = (self.after_loss.next_delay(), AtomicBool::new(true));
        self.after_loss.reset();
        let options = ConnectOptions::new()
            .name("starling")
            .connection_timeout(CONNECT_TIMEOUT)
            .subscription_capacity(SUBJECT_QUEUE_MESSAGES)
            // This is the library's one attempt of its own after a loss; see the head of this file.
            .max_reconnects(1)
            .reconnect_delay_callback(move |_| {
                if is_first.swap(false, Relaxed) { Duration::ZERO } else { after_loss }
            })
            .ignore_discovered_servers()
            .event_callback(move |event| {
                let notices = notices.clone();
                async move {
                    // Sending fails only when this session is over.
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
                command = self.commands.recv() => {
                    let reason = self.state.borrow().reason();
                    let _ = command?.reply.send(Err(reason));
                }
                Some(stream) = self.dropped.next() => self.close_stream(stream),
            }
        }
    }

    /// Serves `client` until it is lost.
    async fn serve(
        &mut self,
        client: Client,
        notices: &mut mpsc::Receiver<ClientEvent>,
    ) -> ServeEnd {
        let mut session = ClientSession::new(client).await;
        let mut failure = None;
        for (name, subject) in self.subjects.iter_mut() {
            match session.subscribe(name).await {
                Ok((sid, abort)) => (subject.sid, subject.abort) = (sid, abort),
                Err(reason) => {
                    failure = Some(reason);
                    break;
                }
            }
        }
        if let Some(reason) = failure {
            self.record_failed_attempt(&reason);
            return ServeEnd::ConnectionLost(reason);
        }
        self.on_connected(&session);
        // The library also announces the connection that was just made.
        let mut is_up = true;
        let mut first_notice = true;
        let lost = loop {
            let confirmation_due = session.confirmation_due();
            tokio::select! {
                Some(incoming) = session.messages.next() => {
                    self.dispatch(incoming, &mut session);
                    self.dispatch_ready(&mut session, MESSAGES_PER_TURN);
                }
                command = self.commands.recv() => match command {
                    None => break ServeEnd::ProviderDropped,
                    Some(command) if !is_up => {
                        let _ = command.reply.send(Err(LOST.into()));
                    }
                    Some(command) => self.open_stream(command, &mut session).await,
                },
                Some(stream) = self.dropped.next() => self.close_stream(stream),
                () = sleep_until(confirmation_due.unwrap_or_else(Instant::now)),
                    if confirmation_due.is_some() => session.stop_confirming(),
                notice = notices.recv() => match notice {
                    Some(ClientEvent::Connected) if first_notice => first_notice = false,
                    Some(ClientEvent::Connected) => {
                        if is_up {
                            self.on_disconnected(&mut session);
                        }
                        is_up = true;
                        self.on_connected(&session);
                    }
                    Some(ClientEvent::Disconnected) => {
                        if is_up {
                            self.on_disconnected(&mut session);
                        }
                        is_up = false;
                    }
                    None | Some(ClientEvent::Closed | ClientEvent::ClientError(ClientError::MaxReconnects)) => {
                        break ServeEnd::ConnectionLost(LOST.into());
                    }
                    Some(notice) => self.handle_notice(notice),
                },
            }
        };
        if is_up && matches!(lost, ServeEnd::ConnectionLost(_)) {
            self.on_disconnected(&mut session);
        }
        session.stop_confirming();
        lost
    }

    fn on_connected(&mut self, session: &ClientSession) {
        if self.was_connected {
            ProviderStats::add(&self.stats.reconnects, 1);
        }
        self.was_connected = true;
        self.backoff.reset();
        self.latest_error = None;
        self.stats.set_state(ProviderState::Connected);
        self.state.send_replace(ConnectionState::Connected(session.client.clone()));
        let server = self.current_server();
        self.log.log_connected(LoggedConnection { purpose: None, server: &server });
    }

    /// Announces gaps after a loss of the connection. Messages that were received before are delivered before the gap.
    fn on_disconnected(&mut self, session: &mut ClientSession) {
        self.dispatch_ready(session, usize::MAX);
        self.stats.set_state(ProviderState::Disconnected);
        self.state.send_replace(ConnectionState::Disconnected(LOST.into()));
        self.subjects.announce_gap();
        let error = self.latest_error.take().filter(|(at, _)| at.elapsed() < ERROR_BEFORE_LOSS);
        let reason = error.map_or_else(|| LOST.into(), |(_, reason)| reason);
        let server = self.current_server();
        let connection = LoggedConnection { purpose: None, server: &server };
        self.log.log_lost(connection, &reason, Some(self.subjects.stream_count()));
    }

    /// Returns the server of the latest attempt to connect.
    fn current_server(&self) -> String {
        let tried = self.next_address.wrapping_sub(1) % self.addresses.len();
        self.addresses[tried].host_and_port()
    }

    fn record_failed_attempt(&mut self, reason: &str) {
        self.stats.record_error(ErrorKind::Connection);
        let server = self.current_server();
        let connection = LoggedConnection { purpose: None, server: &server };
        self.log.log_failed_attempt(connection, reason);
    }

    /// Delivers a message of the broker to the streams of its subject.
    // hot path: once per message; its budget is the number of streams, not of subjects.
    fn dispatch(&mut self, incoming: Incoming, session: &mut ClientSession) {
        let (name, message) = match incoming {
            Incoming::Confirmed(ticket) => return session.confirmed(ticket),
            Incoming::Message(name, message) => (name, message),
        };
        self.subjects.deliver(&name, |name| {
            let is_exact = *message.subject == **name;
            let topic = if is_exact { Arc::clone(name) } else { message.subject.as_str().into() };
            let headers = headers::from_nats(message.headers.as_ref());
            Event { headers, ..Event::new(topic, message.payload) }
        });
    }

    fn dispatch_ready(&mut self, session: &mut ClientSession, most: usize) {
        for _ in 0..most {
            let Some(Some(incoming)) = session.messages.next().now_or_never() else { break };
            self.dispatch(incoming, session);
        }
    }

    /// Opens a stream, and makes subscriptions for its new subjects.
    async fn open_stream(
        &mut self,
        SubscribeCommand { wanted: StreamRequest { topics, start, .. }, reply }: SubscribeCommand,
        session: &mut ClientSession,
    ) {
        let names = self.subjects.distinct_names(topics);
        let mut made = HashMap::new();
        for name in names.iter().filter(|name| self.subjects.get(name).is_none()) {
            match session.subscribe(name).await {
                Ok((sid, abort)) => {
                    made.insert(Arc::clone(name), SubjectSubscription { sid, abort });
                }
                Err(reason) => {
                    made.into_values().for_each(|subject| subject.abort.abort());
                    let _ = reply.send(Err(reason.into()));
                    return;
                }
            }
        }
        let opened = self.subjects.open(names, &start, |name| {
            made.remove(name).expect("every name without a subscription has got one")
        });
        self.dropped.push(opened.dropped);
        session.confirm(opened.stream, reply).await;
    }

    /// Closes a stream that was dropped, and unsubscribes from subjects that no other stream uses.
    fn close_stream(&mut self, id: u64) {
        for (_, subject) in self.subjects.close(id) {
            subject.abort.abort();
        }
    }

    /// Handles the library's notices other than connecting and disconnecting.
    fn handle_notice(&mut self, notice: ClientEvent) {
        match notice {
            ClientEvent::SlowConsumer(sid) => {
                ProviderStats::add(&self.stats.dropped, 1);
                // An unknown number was unsubscribed, or belongs to a JetStream reader, which counts its own messages.
                let known = self.subjects.iter_mut().find(|(_, subject)| subject.sid == sid);
                if let Some(name) = known.map(|(name, _)| Arc::clone(name)) {
                    self.subjects.announce_gap_in(&name);
                }
            }
            ClientEvent::ServerError(error) => {
                self.stats.record_error(ErrorKind::Other);
                let subject = match &error {
                    ServerError::Other(text) => quoted_part(text),
                    _ => None,
                };
                let (topic, reason) = (subject.unwrap_or_default(), error.to_string());
                self.log.log_refusal(topic, &reason, "the broker reports an error");
                if let ServerError::Other(text) = &error
                    && let Some(subject) = refused_subscription(text)
                {
                    for (_, unused) in self.subjects.end_refused(subject, text) {
                        unused.abort.abort();
                    }
                }
                if subject.is_none() {
                    self.latest_error = Some((Instant::now(), reason.into()));
                }
            }
            ClientEvent::ClientError(error) => {
                self.stats.record_error(ErrorKind::Other);
                let provider = self.log.provider();
                tracing::debug!(provider, %error, "the client library reports an error");
            }
            ClientEvent::LameDuckMode => {
                tracing::info!(provider = self.log.provider(), "the broker is about to shut down");
            }
            // These are handled where the session is served. The router never drains a client.
            ClientEvent::Connected
            | ClientEvent::Disconnected
            | ClientEvent::Draining
            | ClientEvent::Closed => {}
        }
    }
}

/// Returns the subject in `Permissions Violation for Subscription to "orders.>"`.
fn refused_subscription(error: &str) -> Option<&str> {
    let (_, rest) = error.split_once("Permissions Violation for Subscription to \"")?;
    rest.split_once('"').map(|(subject, _)| subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_subject_is_parsed_from_the_brokers_message() {
        let text = r#"Permissions Violation for Subscription to "orders.>""#;
        assert_eq!(refused_subscription(text), Some("orders.>"));
        let queue = r#"Permissions Violation for Subscription to "orders" using queue "q""#;
        assert_eq!(refused_subscription(queue), Some("orders"));
        let publication = r#"Permissions Violation for Publish to "x""#;
        assert_eq!(refused_subscription(publication), None);
    }
}
