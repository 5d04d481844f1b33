//! The tokens of a text, as the parsers read them: space, strings, numbers, literals.
//!
//! Positions have 32 bits. After the end of a text the readers see zeros, which are part of no
//! token.

use crate::node::{ESCAPED, Node, REAL, Tag};
use crate::scan::{Refused, Scan, chunk};
use crate::validating_parser;

/// Number of bytes of a key that its node holds.
pub(crate) const KEY_HEAD_BYTES: usize = 4;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The byte at `at`; 0 after the end.
#[inline(always)]
pub(crate) fn byte(text: &[u8], at: u32) -> u8 {
    text.get(at as usize).copied().unwrap_or_default()
}

/// Eight bytes of the text, the first lowest.
#[inline(always)]
fn word(text: &[u8], at: u32) -> Option<u64> {
    chunk::<8>(text, at).map(|eight| u64::from_le_bytes(*eight))
}

/// Position of the next byte that is not space (RFC 8259, section 2).
#[inline(never)]
pub(crate) fn skip_space(text: &[u8], mut at: u32) -> u32 {
    // Indentation is skipped eight spaces at a time.
    loop {
        match byte(text, at) {
            b' ' => {
                at += 1;
                while word(text, at) == Some(ONES * b' ' as u64) {
                    at += 8;
                }
            }
            b'\t' | b'\n' | b'\r' => at += 1,
            _ => return at,
        }
    }
}

/// Position after the colon that follows the key which ended before `at`.
#[inline(always)]
pub(crate) fn skip_colon(text: &[u8], mut at: u32) -> Result<u32, Refused> {
    if byte(text, at) != b':' {
        at = skip_space(text, at);
        if byte(text, at) != b':' {
            return Err(Refused);
        }
    }
    Ok(at + 1)
}

/// Reads the string whose opening quote is at `at`. Returns the position of the closing quote, and
/// true if there are escapes between them.
#[inline(always)]
pub(crate) fn string<S: Scan>(scan: S, text: &[u8], at: u32) -> Result<(u32, bool), Refused> {
    let end = scan.string_end(text, at + 1);
    if byte(text, end) == b'"' {
        return Ok((end, false));
    }
    escaped_string(text, end)
}

/// Reads the rest of a string, from its first byte that is not plain.
#[cold]
#[inline(never)]
fn escaped_string(text: &[u8], mut at: u32) -> Result<(u32, bool), Refused> {
    let mut escaped = false;
    loop {
        match byte(text, at) {
            b'\\' => {
                let rest = text.get(at as usize..).ok_or(Refused)?;
                at += validating_parser::escape_length(rest).ok_or(Refused)? as u32;
                escaped = true;
            }
            b'"' => return Ok((at, escaped)),
            0..=0x1f => return Err(Refused),
            _ => at += 1,
        }
    }
}

/// The node of the string from the quote at `open` to the one at `close`.
#[inline(always)]
pub(crate) fn string_node(number: u32, escaped: bool, open: u32, close: u32, index: u32) -> Node {
    let flags = if escaped { ESCAPED } else { 0 };
    Node::new(Tag::String, flags, number, open + 1, close - open - 1, index + 1)
}

/// The node of the key from the quote at `open` to the one at `close`. `head` is the four bytes
/// after the first quote; a member is never shorter.
#[inline(always)]
pub(crate) fn key_node(
    number: u32,
    escaped: bool,
    open: u32,
    close: u32,
    head: &[u8; KEY_HEAD_BYTES],
) -> Node {
    let flags = if escaped { ESCAPED } else { 0 };
    let head = u32::from_le_bytes(*head);
    Node::new(Tag::String, flags, number, open + 1, close - open - 1, head)
}

/// Reads the scalar at `at`, where no space is. Returns its node and the position after it.
#[inline(always)]
pub(crate) fn read_scalar<S: Scan>(
    scan: S,
    text: &[u8],
    at: u32,
    number: u32,
    index: u32,
) -> Result<(Node, u32), Refused> {
    let first = byte(text, at);
    if first == b'"' {
        let (close, escaped) = string(scan, text, at)?;
        return Ok((string_node(number, escaped, at, close, index), close + 1));
    }
    let (tag, flags, end) = match first {
        b'-' | b'0'..=b'9' => {
            let (end, real) = number_end(text, at)?;
            (Tag::Number, if real { REAL } else { 0 }, end)
        }
        _ => {
            let (tag, end) = literal(text, at)?;
            (tag, 0, end)
        }
    };
    Ok((Node::new(tag, flags, number, at, end - at, index + 1), end))
}

