//! The coding of WebSocket messages under permessage-deflate (RFC 7692): bare deflate, each message on its own.
//!
//! "No context takeover" means that a message refers to nothing before it. The blocks of a broadcast are therefore
//! equal for every recipient and made once, and neither side keeps a window for an idle connection.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::coding::Coding;
use crate::expand::ExpandError;

/// The bytes that end a flush to a byte boundary: the sender removes them and the receiver appends them (RFC 7692,
/// sections 7.2.1 and 7.2.2).
const FLUSH_TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// The compression level. As for bodies, the bytes that the next level saves must be worth its time.
const LEVEL: u32 = 3;

/// The room for output beyond the expected size: a flush needs some bytes however short the input is.
const FLUSH_BYTES: usize = 64;

/// The memory that is allocated before the expanded size is known.
const FIRST_BYTES: usize = 4 << 10;

/// The longest stored block: its length has 16 bits (RFC 1951, section 3.2.4).
const STORED_BYTES_MAX: usize = 0xffff;

thread_local! {
    /// The compressor of the thread. Its tables take some hundred kilobytes, so it is made once per thread instead of
    /// once per message.
    static COMPRESS: RefCell<Option<Compress>> = const { RefCell::new(None) };
    /// The decompressor of the thread, with a window of 32 KiB.
    static DECOMPRESS: RefCell<Option<Decompress>> = const { RefCell::new(None) };
}

/// Compresses `parts`, one behind the other, into the blocks of one message. The blocks may follow [`append_stored`] of
/// the bytes before them. `None` if the blocks would not be smaller.
pub fn deflate_message(parts: &[&[u8]]) -> Option<Vec<u8>> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    COMPRESS.with_borrow_mut(|kept| {
        let compress = kept.get_or_insert_with(|| Compress::new(Compression::new(LEVEL), false));
        compress.reset();
        let mut blocks = Vec::with_capacity(length / 4 + FLUSH_BYTES);
        let (last, first) = parts.split_last()?;
        for part in first {
            run(compress, part, FlushCompress::None, &mut blocks)?;
        }
        run(compress, last, FlushCompress::Sync, &mut blocks)?;
        blocks.truncate(blocks.strip_suffix(&FLUSH_TAIL)?.len());
        (blocks.len() < length).then_some(blocks)
    })
}

/// Feeds `input` to the compressor and appends its output to `out`. `None` only if the library is defective.
fn run(
    compress: &mut Compress,
    mut input: &[u8],
    flush: FlushCompress,
    out: &mut Vec<u8>,
) -> Option<()> {
    loop {
        if out.capacity() - out.len() < FLUSH_BYTES {
            out.reserve(out.len().max(FLUSH_BYTES));
        }
        let before = compress.total_in();
        compress.compress_vec(input, out, flush).ok()?;
        let taken = usize::try_from(compress.total_in() - before).ok()?;
        input = input.get(taken..)?;
        // With room left, the library has written everything; another call would flush once more.
        if input.is_empty() && out.len() < out.capacity() {
            return Some(());
        }
    }
}

/// Appends `bytes` as one block that is not compressed. It ends at a byte boundary, so that blocks of
/// [`deflate_message`] may follow. `false` if `bytes` is longer than 65,535 bytes; nothing is appended then.
pub fn append_stored(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    if bytes.len() > STORED_BYTES_MAX {
        return false;
    }
    let length = bytes.len() as u16;
    out.push(0);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(bytes);
    true
}

/// The number of bytes that [`append_stored`] writes before the given bytes.
pub const STORED_HEAD_BYTES: usize = 5;

