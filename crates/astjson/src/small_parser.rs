//! Parses small texts: objects of a few plain members, as services often send. They end before
//! reading many bytes at a time pays, so they are read byte by byte. Texts that are not plain are
//! left to the other parsers.

use crate::node::{Node, Tag};
use crate::token::{key_node, string_node};

/// Maximum size of a text that this parser tries.
pub(crate) const SMALL_TEXT_BYTES_MAX: usize = 64;

/// True for bytes that may be part of an ASCII string as they are.
const PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = b' ';
    while byte <= b'~' {
        table[byte as usize] = byte != b'"' && byte != b'\\';
        byte += 1;
    }
    table
};

/// Maximum number of open objects.
const OPEN_MAX: usize = 8;

/// Parses a text that is an object of ASCII without space, escapes, arrays and fractions. Returns
/// `None` for other texts, and for invalid ones; `nodes` may then have grown.
// Hot path: `cargo bench -p astjson -- micro`; some fifteen instructions a byte.
pub(crate) fn parse_small(
    text: &[u8],
    number: u32,
    depth_max: u32,
    nodes: &mut Vec<Node>,
) -> Option<()> {
    let mut open = [0; OPEN_MAX];
    let mut depth = 0;
    let mut at = 0;
    loop {
        // A value begins here.
        let index = nodes.len() as u32;
        let first = *text.get(at)?;
        if first == b'{' {
            if depth as u32 == depth_max {
                return None;
            }
            nodes.push(Node::new(Tag::Object, 0, number, 0, 0, index + 1));
            at += 1;
            if *text.get(at)? != b'}' {
                *open.get_mut(depth)? = index;
                depth += 1;
                at = parse_key(text, at, number, nodes)?;
                continue;
            }
            at += 1;
        } else if first == b'"' {
            let close = string_end(text, at + 1)?;
            nodes.push(string_node(number, false, at as u32, close as u32, index));
            at = close + 1;
        } else {
            let (tag, end) = parse_word(text, at, first)?;
            nodes.push(Node::new(tag, 0, number, at as u32, (end - at) as u32, index + 1));
            at = end;
        }
        loop {
            // A value ended here.
            if depth == 0 {
                return (at == text.len()).then_some(());
            }
            let end = nodes.len() as u32;
            let object = nodes.get_mut(*open.get(depth - 1)? as usize)?;
            object.b += 1;
            match *text.get(at)? {
                b'}' => {
                    object.end = end;
                    depth -= 1;
                    at += 1;
                }
                b',' => {
                    at = parse_key(text, at + 1, number, nodes)?;
                    break;
                }
                _ => return None,
            }
        }
    }
}

/// Reads a key and its colon. Returns the position after them.
#[inline(always)]
fn parse_key(text: &[u8], at: usize, number: u32, nodes: &mut Vec<Node>) -> Option<usize> {
    if *text.get(at)? != b'"' {
        return None;
    }
    let close = string_end(text, at + 1)?;
    let head = text.get(at + 1..)?.first_chunk()?;
    nodes.push(key_node(number, false, at as u32, close as u32, head));
    (*text.get(close + 1)? == b':').then_some(close + 2)
}

/// Position of the quote that ends a string without escapes.
#[inline(always)]
fn string_end(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let byte = *text.get(at)?;
        if !PLAIN[usize::from(byte)] {
            return (byte == b'"').then_some(at);
        }
        at += 1;
    }
}

/// Reads a literal, or an integer in its most common form. Returns its tag and the position after
/// it.
#[inline(always)]
fn parse_word(text: &[u8], at: usize, first: u8) -> Option<(Tag, usize)> {
    match first {
        b't' => (text.get(at..at + 4)? == b"true").then_some((Tag::True, at + 4)),
        b'n' => (text.get(at..at + 4)? == b"null").then_some((Tag::Null, at + 4)),
        b'f' => (text.get(at..at + 5)? == b"false").then_some((Tag::False, at + 5)),
        b'1'..=b'9' => {
            let mut end = at + 1;
            while text.get(end)?.is_ascii_digit() {
                end += 1;
            }
            // A fraction or an exponent is refused later, because only punctuation may follow a
            // value.
            Some((Tag::Number, end))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;

    /// The nodes that this parser makes of a text, and those that the generic parser makes.
    fn read_both(text: &str, depth_max: u32) -> (Option<Vec<Node>>, Option<Vec<Node>>) {
        let mut nodes = Vec::new();
        let small = parse_small(text.as_bytes(), 1, depth_max, &mut nodes).map(|()| nodes);
        let mut document = Document::with_depth_limit(depth_max);
        let general = document.read(text.as_bytes(), 1, None).ok().map(|()| document.nodes);
        (small, general)
    }

    #[test]
    fn reads_plain_texts_as_the_generic_parser_does() {
        for text in [
            "{}",
            "1",
            "true",
            "\"text\"",
            "\"\"",
            r#"{"":""}"#,
            r#"{"a":1}"#,
            r#"{"a":null,"b":true,"c":false,"d":1234567890123456789}"#,
            r#"{"a":{},"b":{"c":{"d":{}}},"e":"f"}"#,
            r#"{"abcd":{"abcde":"abcdef"},"abcdefg":{}}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":{"a":{"a":{"a":{"a":{"a":{"a":{}}}}}}}}"#,
        ] {
            // A number alone is left, because it ends where it could continue.
            let (small, general) = read_both(text, 8);
            assert!(general.is_some(), "{text}");
            assert_eq!(small, if text == "1" { None } else { general }, "{text}");
        }
    }

    #[test]
    fn leaves_texts_that_are_not_plain() {
        for text in [
            "[]",
            "{} ",
            " {}",
            r#"{"a": 1}"#,
            r#"{"a" :1}"#,
            r#"{"a":1 }"#,
            r#"{"a":[1]}"#,
            r#"{"a":1.5}"#,
            r#"{"a":1e5}"#,
            r#"{"a":-1}"#,
            r#"{"a":0}"#,
            r#"{"a\n":1}"#,
            r#"{"a":"\u0041"}"#,
            r#"{"é":1}"#,
            "{\"a\":\"\u{7f}\"}",
            r#"{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}}}}"#,
        ] {
            let (small, general) = read_both(text, 512);
            assert_eq!(small, None, "{text}");
            assert!(general.is_some(), "{text}");
        }
    }

    #[test]
    fn refuses_invalid_texts() {
        for text in [
            "",
            "{",
            "}",
            r#"{"a""#,
            r#"{"a":"#,
            r#"{"a":1"#,
            r#"{"a":1,"#,
            r#"{"a":1,}"#,
            r#"{"a":01}"#,
            r#"{"a":1]"#,
            r#"{"a":1}}"#,
            r#"{"a":tru}"#,
            r#"{"a":nulll}"#,
            r#"{"a"1}"#,
            r#"{a:1}"#,
            r#"{"a":"b}"#,
            "{\"a\":\"\n\"}",
        ] {
            assert_eq!(read_both(text, 512), (None, None), "{text}");
        }
        // Three objects are open at once.
        let deep = r#"{"a":{"b":{}}}"#;
        assert_eq!(read_both(deep, 2), (None, None));
        assert!(read_both(deep, 3).0.is_some());
    }
}
