//! The entry point of the fuzz target of the response reader: the protocol without a socket.

use bytes::BytesMut;

use super::framing::{BodyPiece, Framing, Malformed};
use super::head::{ResponseHead, read_response};

/// A response that was read from pieces of bytes.
#[derive(PartialEq, Eq, Debug)]
pub struct FuzzedResponse {
    /// The status code.
    pub status: u16,
    /// True if the connection may be used again after the body.
    pub keeps_alive: bool,
    /// The announced length of the body.
    pub announced: Option<u64>,
    /// The part of the body that was in the pieces.
    pub body: Vec<u8>,
    /// True if the body has ended before the end of the connection.
    pub is_complete: bool,
    /// The bytes after a complete body.
    pub rest: Vec<u8>,
}

/// Reads a response from bytes that arrive in these pieces. `None` if its head is not complete.
///
/// # Errors
/// Returns the reason why the bytes are not a response.
pub fn fuzz_response<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Option<FuzzedResponse>, Malformed> {
    let mut buffer = BytesMut::new();
    let mut reading: Option<(Framing, FuzzedResponse)> = None;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        if reading.is_none() {
            let Some(ResponseHead { head, framing, keeps_alive }) = read_response(&mut buffer)?
            else {
                continue;
            };
            let response = FuzzedResponse {
                status: head.status().as_u16(),
                keeps_alive,
                announced: match framing {
                    Framing::Length(length) => Some(length),
                    Framing::Chunked(_) | Framing::UntilClose => None,
                },
                body: Vec::new(),
                is_complete: false,
                rest: Vec::new(),
            };
            reading = Some((framing, response));
        }
        let Some((framing, response)) = &mut reading else { continue };
        while !response.is_complete {
            match framing.take_piece(&mut buffer)? {
                BodyPiece::Data(data) => response.body.extend_from_slice(&data),
                BodyPiece::Incomplete => break,
                BodyPiece::End => response.is_complete = true,
            }
        }
    }
    Ok(reading.map(|(_, mut response)| {
        if response.is_complete {
            response.rest = buffer.to_vec();
        }
        response
    }))
}
