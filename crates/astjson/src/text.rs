//! The texts that nodes point into: parsed inputs, shared by reference count, and the document's
//! own buffer for values that were made.

use bytes::Bytes;

use crate::node::TEXTS_MAX;
use crate::string::print_escaped;

/// The number of the text that holds strings and scalars that were made, not parsed.
pub(crate) const OWNED: u32 = 0;

/// The beginning of the document's own buffer: the literals, so that they are texts like all
/// scalars.
const LITERALS: &str = "nulltruefalse";
/// Offset and length of `null`.
pub(crate) const NULL: (u32, u32) = (0, 4);
/// Offset and length of `true`.
pub(crate) const TRUE: (u32, u32) = (4, 4);
/// Offset and length of `false`.
pub(crate) const FALSE: (u32, u32) = (8, 5);

/// All texts of an arena. Everything in here is valid UTF-8.
pub(crate) struct Texts {
    /// Literals as they are printed, so that printing treats made and parsed strings alike.
    owned: Vec<u8>,
    parsed: Vec<Utf8>,
}

/// Bytes that were checked to be UTF-8 when they were wrapped.
#[derive(Clone)]
pub(crate) struct Utf8(Bytes);

impl Utf8 {
    /// Wraps bytes that were checked before.
    ///
    /// # Safety
    ///
    /// The bytes must be valid UTF-8.
    #[allow(unsafe_code)]
    #[inline(always)]
    pub(crate) unsafe fn new_unchecked(bytes: Bytes) -> Utf8 {
        Utf8(bytes)
    }

    /// Wraps `bytes` if they are valid UTF-8; otherwise returns the offset of the first invalid
    /// byte.
    pub(crate) fn new(bytes: Bytes) -> Result<Utf8, usize> {
        if simdutf8::basic::from_utf8(&bytes).is_ok() {
            return Ok(Utf8(bytes));
        }
        // The slower check finds the offset.
        let offset = std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), |_| 0);
        Err(offset)
    }

    #[inline(always)]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn shared(&self) -> Bytes {
        self.0.clone()
    }

    #[inline(always)]
    pub(crate) fn as_str(&self) -> &str {
        // SAFETY: `new` checked the bytes, or the caller of `new_unchecked` did; they are immutable.
        #[allow(unsafe_code)]
        unsafe {
            std::str::from_utf8_unchecked(&self.0)
        }
    }
}

impl Texts {
    pub(crate) fn new() -> Texts {
        Texts { owned: LITERALS.into(), parsed: Vec::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.owned.truncate(LITERALS.len());
        self.parsed.clear();
    }

    /// The memory of the document's own buffer, in bytes.
    pub(crate) fn own_bytes(&self) -> usize {
        self.owned.capacity()
    }

    /// The number that the next parsed text will get, or `None` if there is none left.
    pub(crate) fn next(&self) -> Option<u32> {
        let next = self.parsed.len() + 1;
        (next < TEXTS_MAX).then_some(next as u32)
    }

    pub(crate) fn push(&mut self, text: Utf8) {
        self.parsed.push(text);
    }

    /// The text that was parsed last.
    pub(crate) fn last(&self) -> Option<&Utf8> {
        self.parsed.last()
    }

    /// A whole text as bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self, text: u32) -> &[u8] {
        if text == OWNED {
            return &self.owned;
        }
        self.parsed.get(text as usize - 1).map_or(&[], |text| &text.0)
    }

    /// A part of a text: a whole token, or its content. Positions come from nodes and are always in
    /// range; if they were not, the result would be empty.
    #[inline(always)]
    pub(crate) fn part(&self, text: u32, from: usize, to: usize) -> &str {
        let bytes = self.bytes(text).get(from..to).unwrap_or_default();
        debug_assert!(std::str::from_utf8(bytes).is_ok());
        // SAFETY: whole texts are valid UTF-8: parsed ones were checked, and only whole strings and
        // ASCII are appended to the own buffer. Tokens begin and end with ASCII, and the content of
        // a string is between two quotes; so no character is cut.
        #[allow(unsafe_code)]
        unsafe {
            std::str::from_utf8_unchecked(bytes)
        }
    }

    /// Adds `s` as a literal. Returns the offset of its content, its printed length without the
    /// quotes, and true if it holds escapes.
    pub(crate) fn own_string(&mut self, s: &str) -> (u32, u32, bool) {
        let start = self.owned.len() + 1;
        self.owned.push(b'"');
        let escaped = print_escaped(s, &mut self.owned);
        let bytes = self.owned.len() - start;
        self.owned.push(b'"');
        (to_position(start), to_position(bytes), escaped)
    }

    /// Adds the text of a scalar as it is. Returns its offset.
    pub(crate) fn own_text(&mut self, text: &str) -> u32 {
        let start = self.owned.len();
        self.owned.extend_from_slice(text.as_bytes());
        to_position(start)
    }
}

/// Converts a position to the width of a node. Parsed texts are refused at 4 GiB; the own buffer
/// would reach that bound long after memory ran out.
#[inline(always)]
pub(crate) fn to_position(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// True if two texts are equal. Compares short texts, as keys are, without a call.
#[inline(always)]
pub(crate) fn equal(left: &[u8], right: &[u8]) -> bool {
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
    if let (1..=3, Some(l), Some(r)) = (length, left.first(), right.first()) {
        return l == r && left[length / 2] == right[length / 2] && left.last() == right.last();
    }
    left == right
}
