//! The operations of a reactor's clients: each runs on a worker, and its outcome comes back as a message.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use clients::authentication::Identity;
use clients::kept_operations::{Amounts, ExistingAmounts};
use clients::request_source::RequestSource;
use execute::{ClientKey, ErrorCode};
use futures_util::future::{AbortHandle, Abortable};
use hub::Subscriber;
use reactor::Token;
use serving::forwarding::ClientHeaders::Kept;
use serving::operation::{self, OperationClient};
use serving::prepared_request::attach_spans;
use serving::subscription_count::SubscriptionCount;
use wire::connection::OffThreadParse;
use wire::websocket::{CloseCode, LargeMessage};

use super::super::client::{Client, ClientOperation, ClientOperations};
use super::super::client_machine::ClientMachine;
use super::super::message::{JoinedSubscription, Message, OperationOutcome, StartRequest};
use super::super::outlet::ReactorOutlet;
use super::super::send_together;
use super::super::subscription_opening::SubscriptionOpening;
use super::{ClientSockets, SubscriptionServer, set_hold};
use crate::access_records::{LoggedClient, LoggedSocket, OpeningCounts, OperationNames};
use crate::backlog::Delivery;
use crate::client_context::KeptContext;
use crate::client_work::{ClientWork, StartedOperation};
use crate::end_reasons::{
    CLIENT_COMPLETED, OTHER_CLAIMS, OVERLOADED, TOO_MANY_REFUSALS, broken_off,
};
use crate::large_messages;
use crate::metrics::Transport;
use crate::operation_runner::{LiveSubscription, OperationRunner};
use crate::websocket_span::WebSocketSpan;

/// The number of operations that overload refuses one after the other until a WebSocket without a live operation is
/// closed. An application may begin as many at once.
const OVERLOADED_MAX: u32 = 16;

impl SubscriptionServer {
    /// Starts an operation on a worker. Its outcome comes back through the mailbox.
    pub(super) fn start_operation(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        number: u32,
        wanted: StartRequest,
    ) {
        let (Some(reactor), Some(client)) = (&self.reactor, sockets.client(token)) else { return };
        let identity = client.identity();
        if matches!(wanted, StartRequest::Unprepared(_))
            && let Some(claims) = identity.claims()
            && !claims.has_kept(&reactor.runner.serving.read_claims())
        {
            // Only the token itself has the claims that this graph reads in addition.
            return close_websocket(sockets, token, CloseCode::SERVICE_RESTART, OTHER_CLAIMS);
        }
        let work = client.work.take().unwrap_or_else(|| {
            let outlet = Arc::clone(&self.outlet);
            let on_resume = Box::new(move || outlet.mailbox().send(Message::ResumeReading(token)));
            ClientWork::new(reactor.runner.open_account(client.key()), on_resume)
        });
        let started = Some(work.start_operation());
        let is_held = work.try_hold();
        client.work = Some(work);
        let (abort, registration) = AbortHandle::new_pair();
        client.operations.add(number, ClientOperation::Task(abort), &mut client.first_start);
        let (outlet, address) = (Arc::clone(&self.outlet), client.permit.client());
        let (transport, held) = (client.transport, client.operations.kept());
        // The hub may deliver results before the worker reports that the subscription has opened. One that moves with a
        // renewed token keeps its record.
        if reactor.runner.access_log.is_some() && !matches!(wanted, StartRequest::Moved(_)) {
            self.records.begin_opening(token, number);
        }
        let socket = self.websockets.get_mut(&token).map(|record| {
            // A subscription that moves with a renewed token is no further operation.
            if matches!(wanted, StartRequest::Unprepared(_)) {
                record.count_operation();
            }
            record.socket()
        });
        let operation_run =
            StartingOperation { outlet, token, number, address, transport, socket, held, started };
        let (runner, context) = (Arc::clone(&reactor.runner), Arc::clone(&client.context));
        reactor.workers.run(Box::new(move || {
            Box::pin(async move {
                let run = operation_run.run(&runner, wanted, &context, identity);
                // Aborted if the client has gone, or has completed the operation.
                let _ = Abortable::new(run, registration).await;
            })
        }));
        if is_held {
            set_hold(sockets, token, true);
        }
    }

