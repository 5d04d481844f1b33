//! Finds the end of a body, and takes its bytes out of the read buffer (RFC 9112, sections 6.3 and
//! 7.1).

use bytes::{Bytes, BytesMut};

/// Maximum size of a chunk's head beside its data, and of all trailers; real servers send a few
/// bytes.
const CHUNK_HEAD_BYTES_MAX: usize = 1024;
const TRAILER_BYTES_MAX: usize = 16 * 1024;

/// The reason why the bytes of a server are not a response.
pub(crate) type Malformed = &'static str;

/// The way in which a body ends, and the position in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    /// It ends after this many more bytes.
    Length(u64),
    /// Its chunks show the end.
    Chunked(ChunkedState),
    /// It ends with the connection.
    UntilClose,
}

/// The next part of a chunked body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ChunkedState {
    /// The line with the size of a chunk.
    Head,
    /// This many bytes of data.
    Data(u64),
    /// The end of the line after the data.
    End,
    /// Trailers, of which this many bytes have been skipped.
    Trailers(usize),
    /// Nothing: the body is complete.
    Done,
}

/// The available part of a body.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum BodyPiece {
    /// Some bytes of it.
    Data(Bytes),
    /// More has to be read first.
    Incomplete,
    /// It is complete.
    End,
}

impl Framing {
    /// A chunked body from its beginning.
    pub(crate) fn chunked() -> Self {
        Self::Chunked(ChunkedState::Head)
    }

    /// Takes the next piece off the front of `buffer`. A body of known length is one piece, without
    /// a copy.
    pub(crate) fn take_piece(&mut self, buffer: &mut BytesMut) -> Result<BodyPiece, Malformed> {
        match self {
            Self::Length(0) => Ok(BodyPiece::End),
            Self::Length(left) => {
                if (buffer.len() as u64) < *left {
                    return Ok(BodyPiece::Incomplete);
                }
                // Not more than the bytes in memory.
                let piece = buffer.split_to(*left as usize).freeze();
                *left = 0;
                Ok(BodyPiece::Data(piece))
            }
            Self::UntilClose if buffer.is_empty() => Ok(BodyPiece::Incomplete),
            Self::UntilClose => Ok(BodyPiece::Data(buffer.split().freeze())),
            Self::Chunked(chunk) => chunk.take_piece(buffer),
        }
    }

    /// The number of bytes that must come before the body can end, as far as is known.
    pub(crate) fn left(&self) -> u64 {
        match self {
            Self::Length(left) | Self::Chunked(ChunkedState::Data(left)) => *left,
            _ => 0,
        }
    }
}

impl ChunkedState {
    fn take_piece(&mut self, buffer: &mut BytesMut) -> Result<BodyPiece, Malformed> {
        loop {
            match self {
                Self::Head => {
                    let Some(line) = take_line(buffer, CHUNK_HEAD_BYTES_MAX)? else {
                        return Ok(BodyPiece::Incomplete);
                    };
                    *self = match chunk_size(&line)? {
                        0 => Self::Trailers(0),
                        size => Self::Data(size),
                    };
                }
                Self::Data(_) if buffer.is_empty() => return Ok(BodyPiece::Incomplete),
                Self::Data(left) => {
                    // Not more than the bytes in memory.
                    let length = (buffer.len() as u64).min(*left) as usize;
                    let piece = buffer.split_to(length).freeze();
                    *left -= length as u64;
                    if *left == 0 {
                        *self = Self::End;
                    }
                    return Ok(BodyPiece::Data(piece));
                }
                Self::End => match take_line(buffer, 0)? {
                    Some(_) => *self = Self::Head,
                    None => return Ok(BodyPiece::Incomplete),
                },
                Self::Trailers(skipped) => {
                    let left = TRAILER_BYTES_MAX.saturating_sub(*skipped);
                    match take_line(buffer, left)? {
                        Some(line) if line.is_empty() => *self = Self::Done,
                        Some(line) => *skipped += line.len() + 2,
                        None => return Ok(BodyPiece::Incomplete),
                    }
                }
                Self::Done => return Ok(BodyPiece::End),
            }
        }
    }
}

