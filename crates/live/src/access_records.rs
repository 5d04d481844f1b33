//! The records of operations and subscriptions of live connections for the access log.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use clients::access_log::{
    AccessLog, AccessLogEntry, ConnectionId, LogEvent, LoggedHandshake, LoggedOperation,
    LoggedRequest,
};
use clients::request_ids::AssignedId;
use clients::request_source::ConnectionOrigin;
use execute::{GraphqlError, Payload};
use http::HeaderValue;
use http::request::Parts;
use reactor::Token;
use serving::prepared_request::PreparedRequest;
use telemetry::spans::{RequestSpans, TraceId};
use wire::websocket::{CloseCode, Closed, ClosedBy};

use crate::client_context::KeptContext;
use crate::end_reasons::{CLIENT_CLOSED, CONNECTION_CLOSED, CONNECTION_LOST, ROUTER_CLOSED};
use crate::metrics::Transport;
use crate::operation_runner::OperationRunner;

/// The record of an operation that a client has sent over a WebSocket.
pub(crate) struct OperationRecord {
    log: Arc<AccessLog>,
    graph: Option<Arc<str>>,
    began: Instant,
    transport: Transport,
    socket: Option<LoggedSocket>,
    names: OperationNames,
    operation: Option<LoggedOperation>,
}

/// The names under which an operation on a WebSocket is found elsewhere.
#[derive(Clone, Default)]
pub(crate) struct OperationNames {
    /// Its id as a request, if requests have ids.
    pub(crate) request_id: Option<HeaderValue>,
    /// Its trace, while traces are on.
    pub(crate) trace: Option<TraceId>,
}

impl OperationNames {
    /// Returns them for a record that is kept; `None` if there are none.
    pub(crate) fn kept(self) -> Option<Box<Self>> {
        (self.request_id.is_some() || self.trace.is_some()).then(|| Box::new(self))
    }
}

/// An open WebSocket, as the lines of its operations show it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedSocket {
    connection: ConnectionId,
    origin: ConnectionOrigin,
}

/// The record of an open WebSocket.
pub(crate) struct WebSocketRecord {
    socket: LoggedSocket,
    /// The id of the handshake.
    request_id: Option<HeaderValue>,
    began: Instant,
    /// The number of operations that the client has sent.
    operations: u64,
}

// An idle WebSocket keeps it while the access log is written, with an entry of some 20 bytes in a map.
const _: () = assert!(size_of::<WebSocketRecord>() <= 104);

/// The client of a subscription, as the lines of that show it.
pub(crate) enum LoggedClient {
    /// The client of a WebSocket. Connections with equal contexts share one.
    Socket { socket: LoggedSocket, context: Arc<KeptContext>, names: Option<Box<OperationNames>> },
    /// The client of the request that has begun the subscription.
    Request(Box<LoggedRequest>),
}

/// The record of a live subscription. Dropping it writes the last line.
pub(crate) struct SubscriptionRecord {
    log: Arc<AccessLog>,
    graph: Option<Arc<str>>,
    began: Instant,
    transport: Transport,
    client: Option<LoggedClient>,
    operation: LoggedOperation,
    /// The number of results that were sent to the client.
    events: u64,
    reason: &'static str,
}

// Each live subscription keeps it while the access log is written.
const _: () = assert!(size_of::<SubscriptionRecord>() <= 256);

/// The counts of a subscription before its record begins: the hub may deliver results, and even end the subscription,
/// before the task that has joined the group continues.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct OpeningCounts {
    /// The number of results that were sent to the client.
    events: u64,
    /// The reason of the end, if the subscription has ended.
    reason: Option<&'static str>,
}

impl OpeningCounts {
    /// Returns the counts of a subscription that has ended for this reason, without results.
    pub(crate) fn ended(reason: &'static str) -> Self {
        Self { events: 0, reason: Some(reason) }
    }

    /// Counts a result that was sent to the client.
    pub(crate) fn count_event(&mut self) {
        self.events += 1;
    }

    /// Notes the reason of the end. The first one counts.
    pub(crate) fn note_end(&mut self, reason: &'static str) {
        self.reason.get_or_insert(reason);
    }

