//! Scanning: where the strings of a text begin and end, found a block of 64 bytes at a time, ahead
//! of the parser. What the parser would otherwise find out byte by byte, each step waiting for
//! the one before, it then reads from a list.
//!
//! A text is scanned in chunks, so that the list stays small and the text is still in the nearest
//! cache when the parser comes to it. What a block looks like is found with the widest
//! instructions this CPU has; everything after that is the same code for all of them.

#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

use crate::careful;

/// Refused: the text is not JSON. Why, and where, the careful reader finds out.
#[derive(Debug)]
pub(crate) struct Refused;

/// Bytes per block: one bit each in a word.
const BLOCK_BYTES: usize = 64;

/// Bytes per chunk. The list of a chunk that is nothing but quotes has that many entries, so this
/// is also what bounds the list: 8 KiB of positions, beside 1 KiB of text, stay in a 32 KiB cache.
const CHUNK_BYTES: usize = 1024;

/// Room of a list: what is there when another chunk is scanned, a full chunk, and a block more,
/// because positions are stored without looking how many there are. A power of two, so that an
/// index needs no check.
const LIST_ROOM: usize = 2048;
const _: () = assert!(LIST_ROOM.is_power_of_two());

/// Chunks are scanned until there are so many entries: coming back for more costs a mispredicted
/// branch or two, so texts of long strings get several chunks at a time.
const ENTRIES_WANTED: usize = 256;
const _: () = assert!(LIST_ROOM >= ENTRIES_WANTED + CHUNK_BYTES + BLOCK_BYTES);

/// No escape ahead.
const NONE: u32 = u32::MAX;

/// What a block of 64 bytes holds; a bit per byte, the first byte lowest.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    quotes: u64,
    backslashes: u64,
    /// Bytes below 0x20.
    controls: u64,
}

/// The instructions to scan with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    Portable,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Sse2,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx2,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx512,
}

impl Level {
    /// The best this CPU has.
    pub(crate) fn detect() -> Level {
        Level::available().last().copied().unwrap_or(Level::Portable)
    }

    /// All this CPU has, the best last.
    pub(crate) fn available() -> &'static [Level] {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("popcnt");
            let avx512 =
                avx2 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            match (avx2, avx512) {
                (_, true) => &[Level::Portable, Level::Sse2, Level::Avx2, Level::Avx512],
                (true, _) => &[Level::Portable, Level::Sse2, Level::Avx2],
                _ => &[Level::Portable, Level::Sse2],
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            &[Level::Portable, Level::Neon]
        }
        #[cfg(not(any(all(target_arch = "x86_64", not(miri)), target_arch = "aarch64")))]
        {
            &[Level::Portable]
        }
    }
}

/// The lists of a scan, kept by the document for their memory.
#[derive(Default)]
pub(crate) struct Lists {
    quotes: Vec<u32>,
    escapes: Vec<u32>,
}

/// A text being scanned, chunk by chunk.
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    level: Level,
    /// Where the next chunk begins.
    ahead: usize,
    /// 1 if the last chunk ended with a backslash that escapes the next byte.
    escaping: u64,
    /// All ones if the last chunk ended inside a string.
    inside: u64,
    /// Positions of quotes that begin or end a string.
    quotes: &'a mut [u32; LIST_ROOM],
    /// Positions of backslashes that begin an escape.
    escapes: &'a mut Vec<u32>,
    /// Index into `escapes` of the next one ahead.
    escape: usize,
}

/// Where the parser is in the lists of a scan. Kept apart from the [`Scanner`], and handed to it
/// by value, so that it can live in registers.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// Next entry in the list of quotes.
    next: usize,
    /// Entries in the list of quotes.
    count: usize,
    /// Position of the next escape ahead.
    escape: u32,
}

/// A place to go back to.
pub(crate) struct Mark {
    reading: Reading,
    ahead: usize,
    escape: usize,
}

impl Reading {
    pub(crate) const START: Reading = Reading { next: 0, count: 0, escape: NONE };
}

