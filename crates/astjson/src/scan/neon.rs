//! Blocks with NEON, which every 64-bit ARM has.

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vceqq_u8, vcltq_u8, vdupq_n_u8, vgetq_lane_u64, vld1q_u8, vpaddq_u8,
    vreinterpretq_u64_u8,
};

use super::{BLOCK_BYTES, Block};

#[allow(unsafe_code)]
pub(super) fn block(bytes: &[u8; BLOCK_BYTES]) -> Block {
    // SAFETY: NEON is part of the aarch64 baseline, and four times 16 bytes are read of 64.
    unsafe {
        let start = bytes.as_ptr();
        let parts = [
            vld1q_u8(start),
            vld1q_u8(start.add(16)),
            vld1q_u8(start.add(32)),
            vld1q_u8(start.add(48)),
        ];
        let (quote, backslash, space) = (vdupq_n_u8(b'"'), vdupq_n_u8(b'\\'), vdupq_n_u8(b' '));
        Block {
            quotes: gather(parts.map(|part| vceqq_u8(part, quote))),
            backslashes: gather(parts.map(|part| vceqq_u8(part, backslash))),
            controls: gather(parts.map(|part| vcltq_u8(part, space))),
        }
    }
}

/// One bit per byte of four masks.
///
/// # Safety
///
/// Needs NEON.
#[allow(unsafe_code)]
#[inline(always)]
unsafe fn gather(masks: [uint8x16_t; 4]) -> u64 {
    const WEIGHTS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: the caller has NEON; 16 bytes are read of 16.
    unsafe {
        let weights = vld1q_u8(WEIGHTS.as_ptr());
        let [a, b, c, d] = masks.map(|mask| vandq_u8(mask, weights));
        let sums = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
        let sums = vpaddq_u8(sums, sums);
        vgetq_lane_u64::<0>(vreinterpretq_u64_u8(sums))
    }
}