    /// True if the subscription has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.reason.is_some()
    }
}

/// The records of the subscriptions of a reactor's connections: those that are live, and those that open.
// Beside the connections, whose memory it would take while no log is written.
#[derive(Default)]
pub(crate) struct SubscriptionRecords(
    HashMap<Token, ConnectionRecords, foldhash::fast::RandomState>,
);

/// The records of the subscriptions of one connection.
#[derive(Default)]
struct ConnectionRecords {
    /// The records of live subscriptions, sorted by the number of the operation.
    live: Vec<(u32, Box<SubscriptionRecord>)>,
    /// The counts of operations on their way to a worker and back.
    opening: HashMap<u32, OpeningCounts>,
}

impl SubscriptionRecords {
    /// Begins to count the results of an operation that a worker starts.
    pub(crate) fn begin_opening(&mut self, token: Token, operation: u32) {
        let records = self.0.entry(token).or_default();
        records.opening.insert(operation, OpeningCounts::default());
    }

    /// Removes the counts of an operation that a worker has started. `None` if the client has completed it.
    pub(crate) fn take_opening(&mut self, token: Token, operation: u32) -> Option<OpeningCounts> {
        let counts = self.0.get_mut(&token)?.opening.remove(&operation);
        self.remove_if_empty(token);
        counts
    }

    /// Adds the record of an operation of a connection.
    pub(crate) fn insert(&mut self, token: Token, operation: u32, record: Box<SubscriptionRecord>) {
        let live = &mut self.0.entry(token).or_default().live;
        let at = live.partition_point(|it| it.0 < operation);
        live.insert(at, (operation, record));
    }

    /// Counts a result that was sent to a client.
    // hot path: once per recipient and event while the access log is written, else a comparison.
    pub(crate) fn count_event(&mut self, token: Token, operation: u32) {
        if self.0.is_empty() {
            return;
        }
        let Some(ConnectionRecords { live, opening }) = self.0.get_mut(&token) else { return };
        let at = live.binary_search_by_key(&operation, |it| it.0).ok();
        if let Some((_, record)) = at.and_then(|at| live.get_mut(at)) {
            record.count_event();
        } else if let Some(counts) = opening.get_mut(&operation) {
            counts.count_event();
        }
    }

    /// Writes the last line of a subscription that has ended for this reason. If its record has not begun, it will end
    /// for this reason.
    pub(crate) fn end(&mut self, token: Token, operation: u32, reason: &'static str) {
        let Some(ConnectionRecords { live, opening }) = self.0.get_mut(&token) else { return };
        if let Ok(at) = live.binary_search_by_key(&operation, |it| it.0) {
            let (_, mut record) = live.remove(at);
            record.set_reason(reason);
        } else if let Some(counts) = opening.get_mut(&operation) {
            counts.note_end(reason);
        }
        self.remove_if_empty(token);
    }

    /// Writes the last lines of all subscriptions of a connection. Those with records that have not begun will end for
    /// this reason.
    pub(crate) fn end_all(&mut self, token: Token, reason: &'static str) {
        let Some(ConnectionRecords { live, opening }) = self.0.get_mut(&token) else { return };
        for (_, mut record) in live.drain(..) {
            record.set_reason(reason);
        }
        opening.values_mut().for_each(|counts| counts.note_end(reason));
        self.remove_if_empty(token);
    }

    /// Removes the counts of a connection that is gone.
    pub(crate) fn forget(&mut self, token: Token) {
        self.0.remove(&token);
    }

    fn remove_if_empty(&mut self, token: Token) {
        let is_empty = |it: &ConnectionRecords| it.live.is_empty() && it.opening.is_empty();
        if self.0.get(&token).is_some_and(is_empty) {
            self.0.remove(&token);
        }
    }
}

impl OperationRunner {
    /// Begins the record of an operation over a WebSocket; `None` if the access log is not written.
    pub(crate) fn begin_record(
        &self,
        transport: Transport,
        socket: Option<LoggedSocket>,
        names: OperationNames,
    ) -> Option<OperationRecord> {
        let log = Arc::clone(self.access_log.as_ref()?);
        let (graph, began) = (self.serving.graph_name.clone(), Instant::now());
        Some(OperationRecord { log, graph, began, transport, socket, names, operation: None })
    }

