//! The response keys at the root of a subgraph operation, read from its text. They say which
//! fields of the client are concerned when a root fetch fails.

/// The root keys of `text`, an operation that the planner has written. Inline fragments are
/// looked into. Text that is no such operation yields fewer keys, never a panic.
pub(crate) fn root_keys(text: &str) -> Vec<Box<str>> {
    let mut tokens = Tokens { text: text.as_bytes(), at: 0 };
    let mut keys: Vec<Box<str>> = Vec::new();
    // Up to the root selection set; variable definitions hold braces only inside parentheses.
    loop {
        match tokens.next() {
            None => return keys,
            Some(Token::Mark(b'(')) => tokens.skip_to_close(b'(', b')'),
            Some(Token::Mark(b'{')) => break,
            Some(_) => {}
        }
    }
    let mut open_fragments = 0u32;
    while let Some(token) = tokens.next() {
        match token {
            // `... on Type @directive(…) {`
            Token::Mark(b'.') => loop {
                match tokens.next() {
                    None => return keys,
                    Some(Token::Mark(b'{')) => {
                        open_fragments += 1;
                        break;
                    }
                    Some(Token::Mark(b'(')) => tokens.skip_to_close(b'(', b')'),
                    Some(_) => {}
                }
            },
            Token::Mark(b'(') => tokens.skip_to_close(b'(', b')'),
            Token::Mark(b'{') => tokens.skip_to_close(b'{', b'}'),
            Token::Mark(b'}') if open_fragments == 0 => break,
            Token::Mark(b'}') => open_fragments -= 1,
            // The name of a directive, or the field's own name after its alias.
            Token::Mark(b'@' | b':') => {
                tokens.next();
            }
            Token::Name(name) => {
                if !keys.iter().any(|key| &**key == name) {
                    keys.push(name.into());
                }
            }
            Token::Mark(_) => {}
        }
    }
    keys
}

enum Token<'a> {
    Name(&'a str),
    /// A punctuator, or a byte of something that does not matter here.
    Mark(u8),
}

struct Tokens<'a> {
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
                    self.string();
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

impl Tokens<'_> {
    /// After the opening quote: past the closing one.
    fn string(&mut self) {
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

    /// After the opening mark: past the closing one.
    fn skip_to_close(&mut self, open: u8, close: u8) {
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

#[cfg(test)]
mod tests {
    use super::root_keys;

    fn check(text: &str, expected: &[&str]) {
        let keys = root_keys(text);
        assert_eq!(keys.iter().map(|key| &**key).collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn keys_of_the_root_are_found_and_nothing_below() {
        check("{a b{c} d}", &["a", "b", "d"]);
        check("query Q($x:[Int!]={a:1}){a(x:$x){b}c}", &["a", "c"]);
        check("query{k:field(a:{b:\"} {\"}){x{y}}l:other}", &["k", "l"]);
        check(
            "mutation{a@skip(if:$x){b}...on Mutation@include(if:$y){c d{e}}f}",
            &["a", "c", "d", "f"],
        );
        check("{a(x:\"\"\"{ \\\"\"\" }\"\"\") b a}", &["a", "b"]);
        check("{a{}b}", &["a", "b"]);
        check("{a{{}}b}", &["a", "b"]);
    }

    #[test]
    fn text_that_is_no_operation_yields_what_there_is() {
        for text in ["", "{", "{a", "{a(", "{a{", "{...", "\"", "{a(x:\"\\", "{@", "{:", "}", "{é}"]
        {
            let _ = root_keys(text);
        }
        check("{a", &["a"]);
    }
}
