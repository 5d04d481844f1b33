//! The general parser: text to nodes, in one pass, without recursion.

use bytes::Bytes;

use crate::careful;
use crate::document::Document;
use crate::error::{ParseError, ParseErrorKind};
use crate::node::{ESCAPED, Node, NodeId, REAL, TABLE, Tag};
use crate::text::{Utf8, position};

/// Largest text: positions are 32 bits, with some room so that arithmetic on them cannot overflow.
const TEXT_BYTES_MAX: usize = u32::MAX as usize - 1024;

/// Refused; the careful reader knows why.
struct Refused;

impl Document {
    /// Parses `text` as one more document of this arena (RFC 8259, strictly) and returns its root.
    ///
    /// The text is kept by reference count and not copied. A value that was parsed before stays
    /// as it was; after an error nothing of `text` is kept.
    ///
    /// # Errors
    ///
    /// When `text` is not JSON, nests deeper than the limit of this document, or is larger than
    /// 32-bit positions reach.
    pub fn parse(&mut self, text: impl Into<Bytes>) -> Result<NodeId, ParseError> {
        let text = text.into();
        let too_large = ParseError { kind: ParseErrorKind::TooLarge, offset: 0 };
        // A text has at most one node per byte.
        if text.len() > TEXT_BYTES_MAX || self.nodes.len() + text.len() > TEXT_BYTES_MAX {
            return Err(too_large);
        }
        let number = self.texts.next().ok_or(too_large)?;
        let text = Utf8::new(text)
            .map_err(|offset| ParseError { kind: ParseErrorKind::InvalidUtf8, offset })?;
        let (nodes, links) = (self.nodes.len(), self.links.len());
        match self.read(text.as_str(), number) {
            Ok(()) => {
                self.texts.push(text);
                Ok(NodeId(position(nodes)))
            }
            Err(Refused) => {
                self.nodes.truncate(nodes);
                self.links.truncate(links);
                Err(careful::check(text.as_str(), self.depth_limit)
                    .err()
                    .unwrap_or(ParseError { kind: ParseErrorKind::ExpectedValue, offset: 0 }))
            }
        }
    }

    fn read(&mut self, text: &str, number: u32) -> Result<(), Refused> {
        let bytes = text.as_bytes();
        let nodes = &mut self.nodes;
        let links = &mut self.links;
        let mut at = 0;
        let mut depth = 0;
        // The container that is open. While it is, its `end` names the one around it, and `b`
        // keeps the count of that one; what it counts itself is `count`.
        const NONE: u32 = u32::MAX;
        let mut parent = NONE;
        let mut in_object = false;
        let mut count = 0u32;
        'value: loop {
            at = skip_space(bytes, at);
            let index = nodes.len() as u32;
            match byte(bytes, at)? {
                b'"' => {
                    let (end, escaped) = string_end(bytes, at)?;
                    let flags = if escaped { ESCAPED } else { 0 };
                    nodes.push(string_node(number, flags, at, end, index));
                    at = end;
                }
                b'-' | b'0'..=b'9' => {
                    let (end, real) = number_end(bytes, at)?;
                    let flags = if real { REAL } else { 0 };
                    let length = (end - at) as u32;
                    nodes.push(Node::new(Tag::Number, flags, number, at as u32, length, index + 1));
                    at = end;
                }
                b't' => at = word(bytes, at, b"true", nodes, Tag::True)?,
                b'f' => at = word(bytes, at, b"false", nodes, Tag::False)?,
                b'n' => at = word(bytes, at, b"null", nodes, Tag::Null)?,
                opener @ (b'{' | b'[') => {
                    depth += 1;
                    if depth > self.depth_limit {
                        return Err(Refused);
                    }
                    let tag = if opener == b'{' { Tag::Object } else { Tag::Array };
                    at = skip_space(bytes, at + 1);
                    if byte(bytes, at)? == opener + 2 {
                        at += 1;
                        depth -= 1;
                        nodes.push(Node::new(tag, 0, number, 0, 0, index + 1));
                    } else {
                        nodes.push(Node::new(tag, 0, number, 0, count, parent));
                        parent = index;
                        in_object = opener == b'{';
                        count = 0;
                        if in_object {
                            at = key(bytes, at, number, nodes)?;
                        }
                        continue 'value;
                    }
                }
                _ => return Err(Refused),
            }
            loop {
                at = skip_space(bytes, at);
                if parent == NONE {
                    return if at == bytes.len() { Ok(()) } else { Err(Refused) };
                }
                count += 1;
                match byte(bytes, at)? {
                    b',' => {
                        at += 1;
                        if in_object {
                            at = key(bytes, skip_space(bytes, at), number, nodes)?;
                        }
                        continue 'value;
                    }
                    b'}' if in_object => {}
                    b']' if !in_object => {
                        let first = parent + 1;
                        let end = nodes.len() as u32;
                        if end - first != count {
                            // Some element is more than one node: elements get a table.
                            let table = links.len();
                            links.push(count);
                            let mut element = first;
                            while element < end {
                                links.push(element);
                                element = nodes[element as usize].end;
                            }
                            nodes[parent as usize].meta |= TABLE;
                            nodes[parent as usize].a = position(table);
                        }
                    }
                    _ => return Err(Refused),
                }
                at += 1;
                depth -= 1;
                let end = nodes.len() as u32;
                let closed = &mut nodes[parent as usize];
                (parent, closed.end) = (closed.end, end);
                (count, closed.b) = (closed.b, count);
                in_object = parent != NONE && nodes[parent as usize].is(Tag::Object);
            }
        }
    }
}

