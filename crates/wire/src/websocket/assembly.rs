//! The assembly of frames into messages: fragments, control frames between them, unmasking, expanding, UTF-8, size
//! limits.
//!
//! An [`MessageAssembler`] exists only while something is half received; an idle connection has none.

use bytes::Bytes;

use super::close::{self, CloseCode, Failure, NOT_UTF8, TOO_BIG};
use super::frame::{CONTROL_BYTES_MAX, HEADER_BYTES_MAX, IncomingHeader, Opcode, apply_mask};
use super::large::{ClientBounds, LargeMessage, expand};

/// A whole message or control frame.
#[derive(Debug)]
pub(super) enum ReceivedMessage {
    Text(Bytes),
    Binary(Bytes),
    Ping(Vec<u8>),
    Pong,
    Close(CloseCode, Box<str>),
    /// A message that is too large to be expanded and parsed here.
    Large(LargeMessage),
    /// The head of a text message over the size limit. The rest was discarded.
    Oversized(Bytes),
}

impl ReceivedMessage {
    /// Returns the number of bytes after expansion; 0 for a large message, which is not expanded here.
    pub(super) fn bytes(&self) -> usize {
        match self {
            ReceivedMessage::Text(bytes)
            | ReceivedMessage::Binary(bytes)
            | ReceivedMessage::Oversized(bytes) => bytes.len(),
            ReceivedMessage::Ping(payload) => payload.len(),
            ReceivedMessage::Pong | ReceivedMessage::Close(..) | ReceivedMessage::Large(_) => 0,
        }
    }
}

/// The rules of a connection for incoming frames.
#[derive(Clone, Copy)]
pub(super) struct FrameRules {
    /// True if frames must be masked: clients must mask, servers must not (RFC 6455, section 5.1).
    pub(super) expects_mask: bool,
    pub(super) message_bytes_max: usize,
    /// The number of bytes that are kept of a larger text message; 0 if such a message is an error.
    pub(super) oversized_head_bytes_max: usize,
    /// True if permessage-deflate was negotiated.
    pub(super) deflates: bool,
    /// True if this side has sent a close frame: messages are discarded, and only the peer's close frame is processed.
    pub(super) discards_messages: bool,
    /// The bounds of the work that a client may cause; `None` on the client's side.
    pub(super) bounds: Option<ClientBounds>,
}

/// The received parts of frames and messages that are not complete.
#[derive(Default)]
pub(super) struct MessageAssembler {
    header: [u8; HEADER_BYTES_MAX],
    header_len: u8,
    frame: Option<IncomingFrame>,
    control: Vec<u8>,
    message: Option<PartialMessage>,
}

/// A frame whose header is complete.
struct IncomingFrame {
    opcode: Opcode,
    is_final: bool,
    mask: Option<[u8; 4]>,
    received: u64,
    payload_len: u64,
}

#[derive(Default)]
struct PartialMessage {
    is_text: bool,
    is_compressed: bool,
    /// True if the message is over the size limit, so that only its head is kept.
    is_oversized: bool,
    bytes: Vec<u8>,
    /// The number of `bytes` that are known to be whole UTF-8 characters; kept for text only.
    valid_up_to: usize,
}

impl MessageAssembler {
    /// True if nothing is half received, so that the assembly can be dropped.
    pub(super) fn is_idle(&self) -> bool {
        self.header_len == 0 && self.frame.is_none() && self.message.is_none()
    }

    /// True if no message has begun that needs more frames.
    pub(super) fn is_between_messages(&self) -> bool {
        self.message.is_none()
    }

