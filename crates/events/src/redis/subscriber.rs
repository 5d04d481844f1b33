//! The task that holds the connection for subscriptions: asks the broker for channels, comes back after a
//! loss, announces gaps.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, RedisResult};
use tokio::sync::{mpsc, oneshot, watch};

use super::Link;
use super::channels::{Batch, Channels, channels_and_patterns};
use super::session::{Dialer, LOST, Session, is_refusal, said};
use crate::{EventStream, ProviderState, ProviderStats, Wanted};

/// Channels named in one command, so that no command and no answer to it is large.
const CHANNELS_PER_COMMAND: usize = 512;

/// What the provider asks of its task.
pub(super) enum Command {
    /// Open a stream; the error says why there is no connection.
    Subscribe { wanted: Wanted, reply: oneshot::Sender<Result<EventStream, String>> },
}

/// Why serving a connection ended.
enum Lost {
    /// The connection is gone for good; make another.
    Connection(Box<str>),
    /// The provider was dropped.
    Provider,
}

/// A stream that waits for the broker's word.
struct Unconfirmed {
    settled_by: u64,
    reply: oneshot::Sender<Result<EventStream, String>>,
    stream: EventStream,
}

/// A batch and what became of it: the channels that the broker refuses, with its words.
type Confirmation = (Batch, RedisResult<Vec<(Arc<str>, String)>>);

pub(super) struct Subscriber {
    provider: Box<str>,
    dialer: Dialer,
    stats: Arc<ProviderStats>,
    link: watch::Sender<Link<()>>,
    commands: mpsc::Receiver<Command>,
    /// Shared with the connection's reader, which fills the streams.
    channels: Arc<Mutex<Channels>>,
    /// Resolve to the number of a stream that was dropped.
    dropped: FuturesUnordered<BoxFuture<'static, u64>>,
    connections: u64,
}

impl Subscriber {
    pub(super) fn new(
        provider: Box<str>,
        dialer: Dialer,
        queue_events: usize,
        stats: Arc<ProviderStats>,
        link: watch::Sender<Link<()>>,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        let channels = Channels::new(queue_events, Arc::clone(&stats));
        Self {
            provider,
            dialer,
            stats,
            link,
            commands,
            channels: Arc::new(Mutex::new(channels)),
            dropped: FuturesUnordered::new(),
            connections: 0,
        }
    }

    /// Until the provider is dropped.
    pub(super) async fn run(mut self) {
        while let Some(attempt) = self.attempt().await {
            let lost = match attempt {
                Ok(session) => match self.serve(session).await {
                    Lost::Connection(reason) => {
                        self.dialer.was_lost();
                        reason
                    }
                    Lost::Provider => break,
                },
                Err(reason) => reason,
            };
            self.link.send_replace(Link::Away(lost));
        }
        lock(&self.channels).end();
    }

