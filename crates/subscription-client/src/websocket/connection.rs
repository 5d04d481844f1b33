//! The task of one connection: it connects, reads and writes, and connects again after a loss.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use events::Backoff;
use net::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use wire::Machine as _;
use wire::upstream::{ConnectionEnd, UpstreamEvent, UpstreamSettings, UpstreamSocket};

use super::command::ConnectionCommand;
use super::connection_table::{AddedConnection, ConnectionTable};
use super::handshake;
use super::operations::{ConnectionLoss, Operations};
use super::ping_losses::PingLossCount;
use crate::endpoint::SubscriptionEndpoint;
use crate::latest_headers::{AttemptHeaders, PartitionMember};
use crate::stats::{SubscriptionStats, add, subtract};

/// The size of the buffer for reading, and the number of bytes to write at which the machine is not asked for more.
const BUFFER_BYTES: usize = 64 * 1024;

/// The time for writing the rest, such as a close frame, when a connection ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// One connection with its operations.
pub(super) struct ConnectionTask {
    table: Arc<ConnectionTable>,
    endpoint: Arc<SubscriptionEndpoint>,
    machine_settings: Arc<UpstreamSettings>,
    id: u64,
    partition: Box<[u8]>,
    /// Knows the latest headers of this partition: a token may have been renewed.
    latest: PartitionMember,
    commands: mpsc::UnboundedReceiver<ConnectionCommand>,
    operations: Operations,
    attempts: Attempts,
    /// The present connection, once the subgraph has acknowledged it.
    open: Option<OpenConnection>,
    /// True if a result has arrived on the present connection.
    has_result: bool,
    /// The losses after pings when the present connection was opened.
    ping_losses: PingLossCount,
}

/// The attempts to connect again since the connection last worked.
struct Attempts {
    backoff: Backoff,
    /// The number of attempts that were due. Those for new operations in between do not count.
    count: u32,
    /// The time of the next attempt that counts, while there is no connection.
    due: Option<Instant>,
    headers: AttemptHeaders,
}

/// A connection that the subgraph has acknowledged. It counts as open until it is dropped.
struct OpenConnection {
    /// The time of the acknowledgement.
    since: Instant,
    stats: Arc<SubscriptionStats>,
}

/// The reason why a connection is not used any more.
enum ConnectionOutcome {
    /// It had no operations for a while, and was removed from the table.
    Unused,
    /// It could not be opened, or was lost.
    Lost {
        reason: String,
        /// The reason without text of the subgraph.
        shown: Cow<'static, str>,
        /// True if the subgraph had acknowledged the connection.
        was_open: bool,
        /// The end of a connection that the subgraph did not acknowledge.
        end: Option<ConnectionEnd>,
        /// True if another attempt may succeed.
        is_transient: bool,
    },
}

impl ConnectionTask {
    pub(super) fn new(table: Arc<ConnectionTable>, added: AddedConnection) -> Self {
        let AddedConnection { id, first, commands } = added;
        let endpoint = Arc::clone(&table.endpoint);
        let partition = first.wanted.partition.clone();
        let latest = endpoint.latest_headers.add(&first.wanted);
        let backoff = Backoff::new(endpoint.settings.reconnect.delays);
        let headers = AttemptHeaders::default();
        let attempts = Attempts { backoff, count: 0, due: None, headers };
        let mut operations = Operations::new(Arc::clone(&endpoint));
        operations.add(first);
        let machine_settings = handshake::machine_settings(&endpoint.settings);
        Self {
            table,
            endpoint,
            machine_settings,
            id,
            partition,
            latest,
            commands,
            operations,
            attempts,
            open: None,
            has_result: false,
            ping_losses: PingLossCount::default(),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let outcome = self.connect_once().await;
            let ConnectionOutcome::Lost { reason, shown, was_open, is_transient, .. } = outcome
            else {
                return;
            };
            self.attempts.count_if_due(Instant::now());
            // The other failures are refusals: by the subgraph, or of headers that cannot be sent.
            let was_reached = was_open || !is_transient;
            let settings = &self.endpoint.settings.reconnect;
            if !is_transient {
                self.attempts.headers.note_refused(was_open);
            }
            // A refused token may have been renewed since, or another client's token works. A server that reads tokens
            // only when a connection begins has ignored the new one in a `ping`.
            let may_succeed =
                is_transient || self.attempts.headers.may_succeed(&self.latest.headers());
            let is_retried = self.operations.has_live()
                && may_succeed
                && self.attempts.count < settings.attempts;
            self.log_loss(&reason, &shown, is_retried);
            let loss = ConnectionLoss { reason: &reason, was_reached, may_succeed };
            if is_retried {
                let refused = self.operations.on_connection_lost(loss);
                self.release(refused);
                self.pause().await;
            } else {
                let failed = self.operations.fail_all(loss);
                self.release(failed);
                self.reset_attempts();
                self.attempts.headers.forget_refused();
            }
            if self.operations.is_empty() && self.table.remove_unused(self.id, &self.partition) {
                return;
            }
        }
    }