    /// Lets another thread read a large message while the connection waits for it.
    pub(super) fn read_large_message(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        message: LargeMessage,
    ) {
        let Some(ClientMachine::WebSocket(connection)) = sockets.machine(token) else { return };
        let parse = connection.protocol.parser();
        let (Some(reactor), Some(client)) = (&self.reactor, sockets.client(token)) else { return };
        let client = client.key();
        let serving = Arc::clone(&reactor.runner.serving);
        let outlet = Arc::clone(&self.outlet);
        let (abort, registration) = AbortHandle::new_pair();
        reactor.workers.run(Box::new(move || {
            let reading = async move {
                let deadline = Instant::now() + serving.time_max;
                let offload = &serving.limits.offload;
                let read =
                    large_messages::read_large_message(offload, client, deadline, message, parse)
                        .await;
                outlet.mailbox().send(Message::LargeMessageRead(token, read));
            };
            Box::pin(async move {
                // Aborted if the connection has ended.
                let _ = Abortable::new(reading, registration).await;
            })
        }));
        self.reading.insert(token, abort);
    }

    /// Aborts the reading of a large message for a connection that has ended, which frees its place in the queue.
    pub(super) fn stop_reading(&mut self, token: Token) {
        if let Some(reading) = self.reading.remove(&token) {
            reading.abort();
        }
    }

    /// Handles the outcome of an operation.
    pub(super) fn on_operation_outcome(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        operation: u32,
        outcome: OperationOutcome,
    ) {
        let counts = self.records.take_opening(token, operation);
        let group = match &outcome {
            OperationOutcome::Subscribed(joined) => Some(joined.subscription.group()),
            OperationOutcome::Response(_) | OperationOutcome::Failed(_) => None,
        };
        let Some(client) = sockets.client(token) else { return };
        if !client.has_operation(operation) {
            // The client has completed the operation meanwhile, or the hub has ended it.
            if let OperationOutcome::Subscribed(joined) = outcome
                && let Some(reactor) = &self.reactor
            {
                let record = joined.opening.note_opened(&reactor.runner, client.transport);
                // Dropping the record writes the last line.
                if let Some(mut record) = record {
                    record.add_counts(counts.unwrap_or(OpeningCounts::ended(CLIENT_COMPLETED)));
                }
            }
            return self.check_started(sockets, token, operation, None);
        }
        // Limits of a connection have the same code, but name no time: the client must do something, not wait.
        let refused = match &outcome {
            OperationOutcome::Failed(errors) => errors.first(),
            OperationOutcome::Response(_) | OperationOutcome::Subscribed(_) => None,
        };
        let is_overloaded = refused
            .is_some_and(|it| it.code == ErrorCode::Overloaded && it.retry_after_seconds.is_some());
        if !is_overloaded && !self.overloaded.is_empty() {
            self.overloaded.remove(&token);
        }
        match outcome {
            OperationOutcome::Subscribed(joined) => {
                let Some(reactor) = &self.reactor else { return };
                let JoinedSubscription { subscription, open, kept, opening } = *joined;
                let live = (subscription, open, kept);
                let is_live = client.add_live(&reactor.runner.limits.settings, operation, live);
                client.drop_idle_work();
                match is_live {
                    Ok(()) => {
                        let record = opening.note_opened(&reactor.runner, client.transport);
                        if let Some(mut record) = record {
                            record.add_counts(counts.unwrap_or_default());
                            self.records.insert(token, operation, record);
                        }
                    }
                    Err(error) => {
                        opening.note_failed(&client.context, &error);
                        client.forget(operation);
                        let errors = vec![error];
                        self.send_end(sockets, token, Delivery::Failed { operation, errors });
                    }
                }
            }
            OperationOutcome::Response(payload) => {
                client.forget(operation);
                self.respond(sockets, token, operation, payload);
            }
            OperationOutcome::Failed(errors) => {
                client.forget(operation);
                client.drop_idle_work();
                let first = errors.first();
                let limit = first.and_then(|error| error.rate_limit.clone());
                self.send_end(sockets, token, Delivery::Failed { operation, errors });
                let is_idle = |it: &mut Client| matches!(it.operations, ClientOperations::None);
                if let Some(limit) = limit {
                    // A client that does not heed the error costs work for each operation that it sends.
                    if count_refusal(&mut self.rate_limited, token, limit.close_after) {
                        let reason = "a rate limit has refused too many operations";
                        close_websocket(sockets, token, TOO_MANY_REFUSALS, reason);
                    }
                } else if is_overloaded
                    // The client comes back later, perhaps to another router. A WebSocket with a live operation stays
                    // open: its events are no further work.
                    && count_refusal(&mut self.overloaded, token, OVERLOADED_MAX)
                    && sockets.client(token).is_some_and(is_idle)
                {
                    close_websocket(sockets, token, CloseCode::TRY_AGAIN_LATER, OVERLOADED);
                }
            }
        }
        self.check_started(sockets, token, operation, group);
    }
}

