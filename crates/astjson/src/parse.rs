//! The general parser: text to nodes, in one pass, without recursion.

use bytes::Bytes;

use crate::careful;
use crate::document::Document;
use crate::error::{ParseError, ParseErrorKind};
use crate::node::{Node, NodeId, TABLE, Tag};
use crate::scan::{Reading, Refused, Scanner};
use crate::text::{Utf8, position};
use crate::token::{Ended, key_end, literal_node, number_node, skip_space, string_node};
use crate::writer::{Cursor, Writer};

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
        let Some(ended) = Ended::new(text) else { return self.read_scalar(text, number) };
        let scanner = Scanner::new(ended.bytes(), self.level, &mut self.lists);
        let (writer, cursor) = Writer::new(&mut self.nodes, text.len());
        let mut context = Context { text: ended, number, scanner, writer, links: &mut self.links };
        let place = Place { at: 0, depth_left: self.depth_limit, reading: Reading::START, cursor };
        let place = read_value(&mut context, place)?;
        context.finish(place)
    }

    /// Reads a text that is a scalar and nothing else. There are few of them; the careful reader
    /// is fast enough.
    #[cold]
    pub(crate) fn read_scalar(&mut self, text: &str, number: u32) -> Result<(), Refused> {
        careful::check(text, self.depth_limit).map_err(|_| Refused)?;
        let space = [' ', '\t', '\n', '\r'];
        let scalar = text.trim_end_matches(space).as_bytes();
        let at = text.len() - text.trim_start_matches(space).len();
        let index = position(self.nodes.len());
        let node = match scalar.get(at) {
            Some(b'"') => {
                let escaped = memchr::memchr(b'\\', scalar).is_some();
                string_node(number, escaped, at, scalar.len() - 1, index)
            }
            Some(b'-' | b'0'..=b'9') => number_node(scalar, at, number, index)?.0,
            _ => literal_node(scalar, at, number, index)?.0,
        };
        self.nodes.push(node);
        Ok(())
    }
}

/// What a parser works on, and what it seldom touches.
pub(crate) struct Context<'a> {
    pub(crate) text: Ended<'a>,
    pub(crate) number: u32,
    pub(crate) scanner: Scanner<'a>,
    pub(crate) writer: Writer<'a>,
    pub(crate) links: &'a mut Vec<u32>,
}

/// How far a parser has come. Handed over by value: what is never lent can stay in registers.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: usize,
    /// Arrays and objects that may still be opened inside each other.
    pub(crate) depth_left: u32,
    pub(crate) reading: Reading,
    pub(crate) cursor: Cursor,
}

impl Context<'_> {
    /// Makes sure that the text ends here, and keeps the nodes.
    pub(crate) fn finish(self, place: Place) -> Result<(), Refused> {
        if place.at != self.text.bytes().len() {
            return Err(Refused);
        }
        self.writer.finish(place.cursor);
        Ok(())
    }
}

