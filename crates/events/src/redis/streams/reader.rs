//! The task that reads streams. It has two connections: one on which a blocking read waits for all requested keys,
//! shared by all streams, and one for all other commands, which also wakes the first when a stream needs more keys.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult};
use redis_connection::{NO_PUSHES, RESPONSE_TIMEOUT, RedisConnection, error_text};
use tokio::sync::{mpsc, oneshot, watch};

use super::commands::{self, KeyStartError, is_about_the_key};
use super::stream_table::{CatchUpRead, ENTRIES_PER_READ, KeyRead, KeyStart, StreamTable};
use crate::connection_state::{ConnectionState, ServeEnd};
use crate::provider_log::ProviderLog;
use crate::redis::dialer::Dialer;
use crate::{ErrorKind, EventStream, ProviderStats, Start};

/// The time for which a read waits before it is sent again, which shows that the server is still there.
const READ_WAIT: Duration = Duration::from_secs(5);

/// The same time for servers that do not allow waking reads. A stream of another key then waits that long for its first
/// event.
const READ_WAIT_UNWAKEABLE: Duration = Duration::from_millis(100);

/// The approximate bytes of entries in one response, which a reader holds at a time.
const READ_BYTES: usize = 4 * 1024 * 1024;

/// The maximum number of catch-up reads and openings that are processed at a time.
const CONCURRENT_QUERIES_MAX: usize = 32;

/// The command to open a stream.
pub(in crate::redis) struct OpenStreamCommand {
    /// The keys with their partition numbers.
    pub(in crate::redis) keys: Vec<(u32, Arc<str>)>,
    pub(in crate::redis) start: Start,
    pub(in crate::redis) reply: oneshot::Sender<Result<EventStream, StreamOpenError>>,
    /// Held as long as the stream exists.
    pub(in crate::redis) in_use: Arc<()>,
}

/// The reason why a stream was not opened.
pub(in crate::redis) enum StreamOpenError {
    Unavailable(String),
    Refused(String),
    Gone,
}

/// The result of a query on the second connection.
enum QueryResult {
    Opened(OpenStreamCommand, Result<Vec<KeyStart>, KeyStartError>),
    CatchUp(CatchUpRead, RedisResult<KeyRead>),
}

/// The task that reads the streams of one server, or of one slot of a cluster.
pub(in crate::redis) struct RedisStreamReader {
    log: Arc<ProviderLog>,
    dialer: Dialer,
    stats: Arc<ProviderStats>,
    state: watch::Sender<ConnectionState<()>>,
    commands_in: mpsc::Receiver<OpenStreamCommand>,
    table: StreamTable,
    /// Futures that resolve to the id of a stream that was dropped.
    dropped: FuturesUnordered<BoxFuture<'static, u64>>,
    /// Futures that resolve to the id of a stream that has room again.
    full: FuturesUnordered<BoxFuture<'static, u64>>,
    /// The size of the largest recent entry.
    entry_bytes: usize,
    was_connected: bool,
}

impl RedisStreamReader {
    pub(in crate::redis) fn new(
        log: Arc<ProviderLog>,
        dialer: Dialer,
        queue_events: usize,
        stats: Arc<ProviderStats>,
        state: watch::Sender<ConnectionState<()>>,
        commands_in: mpsc::Receiver<OpenStreamCommand>,
    ) -> Self {
        let table = StreamTable::new(queue_events, Arc::clone(&stats));
        Self {
            log,
            dialer,
            stats,
            state,
            commands_in,
            table,
            dropped: FuturesUnordered::new(),
            full: FuturesUnordered::new(),
            entry_bytes: 0,
            was_connected: false,
        }
    }

    /// Runs until the provider is dropped.
    pub(in crate::redis) async fn run(mut self) {
        while let Some(attempt) = self.connect().await {
            let lost = match attempt {
                Ok((asking, reading)) => match self.serve(asking, reading).await {
                    ServeEnd::ConnectionLost(reason) => reason,
                    ServeEnd::ProviderDropped => break,
                },
                Err(reason) => reason,
            };
            self.state.send_replace(ConnectionState::Disconnected(lost));
        }
        self.table.end_all();
    }

