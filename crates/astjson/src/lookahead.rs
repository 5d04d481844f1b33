//! Lookahead within a block of text: the positions at which its strings may end.
//!
//! Positions come from a few bits in a register, not from the text: reading the next member does
//! not wait for the bytes in which the one before ended.

use crate::scan::{BLOCK_BYTES, Scan, chunk};

/// Bytes of the block: as many as a word has bits.
const LOOKAHEAD_BYTES: u32 = 2 * BLOCK_BYTES as u32;

/// A block of text, and a bit for each byte that may end or interrupt a string.
#[derive(Clone, Copy)]
pub(crate) struct Lookahead {
    start: u32,
    stops: u64,
}

impl Lookahead {
    /// An empty block. No text is long enough to have a position in it.
    pub(crate) const NONE: Lookahead =
        Lookahead { start: LOOKAHEAD_BYTES.wrapping_neg(), stops: 0 };

    /// Position of the first byte from `from` on that may end or interrupt a string. `None` if less
    /// than a block is left.
    #[inline(always)]
    pub(crate) fn stop<S: Scan>(&mut self, scan: S, text: &[u8], from: u32) -> Option<u32> {
        let offset = from.wrapping_sub(self.start);
        let mut ahead = self.stops & (u64::MAX << (offset % LOOKAHEAD_BYTES));
        if offset >= LOOKAHEAD_BYTES || ahead == 0 {
            // The position is after this block, or another loop has read past it.
            let next = self.start.wrapping_add(LOOKAHEAD_BYTES);
            let mut start = if offset < LOOKAHEAD_BYTES { next } else { from };
            ahead = scan.stops_wide(chunk(text, start)?);
            while ahead == 0 {
                start += LOOKAHEAD_BYTES;
                ahead = scan.stops_wide(chunk(text, start)?);
            }
            *self = Lookahead { start, stops: ahead };
        }
        Some(self.start + ahead.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Job, Level};

    /// Searches the next stop from each of these positions, one after the other, with one block.
    struct Stops<'a>(&'a [u8], &'a [u32]);

    impl Job for Stops<'_> {
        type Output = Vec<Option<u32>>;
        #[inline(always)]
        fn run<S: Scan>(self, scan: S) -> Self::Output {
            let mut lookahead = Lookahead::NONE;
            self.1.iter().map(|from| lookahead.stop(scan, self.0, *from)).collect()
        }
    }

    #[test]
    fn finds_the_next_stop_from_every_position() {
        let mut text = vec![b'x'; 600];
        let stops = [3, 4, 63, 64, 65, 130, 131, 320, 383, 384, 500];
        for place in stops {
            text[place] = b'"';
        }
        let expected =
            |from: u32| stops.iter().find(|&&stop| stop >= from as usize).map(|&stop| stop as u32);
        let step = if cfg!(miri) { 17 } else { 1 };
        for level in (0..).map_while(Level::get) {
            for width in (1..200).step_by(step) {
                // Forward, in steps of this width, and once back to the beginning.
                let places: Vec<u32> = (0..=500).step_by(width).chain([0]).collect();
                let found = level.run(Stops(&text, &places));
                let expected: Vec<_> = places.iter().map(|from| expected(*from)).collect();
                assert_eq!(found, expected, "{level:?} {width}");
            }
        }
    }

    #[test]
    fn finds_nothing_if_less_than_a_block_is_left() {
        let text = [b'x'; 100];
        for level in (0..).map_while(Level::get) {
            assert_eq!(level.run(Stops(&text, &[0, 36, 37, 99, 100, 101])), [None; 6]);
            assert_eq!(level.run(Stops(b"", &[0])), [None]);
        }
    }
}
