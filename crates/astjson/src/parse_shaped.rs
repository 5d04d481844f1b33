//! The shape-directed parser: objects become numbered slots, and what nobody expects is read over.

use bytes::Bytes;

use crate::document::Document;
use crate::error::{ParseError, ParseErrorKind};
use crate::node::{Node, NodeId, REPEATS, SLOTS, TABLE, Tag};
use crate::parse::{list_elements, read_general};
use crate::scan::{Reading, Refused, Scanner};
use crate::shape::{ANY, ObjectShape, Shape, ShapeTree, is_type_key};
use crate::skip::skip_value;
use crate::text::position;
use crate::token::{at_end, byte, key_end, literal_node, number_node, skip_space, string_node};
use crate::writer::Writer;

/// A slot or link without a value.
pub(crate) const ABSENT: u32 = u32::MAX;

/// No container is open.
const NONE: u32 = u32::MAX;

/// A container that is open around the current one.
#[derive(Clone, Copy)]
pub(crate) struct Around {
    parent: u32,
    count: u32,
    /// Object of the shape that the container is, or that its elements are.
    object: u32,
    slots: u32,
    expected: u32,
    in_object: bool,
}

impl Document {
    /// Parses `text` like [`parse`](Document::parse), by a shape: objects that it knows get
    /// numbered slots ([`slot`](Document::slot)), keys that it does not list are handled as it
    /// says, and whatever is not as expected is parsed into general nodes. A text is refused
    /// exactly when `parse` refuses it.
    ///
    /// # Errors
    ///
    /// As [`parse`](Document::parse).
    pub fn parse_shaped(
        &mut self,
        text: impl Into<Bytes>,
        shape: &Shape,
    ) -> Result<NodeId, ParseError> {
        if shape.tree.objects.is_empty() {
            return self.parse(text);
        }
        let too_large = ParseError { kind: ParseErrorKind::TooLarge, offset: 0 };
        let base = self.shapes.register(&shape.tree).ok_or(too_large)?;
        let tree = shape.tree.clone();
        self.parse_with(text.into(), move |document, text, number| {
            document.read_shaped(text, number, &tree, base)
        })
    }

    fn read_shaped(
        &mut self,
        text: &str,
        number: u32,
        tree: &ShapeTree,
        base: u32,
    ) -> Result<(), Refused> {
        let mut scanner = Scanner::new(text.as_bytes(), self.level, &mut self.lists);
        let mut nodes = Writer::new(&mut self.nodes, text.len());
        self.around.clear();
        let at = read_shaped(
            text,
            number,
            tree,
            base,
            self.depth_limit,
            &mut scanner,
            &mut nodes,
            &mut self.links,
            &mut self.around,
        )?;
        at_end(text.as_bytes(), at)?;
        nodes.finish();
        Ok(())
    }
}

