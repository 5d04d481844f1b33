//! The connection after the opening handshake, in either role.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::assembly::{FrameRules, MessageAssembler, ReceivedMessage};
use super::close::{self, CloseCode, Closed, ClosedBy, Failure};
use super::frame::{FrameHeader, Opcode, apply_mask};
use super::large::{ClientBounds, LargeMessage, MESSAGE_COST};
use crate::Chunks;
use crate::lazy_state::{Idle, LazyState};

/// Settings that many connections share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketConfig {
    /// The maximum size of a message in bytes, all fragments together; a larger one closes the connection with 1009.
    pub message_bytes_max: usize,
    /// If not 0, a larger text message that is not compressed closes nothing: so many bytes of it are kept for
    /// [`WebSocketEvent::Oversized`], and the rest is read and discarded. `message_timeout` bounds how long that takes.
    pub oversized_head_bytes_max: usize,
    /// The time without input after which the peer is pinged; `None` never pings.
    pub ping_interval: Option<Duration>,
    /// The time after a ping within which anything must arrive; otherwise the connection counts as lost.
    pub pong_timeout: Duration,
    /// The time that a message may take from its first byte to its last; after it the connection closes with 1008,
    /// because half a message is memory that is held for the peer.
    pub message_timeout: Duration,
    /// The time that the peer may take to respond to a close frame.
    pub close_timeout: Duration,
    /// The minimum size of a message that is compressed, if compression was negotiated and makes it smaller.
    pub deflate_bytes_min: usize,
    /// Bounds of the work that one client may cause, on the server's side. A caller that sets them handles
    /// [`WebSocket::has_input`] and [`WebSocketEvent::Large`].
    pub client_bounds: Option<ClientBounds>,
}

impl Default for WebSocketConfig {
    /// Returns defaults with these reasons:
    /// - 1 MiB a message: far above any GraphQL document that the limits let pass. A larger one closes the connection,
    ///   because what a client sends beyond it is not worth reading.
    /// - 30 s to a ping: under the idle timeout of common proxies (60 s).
    /// - 30 s for its pong: phones sleep.
    /// - 60 s for a message: the largest one at 140 kbit/s.
    /// - 5 s for the closing handshake: a live peer responds in a round trip.
    /// - 1,400 bytes to compress: a message that fits one packet arrives no sooner for being smaller.
    fn default() -> WebSocketConfig {
        WebSocketConfig {
            message_bytes_max: 1024 * 1024,
            oversized_head_bytes_max: 0,
            ping_interval: Some(Duration::from_secs(30)),
            pong_timeout: Duration::from_secs(30),
            message_timeout: Duration::from_secs(60),
            close_timeout: Duration::from_secs(5),
            deflate_bytes_min: 1400,
            client_bounds: None,
        }
    }
}

/// A message of the peer, or the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebSocketEvent {
    /// A whole text message; the bytes are valid UTF-8.
    Text(Bytes),
    /// A whole binary message.
    Binary(Bytes),
    /// A message for another thread to read. No other event of the peer follows until it has been read.
    Large(LargeMessage),
    /// The head of a text message over the size limit, see [`WebSocketConfig::oversized_head_bytes_max`]. It may end
    /// within a character, and is not checked to be UTF-8.
    Oversized(Bytes),
    /// The last event: write everything that [`WebSocket::poll_transmit`] still returns, then close the transport.
    Closed(Closed),
}

/// One WebSocket connection after its opening handshake.
///
/// It responds to pings and close frames, and pings a silent peer. Of a flood of pings in one read it responds only to
/// the first few and the last, as RFC 6455, section 5.5.3 allows, so that a flood costs nothing. An idle connection
/// holds no heap memory of its own.
pub struct WebSocket {
    config: Arc<WebSocketConfig>,
    busy: LazyState<BusyState>,
    /// The time since which `state` waits for something.
    since: Instant,
    role: WebSocketRole,
    state: ConnectionState,
    /// True if permessage-deflate was negotiated, without context takeover both ways.
    deflates: bool,
    /// True if the server has acknowledged the client, see [`ClientBounds`].
    is_acknowledged: bool,
    /// The cost of the client's messages before the acknowledgement.
    init_bytes: u32,
}

// See the budget in `graphql_transport_ws::server`.
const _: () = assert!(size_of::<WebSocket>() <= 48);