    /// Takes bytes from the front of `input` up to the end of the next message or control frame; `None` if all of the
    /// input is taken without reaching an end.
    pub(super) fn next(
        &mut self,
        input: &mut &[u8],
        rules: FrameRules,
    ) -> Result<Option<ReceivedMessage>, Failure> {
        loop {
            if self.frame.is_none() {
                let Some(header) = self.take_header(input)? else { return Ok(None) };
                self.frame = Some(self.begin(header, rules)?);
            }
            let Some(frame) = &mut self.frame else { return Ok(None) };
            let missing = frame.payload_len - frame.received;
            let take = usize::try_from(missing).unwrap_or(usize::MAX).min(input.len());
            let (piece, rest) = input.split_at(take);
            *input = rest;
            let offset = frame.received;
            frame.received += take as u64;
            let is_whole = frame.received == frame.payload_len;

            let (opcode, is_final, mask) = (frame.opcode, frame.is_final, frame.mask);
            if opcode.is_control() {
                append(&mut self.control, piece, missing, mask, offset);
            } else if rules.discards_messages {
                self.message = None;
            } else if let Some(message) = self.message.as_mut().filter(|it| it.is_oversized) {
                let room = rules.oversized_head_bytes_max.saturating_sub(message.bytes.len());
                let kept = &piece[..room.min(piece.len())];
                append(&mut message.bytes, kept, room as u64, mask, offset);
            } else if let Some(message) = &mut self.message {
                append(&mut message.bytes, piece, missing, mask, offset);
                message.check_utf8(is_final && is_whole)?;
            }
            if !is_whole {
                return Ok(None);
            }
            self.frame = None;
            if let Some(received) = self.finish(opcode, is_final, rules)? {
                return Ok(Some(received));
            }
        }
    }

    fn take_header(&mut self, input: &mut &[u8]) -> Result<Option<IncomingHeader>, Failure> {
        let held = usize::from(self.header_len);
        if held == 0
            && let Some((header, taken)) = IncomingHeader::parse(input)?
        {
            *input = &input[taken..];
            return Ok(Some(header));
        }
        let take = input.len().min(HEADER_BYTES_MAX - held);
        self.header[held..held + take].copy_from_slice(&input[..take]);
        match IncomingHeader::parse(&self.header[..held + take])? {
            Some((header, taken)) => {
                // The held bytes were not a whole header, so at least one more byte was taken.
                *input = &input[taken - held..];
                self.header_len = 0;
                Ok(Some(header))
            }
            None => {
                *input = &input[take..];
                self.header_len = (held + take) as u8;
                Ok(None)
            }
        }
    }

    fn begin(
        &mut self,
        header: IncomingHeader,
        rules: FrameRules,
    ) -> Result<IncomingFrame, Failure> {
        let IncomingHeader { opcode, is_final, is_compressed, mask, payload_len } = header;
        // The bit belongs to the first frame of a message (RFC 7692, section 6).
        if is_compressed && !(rules.deflates && matches!(opcode, Opcode::Text | Opcode::Binary)) {
            return Err(Failure::protocol("reserved bits are set"));
        }
        match (mask.is_some(), rules.expects_mask) {
            (false, true) => return Err(Failure::protocol("client frame is not masked")),
            (true, false) => return Err(Failure::protocol("server frame is masked")),
            _ => {}
        }
        if opcode.is_control() {
            // A control frame is complete before the next one begins: frames do not interleave.
            debug_assert!(self.control.is_empty() && payload_len <= CONTROL_BYTES_MAX);
        } else if !rules.discards_messages {
            match (opcode, &self.message) {
                (Opcode::Continuation, None) => {
                    return Err(Failure::protocol("continuation of no message"));
                }
                (Opcode::Text | Opcode::Binary, Some(_)) => {
                    return Err(Failure::protocol("message within a fragmented message"));
                }
                (Opcode::Text | Opcode::Binary, None) => {
                    let is_text = opcode == Opcode::Text;
                    let message = PartialMessage { is_text, is_compressed, ..Default::default() };
                    self.message = Some(message);
                }
                _ => {}
            }
            if let Some(message) = &mut self.message {
                message.make_room(payload_len, rules)?;
            }
        }
        Ok(IncomingFrame { opcode, is_final, mask, received: 0, payload_len })
    }