impl<'a> Scanner<'a> {
    /// Gets ready to scan `text`, whose positions must fit 32 bits with [`NONE`] to spare.
    pub(crate) fn new(text: &'a [u8], level: Level, lists: &'a mut Lists) -> Scanner<'a> {
        if lists.quotes.len() != LIST_ROOM {
            lists.quotes.resize(LIST_ROOM, 0);
        }
        lists.escapes.clear();
        let Lists { quotes, escapes } = lists;
        // The length was just made to fit.
        #[allow(clippy::unwrap_used)]
        let quotes = quotes.as_mut_slice().try_into().unwrap();
        Scanner { text, level, ahead: 0, escaping: 0, inside: 0, quotes, escapes, escape: 0 }
    }

    /// Whether the next string begins at `at`. It does if a token begins there with a quote.
    #[inline(always)]
    pub(crate) fn string_begins(
        &mut self,
        reading: &mut Reading,
        at: usize,
    ) -> Result<bool, Refused> {
        if reading.next + 1 >= reading.count {
            *reading = self.refill(*reading)?;
        }
        Ok(self.listed(reading.next) as usize == at)
    }

    /// Where the next two strings begin and end, if that is known without scanning on and neither
    /// holds escapes.
    #[inline(always)]
    pub(crate) fn next_two(&self, reading: &Reading) -> Option<[u32; 4]> {
        if reading.next + 4 > reading.count {
            return None;
        }
        let place = reading.next;
        let close = self.listed(place + 3);
        (reading.escape >= close)
            .then(|| [self.listed(place), self.listed(place + 1), self.listed(place + 2), close])
    }

    /// An entry of the list of quotes.
    #[inline(always)]
    fn listed(&self, place: usize) -> u32 {
        // The list has a power of two of entries, so this needs no check.
        self.quotes[place & (LIST_ROOM - 1)]
    }

    /// Where the next string begins and ends, if that is known without scanning on and it holds no
    /// escapes.
    #[inline(always)]
    pub(crate) fn next_one(&self, reading: &Reading) -> Option<[u32; 2]> {
        if reading.next + 2 > reading.count {
            return None;
        }
        let close = self.listed(reading.next + 1);
        (reading.escape >= close).then(|| [self.listed(reading.next), close])
    }

    /// Takes the string that [`next_one`](Scanner::next_one) told of.
    #[inline(always)]
    pub(crate) fn take_one(reading: &mut Reading) {
        reading.next += 2;
    }

    /// Takes the two strings that [`next_two`](Scanner::next_two) told of.
    #[inline(always)]
    pub(crate) fn take_two(reading: &mut Reading) {
        reading.next += 4;
    }

    /// Takes the next string, for which [`string_begins`](Scanner::string_begins) was true.
    /// Returns the position of its closing quote and whether it holds escapes, which are then
    /// known to be valid.
    #[inline(always)]
    pub(crate) fn string(
        &mut self,
        reading: &mut Reading,
        at: usize,
    ) -> Result<(usize, bool), Refused> {
        let close = self.listed(reading.next + 1);
        reading.next += 2;
        if reading.escape < close {
            reading.escape = self.escaped_string(at, close as usize)?;
            return Ok((close as usize, true));
        }
        Ok((close as usize, false))
    }

    /// Remembers where the reader is, to [go back](Scanner::go_back) to.
    pub(crate) fn mark(&self, reading: Reading) -> Mark {
        Mark { reading, ahead: self.ahead, escape: self.escape }
    }

    /// Goes back to a mark that was made when the reader was at `at`, outside any string.
    pub(crate) fn go_back(&mut self, mark: Mark, at: usize) -> Reading {
        if self.ahead == mark.ahead {
            self.escape = mark.escape;
            return mark.reading;
        }
        // The list has moved on: scan again from here.
        self.ahead = at;
        (self.escaping, self.inside, self.escape) = (0, 0, 0);
        self.escapes.clear();
        Reading::START
    }

    /// Checks the escapes of the string from `open` to `close`; returns the next one after it.
    #[cold]
    #[inline(never)]
    fn escaped_string(&mut self, open: usize, close: usize) -> Result<u32, Refused> {
        let mut at = open + 1;
        let content = self.text.get(..close).ok_or(Refused)?;
        while let Some(run) = memchr::memchr(b'\\', &content[at..]) {
            at += run;
            at += careful::escape_length(&content[at..]).ok_or(Refused)?;
        }
        while self.escapes.get(self.escape).is_some_and(|&escape| (escape as usize) < close) {
            self.escape += 1;
        }
        Ok(self.escapes.get(self.escape).copied().unwrap_or(NONE))
    }

    /// Scans on until the list holds a whole string. Entries not yet taken move to its front.
    #[cold]
    #[inline(never)]
    fn refill(&mut self, reading: Reading) -> Result<Reading, Refused> {
        let left = reading.count - reading.next;
        self.quotes.copy_within(reading.next..reading.count, 0);
        // Of the escapes passed by, one is enough to know that the string begun holds some.
        let kept = (left > 0 && reading.escape != NONE).then_some(reading.escape);
        self.escapes.clear();
        self.escapes.extend(kept);
        self.escape = 0;
        let mut count = left;
        // On until there is something to do for a while; not on and on through escapes.
        while count < ENTRIES_WANTED && self.escapes.len() < ENTRIES_WANTED {
            if self.ahead >= self.text.len() {
                if count < 2 {
                    return Err(Refused);
                }
                break;
            }
            count = self.scan_chunk(count)?;
            if count < 2 {
                // Escapes of a string that goes on: again one is enough.
                self.escapes.truncate(1);
            }
        }
        let escape = self.escapes.first().copied().unwrap_or(NONE);
        Ok(Reading { next: 0, count, escape })
    }

    /// Scans the next chunk behind the first `count` entries of the list; returns how many there
    /// are then.
    fn scan_chunk(&mut self, count: usize) -> Result<usize, Refused> {
        let ahead = self.ahead as u32;
        let rest = &self.text[self.ahead..];
        let (blocks, tail) = rest[..rest.len().min(CHUNK_BYTES)].as_chunks::<BLOCK_BYTES>();
        let mut state = State { count, escaping: self.escaping, inside: self.inside };
        if !blocks.is_empty() {
            state = scan_blocks(self.level, blocks, ahead, state, self.quotes, self.escapes)?;
        }
        let scanned = blocks.len() * BLOCK_BYTES;
        if !tail.is_empty() {
            // Spaces change nothing.
            let mut padded = [b' '; BLOCK_BYTES];
            padded[..tail.len()].copy_from_slice(tail);
            let base = ahead + scanned as u32;
            state = scan_blocks(self.level, &[padded], base, state, self.quotes, self.escapes)?;
        }
        self.ahead += scanned + tail.len();
        (self.escaping, self.inside) = (state.escaping, state.inside);
        Ok(state.count)
    }
}