/// The state of a connection that is not idle.
#[derive(Default)]
struct BusyState {
    partial: Option<PartialInput>,
    events: VecDeque<WebSocketEvent>,
    outgoing: VecDeque<Chunks>,
    /// The payload of the last ping, if there is no room for its pong in `outgoing`.
    pong: Option<Box<[u8]>>,
    /// The input that the last turn did not process.
    input: Vec<u8>,
    /// True while another thread reads a [`LargeMessage`].
    is_reading: bool,
    /// True while the connection is held, see [`WebSocket::hold`].
    is_held: bool,
}

impl Idle for BusyState {
    fn is_idle(&self) -> bool {
        let Self { partial, events, outgoing, pong, input, is_reading, is_held } = self;
        let reads_nothing = partial.is_none() && input.is_empty() && !is_reading && !is_held;
        reads_nothing && events.is_empty() && outgoing.is_empty() && pong.is_none()
    }
}

/// The number of waiting frames up to which every ping gets a pong. Protocol test suites send ten pings and expect ten
/// pongs; other clients send one at a time.
const PONGS_WAITING_MAX: usize = 16;

/// A message that is half received.
struct PartialInput {
    assembler: MessageAssembler,
    since: Instant,
}

enum WebSocketRole {
    Server,
    /// The client's side, with the state of the mask generator. Boxed so that it costs a server nothing.
    Client(Box<u64>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    /// Input arrived at `since`.
    Open,
    /// Nothing has arrived since the ping at `since`: a frame, or a message of the layer above.
    Pinged,
    /// This side sent a close frame at `since`.
    Closing,
    Closed,
}

impl WebSocket {
    /// Returns the server's side.
    pub fn server(config: Arc<WebSocketConfig>, now: Instant) -> WebSocket {
        WebSocket::new(config, now, WebSocketRole::Server)
    }

    /// Returns the client's side. The masks of its frames are derived from `mask_seed`, which should be random where
    /// untrusted code chooses payloads (RFC 6455, section 10.3).
    pub fn client(config: Arc<WebSocketConfig>, now: Instant, mask_seed: u64) -> WebSocket {
        WebSocket::new(config, now, WebSocketRole::Client(Box::new(mask_seed)))
    }

    fn new(config: Arc<WebSocketConfig>, now: Instant, role: WebSocketRole) -> WebSocket {
        WebSocket {
            config,
            busy: LazyState::default(),
            since: now,
            role,
            state: ConnectionState::Open,
            deflates: false,
            is_acknowledged: true,
            init_bytes: 0,
        }
    }

    /// Sets whether permessage-deflate was negotiated without context takeover both ways; by default not.
    pub fn set_deflate(&mut self, is_negotiated: bool) {
        self.deflates = is_negotiated;
    }

    /// True if compressed messages may be sent.
    pub fn deflates(&self) -> bool {
        self.deflates
    }

    /// Sets whether the server has acknowledged the client; by default it has.
    pub fn set_acknowledged(&mut self, is_acknowledged: bool) {
        self.is_acknowledged = is_acknowledged;
    }

    /// True if the last call of [`WebSocket::receive`] left input: call it again, with no bytes, after other
    /// connections have had their turn. Do not read from the transport until then.
    pub fn has_input(&self) -> bool {
        self.busy.get().is_some_and(|busy| !busy.input.is_empty())
    }

    /// True while a [`LargeMessage`] is read, or the connection is held. Do not read from the transport meanwhile. The
    /// peer's deadlines pause, since its messages are not seen.
    pub fn is_paused(&self) -> bool {
        self.busy.get().is_some_and(|busy| busy.is_held || busy.is_reading)
    }

    /// Stops or resumes the processing of the peer's messages. Without effect unless the connection is open.
    pub fn hold(&mut self, now: Instant, is_held: bool) {
        if is_held && self.is_open() {
            self.busy.get_or_allocate().is_held = true;
        } else if self.busy.take(|busy| std::mem::take(&mut busy.is_held).then_some(())).is_some() {
            self.restart_deadlines(now);
        }
    }

    /// Ends the pause that began with a [`LargeMessage`]. `failure` is the rule that the message breaks, if any.
    pub(crate) fn resume(&mut self, now: Instant, failure: Option<Failure>) {
        self.busy.take(|busy| std::mem::take(&mut busy.is_reading).then_some(()));
        self.restart_deadlines(now);
        if let Some(failure) = failure
            && self.state != ConnectionState::Closed
        {
            self.fail(failure);
        }
    }

