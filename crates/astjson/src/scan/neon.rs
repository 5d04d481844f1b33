//! NEON, which every 64-bit ARM has.
#![allow(unsafe_code)]

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vceqq_u8, vcltq_u8, vdupq_n_u8, vgetq_lane_u32, vld1q_u8, vorrq_u8,
    vpaddq_u8, vreinterpretq_u32_u8,
};

use super::operations::{BLOCK_BYTES, HEAD_BYTES, Job, KeyHead, Scan};

/// A CPU with NEON: any aarch64.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon;

impl Scan for Neon {
    #[inline(always)]
    fn stops(self, block: &[u8; BLOCK_BYTES]) -> u32 {
        // SAFETY: NEON is part of the aarch64 baseline, and exactly 32 bytes are read.
        unsafe {
            gather(halves(block).map(|half| {
                let low = vcltq_u8(half, vdupq_n_u8(b' '));
                let backslashes = vceqq_u8(half, vdupq_n_u8(b'\\'));
                vorrq_u8(vorrq_u8(low, backslashes), vceqq_u8(half, vdupq_n_u8(b'"')))
            }))
        }
    }

    #[inline(always)]
    fn begins_with(self, text: &[u8; HEAD_BYTES], key: &KeyHead) -> bool {
        // SAFETY: NEON is part of the aarch64 baseline, and exactly 32 bytes are read.
        let equal = unsafe {
            let ([left, right], [own_left, own_right]) = (halves(text), halves(&key.bytes));
            gather([vceqq_u8(left, own_left), vceqq_u8(right, own_right)])
        };
        !equal & key.mask == 0
    }

    #[inline(never)]
    fn outline<J: Job>(self, job: J) -> J::Output {
        job.run(self)
    }
}

/// Loads a block as two vectors.
///
/// # Safety
///
/// The CPU must have NEON.
#[inline(always)]
unsafe fn halves(block: &[u8; 32]) -> [uint8x16_t; 2] {
    // SAFETY: the caller has NEON; twice 16 of the 32 bytes are read.
    unsafe { [vld1q_u8(block.as_ptr()), vld1q_u8(block.as_ptr().add(16))] }
}

/// Returns one bit per byte of two masks.
///
/// # Safety
///
/// The CPU must have NEON.
#[inline(always)]
unsafe fn gather(masks: [uint8x16_t; 2]) -> u32 {
    const WEIGHTS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: the caller has NEON; exactly 16 bytes are read.
    unsafe {
        let weights = vld1q_u8(WEIGHTS.as_ptr());
        let [left, right] = masks.map(|mask| vandq_u8(mask, weights));
        let sums = vpaddq_u8(left, right);
        let sums = vpaddq_u8(sums, sums);
        let sums = vpaddq_u8(sums, sums);
        vgetq_lane_u32::<0>(vreinterpretq_u32_u8(sums))
    }
}