/// What goes from block to block.
#[derive(Clone, Copy)]
struct State {
    /// Entries in the list of quotes.
    count: usize,
    /// 1 if the block before ended with a backslash that escapes the next byte.
    escaping: u64,
    /// All ones if the block before ended inside a string.
    inside: u64,
}

fn scan_blocks(
    level: Level,
    blocks: &[[u8; BLOCK_BYTES]],
    base: u32,
    state: State,
    list: &mut [u32; LIST_ROOM],
    escapes: &mut Vec<u32>,
) -> Result<State, Refused> {
    match level {
        Level::Portable => {
            scan_with(blocks, base, state, list, escapes, portable::block, store_each)
        }
        #[cfg(target_arch = "aarch64")]
        Level::Neon => scan_with(blocks, base, state, list, escapes, neon::block, store_each),
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        Level::Sse2 => scan_with(blocks, base, state, list, escapes, x86::sse2, store_each),
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        Level::Avx2 => x86::scan_avx2(blocks, base, state, list, escapes),
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        Level::Avx512 => x86::scan_avx512(blocks, base, state, list, escapes),
    }
}

/// Scans blocks whose first byte is at `base`, looking at each with `block` and storing positions
/// with `store`.
// Hot path: some 20 instructions a block with AVX-512 where it holds no backslash or control
// character.
#[inline(always)]
fn scan_with(
    blocks: &[[u8; BLOCK_BYTES]],
    base: u32,
    mut state: State,
    list: &mut [u32; LIST_ROOM],
    escapes: &mut Vec<u32>,
    block: impl Fn(&[u8; BLOCK_BYTES]) -> Block,
    store: impl Fn(u64, u32, &mut [u32; BLOCK_BYTES]),
) -> Result<State, Refused> {
    let mut at = base;
    for bytes in blocks {
        let found = block(bytes);
        let mut quotes = found.quotes;
        if found.backslashes | found.controls | state.escaping != 0 {
            (quotes, state.escaping) = look_closely(found, at, state, escapes)?;
        }
        // Most blocks of long texts hold none.
        if quotes != 0 {
            let number = quotes.count_ones();
            state.inside ^= 0u64.wrapping_sub(u64::from(number & 1));
            let room = list.get_mut(state.count..state.count + BLOCK_BYTES).ok_or(Refused)?;
            store(quotes, at, room.try_into().map_err(|_| Refused)?);
            state.count += number as usize;
        }
        at += BLOCK_BYTES as u32;
    }
    Ok(state)
}