    /// Gives the peer its full time again, after a pause in which its messages were not seen.
    fn restart_deadlines(&mut self, now: Instant) {
        if !self.is_open() {
            return;
        }
        self.since = now;
        self.busy.take(|busy| {
            if let Some(partial) = &mut busy.partial {
                partial.since = now;
            }
            None::<()>
        });
    }

    /// Takes bytes that the transport delivered, in pieces of any size.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) {
        if matches!(self.state, ConnectionState::Open | ConnectionState::Pinged)
            && !bytes.is_empty()
        {
            self.state = ConnectionState::Open;
            self.since = now;
        }
        if self.state == ConnectionState::Closed {
            return;
        }
        if self.is_paused() {
            if !bytes.is_empty() {
                self.busy.get_or_allocate().input.extend_from_slice(bytes);
            }
            return;
        }
        let mut input =
            self.busy.take(|busy| Some(std::mem::take(&mut busy.input))).unwrap_or_default();
        let mut bytes = if input.is_empty() {
            bytes
        } else {
            input.extend_from_slice(bytes);
            &input[..]
        };
        if bytes.is_empty() {
            return;
        }
        let mut turn_bytes = self.bounds().map_or(usize::MAX, |bounds| bounds.turn_bytes_max);
        let partial = self.busy.take(|busy| busy.partial.take());
        let mut partial = partial
            .unwrap_or_else(|| PartialInput { assembler: MessageAssembler::default(), since: now });
        while self.state != ConnectionState::Closed {
            match partial.assembler.next(&mut bytes, self.rules()) {
                Ok(Some(received)) => {
                    let cost = MESSAGE_COST + received.bytes();
                    self.process(received, cost);
                    if partial.assembler.is_between_messages() {
                        partial.since = now;
                    }
                    turn_bytes = turn_bytes.saturating_sub(cost);
                    if turn_bytes == 0 || self.is_paused() {
                        break;
                    }
                }
                Ok(None) => break,
                Err(failure) => self.fail(failure),
            }
        }
        if self.state == ConnectionState::Closed {
            return;
        }
        if !partial.assembler.is_idle() {
            self.busy.get_or_allocate().partial = Some(partial);
        }
        if !bytes.is_empty() {
            self.busy.get_or_allocate().input = bytes.to_vec();
        }
    }

    /// Notes that the peer has read bytes that waited for it, which restarts its deadline: it cannot respond to a ping
    /// that is queued behind a large message.
    pub fn taken(&mut self, now: Instant) {
        if self.is_open() {
            self.since = now;
        }
    }

    /// Notes that the transport has ended or failed.
    pub fn receive_eof(&mut self) {
        let by = match self.state {
            ConnectionState::Closed => return,
            ConnectionState::Closing => ClosedBy::Us,
            ConnectionState::Open | ConnectionState::Pinged => ClosedBy::Loss,
        };
        self.closed(Closed { code: CloseCode::ABNORMAL, reason: "".into(), by });
    }

    /// Returns the next event for the layer above.
    pub fn poll_event(&mut self) -> Option<WebSocketEvent> {
        self.busy.take(|busy| busy.events.pop_front())
    }

    /// Returns the next bytes to write. Each run consists of whole frames. The caller may write frames of its own
    /// between two runs, with [`FrameHeader`], but nothing after a close frame: see [`WebSocket::is_open`].
    pub fn poll_transmit(&mut self) -> Option<Chunks> {
        if let Some(frame) = self.busy.take(|busy| busy.outgoing.pop_front()) {
            return Some(frame);
        }
        // Nothing may follow a close frame.
        let payload = self.busy.take(|busy| busy.pong.take()).filter(|_| self.is_open())?;
        Some(self.frame(Opcode::Pong, false, Chunks::whole(Vec::from(payload))))
    }

