//! Emitting tokens: the least copying that puts the right bytes out.
//!
//! What is printed is mostly what came in, in the order in which it came. So tokens are not copied
//! one by one: as long as each follows the one before in the same text, with just the punctuation
//! between them that is to be printed, the run of text grows, and is copied when it ends.

use crate::node::{Node, Tag};
use crate::print::Sink;
use crate::text::Texts;

pub(crate) struct Emitter<'a, S: Sink + ?Sized> {
    texts: &'a Texts,
    out: &'a mut S,
    /// The run of text that is not copied yet: `start..end` of `source`, which is text `text`.
    source: &'a [u8],
    text: u32,
    start: usize,
    end: usize,
    /// Punctuation that comes after the run, the first lowest, and how many bytes of it.
    pending: u64,
    waiting: u32,
}

impl<'a, S: Sink + ?Sized> Emitter<'a, S> {
    pub(crate) fn new(texts: &'a Texts, out: &'a mut S) -> Self {
        Self { texts, out, source: &[], text: 0, start: 0, end: 0, pending: 0, waiting: 0 }
    }

    /// Puts one byte of punctuation.
    #[inline(always)]
    pub(crate) fn punctuation(&mut self, byte: u8) {
        if self.waiting == 8 {
            self.flush();
        }
        self.pending |= u64::from(byte) << (8 * self.waiting);
        self.waiting += 1;
    }

    /// Puts the text of a scalar or key.
    // Hot path: some ten instructions where the run goes on.
    #[inline(always)]
    pub(crate) fn token(&mut self, node: Node) {
        // A string's text is meant with its quotes.
        let quote = usize::from(node.is(Tag::String));
        let (start, end) = (node.a as usize - quote, node.a as usize + node.b as usize + quote);
        if start == self.end + self.waiting as usize
            && node.text() == self.text
            && self.punctuation_is_next()
        {
            self.end = end;
            (self.pending, self.waiting) = (0, 0);
        } else {
            self.begin_run(node.text(), start, end);
        }
    }

    /// Whether the text goes on after the run with what is pending.
    #[inline(always)]
    fn punctuation_is_next(&self) -> bool {
        match self.source.get(self.end..self.end + 8) {
            Some(eight) => {
                let word = u64::from_le_bytes(eight.try_into().unwrap_or_default());
                // Nothing pending: not after a token of this text.
                self.waiting > 0 && (word ^ self.pending) << (64 - 8 * self.waiting) == 0
            }
            None => {
                let pending = self.pending.to_le_bytes();
                let waiting = self.waiting as usize;
                waiting > 0
                    && self.source.get(self.end..self.end + waiting) == Some(&pending[..waiting])
            }
        }
    }

    #[inline(never)]
    fn begin_run(&mut self, text: u32, start: usize, end: usize) {
        self.flush();
        if text != self.text || self.source.is_empty() {
            self.source = self.texts.whole(text).as_bytes();
            self.text = text;
        }
        (self.start, self.end) = (start, end);
    }

    /// Puts bytes that are not a token of a text.
    #[inline]
    pub(crate) fn literal(&mut self, bytes: &[u8]) {
        self.flush();
        self.out.put(bytes);
    }

    /// Copies the run and what is pending.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if let Some(run) = self.source.get(self.start..self.end)
            && !run.is_empty()
        {
            self.out.put(run);
        }
        // A later token may follow this one in the text all the same; but then it begins a run.
        self.start = self.end;
        if self.waiting > 0 {
            self.out.put(&self.pending.to_le_bytes()[..self.waiting as usize]);
            (self.pending, self.waiting) = (0, 0);
        }
    }
}
