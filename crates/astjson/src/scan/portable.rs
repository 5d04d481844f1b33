//! Blocks in plain Rust, eight bytes at a time. The reference for the other levels, and what Miri
//! runs.

use super::{BLOCK_BYTES, Block};

const ONES: u64 = 0x0101_0101_0101_0101;
const LOWS: u64 = 0x7f7f_7f7f_7f7f_7f7f;

pub(super) fn block(bytes: &[u8; BLOCK_BYTES]) -> Block {
    let mut block = Block { quotes: 0, backslashes: 0, controls: 0 };
    let (words, _) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        block.quotes |= gather(zeros(word ^ (ONES * b'"' as u64))) << (8 * i);
        block.backslashes |= gather(zeros(word ^ (ONES * b'\\' as u64))) << (8 * i);
        // Below 0x20: none of the upper three bits.
        block.controls |= gather(zeros(word & (ONES * 0xe0))) << (8 * i);
    }
    block
}

/// The high bit of every byte that is zero, exactly.
#[inline(always)]
fn zeros(word: u64) -> u64 {
    !(((word & LOWS) + LOWS) | word | LOWS)
}

/// The high bits of eight bytes as eight bits.
#[inline(always)]
fn gather(highs: u64) -> u64 {
    (highs >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}
