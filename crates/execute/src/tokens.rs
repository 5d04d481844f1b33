//! The tokens of operations that the planner has written. Other texts give some tokens, never a
//! panic.

/// One token.
pub(crate) enum Token<'a> {
    Name(&'a str),
    /// A punctuator, or a byte of a token that does not matter here.
    Mark(u8),
}

/// The tokens of a text, without ignored ones.
pub(crate) struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let start = self.at;
            let byte = *self.text.get(start)?;
            self.at += 1;
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' | b',' => {}
                b'"' => {
                    self.skip_string();
                    return Some(Token::Mark(b'"'));
                }
                b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                    while self
                        .text
                        .get(self.at)
                        .is_some_and(|it| *it == b'_' || it.is_ascii_alphanumeric())
                    {
                        self.at += 1;
                    }
                    let name = std::str::from_utf8(&self.text[start..self.at]).ok()?;
                    return Some(Token::Name(name));
                }
                b'.' if self.text[start..].starts_with(b"...") => {
                    self.at += 2;
                    return Some(Token::Mark(b'.'));
                }
                _ => return Some(Token::Mark(byte)),
            }
        }
    }
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text: text.as_bytes(), at: 0 }
    }

    /// Skips a string after its opening quote.
    fn skip_string(&mut self) {
        if self.text[self.at..].starts_with(b"\"\"") {
            self.at += 2;
            let mut rest = &self.text[self.at..];
            while !rest.is_empty() && !rest.starts_with(b"\"\"\"") {
                rest = &rest[if rest.starts_with(b"\\\"\"\"") { 4 } else { 1 }..];
            }
            self.at = (self.text.len() - rest.len() + 3).min(self.text.len());
            return;
        }
        while let Some(&byte) = self.text.get(self.at) {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
        self.at = self.at.min(self.text.len());
    }

    /// The position at which the next token, or ignored text before it, begins.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Skips to the position after the closing mark, from after the opening one.
    pub(crate) fn skip_to_close(&mut self, open: u8, close: u8) {
        let mut depth = 1u32;
        while depth > 0 {
            match self.next() {
                None => return,
                Some(Token::Mark(mark)) if mark == open => depth += 1,
                Some(Token::Mark(mark)) if mark == close => depth -= 1,
                Some(_) => {}
            }
        }
    }
}
