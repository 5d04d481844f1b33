//! The shape-directed parser: objects become numbered slots, and what nobody expects is read over.

use bytes::Bytes;

use crate::document::Document;
use crate::error::{ParseError, ParseErrorKind};
use crate::node::{Node, NodeId, REPEATS, SLOTS, TABLE, Tag};
use crate::parse::{Context, Place, list_elements, read_general};
use crate::scan::{Reading, Refused, Scanner};
use crate::shape::{ANY, ObjectShape, Shape, ShapeKey, ShapeTree, is_type_key};
use crate::skip::skip_value;
use crate::text::position;
use crate::token::{Ended, key_end, literal_node, number_node, skip_space, string_node};
use crate::writer::{Cursor, Writer};

/// A slot or link without a value.
pub(crate) const ABSENT: u32 = u32::MAX;

/// Slots that a text may take, one for each of its bytes not counted. Short texts with large
/// shapes are no danger.
const LINKS_FREE: usize = 4096;

/// No container is open.
const NONE: u32 = u32::MAX;

/// The empty slots of a new object, to be copied.
const ABSENT_SLOTS: [u32; 32] = [ABSENT; 32];

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
        if shape.root as usize >= shape.tree.objects.len() {
            return self.parse(text);
        }
        let too_large = ParseError { kind: ParseErrorKind::TooLarge, offset: 0 };
        let base = self.shapes.register(&shape.tree).ok_or(too_large)?;
        self.parse_with(text.into(), |document, text, number| {
            document.read_shaped(text, number, shape, base)
        })
    }

    fn read_shaped(
        &mut self,
        text: &str,
        number: u32,
        shape: &Shape,
        base: u32,
    ) -> Result<(), Refused> {
        let Some(ended) = Ended::new(text) else { return self.read_scalar(text, number) };
        let scanner = Scanner::new(ended.bytes(), self.level, &mut self.lists);
        let (writer, cursor) = Writer::new(&mut self.nodes, text.len());
        let mut context = Context { text: ended, number, scanner, writer, links: &mut self.links };
        let place = Place { at: 0, depth_left: self.depth_limit, reading: Reading::START, cursor };
        self.around.clear();
        let place = read_shaped(&mut context, place, text, shape, base, &mut self.around)?;
        context.finish(place)
    }
}

