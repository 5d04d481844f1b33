//! The general parser: text to nodes, in one pass, without recursion.

use bytes::Bytes;

use crate::careful;
use crate::document::Document;
use crate::error::{ParseError, ParseErrorKind};
use crate::node::{Node, NodeId, TABLE, Tag};
use crate::scan::{Reading, Refused, Scanner};
use crate::text::{Utf8, position};
use crate::token::{at_end, byte, key_end, literal_node, number_node, skip_space, string_node};
use crate::writer::Writer;

/// Largest text: positions are 32 bits, with some room so that arithmetic on them cannot overflow.
const TEXT_BYTES_MAX: usize = u32::MAX as usize - 1024;

/// No container is open.
const NONE: u32 = u32::MAX;

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
        self.parse_with(text.into(), Self::read)
    }

    /// Checks a text, lets `read` make nodes of it under the number it is given, and keeps it.
    pub(crate) fn parse_with(
        &mut self,
        text: Bytes,
        read: impl FnOnce(&mut Self, &str, u32) -> Result<(), Refused>,
    ) -> Result<NodeId, ParseError> {
        let too_large = ParseError { kind: ParseErrorKind::TooLarge, offset: 0 };
        // A text has at most one node per byte.
        if text.len() > TEXT_BYTES_MAX || self.nodes.len() + text.len() > TEXT_BYTES_MAX {
            return Err(too_large);
        }
        let number = self.texts.next().ok_or(too_large)?;
        let text = Utf8::new(text)
            .map_err(|offset| ParseError { kind: ParseErrorKind::InvalidUtf8, offset })?;
        let (nodes, links) = (self.nodes.len(), self.links.len());
        match read(self, text.as_str(), number) {
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
        let text = text.as_bytes();
        let mut scanner = Scanner::new(text, self.level, &mut self.lists);
        let mut nodes = Writer::new(&mut self.nodes, text.len());
        let mut reading = Reading::START;
        let depth_left = self.depth_limit;
        let at = read_value(
            text,
            0,
            number,
            depth_left,
            &mut scanner,
            &mut reading,
            &mut nodes,
            &mut self.links,
        )?;
        at_end(text, at)?;
        nodes.finish();
        Ok(())
    }
}