/// Takes a line of at most `max` bytes, and the `\r\n` that ends it, off the front.
fn take_line(buffer: &mut BytesMut, max: usize) -> Result<Option<BytesMut>, Malformed> {
    let Some(end) = buffer.iter().take(max + 2).position(|&byte| byte == b'\n') else {
        return if buffer.len() >= max + 2 {
            Err("a line of a chunk is too long")
        } else {
            Ok(None)
        };
    };
    let mut line = buffer.split_to(end + 1);
    if !line.ends_with(b"\r\n") || line[..end - 1].contains(&b'\r') {
        return Err("a line of a chunk does not end as lines do");
    }
    line.truncate(end - 1);
    Ok(Some(line))
}

/// The size of a chunk; extensions are ignored.
fn chunk_size(line: &[u8]) -> Result<u64, Malformed> {
    let end = line.iter().position(|&byte| byte == b';').unwrap_or(line.len());
    let digits = line[..end].trim_ascii_end();
    let is_size = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_size);
    text.and_then(|it| u64::from_str_radix(it, 16).ok()).ok_or("the size of a chunk is no number")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body that comes in these pieces. Returns it, the rest of the bytes, and true if it
    /// is complete.
    fn read(mut framing: Framing, pieces: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>, bool), Malformed> {
        let (mut buffer, mut body, mut is_complete) = (BytesMut::new(), Vec::new(), false);
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                match framing.take_piece(&mut buffer)? {
                    BodyPiece::Data(data) => body.extend_from_slice(&data),
                    BodyPiece::Incomplete => break,
                    BodyPiece::End => {
                        is_complete = true;
                        break;
                    }
                }
            }
        }
        Ok((body, buffer.to_vec(), is_complete))
    }

    const CHUNKED: &[u8] = b"3\r\nabc\r\n00A ; x=\"y\"\r\n0123456789\r\n0\r\nt: u\r\n\r\nrest";

    #[test]
    fn a_chunked_body_is_the_same_however_it_is_cut() {
        let expected = Ok((b"abc0123456789".to_vec(), b"rest".to_vec(), true));
        assert_eq!(read(Framing::chunked(), &[CHUNKED]), expected);
        let bytes: Vec<&[u8]> = CHUNKED.chunks(1).collect();
        assert_eq!(read(Framing::chunked(), &bytes), expected);
        for at in 0..CHUNKED.len() {
            let (first, second) = CHUNKED.split_at(at);
            assert_eq!(read(Framing::chunked(), &[first, second]), expected, "{at}");
        }
    }

    #[test]
    fn a_chunked_body_that_could_be_read_in_two_ways_is_refused() {
        for body in [
            "\r\n",
            "3\nabc\r\n",
            "3\r\nabcd\r\n",
            "3\r\nabc\n",
            "+3\r\nabc\r\n",
            "0x3\r\nabc\r\n",
            "3 3\r\nabc\r\n",
            "11111111111111111\r\n",
            "3\r\r\nabc\r\n",
            "0\r\nt: u\n\r\n",
        ] {
            assert!(read(Framing::chunked(), &[body.as_bytes()]).is_err(), "{body:?}");
        }
    }

    #[test]
    fn heads_of_chunks_and_trailers_have_bounds() {
        let extension = format!("3;{}", "a".repeat(2 * CHUNK_HEAD_BYTES_MAX));
        assert!(read(Framing::chunked(), &[extension.as_bytes()]).is_err());
        let trailers = format!("0\r\n{}", "t: u\r\n".repeat(TRAILER_BYTES_MAX));
        assert!(read(Framing::chunked(), &[trailers.as_bytes()]).is_err());
    }

    #[test]
    fn a_body_of_known_length_is_one_piece() {
        let read = read(Framing::Length(5), &[b"ab", b"cdeX"]);
        assert_eq!(read, Ok((b"abcde".to_vec(), b"X".to_vec(), true)));
    }
}
