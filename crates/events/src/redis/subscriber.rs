//! The task that holds the connection for subscriptions: it subscribes to channels, reconnects after a loss, and
//! announces gaps.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, RedisResult, Value};
use redis_connection::{RedisConnection, error_text, is_refusal};
use tokio::sync::{mpsc, oneshot, watch};

use super::dialer::Dialer;
use super::subscriptions::{PubSubStream, SubscribeBatch, SubscriptionTable, split_patterns};
use crate::connection_state::{ConnectionState, LOST, ServeEnd, SubscribeCommand};
use crate::provider_log::ProviderLog;
use crate::{ErrorKind, EventStream, ProviderState, ProviderStats};

/// The maximum number of channels in one command, which limits the size of commands and responses.
const CHANNELS_PER_COMMAND: usize = 512;

/// The kind of channels that a connection subscribes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SubscriberKind {
    /// Channels and patterns of the whole server or cluster. This connection determines the reported state of the
    /// provider.
    Ordinary,
    /// Sharded channels of one node of a cluster.
    Sharded,
}

/// A stream that waits for the broker's confirmation.
struct UnconfirmedSubscription {
    confirmed_by: u64,
    reply: oneshot::Sender<Result<EventStream, String>>,
    stream: EventStream,
}

/// A batch and its result: the channels that the broker refuses, with its words.
type BatchResult = (SubscribeBatch, RedisResult<Vec<(Arc<str>, String)>>);

/// The task that holds a connection for subscriptions.
pub(super) struct Subscriber {
    kind: SubscriberKind,
    log: Arc<ProviderLog>,
    dialer: Dialer,
    stats: Arc<ProviderStats>,
    state: watch::Sender<ConnectionState<()>>,
    commands: mpsc::Receiver<SubscribeCommand>,
    /// The table of subscriptions. It is shared with the connection's reader, which delivers events to the streams.
    channels: Arc<Mutex<SubscriptionTable>>,
    /// Futures that resolve to the id of a stream that was dropped.
    dropped: FuturesUnordered<BoxFuture<'static, u64>>,
    was_connected: bool,
}

impl Subscriber {
    pub(super) fn new(
        kind: SubscriberKind,
        log: Arc<ProviderLog>,
        dialer: Dialer,
        queue_events: usize,
        stats: Arc<ProviderStats>,
        state: watch::Sender<ConnectionState<()>>,
        commands: mpsc::Receiver<SubscribeCommand>,
    ) -> Self {
        let channels = SubscriptionTable::new(queue_events, Arc::clone(&stats));
        Self {
            kind,
            log,
            dialer,
            stats,
            state,
            commands,
            channels: Arc::new(Mutex::new(channels)),
            dropped: FuturesUnordered::new(),
            was_connected: false,
        }
    }

    /// Runs until the provider is dropped.
    pub(super) async fn run(mut self) {
        while let Some(attempt) = self.connect().await {
            let lost = match attempt {
                Ok(connection) => match self.serve(connection).await {
                    ServeEnd::ConnectionLost(reason) => reason,
                    ServeEnd::ProviderDropped => break,
                },
                Err(reason) => reason,
            };
            self.state.send_replace(ConnectionState::Disconnected(lost));
        }
        lock(&self.channels).end_all();
    }

