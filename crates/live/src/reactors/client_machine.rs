//! The protocol machines of a reactor's connections. To add a transport, write a machine in `wire`, and add a variant
//! here with its arm in each match. Operations and slow clients are handled alike for all transports.

use std::cell::{OnceCell, RefCell};
use std::time::Instant;

use bytes::Bytes;
use clients::authentication::expired_error;
use execute::{GraphqlError, Payload};
use wire::connection::Connection;
use wire::graphql_transport_ws::{FORBIDDEN, ServerEvent};
use wire::http1::FramedBody;
use wire::multipart::MultipartForm;
use wire::result_stream::{ResultStream, StreamFormat};
use wire::sse::Sse;
use wire::subprotocol::Subprotocol;
use wire::websocket::CloseCode;
use wire::{Chunks, Machine};

use super::deflation::Deflation;
use crate::end_reasons::{SLOW_SUBSCRIBER, TOKEN_EXPIRED, shutting_down_error, too_slow};
use crate::metrics::Transport;

/// The protocol machine of one connection.
// Not boxed: an idle connection has no heap object of its own.
pub(crate) enum ClientMachine {
    /// A WebSocket of either subprotocol.
    WebSocket(Connection<Subprotocol>),
    /// The body of an HTTP/1.1 response with the results of one operation, as events or parts; the operation has the
    /// number [`ONLY_OPERATION`]. Also the body with the events of many operations that other requests start.
    ResultStream(FramedBody<ResultStream>),
}

/// The number of the operation of a connection that has only one.
pub(super) const ONLY_OPERATION: u32 = 0;

/// One result, in the forms that its recipients share. Each form is made when the first recipient needs it.
pub(super) struct SharedResult<'a> {
    payload: Payload,
    deflation: &'a RefCell<Deflation>,
    /// True if other recipients may get it later.
    is_event: bool,
    /// The compressed form; `None` inside if the result is sent uncompressed.
    deflated: OnceCell<Option<Bytes>>,
    /// The forms for streams, by [`kind_index`].
    streamed: [OnceCell<Chunks>; KINDS],
}

impl<'a> SharedResult<'a> {
    /// Makes a result without any form. `is_event` is true if other recipients may get it later.
    pub(super) fn new(payload: Payload, deflation: &'a RefCell<Deflation>, is_event: bool) -> Self {
        Self {
            payload,
            deflation,
            is_event,
            deflated: OnceCell::new(),
            streamed: Default::default(),
        }
    }

    /// Returns the compressed form; `None` if compression is not worthwhile.
    fn deflated(&self) -> Option<&Bytes> {
        let payload = &self.payload.bytes;
        let deflate =
            || self.deflation.borrow_mut().deflated(payload, self.is_event, Instant::now());
        self.deflated.get_or_init(deflate).as_ref()
    }

    fn streamed(&self, kind: StreamFormat) -> &Chunks {
        self.streamed[kind_index(kind)]
            .get_or_init(|| kind.next(self.payload.bytes.clone(), self.payload.cursor()))
    }
}

/// The number of kinds of streams.
const KINDS: usize = 3;

fn kind_index(kind: StreamFormat) -> usize {
    match kind {
        StreamFormat::EventStream => 0,
        StreamFormat::Multipart(MultipartForm::Subscription) => 1,
        StreamFormat::Multipart(MultipartForm::Incremental) => 2,
    }
}

/// The position of a group's members, in the forms that they share.
pub(super) struct SharedPosition {
    cursor: Bytes,
    /// The forms for streams, by [`kind_index`]; `None` inside for kinds that have no message for a position.
    streamed: [OnceCell<Option<Chunks>>; KINDS],
}

impl SharedPosition {
    pub(super) fn new(cursor: Bytes) -> Self {
        Self { cursor, streamed: Default::default() }
    }

    fn streamed(&self, kind: StreamFormat) -> Option<&Chunks> {
        let made = || kind.position(self.cursor.clone());
        self.streamed[kind_index(kind)].get_or_init(made).as_ref()
    }
}

impl ClientMachine {
    /// Returns the machine of a stream shared by many requests, if it is one.
    pub(super) fn as_single_connection(&mut self) -> Option<&mut Sse> {
        match self {
            Self::ResultStream(FramedBody { body: ResultStream::EventStream(sse), .. }) => {
                Some(sse)
            }
            _ => None,
        }
    }

    /// Returns the transport for metrics.
    pub(super) fn transport(&self) -> Transport {
        match self {
            Self::WebSocket(_) => Transport::WebSocket,
            Self::ResultStream(body) => Transport::of(body.body.format()),
        }
    }

    /// True unless the client has completed the operation.
    pub(super) fn is_active(&self, operation: u32) -> bool {
        match self {
            Self::WebSocket(connection) => connection.protocol.id_of(operation).is_some(),
            Self::ResultStream(body) => body.is_open() && operation == ONLY_OPERATION,
        }
    }

    /// Reads the memory that [`ClientMachine::next`] needs: see `reactor::Sockets::read_ahead`. The value has no
    /// meaning.
    pub(super) fn read_ahead(&self, operation: u32) -> bool {
        match self {
            Self::WebSocket(connection) => {
                let id = connection.protocol.id_of(operation);
                id.is_some_and(|id| id.starts_with('0')) && connection.deflates()
            }
            Self::ResultStream(body) => body.is_open(),
        }
    }