/// Reads the value at a place, space before it allowed. Returns the place after it.
// Hot path: `cargo bench -p astjson -- parse`.
#[inline(always)]
fn read_value(context: &mut Context<'_>, place: Place) -> Result<Place, Refused> {
    let (text, number) = (context.text, context.number);
    let Place { mut at, mut depth_left, mut reading, mut cursor } = place;
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
                if let Some([key, key_close, open, close]) = context.scanner.next_two(&reading)
                    && key as usize == at
                    && open == key_close + 2
                    && text.byte(key_close as usize + 1) == b':'
                {
                    Scanner::take_two(&mut reading);
                    let index = cursor.next();
                    let (key, key_close) = (key as usize, key_close as usize);
                    let (open, close) = (open as usize, close as usize);
                    let key = string_node(number, false, key, key_close, index);
                    let value = string_node(number, false, open, close, index + 1);
                    cursor.push_two(&mut context.writer, [key, value], at);
                    at = close + 1;
                    break 'value;
                }
                if !context.scanner.string_begins(&mut reading, at)? {
                    at = skip_space(text.bytes(), at);
                    if !context.scanner.string_begins(&mut reading, at)? {
                        return Err(Refused);
                    }
                }
                let (close, escaped) = context.scanner.string(&mut reading, at)?;
                let node = string_node(number, escaped, at, close, cursor.next());
                cursor.push(&mut context.writer, node, at);
                at = key_end(text, close)?;
            }
            let mut first = text.byte(at);
            if first <= b' ' {
                at = skip_space(text.bytes(), at);
                first = text.byte(at);
            }
            let index = cursor.next();
            if first == b'"' {
                if !context.scanner.string_begins(&mut reading, at)? {
                    return Err(Refused);
                }
                let (close, escaped) = context.scanner.string(&mut reading, at)?;
                let node = string_node(number, escaped, at, close, index);
                cursor.push(&mut context.writer, node, at);
                at = close + 1;
                break 'value;
            }
            match first {
                b'-' | b'0'..=b'9' => {
                    let (node, end) = number_node(text.bytes(), at, number, index)?;
                    cursor.push(&mut context.writer, node, at);
                    at = end;
                }
                b'{' | b'[' => {
                    if depth_left == 0 {
                        return Err(Refused);
                    }
                    let object = first == b'{';
                    let tag = if object { Tag::Object } else { Tag::Array };
                    at += 1;
                    let mut inner = text.byte(at);
                    if inner <= b' ' {
                        at = skip_space(text.bytes(), at);
                        inner = text.byte(at);
                    }
                    // `]` and `}` stand two after `[` and `{` in ASCII.
                    if inner == first + 2 {
                        at += 1;
                        let node = Node::new(tag, 0, number, 0, 0, index + 1);
                        cursor.push(&mut context.writer, node, at);
                    } else {
                        let node = Node::new(tag, 0, number, 0, count, parent);
                        cursor.push(&mut context.writer, node, at);
                        depth_left -= 1;
                        parent = index;
                        in_object = object;
                        count = 0;
                        continue 'next;
                    }
                }
                b't' | b'f' | b'n' => {
                    let (node, end) = literal_node(text.bytes(), at, number, index)?;
                    cursor.push(&mut context.writer, node, at);
                    at = end;
                }
                _ => return Err(Refused),
            }
        }
        loop {
            if parent == NONE {
                return Ok(Place { at, depth_left, reading, cursor });
            }
            let mut after = text.byte(at);
            if after <= b' ' {
                at = skip_space(text.bytes(), at);
                after = text.byte(at);
            }
            at += 1;
            count += 1;
            if after == b',' {
                continue 'next;
            }
            if after != if in_object { b'}' } else { b']' } {
                return Err(Refused);
            }
            let end = cursor.next();
            if !in_object && end - parent - 1 != count {
                list_elements(cursor, context.links, parent, count);
            }
            let closed = cursor.node(parent);
            (parent, closed.end) = (closed.end, end);
            (count, closed.b) = (closed.b, count);
            depth_left += 1;
            in_object = parent != NONE && cursor.node(parent).is(Tag::Object);
        }
    }
}

/// [`read_value`], not inlined: for values inside shaped ones.
#[inline(never)]
pub(crate) fn read_general(context: &mut Context<'_>, place: Place) -> Result<Place, Refused> {
    read_value(context, place)
}

/// Gives an array whose elements are not all single nodes a table of them.
#[inline(never)]
pub(crate) fn list_elements(mut cursor: Cursor, links: &mut Vec<u32>, array: u32, count: u32) {
    let table = links.len();
    links.reserve(count as usize + 1);
    links.push(count);
    let mut element = array + 1;
    for _ in 0..count {
        links.push(element);
        element = cursor.node(element).end;
    }
    let array = cursor.node(array);
    array.meta |= TABLE;
    array.a = position(table);
}