/// Reads `true`, `false` or `null`.
pub(crate) fn literal(text: &[u8], at: u32) -> Result<(Tag, u32), Refused> {
    let four = chunk::<4>(text, at).ok_or(Refused)?;
    match four {
        b"true" => Ok((Tag::True, at + 4)),
        b"null" => Ok((Tag::Null, at + 4)),
        b"fals" if byte(text, at + 4) == b'e' => Ok((Tag::False, at + 5)),
        _ => Err(Refused),
    }
}

/// Reads the most common scalars other than strings: an integer of few digits, or a literal.
/// Returns its tag and its length, or `None` for other or invalid text.
#[inline(always)]
pub(crate) fn plain_word(text: &[u8; 9]) -> Option<(Tag, u32)> {
    const TRUE: u32 = u32::from_le_bytes(*b"true");
    const NULL: u32 = u32::from_le_bytes(*b"null");
    const FALS: u32 = u32::from_le_bytes(*b"fals");
    match u32::from_le_bytes(*text.first_chunk()?) {
        TRUE => Some((Tag::True, 4)),
        NULL => Some((Tag::Null, 4)),
        FALS if text[4] == b'e' => Some((Tag::False, 5)),
        _ => {
            let minus = usize::from(text[0] == b'-');
            let digits = u64::from_le_bytes(*text[minus..].first_chunk()?);
            Some((Tag::Number, minus as u32 + short_integer(digits)?))
        }
    }
}

/// Number of digits of the integer at the beginning of eight bytes, if it is valid and ends within
/// them.
#[inline(always)]
fn short_integer(word: u64) -> Option<u32> {
    // A digit xor `0` is at most 9, so that the sum with 0x76 is below 0x80.
    let values = word ^ (ONES * b'0' as u64);
    let others = (((values & !HIGHS) + ONES * 0x76) | values) & HIGHS;
    if others == 0 {
        return None;
    }
    let count = others.trailing_zeros() / 8;
    let after = (word >> (8 * count)) as u8;
    // No digit at all, or a leading zero, is no number.
    let wrong = count == 0 || (count > 1 && word as u8 == b'0');
    (!wrong && after != b'.' && after | 0x20 != b'e').then_some(count)
}

/// Position after the number at `at` (RFC 8259, section 6), and true if it has a fraction or an
/// exponent.
#[inline(always)]
pub(crate) fn number_end(text: &[u8], at: u32) -> Result<(u32, bool), Refused> {
    let digits = at + u32::from(byte(text, at) == b'-');
    if let Some(count) = word(text, digits).and_then(short_integer) {
        return Ok((digits + count, false));
    }
    number_end_far(text, digits)
}

#[inline(never)]
fn number_end_far(text: &[u8], mut at: u32) -> Result<(u32, bool), Refused> {
    let mut real = false;
    if byte(text, at) == b'0' {
        at += 1;
    } else {
        at = digits_end(text, at)?;
    }
    if byte(text, at) == b'.' {
        real = true;
        at = digits_end(text, at + 1)?;
    }
    if let b'e' | b'E' = byte(text, at) {
        real = true;
        at += 1;
        if let b'+' | b'-' = byte(text, at) {
            at += 1;
        }
        at = digits_end(text, at)?;
    }
    Ok((at, real))
}

/// Position after the digits at `start`; there must be at least one.
fn digits_end(text: &[u8], start: u32) -> Result<u32, Refused> {
    let mut at = start;
    while byte(text, at).is_ascii_digit() {
        at += 1;
    }
    if at > start { Ok(at) } else { Err(Refused) }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_end_is_found() {
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
            let expected = expected.map(|(end, real): (usize, bool)| (end as u32, real));
            assert_eq!(number_end(text.as_bytes(), 0).ok(), expected, "{text}");
            let long = format!("{text},        ");
            assert_eq!(number_end(long.as_bytes(), 0).ok(), expected, "{long}");
        }
    }
}
