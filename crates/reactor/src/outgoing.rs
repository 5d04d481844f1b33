//! The unsent bytes of one connection: the socket has not taken them yet.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::Instant;

use bytes::{Buf, Bytes};
use rustix::net::{SendAncillaryBuffer, SendFlags};

/// The maximum number of pieces that one system call gets.
const PIECES_MAX: usize = 16;

/// The number of bytes that a socket must take, unless fewer are unsent, to show that its peer reads. If a single byte
/// counted, a peer that takes one byte per minute would keep its connection, and the memory of its unsent bytes,
/// without limit.
pub(crate) const PROGRESS_BYTES: usize = 16 << 10;

/// The frame size up to which the parts of a frame are copied together: one copy of so little costs less than a system
/// call with several parts.
const COPY_MAX: usize = 4 << 10;

/// Sends the parts of one frame as far as the socket takes them now. Returns the number of bytes sent; `None` if the
/// peer has gone.
///
/// `scratch` is a buffer.
pub(crate) fn send_parts(
    fd: BorrowedFd<'_>,
    parts: [&[u8]; 3],
    scratch: &mut Vec<u8>,
) -> Option<usize> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    if length <= COPY_MAX {
        scratch.clear();
        for part in parts {
            scratch.extend_from_slice(part);
        }
        return send_piece(fd, scratch);
    }
    let parts = parts.map(IoSlice::new);
    bytes_taken(rustix::net::sendmsg(fd, &parts, &mut SendAncillaryBuffer::default(), FLAGS))
}

/// Sends a frame in one piece, as [`send_parts`] does.
pub(crate) fn send_piece(fd: BorrowedFd<'_>, bytes: &[u8]) -> Option<usize> {
    bytes_taken(rustix::net::send(fd, bytes, FLAGS))
}

/// The flags of every send. Where the system has no `MSG_NOSIGNAL`, a lost peer raises no signal either: the start code
/// of Rust programs ignores SIGPIPE.
#[cfg(not(target_vendor = "apple"))]
const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
#[cfg(target_vendor = "apple")]
const FLAGS: SendFlags = SendFlags::DONTWAIT;

/// Converts the result of a system call: `None` if the socket failed, 0 if it has no room.
fn bytes_taken(sent: Result<usize, rustix::io::Errno>) -> Option<usize> {
    match sent {
        Ok(count) => Some(count),
        Err(error) => match io::Error::from(error).kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Some(0),
            _ => None,
        },
    }
}

/// The unsent bytes of a connection, in a box that only a slow connection has.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    /// The time at which the socket last completed [`PROGRESS_BYTES`].
    pub(crate) progressed_at: Instant,
    /// The number of bytes that the socket has taken since then.
    taken: usize,
}

impl Outgoing {
    /// Makes an empty queue. Progress counts from `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self { pieces: VecDeque::new(), bytes: 0, progressed_at: now, taken: 0 }
    }

    /// Appends a piece.
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Returns the number of unsent bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Sends as many bytes as the socket takes. Returns false if the socket failed.
    pub(crate) fn flush(&mut self, fd: BorrowedFd<'_>, now: Instant) -> bool {
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let mut offered = 0;
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(piece);
                offered += 1;
            }
            let slices = &slices[..offered];
            let sent = rustix::net::sendmsg(fd, slices, &mut SendAncillaryBuffer::default(), FLAGS);
            match bytes_taken(sent) {
                None => return false,
                Some(0) => return true,
                Some(count) => {
                    self.note_taken(count, now);
                    self.advance(count);
                }
            }
        }
        true
    }

    fn note_taken(&mut self, count: usize, now: Instant) {
        self.taken += count;
        if self.taken >= PROGRESS_BYTES {
            self.progressed_at = now;
            self.taken = 0;
        }
    }

    fn advance(&mut self, mut count: usize) {
        self.bytes -= count;
        while let Some(first) = self.pieces.front_mut() {
            if count < first.len() {
                first.advance(count);
                return;
            }
            count -= first.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn unsent_pieces_follow_in_order() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        let mut outgoing = Outgoing::new(Instant::now());
        let mut expected = Vec::new();
        for (number, length) in (0..).zip([1, 70_000, 0, 300_000, 5].repeat(8)) {
            let piece = Bytes::from(vec![number; length]);
            expected.extend_from_slice(&piece);
            outgoing.push(piece);
        }
        assert_eq!(outgoing.len(), expected.len());
        let mut received = Vec::new();
        theirs.set_nonblocking(true).expect("a socket");
        while received.len() < expected.len() {
            assert!(outgoing.flush(ours.as_fd(), Instant::now()));
            let mut buffer = [0; 50_000];
            let count = theirs.read(&mut buffer).expect("something was sent");
            received.extend_from_slice(&buffer[..count]);
        }
        assert!(received == expected && outgoing.len() == 0);
        drop(theirs);
        outgoing.push("unreadable".into());
        assert!(!outgoing.flush(ours.as_fd(), Instant::now()));
    }

    #[test]
    fn a_few_bytes_at_a_time_are_no_progress() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut outgoing = Outgoing::new(start);
        outgoing.note_taken(1, at(1));
        outgoing.note_taken(PROGRESS_BYTES - 2, at(2));
        assert_eq!(outgoing.progressed_at, start);
        outgoing.note_taken(1, at(3));
        assert_eq!(outgoing.progressed_at, at(3));
        outgoing.note_taken(PROGRESS_BYTES - 1, at(4));
        assert_eq!(outgoing.progressed_at, at(3));
    }

    #[test]
    fn a_frame_in_parts_is_sent_as_one_run_of_bytes() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        for length in [0, 10, COPY_MAX, 3 * COPY_MAX] {
            let body = vec![7; length];
            let sent = send_parts(ours.as_fd(), [b"head", &body, b"tail"], &mut Vec::new());
            assert_eq!(sent, Some(length + 8));
            let mut received = vec![0; length + 8];
            theirs.read_exact(&mut received).expect("what was sent");
            assert_eq!(received, [b"head", &*body, b"tail"].concat());
        }
    }
}