    /// Makes a message of a result: appends its head to `head` and returns its body and tail. Returns `None` if the
    /// client has completed the operation.
    // hot path: once per recipient and event.
    pub(super) fn next<'a>(
        &self,
        operation: u32,
        shared: &'a SharedResult<'_>,
        head: &mut Vec<u8>,
    ) -> Option<(&'a Bytes, &'static [u8])> {
        match self {
            Self::WebSocket(connection) => {
                let protocol = &connection.protocol;
                if connection.deflates()
                    && let Some(blocks) = shared.deflated()
                {
                    let is_active = protocol.append_deflated_head(operation, blocks.len(), head);
                    return is_active.then_some((blocks, b""));
                }
                let payload = &shared.payload.bytes;
                let is_active = protocol.append_result_head(operation, payload.len(), head);
                is_active.then_some((payload, b"}"))
            }
            Self::ResultStream(body) => {
                let (result, framing) = (shared.streamed(body.body.format()), body.framing());
                framing.append_head(result.len(), head);
                head.extend_from_slice(&result.head);
                // Every kind has a tail.
                Some((&result.body, framing.tail(result.tail)?))
            }
        }
    }

    /// Makes a message of a position, as [`ClientMachine::next`] does of a result. Returns `None` also if the transport
    /// has no message for it.
    pub(super) fn position<'a>(
        &self,
        operation: u32,
        shared: &'a SharedPosition,
        head: &mut Vec<u8>,
    ) -> Option<(&'a Bytes, &'static [u8])> {
        match self {
            Self::WebSocket(connection) => {
                let cursor = &shared.cursor;
                let tail =
                    connection.protocol.append_position_head(operation, cursor.len(), head)?;
                Some((cursor, tail))
            }
            Self::ResultStream(body) => {
                let position = shared.streamed(body.body.format())?;
                let framing = body.framing();
                framing.append_head(position.len(), head);
                head.extend_from_slice(&position.head);
                // Every kind has a tail.
                Some((&position.body, framing.tail(position.tail)?))
            }
        }
    }

    /// Ends an operation after all its results.
    pub(super) fn complete(&mut self, operation: u32) {
        match self {
            Self::WebSocket(connection) => {
                // An operation that the client has completed has no id any more.
                if let Some(id) = connection.protocol.id_of(operation).map(Box::<str>::from) {
                    connection.protocol.complete(&id);
                }
            }
            Self::ResultStream(body) => body.body.complete(),
        }
    }

    /// Ends an operation that could not run, or not continue, with its errors.
    pub(super) fn fail(&mut self, operation: u32, errors: &[GraphqlError]) {
        match self {
            Self::WebSocket(connection) => {
                if let Some(id) = connection.protocol.id_of(operation).map(Box::<str>::from) {
                    let mut text = Vec::new();
                    execute::print_errors(errors, &mut text);
                    connection.protocol.error(&id, text.into());
                }
            }
            Self::ResultStream(body) => body.body.fail(execute::request_error(errors).bytes),
        }
    }

    /// Ends the connection of a client that reads too slowly.
    pub(super) fn close_slow_client(&mut self) {
        match self {
            Self::WebSocket(connection) => {
                connection.protocol.close(SLOW_SUBSCRIBER, &too_slow().message);
            }
            Self::ResultStream(_) => self.fail(ONLY_OPERATION, &[too_slow()]),
        }
    }

    /// Ends the connection because the client's token has expired.
    pub(super) fn expire(&mut self) {
        match self {
            Self::WebSocket(connection) => connection.protocol.close(FORBIDDEN, TOKEN_EXPIRED),
            Self::ResultStream(_) => self.fail(ONLY_OPERATION, &[expired_error()]),
        }
    }

    /// Stops or resumes the handling of the client's messages. A stream has none.
    pub(super) fn hold(&mut self, now: Instant, is_held: bool) {
        if let Self::WebSocket(connection) = self {
            connection.hold(now, is_held);
        }
    }

    /// Ends the connection because the router shuts down.
    pub(super) fn shut_down(&mut self) {
        match self {
            Self::WebSocket(connection) => {
                connection.protocol.close(CloseCode(1001), "The router is shutting down");
            }
            // Without the error, `complete` would mean that the source has ended.
            Self::ResultStream(_) => self.fail(ONLY_OPERATION, &[shutting_down_error()]),
        }
    }
}

/// Makes the same call on the machine of each variant.
macro_rules! each {
    ($this:expr, $machine:ident => $call:expr) => {
        match $this {
            Self::WebSocket($machine) => $call,
            Self::ResultStream($machine) => $call,
        }
    };
}

impl Machine for ClientMachine {
    type Event = ServerEvent;

    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        each!(self, machine => machine.receive(now, bytes));
    }

    fn receive_eof(&mut self, now: Instant) {
        each!(self, machine => machine.receive_eof(now));
    }

    fn poll_event(&mut self) -> Option<ServerEvent> {
        match self {
            Self::WebSocket(connection) => connection.poll_event(),
            Self::ResultStream(body) => body.poll_event().map(|never| match never {}),
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Chunks> {
        each!(self, machine => machine.poll_transmit(now))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        each!(self, machine => machine.poll_timeout())
    }

    fn handle_timeout(&mut self, now: Instant) {
        each!(self, machine => machine.handle_timeout(now));
    }

    fn is_open(&self) -> bool {
        each!(self, machine => machine.is_open())
    }

    fn is_closed(&self) -> bool {
        each!(self, machine => machine.is_closed())
    }

    fn taken(&mut self, now: Instant) {
        each!(self, machine => machine.taken(now));
    }

    fn sent(&mut self, now: Instant) {
        each!(self, machine => machine.sent(now));
    }

    fn has_input(&self) -> bool {
        each!(self, machine => machine.has_input())
    }

    fn is_paused(&self) -> bool {
        each!(self, machine => machine.is_paused())
    }
}
