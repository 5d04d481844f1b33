//! Scanning: where a string ends, and whether a key begins here, many bytes at a time.
//!
//! What the CPU can do is found out once, in [`Level`]. A whole text is then read by code that is
//! compiled for it ([`Level::run`]), so that nothing is decided per string.
//!
//! There is no index of the whole text: the end of a string is looked for where it begins. What
//! waits for what decides more than the number of instructions, so a key and its value, which are
//! mostly shorter than 64 bytes together, are found with one look. That look with AVX-512 takes a
//! third of the instructions, and made parsing slower by a tenth where it was tried (Cascade Lake:
//! wide registers lower its clock); so there is no level for it.

#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

use portable::Portable;

/// Refused: the text is not JSON. Why, and where, the careful reader finds out.
#[derive(Debug)]
pub(crate) struct Refused;

/// Bytes of a key that are compared at once.
pub(crate) const HEAD_BYTES: usize = 32;

/// A key as it stands in most texts, `"key":`, ready for being compared.
#[derive(Debug)]
pub(crate) struct KeyHead {
    bytes: [u8; HEAD_BYTES],
    /// A bit for every byte that counts.
    mask: u32,
    /// Bytes that count.
    pub(crate) length: u32,
}

impl KeyHead {
    /// Begins no text: this byte stands nowhere in UTF-8.
    pub(crate) const NONE: KeyHead = KeyHead { bytes: [0xff; HEAD_BYTES], mask: 1, length: 1 };

    /// `printed` is the key with quotes and colon. One that is too long begins no text.
    pub(crate) fn new(printed: &[u8]) -> KeyHead {
        let mut bytes = [0; HEAD_BYTES];
        match bytes.get_mut(..printed.len()) {
            Some(head) => {
                head.copy_from_slice(printed);
                let mask = u32::MAX >> (HEAD_BYTES - printed.len());
                KeyHead { bytes, mask, length: printed.len() as u32 }
            }
            None => KeyHead::NONE,
        }
    }
}

/// Bytes that are looked at together.
pub(crate) const BLOCK_BYTES: usize = 32;

/// What the parser asks of a CPU. Whoever has a value of such a type knows that the CPU can do it.
pub(crate) trait Scan: Copy {
    /// The bytes of a block that do not simply go on a string: quotes, backslashes and control
    /// characters. A bit per byte, the first byte lowest.
    fn stops(self, block: &[u8; BLOCK_BYTES]) -> u32;

    /// [`stops`](Scan::stops) of two blocks.
    #[inline(always)]
    fn stops_wide(self, blocks: &[u8; 2 * BLOCK_BYTES]) -> u64 {
        let [left, right] = blocks.as_chunks().0 else { return 0 };
        u64::from(self.stops(left)) | u64::from(self.stops(right)) << BLOCK_BYTES
    }

    /// Whether a text goes on with this key.
    fn begins_with(self, text: &[u8; HEAD_BYTES], key: &KeyHead) -> bool;

    /// Position of the first byte from `at` on that does not simply go on a string: a quote, a
    /// backslash or a control character. At the end of the text: its length.
    #[inline(always)]
    fn string_end(self, text: &[u8], at: u32) -> u32 {
        self.run_end(text, at).unwrap_or_else(|at| string_end_near(text, at))
    }

    /// [`string_end`](Scan::string_end), as far as there are whole blocks. If there are no more,
    /// the position of what is not looked at yet.
    #[inline(always)]
    fn run_end(self, text: &[u8], mut at: u32) -> Result<u32, u32> {
        while let Some(two) = chunk::<{ 2 * BLOCK_BYTES }>(text, at) {
            let stops = self.stops_wide(two);
            if stops != 0 {
                return Ok(at + stops.trailing_zeros());
            }
            at += 2 * BLOCK_BYTES as u32;
        }
        Err(at)
    }

    /// Does a job in a function of its own that is compiled for this CPU.
    fn outline<J: Job>(self, job: J) -> J::Made;
}

/// Something that is done with the instructions of a CPU.
pub(crate) trait Job {
    type Made;
    /// To be inlined always: only so it is compiled for the CPU.
    fn run<S: Scan>(self, scan: S) -> Self::Made;
}

/// The instructions to scan with.
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
    /// The best this CPU has.
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

    /// The `number`-th that this CPU has, the worst first.
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

    /// Does a job with these instructions.
    #[inline]
    pub(crate) fn run<J: Job>(self, job: J) -> J::Made {
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

/// `N` bytes of the text, if there are so many.
#[inline(always)]
pub(crate) fn chunk<const N: usize>(text: &[u8], at: u32) -> Option<&[u8; N]> {
    // One comparison: these sums do not overflow, and the compiler knows it.
    let at = at as usize;
    text.get(at..at + N)?.try_into().ok()
}

/// [`Scan::string_end`] where few bytes are left.
#[inline(never)]
fn string_end_near(text: &[u8], at: u32) -> u32 {
    let rest = text.get(at as usize..).unwrap_or_default();
    let stops = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < b' ';
    at + rest.iter().position(stops).unwrap_or(rest.len()) as u32
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot look must fail")]
mod tests {
    use super::*;

    struct StringEnd<'a>(&'a [u8], u32);

    impl Job for StringEnd<'_> {
        type Made = u32;
        #[inline(always)]
        fn run<S: Scan>(self, scan: S) -> u32 {
            scan.string_end(self.0, self.1)
        }
    }

    struct Stops<'a>(&'a [u8; 2 * BLOCK_BYTES]);

    impl Job for Stops<'_> {
        type Made = (u32, u64);
        #[inline(always)]
        fn run<S: Scan>(self, scan: S) -> (u32, u64) {
            (scan.stops(self.0.last_chunk().unwrap()), scan.stops_wide(self.0))
        }
    }

    struct BeginsWith<'a>(&'a [u8; HEAD_BYTES], &'a KeyHead);

    impl Job for BeginsWith<'_> {
        type Made = bool;
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
        // Miri is slow; it gets samples.
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
    fn every_level_tells_bytes_apart_wherever_they_stand() {
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