    /// Makes one attempt, and rejects commands meanwhile. Returns `None` if the provider was dropped.
    async fn connect(&mut self) -> Option<Result<RedisConnection, Box<str>>> {
        let channels = Arc::clone(&self.channels);
        let pushed = move |info: PushInfo| {
            lock(&channels).dispatch_push(info);
            Ok::<_, std::convert::Infallible>(())
        };
        let connecting = self.dialer.connect(Some(pushed));
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                result = &mut connecting => return Some(result),
                command = self.commands.recv() => {
                    let reason = self.state.borrow().reason();
                    let _ = command?.reply.send(Err(reason));
                }
                Some(stream) = self.dropped.next() => lock(&self.channels).close(stream),
            }
        }
    }

    /// Serves the connection until it is lost. It counts as connected when all earlier channels are in force again.
    async fn serve(&mut self, mut connection: RedisConnection) -> ServeEnd {
        let multiplexed = connection.multiplexed.clone();
        let mut unconfirmed: VecDeque<UnconfirmedSubscription> = VecDeque::new();
        let mut batch: Option<BoxFuture<'static, BatchResult>> = None;
        let mut is_up = false;
        let lost = {
            let connection_lost = connection.wait_lost();
            tokio::pin!(connection_lost);
            let moved = lock(&self.channels).moved();
            loop {
                if batch.is_none() {
                    let next = lock(&self.channels).next_batch();
                    match next {
                        Some(next) => {
                            batch =
                                Some(request_batch(multiplexed.clone(), self.kind, next).boxed());
                        }
                        None if !is_up => {
                            is_up = true;
                            self.on_connected();
                        }
                        None => {}
                    }
                }
                let confirmation = async {
                    match &mut batch {
                        Some(batch) => batch.await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    reason = &mut connection_lost => break ServeEnd::ConnectionLost(reason),
                    // The library takes an unrequested message of the server for a response, so that responses cannot
                    // be told apart any more.
                    () = moved.notified() => break ServeEnd::ConnectionLost("a slot has moved".into()),
                    (asked, result) = confirmation => {
                        batch = None;
                        match result {
                            Ok(refused) => self.on_confirmed(&asked, refused, &mut unconfirmed),
                            Err(error) => break ServeEnd::ConnectionLost(error_text(&error).into()),
                        }
                    }
                    command = self.commands.recv() => match command {
                        None => break ServeEnd::ProviderDropped,
                        Some(command) => self.open_stream(command, &mut unconfirmed),
                    },
                    Some(stream) = self.dropped.next() => lock(&self.channels).close(stream),
                }
            }
        };
        // Events that were read are delivered before the gap, and none after it.
        connection.close().await;
        if let ServeEnd::ConnectionLost(reason) = &lost {
            self.on_disconnected(is_up, reason);
        }
        for stream in unconfirmed {
            let _ = stream.reply.send(Err(LOST.to_owned()));
        }
        lost
    }

    fn open_stream(
        &mut self,
        SubscribeCommand { wanted, reply }: SubscribeCommand,
        unconfirmed: &mut VecDeque<UnconfirmedSubscription>,
    ) {
        let PubSubStream { stream, dropped, confirmed_by } = lock(&self.channels).open(wanted);
        self.dropped.push(dropped);
        if confirmed_by == 0 {
            // If the requester is gone, the stream is dropped with the message, and thereby closed.
            let _ = reply.send(Ok(stream));
        } else {
            unconfirmed.push_back(UnconfirmedSubscription { confirmed_by, reply, stream });
        }
    }

    fn on_confirmed(
        &mut self,
        batch: &SubscribeBatch,
        refused: Vec<(Arc<str>, String)>,
        unconfirmed: &mut VecDeque<UnconfirmedSubscription>,
    ) {
        let mut channels = lock(&self.channels);
        for (name, reason) in refused {
            self.stats.record_error(ErrorKind::Subscription);
            self.log.log_refusal(&name, &reason, "the broker refuses a subscription");
            channels.end_refused(&name, &reason);
        }
        let number = channels.on_confirmed(batch);
        drop(channels);
        // Streams are not in the order of their batches, because one may have joined a batch that was already sent.
        let (confirmed, waiting) = std::mem::take(unconfirmed)
            .into_iter()
            .partition::<VecDeque<_>, _>(|stream| stream.confirmed_by <= number);
        *unconfirmed = waiting;
        for stream in confirmed {
            let _ = stream.reply.send(Ok(stream.stream));
        }
    }

    fn on_connected(&mut self) {
        if self.was_connected {
            ProviderStats::add(&self.stats.reconnects, 1);
        }
        self.was_connected = true;
        self.dialer.on_connected();
        if self.kind == SubscriberKind::Ordinary {
            self.stats.set_state(ProviderState::Connected);
        }
        self.state.send_replace(ConnectionState::Connected(()));
    }

    fn on_disconnected(&mut self, was_up: bool, reason: &str) {
        let streams = lock(&self.channels).on_lost();
        self.dialer.on_lost(reason, Some(streams));
        if was_up && self.kind == SubscriberKind::Ordinary {
            self.stats.set_state(ProviderState::Disconnected);
        }
    }
}

