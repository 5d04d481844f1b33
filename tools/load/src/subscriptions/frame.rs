//! WebSocket frames for a client (RFC 6455, section 5): frames of a server, read in place, and frames of the client.

/// The maximum length of a frame.
const FRAME_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

/// A frame of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) opcode: Opcode,
    pub(super) is_final: bool,
    pub(super) payload: &'a [u8],
}

/// The bytes are not a frame that a server may send to a client without extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MalformedFrame(pub(super) &'static str);

/// Reads the frame at the front and returns its total length; `None` if it is not complete.
// hot path: once a message.
pub(super) fn read(input: &[u8]) -> Result<Option<(Frame<'_>, usize)>, MalformedFrame> {
    let [first, second, ..] = *input else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(MalformedFrame(
            "a frame with reserved bits, although no extension was negotiated",
        ));
    }
    if second & 0x80 != 0 {
        return Err(MalformedFrame("a masked frame from a server"));
    }
    let (head, length) = match second {
        126 => match input.get(2..4) {
            Some(&[high, low]) => (4, u64::from(u16::from_be_bytes([high, low]))),
            _ => return Ok(None),
        },
        127 => match input.get(2..10).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok()) {
            Some(bytes) => (10, u64::from_be_bytes(bytes)),
            None => return Ok(None),
        },
        short => (2, u64::from(short)),
    };
    if length > FRAME_BYTES_MAX {
        return Err(MalformedFrame("a frame of more than 64 MiB"));
    }
    let opcode = match first & 0x0f {
        0 => Opcode::Continuation,
        1 => Opcode::Text,
        2 => Opcode::Binary,
        8 => Opcode::Close,
        9 => Opcode::Ping,
        10 => Opcode::Pong,
        _ => return Err(MalformedFrame("a frame of an unknown kind")),
    };
    // At most 64 MiB, see above.
    let end = head + length as usize;
    let is_final = first & 0x80 != 0;
    Ok(input.get(head..end).map(|payload| (Frame { opcode, is_final, payload }, end)))
}

/// Writes a client's frame. The mask is zero, which is permitted: there is no proxy here that the mask would protect,
/// and the payload stays readable (RFC 6455, section 10.3).
pub(super) fn write(opcode: Opcode, payload: &[u8], into: &mut Vec<u8>) {
    let code = match opcode {
        Opcode::Continuation => 0,
        Opcode::Text => 1,
        Opcode::Binary => 2,
        Opcode::Close => 8,
        Opcode::Ping => 9,
        Opcode::Pong => 10,
    };
    into.push(0x80 | code);
    write_length(payload.len(), 0x80, into);
    into.extend_from_slice(&[0; 4]);
    into.extend_from_slice(payload);
}

/// Writes a server's text frame.
pub(crate) fn write_from_server(payload: &[u8], into: &mut Vec<u8>) {
    into.push(0x81);
    write_length(payload.len(), 0, into);
    into.extend_from_slice(payload);
}

fn write_length(length: usize, mask: u8, into: &mut Vec<u8>) {
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < 126 => into.push(mask | short),
        (_, Ok(medium)) => {
            into.push(mask | 126);
            into.extend_from_slice(&medium.to_be_bytes());
        }
        _ => {
            into.push(mask | 127);
            into.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_every_length_are_read_once_they_are_complete() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536] {
            let payload = vec![b'x'; length];
            let mut bytes = Vec::new();
            write_from_server(&payload, &mut bytes);
            for cut in [1, 2, 3, bytes.len() - 1] {
                assert!(cut >= bytes.len() || read(&bytes[..cut]) == Ok(None), "{length} at {cut}");
            }
            let whole = bytes.len();
            bytes.push(0x81);
            let frame = Frame { opcode: Opcode::Text, is_final: true, payload: &payload };
            assert_eq!(read(&bytes), Ok(Some((frame, whole))), "{length}");
        }
    }

    #[test]
    fn frames_that_servers_must_not_send_are_refused() {
        let endless = [0x82, 127, 0xff, 0, 0, 0, 0, 0, 0, 0];
        for bytes in [&[0xc1, 0][..], &[0x81, 0x80, 0, 0, 0, 0], &[0x83, 0], &endless] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_client_masks_with_zeros() {
        let mut bytes = Vec::new();
        write(Opcode::Pong, b"hi", &mut bytes);
        assert_eq!(bytes, [0x8a, 0x82, 0, 0, 0, 0, b'h', b'i']);
    }
}