    fn finish(
        &mut self,
        opcode: Opcode,
        is_final: bool,
        rules: FrameRules,
    ) -> Result<Option<ReceivedMessage>, Failure> {
        Ok(match opcode {
            Opcode::Ping => Some(ReceivedMessage::Ping(std::mem::take(&mut self.control))),
            Opcode::Pong => {
                self.control = Vec::new();
                Some(ReceivedMessage::Pong)
            }
            Opcode::Close => {
                let payload = std::mem::take(&mut self.control);
                let (code, reason) = close::parse(&payload)?;
                Some(ReceivedMessage::Close(code, reason))
            }
            Opcode::Text | Opcode::Binary | Opcode::Continuation if !is_final => None,
            Opcode::Text | Opcode::Binary | Opcode::Continuation => {
                self.message.take().map(|it| it.received(rules)).transpose()?
            }
        })
    }
}

impl PartialMessage {
    /// Checks that a frame of this length fits into the message. Of text that is too large, the head is kept if the
    /// rules say so.
    fn make_room(&mut self, frame_bytes: u64, rules: FrameRules) -> Result<(), Failure> {
        let room = rules.message_bytes_max.saturating_sub(self.bytes.len());
        if self.is_oversized || frame_bytes <= room as u64 {
            return Ok(());
        }
        if !self.is_text || self.is_compressed || rules.oversized_head_bytes_max == 0 {
            return Err(TOO_BIG);
        }
        self.is_oversized = true;
        self.bytes.truncate(rules.oversized_head_bytes_max);
        self.bytes.shrink_to_fit();
        Ok(())
    }

    /// Expands a whole message, unless another thread must do that.
    fn received(mut self, rules: FrameRules) -> Result<ReceivedMessage, Failure> {
        if self.is_oversized {
            return Ok(ReceivedMessage::Oversized(self.bytes.into()));
        }
        let limit = match rules.bounds {
            Some(bounds) if self.is_compressed => {
                bounds.expanded_bytes_max(self.bytes.len()).min(rules.message_bytes_max)
            }
            _ => rules.message_bytes_max,
        };
        let inline = rules.bounds.map_or(usize::MAX, |bounds| bounds.inline_bytes_max);
        if self.bytes.len() > inline {
            return Ok(ReceivedMessage::Large(self.large(limit)));
        }
        if self.is_compressed {
            match expand(&self.bytes, limit.min(inline)) {
                Ok(expanded) => self.bytes = expanded,
                Err(TOO_BIG) if inline < limit => {
                    return Ok(ReceivedMessage::Large(self.large(limit)));
                }
                Err(failure) => return Err(failure),
            }
            self.is_compressed = false;
            self.check_utf8(true)?;
        }
        Ok(match self.is_text {
            true => ReceivedMessage::Text(self.bytes.into()),
            false => ReceivedMessage::Binary(self.bytes.into()),
        })
    }

    fn large(self, expanded_bytes_max: usize) -> LargeMessage {
        let PartialMessage { is_text, is_compressed, bytes, .. } = self;
        LargeMessage { bytes: bytes.into(), is_text, is_compressed, expanded_bytes_max }
    }

    /// Fails as soon as the text received so far cannot become UTF-8 (RFC 6455, section 8.1). Each byte is checked
    /// once, except for the up to three bytes of an unfinished character.
    fn check_utf8(&mut self, is_end: bool) -> Result<(), Failure> {
        if !self.is_text || self.is_compressed {
            return Ok(());
        }
        match std::str::from_utf8(&self.bytes[self.valid_up_to..]) {
            Ok(_) => self.valid_up_to = self.bytes.len(),
            Err(error) if error.error_len().is_some() || is_end => return Err(NOT_UTF8),
            Err(error) => self.valid_up_to += error.valid_up_to(),
        }
        Ok(())
    }
}

/// Appends a piece of a frame and unmasks it. Memory follows the bytes that were received, not the length that a header
/// announced: at most twice as much, and never more than `missing`.
fn append(out: &mut Vec<u8>, piece: &[u8], missing: u64, mask: Option<[u8; 4]>, offset: u64) {
    let old_len = out.len();
    if out.capacity() - old_len < piece.len() {
        let missing = usize::try_from(missing).unwrap_or(usize::MAX);
        let grow = piece.len().max(old_len).min(missing);
        out.reserve_exact(grow);
    }
    out.extend_from_slice(piece);
    if let Some(mask) = mask {
        apply_mask(&mut out[old_len..], mask, offset);
    }
}