    /// Keeps what the lines of a subscription show of its request, if the access log is written.
    pub fn keep_logged_request(
        &self,
        ready: &mut PreparedRequest,
        head: &Parts,
        origin: ConnectionOrigin,
    ) {
        if ready.prepared.has_stream()
            && let Some(log) = &self.access_log
        {
            let headers = log.copy_headers(&head.headers);
            let trace = head.extensions.get::<Arc<RequestSpans>>().map(|it| it.context().trace);
            let request_id = head.extensions.get::<AssignedId>().map(|it| it.1.clone());
            ready.logged = Some(Box::new(LoggedRequest { request_id, trace, origin, headers }));
        }
    }

    /// Returns an operation as the access log shows it; `None` if that is not written.
    pub(crate) fn logged_operation(&self, ready: &PreparedRequest) -> Option<LoggedOperation> {
        let log = self.access_log.as_ref()?;
        Some(log.operation(&ready.prepared, ready.cost, ready.identity.claims()))
    }

    /// Begins the record of a live subscription, and writes its first line; `None` if the access log is not written.
    pub(crate) fn begin_subscription(
        &self,
        transport: Transport,
        operation: Option<LoggedOperation>,
        client: Option<LoggedClient>,
    ) -> Option<Box<SubscriptionRecord>> {
        let (log, operation) = self.access_log.as_ref().zip(operation)?;
        let (log, graph) = (Arc::clone(log), self.serving.graph_name.clone());
        let (began, events, reason) = (Instant::now(), 0, CONNECTION_CLOSED);
        let record =
            SubscriptionRecord { log, graph, began, transport, client, operation, events, reason };
        record.write(LogEvent::SubscriptionStarted);
        Some(Box::new(record))
    }
}

impl OperationRecord {
    /// Notes what is known of a prepared operation.
    pub(crate) fn note(&mut self, ready: &PreparedRequest) {
        let claims = ready.identity.claims();
        self.operation = Some(self.log.operation(&ready.prepared, ready.cost, claims));
    }

    /// Writes the line of an operation that has ended.
    pub(crate) fn finish(self, context: &KeptContext, result: Result<&Payload, &[GraphqlError]>) {
        let (errors, code, bytes) = match result {
            Ok(payload) => (payload.errors as usize, None, Some(payload.bytes.len() as u64)),
            Err(errors) => (errors.len(), errors.first().map(|it| it.code), None),
        };
        self.log.write(&AccessLogEntry {
            event: LogEvent::Operation,
            request_id: self.names.request_id.as_ref(),
            trace: self.names.trace,
            graph: self.graph.as_deref(),
            origin: self.socket.map_or(context.origin, |it| it.origin),
            transport: Some(self.transport.name()),
            connection: self.socket.map(|it| it.connection),
            headers: Some(&context.headers),
            operation: self.operation.as_ref(),
            bytes,
            duration: Some(self.began.elapsed()),
            errors: errors as u64,
            code,
            ..AccessLogEntry::default()
        });
    }
}

impl SubscriptionRecord {
    /// Sets the reason for which the subscription is about to end.
    pub(crate) fn set_reason(&mut self, reason: &'static str) {
        self.reason = reason;
    }

    /// Counts a result that was sent to the client.
    pub(crate) fn count_event(&mut self) {
        self.events += 1;
    }

    /// Adds the counts from before the record began.
    pub(crate) fn add_counts(&mut self, counts: OpeningCounts) {
        self.events += counts.events;
        self.reason = counts.reason.unwrap_or(self.reason);
    }

