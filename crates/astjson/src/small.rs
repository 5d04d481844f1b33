//! Small texts: objects of a few plain members, as services send them in passing. They are at
//! their end before it pays to look at many bytes at a time, so they are read byte by byte;
//! whatever is not plain is left to the loop in `parser`.

use crate::node::{Node, Tag};
use crate::token::{key_node, string_node};

/// Largest text that is tried.
pub(crate) const SMALL_BYTES_MAX: usize = 64;

/// Objects that may be open.
const OPEN_MAX: usize = 8;

/// Reads a text that is an object of ASCII without space, escapes, arrays and fractions. Returns
/// nothing if it is something else, or no JSON at all; `nodes` may then have grown.
// Hot path: `cargo bench -p astjson -- micro`; some fifteen instructions a byte.
pub(crate) fn read_small(
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
                at = key(text, at, number, nodes)?;
                continue;
            }
            at += 1;
        } else if first == b'"' {
            let close = string_end(text, at + 1)?;
            nodes.push(string_node(number, false, at as u32, close as u32, index));
            at = close + 1;
        } else {
            let (tag, end) = word(text, at, first)?;
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
                    at = key(text, at + 1, number, nodes)?;
                    break;
                }
                _ => return None,
            }
        }
    }
}

/// Reads a key and its colon. Returns the position after them.
#[inline(always)]
fn key(text: &[u8], at: usize, number: u32, nodes: &mut Vec<Node>) -> Option<usize> {
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
        match *text.get(at)? {
            b'"' => return Some(at),
            b'\\' => return None,
            b' '..=b'~' => at += 1,
            // A control character, or no ASCII.
            _ => return None,
        }
    }
}

/// A literal, or an integer of the form that most have. Returns what it is and the position after
/// it.
#[inline(always)]
fn word(text: &[u8], at: usize, first: u8) -> Option<(Tag, usize)> {
    match first {
        b't' => (text.get(at..at + 4)? == b"true").then_some((Tag::True, at + 4)),
        b'n' => (text.get(at..at + 4)? == b"null").then_some((Tag::Null, at + 4)),
        b'f' => (text.get(at..at + 5)? == b"false").then_some((Tag::False, at + 5)),
        b'1'..=b'9' => {
            let mut end = at + 1;
            while text.get(end)?.is_ascii_digit() {
                end += 1;
            }
            // A fraction or an exponent is not followed by what follows a value.
            Some((Tag::Number, end))
        }
        _ => None,
    }
}
