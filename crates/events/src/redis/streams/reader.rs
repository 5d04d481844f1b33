//! The task that reads streams: one connection on which a read of all wanted keys waits, shared by all who want
//! them, and one on which everything else is asked, also to wake the first when more is wanted.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult};
use tokio::sync::{mpsc, oneshot, watch};

use super::commands::{self, OpenFailure, is_about_the_key};
use super::table::{Begin, ENTRIES_PER_READ, KeyRead, Piece, Table};
use crate::redis::Link;
use crate::redis::dialer::Dialer;
use crate::redis::session::{LOST, NO_PUSHES, RESPONSE_TIMEOUT, Session, said};
use crate::{ErrorKind, EventStream, ProviderStats, Start};

/// How long a read waits before it is asked anew, which shows that the server is still there.
const READ_WAIT: Duration = Duration::from_secs(5);

/// The same where the server does not let reads be woken: then whoever subscribes to another key waits that long
/// for its first event.
const READ_WAIT_UNWAKEABLE: Duration = Duration::from_millis(100);

/// Bytes of entries in one answer, about: what a reader holds at a time.
const READ_BYTES: usize = 4 * 1024 * 1024;

/// Pieces and openings on their way at a time.
const QUESTIONS_MAX: usize = 32;

/// A stream to be opened.
pub(in crate::redis) struct Open {
    /// Keys and the numbers of their lanes.
    pub(in crate::redis) lanes: Vec<(u32, Arc<str>)>,
    pub(in crate::redis) start: Start,
    pub(in crate::redis) reply: oneshot::Sender<Result<EventStream, NotOpened>>,
    /// Held as long as the stream is there.
    pub(in crate::redis) in_use: Arc<()>,
}

/// Why it was not opened.
pub(in crate::redis) enum NotOpened {
    Unavailable(String),
    Refused(String),
    Gone,
}

/// What was asked beside the blocked read.
enum Answer {
    Begins(Open, Result<Vec<Begin>, OpenFailure>),
    Piece(Piece, RedisResult<KeyRead>),
}

/// Why serving a connection ended.
enum Lost {
    Connection(Box<str>),
    /// Nobody can subscribe any more.
    Provider,
}

pub(in crate::redis) struct Reader {
    provider: Box<str>,
    dialer: Dialer,
    stats: Arc<ProviderStats>,
    link: watch::Sender<Link<()>>,
    opens: mpsc::Receiver<Open>,
    table: Table,
    /// Resolve to the number of a stream that was dropped.
    dropped: FuturesUnordered<BoxFuture<'static, u64>>,
    /// Resolve to the number of a stream that has room again.
    full: FuturesUnordered<BoxFuture<'static, u64>>,
    /// Of the largest entry lately.
    entry_bytes: usize,
    connections: u64,
}

impl Reader {
    pub(in crate::redis) fn new(
        provider: Box<str>,
        dialer: Dialer,
        queue_events: usize,
        stats: Arc<ProviderStats>,
        link: watch::Sender<Link<()>>,
        opens: mpsc::Receiver<Open>,
    ) -> Self {
        let table = Table::new(queue_events, Arc::clone(&stats));
        Self {
            provider,
            dialer,
            stats,
            link,
            opens,
            table,
            dropped: FuturesUnordered::new(),
            full: FuturesUnordered::new(),
            entry_bytes: 0,
            connections: 0,
        }
    }