    fn write(&self, event: LogEvent) {
        let has_ended = event == LogEvent::SubscriptionEnded;
        let client = match &self.client {
            Some(LoggedClient::Socket { socket, context, names }) => AccessLogEntry {
                connection: Some(socket.connection),
                request_id: names.as_ref().and_then(|it| it.request_id.as_ref()),
                trace: names.as_ref().and_then(|it| it.trace),
                origin: socket.origin,
                headers: Some(&context.headers),
                ..AccessLogEntry::default()
            },
            Some(LoggedClient::Request(request)) => AccessLogEntry {
                request_id: request.request_id.as_ref(),
                trace: request.trace,
                origin: request.origin,
                headers: Some(&request.headers),
                ..AccessLogEntry::default()
            },
            None => AccessLogEntry::default(),
        };
        self.log.write(&AccessLogEntry {
            event,
            graph: self.graph.as_deref(),
            transport: Some(self.transport.name()),
            operation: Some(&self.operation),
            duration: has_ended.then(|| self.began.elapsed()),
            events: has_ended.then_some(self.events),
            reason: has_ended.then_some(self.reason),
            ..client
        });
    }
}

impl WebSocketRecord {
    /// Begins the record of a WebSocket from this peer after its handshake.
    pub(crate) fn begin(
        logged: LoggedHandshake,
        origin: ConnectionOrigin,
        now: Instant,
    ) -> Box<Self> {
        let LoggedHandshake { connection, request_id } = logged;
        let socket = LoggedSocket { connection, origin };
        Box::new(Self { socket, request_id, began: now, operations: 0 })
    }

    /// Returns what the lines of an operation show.
    pub(crate) fn socket(&self) -> LoggedSocket {
        self.socket
    }

    /// Counts an operation that the client has sent.
    pub(crate) fn count_operation(&mut self) {
        self.operations += 1;
    }

    /// Writes the line of a WebSocket that has ended. `context` is that of its client, and `closed` the end; `None` if
    /// the transport has ended before the protocol.
    pub(crate) fn finish(
        self,
        runner: &OperationRunner,
        context: &KeptContext,
        closed: Option<&Closed>,
    ) {
        let Some(log) = &runner.access_log else { return };
        let reason = match closed.map(|it| it.by) {
            Some(ClosedBy::Peer) => CLIENT_CLOSED,
            Some(ClosedBy::Us) => ROUTER_CLOSED,
            Some(ClosedBy::Loss) | None => CONNECTION_LOST,
        };
        let close = closed.map_or((CloseCode::ABNORMAL.0, ""), |it| (it.code.0, &*it.reason));
        log.write(&AccessLogEntry {
            event: LogEvent::WebSocketEnded,
            request_id: self.request_id.as_ref(),
            graph: runner.serving.graph_name.as_deref(),
            origin: self.socket.origin,
            transport: Some(Transport::WebSocket.name()),
            connection: Some(self.socket.connection),
            headers: Some(&context.headers),
            claims: context.claims.as_ref(),
            duration: Some(self.began.elapsed()),
            operations: Some(self.operations),
            reason: Some(reason),
            close: Some(close),
            ..AccessLogEntry::default()
        });
    }
}

impl Drop for SubscriptionRecord {
    fn drop(&mut self) {
        self.write(LogEvent::SubscriptionEnded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::end_reasons::SOURCE_COMPLETED;

    #[test]
    fn results_and_ends_before_the_record_count() {
        let mut records = SubscriptionRecords::default();
        let [first, second] = [1, 2].map(Token::from_u64);
        records.begin_opening(first, 7);
        records.begin_opening(first, 8);
        records.begin_opening(second, 7);
        records.count_event(first, 7);
        records.count_event(first, 7);
        records.end(first, 7, SOURCE_COMPLETED);
        records.end_all(first, CONNECTION_CLOSED);
        let ended = OpeningCounts { events: 2, reason: Some(SOURCE_COMPLETED) };
        assert_eq!(records.take_opening(first, 7), Some(ended));
        assert_eq!(records.take_opening(first, 7), None);
        assert_eq!(records.take_opening(first, 8), Some(OpeningCounts::ended(CONNECTION_CLOSED)));
        records.count_event(first, 8);
        assert_eq!(records.take_opening(second, 7), Some(OpeningCounts::default()));
        records.begin_opening(second, 9);
        records.forget(second);
        assert!(records.0.is_empty());
    }
}
