//! The task that holds the connection for subscriptions: asks the broker for channels, comes back after a
//! loss, announces gaps.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, RedisResult, Value};
use tokio::sync::{mpsc, oneshot, watch};

use super::Link;
use super::channels::{Batch, Channels, channels_and_patterns};
use super::dialer::Dialer;
use super::session::{LOST, Session, is_refusal, said};
use crate::{ErrorKind, EventStream, ProviderState, ProviderStats, Wanted};

/// Channels named in one command, so that no command and no answer to it is large.
const CHANNELS_PER_COMMAND: usize = 512;

/// What the provider asks of its task.
pub(super) enum Command {
    /// Open a stream; the error says why there is no connection.
    Subscribe { wanted: Wanted, reply: oneshot::Sender<Result<EventStream, String>> },
}

/// What is subscribed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Channels and patterns of the whole server or cluster. Its connection is that of the provider, as far as
    /// state is told.
    All,
    /// Channels of one node of a cluster.
    Sharded,
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
    kind: Kind,
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
        kind: Kind,
        provider: Box<str>,
        dialer: Dialer,
        queue_events: usize,
        stats: Arc<ProviderStats>,
        link: watch::Sender<Link<()>>,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        let channels = Channels::new(queue_events, Arc::clone(&stats));
        Self {
            kind,
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
            let moved = lock(&self.channels).moved();
            loop {
                if batch.is_none() {
                    let next = lock(&self.channels).next_batch();
                    match next {
                        Some(next) => {
                            batch = Some(ask(connection.clone(), self.kind, next).boxed());
                        }
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
                    // What the server says of itself is taken for an answer by the library, so that answers
                    // cannot be told apart any more.
                    () = moved.notified() => break Lost::Connection("a slot has moved".into()),
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
            self.stats.record_error(ErrorKind::Subscription);
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
        if self.kind == Kind::All {
            self.stats.set_state(ProviderState::Connected);
        }
        self.link.send_replace(Link::Up(()));
        tracing::info!(provider = %self.provider, connections = self.connections, "connected to the broker");
    }

    fn down(&mut self, was_up: bool) {
        let streams = lock(&self.channels).lost();
        if was_up {
            if self.kind == Kind::All {
                self.stats.set_state(ProviderState::Disconnected);
            }
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
async fn ask(connection: MultiplexedConnection, kind: Kind, batch: Batch) -> Confirmation {
    let result = ask_all(&connection, kind, &batch).await;
    (batch, result)
}

async fn ask_all(
    connection: &MultiplexedConnection,
    kind: Kind,
    batch: &Batch,
) -> RedisResult<Vec<(Arc<str>, String)>> {
    for names in batch.unsubscribe.chunks(CHANNELS_PER_COMMAND) {
        match kind {
            Kind::All => unsubscribe(connection.clone(), names).await?,
            Kind::Sharded => {
                for result in one_by_one(connection, "SUNSUBSCRIBE", names).await {
                    // A slot that has moved was left with it.
                    result.or_else(|error| if is_refusal(&error) { Ok(()) } else { Err(error) })?;
                }
            }
        }
    }
    let mut refused = Vec::new();
    for names in batch.subscribe.chunks(CHANNELS_PER_COMMAND) {
        let results = match kind {
            Kind::All => match subscribe(connection.clone(), names).await {
                Err(error) if is_refusal(&error) => {
                    // One channel that the user may not read fails the whole command: each on its own then.
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
            // One command takes channels of one slot only.
            Kind::Sharded => one_by_one(connection, "SSUBSCRIBE", names).await,
        };
        for (name, result) in names.iter().zip(results) {
            match result {
                Err(error) if is_refusal(&error) => {
                    refused.push((Arc::clone(name), said(&error)));
                }
                result => result?,
            }
        }
    }
    Ok(refused)
}

/// A command for each of the names, all on their way at once.
async fn one_by_one(
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
    let (channels, patterns) = channels_and_patterns(names);
    if !channels.is_empty() {
        connection.subscribe(channels).await?;
    }
    if !patterns.is_empty() {
        connection.psubscribe(patterns).await?;
    }
    Ok(())
}

async fn unsubscribe(mut connection: MultiplexedConnection, names: &[Arc<str>]) -> RedisResult<()> {
    let (channels, patterns) = channels_and_patterns(names);
    if !channels.is_empty() {
        connection.unsubscribe(channels).await?;
    }
    if !patterns.is_empty() {
        connection.punsubscribe(patterns).await?;
    }
    Ok(())
}
