//! Parses the response keys at the root of a subgraph operation. They show which fields of the
//! client are concerned if a root fetch fails.

use crate::tokens::{Token, Tokens};

/// Returns the root keys of `text`, an operation that the planner has written. Inline fragments are
/// included. Text that is no such operation gives fewer keys, never a panic.
pub(crate) fn parse_root_keys(text: &str) -> Vec<Box<str>> {
    let mut tokens = Tokens::new(text);
    let mut keys: Vec<Box<str>> = Vec::new();
    // Skips to the root selection set; variable definitions have braces only inside parentheses.
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
            // The name of a directive, or the name of the field after its alias.
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

#[cfg(test)]
mod tests {
    use super::parse_root_keys;

    fn check(text: &str, expected: &[&str]) {
        let keys = parse_root_keys(text);
        assert_eq!(keys.iter().map(|key| &**key).collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn keys_of_the_root_are_found_and_none_below() {
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
    fn text_that_is_no_operation_gives_some_keys() {
        for text in ["", "{", "{a", "{a(", "{a{", "{...", "\"", "{a(x:\"\\", "{@", "{:", "}", "{é}"]
        {
            let _ = parse_root_keys(text);
        }
        check("{a", &["a"]);
    }
}
