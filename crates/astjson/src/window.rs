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
            let mut start = from & WINDOW_BYTES.wrapping_neg();
            if offset < WINDOW_BYTES {
                start = self.start + WINDOW_BYTES;
            }
            loop {
                let block = chunk(text, start)?;
                let stops = scan.stops_wide(block);
                *self = Window { start, stops };
                ahead = stops & (u64::MAX << from.saturating_sub(start));
                if ahead != 0 {
                    break;
                }
                start += WINDOW_BYTES;
            }
        }
        Some(self.start + ahead.trailing_zeros())
    }
}