/// Counts a refused operation of a connection. Returns whether it has at least `limit` of them; 0 is no limit.
fn count_refusal(counts: &mut HashMap<Token, u32>, token: Token, limit: u32) -> bool {
    let count = counts.entry(token).or_default();
    *count = count.saturating_add(1);
    limit > 0 && *count >= limit
}

/// Closes a connection that is a WebSocket. Event streams of HTTP have no close codes and stay open.
fn close_websocket(sockets: &mut ClientSockets, token: Token, code: CloseCode, reason: &str) {
    if let Some(ClientMachine::WebSocket(connection)) = sockets.machine_mut(token) {
        connection.protocol.close(code, reason);
    }
    sockets.flush_machine(token);
}

/// An operation that runs on a worker. If it panics, its client gets an error instead of no response at all.
struct StartingOperation {
    outlet: Arc<ReactorOutlet>,
    token: Token,
    number: u32,
    /// The key of the client's address.
    address: ClientKey,
    transport: Transport,
    /// The WebSocket for the access log, if that is written.
    socket: Option<LoggedSocket>,
    /// The amounts that the connection's live subscriptions kept when the operation was started.
    held: Amounts,
    /// `None` once it has its outcome.
    started: Option<StartedOperation>,
}

impl StartingOperation {
    async fn run(
        mut self,
        runner: &OperationRunner,
        wanted: StartRequest,
        context: &Arc<KeptContext>,
        identity: Identity,
    ) {
        let (mut record, mut stream_spans) = (None, None);
        let is_moved = matches!(wanted, StartRequest::Moved(_));
        // Ends after the operation.
        let span = match (&wanted, &runner.tracer) {
            (StartRequest::Unprepared(request), Some(tracer)) => {
                let (transport, extensions) = (self.transport.name(), &request.extensions);
                Some(WebSocketSpan::begin(tracer, &runner.serving, transport, extensions))
            }
            _ => None,
        };
        // Each operation on a WebSocket has an id of its own. Subgraphs get that of a query or a mutation:
        // subscriptions with equal headers share their requests.
        let is_socket = matches!(self.transport, Transport::WebSocket);
        let ids = runner.request_ids.as_ref().filter(|_| is_socket);
        let request_id = ids.map(|ids| ids.new_header());
        let names = OperationNames {
            request_id: request_id.as_ref().map(|it| it.1.clone()),
            trace: span.as_ref().map(WebSocketSpan::trace),
        };
        let (mut trace, prepared) = match wanted {
            // The line of its request shows the operation.
            StartRequest::Prepared(ready) | StartRequest::Moved(ready) => (None, Ok(*ready)),
            StartRequest::Unprepared(request) => {
                record = runner.begin_record(self.transport, self.socket, names.clone());
                let KeptContext { headers, origin, .. } = &**context;
                let trace = runner.serving.start_trace(headers);
                let spans = span.as_ref().map(WebSocketSpan::begin_operation);
                let source = RequestSource::of_websocket(&runner.serving.path, *origin);
                let source = RequestSource { trace: spans.as_ref().map(|it| it.trace()), ..source };
                let (headers, address) = (Kept(headers), self.address);
                let client = OperationClient { headers, identity, address, source };
                let mut prepared = operation::prepare_for(&runner.serving, &request, client).await;
                let operation_spans = spans.clone();
                attach_spans(&mut prepared, spans);
                if prepared.as_ref().is_ok_and(|ready| ready.prepared.has_stream()) {
                    stream_spans = operation_spans;
                }
                if let Ok(ready) = &mut prepared
                    && !ready.prepared.has_stream()
                    && let Some(request_id) = request_id
                {
                    ready.set_request_id(request_id);
                }
                (trace, prepared)
            }
        };
        if let (Some(record), Ok(ready)) = (&mut record, &prepared) {
            record.note(ready);
        }
        let outcome = match prepared {
            Err(errors) => OperationOutcome::Failed(errors),
            Ok(mut ready) if ready.prepared.has_stream() => {
                let outlet = Arc::clone(&self.outlet) as Arc<dyn hub::Outlet>;
                let member = Subscriber { connection: self.token.to_u64(), operation: self.number };
                let held = ExistingAmounts::Amounts(self.held);
                let client = match self.socket {
                    Some(socket) => {
                        let (context, names) = (Arc::clone(context), names.kept());
                        Some(LoggedClient::Socket { socket, context, names })
                    }
                    None => ready.logged.take().map(LoggedClient::Request),
                };
                let begin_count = || SubscriptionCount::begin(&runner.serving, ready.figures);
                let opening = SubscriptionOpening {
                    count: (!is_moved).then(begin_count),
                    logged: runner.logged_operation(&ready).filter(|_| !is_moved),
                    client,
                    record: record.take(),
                    spans: stream_spans,
                    span,
                };
                match runner.subscribe(ready, outlet, (member, self.transport), held).await {
                    Ok(LiveSubscription { subscription, kept, .. }) => {
                        let open = runner.metrics.open_subscription(self.transport);
                        let joined = JoinedSubscription { subscription, open, kept, opening };
                        OperationOutcome::Subscribed(Box::new(joined))
                    }
                    Err(error) => {
                        opening.note_failed(context, &error);
                        OperationOutcome::Failed(vec![error])
                    }
                }
            }
            Ok(mut ready) => {
                if let Some(trace) = &mut trace {
                    trace.prepared();
                }
                let Some(started) = &self.started else { return };
                // Without a permit the connection is about to be closed, because it reads nothing.
                match started.permit_for(&mut ready, runner.serving.time_max).await {
                    Ok(None) => return,
                    Err(error) => OperationOutcome::Failed(vec![error]),
                    Ok(Some(_permit)) => {
                        match operation::run(&runner.serving, ready, trace).await {
                            Ok(payload) => OperationOutcome::Response(started.charge(payload)),
                            Err(errors) => OperationOutcome::Failed(errors),
                        }
                    }
                }
            }
        };
        match (record, &outcome) {
            (Some(record), OperationOutcome::Response(payload)) => {
                record.finish(context, Ok(payload));
            }
            (Some(record), OperationOutcome::Failed(errors)) => record.finish(context, Err(errors)),
            _ => {}
        }
        self.conclude(outcome);
    }

    fn conclude(&mut self, outcome: OperationOutcome) {
        self.started = None;
        let done = Message::OperationDone(self.token, self.number, outcome);
        send_together(self.outlet.mailbox(), done);
    }
}

impl Drop for StartingOperation {
    fn drop(&mut self) {
        if self.started.is_some() && std::thread::panicking() {
            self.conclude(OperationOutcome::Failed(vec![broken_off()]));
        }
    }
}