/// A block with backslashes or control characters: notes the escapes, returns the quotes that are
/// not escaped and whether the next block begins escaped.
#[inline(never)]
fn look_closely(
    found: Block,
    at: u32,
    state: State,
    list: &mut Vec<u32>,
) -> Result<(u64, u64), Refused> {
    let (escaped, mut escapes, escaping) = find_escaped(found.backslashes, state.escaping);
    let quotes = found.quotes & !escaped;
    while escapes != 0 {
        list.push(at + escapes.trailing_zeros());
        escapes &= escapes - 1;
    }
    if found.controls & (prefix_xor(quotes) ^ state.inside) != 0 {
        // A control character inside a string, or the text is broken before it.
        return Err(Refused);
    }
    Ok((quotes, escaping))
}

/// Stores the positions of the bits of `quotes`, counted from `base`. May store anything after
/// them.
#[inline(always)]
fn store_each(mut quotes: u64, base: u32, list: &mut [u32; BLOCK_BYTES]) {
    // Without a branch for the first eight, which is what most blocks have; `trailing_zeros` of
    // no bits stores something meaningless behind the end.
    let count = quotes.count_ones() as usize;
    for slot in &mut list[..8] {
        *slot = base.wrapping_add(quotes.trailing_zeros());
        quotes &= quotes.wrapping_sub(1);
    }
    if count > 8 {
        for slot in &mut list[8..16] {
            *slot = base.wrapping_add(quotes.trailing_zeros());
            quotes &= quotes.wrapping_sub(1);
        }
        if count > 16 {
            for slot in &mut list[16..count] {
                *slot = base.wrapping_add(quotes.trailing_zeros());
                quotes &= quotes.wrapping_sub(1);
            }
        }
    }
}

/// Which bytes of a block are escaped, and which backslashes escape them; also whether the last
/// byte escapes the first of the next block. `escaping` is that of the block before.
///
/// The arithmetic is that of simdjson: subtracting runs of backslashes from a pattern of odd bits
/// flips every second bit of a run, whichever place it begins at.
#[inline(always)]
fn find_escaped(backslashes: u64, escaping: u64) -> (u64, u64, u64) {
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    let potential = backslashes & !escaping;
    let flipped = ((potential << 1) | ODD).wrapping_sub(potential) ^ ODD;
    let escaped = flipped ^ (backslashes | escaping);
    let escapes = flipped & backslashes;
    (escaped, escapes, escapes >> 63)
}

