//! Broadcasts under permessage-deflate: the payload is compressed once. The recipient's own text goes before it as a
//! stored block.

use bytes::Bytes;

use super::frame::{FrameHeader, Opcode};

/// Returns the blocks of `payload` and of the `tail` that closes its message, for every recipient of a broadcast.
/// `None` if the uncompressed text takes fewer bytes.
///
/// Write the frame header and head ([`crate::subprotocol::Subprotocol::append_deflated_head`]) before the blocks.
pub fn deflate_shared(payload: &Bytes, tail: &[u8]) -> Option<Bytes> {
    let blocks = coding::deflate_message(&[payload, tail])?;
    let is_smaller = blocks.len() + coding::STORED_HEAD_BYTES < payload.len() + tail.len();
    is_smaller.then(|| blocks.into())
}

/// Appends the frame header and the stored block of a message whose shared blocks have `blocks_len` bytes. `write`
/// appends the contents of the stored block, about `prefix_len` bytes. `false` if they are too long for one block;
/// nothing is appended then.
pub(crate) fn append_deflated_head(
    blocks_len: usize,
    prefix_len: usize,
    out: &mut Vec<u8>,
    write: impl Fn(&mut Vec<u8>),
) -> bool {
    let start = out.len();
    let header = |prefix_len: usize| {
        let payload_len = coding::STORED_HEAD_BYTES + prefix_len + blocks_len;
        FrameHeader::new(Opcode::Text, payload_len).compressed()
    };
    // The prefix is written in its place, and the bytes before it are corrected if the assumed length is wrong: an id
    // may need escapes.
    let assumed = header(prefix_len);
    out.extend_from_slice(&assumed);
    coding::append_stored(&[], out);
    let prefix_start = out.len();
    write(out);
    let Ok(prefix_len) = u16::try_from(out.len() - prefix_start) else {
        out.truncate(start);
        return false;
    };
    out[prefix_start - 4..prefix_start - 2].copy_from_slice(&prefix_len.to_le_bytes());
    out[prefix_start - 2..prefix_start].copy_from_slice(&(!prefix_len).to_le_bytes());
    let actual = header(usize::from(prefix_len));
    if actual != assumed {
        out.splice(start..start + assumed.len(), actual.iter().copied());
    }
    true
}