    /// Makes one attempt to open both connections, and rejects commands meanwhile. Returns `None` if the provider was
    /// dropped.
    async fn connect(&mut self) -> Option<Result<(RedisConnection, RedisConnection), Box<str>>> {
        let connecting = async {
            let asking = self.dialer.connect(NO_PUSHES).await?;
            let reading = asking.open_another(READ_WAIT + RESPONSE_TIMEOUT).await;
            Ok((asking, reading.inspect_err(|reason| self.dialer.on_failed_attempt(reason))?))
        };
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                result = &mut connecting => return Some(result),
                open = self.commands_in.recv() => {
                    let reason = self.state.borrow().reason();
                    let _ = open?.reply.send(Err(StreamOpenError::Unavailable(reason)));
                }
                Some(stream) = self.dropped.next() => self.table.close(stream),
                Some(stream) = self.full.next() => self.table.on_capacity(stream),
            }
        }
    }

    /// Serves the connections until one is lost.
    async fn serve(&mut self, mut asking: RedisConnection, reading: RedisConnection) -> ServeEnd {
        let lost = match self.check_keys(&asking.multiplexed).await {
            Ok(()) => {
                self.on_connected();
                self.read(&mut asking, reading.multiplexed.clone()).await
            }
            Err(error) => ServeEnd::ConnectionLost(error_text(&error).into()),
        };
        asking.close().await;
        reading.close().await;
        self.table.on_lost();
        if let ServeEnd::ConnectionLost(reason) = &lost {
            // Reading continues at the same positions.
            self.dialer.on_lost(reason, None);
        }
        lost
    }

    /// Checks after a reconnect that the keys still have the entries behind the positions of all streams.
    async fn check_keys(&mut self, connection: &MultiplexedConnection) -> RedisResult<()> {
        for (key, state) in commands::query_stream_infos(connection, &self.table.keys()).await? {
            match state {
                Ok(state) => self.table.check_key(&key, &state),
                Err(reason) => self.end_refused(&key, &reason),
            }
        }
        Ok(())
    }

    fn on_connected(&mut self) {
        if self.was_connected {
            ProviderStats::add(&self.stats.reconnects, 1);
        }
        self.was_connected = true;
        self.dialer.on_connected();
        self.state.send_replace(ConnectionState::Connected(()));
    }

    async fn read(
        &mut self,
        asking: &mut RedisConnection,
        blocked: MultiplexedConnection,
    ) -> ServeEnd {
        let connection = asking.multiplexed.clone();
        // Not all servers report the id, and not all users may query it.
        let number = commands::query_wakeable_client_id(&blocked, &connection).await;
        let wait = if number.is_some() { READ_WAIT } else { READ_WAIT_UNWAKEABLE };
        let mut reading: Option<BoxFuture<'static, RedisResult<Vec<KeyRead>>>> = None;
        let mut waking: Option<BoxFuture<'static, RedisResult<()>>> = None;
        let mut queries: FuturesUnordered<BoxFuture<'static, QueryResult>> =
            FuturesUnordered::new();
        let connection_lost = asking.wait_lost();
        tokio::pin!(connection_lost);
        loop {
            while queries.len() < CONCURRENT_QUERIES_MAX {
                let mut full = Vec::new();
                let request = self.table.next_catch_up_read(self.entries_per_read(1), &mut full);
                self.full.extend(full);
                let Some(request) = request else { break };
                let connection = connection.clone();
                queries.push(
                    async move {
                        let read = commands::read_catch_up(connection, &request).await;
                        QueryResult::CatchUp(request, read)
                    }
                    .boxed(),
                );
            }
            if reading.is_none() {
                let keys = self.table.start_live_read();
                if !keys.is_empty() {
                    let (blocked, connection) = (blocked.clone(), connection.clone());
                    let count = self.entries_per_read(keys.len());
                    reading = Some(
                        commands::read_blocked(blocked, connection, keys, count, wait).boxed(),
                    );
                }
            } else if let Some(number) = number
                && self.table.is_live_read_outdated()
                && waking.is_none()
            {
                waking = Some(commands::wake_blocked_read(connection.clone(), number).boxed());
            }
            tokio::select! {
                reason = &mut connection_lost => return ServeEnd::ConnectionLost(reason),
                result = wait_for(&mut reading) => {
                    reading = None;
                    waking = None;
                    self.table.stop_live_read();
                    let done = match result {
                        Ok(reads) => {
                            for read in &reads {
                                self.measure_entries(read);
                                self.table.on_live_read(read);
                            }
                            Ok(())
                        }
                        Err(error) => self.on_read_error(&connection, &error).await,
                    };
                    if let Err(reason) = done {
                        return ServeEnd::ConnectionLost(reason);
                    }
                }
                result = wait_for(&mut waking) => {
                    // Waking this read once is enough.
                    waking = Some(std::future::pending().boxed());
                    if let Err(error) = result {
                        return ServeEnd::ConnectionLost(error_text(&error).into());
                    }
                }
                Some(result) = queries.next() => {
                    if let Err(reason) = self.on_query_result(&connection, result).await {
                        return ServeEnd::ConnectionLost(reason);
                    }
                }
                open = self.commands_in.recv(), if queries.len() < CONCURRENT_QUERIES_MAX => {
                    let Some(open) = open else { return ServeEnd::ProviderDropped };
                    let connection = connection.clone();
                    queries.push(
                        async move {
                            let starts = commands::query_key_starts(connection, &open.keys, &open.start).await;
                            QueryResult::Opened(open, starts)
                        }
                        .boxed(),
                    );
                }
                Some(stream) = self.dropped.next() => self.table.close(stream),
                Some(stream) = self.full.next() => self.table.on_capacity(stream),
            }
        }
    }

    async fn on_query_result(
        &mut self,
        connection: &MultiplexedConnection,
        result: QueryResult,
    ) -> Result<(), Box<str>> {
        match result {
            QueryResult::Opened(open, Ok(starts)) => {
                let (id, stream, gone) = self.table.open(open.keys, starts, open.in_use);
                self.dropped.push(gone.map(move |()| id).boxed());
                // If the requester is gone, the stream is dropped with the message, and thereby closed.
                let _ = open.reply.send(Ok(stream));
            }
            QueryResult::Opened(open, Err(failure)) => {
                let (why, lost) = match failure {
                    KeyStartError::Gone => (StreamOpenError::Gone, None),
                    KeyStartError::Refused(reason) => (StreamOpenError::Refused(reason), None),
                    KeyStartError::Lost(reason) => {
                        (StreamOpenError::Unavailable(reason.to_string()), Some(reason))
                    }
                };
                self.stats.record_error(ErrorKind::Subscription);
                let _ = open.reply.send(Err(why));
                return lost.map_or(Ok(()), Err);
            }
            QueryResult::CatchUp(request, Ok(read)) => {
                self.measure_entries(&read);
                self.table.on_catch_up_read(&request, &read);
            }
            QueryResult::CatchUp(_, Err(error)) => {
                return self.on_read_error(connection, &error).await;
            }
        }
        Ok(())
    }

    /// Handles a failed read. If the broker refuses some of the keys, ends their streams; otherwise returns the reason
    /// why the connection cannot be used.
    async fn on_read_error(
        &mut self,
        connection: &MultiplexedConnection,
        error: &RedisError,
    ) -> Result<(), Box<str>> {
        let reason: Box<str> = error_text(error).into();
        if !is_about_the_key(error) {
            return Err(reason);
        }
        let states = commands::query_stream_infos(connection, &self.table.keys()).await;
        let mut refused = 0;
        for (key, state) in states.map_err(|error| Box::<str>::from(error_text(&error)))? {
            if let Err(reason) = state {
                self.end_refused(&key, &reason);
                refused += 1;
            }
        }
        // If no key is refused, the failure counts as a lost connection, so that the next attempt is delayed.
        if refused == 0 { Err(reason) } else { Ok(()) }
    }

    fn end_refused(&mut self, key: &str, reason: &str) {
        self.stats.record_error(ErrorKind::Subscription);
        let streams = self.table.end_refused(key, reason);
        self.log.log_refusal(key, reason, "the broker refuses a stream");
        let (provider, key) = (self.log.provider(), self.stats.masked_topic(key));
        tracing::debug!(provider, key, streams, "streams have ended");
    }

    /// Returns the number of entries of each key to read at once, for that number of keys.
    fn entries_per_read(&self, keys: usize) -> usize {
        (READ_BYTES / keys.max(1) / self.entry_bytes.max(1)).clamp(1, ENTRIES_PER_READ)
    }

    fn measure_entries(&mut self, read: &KeyRead) {
        let largest =
            read.entries.iter().map(super::entry::StreamEntry::byte_size).max().unwrap_or(0);
        self.entry_bytes = largest.max(self.entry_bytes - self.entry_bytes / 8);
    }
}

/// Waits for the future, or forever if there is none.
async fn wait_for<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