    /// Returns the time at which [`WebSocket::handle_timeout`] must be called. It can move back whenever bytes arrive;
    /// a caller may keep its timer and call early.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let wait = match self.state {
            ConnectionState::Open => self.config.ping_interval,
            // While input is not read, a pong would not be seen.
            ConnectionState::Pinged if self.is_paused() => None,
            ConnectionState::Pinged => Some(self.config.pong_timeout),
            ConnectionState::Closing => Some(self.config.close_timeout),
            ConnectionState::Closed => return None,
        };
        // A deadline beyond the range of `Instant` counts as none.
        let silence = wait.and_then(|wait| self.since.checked_add(wait));
        match (silence, self.message_deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Returns the time at which the half-received message must be complete.
    fn message_deadline(&self) -> Option<Instant> {
        let is_running = self.is_open() && !self.is_paused();
        let partial = self.busy.get()?.partial.as_ref().filter(|_| is_running)?;
        partial.since.checked_add(self.config.message_timeout)
    }

    /// True if the peer has been silent for so long that [`WebSocket::handle_timeout`] pings it.
    pub fn is_ping_due(&self, now: Instant) -> bool {
        let wait = self.config.ping_interval.filter(|_| self.state == ConnectionState::Open);
        let due = wait.and_then(|wait| self.since.checked_add(wait));
        due.is_some_and(|due| due <= now)
    }

    /// Notes that the peer must respond to a message of the layer above, as it must to a ping: anything that arrives
    /// within `pong_timeout` is a response. Without effect unless the connection is open.
    pub fn await_response(&mut self, now: Instant) {
        if self.is_open() {
            self.state = ConnectionState::Pinged;
            self.since = now;
        }
    }

    /// Does what is due at `now`: pings a silent peer, gives up a lost one, or refuses a message that takes too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return;
        }
        if self.message_deadline().is_some_and(|deadline| deadline <= now) {
            let reason = "message took too long";
            return self.fail(Failure { code: CloseCode::POLICY, reason });
        }
        match self.state {
            ConnectionState::Open => {
                self.await_response(now);
                self.push_frame(Opcode::Ping, Chunks::default());
            }
            ConnectionState::Pinged => self.closed(Closed {
                code: CloseCode::ABNORMAL,
                reason: "no response to a ping".into(),
                by: ClosedBy::Loss,
            }),
            ConnectionState::Closing => self.receive_eof(),
            ConnectionState::Closed => {}
        }
    }

    /// True if messages may still be sent: no close frame was sent or received.
    pub fn is_open(&self) -> bool {
        matches!(self.state, ConnectionState::Open | ConnectionState::Pinged)
    }

    /// True if the transport can be closed once everything is written.
    pub fn is_closed(&self) -> bool {
        self.state == ConnectionState::Closed
    }

    /// Queues a text message, which must be UTF-8. Dropped unless the connection is open.
    pub fn send_text(&mut self, text: Chunks) {
        self.send(Opcode::Text, text);
    }

    /// Queues a binary message. Dropped unless the connection is open.
    pub fn send_binary(&mut self, bytes: Chunks) {
        self.send(Opcode::Binary, bytes);
    }

    /// Begins the closing handshake. A reason over 123 bytes is cut. Without effect unless the connection is open.
    ///
    /// A code that must not be sent is replaced by 1011, because the mistake is the server's own.
    pub fn close(&mut self, now: Instant, code: CloseCode, reason: &str) {
        if !self.is_open() {
            return;
        }
        let code = if code.may_be_sent() { code } else { CloseCode::INTERNAL };
        self.push_frame(Opcode::Close, Chunks::whole(close::payload(code, reason)));
        self.state = ConnectionState::Closing;
        self.since = now;
        // Of the peer's further input, only the close frame is processed.
        let busy = self.busy.get_or_allocate();
        (busy.is_reading, busy.is_held) = (false, false);
    }

    fn send(&mut self, opcode: Opcode, payload: Chunks) {
        if !self.is_open() {
            return;
        }
        let is_worth_it = self.deflates && payload.len() >= self.config.deflate_bytes_min;
        let blocks = is_worth_it.then(|| coding::deflate_message(&payload.parts())).flatten();
        let frame = match blocks {
            Some(blocks) => self.frame(opcode, true, Chunks::whole(blocks)),
            None => self.frame(opcode, false, payload),
        };
        self.busy.get_or_allocate().outgoing.push_back(frame);
    }

    /// Returns the bounds of the work that the peer may cause.
    fn bounds(&self) -> Option<ClientBounds> {
        self.config.client_bounds.filter(|_| matches!(self.role, WebSocketRole::Server))
    }

    fn rules(&self) -> FrameRules {
        let bounds = self.bounds();
        let early = bounds.filter(|_| !self.is_acknowledged);
        let early = early.map_or(usize::MAX, |bounds| bounds.init_message_bytes_max);
        FrameRules {
            bounds,
            expects_mask: matches!(self.role, WebSocketRole::Server),
            message_bytes_max: self.config.message_bytes_max.min(early),
            oversized_head_bytes_max: self.config.oversized_head_bytes_max,
            deflates: self.deflates,
            discards_messages: self.state == ConnectionState::Closing,
        }
    }

    fn process(&mut self, received: ReceivedMessage, cost: usize) {
        if !self.is_acknowledged
            && let Some(bounds) = self.bounds()
        {
            let cost = u32::try_from(cost).unwrap_or(u32::MAX);
            self.init_bytes = self.init_bytes.saturating_add(cost);
            if self.init_bytes as usize > bounds.init_bytes_max {
                let reason = "too much was sent before the connection was acknowledged";
                return self.fail(Failure { code: CloseCode::POLICY, reason });
            }
        }
        match received {
            ReceivedMessage::Large(message) => {
                self.busy.get_or_allocate().is_reading = true;
                self.push_event(WebSocketEvent::Large(message));
            }
            ReceivedMessage::Text(text) => self.push_event(WebSocketEvent::Text(text)),
            ReceivedMessage::Binary(bytes) => self.push_event(WebSocketEvent::Binary(bytes)),
            ReceivedMessage::Oversized(head) => self.push_event(WebSocketEvent::Oversized(head)),
            ReceivedMessage::Ping(payload) => {
                if self.is_open() && self.waiting_frames() < PONGS_WAITING_MAX {
                    self.push_frame(Opcode::Pong, Chunks::whole(payload));
                } else {
                    self.busy.get_or_allocate().pong = Some(payload.into());
                }
            }
            ReceivedMessage::Pong => {}
            ReceivedMessage::Close(code, reason) => {
                let by = match self.state {
                    ConnectionState::Closing => ClosedBy::Us,
                    _ => {
                        // RFC 6455, section 5.5.1: the response has the code that was received.
                        self.push_frame(Opcode::Close, Chunks::whole(close::payload(code, "")));
                        ClosedBy::Peer
                    }
                };
                self.closed(Closed { code, reason, by });
            }
        }
    }

    /// Fails the connection (RFC 6455, section 7.1.7). The rest of the stream cannot be understood, so this side does
    /// not wait for the peer's close frame.
    fn fail(&mut self, failure: Failure) {
        if self.is_open() {
            let payload = close::payload(failure.code, failure.reason);
            self.push_frame(Opcode::Close, Chunks::whole(payload));
        }
        let Failure { code, reason } = failure;
        self.closed(Closed { code, reason: reason.into(), by: ClosedBy::Us });
    }

    fn closed(&mut self, closed: Closed) {
        self.state = ConnectionState::Closed;
        let busy = self.busy.get_or_allocate();
        (busy.partial, busy.is_reading, busy.is_held) = (None, false, false);
        busy.input = Vec::new();
        self.push_event(WebSocketEvent::Closed(closed));
    }

    fn push_event(&mut self, event: WebSocketEvent) {
        self.busy.get_or_allocate().events.push_back(event);
    }

    /// Returns the number of frames that wait.
    fn waiting_frames(&self) -> usize {
        self.busy.get().map_or(0, |busy| busy.outgoing.len())
    }

    fn push_frame(&mut self, opcode: Opcode, payload: Chunks) {
        let frame = self.frame(opcode, false, payload);
        self.busy.get_or_allocate().outgoing.push_back(frame);
    }

    fn frame(&mut self, opcode: Opcode, is_compressed: bool, payload: Chunks) -> Chunks {
        let mark = |header: FrameHeader| if is_compressed { header.compressed() } else { header };
        match &mut self.role {
            WebSocketRole::Server => {
                let header = mark(FrameHeader::new(opcode, payload.len()));
                let head = [&*header, &payload.head].concat();
                Chunks { head: head.into(), ..payload }
            }
            WebSocketRole::Client(masks) => {
                let mask = next_mask(masks);
                let header = mark(FrameHeader::masked(opcode, payload.len(), mask));
                let mut frame = Vec::with_capacity(header.len() + payload.len());
                frame.extend_from_slice(&header);
                payload.append_to(&mut frame);
                apply_mask(&mut frame[header.len()..], mask, 0);
                Chunks::whole(frame)
            }
        }
    }
}

/// Returns the next mask: one step of SplitMix64.
fn next_mask(state: &mut u64) -> [u8; 4] {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) as u32).to_le_bytes()
}
