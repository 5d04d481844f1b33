//! String literals: escaping on output, unescaping and comparing on demand.

use std::borrow::Cow;

use crate::sink::Sink;

/// Classes of bytes for escaping: 0 = unchanged, `u` = `\u00XX`, any other = `\` and that letter.
const ESCAPES: [u8; 256] = {
    let mut table = [0u8; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table[8] = b'b';
    table[9] = b't';
    table[10] = b'n';
    table[12] = b'f';
    table[13] = b'r';
    table
};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Writes `s` as a JSON string literal, quotes included (RFC 8259, section 7).
///
/// Only the required characters are escaped: `"`, `\` and the control characters below U+0020.
pub fn print_string<S: Sink + ?Sized>(s: &str, out: &mut S) {
    out.put(b"\"");
    print_escaped(s, out);
    out.put(b"\"");
}

/// Like [`print_string`], without the quotes. Returns true if anything was escaped.
pub(crate) fn print_escaped<S: Sink + ?Sized>(s: &str, out: &mut S) -> bool {
    let bytes = s.as_bytes();
    let mut copied = 0;
    while let Some(at) = next_to_escape(bytes, copied) {
        out.put(&bytes[copied..at]);
        let byte = bytes[at];
        match ESCAPES[byte as usize] {
            b'u' => {
                out.put(b"\\u00");
                out.put(&[HEX[(byte >> 4) as usize], HEX[(byte & 15) as usize]]);
            }
            letter => out.put(&[b'\\', letter]),
        }
        copied = at + 1;
    }
    out.put(&bytes[copied..]);
    copied > 0
}

/// Position of the next byte that must be escaped. Skips eight bytes at a time.
fn next_to_escape(bytes: &[u8], mut from: usize) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    while let Some(chunk) = bytes.get(from..from + 8) {
        let word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        // Each byte that is zero in either word, or below 0x20 in the text, gets its high bit set.
        // It may also be set above a true hit, never below the first one.
        let hit = (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        if hit & HIGHS != 0 {
            return Some(from + ((hit & HIGHS).trailing_zeros() / 8) as usize);
        }
        from += 8;
    }
    bytes[from..].iter().position(|&byte| ESCAPES[byte as usize] != 0).map(|at| from + at)
}

/// Decodes the text between the quotes of a literal that the parser accepted.
///
/// A `\u` escape of a lone surrogate names no character and is decoded to U+FFFD. The text itself
/// keeps the escape and is printed as it was written.
pub(crate) fn decode(text: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut decoded = String::with_capacity(text.len());
    for piece in (Pieces { text }) {
        match piece {
            Piece::Plain(plain) => decoded.push_str(plain),
            Piece::Char(c) => decoded.push(c),
        }
    }
    Cow::Owned(decoded)
}

/// True if the literal text decodes to exactly `wanted`. Does not allocate.
pub(crate) fn decodes_to(text: &str, wanted: &str) -> bool {
    let mut rest = wanted;
    for piece in (Pieces { text }) {
        let stripped = match piece {
            Piece::Plain(plain) => rest.strip_prefix(plain),
            Piece::Char(c) => rest.strip_prefix(c),
        };
        match stripped {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}

/// True if two literal texts decode to the same string.
pub(crate) fn decode_equal(left: &str, right: &str) -> bool {
    // Keys with escapes are rare; one side is decoded, the other compared in place.
    left == right || decodes_to(left, &decode(right))
}

enum Piece<'a> {
    Plain(&'a str),
    Char(char),
}

/// Splits a literal text into runs without escapes and single decoded characters.
struct Pieces<'a> {
    text: &'a str,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.text.is_empty() {
            return None;
        }
        let run = memchr::memchr(b'\\', self.text.as_bytes()).unwrap_or(self.text.len());
        if run > 0 {
            let (plain, rest) = self.text.split_at(run);
            self.text = rest;
            return Some(Piece::Plain(plain));
        }
        let bytes = self.text.as_bytes();
        let (c, used) = match bytes.get(1) {
            Some(b'u') => decode_unicode(bytes),
            Some(b'b') => ('\u{8}', 2),
            Some(b'f') => ('\u{c}', 2),
            Some(b'n') => ('\n', 2),
            Some(b'r') => ('\r', 2),
            Some(b't') => ('\t', 2),
            Some(&other) => (other as char, 2),
            None => ('\u{fffd}', 1),
        };
        self.text = self.text.get(used..).unwrap_or_default();
        Some(Piece::Char(c))
    }
}

/// Decodes `\uXXXX`, or a pair of them, at the start of `bytes`. Returns the character and the
/// number of bytes read.
fn decode_unicode(bytes: &[u8]) -> (char, usize) {
    let high = hex4(bytes, 2);
    if let Some(c) = char::from_u32(high) {
        return (c, 6);
    }
    if (0xd800..0xdc00).contains(&high) && bytes.get(6..8) == Some(b"\\u") {
        let low = hex4(bytes, 8);
        if (0xdc00..0xe000).contains(&low) {
            let scalar = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            return (char::from_u32(scalar).unwrap_or('\u{fffd}'), 12);
        }
    }
    ('\u{fffd}', 6)
}

fn hex4(bytes: &[u8], from: usize) -> u32 {
    bytes.get(from..from + 4).map_or(0xfffd, |digits| {
        digits
            .iter()
            .fold(0, |value, &digit| value << 4 | (digit as char).to_digit(16).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(s: &str) -> String {
        let mut out = Vec::new();
        print_string(s, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escapes_only_the_required_characters() {
        for (s, expected) in [
            ("", r#""""#),
            ("plain", r#""plain""#),
            ("a\"b\\c/d", r#""a\"b\\c/d""#),
            ("\n\r\t\u{8}\u{c}", r#""\n\r\t\b\f""#),
            ("\0\u{1f}\u{7f}", "\"\\u0000\\u001f\u{7f}\""),
            (
                "long enough for words ü€😀 and \u{1} there",
                "\"long enough for words ü€😀 and \\u0001 there\"",
            ),
        ] {
            assert_eq!(printed(s), expected);
        }
    }

    #[test]
    fn every_byte_at_every_place_of_a_word_is_escaped_as_serde_json_does() {
        // Miri is slow and tests samples only.
        for byte in (0u8..128).step_by(if cfg!(miri) { 31 } else { 1 }) {
            for place in 0..17 {
                let mut text = "x".repeat(17);
                text.replace_range(place..=place, &char::from(byte).to_string());
                assert_eq!(printed(&text), serde_json::to_string(&text).unwrap());
            }
        }
    }

    #[test]
    fn escapes_decode_and_compare() {
        for (text, expected) in [
            (r"a\u0062c", "abc"),
            (r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r"\ud83d\ude00", "😀"),
            (r"\uD83D", "\u{fffd}"),
            (r"\uDE00\uD83D", "\u{fffd}\u{fffd}"),
            (r"\ud83dx", "\u{fffd}x"),
            (r"\ud83d\u0041", "\u{fffd}A"),
        ] {
            assert_eq!(decode(text), expected);
            assert!(decodes_to(text, expected));
            assert!(!decodes_to(text, &format!("{expected}x")));
            assert!(decode_equal(text, &printed(expected)[1..printed(expected).len() - 1]));
        }
    }
}