/// Reads the value at `at`, space before it allowed. Returns the position after it.
// Hot path: `cargo bench -p astjson -- parse`; some 350 thousand instructions for dense.json.
#[allow(clippy::too_many_arguments)] // Apart they stay in registers.
#[inline(always)]
fn read_value(
    text: &[u8],
    mut at: usize,
    number: u32,
    mut depth_left: u32,
    scanner: &mut Scanner<'_>,
    shared_reading: &mut Reading,
    nodes: &mut Writer<'_>,
    links: &mut Vec<u32>,
) -> Result<usize, Refused> {
    let mut reading = *shared_reading;
    // The container that is open. While it is, its `end` names the one around it, and its `b` is
    // the count of that one; what it counts itself is `count`.
    let mut parent = NONE;
    let mut in_object = false;
    let mut count = 0u32;
    'next: loop {
        'value: {
            if in_object {
                // A key and a string, written without space, are what most of a text is: four
                // quotes at the right distance tell.
                if let Some([key, key_close, open, close]) = scanner.next_two(&reading)
                    && key as usize == at
                {
                    let colon = byte(text, key_close as usize + 1)?;
                    if open == key_close + 2 && colon == b':' {
                        Scanner::take_two(&mut reading);
                        let index = nodes.next();
                        let (key, key_close) = (key as usize, key_close as usize);
                        let (open, close) = (open as usize, close as usize);
                        nodes.push_two(
                            [
                                string_node(number, false, key, key_close, index),
                                string_node(number, false, open, close, index + 1),
                            ],
                            at,
                        );
                        at = close + 1;
                        break 'value;
                    }
                }
                at = read_key(text, at, number, scanner, &mut reading, nodes)?;
            }
            let mut first = byte(text, at)?;
            if first <= b' ' {
                at = skip_space(text, at);
                first = byte(text, at)?;
            }
            let index = nodes.next();
            if first == b'"' {
                if !scanner.string_begins(&mut reading, at)? {
                    return Err(Refused);
                }
                let (close, escaped) = scanner.string(&mut reading, at)?;
                nodes.push(string_node(number, escaped, at, close, index), at);
                at = close + 1;
                break 'value;
            }
            match first {
                b'-' | b'0'..=b'9' => {
                    let (node, end) = number_node(text, at, number, index)?;
                    nodes.push(node, at);
                    at = end;
                }
                b'{' | b'[' => {
                    if depth_left == 0 {
                        return Err(Refused);
                    }
                    let object = first == b'{';
                    let tag = if object { Tag::Object } else { Tag::Array };
                    at += 1;
                    let mut inner = byte(text, at)?;
                    if inner <= b' ' {
                        at = skip_space(text, at);
                        inner = byte(text, at)?;
                    }
                    // `]` and `}` stand two after `[` and `{` in ASCII.
                    if inner == first + 2 {
                        at += 1;
                        nodes.push(Node::new(tag, 0, number, 0, 0, index + 1), at);
                    } else {
                        nodes.push(Node::new(tag, 0, number, 0, count, parent), at);
                        depth_left -= 1;
                        parent = index;
                        in_object = object;
                        count = 0;
                        continue 'next;
                    }
                }
                b't' | b'f' | b'n' => {
                    let (node, end) = literal_node(text, at, number, index)?;
                    nodes.push(node, at);
                    at = end;
                }
                _ => return Err(Refused),
            }
        }
        loop {
            if parent == NONE {
                *shared_reading = reading;
                return Ok(at);
            }
            let mut after = byte(text, at)?;
            if after <= b' ' {
                at = skip_space(text, at);
                after = byte(text, at)?;
            }
            at += 1;
            count += 1;
            if after == b',' {
                continue 'next;
            }
            if after != if in_object { b'}' } else { b']' } {
                return Err(Refused);
            }
            let end = nodes.next();
            if !in_object && end - parent - 1 != count {
                list_elements(nodes, links, parent, count);
            }
            let closed = nodes.node(parent);
            (parent, closed.end) = (closed.end, end);
            (count, closed.b) = (closed.b, count);
            depth_left += 1;
            in_object = parent != NONE && nodes.node(parent).is(Tag::Object);
        }
    }
}

/// [`read_value`], not inlined: for values inside shaped ones.
#[allow(clippy::too_many_arguments)]
#[inline(never)]
pub(crate) fn read_general(
    text: &[u8],
    at: usize,
    number: u32,
    depth_left: u32,
    scanner: &mut Scanner<'_>,
    reading: &mut Reading,
    nodes: &mut Writer<'_>,
    links: &mut Vec<u32>,
) -> Result<usize, Refused> {
    read_value(text, at, number, depth_left, scanner, reading, nodes, links)
}

/// Reads a key and its colon, space before them allowed. Returns the position after them.
#[inline(always)]
fn read_key(
    text: &[u8],
    mut at: usize,
    number: u32,
    scanner: &mut Scanner<'_>,
    reading: &mut Reading,
    nodes: &mut Writer<'_>,
) -> Result<usize, Refused> {
    if !scanner.string_begins(reading, at)? {
        at = skip_space(text, at);
        if !scanner.string_begins(reading, at)? {
            return Err(Refused);
        }
    }
    let (close, escaped) = scanner.string(reading, at)?;
    nodes.push(string_node(number, escaped, at, close, nodes.next()), at);
    key_end(text, close)
}

/// Gives an array whose elements are not all single nodes a table of them.
#[inline(never)]
pub(crate) fn list_elements(nodes: &mut Writer<'_>, links: &mut Vec<u32>, array: u32, count: u32) {
    let table = links.len();
    links.reserve(count as usize + 1);
    links.push(count);
    let mut element = array + 1;
    for _ in 0..count {
        links.push(element);
        element = nodes.node(element).end;
    }
    let array = nodes.node(array);
    array.meta |= TABLE;
    array.a = position(table);
}
