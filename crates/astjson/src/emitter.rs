//! Emitting tokens: the least copying that puts the right bytes out.
//!
//! What is printed is mostly what came in, in the order in which it came. So tokens are not copied
//! one by one: as long as each follows the one before in the same text, with just the punctuation
//! between them that is to be printed, the run of text grows, and is copied when it ends.

use crate::node::{Node, Tag};
use crate::print::Sink;
use crate::text::Texts;

/// Before the first token.
const NO_TEXT: u32 = u32::MAX;

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
        Self { texts, out, source: &[], text: NO_TEXT, start: 0, end: 0, pending: 0, waiting: 0 }
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
                // Shifted in two steps, because nothing may be pending.
                (word ^ self.pending) << (32 - 4 * self.waiting) << (32 - 4 * self.waiting) == 0
            }
            None => {
                let pending = self.pending.to_le_bytes();
                let waiting = self.waiting as usize;
                self.source.get(self.end..self.end + waiting) == Some(&pending[..waiting])
            }
        }
    }

    #[inline(never)]
    fn begin_run(&mut self, text: u32, start: usize, end: usize) {
        self.flush();
        if text != self.text {
            self.source = self.texts.whole(text).as_bytes();
            self.text = text;
        }
        (self.start, self.end) = (start, end);
    }

    /// Puts bytes that need not come from a text; but if the text goes on with just these, the
    /// run does too.
    #[inline(always)]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let from = self.end + self.waiting as usize;
        let next = self.source.get(from..from + bytes.len());
        if next.is_some_and(|next| equal(next, bytes)) && self.punctuation_is_next() {
            self.end = from + bytes.len();
            (self.pending, self.waiting) = (0, 0);
        } else {
            self.literal(bytes);
        }
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

/// What has been put out, to take back what follows.
pub(crate) struct Mark {
    length: usize,
    text: u32,
    start: usize,
    end: usize,
    pending: u64,
    waiting: u32,
}

impl Emitter<'_, Vec<u8>> {
    /// Remembers what has been put out so far.
    #[inline(always)]
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            length: self.out.len(),
            text: self.text,
            start: self.start,
            end: self.end,
            pending: self.pending,
            waiting: self.waiting,
        }
    }

    /// Takes back what was put out since `mark` was made.
    #[cold]
    pub(crate) fn go_back(&mut self, mark: Mark) {
        self.out.truncate(mark.length);
        if mark.text != self.text {
            self.text = mark.text;
            self.source = self.texts.whole(mark.text).as_bytes();
        }
        (self.start, self.end) = (mark.start, mark.end);
        (self.pending, self.waiting) = (mark.pending, mark.waiting);
    }
}

/// Whether two short texts of the same length are equal, without a call where they have 4 to 16
/// bytes.
#[inline(always)]
fn equal(left: &[u8], right: &[u8]) -> bool {
    let length = left.len();
    if length != right.len() {
        return false;
    }
    if let (8..=16, Some(l), Some(r)) = (length, left.first_chunk(), right.first_chunk()) {
        return u64::from_le_bytes(*l) == u64::from_le_bytes(*r)
            && left.last_chunk::<8>() == right.last_chunk::<8>();
    }
    if let (4..=7, Some(l), Some(r)) = (length, left.first_chunk(), right.first_chunk()) {
        return u32::from_le_bytes(*l) == u32::from_le_bytes(*r)
            && left.last_chunk::<4>() == right.last_chunk::<4>();
    }
    left == right
}
