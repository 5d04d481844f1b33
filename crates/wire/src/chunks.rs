//! A run of outgoing bytes in three parts, so that a broadcast shares its payload.

use std::io::IoSlice;

use bytes::Bytes;

/// Bytes to write in one go: a head of the recipient's own, a body that may be shared by many
/// recipients, and a constant tail.
///
/// A `next` message over WebSocket is frame header and `{"id":…,"payload":`, then the payload, then
/// `}`. Write it with one vectored write, or copy it with [`Chunks::append_to`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// What only this recipient gets.
    pub head: Bytes,
    /// What may be shared: never copied by the machines of a server.
    pub body: Bytes,
    /// What closes the message.
    pub tail: &'static [u8],
}

impl Chunks {
    /// A run that is all head.
    pub fn whole(bytes: impl Into<Bytes>) -> Chunks {
        Chunks { head: bytes.into(), ..Chunks::default() }
    }

    /// Bytes in all three parts together.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len() + self.tail.len()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The three parts in order; parts may be empty.
    pub fn parts(&self) -> [&[u8]; 3] {
        [&self.head, &self.body, self.tail]
    }

    /// The three parts for a vectored write.
    pub fn io_slices(&self) -> [IoSlice<'_>; 3] {
        self.parts().map(IoSlice::new)
    }

    /// Copies everything to the end of `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.len());
        for part in self.parts() {
            out.extend_from_slice(part);
        }
    }

    /// Everything in one piece, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts().concat()
    }
}