/// Reads a whole value by the first object of `tree`. Returns the place after it.
// Hot path: `cargo bench -p astjson -- shape`.
fn read_shaped(
    context: &mut Context<'_>,
    place: Place,
    whole: &str,
    Shape { tree, root }: &Shape,
    base: u32,
    around: &mut Vec<Around>,
) -> Result<Place, Refused> {
    let (text, number) = (context.text, context.number);
    let links_max = context.links.len() + LINKS_FREE + whole.len();
    let Place { mut at, mut depth_left, mut reading, mut cursor } = place;
    // The container that is open, and the objects of the shape: that of the current object (of
    // the elements, in an array), and that of the value which is read next.
    let mut parent = NONE;
    let mut in_object = false;
    let mut count = 0u32;
    let mut object = *root;
    let mut shape = &tree.objects[*root as usize];
    let mut value_object = *root;
    let mut slots = 0u32;
    let mut expected = 0u32;
    'next: loop {
        'value: {
            if in_object {
                let followed = follow_slots(
                    text,
                    number,
                    &context.scanner,
                    &shape.keys,
                    context.links.get_mut(slots as usize..).unwrap_or_default(),
                    Following { at, reading, cursor, expected, taken: 0, after_value: false },
                )?;
                (at, reading, cursor) = (followed.at, followed.reading, followed.cursor);
                expected = followed.expected;
                count += followed.taken;
                if followed.after_value {
                    break 'value;
                }
                if !context.scanner.string_begins(&mut reading, at)? {
                    at = skip_space(text.bytes(), at);
                    if !context.scanner.string_begins(&mut reading, at)? {
                        return Err(Refused);
                    }
                }
                let key = at + 1;
                let (close, escaped) = context.scanner.string(&mut reading, at)?;
                at = key_end(text, close)?;
                // One comparison, if the sender keeps to the order.
                let slot = match shape.keys.get(expected as usize) {
                    Some(own) if !escaped && own.is_at(text.bytes(), key, close) => {
                        Some(expected as usize)
                    }
                    _ => shape.search(text.bytes(), key, close, escaped, expected as usize),
                };
                let Some(slot) = slot else {
                    let place = Place { at, depth_left, reading, cursor };
                    let place = if shape.keep_others {
                        keep_other(context, place, shape, slots, (key, close, escaped))?
                    } else {
                        skip_value(context, place)?
                    };
                    Place { at, depth_left, reading, cursor } = place;
                    break 'value;
                };
                expected = slot as u32 + 1;
                value_object = shape.keys[slot].object;
                let link = context.links.get_mut(slots as usize + slot).ok_or(Refused)?;
                // Of duplicate keys the last counts, once.
                count += u32::from(*link == ABSENT);
                *link = cursor.next();
            } else {
                count += 1;
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
                b'{' | b'[' if value_object == ANY => {
                    let place = Place { at, depth_left, reading, cursor };
                    Place { at, depth_left, reading, cursor } = read_general(context, place)?;
                }
                b'{' => {
                    if depth_left == 0 {
                        return Err(Refused);
                    }
                    depth_left -= 1;
                    let mut child = &tree.objects[value_object as usize];
                    if !child.alternatives.is_empty() {
                        let place = Place { at, depth_left, reading, cursor };
                        (value_object, reading) =
                            choose(context, place, whole, tree, value_object)?;
                        child = &tree.objects[value_object as usize];
                    }
                    // One more for members that the shape does not list.
                    let count_of_links = child.keys.len() + 1;
                    if context.links.len() + count_of_links > links_max {
                        // Objects that lack most of what is expected could take any amount of
                        // memory; this ends it at four bytes for each byte of the text.
                        depth_left += 1;
                        let place = Place { at, depth_left, reading, cursor };
                        Place { at, depth_left, reading, cursor } = read_general(context, place)?;
                        break 'value;
                    }
                    at += 1;
                    let table = position(context.links.len());
                    match ABSENT_SLOTS.get(..count_of_links) {
                        Some(absent) => context.links.extend_from_slice(absent),
                        None => {
                            let end = context.links.len() + count_of_links;
                            context.links.resize(end, ABSENT);
                        }
                    }
                    let shape_number = base + value_object;
                    let node = Node::new(Tag::Object, SLOTS, shape_number, table, 0, index + 1);
                    cursor.push(&mut context.writer, node, at);
                    let mut inner = text.byte(at);
                    if inner <= b' ' {
                        at = skip_space(text.bytes(), at);
                        inner = text.byte(at);
                    }
                    if inner == b'}' {
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
                    at += 1;
                    let mut inner = text.byte(at);
                    if inner <= b' ' {
                        at = skip_space(text.bytes(), at);
                        inner = text.byte(at);
                    }
                    let node = Node::new(Tag::Array, 0, number, 0, 0, index + 1);
                    cursor.push(&mut context.writer, node, at);
                    if inner == b']' {
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
            if after == b',' {
                value_object = object;
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

/// Where [`follow_slots`] is.
#[derive(Clone, Copy)]
struct Following {
    at: usize,
    reading: Reading,
    cursor: Cursor,
    expected: u32,
    /// Slots that were filled.
    taken: u32,
    /// Whether the last thing read is a value; otherwise a key comes next.
    after_value: bool,
}

/// Reads members with scalar values as long as they come in the order of the shape, written without
/// space and escapes. A small function of its own, so that all it needs is in registers.
// Hot path: most members of most answers are read here.
#[inline(never)]
fn follow_slots(
    text: Ended<'_>,
    number: u32,
    scanner: &Scanner<'_>,
    keys: &[ShapeKey],
    links: &mut [u32],
    start: Following,
) -> Result<Following, Refused> {
    let Following { mut at, mut reading, mut cursor, expected, mut taken, .. } = start;
    let bytes = text.bytes();
    let mut after_value = false;
    let ahead = keys.get(expected as usize..).unwrap_or_default();
    let links = links.get_mut(expected as usize..).unwrap_or_default();
    for (key, link) in ahead.iter().zip(links) {
        let Some([open, close]) = scanner.next_one(&reading) else { break };
        let close = close as usize;
        if open as usize != at
            || *link != ABSENT
            || !key.is_at(bytes, at + 1, close)
            || text.byte(close + 1) != b':'
            || !cursor.has_room()
        {
            break;
        }
        let begin = close + 2;
        let index = cursor.next();
        let mut after_key = reading;
        Scanner::take_one(&mut after_key);
        let (node, end) = match scanner.next_one(&after_key) {
            Some([open, close]) if open as usize == begin => {
                Scanner::take_one(&mut after_key);
                (string_node(number, false, begin, close as usize, index), close as usize + 1)
            }
            _ => match text.byte(begin) {
                b'-' | b'0'..=b'9' => number_node(bytes, begin, number, index)?,
                b't' | b'f' | b'n' => literal_node(bytes, begin, number, index)?,
                _ => break,
            },
        };
        reading = after_key;
        cursor.push_into_room(node);
        *link = index;
        taken += 1;
        at = end;
        if text.byte(at) != b',' {
            after_value = true;
            break;
        }
        at += 1;
    }
    let slot = expected + taken;
    Ok(Following { at, reading, cursor, expected: slot, taken, after_value })
}

/// Which object of the shape the text at a place has: looks ahead for the key that selects among
/// the alternatives of `object`, checking what it passes, and goes back. `depth_left` is that
/// inside the object.
#[inline(never)]
fn choose(
    context: &mut Context<'_>,
    place: Place,
    whole: &str,
    tree: &ShapeTree,
    object: u32,
) -> Result<(u32, Reading), Refused> {
    let text = context.text;
    let shape = &tree.objects[object as usize];
    let inside = place.at + 1;
    let mark = context.scanner.mark(place.reading);
    let mut place = place;
    let mut chosen = object;
    place.at = skip_space(text.bytes(), inside);
    while text.byte(place.at) != b'}' {
        if !context.scanner.string_begins(&mut place.reading, place.at)? {
            return Err(Refused);
        }
        let key = place.at + 1;
        let (close, escaped) = context.scanner.string(&mut place.reading, place.at)?;
        place.at = skip_space(text.bytes(), key_end(text, close)?);
        if is_type_key(whole.get(key..close).ok_or(Refused)?, escaped) {
            if text.byte(place.at) == b'"'
                && context.scanner.string_begins(&mut place.reading, place.at)?
            {
                let (close, escaped) = context.scanner.string(&mut place.reading, place.at)?;
                let name = whole.get(place.at + 1..close).ok_or(Refused)?;
                chosen = shape.alternative(name, escaped).unwrap_or(object);
            }
            break;
        }
        place = skip_value(context, place)?;
        place.at = skip_space(text.bytes(), place.at);
        if text.byte(place.at) != b',' {
            // The end of the object, or an error that will be met again.
            break;
        }
        place.at = skip_space(text.bytes(), place.at + 1);
    }
    Ok((chosen, context.scanner.go_back(mark, inside)))
}

/// Reads a member that the shape does not list, and hangs it on the object in slots.
fn keep_other(
    context: &mut Context<'_>,
    place: Place,
    shape: &ObjectShape,
    slots: u32,
    (key, close, escaped): (usize, usize, bool),
) -> Result<Place, Refused> {
    let mut place = place;
    let key_index = place.cursor.next();
    let node = string_node(context.number, escaped, key - 1, close, key_index);
    place.cursor.push(&mut context.writer, node, place.at);
    let value_index = place.cursor.next();
    let mut place = read_general(context, place)?;
    let link = slots as usize + shape.keys.len();
    if context.links[link] == ABSENT {
        let index = place.cursor.next();
        context.links[link] = index;
        let node = Node::new(Tag::Object, TABLE | REPEATS, 0, 0, 0, index + 1);
        place.cursor.push(&mut context.writer, node, place.at);
    }
    let others = place.cursor.node(context.links[link]);
    let links = &mut *context.links;
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
    links[start + 1 + used] = key_index;
    links[start + 2 + used] = value_index;
    others.a = position(start);
    others.b += 1;
    Ok(place)
}