/// Expands the blocks of one message to at most `limit` bytes.
///
/// # Errors
/// See [`ExpandError`].
pub fn inflate_message(bytes: &[u8], limit: usize) -> Result<Vec<u8>, ExpandError> {
    DECOMPRESS.with_borrow_mut(|kept| {
        let decompress = kept.get_or_insert_with(|| Decompress::new(false));
        decompress.reset(false);
        let mut expanded = Vec::with_capacity(limit.saturating_add(1).min(FIRST_BYTES));
        for mut input in [bytes, &FLUSH_TAIL] {
            loop {
                // One byte more than the limit, to find out whether the output exceeds it.
                let most = limit.saturating_add(1);
                if expanded.len() == expanded.capacity() {
                    let more = expanded.len().max(FIRST_BYTES).min(most - expanded.len());
                    expanded.reserve_exact(more);
                }
                let before = decompress.total_in();
                let status = decompress
                    .decompress_vec(input, &mut expanded, FlushDecompress::Sync)
                    .map_err(|error| broken(&error.to_string()))?;
                let taken = usize::try_from(decompress.total_in() - before).unwrap_or(input.len());
                input = input.get(taken..).unwrap_or_default();
                if expanded.len() > limit {
                    return Err(ExpandError::TooLarge(limit));
                }
                if status == Status::StreamEnd {
                    // A block that is marked as last need not be the end of the message (RFC 7692, section 7.2.3.5).
                    decompress.reset(false);
                } else if taken == 0 && !input.is_empty() && expanded.len() < expanded.capacity() {
                    return Err(broken("the data ends early"));
                }
                if input.is_empty() && expanded.len() < expanded.capacity() {
                    break;
                }
            }
        }
        Ok(expanded)
    })
}

fn broken(reason: &str) -> ExpandError {
    ExpandError::Broken { coding: Coding::Deflate, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(count: usize) -> Vec<u8> {
        let items: String = (0..count).map(|n| format!("{{\"id\":{n},\"name\":\"a\"}},")).collect();
        items.into_bytes()
    }

    #[test]
    fn a_message_in_parts_expands_to_all_of_them() {
        for count in [10, 200, 20_000] {
            let text = text(count);
            let (left, right) = text.split_at(text.len() / 3);
            let blocks = deflate_message(&[left, right]).expect("it is repetitive");
            assert!(blocks.len() * 2 < text.len());
            assert_eq!(inflate_message(&blocks, text.len()).as_deref(), Ok(&*text));
        }
    }

    #[test]
    fn a_prefix_of_its_own_can_stand_before_shared_blocks() {
        let shared = text(100);
        let blocks = deflate_message(&[&shared]).expect("it is repetitive");
        for prefix in [&b""[..], b"{\"id\":\"1\",\"payload\":", &[b'x'; 0xffff]] {
            let mut message = Vec::new();
            assert!(append_stored(prefix, &mut message));
            assert_eq!(message.len(), STORED_HEAD_BYTES + prefix.len());
            message.extend_from_slice(&blocks);
            let expected = [prefix, &shared].concat();
            assert_eq!(inflate_message(&message, 1 << 20), Ok(expected));
        }
        assert!(!append_stored(&[b'x'; 0x1_0000], &mut Vec::new()));
    }

    /// RFC 7692, sections 7.2.3.1 to 7.2.3.5.
    #[test]
    fn the_examples_of_the_specification_are_read() {
        let examples: [&[u8]; 5] = [
            &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00],
            // Not compressed.
            &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
            // With a last block.
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
            // Two blocks.
            &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00],
        ];
        for example in examples {
            assert_eq!(inflate_message(example, 5).as_deref(), Ok(&b"Hello"[..]), "{example:x?}");
        }
        assert_eq!(inflate_message(&[0x00], 0), Ok(Vec::new()));
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit() {
        let zeros = vec![0; 2 << 20];
        let bomb = deflate_message(&[&zeros]).expect("zeros compress well");
        assert!(bomb.len() < 64 << 10);
        assert_eq!(inflate_message(&bomb, 1000), Err(ExpandError::TooLarge(1000)));
        assert_eq!(inflate_message(&bomb, zeros.len()).map(|it| it.len()), Ok(zeros.len()));
    }

    #[test]
    fn damaged_messages_are_refused_and_messages_that_would_not_shrink_are_not_compressed() {
        let broken = inflate_message(&[0xff; 20], 1000);
        assert!(matches!(broken, Err(ExpandError::Broken { .. })), "{broken:?}");
        assert_eq!(deflate_message(&[b"{}"]), None);
        assert_eq!(deflate_message(&[]), None);
    }
}