    /// Writes to the log why there is no connection, at most one warning in a while: clients may try again and again.
    /// The warning has `shown` in place of the reason, which may contain text of the subgraph.
    fn log_loss(&self, reason: &str, shown: &str, is_retried: bool) {
        let (source, address) = (&*self.endpoint.source_name, self.endpoint.target.address_text());
        tracing::debug!(source, address, reason, "no connection for subscriptions of a subgraph");
        let Some(suppressed) = self.endpoint.log_limit.admit(Instant::now()) else { return };
        let (reason, attempts) = (shown, self.attempts.count);
        match is_retried {
            true => tracing::warn!(
                source,
                address,
                reason,
                attempts,
                suppressed,
                "the connection for subscriptions of a subgraph was lost; connecting again"
            ),
            false => tracing::warn!(
                source,
                address,
                reason,
                suppressed,
                "subscriptions of a subgraph failed"
            ),
        }
    }

    /// Connects, and uses the connection until its end.
    async fn connect_once(&mut self) -> ConnectionOutcome {
        self.receive_commands();
        self.has_result = false;
        let (stats, settings) = (&self.endpoint.stats, &self.endpoint.settings);
        let headers = self.attempts.headers.begin(&self.latest.headers());
        let failed = |reason: String, is_transient| {
            add(&stats.connect_failures, 1);
            let shown = reason.clone().into();
            ConnectionOutcome::Lost { reason, shown, was_open: false, end: None, is_transient }
        };
        let stream = match self.endpoint.target.connect(settings.connect_timeout).await {
            Ok(stream) => stream,
            Err(error) => return failed(error.to_string(), true),
        };
        let offer = self.table.subprotocols();
        let begun = handshake::begin(&self.endpoint, &self.machine_settings, offer, &headers);
        let mut socket = match begun {
            Ok(socket) => socket,
            Err(reason) => return failed(reason, false),
        };
        self.ping_losses = self.table.ping_losses.count();
        if self.ping_losses.forbids_pings() {
            socket.disable_ping_messages();
        }
        add(&stats.connections_opened, 1);
        let outcome = self.use_connection(stream, socket).await;
        if let ConnectionOutcome::Lost { end: Some(end), .. } = &outcome
            && self.table.note_refusal(offer, end)
        {
            self.operations.detach();
            return Box::pin(self.connect_once()).await;
        }
        outcome
    }