fn lock(channels: &Mutex<SubscriptionTable>) -> MutexGuard<'_, SubscriptionTable> {
    // No code that can panic runs while the lock is held. Even if it did, the table would be consistent.
    channels.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a batch to the broker. The error means that the connection cannot be used any more.
async fn request_batch(
    connection: MultiplexedConnection,
    kind: SubscriberKind,
    batch: SubscribeBatch,
) -> BatchResult {
    let result = send_batch(&connection, kind, &batch).await;
    (batch, result)
}

async fn send_batch(
    connection: &MultiplexedConnection,
    kind: SubscriberKind,
    batch: &SubscribeBatch,
) -> RedisResult<Vec<(Arc<str>, String)>> {
    for names in batch.unsubscribe.chunks(CHANNELS_PER_COMMAND) {
        match kind {
            SubscriberKind::Ordinary => unsubscribe(connection.clone(), names).await?,
            SubscriberKind::Sharded => {
                for result in send_each(connection, "SUNSUBSCRIBE", names).await {
                    // If a slot has moved, its channels were already unsubscribed.
                    result.or_else(|error| if is_refusal(&error) { Ok(()) } else { Err(error) })?;
                }
            }
        }
    }
    let mut refused = Vec::new();
    for names in batch.subscribe.chunks(CHANNELS_PER_COMMAND) {
        let results = match kind {
            SubscriberKind::Ordinary => match subscribe(connection.clone(), names).await {
                Err(error) if is_refusal(&error) => {
                    // One channel that the user may not read fails the whole command, so each is subscribed to on its
                    // own.
                    let mut results = Vec::with_capacity(names.len());
                    for name in names {
                        let name = std::slice::from_ref(name);
                        results.push(subscribe(connection.clone(), name).await);
                    }
                    results
                }
                result => {
                    result?;
                    continue;
                }
            },
            // One command accepts only channels of one slot.
            SubscriberKind::Sharded => send_each(connection, "SSUBSCRIBE", names).await,
        };
        for (name, result) in names.iter().zip(results) {
            match result {
                Err(error) if is_refusal(&error) => {
                    refused.push((Arc::clone(name), error_text(&error)));
                }
                result => result?,
            }
        }
    }
    Ok(refused)
}

/// Sends a command for each of the names, all at once.
async fn send_each(
    connection: &MultiplexedConnection,
    command: &str,
    names: &[Arc<str>],
) -> Vec<RedisResult<()>> {
    let asked = names.iter().map(|name| async {
        let mut command = redis::cmd(command);
        command.arg(&**name);
        match connection.clone().send_packed_command(&command).await? {
            Value::ServerError(error) => Err(error.into()),
            _ => Ok(()),
        }
    });
    futures_util::future::join_all(asked).await
}

async fn subscribe(mut connection: MultiplexedConnection, names: &[Arc<str>]) -> RedisResult<()> {
    let (channels, patterns) = split_patterns(names);
    if !channels.is_empty() {
        connection.subscribe(channels).await?;
    }
    if !patterns.is_empty() {
        connection.psubscribe(patterns).await?;
    }
    Ok(())
}

async fn unsubscribe(mut connection: MultiplexedConnection, names: &[Arc<str>]) -> RedisResult<()> {
    let (channels, patterns) = split_patterns(names);
    if !channels.is_empty() {
        connection.unsubscribe(channels).await?;
    }
    if !patterns.is_empty() {
        connection.punsubscribe(patterns).await?;
    }
    Ok(())
}
