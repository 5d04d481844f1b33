//! Scanning: finds the end of a string, and compares a key, many bytes at a time.
//!
//! The instructions of the CPU are detected once, in [`Level`]. A whole text is then read by code
//! that is compiled for them ([`Level::run`]), so that nothing is decided per string.
//!
//! There is no index of the whole text: the end of a string is searched where the string begins.
//! Dependencies between instructions matter more than their number, so one look covers a key and
//! its value, which together are mostly shorter than 64 bytes. With AVX-512 that look takes a third
//! of the instructions, and made parsing slower by a tenth where it was tried (Cascade Lake: wide
//! registers lower its clock); so there is no level for it.

#[cfg(target_arch = "aarch64")]
mod neon;
mod operations;
mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

pub(crate) use operations::{BLOCK_BYTES, HEAD_BYTES, Job, KeyHead, Refused, Scan, chunk};
use portable::Portable;

/// The CPU instructions to scan with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    Portable(Portable),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon),
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Sse2(x86::Sse2),
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx2(x86::Avx2),
}

impl Level {
    /// The best instructions of this CPU.
    pub(crate) fn detect() -> Level {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some(avx2) = x86::Avx2::detect() {
            return Level::Avx2(avx2);
        }
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return Level::Sse2(x86::Sse2);
        #[cfg(target_arch = "aarch64")]
        return Level::Neon(neon::Neon);
        #[allow(unreachable_code)]
        Level::Portable(Portable)
    }

    /// Set number `number` of the instructions of this CPU, the slowest first.
    pub(crate) fn get(number: usize) -> Option<Level> {
        match number {
            0 => Some(Level::Portable(Portable)),
            #[cfg(target_arch = "aarch64")]
            1 => Some(Level::Neon(neon::Neon)),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            1 => Some(Level::Sse2(x86::Sse2)),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            2 => x86::Avx2::detect().map(Level::Avx2),
            _ => None,
        }
    }

    /// Runs a job with these instructions.
    #[inline]
    pub(crate) fn run<J: Job>(self, job: J) -> J::Output {
        match self {
            Level::Portable(scan) => scan.outline(job),
            #[cfg(target_arch = "aarch64")]
            Level::Neon(scan) => scan.outline(job),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Level::Sse2(scan) => scan.outline(job),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Level::Avx2(scan) => scan.outline(job),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot look must fail")]
mod tests {
    use super::*;

    struct StringEnd<'a>(&'a [u8], u32);

    impl Job for StringEnd<'_> {
        type Output = u32;
        #[inline(always)]
        fn run<S: Scan>(self, scan: S) -> u32 {
            scan.string_end(self.0, self.1)
        }
    }

    struct Stops<'a>(&'a [u8; 2 * BLOCK_BYTES]);

    impl Job for Stops<'_> {
        type Output = (u32, u64);
        #[inline(always)]
        fn run<S: Scan>(self, scan: S) -> (u32, u64) {
            (scan.stops(self.0.last_chunk().unwrap()), scan.stops_wide(self.0))
        }
    }

    struct BeginsWith<'a>(&'a [u8; HEAD_BYTES], &'a KeyHead);

    impl Job for BeginsWith<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<S: Scan>(self, scan: S) -> bool {
            scan.begins_with(self.0, self.1)
        }
    }

    fn levels() -> impl Iterator<Item = Level> {
        (0..).map_while(Level::get)
    }

    #[test]
    fn every_level_finds_every_end_at_every_place() {
        // Miri is slow and tests samples only.
        let step = if cfg!(miri) { 23 } else { 1 };
        for length in (0..200usize).step_by(step) {
            for place in (0..=length).step_by(step) {
                let mut text = vec![b'x'; length];
                if let Some(spot) = text.get_mut(place) {
                    *spot = [b'"', b'\\', 0, 0x1f][place % 4];
                }
                for level in levels() {
                    let found = level.run(StringEnd(&text, 0));
                    assert_eq!(found as usize, place, "{level:?} {length}");
                }
            }
        }
    }

    #[test]
    fn every_level_distinguishes_bytes_at_every_position() {
        for byte in 0..=255u8 {
            for place in 0..2 * BLOCK_BYTES {
                let mut blocks = [b'x'; 2 * BLOCK_BYTES];
                let neighbour = (place + 1) % blocks.len();
                (blocks[place], blocks[neighbour]) = (byte, byte);
                let both = 1u64 << place | 1 << neighbour;
                let stops = byte == b'"' || byte == b'\\' || byte < b' ';
                let expected = if stops { both } else { 0 };
                for level in levels() {
                    let found = level.run(Stops(&blocks));
                    assert_eq!(found, ((expected >> 32) as u32, expected), "{level:?} {byte}");
                }
                if cfg!(miri) && place > 0 {
                    break;
                }
            }
        }
    }

    #[test]
    fn every_level_compares_all_of_a_key_and_nothing_behind_it() {
        for length in 3..=HEAD_BYTES + 2 {
            let printed = format!("\"{}\":", "k".repeat(length - 3));
            let head = KeyHead::new(printed.as_bytes());
            let mut text = [b'?'; HEAD_BYTES];
            let counts = length.min(HEAD_BYTES);
            text[..counts].copy_from_slice(&printed.as_bytes()[..counts]);
            for level in levels() {
                let fits = length <= HEAD_BYTES;
                assert_eq!(level.run(BeginsWith(&text, &head)), fits, "{level:?} {length}");
                for wrong in 0..counts {
                    let mut text = text;
                    text[wrong] ^= 1;
                    assert!(!level.run(BeginsWith(&text, &head)), "{level:?} {length} {wrong}");
                }
            }
        }
    }
}