    /// Until the provider is dropped.
    pub(in crate::redis) async fn run(mut self) {
        while let Some(attempt) = self.attempt().await {
            let lost = match attempt {
                Ok((asking, reading)) => match self.serve(asking, reading).await {
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
        self.table.end();
    }

    /// One attempt to make both connections. Answers requests meanwhile. `None`: the provider was dropped.
    async fn attempt(&mut self) -> Option<Result<(Session, Session), Box<str>>> {
        let connecting = async {
            let asking = self.dialer.attempt(NO_PUSHES).await?;
            let reading = asking.another(READ_WAIT + RESPONSE_TIMEOUT).await;
            Ok((asking, reading.inspect_err(|_| self.dialer.was_lost())?))
        };
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                result = &mut connecting => return Some(result),
                open = self.opens.recv() => {
                    let reason = match &*self.link.borrow() {
                        Link::Away(reason) => reason.to_string(),
                        Link::Up(()) => LOST.to_owned(),
                    };
                    let _ = open?.reply.send(Err(NotOpened::Unavailable(reason)));
                }
                Some(stream) = self.dropped.next() => self.table.close(stream),
                Some(stream) = self.full.next() => self.table.has_room(stream),
            }
        }
    }

    /// Works with the connections until one is lost.
    async fn serve(&mut self, mut asking: Session, reading: Session) -> Lost {
        let lost = match self.check(&asking.connection).await {
            Ok(()) => {
                self.up();
                self.read(&mut asking, reading.connection.clone()).await
            }
            Err(error) => Lost::Connection(said(&error).into()),
        };
        asking.close().await;
        reading.close().await;
        self.table.lost();
        if let Lost::Connection(reason) = &lost {
            tracing::warn!(
                provider = %self.provider, %reason,
                "lost the connection to the broker's streams; reading goes on where it was when it is back"
            );
        }
        lost
    }

    /// Are all keys still as they were read?
    async fn check(&mut self, connection: &MultiplexedConnection) -> RedisResult<()> {
        for (key, state) in commands::states(connection, &self.table.keys()).await? {
            match state {
                Ok(state) => self.table.check(&key, &state),
                Err(reason) => self.refuse(&key, &reason),
            }
        }
        Ok(())
    }

    fn up(&mut self) {
        self.connections += 1;
        if self.connections > 1 {
            ProviderStats::add(&self.stats.reconnects, 1);
        }
        self.dialer.succeeded();
        self.link.send_replace(Link::Up(()));
        tracing::debug!(provider = %self.provider, connections = self.connections, "reading streams");
    }

    async fn read(&mut self, asking: &mut Session, blocked: MultiplexedConnection) -> Lost {
        let connection = asking.connection.clone();
        // Not all servers tell, and not all users may ask.
        let number = commands::wakeable(&blocked, &connection).await;
        let wait = if number.is_some() { READ_WAIT } else { READ_WAIT_UNWAKEABLE };
        let mut reading: Option<BoxFuture<'static, RedisResult<Vec<KeyRead>>>> = None;
        let mut waking: Option<BoxFuture<'static, RedisResult<()>>> = None;
        let mut answers: FuturesUnordered<BoxFuture<'static, Answer>> = FuturesUnordered::new();
        let session_lost = asking.lost();
        tokio::pin!(session_lost);
        loop {
            while answers.len() < QUESTIONS_MAX {
                let mut full = Vec::new();
                let piece = self.table.next_piece(self.count(1), &mut full);
                self.full.extend(full);
                let Some(piece) = piece else { break };
                let connection = connection.clone();
                answers.push(
                    async move {
                        let read = commands::read_piece(connection, &piece).await;
                        Answer::Piece(piece, read)
                    }
                    .boxed(),
                );
            }
            if reading.is_none() {
                let keys = self.table.start_reading();
                if !keys.is_empty() {
                    let (blocked, connection) = (blocked.clone(), connection.clone());
                    let count = self.count(keys.len());
                    reading =
                        Some(commands::read_new(blocked, connection, keys, count, wait).boxed());
                }
            } else if let Some(number) = number
                && self.table.wants_more()
                && waking.is_none()
            {
                waking = Some(commands::wake(connection.clone(), number).boxed());
            }
            tokio::select! {
                reason = &mut session_lost => return Lost::Connection(reason),
                result = some(&mut reading) => {
                    reading = None;
                    waking = None;
                    self.table.stop_reading();
                    let done = match result {
                        Ok(reads) => {
                            for read in &reads {
                                self.measure(read);
                                self.table.read_live(read);
                            }
                            Ok(())
                        }
                        Err(error) => self.failed(&connection, &error).await,
                    };
                    if let Err(reason) = done {
                        return Lost::Connection(reason);
                    }
                }
                result = some(&mut waking) => {
                    // Once is enough for this read.
                    waking = Some(std::future::pending().boxed());
                    if let Err(error) = result {
                        return Lost::Connection(said(&error).into());
                    }
                }
                Some(answer) = answers.next() => {
                    if let Err(reason) = self.answered(&connection, answer).await {
                        return Lost::Connection(reason);
                    }
                }
                open = self.opens.recv(), if answers.len() < QUESTIONS_MAX => {
                    let Some(open) = open else { return Lost::Provider };
                    let connection = connection.clone();
                    answers.push(
                        async move {
                            let begins = commands::begins(connection, &open.lanes, &open.start).await;
                            Answer::Begins(open, begins)
                        }
                        .boxed(),
                    );
                }
                Some(stream) = self.dropped.next() => self.table.close(stream),
                Some(stream) = self.full.next() => self.table.has_room(stream),
            }
        }
    }

    async fn answered(
        &mut self,
        connection: &MultiplexedConnection,
        answer: Answer,
    ) -> Result<(), Box<str>> {
        match answer {
            Answer::Begins(open, Ok(begins)) => {
                let (id, stream, gone) = self.table.open(open.lanes, begins, open.in_use);
                self.dropped.push(gone.map(move |()| id).boxed());
                // Nobody there to take it: the stream is dropped with the message, and closed.
                let _ = open.reply.send(Ok(stream));
            }
            Answer::Begins(open, Err(failure)) => {
                let (why, lost) = match failure {
                    OpenFailure::Gone => (NotOpened::Gone, None),
                    OpenFailure::Refused(reason) => (NotOpened::Refused(reason), None),
                    OpenFailure::Lost(reason) => {
                        (NotOpened::Unavailable(reason.to_string()), Some(reason))
                    }
                };
                self.stats.record_error(ErrorKind::Subscription);
                let _ = open.reply.send(Err(why));
                return lost.map_or(Ok(()), Err);
            }
            Answer::Piece(piece, Ok(read)) => {
                self.measure(&read);
                self.table.read_piece(&piece, &read);
            }
            Answer::Piece(_, Err(error)) => return self.failed(connection, &error).await,
        }
        Ok(())
    }

    /// A read failed: because of its keys, and then those who want them hear of it, or because of the server.
    async fn failed(
        &mut self,
        connection: &MultiplexedConnection,
        error: &RedisError,
    ) -> Result<(), Box<str>> {
        let reason: Box<str> = said(error).into();
        if !is_about_the_key(error) {
            return Err(reason);
        }
        let states = commands::states(connection, &self.table.keys()).await;
        let mut refused = 0;
        for (key, state) in states.map_err(|error| Box::<str>::from(said(&error)))? {
            if let Err(reason) = state {
                self.refuse(&key, &reason);
                refused += 1;
            }
        }
        // None of the keys is to blame: as if the connection were lost, which waits before it tries again.
        if refused == 0 { Err(reason) } else { Ok(()) }
    }

    fn refuse(&mut self, key: &str, reason: &str) {
        self.stats.record_error(ErrorKind::Subscription);
        let streams = self.table.refuse(key, reason);
        tracing::warn!(provider = %self.provider, key, reason, streams, "the broker refuses a stream");
    }

    /// How many entries of each of so many keys to read at once.
    fn count(&self, keys: usize) -> usize {
        (READ_BYTES / keys.max(1) / self.entry_bytes.max(1)).clamp(1, ENTRIES_PER_READ)
    }

    fn measure(&mut self, read: &KeyRead) {
        let largest = read.entries.iter().map(super::entry::Entry::bytes).max().unwrap_or(0);
        self.entry_bytes = largest.max(self.entry_bytes - self.entry_bytes / 8);
    }
}

/// What it resolves to, if there is one.
async fn some<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
