//! The validating parser: reads a text byte by byte, strictly by RFC 8259, and reports the exact
//! error and its offset. It makes no nodes. The other parsers use it to explain a text that they
//! refused; tests compare them with it.

use crate::error::{ParseError, ParseErrorKind};

/// Checks a whole text. `depth_limit` is the number of arrays and objects open at once.
pub(crate) fn validate(text: &str, depth_limit: u32) -> Result<(), ParseError> {
    let mut reader = Validator { text: text.as_bytes(), at: 0 };
    reader.check_document(depth_limit).map_err(|kind| ParseError { kind, offset: reader.at })
}

struct Validator<'a> {
    text: &'a [u8],
    at: usize,
}

impl Validator<'_> {
    fn check_document(&mut self, depth_limit: u32) -> Result<(), ParseErrorKind> {
        // The open containers: true for objects. One entry per level, so the limit bounds it.
        let mut open: Vec<bool> = Vec::new();
        loop {
            // A value begins here.
            self.skip_space();
            match self.peek() {
                Some(opener @ (b'{' | b'[')) => {
                    if open.len() >= depth_limit as usize {
                        return Err(ParseErrorKind::TooDeep);
                    }
                    self.at += 1;
                    self.skip_space();
                    let object = opener == b'{';
                    if self.peek() == Some(opener + 2) {
                        self.at += 1;
                    } else {
                        open.push(object);
                        if object {
                            self.check_key()?;
                        }
                        continue;
                    }
                }
                Some(b'"') => self.check_string()?,
                Some(b'-' | b'0'..=b'9') => self.check_number()?,
                Some(b't') => self.check_word(b"true")?,
                Some(b'f') => self.check_word(b"false")?,
                Some(b'n') => self.check_word(b"null")?,
                Some(_) => return Err(ParseErrorKind::ExpectedValue),
                None => return Err(ParseErrorKind::UnexpectedEnd),
            }
            // A value ended here.
            loop {
                self.skip_space();
                match (open.last(), self.peek()) {
                    (None, None) => return Ok(()),
                    (None, Some(_)) => return Err(ParseErrorKind::TrailingCharacters),
                    (Some(_), None) => return Err(ParseErrorKind::UnexpectedEnd),
                    (Some(&object), Some(b',')) => {
                        self.at += 1;
                        if object {
                            self.check_key()?;
                        }
                        break;
                    }
                    (Some(true), Some(b'}')) | (Some(false), Some(b']')) => {
                        self.at += 1;
                        open.pop();
                    }
                    _ => return Err(ParseErrorKind::ExpectedCommaOrEnd),
                }
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Reads a key and its colon.
    fn check_key(&mut self) -> Result<(), ParseErrorKind> {
        self.skip_space();
        match self.peek() {
            Some(b'"') => self.check_string()?,
            Some(_) => return Err(ParseErrorKind::ExpectedKey),
            None => return Err(ParseErrorKind::UnexpectedEnd),
        }
        self.skip_space();
        match self.peek() {
            Some(b':') => self.at += 1,
            Some(_) => return Err(ParseErrorKind::ExpectedColon),
            None => return Err(ParseErrorKind::UnexpectedEnd),
        }
        Ok(())
    }

    fn check_word(&mut self, word: &[u8]) -> Result<(), ParseErrorKind> {
        for &byte in word {
            match self.peek() {
                Some(found) if found == byte => self.at += 1,
                Some(_) => return Err(ParseErrorKind::ExpectedValue),
                None => return Err(ParseErrorKind::UnexpectedEnd),
            }
        }
        Ok(())
    }

    fn check_string(&mut self) -> Result<(), ParseErrorKind> {
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(ParseErrorKind::UnexpectedEnd),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(0..=0x1f) => return Err(ParseErrorKind::ControlCharacter),
                Some(b'\\') => self.check_escape()?,
                Some(_) => self.at += 1,
            }
        }
    }

    fn check_escape(&mut self) -> Result<(), ParseErrorKind> {
        match escape_length(&self.text[self.at..]) {
            Some(length) => {
                self.at += length;
                Ok(())
            }
            None => Err(ParseErrorKind::InvalidEscape),
        }
    }

    fn check_number(&mut self) -> Result<(), ParseErrorKind> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.check_digits()?,
            Some(_) => return Err(ParseErrorKind::InvalidNumber),
            None => return Err(ParseErrorKind::UnexpectedEnd),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.check_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.check_digits()?;
        }
        match self.peek() {
            Some(b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') => {
                Err(ParseErrorKind::InvalidNumber)
            }
            _ => Ok(()),
        }
    }

    /// Reads one digit or more.
    fn check_digits(&mut self) -> Result<(), ParseErrorKind> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        match self.peek() {
            _ if self.at > start => Ok(()),
            Some(_) => Err(ParseErrorKind::InvalidNumber),
            None => Err(ParseErrorKind::UnexpectedEnd),
        }
    }
}

/// Length of the escape at the start of `text`, which begins with a backslash; `None` if section 7
/// does not define it. Surrogates need not come in pairs: the grammar allows lone ones.
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
    fn errors_name_the_kind_and_the_offset() {
        for (text, kind, offset) in [
            ("", ParseErrorKind::UnexpectedEnd, 0),
            ("  ", ParseErrorKind::UnexpectedEnd, 2),
            ("nul", ParseErrorKind::UnexpectedEnd, 3),
            ("nuls", ParseErrorKind::ExpectedValue, 3),
            ("[1,]", ParseErrorKind::ExpectedValue, 3),
            ("[1 2]", ParseErrorKind::ExpectedCommaOrEnd, 3),
            ("[1}", ParseErrorKind::ExpectedCommaOrEnd, 2),
            ("{\"a\" 1}", ParseErrorKind::ExpectedColon, 5),
            ("{a:1}", ParseErrorKind::ExpectedKey, 1),
            ("{\"a\":1,}", ParseErrorKind::ExpectedKey, 7),
            ("{} x", ParseErrorKind::TrailingCharacters, 3),
            ("[-]", ParseErrorKind::InvalidNumber, 2),
            ("[01]", ParseErrorKind::InvalidNumber, 2),
            ("[1.]", ParseErrorKind::InvalidNumber, 3),
            ("[1e+]", ParseErrorKind::InvalidNumber, 4),
            ("1.", ParseErrorKind::UnexpectedEnd, 2),
            ("\"a\\x\"", ParseErrorKind::InvalidEscape, 2),
            ("\"a\\u12g4\"", ParseErrorKind::InvalidEscape, 2),
            ("\"a\nb\"", ParseErrorKind::ControlCharacter, 2),
            ("\"abc", ParseErrorKind::UnexpectedEnd, 4),
            ("[[[[]]]]", ParseErrorKind::TooDeep, 3),
        ] {
            assert_eq!(validate(text, 3), Err(ParseError { kind, offset }), "{text}");
        }
    }
}
