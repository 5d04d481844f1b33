//! The careful reader: walks a text byte by byte, strictly after RFC 8259, and tells exactly what
//! is wrong and where. It makes no nodes. The parser asks it to explain a text that it refused;
//! tests hold the two against each other.

use crate::error::{ParseError, ParseErrorKind as Wrong};

/// Checks a whole text. `depth_limit` is in arrays and objects open at once.
pub(crate) fn check(text: &str, depth_limit: u32) -> Result<(), ParseError> {
    let mut reader = Reader { text: text.as_bytes(), at: 0 };
    reader.document(depth_limit).map_err(|kind| ParseError { kind, offset: reader.at })
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn document(&mut self, depth_limit: u32) -> Result<(), Wrong> {
        // Which containers are open: objects are true. One entry per level, so the limit bounds it.
        let mut open: Vec<bool> = Vec::new();
        loop {
            // A value.
            self.space();
            match self.peek() {
                Some(opener @ (b'{' | b'[')) => {
                    if open.len() >= depth_limit as usize {
                        return Err(Wrong::TooDeep);
                    }
                    self.at += 1;
                    self.space();
                    let object = opener == b'{';
                    if self.peek() == Some(opener + 2) {
                        self.at += 1;
                    } else {
                        open.push(object);
                        if object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                Some(b'"') => self.string()?,
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.word(b"true")?,
                Some(b'f') => self.word(b"false")?,
                Some(b'n') => self.word(b"null")?,
                Some(_) => return Err(Wrong::ExpectedValue),
                None => return Err(Wrong::UnexpectedEnd),
            }
            // What follows it.
            loop {
                self.space();
                match (open.last(), self.peek()) {
                    (None, None) => return Ok(()),
                    (None, Some(_)) => return Err(Wrong::TrailingCharacters),
                    (Some(_), None) => return Err(Wrong::UnexpectedEnd),
                    (Some(&object), Some(b',')) => {
                        self.at += 1;
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    (Some(true), Some(b'}')) | (Some(false), Some(b']')) => {
                        self.at += 1;
                        open.pop();
                    }
                    _ => return Err(Wrong::ExpectedCommaOrEnd),
                }
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// A key and its colon.
    fn key(&mut self) -> Result<(), Wrong> {
        self.space();
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(_) => return Err(Wrong::ExpectedKey),
            None => return Err(Wrong::UnexpectedEnd),
        }
        self.space();
        match self.peek() {
            Some(b':') => self.at += 1,
            Some(_) => return Err(Wrong::ExpectedColon),
            None => return Err(Wrong::UnexpectedEnd),
        }
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Wrong> {
        for &byte in word {
            match self.peek() {
                Some(found) if found == byte => self.at += 1,
                Some(_) => return Err(Wrong::ExpectedValue),
                None => return Err(Wrong::UnexpectedEnd),
            }
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), Wrong> {
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(Wrong::UnexpectedEnd),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(0..=0x1f) => return Err(Wrong::ControlCharacter),
                Some(b'\\') => self.escape()?,
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<(), Wrong> {
        match escape_length(&self.text[self.at..]) {
            Some(length) => {
                self.at += length;
                Ok(())
            }
            None => Err(Wrong::InvalidEscape),
        }
    }

    fn number(&mut self) -> Result<(), Wrong> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            Some(_) => return Err(Wrong::InvalidNumber),
            None => return Err(Wrong::UnexpectedEnd),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        match self.peek() {
            Some(b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') => Err(Wrong::InvalidNumber),
            _ => Ok(()),
        }
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<(), Wrong> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        match self.peek() {
            _ if self.at > start => Ok(()),
            Some(_) => Err(Wrong::InvalidNumber),
            None => Err(Wrong::UnexpectedEnd),
        }
    }
}

/// Length of the escape at the start of `text`, which begins with a backslash; `None` if it is not
/// one of section 7. Surrogates need not come in pairs: the grammar allows them alone.
pub(crate) fn escape_length(text: &[u8]) -> Option<usize> {
    match text.get(1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' if text.get(2..6)?.iter().all(u8::is_ascii_hexdigit) => Some(6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_fault_and_its_place() {
        for (text, kind, offset) in [
            ("", Wrong::UnexpectedEnd, 0),
            ("  ", Wrong::UnexpectedEnd, 2),
            ("nul", Wrong::UnexpectedEnd, 3),
            ("nuls", Wrong::ExpectedValue, 3),
            ("[1,]", Wrong::ExpectedValue, 3),
            ("[1 2]", Wrong::ExpectedCommaOrEnd, 3),
            ("[1}", Wrong::ExpectedCommaOrEnd, 2),
            ("{\"a\" 1}", Wrong::ExpectedColon, 5),
            ("{a:1}", Wrong::ExpectedKey, 1),
            ("{\"a\":1,}", Wrong::ExpectedKey, 7),
            ("{} x", Wrong::TrailingCharacters, 3),
            ("[-]", Wrong::InvalidNumber, 2),
            ("[01]", Wrong::InvalidNumber, 2),
            ("[1.]", Wrong::InvalidNumber, 3),
            ("[1e+]", Wrong::InvalidNumber, 4),
            ("1.", Wrong::UnexpectedEnd, 2),
            ("\"a\\x\"", Wrong::InvalidEscape, 2),
            ("\"a\\u12g4\"", Wrong::InvalidEscape, 2),
            ("\"a\nb\"", Wrong::ControlCharacter, 2),
            ("\"abc", Wrong::UnexpectedEnd, 4),
            ("[[[[]]]]", Wrong::TooDeep, 3),
        ] {
            assert_eq!(check(text, 3), Err(ParseError { kind, offset }), "{text}");
        }
    }
}