    /// Reads and writes until the connection ends.
    async fn use_connection(
        &mut self,
        stream: Stream,
        mut socket: UpstreamSocket,
    ) -> ConnectionOutcome {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut input = Vec::with_capacity(BUFFER_BYTES);
        let (mut output, mut written) = (Vec::new(), 0);
        let mut unused_until = None;
        loop {
            self.operations.start_all(&mut socket);
            let mut end = None;
            while let Some(event) = socket.poll_event() {
                end = self.on_event(event, &mut socket).or(end);
            }
            if written == output.len() {
                output.clear();
                written = 0;
            }
            let now = Instant::now();
            while output.len() < BUFFER_BYTES
                && let Some(chunks) = socket.poll_transmit(now)
            {
                chunks.append_to(&mut output);
            }
            if let Some(end) = end {
                let rest = writer.write_all(&output[written..]);
                // The end is known; the subgraph may not read any more.
                let _ = tokio::time::timeout(FLUSH_TIMEOUT, rest).await;
                return self.lose(end, socket.client().ended_after_ping());
            }
            unused_until = match self.operations.is_empty() {
                true => unused_until.or(now.checked_add(self.endpoint.settings.close_after)),
                false => None,
            };
            tokio::select! {
                read = reader.read_buf(&mut input) => {
                    let now = Instant::now();
                    match read {
                        Ok(1..) => socket.receive(now, &input),
                        Ok(0) | Err(_) => socket.receive_eof(now),
                    }
                    input.clear();
                }
                result = writer.write(&output[written..]), if written < output.len() => {
                    match result {
                        Ok(bytes) => {
                            written += bytes;
                            socket.taken(Instant::now());
                        }
                        Err(_) => socket.receive_eof(Instant::now()),
                    }
                }
                Some(command) = self.commands.recv() => {
                    self.apply_command(command);
                    self.receive_commands();
                    self.operations.start_all(&mut socket);
                    if socket.client().is_ready() {
                        self.renew_headers(&mut socket);
                        let abandoned = self.operations.open_waiting(&mut socket);
                        self.release(abandoned);
                    }
                }
                number = self.operations.next_dropped() => {
                    let was_there = self.operations.unsubscribe(number, &mut socket);
                    self.release(usize::from(was_there));
                }
                () = sleep_until(socket.poll_timeout()) => socket.handle_timeout(Instant::now()),
                () = sleep_until(unused_until), if unused_until.is_some() => {
                    if self.table.remove_unused(self.id, &self.partition) {
                        close(socket, &mut writer, &output[written..]).await;
                        return ConnectionOutcome::Unused;
                    }
                }
            }
        }
    }

    /// Handles an event of the connection. Returns its end.
    fn on_event(
        &mut self,
        event: UpstreamEvent,
        socket: &mut UpstreamSocket,
    ) -> Option<ConnectionEnd> {
        match event {
            UpstreamEvent::Ready { .. } => {
                self.open = Some(OpenConnection::new(&self.endpoint.stats));
                self.attempts.headers.note_accepted();
                self.renew_headers(socket);
                let abandoned = self.operations.on_ready(socket);
                self.release(abandoned);
            }
            UpstreamEvent::Next { id, payload } => {
                self.has_result = true;
                self.operations.on_result(id, payload);
            }
            UpstreamEvent::Complete { id } => {
                let was_there = self.operations.on_ended(id, Ok(()));
                self.release(usize::from(was_there));
            }
            UpstreamEvent::Failed { id, error } => {
                let was_there = self.operations.on_ended(id, Err(error));
                self.release(usize::from(was_there));
            }
            UpstreamEvent::Ignored(ignored) => {
                add(&self.endpoint.stats.ignored, 1);
                let source = &*self.endpoint.source_name;
                tracing::debug!(source, %ignored, "a message of a subgraph was ignored");
            }
            UpstreamEvent::Ended(end) => return Some(end),
        }
        None
    }

    /// Notes the end of the connection. `follows_ping` is true if it ended directly after a `ping`.
    fn lose(&mut self, end: ConnectionEnd, follows_ping: bool) -> ConnectionOutcome {
        let stable_after = self.endpoint.settings.reconnect.stable_after();
        let open = self.open.take();
        let is_stable = open.as_ref().is_some_and(|it| it.since.elapsed() >= stable_after);
        // One operation with messages that end each connection must not interrupt the others for ever.
        let has_worked = self.has_result && !end.is_caused_by_message();
        if is_stable || has_worked {
            self.reset_attempts();
        }
        add(&self.endpoint.stats.connections_lost, 1);
        if open.is_some() {
            self.table.ping_losses.note_loss(self.ping_losses, &end, follows_ping);
        }
        let (reason, shown) = (end.to_string(), end.without_subgraph_text());
        let (was_open, is_transient) = (open.is_some(), end.is_transient());
        let end = (!was_open).then_some(end);
        ConnectionOutcome::Lost { reason, shown, was_open, end, is_transient }
    }

