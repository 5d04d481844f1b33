//! The SHA-256 of an operation's text.

use std::fmt;

use sha2::{Digest, Sha256};

/// The number of hexadecimal digits of a hash.
const DIGITS: usize = 64;

/// The SHA-256 of a text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextHash([u8; DIGITS / 2]);

impl TextHash {
    /// Computes the hash of a text.
    pub fn of(text: &[u8]) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// Parses 64 hexadecimal digits, in either case; `None` if `text` is something else.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != DIGITS {
            return None;
        }
        let mut hash = [0; DIGITS / 2];
        for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let [high, low] = [pair[0], pair[1]].map(|digit| char::from(digit).to_digit(16));
            *byte = (high? * 16 + low?) as u8;
        }
        Some(Self(hash))
    }
}

impl fmt::Display for TextHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TextHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_printed_as_it_is_parsed() {
        // The example of the draft, "SHA256 Hex Document Identifier".
        let hash = "71f7dc5758652baac68e4a10c50be732b741c892ade2883a99358f52b555286b";
        let computed = TextHash::of(b"query($id:ID!){user(id:$id){name}}");
        assert_eq!(computed.to_string(), hash);
        assert_eq!(TextHash::parse(hash), Some(computed));
        assert_eq!(TextHash::parse(&hash.to_uppercase()), Some(computed));
    }

    #[test]
    fn a_text_that_is_no_hash_is_refused() {
        let hash = "7".repeat(DIGITS);
        let signed = format!("+1{}", &hash[2..]);
        let wide = format!("ä{}", &hash[2..]);
        for text in ["", "ab", &hash[1..], &signed, &wide, &format!("{hash}0")] {
            assert_eq!(TextHash::parse(text), None, "{text}");
        }
    }
}
