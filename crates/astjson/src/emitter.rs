//! Emits tokens with the least copying.
//!
//! Printed text mostly equals parsed text, in the same order. So tokens are not copied one by one:
//! the run of text grows as long as each token follows the one before in the same text, with just
//! the punctuation between them that must be printed. The run is copied when it ends.

use crate::node::{Node, Tag};
use crate::sink::Sink;
use crate::text::{Texts, equal};

/// Text number before the first token.
const NO_TEXT: u32 = u32::MAX;

/// Writes tokens and punctuation to a sink.
pub(crate) struct Emitter<'a, S: Sink + ?Sized> {
    texts: &'a Texts,
    out: &'a mut S,
}

/// A run of output that is not copied yet.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    /// The run of text: `start..end` of `source`, which is text `text`.
    source: &'a [u8],
    text: u32,
    start: usize,
    end: usize,
    /// Punctuation after the run, the first byte lowest, and the number of its bytes.
    pending: u64,
    waiting: u32,
}

impl<'a> Run<'a> {
    pub(crate) const EMPTY: Run<'static> =
        Run { source: &[], text: NO_TEXT, start: 0, end: 0, pending: 0, waiting: 0 };

    /// Extends the run over the members of an in-line object that were written one after the other,
    /// without space, in the text of the run, up to the first member that is not a scalar. Returns
    /// the number of nodes.
    // Hot path: some twenty instructions a member.
    #[inline(never)]
    pub(crate) fn follow_members(&mut self, members: &[Node]) -> u32 {
        let mut end = self.end;
        let mut followed = 0;
        if self.waiting == 0 {
            for [key, value] in members.as_chunks::<2>().0 {
                let quote = usize::from(value.is(Tag::String));
                let key_end = key.a as usize + key.b as usize + 1;
                // If two nodes are neighbours both in the arena and in the text, a byte apart, that
                // byte is the comma or colon that was read there.
                if value.is_container()
                    || value.is(Tag::Reference)
                    || key.text() != self.text
                    || value.text() != self.text
                    || key.a as usize != end + 2
                    || value.a as usize - quote != key_end + 1
                {
                    break;
                }
                end = value.a as usize + value.b as usize + quote;
                followed += 2;
            }
        }
        self.end = end;
        followed
    }

    /// True if the text continues after the run with the pending punctuation.
    #[inline(always)]
    fn punctuation_is_next(&self) -> bool {
        match self.source.get(self.end..self.end + 8) {
            Some(eight) => {
                let word = u64::from_le_bytes(eight.try_into().unwrap_or_default());
                // The shift is done in two steps, because nothing may be pending.
                (word ^ self.pending) << (32 - 4 * self.waiting) << (32 - 4 * self.waiting) == 0
            }
            None => {
                let pending = self.pending.to_le_bytes();
                let waiting = self.waiting as usize;
                self.source.get(self.end..self.end + waiting) == Some(&pending[..waiting])
            }
        }
    }
}

impl<'a, S: Sink + ?Sized> Emitter<'a, S> {
    pub(crate) fn new(texts: &'a Texts, out: &'a mut S) -> Self {
        Self { texts, out }
    }

    /// Emits one byte of punctuation.
    #[inline(always)]
    pub(crate) fn punctuation(&mut self, run: &mut Run<'a>, byte: u8) {
        if run.waiting == 8 {
            self.flush(run);
        }
        run.pending |= u64::from(byte) << (8 * run.waiting);
        run.waiting += 1;
    }

    /// Emits the text of a scalar or key.
    // Hot path: some fifteen instructions where the run continues.
    #[inline(always)]
    pub(crate) fn token(&mut self, run: &mut Run<'a>, node: Node) {
        // The text of a string includes its quotes.
        let quote = usize::from(node.is(Tag::String));
        let (start, end) = (node.a as usize - quote, node.a as usize + node.b as usize + quote);
        self.span(run, node.text(), start, end);
    }

    /// Emits a key and the scalar of the next node, if they are also a byte apart in the text: that
    /// byte is the colon that was read there. Returns false if they are not.
    #[inline(always)]
    pub(crate) fn member(&mut self, run: &mut Run<'a>, key: Node, value: Node) -> bool {
        let quote = usize::from(value.is(Tag::String));
        let begin = value.a as usize - quote;
        let plain = !value.is_container() && !value.is(Tag::Reference);
        if !plain || value.text() != key.text() || begin != key.a as usize + key.b as usize + 2 {
            return false;
        }
        let end = value.a as usize + value.b as usize + quote;
        self.span(run, key.text(), key.a as usize - 1, end);
        true
    }

    /// Emits a part of a text.
    #[inline(always)]
    fn span(&mut self, run: &mut Run<'a>, text: u32, start: usize, end: usize) {
        if start == run.end + run.waiting as usize && text == run.text && run.punctuation_is_next()
        {
            run.end = end;
            (run.pending, run.waiting) = (0, 0);
        } else {
            self.begin_run(run, text, start, end);
        }
    }

    #[inline(never)]
    fn begin_run(&mut self, run: &mut Run<'a>, text: u32, start: usize, end: usize) {
        self.flush(run);
        if text != run.text {
            run.source = self.texts.bytes(text);
            run.text = text;
        }
        (run.start, run.end) = (start, end);
    }

    /// Emits bytes that need not come from a text. If the text continues with just these bytes, so
    /// does the run.
    #[inline(always)]
    pub(crate) fn bytes(&mut self, run: &mut Run<'a>, bytes: &[u8]) {
        let from = run.end + run.waiting as usize;
        let next = run.source.get(from..from + bytes.len());
        if next.is_some_and(|next| equal(next, bytes)) && run.punctuation_is_next() {
            run.end = from + bytes.len();
            (run.pending, run.waiting) = (0, 0);
        } else {
            self.literal(run, bytes);
        }
    }

    /// Emits bytes that are not a token of a text.
    #[inline(never)]
    pub(crate) fn literal(&mut self, run: &mut Run<'a>, bytes: &[u8]) {
        self.flush(run);
        self.out.put(bytes);
    }

    /// Copies the run and the pending punctuation.
    #[inline]
    pub(crate) fn flush(&mut self, run: &mut Run<'a>) {
        if let Some(copied) = run.source.get(run.start..run.end)
            && !copied.is_empty()
        {
            self.out.put(copied);
        }
        if run.waiting > 0 {
            self.out.put_few(run.pending.to_le_bytes(), run.waiting as usize);
        }
        // A later token may still follow this one in the text, but then it begins a new run.
        (run.start, run.pending, run.waiting) = (run.end, 0, 0);
    }
}
