//! The WebSocket subprotocols that a server offers on one path, and the machine of the negotiated one. Both have the
//! same events and commands; each writes its own messages.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::connection::{Connection, OffThreadParse, Output, Protocol};
use crate::graphql_transport_ws::{
    self, GraphqlTransportWs, POSITION_TAIL, append_position_head, append_result_head,
};
use crate::graphql_ws::{self, GraphqlWs};
use crate::messages::{
    ClientMessage, Dialect, InvalidMessage, append_operation_prefix, operation_prefix_len,
};
use crate::server_state::{ProtocolConfig, ServerEvent};
use crate::websocket::{CloseCode, Closed, LargeMessage, append_deflated_head};

/// The names for [`crate::websocket::handshake::accept`]. If a client offers both, its order decides.
pub const SUPPORTED: [&str; 2] = [graphql_transport_ws::SUBPROTOCOL, graphql_ws::SUBPROTOCOL];

/// The server's machine of one connection.
pub enum Subprotocol {
    /// `graphql-transport-ws`.
    TransportWs(GraphqlTransportWs),
    /// `graphql-ws`.
    Ws(GraphqlWs),
}

// An idle connection with its first subscription may cost 440 bytes of our memory. The machines take a quarter, and the
// id of the subscription; descriptor, timers and outlet need the rest.
const _: () = assert!(size_of::<Connection<Subprotocol>>() <= 120);

macro_rules! each {
    ($this:expr, $machine:ident => $call:expr) => {
        match $this {
            Subprotocol::TransportWs($machine) => $call,
            Subprotocol::Ws($machine) => $call,
        }
    };
}

impl Subprotocol {
    /// Begins on a fresh WebSocket. Unless `negotiated` is one of [`SUPPORTED`], the socket is closed with 4406.
    pub fn new(config: Arc<ProtocolConfig>, negotiated: Option<&str>, now: Instant) -> Subprotocol {
        match negotiated {
            Some(graphql_ws::SUBPROTOCOL) => {
                Subprotocol::Ws(GraphqlWs::new(config, negotiated, now))
            }
            _ => Subprotocol::TransportWs(GraphqlTransportWs::new(config, negotiated, now)),
        }
    }

    /// Returns the name that was negotiated.
    pub fn name(&self) -> &'static str {
        match self {
            Subprotocol::TransportWs(_) => graphql_transport_ws::SUBPROTOCOL,
            Subprotocol::Ws(_) => graphql_ws::SUBPROTOCOL,
        }
    }

    /// Acknowledges the client's `connection_init`, optionally with a JSON object.
    pub fn accept_init(&mut self, payload: Option<Bytes>) {
        each!(self, machine => machine.accept_init(payload));
    }

    /// Rejects the client: closes with 4403.
    pub fn forbid(&mut self) {
        each!(self, machine => machine.forbid());
    }

    /// Sends a result, a JSON object. Returns whether the operation is in progress.
    pub fn next(&mut self, id: &str, payload: Bytes) -> bool {
        each!(self, machine => machine.next(id, payload))
    }

    /// Sends the position of an operation without a result: `cursor` is text that needs no escapes. Returns whether it
    /// was sent: `graphql-ws` has no message for it.
    pub fn position(&mut self, id: &str, cursor: Bytes) -> bool {
        match self {
            Subprotocol::TransportWs(machine) => machine.position(id, cursor),
            Subprotocol::Ws(_) => false,
        }
    }

    /// Ends an operation that could not be executed; `errors` is a JSON list of GraphQL errors.
    pub fn error(&mut self, id: &str, errors: Bytes) -> bool {
        each!(self, machine => machine.error(id, errors))
    }

    /// Ends an operation after its last result.
    pub fn complete(&mut self, id: &str) -> bool {
        each!(self, machine => machine.complete(id))
    }

    /// Closes the connection.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        each!(self, machine => machine.close(code, reason));
    }

    /// Returns the number of operations in progress.
    pub fn in_progress(&self) -> usize {
        each!(self, machine => machine.in_progress())
    }

    /// Returns the id of an operation in progress.
    pub fn id_of(&self, number: u32) -> Option<&str> {
        each!(self, machine => machine.id_of(number))
    }

    /// Appends the frame header and the text before the payload of a result. The caller writes `}` behind the payload.
    /// `false` if the operation is not in progress; nothing is appended then.
    ///
    /// Hot path of a broadcast: called for each recipient and event. It allocates nothing when `out` has room.
    pub fn append_result_head(&self, number: u32, payload_len: usize, out: &mut Vec<u8>) -> bool {
        let Some(id) = self.id_of(number) else { return false };
        append_result_head(id, self.result_type(), payload_len, out);
        true
    }

    /// Appends the head of a result whose payload comes from [`deflate_shared`] and has `blocks_len` bytes: see
    /// [`Subprotocol::append_result_head`]. The head is a stored deflate block. The caller writes nothing behind the
    /// payload.
    ///
    /// [`deflate_shared`]: crate::websocket::deflate_shared
    pub fn append_deflated_head(&self, number: u32, blocks_len: usize, out: &mut Vec<u8>) -> bool {
        let Some(id) = self.id_of(number) else { return false };
        let prefix_len = operation_prefix_len(id, self.result_type());
        append_deflated_head(blocks_len, prefix_len, out, |out| {
            append_operation_prefix(id, self.result_type(), out);
        })
    }

    /// Appends the frame header and the text before the cursor of a position, and returns the text behind it. `None` if
    /// the operation is not in progress or the subprotocol has no message for positions; nothing is appended then.
    pub fn append_position_head(
        &self,
        number: u32,
        cursor_len: usize,
        out: &mut Vec<u8>,
    ) -> Option<&'static [u8]> {
        let Subprotocol::TransportWs(machine) = self else { return None };
        append_position_head(machine.id_of(number)?, cursor_len, out);
        Some(POSITION_TAIL)
    }

    fn dialect(&self) -> Dialect {
        match self {
            Subprotocol::TransportWs(_) => Dialect::TransportWs,
            Subprotocol::Ws(_) => Dialect::Ws,
        }
    }

    fn result_type(&self) -> &'static str {
        self.dialect().result()
    }
}