/// Bit `i` of the result is the parity of bits `0..=i`: from an opening quote up to before its
/// closing one.
#[inline(always)]
fn prefix_xor(mut bits: u64) -> u64 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^ bits << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All strings of a text, by a scan at this level.
    fn strings(text: &[u8], level: Level) -> Vec<(usize, bool)> {
        let mut lists = Lists::default();
        let mut scanner = Scanner::new(text, level, &mut lists);
        let mut reading = Reading::START;
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(run) = memchr::memchr(b'"', &text[at..]) {
            at += run;
            if !scanner.string_begins(&mut reading, at).unwrap_or(false) {
                found.push((usize::MAX, false));
                break;
            }
            match scanner.string(&mut reading, at) {
                Ok((close, escaped)) => {
                    found.push((close, escaped));
                    at = close + 1;
                }
                Err(Refused) => {
                    found.push((usize::MAX, true));
                    break;
                }
            }
        }
        found
    }

    /// The same, byte by byte. `None` where a backslash stands outside a string: the parser
    /// refuses that before it asks for the next string.
    fn expected(text: &[u8]) -> Option<Vec<(usize, bool)>> {
        let mut found = Vec::new();
        let mut at = 0;
        'strings: while let Some(run) = memchr::memchr2(b'"', b'\\', &text[at..]) {
            if text[at + run] == b'\\' {
                return None;
            }
            at += run + 1;
            let mut escaped = false;
            while at < text.len() {
                match text[at] {
                    b'"' => {
                        found.push((at, escaped));
                        at += 1;
                        continue 'strings;
                    }
                    b'\\' => {
                        escaped = true;
                        at += 2;
                    }
                    _ => at += 1,
                }
            }
            found.push((usize::MAX, false));
            break;
        }
        Some(found)
    }

    #[test]
    fn every_level_finds_the_same_strings() {
        // All ways to put quotes, backslashes and others around the edges of blocks and chunks.
        for start in [0, 1, 60, 61, 62, 63, 64, 65, 126, 1016, 1020, 1022, 1023, 1024, 1086] {
            for pattern in (0..4usize.pow(5)).step_by(if cfg!(miri) { 97 } else { 1 }) {
                let mut text = vec![b' '; start];
                text.push(b'"');
                for i in 0..5 {
                    text.extend_from_slice(
                        [b"x".as_slice(), b"\"", b"\\\\", b"\\\""][pattern >> (2 * i) & 3],
                    );
                }
                text.extend_from_slice(b"\"  ");
                let Some(expected) = expected(&text) else { continue };
                for &level in Level::available() {
                    assert_eq!(strings(&text, level), expected, "{level:?} {start} {pattern}");
                }
            }
            if cfg!(miri) && start > 0 {
                break;
            }
        }
    }

    #[test]
    fn long_strings_and_dense_quotes_cross_chunks() {
        for unit in [b"\"\"".as_slice(), b"\"a\"", b"\"\\n\""] {
            let text = unit.repeat(if cfg!(miri) { 1100 } else { 5000 });
            for &level in Level::available() {
                assert_eq!(Some(strings(&text, level)), expected(&text));
            }
        }
        for escapes in [false, true] {
            let mut text = b"\"".to_vec();
            text.resize(10_000, b'x');
            if escapes {
                text[3000..3002].copy_from_slice(b"\\n");
            }
            text.push(b'"');
            for &level in Level::available() {
                assert_eq!(strings(&text, level), [(10_000, escapes)]);
            }
        }
    }

    #[test]
    fn control_characters_are_refused_inside_strings_only() {
        for &level in Level::available() {
            // Miri is slow; it gets samples.
            for byte in (0..0x20).step_by(if cfg!(miri) { 9 } else { 1 }) {
                for place in [1, 30, 63, 64, 65, 200] {
                    let mut text = vec![b'"'; 1];
                    text.resize(300, b'x');
                    text.push(b'"');
                    text[place] = byte;
                    let mut lists = Lists::default();
                    let mut scanner = Scanner::new(&text, level, &mut lists);
                    assert!(scanner.string_begins(&mut { Reading::START }, 0).is_err());
                    let mut text = vec![b' '; 300];
                    text.extend_from_slice(b"\"\"");
                    text[place] = byte;
                    assert_eq!(strings(&text, level), [(301, false)]);
                }
            }
        }
    }
}
