//! SSE2, which every x86-64 has, and AVX2.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8,
    _mm_or_si128, _mm_set1_epi8, _mm_xor_si128, _mm256_cmpeq_epi8, _mm256_loadu_si256,
    _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8, _mm256_xor_si256,
};

use super::operations::{BLOCK_BYTES, HEAD_BYTES, Job, KeyHead, Scan};

/// Mask that exchanges the quote and the space, and control characters among themselves. After
/// that, all bytes that end or interrupt a string, except the backslash, are at most [`STOP_MAX`].
const EXCHANGE: i8 = (b'"' ^ b' ') as i8;
const STOP_MAX: i8 = b' ' as i8;

/// A CPU with SSE2: any x86-64.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sse2;

impl Scan for Sse2 {
    #[inline(always)]
    fn stops(self, block: &[u8; BLOCK_BYTES]) -> u32 {
        let mut mask = 0;
        for (half, bytes) in block.as_chunks::<16>().0.iter().enumerate() {
            // SAFETY: SSE2 is part of the x86-64 baseline, and exactly 16 bytes are read.
            let stops = unsafe {
                let bytes = _mm_loadu_si128(bytes.as_ptr().cast::<__m128i>());
                let exchanged = _mm_xor_si128(bytes, _mm_set1_epi8(EXCHANGE));
                let low = _mm_min_epu8(exchanged, _mm_set1_epi8(STOP_MAX));
                let backslashes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
                _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(low, exchanged), backslashes))
            };
            mask |= (stops as u32) << (16 * half);
        }
        mask
    }

    #[inline(always)]
    fn begins_with(self, text: &[u8; HEAD_BYTES], key: &KeyHead) -> bool {
        let mut equal = 0;
        let (texts, keys) = (text.as_chunks::<16>().0, key.bytes.as_chunks::<16>().0);
        for (half, (text, key)) in texts.iter().zip(keys).enumerate() {
            // SAFETY: SSE2 is part of the x86-64 baseline, and exactly 16 bytes are read.
            let mask = unsafe {
                let text = _mm_loadu_si128(text.as_ptr().cast::<__m128i>());
                let key = _mm_loadu_si128(key.as_ptr().cast::<__m128i>());
                _mm_movemask_epi8(_mm_cmpeq_epi8(text, key)) as u32
            };
            equal |= mask << (16 * half);
        }
        !equal & key.mask == 0
    }

    #[inline(never)]
    fn outline<J: Job>(self, job: J) -> J::Output {
        job.run(self)
    }
}

/// A CPU with AVX2 and the extensions of its time. Only [`detect`](Avx2::detect) makes one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Avx2> {
        let detected = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        detected.then_some(Avx2(()))
    }
}

impl Scan for Avx2 {
    #[inline(always)]
    fn stops(self, block: &[u8; BLOCK_BYTES]) -> u32 {
        // SAFETY: a value of `Avx2` proves that the CPU has it, and exactly 32 bytes are read.
        unsafe {
            let bytes = _mm256_loadu_si256(block.as_ptr().cast::<__m256i>());
            let exchanged = _mm256_xor_si256(bytes, _mm256_set1_epi8(EXCHANGE));
            let low = _mm256_min_epu8(exchanged, _mm256_set1_epi8(STOP_MAX));
            let backslashes = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'\\' as i8));
            let stops = _mm256_or_si256(_mm256_cmpeq_epi8(low, exchanged), backslashes);
            _mm256_movemask_epi8(stops) as u32
        }
    }

    #[inline(always)]
    fn begins_with(self, text: &[u8; HEAD_BYTES], key: &KeyHead) -> bool {
        // SAFETY: as above.
        let equal = unsafe {
            let text = _mm256_loadu_si256(text.as_ptr().cast::<__m256i>());
            let key = _mm256_loadu_si256(key.bytes.as_ptr().cast::<__m256i>());
            _mm256_movemask_epi8(_mm256_cmpeq_epi8(text, key)) as u32
        };
        !equal & key.mask == 0
    }

    #[inline(always)]
    fn outline<J: Job>(self, job: J) -> J::Output {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        #[inline(never)]
        fn run<J: Job>(job: J, scan: Avx2) -> J::Output {
            job.run(scan)
        }
        // SAFETY: as above; `detect` checked each of these features.
        unsafe { run(job, self) }
    }
}
