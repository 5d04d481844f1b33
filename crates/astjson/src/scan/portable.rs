//! Plain Rust, eight bytes at a time: the reference for the other levels, and the code that Miri
//! runs.

use super::operations::{BLOCK_BYTES, HEAD_BYTES, Job, KeyHead, Scan};

const ONES: u64 = 0x0101_0101_0101_0101;
const LOWS: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// Any CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Scan for Portable {
    #[inline(always)]
    fn stops(self, block: &[u8; BLOCK_BYTES]) -> u32 {
        let mut stops = 0;
        for (i, eight) in block.as_chunks::<8>().0.iter().enumerate() {
            let word = u64::from_le_bytes(*eight);
            let quotes = zeros(word ^ (ONES * b'"' as u64));
            let backslashes = zeros(word ^ (ONES * b'\\' as u64));
            // Below 0x20 means that none of the upper three bits is set.
            let controls = zeros(word & (ONES * 0xe0));
            stops |= gather(quotes | backslashes | controls) << (8 * i);
        }
        stops
    }

    #[inline(always)]
    fn begins_with(self, text: &[u8; HEAD_BYTES], key: &KeyHead) -> bool {
        let length = key.length as usize;
        text.get(..length) == key.bytes.get(..length)
    }

    #[inline(never)]
    fn outline<J: Job>(self, job: J) -> J::Output {
        job.run(self)
    }
}

/// Sets the high bit of exactly the bytes that are zero.
#[inline(always)]
fn zeros(word: u64) -> u64 {
    !(((word & LOWS) + LOWS) | word | LOWS)
}

/// Returns the high bits of eight bytes as eight bits.
#[inline(always)]
fn gather(highs: u64) -> u32 {
    ((highs >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
}
