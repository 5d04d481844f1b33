//! What is known of the block of text around the place that is read: where its strings may end.
//!
//! Positions come from a few bits that are at hand, not from the text: reading the next member does
//! not wait for the text that the one before ended in.

use crate::scan::{BLOCK_BYTES, Scan, chunk};

/// Bytes of a window: as many as a word has bits.
const WINDOW_BYTES: u32 = 2 * BLOCK_BYTES as u32;

/// A block of text, and which of its bytes do not simply go on a string.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    start: u32,
    stops: u64,
}

impl Window {
    /// Shows nothing. (No text is so long that a place of it were in this block.)
    pub(crate) const NONE: Window = Window { start: WINDOW_BYTES.wrapping_neg(), stops: 0 };

    /// Position of the first byte from `from` on that does not simply go on a string. Nothing if less
    /// than a block is left to look at.
    #[inline(always)]
    pub(crate) fn stop<S: Scan>(&mut self, scan: S, text: &[u8], from: u32) -> Option<u32> {
        let offset = from.wrapping_sub(self.start);
        let mut ahead = self.stops & (u64::MAX << (offset % WINDOW_BYTES));
        if offset >= WINDOW_BYTES || ahead == 0 {
            // Behind this window, or where somebody else has read on to.
            let next = self.start.wrapping_add(WINDOW_BYTES);
            let mut start = if offset < WINDOW_BYTES { next } else { from };
            ahead = scan.stops_wide(chunk(text, start)?);
            while ahead == 0 {
                start += WINDOW_BYTES;
                ahead = scan.stops_wide(chunk(text, start)?);
            }
            *self = Window { start, stops: ahead };
        }
        Some(self.start + ahead.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Job, Level};

    /// Looks for what ends a string from each of these places, one after the other, by one window.
    struct Stops<'a>(&'a [u8], &'a [u32]);

    impl Job for Stops<'_> {
        type Made = Vec<Option<u32>>;
        #[inline(always)]
        fn run<S: Scan>(self, scan: S) -> Self::Made {
            let mut window = Window::NONE;
            self.1.iter().map(|from| window.stop(scan, self.0, *from)).collect()
        }
    }

    #[test]
    fn the_next_stop_is_found_wherever_one_looks_from() {
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
                // Forward, in steps of this width, and back to the beginning once.
                let places: Vec<u32> = (0..=500).step_by(width).chain([0]).collect();
                let found = level.run(Stops(&text, &places));
                let expected: Vec<_> = places.iter().map(|from| expected(*from)).collect();
                assert_eq!(found, expected, "{level:?} {width}");
            }
        }
    }

    #[test]
    fn where_less_than_a_window_is_left_nothing_is_found() {
        let text = [b'x'; 100];
        for level in (0..).map_while(Level::get) {
            assert_eq!(level.run(Stops(&text, &[0, 36, 37, 99, 100, 101])), [None; 6]);
            assert_eq!(level.run(Stops(b"", &[0])), [None]);
        }
    }
}