fn byte(bytes: &[u8], at: usize) -> Result<u8, Refused> {
    bytes.get(at).copied().ok_or(Refused)
}

fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(at) {
        at += 1;
    }
    at
}

fn string_node(number: u32, flags: u32, at: usize, end: usize, index: u32) -> Node {
    let length = (end - at - 2) as u32;
    Node::new(Tag::String, flags, number, at as u32 + 1, length, index + 1)
}

/// A key and its colon; returns the position after them.
fn key(bytes: &[u8], at: usize, number: u32, nodes: &mut Vec<Node>) -> Result<usize, Refused> {
    if byte(bytes, at)? != b'"' {
        return Err(Refused);
    }
    let (end, escaped) = string_end(bytes, at)?;
    let flags = if escaped { ESCAPED } else { 0 };
    nodes.push(string_node(number, flags, at, end, nodes.len() as u32));
    let at = skip_space(bytes, end);
    if byte(bytes, at)? == b':' { Ok(at + 1) } else { Err(Refused) }
}

fn word(
    bytes: &[u8],
    at: usize,
    word: &[u8],
    nodes: &mut Vec<Node>,
    tag: Tag,
) -> Result<usize, Refused> {
    if bytes.get(at..at + word.len()) != Some(word) {
        return Err(Refused);
    }
    nodes.push(Node::new(tag, 0, 0, 0, 0, nodes.len() as u32 + 1));
    Ok(at + word.len())
}

/// Position after the closing quote of the string at `at`, and whether it holds escapes.
fn string_end(bytes: &[u8], at: usize) -> Result<(usize, bool), Refused> {
    let mut at = at + 1;
    let mut escaped = false;
    loop {
        match byte(bytes, at)? {
            b'"' => return Ok((at + 1, escaped)),
            b'\\' => {
                escaped = true;
                at += careful::escape_length(&bytes[at..]).ok_or(Refused)?;
            }
            0..=0x1f => return Err(Refused),
            _ => at += 1,
        }
    }
}

/// Position after the number at `at`, and whether it has a fraction or an exponent.
fn number_end(bytes: &[u8], mut at: usize) -> Result<(usize, bool), Refused> {
    let mut real = false;
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    if bytes.get(at) == Some(&b'0') {
        at += 1;
    } else {
        at = digits(bytes, at)?;
    }
    if bytes.get(at) == Some(&b'.') {
        real = true;
        at = digits(bytes, at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        real = true;
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        at = digits(bytes, at)?;
    }
    Ok((at, real))
}

fn digits(bytes: &[u8], start: usize) -> Result<usize, Refused> {
    let mut at = start;
    while let Some(b'0'..=b'9') = bytes.get(at) {
        at += 1;
    }
    if at > start { Ok(at) } else { Err(Refused) }
}