/// Reads a whole value by the first object of `tree`. Returns the position after it.
// Hot path: `cargo bench -p astjson -- shape`.
#[allow(clippy::too_many_arguments)] // Apart they stay in registers.
fn read_shaped(
    whole: &str,
    number: u32,
    tree: &ShapeTree,
    base: u32,
    mut depth_left: u32,
    scanner: &mut Scanner<'_>,
    nodes: &mut Writer<'_>,
    links: &mut Vec<u32>,
    around: &mut Vec<Around>,
) -> Result<usize, Refused> {
    let text = whole.as_bytes();
    let mut reading = Reading::START;
    let mut at = skip_space(text, 0);
    // The container that is open, and the objects of the shape: that of the current object (of
    // the elements, in an array), and that of the value which is read next.
    let mut parent = NONE;
    let mut in_object = false;
    let mut count = 0u32;
    let mut object = 0u32;
    let mut shape = &tree.objects[0];
    let mut value_object = 0u32;
    let mut slots = 0u32;
    let mut expected = 0u32;
    'next: loop {
        'value: {
            if in_object {
                if !scanner.string_begins(&mut reading, at)? {
                    at = skip_space(text, at);
                    if !scanner.string_begins(&mut reading, at)? {
                        return Err(Refused);
                    }
                }
                let key = at + 1;
                let (close, escaped) = scanner.string(&mut reading, at)?;
                at = key_end(text, close)?;
                let Some(slot) = shape.slot_at(text, key, close, escaped, expected as usize) else {
                    if shape.keep_others {
                        let keys = nodes.next();
                        nodes.push(string_node(number, escaped, key - 1, close, keys), at);
                        let value = nodes.next();
                        at = read_general(
                            text,
                            at,
                            number,
                            depth_left,
                            scanner,
                            &mut reading,
                            nodes,
                            links,
                        )?;
                        keep_other(nodes, links, shape, slots, keys, value, at);
                    } else {
                        at = skip_value(text, at, depth_left, scanner, &mut reading)?;
                    }
                    break 'value;
                };
                expected = slot as u32 + 1;
                value_object = shape.keys[slot].object;
                let link = links.get_mut(slots as usize + slot).ok_or(Refused)?;
                // Of duplicate keys the last counts, once.
                count += u32::from(*link == ABSENT);
                *link = nodes.next();
            } else {
                count += 1;
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
                b'{' | b'[' if value_object == ANY => {
                    at = read_general(
                        text,
                        at,
                        number,
                        depth_left,
                        scanner,
                        &mut reading,
                        nodes,
                        links,
                    )?;
                }
                b'{' => {
                    if depth_left == 0 {
                        return Err(Refused);
                    }
                    depth_left -= 1;
                    if !tree.objects[value_object as usize].alternatives.is_empty() {
                        value_object = choose(
                            whole,
                            at,
                            depth_left,
                            tree,
                            value_object,
                            scanner,
                            &mut reading,
                        )?;
                    }
                    let child = &tree.objects[value_object as usize];
                    at = skip_space(text, at + 1);
                    let table = position(links.len());
                    // One more for members that the shape does not list.
                    links.resize(links.len() + child.keys.len() + 1, ABSENT);
                    let node =
                        Node::new(Tag::Object, SLOTS, base + value_object, table, 0, index + 1);
                    nodes.push(node, at);
                    if byte(text, at)? == b'}' {
                        at += 1;
                        depth_left += 1;
                    } else {
                        around.push(Around { parent, count, object, slots, expected, in_object });
                        (parent, count, object) = (index, 0, value_object);
                        (slots, expected, in_object) = (table, 0, true);
                        shape = child;
                        continue 'next;
                    }
                }
                b'[' => {
                    if depth_left == 0 {
                        return Err(Refused);
                    }
                    at = skip_space(text, at + 1);
                    nodes.push(Node::new(Tag::Array, 0, number, 0, 0, index + 1), at);
                    if byte(text, at)? == b']' {
                        at += 1;
                    } else {
                        depth_left -= 1;
                        around.push(Around { parent, count, object, slots, expected, in_object });
                        (parent, count, object) = (index, 0, value_object);
                        in_object = false;
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
                return Ok(at);
            }
            let mut after = byte(text, at)?;
            if after <= b' ' {
                at = skip_space(text, at);
                after = byte(text, at)?;
            }
            at += 1;
            if after == b',' {
                if !in_object {
                    value_object = object;
                }
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
            closed.end = end;
            closed.b = count;
            depth_left += 1;
            // A container is open, so the one around it was noted.
            let outer = around.pop().ok_or(Refused)?;
            Around { parent, count, object, slots, expected, in_object } = outer;
            if in_object {
                shape = &tree.objects[object as usize];
            }
        }
    }
}

/// Which object of the shape the text at `at` has: looks ahead for the key that selects among the
/// alternatives of `object`, checking what it passes, and goes back.
#[inline(never)]
fn choose(
    whole: &str,
    at: usize,
    depth_left: u32,
    tree: &ShapeTree,
    object: u32,
    scanner: &mut Scanner<'_>,
    reading: &mut Reading,
) -> Result<u32, Refused> {
    let text = whole.as_bytes();
    let shape = &tree.objects[object as usize];
    let mark = scanner.mark(*reading);
    let mut chosen = object;
    let mut ahead = skip_space(text, at + 1);
    if byte(text, ahead)? != b'}' {
        loop {
            if !scanner.string_begins(reading, ahead)? {
                return Err(Refused);
            }
            let key = ahead + 1;
            let (close, escaped) = scanner.string(reading, ahead)?;
            ahead = skip_space(text, key_end(text, close)?);
            if is_type_key(whole.get(key..close).ok_or(Refused)?, escaped) {
                if byte(text, ahead)? == b'"' && scanner.string_begins(reading, ahead)? {
                    let (close, escaped) = scanner.string(reading, ahead)?;
                    let name = whole.get(ahead + 1..close).ok_or(Refused)?;
                    chosen = shape.alternative(name, escaped).unwrap_or(object);
                }
                break;
            }
            ahead = skip_space(text, skip_value(text, ahead, depth_left, scanner, reading)?);
            if byte(text, ahead)? != b',' {
                // The end of the object, or an error that will be met again.
                break;
            }
            ahead = skip_space(text, ahead + 1);
        }
    }
    *reading = scanner.go_back(mark, at + 1);
    Ok(chosen)
}

/// Hangs a member that the shape does not list on the object in slots.
fn keep_other(
    nodes: &mut Writer<'_>,
    links: &mut Vec<u32>,
    shape: &ObjectShape,
    slots: u32,
    key: u32,
    value: u32,
    at: usize,
) {
    let place = slots as usize + shape.keys.len();
    if links[place] == ABSENT {
        links[place] = nodes.next();
        let index = nodes.next();
        nodes.push(Node::new(Tag::Object, TABLE | REPEATS, 0, 0, 0, index + 1), at);
    }
    let others = nodes.node(links[place]);
    let (table, used) = (others.a as usize, 2 * others.b as usize);
    let start = if used > 0 && used < links[table] as usize {
        table
    } else {
        // A full table moves to the end with twice the room.
        let start = links.len();
        let room = (2 * used).max(8);
        links.push(position(room));
        if used > 0 {
            links.extend_from_within(table + 1..table + 1 + used);
        }
        links.resize(start + 1 + room, 0);
        start
    };
    links[start + 1 + used] = key;
    links[start + 2 + used] = value;
    others.a = position(start);
    others.b += 1;
}
