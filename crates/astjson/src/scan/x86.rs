//! Blocks with SSE2, which every x86-64 has, AVX2 and AVX-512 (F and BW).
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_max_epu8, _mm_movemask_epi8,
    _mm_set1_epi8, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_max_epu8, _mm256_movemask_epi8,
    _mm256_set1_epi8, _mm512_add_epi32, _mm512_cmpeq_epi8_mask, _mm512_cmplt_epu8_mask,
    _mm512_loadu_si512, _mm512_maskz_compress_epi32, _mm512_set1_epi8, _mm512_set1_epi32,
    _mm512_setr_epi32, _mm512_storeu_si512,
};

use super::{BLOCK_BYTES, Block, LIST_ROOM, Refused, State, scan_with, store_each};

/// The highest control character.
const CONTROL_MAX: i8 = 0x1f;

pub(super) fn sse2(bytes: &[u8; BLOCK_BYTES]) -> Block {
    let mut block = Block { quotes: 0, backslashes: 0, controls: 0 };
    for (i, part) in bytes.as_chunks::<16>().0.iter().enumerate() {
        // SAFETY: SSE2 is part of the x86-64 baseline, and 16 bytes are read of 16.
        let (quotes, backslashes, controls) = unsafe {
            let part = _mm_loadu_si128(part.as_ptr().cast::<__m128i>());
            let control = _mm_set1_epi8(CONTROL_MAX);
            (
                _mm_movemask_epi8(_mm_cmpeq_epi8(part, _mm_set1_epi8(b'"' as i8))),
                _mm_movemask_epi8(_mm_cmpeq_epi8(part, _mm_set1_epi8(b'\\' as i8))),
                _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(part, control), control)),
            )
        };
        block.quotes |= u64::from(quotes as u32) << (16 * i);
        block.backslashes |= u64::from(backslashes as u32) << (16 * i);
        block.controls |= u64::from(controls as u32) << (16 * i);
    }
    block
}

pub(super) fn scan_avx2(
    blocks: &[[u8; BLOCK_BYTES]],
    base: u32,
    state: State,
    list: &mut [u32; LIST_ROOM],
    escapes: &mut Vec<u32>,
) -> Result<State, Refused> {
    #[target_feature(enable = "avx2,bmi1,popcnt")]
    fn scan(
        blocks: &[[u8; BLOCK_BYTES]],
        base: u32,
        state: State,
        list: &mut [u32; LIST_ROOM],
        escapes: &mut Vec<u32>,
    ) -> Result<State, Refused> {
        // SAFETY: this function has the features.
        let block = |bytes: &[u8; BLOCK_BYTES]| unsafe { avx2(bytes) };
        scan_with(blocks, base, state, list, escapes, block, store_each)
    }
    // SAFETY: `Level::Avx2` is only made where the CPU has these features.
    unsafe { scan(blocks, base, state, list, escapes) }
}

pub(super) fn scan_avx512(
    blocks: &[[u8; BLOCK_BYTES]],
    base: u32,
    state: State,
    list: &mut [u32; LIST_ROOM],
    escapes: &mut Vec<u32>,
) -> Result<State, Refused> {
    #[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,popcnt")]
    fn scan(
        blocks: &[[u8; BLOCK_BYTES]],
        base: u32,
        state: State,
        list: &mut [u32; LIST_ROOM],
        escapes: &mut Vec<u32>,
    ) -> Result<State, Refused> {
        // SAFETY: this function has the features.
        let block = |bytes: &[u8; BLOCK_BYTES]| unsafe { avx512(bytes) };
        // SAFETY: this function has the features.
        let store = |quotes, base, list: &mut [u32; BLOCK_BYTES]| unsafe {
            store_avx512(quotes, base, list);
        };
        scan_with(blocks, base, state, list, escapes, block, store)
    }
    // SAFETY: `Level::Avx512` is only made where the CPU has these features.
    unsafe { scan(blocks, base, state, list, escapes) }
}

/// # Safety
///
/// Needs AVX2.
#[inline(always)]
unsafe fn avx2(bytes: &[u8; BLOCK_BYTES]) -> Block {
    let mut block = Block { quotes: 0, backslashes: 0, controls: 0 };
    for (i, part) in bytes.as_chunks::<32>().0.iter().enumerate() {
        // SAFETY: the caller has AVX2, and 32 bytes are read of 32.
        let (quotes, backslashes, controls) = unsafe {
            let part = _mm256_loadu_si256(part.as_ptr().cast::<__m256i>());
            let control = _mm256_set1_epi8(CONTROL_MAX);
            (
                _mm256_movemask_epi8(_mm256_cmpeq_epi8(part, _mm256_set1_epi8(b'"' as i8))),
                _mm256_movemask_epi8(_mm256_cmpeq_epi8(part, _mm256_set1_epi8(b'\\' as i8))),
                _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(part, control), control)),
            )
        };
        block.quotes |= u64::from(quotes as u32) << (32 * i);
        block.backslashes |= u64::from(backslashes as u32) << (32 * i);
        block.controls |= u64::from(controls as u32) << (32 * i);
    }
    block
}

/// # Safety
///
/// Needs AVX-512 F and BW.
#[inline(always)]
unsafe fn avx512(bytes: &[u8; BLOCK_BYTES]) -> Block {
    // SAFETY: the caller has the features, and 64 bytes are read of 64.
    unsafe {
        let all = _mm512_loadu_si512(bytes.as_ptr().cast::<__m512i>());
        Block {
            quotes: _mm512_cmpeq_epi8_mask(all, _mm512_set1_epi8(b'"' as i8)),
            backslashes: _mm512_cmpeq_epi8_mask(all, _mm512_set1_epi8(b'\\' as i8)),
            controls: _mm512_cmplt_epu8_mask(all, _mm512_set1_epi8(b' ' as i8)),
        }
    }
}

/// Like [`store_each`], sixteen bits at a time and without a branch.
///
/// # Safety
///
/// Needs AVX-512 F.
#[inline(always)]
unsafe fn store_avx512(quotes: u64, base: u32, list: &mut [u32; BLOCK_BYTES]) {
    let mut stored = 0;
    for quarter in 0..4 {
        let bits = (quotes >> (16 * quarter)) as u16;
        // SAFETY: the caller has the features. Sixteen words are written from `stored` on, which
        // is at most the 16 bits of each quarter before: 48 + 16 words of 64.
        unsafe {
            let places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let first = base.wrapping_add(16 * quarter);
            let places = _mm512_add_epi32(places, _mm512_set1_epi32(first as i32));
            let packed = _mm512_maskz_compress_epi32(bits, places);
            _mm512_storeu_si512(list.as_mut_ptr().add(stored).cast::<__m512i>(), packed);
        }
        stored += bits.count_ones() as usize;
    }
}