    /// One attempt. Answers commands meanwhile. `None`: the provider was dropped.
    async fn attempt(&mut self) -> Option<Result<Session, Box<str>>> {
        let channels = Arc::clone(&self.channels);
        let pushed = move |info: PushInfo| {
            lock(&channels).pushed(info);
            Ok::<_, std::convert::Infallible>(())
        };
        let connecting = self.dialer.attempt(Some(pushed));
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                result = &mut connecting => return Some(result),
                command = self.commands.recv() => {
                    let Command::Subscribe { reply, .. } = command?;
                    let reason = match &*self.link.borrow() {
                        Link::Away(reason) => reason.to_string(),
                        Link::Up(()) => LOST.to_owned(),
                    };
                    let _ = reply.send(Err(reason));
                }
                Some(stream) = self.dropped.next() => lock(&self.channels).close(stream),
            }
        }
    }

    /// Works with the connection until it is lost. It counts as connected when all channels that were
    /// wanted before are in force again.
    async fn serve(&mut self, mut session: Session) -> Lost {
        let connection = session.connection.clone();
        let mut unconfirmed: VecDeque<Unconfirmed> = VecDeque::new();
        let mut batch: Option<BoxFuture<'static, Confirmation>> = None;
        let mut is_up = false;
        let lost = {
            let session_lost = session.lost();
            tokio::pin!(session_lost);
            loop {
                if batch.is_none() {
                    let next = lock(&self.channels).next_batch();
                    match next {
                        Some(next) => batch = Some(ask(connection.clone(), next).boxed()),
                        None if !is_up => {
                            is_up = true;
                            self.up();
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
                    reason = &mut session_lost => break Lost::Connection(reason),
                    (asked, result) = confirmation => {
                        batch = None;
                        match result {
                            Ok(refused) => self.confirmed(&asked, refused, &mut unconfirmed),
                            Err(error) => break Lost::Connection(said(&error).into()),
                        }
                    }
                    command = self.commands.recv() => match command {
                        None => break Lost::Provider,
                        Some(Command::Subscribe { wanted, reply }) => {
                            self.open_stream(wanted, reply, &mut unconfirmed);
                        }
                    },
                    Some(stream) = self.dropped.next() => lock(&self.channels).close(stream),
                }
            }
        };
        // What it has read goes out before the gap, and nothing after.
        session.close().await;
        if let Lost::Connection(_) = &lost {
            self.down(is_up);
        }
        for stream in unconfirmed {
            let _ = stream.reply.send(Err(LOST.to_owned()));
        }
        lost
    }

    fn open_stream(
        &mut self,
        wanted: Wanted,
        reply: oneshot::Sender<Result<EventStream, String>>,
        unconfirmed: &mut VecDeque<Unconfirmed>,
    ) {
        let opened = lock(&self.channels).open(wanted);
        let id = opened.id;
        self.dropped.push(opened.gone.map(move |()| id).boxed());
        let (settled_by, stream) = (opened.settled_by, opened.stream);
        if settled_by == 0 {
            // Nobody there to take it: the stream is dropped with the message, and closed.
            let _ = reply.send(Ok(stream));
        } else {
            unconfirmed.push_back(Unconfirmed { settled_by, reply, stream });
        }
    }

    fn confirmed(
        &mut self,
        batch: &Batch,
        refused: Vec<(Arc<str>, String)>,
        unconfirmed: &mut VecDeque<Unconfirmed>,
    ) {
        let mut channels = lock(&self.channels);
        for (name, reason) in refused {
            ProviderStats::add(&self.stats.errors, 1);
            tracing::warn!(provider = %self.provider, channel = %name, reason, "the broker refuses a subscription");
            channels.refuse(&name, &reason);
        }
        let number = channels.confirmed(batch);
        drop(channels);
        // Not in the order of their batches: one may have joined a batch that was on its way.
        let (settled, waiting) = std::mem::take(unconfirmed)
            .into_iter()
            .partition::<VecDeque<_>, _>(|stream| stream.settled_by <= number);
        *unconfirmed = waiting;
        for stream in settled {
            let _ = stream.reply.send(Ok(stream.stream));
        }
    }

    fn up(&mut self) {
        self.connections += 1;
        if self.connections > 1 {
            ProviderStats::add(&self.stats.reconnects, 1);
        }
        self.dialer.succeeded();
        self.stats.set_state(ProviderState::Connected);
        self.link.send_replace(Link::Up(()));
        tracing::info!(provider = %self.provider, connections = self.connections, "connected to the broker");
    }

    fn down(&mut self, was_up: bool) {
        let streams = lock(&self.channels).lost();
        if was_up {
            self.stats.set_state(ProviderState::Disconnected);
            tracing::warn!(
                provider = %self.provider,
                streams,
                "lost the connection to the broker; events may be missing until it is back"
            );
        }
    }
}

fn lock(channels: &Mutex<Channels>) -> MutexGuard<'_, Channels> {
    // No code that can panic runs while the lock is held; if one ever did, the table would still be whole.
    channels.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks the broker for a batch. The error means that the connection is of no use any more.
async fn ask(mut connection: MultiplexedConnection, batch: Batch) -> Confirmation {
    let result = ask_all(&mut connection, &batch).await;
    (batch, result)
}

async fn ask_all(
    connection: &mut MultiplexedConnection,
    batch: &Batch,
) -> RedisResult<Vec<(Arc<str>, String)>> {
    let (channels, patterns) = channels_and_patterns(&batch.unsubscribe);
    for names in channels.chunks(CHANNELS_PER_COMMAND) {
        connection.unsubscribe(names).await?;
    }
    for names in patterns.chunks(CHANNELS_PER_COMMAND) {
        connection.punsubscribe(names).await?;
    }
    let mut refused = Vec::new();
    for names in batch.subscribe.chunks(CHANNELS_PER_COMMAND) {
        match subscribe(connection, names).await {
            Err(error) if is_refusal(&error) => {
                // One channel that the user may not read fails the whole command: each on its own then.
                for name in names {
                    match subscribe(connection, std::slice::from_ref(name)).await {
                        Err(error) if is_refusal(&error) => {
                            refused.push((Arc::clone(name), said(&error)));
                        }
                        result => result?,
                    }
                }
            }
            result => result?,
        }
    }
    Ok(refused)
}

async fn subscribe(connection: &mut MultiplexedConnection, names: &[Arc<str>]) -> RedisResult<()> {
    let (channels, patterns) = channels_and_patterns(names);
    if !channels.is_empty() {
        connection.subscribe(channels).await?;
    }
    if !patterns.is_empty() {
        connection.psubscribe(patterns).await?;
    }
    Ok(())
}
