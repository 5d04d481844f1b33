//! A run of outgoing bytes in three parts, so that the recipients of a broadcast share its payload.

use std::io::IoSlice;

use bytes::Bytes;

/// Bytes to write in one go: a head for one recipient, a body that many recipients may share, and a constant tail.
///
/// A `next` message over WebSocket consists of the frame header and `{"id":…,"payload":`, the payload, and `}`. Write
/// it with one vectored write, or copy it with [`Chunks::append_to`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// The part for this recipient only.
    pub head: Bytes,
    /// The part that recipients may share. The machines of a server never copy it.
    pub body: Bytes,
    /// The part that closes the message.
    pub tail: &'static [u8],
}

impl Chunks {
    /// Returns a run that consists of a head only.
    pub fn whole(bytes: impl Into<Bytes>) -> Chunks {
        Chunks { head: bytes.into(), ..Chunks::default() }
    }

    /// Returns the length of all three parts together.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len() + self.tail.len()
    }

    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the three parts in order; parts may be empty.
    pub fn parts(&self) -> [&[u8]; 3] {
        [&self.head, &self.body, self.tail]
    }

    /// Returns the three parts for a vectored write.
    pub fn io_slices(&self) -> [IoSlice<'_>; 3] {
        self.parts().map(IoSlice::new)
    }

    /// Copies all parts to the end of `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.len());
        for part in self.parts() {
            out.extend_from_slice(part);
        }
    }

    /// Returns a copy of all parts in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts().concat()
    }
}
