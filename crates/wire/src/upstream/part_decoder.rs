//! An incremental reader of `multipart/mixed` bodies (RFC 2046, section 5.1), in pieces of any size.
//!
//! A part is complete as soon as the delimiter behind it has arrived: servers of subscriptions write it with the part.
//! The `Content-Length` of a part is not read, because servers count it in characters as well as in bytes.

use std::collections::VecDeque;

use bytes::Bytes;
use memchr::memmem;

use crate::lazy_state::pop_or_release;

/// The end of the headers of a part.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The reason that a body cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartError {
    /// The contents of a part are over the limit.
    TooBig,
    /// The text names the defect.
    Malformed(&'static str),
}

/// A reader of the contents of parts.
pub(super) struct PartDecoder {
    /// The delimiter with the line end before it, which belongs to it.
    delimiter: Vec<u8>,
    part_bytes_max: usize,
    head_bytes_max: usize,
    position: PartPosition,
    /// The input that is not processed.
    held: Vec<u8>,
    /// The number of held bytes that were searched without success.
    searched: usize,
    parts: VecDeque<Bytes>,
}

/// The place in the body where the held bytes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartPosition {
    Preamble,
    /// The bytes behind a delimiter.
    Delimiter,
    /// The line end between a delimiter and the headers.
    Head,
    Contents,
    /// The bytes behind the last delimiter, or behind an error.
    End,
}

impl PartDecoder {
    /// Begins a body with the boundary of its content type.
    pub(super) fn new(boundary: &str, part_bytes_max: usize, head_bytes_max: usize) -> PartDecoder {
        PartDecoder {
            delimiter: [b"\r\n--", boundary.as_bytes()].concat(),
            part_bytes_max,
            head_bytes_max,
            position: PartPosition::Preamble,
            // The first delimiter may be at the start of the body, without a line end before it.
            held: b"\r\n".to_vec(),
            searched: 0,
            parts: VecDeque::new(),
        }
    }

    /// True if the last delimiter was read.
    pub(super) fn is_finished(&self) -> bool {
        self.position == PartPosition::End
    }

    /// Takes bytes of the body. Bytes behind the last delimiter are discarded. After an error nothing more is read;
    /// parts before it can still be polled.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<(), PartError> {
        if self.is_finished() {
            return Ok(());
        }
        self.held.extend_from_slice(bytes);
        let mut start = 0;
        let result = loop {
            match self.step(start) {
                Ok(Some(taken)) => {
                    start += taken;
                    self.searched = 0;
                }
                Ok(None) => break Ok(()),
                Err(error) => {
                    self.position = PartPosition::End;
                    break Err(error);
                }
            }
        };
        // Between two parts nothing is held, and no memory for it.
        if self.is_finished() || start == self.held.len() {
            self.held = Vec::new();
        } else {
            self.held.drain(..start);
        }
        result
    }

    /// Returns the contents of the next part.
    pub(super) fn poll_part(&mut self) -> Option<Bytes> {
        pop_or_release(&mut self.parts)
    }

    /// Processes the held bytes from `start` on up to the next position, and returns how many it took. `None` if that
    /// needs more input or the body has ended.
    fn step(&mut self, start: usize) -> Result<Option<usize>, PartError> {
        let held = &self.held[start..];
        match self.position {
            PartPosition::End => Ok(None),
            PartPosition::Preamble => match memmem::find(held, &self.delimiter) {
                Some(at) => {
                    self.position = PartPosition::Delimiter;
                    Ok(Some(at + self.delimiter.len()))
                }
                None => {
                    // The preamble has no meaning; only the start of a delimiter is kept.
                    let discard = held.len().saturating_sub(self.delimiter.len() - 1);
                    Ok((discard > 0).then_some(discard))
                }
            },
            PartPosition::Delimiter => match held {
                [] | [b'-'] | [b'\r'] => Ok(None),
                [b'-', b'-', ..] => {
                    self.position = PartPosition::End;
                    Ok(None)
                }
                [b'\r', b'\n', ..] => {
                    self.position = PartPosition::Head;
                    Ok(Some(0))
                }
                // Padding, which servers also use as a heartbeat.
                [b' ' | b'\t', ..] => Ok(Some(1)),
                _ => Err(PartError::Malformed("a line begins like a delimiter and is none")),
            },
            PartPosition::Head => {
                let end = find_from(held, HEAD_END, &mut self.searched);
                if end.unwrap_or(self.searched) > self.head_bytes_max {
                    return Err(PartError::Malformed("the headers of a part are too long"));
                }
                Ok(end.map(|end| {
                    self.position = PartPosition::Contents;
                    end + HEAD_END.len()
                }))
            }
            PartPosition::Contents => {
                let end = find_from(held, &self.delimiter, &mut self.searched);
                if end.unwrap_or(self.searched) > self.part_bytes_max {
                    return Err(PartError::TooBig);
                }
                let Some(end) = end else { return Ok(None) };
                self.parts.push_back(Bytes::copy_from_slice(&held[..end]));
                self.position = PartPosition::Delimiter;
                Ok(Some(end + self.delimiter.len()))
            }
        }
    }
}

