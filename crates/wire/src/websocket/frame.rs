//! The header of a frame, both ways, and masking (RFC 6455, sections 5.2 and 5.3).

use std::ops::Deref;

use super::close::Failure;

/// The maximum length of a header in bytes: two, eight of length, four of mask.
pub(super) const HEADER_BYTES_MAX: usize = 14;
/// RSV1: under permessage-deflate, the message that the frame begins is compressed.
const COMPRESSED_BIT: u8 = 0x40;
/// RSV2 and RSV3, which have no meaning without further extensions.
const RESERVED_BITS: u8 = 0x30;
/// The maximum payload of a control frame in bytes (RFC 6455, section 5.5).
pub(super) const CONTROL_BYTES_MAX: u64 = 125;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// The next fragment of a message that an earlier frame began.
    Continuation = 0,
    /// A text message in UTF-8.
    Text = 1,
    /// A binary message.
    Binary = 2,
    /// The start of the closing handshake, or the response to it.
    Close = 8,
    /// A request for a pong.
    Ping = 9,
    /// The response to a ping.
    Pong = 10,
}

impl Opcode {
    fn from_bits(bits: u8) -> Option<Opcode> {
        Some(match bits {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }

    /// True if frames of this kind may be sent between the fragments of a message.
    pub fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

/// The header of an outgoing frame; dereferences to its bytes.
///
/// With it a broadcast can write the header and the shared payload without copying the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    bytes: [u8; HEADER_BYTES_MAX],
    len: u8,
}

impl FrameHeader {
    /// Returns the header of an unfragmented, unmasked frame, as a server sends it.
    pub fn new(opcode: Opcode, payload_len: usize) -> FrameHeader {
        let mut header = FrameHeader { bytes: [0; HEADER_BYTES_MAX], len: 0 };
        header.push(&[0x80 | opcode as u8]);
        match payload_len {
            0..126 => header.push(&[payload_len as u8]),
            126..0x1_0000 => {
                header.push(&[126]);
                header.push(&(payload_len as u16).to_be_bytes());
            }
            _ => {
                header.push(&[127]);
                header.push(&(payload_len as u64).to_be_bytes());
            }
        }
        header
    }

    /// Returns the header of a client's frame, whose payload must be masked with `mask`.
    pub(super) fn masked(opcode: Opcode, payload_len: usize, mask: [u8; 4]) -> FrameHeader {
        let mut header = FrameHeader::new(opcode, payload_len);
        header.bytes[1] |= 0x80;
        header.push(&mask);
        header
    }

    /// Returns the same header for a compressed payload (RFC 7692, section 6).
    pub(crate) fn compressed(mut self) -> FrameHeader {
        self.bytes[0] |= COMPRESSED_BIT;
        self
    }

    fn push(&mut self, bytes: &[u8]) {
        let len = usize::from(self.len);
        self.bytes[len..len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }
}

impl Deref for FrameHeader {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The header of an incoming frame, checked as far as is possible without other frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IncomingHeader {
    pub(super) opcode: Opcode,
    pub(super) is_final: bool,
    pub(super) is_compressed: bool,
    pub(super) mask: Option<[u8; 4]>,
    pub(super) payload_len: u64,
}

impl IncomingHeader {
    /// Reads a header from the start of `bytes` and returns it with its length; `None` if `bytes` does not contain a
    /// whole header yet.
    ///
    /// A length in a longer form than necessary is accepted: it does no harm.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(IncomingHeader, usize)>, Failure> {
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        if first & RESERVED_BITS != 0 {
            return Err(Failure::protocol("reserved bits are set"));
        }
        let is_compressed = first & COMPRESSED_BIT != 0;
        let Some(opcode) = Opcode::from_bits(first & 0x0f) else {
            return Err(Failure::protocol("reserved opcode"));
        };
        let is_final = first & 0x80 != 0;
        let short_len = second & 0x7f;
        if opcode.is_control() && (!is_final || u64::from(short_len) > CONTROL_BYTES_MAX) {
            return Err(Failure::protocol("control frame is fragmented or over 125 bytes"));
        }
        let (payload_len, rest) = match short_len {
            126 => match rest.split_first_chunk::<2>() {
                Some((len, rest)) => (u64::from(u16::from_be_bytes(*len)), rest),
                None => return Ok(None),
            },
            127 => match rest.split_first_chunk::<8>() {
                Some((len, rest)) => (u64::from_be_bytes(*len), rest),
                None => return Ok(None),
            },
            len => (u64::from(len), rest),
        };
        if payload_len >> 63 != 0 {
            return Err(Failure::protocol("length with its highest bit set"));
        }
        let (mask, rest) = match second & 0x80 {
            0 => (None, rest),
            _ => match rest.split_first_chunk::<4>() {
                Some((mask, rest)) => (Some(*mask), rest),
                None => return Ok(None),
            },
        };
        let taken = bytes.len() - rest.len();
        Ok(Some((IncomingHeader { opcode, is_final, is_compressed, mask, payload_len }, taken)))
    }
}

/// Masks or unmasks in place. `offset` is the number of payload bytes before these.
pub(super) fn apply_mask(bytes: &mut [u8], mask: [u8; 4], offset: u64) {
    let key: [u8; 16] = std::array::from_fn(|i| mask[(offset as usize).wrapping_add(i) & 3]);
    let (blocks, rest) = bytes.as_chunks_mut::<16>();
    for block in blocks {
        for (byte, key) in block.iter_mut().zip(key) {
            *byte ^= key;
        }
    }
    for (byte, key) in rest.iter_mut().zip(key) {
        *byte ^= key;
    }
}

/// Appends the header of a text frame and the first part of its payload, which `write` appends. `prefix_len` estimates
/// the length of that part; `rest_len` more bytes of payload follow it.
pub(crate) fn append_text_head(
    prefix_len: usize,
    rest_len: usize,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    // The size of the header depends on the length of an id that may need escapes. The usual size is assumed, and
    // corrected if it is wrong.
    let assumed = FrameHeader::new(Opcode::Text, prefix_len + rest_len);
    out.extend_from_slice(&assumed);
    write(out);
    let prefix_len = out.len() - start - assumed.len();
    let actual = FrameHeader::new(Opcode::Text, prefix_len + rest_len);
    if actual != assumed {
        out.splice(start..start + assumed.len(), actual.iter().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_takes_the_shortest_length_that_fits() {
        let header = |len| FrameHeader::new(Opcode::Text, len).to_vec();
        assert_eq!(header(0), [0x81, 0]);
        assert_eq!(header(125), [0x81, 125]);
        assert_eq!(header(126), [0x81, 126, 0, 126]);
        assert_eq!(header(65_535), [0x81, 126, 0xff, 0xff]);
        assert_eq!(header(65_536), [0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn a_header_reads_back_from_every_length_of_prefix() {
        for len in [0, 1, 125, 126, 65_535, 65_536, 1 << 40] {
            let header = FrameHeader::masked(Opcode::Binary, len, [1, 2, 3, 4]);
            for cut in 0..header.len() {
                assert_eq!(IncomingHeader::parse(&header[..cut]), Ok(None));
            }
            let expected = IncomingHeader {
                opcode: Opcode::Binary,
                is_final: true,
                is_compressed: false,
                mask: Some([1, 2, 3, 4]),
                payload_len: len as u64,
            };
            assert_eq!(IncomingHeader::parse(&header), Ok(Some((expected, header.len()))));
        }
    }

    #[test]
    fn masking_in_pieces_equals_masking_at_once() {
        let mask = [0xa1, 0xb2, 0xc3, 0xd4];
        let plain: Vec<u8> = (0..100).collect();
        let expected: Vec<u8> =
            plain.iter().enumerate().map(|(i, byte)| byte ^ mask[i % 4]).collect();
        for cut in 0..plain.len() {
            let mut bytes = plain.clone();
            let (left, right) = bytes.split_at_mut(cut);
            apply_mask(left, mask, 0);
            apply_mask(right, mask, cut as u64);
            assert_eq!(bytes, expected);
        }
    }
}