impl Protocol for Subprotocol {
    type Event = ServerEvent;

    fn receive_text(&mut self, text: Bytes) {
        each!(self, machine => machine.receive_text(text));
    }

    fn receive_binary(&mut self, bytes: Bytes) {
        each!(self, machine => machine.receive_binary(bytes));
    }

    fn ended(&mut self, closed: Closed) {
        each!(self, machine => machine.ended(closed));
    }

    fn poll_event(&mut self) -> Option<ServerEvent> {
        each!(self, machine => machine.poll_event())
    }

    fn poll_output(&mut self) -> Option<Output> {
        each!(self, machine => machine.poll_output())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        each!(self, machine => machine.poll_timeout())
    }

    fn handle_timeout(&mut self, now: Instant) {
        each!(self, machine => machine.handle_timeout(now));
    }

    fn is_acknowledged(&self) -> bool {
        each!(self, machine => machine.is_acknowledged())
    }

    fn receive_large(&mut self, message: LargeMessage) {
        each!(self, machine => machine.receive_large(message));
    }
}

/// A client's message of either subprotocol after parsing.
pub struct ParsedMessage(Result<ClientMessage, InvalidMessage>);

impl OffThreadParse for Subprotocol {
    type Parsed = ParsedMessage;

    fn parser(&self) -> fn(Bytes) -> ParsedMessage {
        match self.dialect() {
            Dialect::TransportWs => {
                |text| ParsedMessage(ClientMessage::parse(Dialect::TransportWs, text))
            }
            Dialect::Ws => |text| ParsedMessage(ClientMessage::parse(Dialect::Ws, text)),
        }
    }

    fn receive_parsed(&mut self, message: ParsedMessage) {
        each!(self, machine => machine.receive_parsed(message.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a machine on which the operation "7" is in progress, as the first one.
    fn ready(subprotocol: &'static str, start: &'static str) -> Subprotocol {
        let mut machine = Subprotocol::new(Arc::default(), Some(subprotocol), Instant::now());
        machine.receive_text(r#"{"type":"connection_init"}"#.into());
        machine.accept_init(None);
        let text = format!(r#"{{"id":"7","type":"{start}","payload":{{"query":"{{a}}"}}}}"#);
        machine.receive_text(text.into());
        assert_eq!(machine.id_of(0), Some("7"));
        while machine.poll_output().is_some() {}
        machine
    }

    #[test]
    fn a_position_is_sent_by_the_protocol_that_has_a_message_for_it() {
        let mut machine = ready(graphql_transport_ws::SUBPROTOCOL, "subscribe");
        let mut frame = Vec::new();
        let tail = machine.append_position_head(0, 1, &mut frame).expect("it is in progress");
        frame.extend([b"c", tail].concat());
        assert!(machine.position("7", "c".into()));
        let Some(Output::Text(text)) = machine.poll_output() else { panic!("no message") };
        assert_eq!(frame[2..], text.to_vec());
        assert_eq!(machine.append_position_head(1, 1, &mut frame), None);

        let mut machine = ready(graphql_ws::SUBPROTOCOL, "start");
        assert!(!machine.position("7", "c".into()) && machine.poll_output().is_none());
        frame.clear();
        assert_eq!(machine.append_position_head(0, 1, &mut frame), None);
        assert!(frame.is_empty());
    }
}