    /// Waits before the next attempt. Meanwhile operations come and go. A new operation cuts the pause short, because
    /// its client waits for the outcome of one attempt; if that fails too, the rest of the pause follows.
    async fn pause(&mut self) {
        let began = Instant::now();
        let due = self.attempts.due_after(began);
        // Clients that subscribe again and again must not cause attempts without pauses.
        let earliest = began.checked_add(self.endpoint.settings.reconnect.delays.initial);
        let mut is_wanted = false;
        loop {
            tokio::select! {
                () = sleep_until(due) => return self.attempts.count_if_due(Instant::now()),
                () = sleep_until(earliest), if is_wanted => return,
                Some(command) = self.commands.recv() => {
                    is_wanted |= matches!(command, ConnectionCommand::Begin(_));
                    self.apply_command(command);
                }
                number = self.operations.next_dropped() => {
                    let was_there = self.operations.forget(number);
                    self.release(usize::from(was_there));
                    if self.operations.is_empty() {
                        return;
                    }
                }
            }
        }
    }

    /// Sends headers that have changed since the connection was opened, such as a new token, in the payload of a
    /// `ping`: the only message after `connection_init` in which a server may expect them. Without effect under
    /// `graphql-ws`.
    fn renew_headers(&mut self, socket: &mut UpstreamSocket) {
        if !self.endpoint.settings.init_payload {
            return;
        }
        let latest = self.latest.headers();
        if self.attempts.headers.renew(&latest)
            && let Some(payload) = handshake::headers_payload(&latest)
        {
            socket.send_ping(payload);
        }
    }

    fn receive_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.apply_command(command);
        }
    }

    fn apply_command(&mut self, command: ConnectionCommand) {
        match command {
            ConnectionCommand::Begin(new) => self.operations.add(new),
            // The caller compares them after each command.
            ConnectionCommand::SendHeaders => {}
        }
    }

    fn reset_attempts(&mut self) {
        self.attempts.count = 0;
        self.attempts.due = None;
        self.attempts.backoff.reset();
    }

    /// Makes room in the table for as many operations.
    fn release(&self, operations: usize) {
        for _ in 0..operations {
            self.table.release_operation(self.id, &self.partition);
        }
    }
}

impl OpenConnection {
    fn new(stats: &Arc<SubscriptionStats>) -> Self {
        add(&stats.connections, 1);
        Self { since: Instant::now(), stats: Arc::clone(stats) }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        subtract(&self.stats.connections, 1);
    }
}

impl Attempts {
    /// Returns the time of the next attempt that counts, for a pause that begins now.
    fn due_after(&mut self, now: Instant) -> Option<Instant> {
        self.due = self.due.or_else(|| now.checked_add(self.backoff.next_delay()));
        self.due
    }

    /// Counts an attempt if one was due. An attempt for a new operation that took until then counts too.
    fn count_if_due(&mut self, now: Instant) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            self.count += 1;
        }
    }
}

/// Closes a connection that is not used any more.
async fn close(
    mut socket: UpstreamSocket,
    writer: &mut tokio::io::WriteHalf<Stream>,
    unwritten: &[u8],
) {
    let mut output = unwritten.to_vec();
    socket.close();
    while let Some(chunks) = socket.poll_transmit(Instant::now()) {
        chunks.append_to(&mut output);
    }
    // The subgraph may not read any more; then the end of the transport tells it.
    let _ = tokio::time::timeout(FLUSH_TIMEOUT, writer.write_all(&output)).await;
}

/// Sleeps until `instant`, or for ever without one.
async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}
