//! The tokens of a text, as both parsers read them: space, numbers, literals, the ends of keys.

use crate::node::{ESCAPED, Node, REAL, Tag};
use crate::scan::Refused;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// A text that ends with `]` or `}`, so that whoever reads tokens from it meets that before its
/// end.
#[derive(Clone, Copy)]
pub(crate) struct Ended<'a> {
    bytes: &'a [u8],
}

impl<'a> Ended<'a> {
    /// Cuts the space behind a text; `None` if the text ends with anything but `]` or `}`.
    pub(crate) fn new(text: &'a str) -> Option<Ended<'a>> {
        let bytes = text.trim_end_matches([' ', '\t', '\n', '\r']).as_bytes();
        matches!(bytes.last(), Some(b']' | b'}')).then_some(Ended { bytes })
    }

    #[inline(always)]
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The byte at `at`; behind the end 0, which is no part of any token.
    #[inline(always)]
    pub(crate) fn byte(self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or_default()
    }
}

/// Eight bytes of the text, the first lowest.
#[inline(always)]
fn word(text: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(text.get(at..at + 8)?.try_into().ok()?))
}

/// Position of the next byte that is not space (RFC 8259, section 2).
#[inline(never)]
pub(crate) fn skip_space(text: &[u8], mut at: usize) -> usize {
    // Indentation: eight spaces at a time.
    loop {
        match text.get(at) {
            Some(b' ') => {
                at += 1;
                while word(text, at) == Some(ONES * b' ' as u64) {
                    at += 8;
                }
            }
            Some(b'\t' | b'\n' | b'\r') => at += 1,
            _ => return at,
        }
    }
}

/// Position after the colon of the key whose closing quote is at `close`.
#[inline(always)]
pub(crate) fn key_end(text: Ended<'_>, close: usize) -> Result<usize, Refused> {
    let mut at = close + 1;
    if text.byte(at) != b':' {
        at = skip_space(text.bytes(), at);
        if text.byte(at) != b':' {
            return Err(Refused);
        }
    }
    Ok(at + 1)
}

/// The node of the string from the quote at `open` to the one at `close`.
#[inline(always)]
pub(crate) fn string_node(
    number: u32,
    escaped: bool,
    open: usize,
    close: usize,
    index: u32,
) -> Node {
    let flags = if escaped { ESCAPED } else { 0 };
    Node::new(Tag::String, flags, number, open as u32 + 1, (close - open - 1) as u32, index + 1)
}

/// Reads `true`, `false` or `null`. Returns its node and the position after it.
#[inline(always)]
pub(crate) fn literal_node(
    text: &[u8],
    at: usize,
    number: u32,
    index: u32,
) -> Result<(Node, usize), Refused> {
    let (tag, end) = literal(text, at)?;
    Ok((Node::new(tag, 0, number, at as u32, (end - at) as u32, index + 1), end))
}

/// Reads `true`, `false` or `null`.
#[inline(always)]
pub(crate) fn literal(text: &[u8], at: usize) -> Result<(Tag, usize), Refused> {
    let four = text.get(at..at + 4).ok_or(Refused)?;
    match four {
        b"true" => Ok((Tag::True, at + 4)),
        b"null" => Ok((Tag::Null, at + 4)),
        b"fals" if text.get(at + 4) == Some(&b'e') => Ok((Tag::False, at + 5)),
        _ => Err(Refused),
    }
}

/// Reads a number (RFC 8259, section 6). Returns its node and the position after it.
#[inline(always)]
pub(crate) fn number_node(
    text: &[u8],
    at: usize,
    number: u32,
    index: u32,
) -> Result<(Node, usize), Refused> {
    let (end, real) = number_end(text, at)?;
    let flags = if real { REAL } else { 0 };
    Ok((Node::new(Tag::Number, flags, number, at as u32, (end - at) as u32, index + 1), end))
}

/// Position after the number at `at`, and whether it has a fraction or an exponent.
#[inline(always)]
pub(crate) fn number_end(text: &[u8], at: usize) -> Result<(usize, bool), Refused> {
    let digits = at + usize::from(*text.get(at).ok_or(Refused)? == b'-');
    // Most numbers are integers of less than eight digits: find their end without a loop.
    if let Some(word) = word(text, digits) {
        // A digit xor `0` is at most 9; plus 0x76 that stays below 0x80.
        let values = word ^ (ONES * b'0' as u64);
        let others = (((values & !HIGHS) + ONES * 0x76) | values) & HIGHS;
        if others != 0 {
            let count = others.trailing_zeros() / 8;
            let after = (word >> (8 * count)) as u8;
            if after != b'.' && after | 0x20 != b'e' {
                // No digit at all, or a zero before others, is no number.
                if count == 0 || (count > 1 && word as u8 == b'0') {
                    return Err(Refused);
                }
                return Ok((digits + count as usize, false));
            }
        }
    }
    number_end_far(text, digits)
}

#[inline(never)]
fn number_end_far(text: &[u8], mut at: usize) -> Result<(usize, bool), Refused> {
    let mut real = false;
    if text.get(at) == Some(&b'0') {
        at += 1;
    } else {
        at = digits_end(text, at)?;
    }
    if text.get(at) == Some(&b'.') {
        real = true;
        at = digits_end(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        real = true;
        at += 1;
        if let Some(b'+' | b'-') = text.get(at) {
            at += 1;
        }
        at = digits_end(text, at)?;
    }
    Ok((at, real))
}

/// Position after the digits at `start`, of which there must be one.
fn digits_end(text: &[u8], start: usize) -> Result<usize, Refused> {
    let mut at = start;
    while let Some(b'0'..=b'9') = text.get(at) {
        at += 1;
    }
    if at > start { Ok(at) } else { Err(Refused) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_they_end() {
        for (text, expected) in [
            ("0", Some((1, false))),
            ("-0", Some((2, false))),
            ("-", None),
            ("--1", None),
            ("+1", None),
            (".5", None),
            ("01", Some((1, false))),
            ("7", Some((1, false))),
            ("1234567", Some((7, false))),
            ("12345678", Some((8, false))),
            ("1234567890123456789012345678901234567890", Some((40, false))),
            ("1.0", Some((3, true))),
            ("1e3", Some((3, true))),
            ("1E+03", Some((5, true))),
            ("-12.50e-3", Some((9, true))),
            ("1.", None),
            ("1.e1", None),
            ("1e", None),
            ("1e+", None),
        ] {
            assert_eq!(number_end(text.as_bytes(), 0).ok(), expected, "{text}");
            let long = format!("{text},        ");
            let expected = if text == "01" { None } else { expected };
            assert_eq!(number_end(long.as_bytes(), 0).ok(), expected, "{long}");
        }
    }
}