/// Returns the position of `needle`. Before `searched` it is not; without a match that becomes the position before
/// which it cannot be.
fn find_from(text: &[u8], needle: &[u8], searched: &mut usize) -> Option<usize> {
    let from = (*searched).min(text.len());
    let found = memmem::find(&text[from..], needle).map(|at| from + at);
    if found.is_none() {
        *searched = text.len().saturating_sub(needle.len() - 1).max(from);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the parts and the last result, the same for pieces of every size.
    fn read(boundary: &str, body: &str) -> (Vec<String>, Result<(), PartError>, bool) {
        let read = |size: usize| {
            let mut decoder = PartDecoder::new(boundary, 40, 60);
            let result = body.as_bytes().chunks(size).try_for_each(|it| decoder.receive(it));
            let parts = std::iter::from_fn(|| decoder.poll_part());
            let parts = parts.map(|part| String::from_utf8(part.to_vec()).unwrap()).collect();
            (parts, result, decoder.is_finished())
        };
        let whole = read(body.len().max(1));
        for size in 1..body.len() {
            assert_eq!(read(size), whole, "pieces of {size} bytes");
        }
        whole
    }

    #[test]
    fn parts_are_complete_with_the_delimiter_behind_them() {
        let body = "--g\r\nContent-Type: application/json\r\n\r\n{\"a\":1}\r\n--g\r\n\r\n{}\r\n--g";
        assert_eq!(read("g", body), (vec![r#"{"a":1}"#.into(), "{}".into()], Ok(()), false));
    }

    #[test]
    fn preamble_padding_and_epilogue_have_no_meaning() {
        let body = "preamble --g\r\n--g \t \r\nx: y\r\n\r\nfirst --g \r\n second\r\n--g--\r\nrest\r\n--g\r\n\r\nx\r\n--g";
        assert_eq!(read("g", body), (vec!["first --g \r\n second".into()], Ok(()), true));
    }

    #[test]
    fn the_shortest_boundary_is_not_taken_for_the_last_delimiter() {
        let body = "---\r\nContent-Length: 2\r\n\r\n{}\r\n---\r\n\r\n[]\r\n-----\r\n";
        assert_eq!(read("-", body), (vec!["{}".into(), "[]".into()], Ok(()), true));
    }

    #[test]
    fn parts_and_headers_have_limits() {
        let long = "x".repeat(41);
        let body = format!("--g\r\n\r\nfine\r\n--g\r\n\r\n{long}\r\n--g--");
        assert_eq!(read("g", &body), (vec!["fine".into()], Err(PartError::TooBig), true));
        let most = "x".repeat(40);
        let body = format!("--g\r\n\r\n{most}\r\n--g--");
        assert_eq!(read("g", &body), (vec![most], Ok(()), true));
        let error = PartError::Malformed("the headers of a part are too long");
        let body = format!("--g\r\nx: {}", "y".repeat(100));
        assert_eq!(read("g", &body), (vec![], Err(error), true));
        let error = PartError::Malformed("a line begins like a delimiter and is none");
        assert_eq!(read("g", "--gx\r\n\r\n{}"), (vec![], Err(error), true));
    }
}
