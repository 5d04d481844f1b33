//! The loop that makes nodes of a text, in one pass and without recursion. Parsing with a shape and
//! without are this one loop.
//!
//! What surrounds the open container is kept in its own node while it is open: `end` names the
//! container around it, `b` is how far that one is. So there is no stack, and nothing to allocate.

use crate::node::{Node, SLOTS, TABLE, Tag};
use crate::others::KeepOther;
use crate::runs::{Follow, Members, RUN_BYTES_MIN};
use crate::scan::{Job, Refused, Scan, chunk};
use crate::shape::{ANY, ObjectShape, ShapeTree};
use crate::skip::Skip;
use crate::text::position;
use crate::token::{byte, colon, key_node, scalar, skip_space, string};
use crate::type_name::Choose;
use crate::window::Window;
use crate::writer::{Cursor, Writer};

/// A slot or link without a value.
pub(crate) const ABSENT: u32 = u32::MAX;

/// Slots that a text may take, one for each of its bytes not counted. Short texts with large
/// shapes are no danger.
const LINKS_FREE: usize = 4096;

/// No container is open.
const NONE: u32 = u32::MAX;

/// What a parser works on, and what it seldom touches.
pub(crate) struct Context<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) number: u32,
    pub(crate) writer: Writer<'a>,
    pub(crate) links: &'a mut Vec<u32>,
}

/// How far a parser has come. Handed over by value: what is never lent can stay in registers.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: u32,
    /// Arrays and objects that may still be opened inside each other.
    pub(crate) depth_left: u32,
    pub(crate) cursor: Cursor,
    pub(crate) window: Window,
}

/// What is expected of a text.
#[derive(Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) tree: &'a ShapeTree,
    /// The object of the tree that the value which is read is expected to be.
    pub(crate) object: u32,
    /// Number of the first object of the tree among the shapes of the arena.
    pub(crate) base: u32,
}

/// Reads a general value.
pub(crate) struct ReadGeneral<'c, 'a> {
    pub(crate) context: &'c mut Context<'a>,
    pub(crate) place: Place,
}

/// Reads a value by a shape.
pub(crate) struct ReadShaped<'c, 'a> {
    pub(crate) context: &'c mut Context<'a>,
    pub(crate) place: Place,
    pub(crate) expected: Expected<'c>,
}

impl Job for ReadGeneral<'_, '_> {
    type Made = Result<Place, Refused>;
    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> Result<Place, Refused> {
        // Of a shape without objects nothing is ever looked at.
        let tree = &ShapeTree { objects: Vec::new() };
        let expected = Expected { tree, object: ANY, base: 0 };
        read_value::<S, false>(scan, self.context, self.place, expected)
    }
}

impl Job for ReadShaped<'_, '_> {
    type Made = Result<Place, Refused>;
    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> Result<Place, Refused> {
        read_value::<S, true>(scan, self.context, self.place, self.expected)
    }
}

/// The container that is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// None: the value is the whole text.
    Nothing,
    Array,
    /// An object whose members follow it.
    Object,
    /// An object with slots.
    Slots,
}

/// Reads the value at a place, space before it allowed. Returns the place after it.
// Hot path: most members are read by `runs`; here it is about opening and closing: some 100
// instructions a container.
#[inline(always)]
fn read_value<S: Scan, const SHAPED: bool>(
    scan: S,
    context: &mut Context<'_>,
    place: Place,
    Expected { tree, object, base }: Expected<'_>,
) -> Result<Place, Refused> {
    let (text, number) = (context.text, context.number);
    let links_max = context.links.len() + LINKS_FREE + text.len();
    let Place { mut at, mut depth_left, mut cursor, mut window } = place;
    let mut inside = Inside::Nothing;
    let mut parent = NONE;
    // Elements of the array, members of the object, or slots taken.
    let mut count = 0u32;
    // The object of the shape that the container is, or that its elements are.
    let mut object = object;
    // Where the slots are, and which is the next expected.
    let mut slots = 0u32;
    let mut expected = 0u32;
    'next: loop {
        // A value, or a member, comes next.
        let mut value_object = object;
        'value: {
            match inside {
                Inside::Nothing | Inside::Array => {}
                Inside::Object => {
                    let mut known = false;
                    if text.len().saturating_sub(at as usize) >= RUN_BYTES_MIN {
                        let ran = Members { text, number, at, cursor, window }.run(scan);
                        (at, cursor, window) = (ran.at, ran.cursor, ran.window);
                        count += ran.count;
                        if ran.ended {
                            break 'value;
                        }
                        known = ran.known;
                    }
                    count += 1;
                    if !known {
                        let (open, close, escaped) = key(scan, text, at)?;
                        at = colon(text, close + 1)?;
                        let head = chunk(text, open + 1).ok_or(Refused)?;
                        let node = key_node(number, escaped, open, close, head);
                        cursor.push(&mut context.writer, node, at as usize);
                    }
                    value_object = ANY;
                }
                Inside::Slots => {
                    let shape = tree.objects.get(object as usize).ok_or(Refused)?;
                    let heads = &shape.heads[..];
                    let table = context.links.get_mut(slots as usize..).ok_or(Refused)?;
                    let table = table.get_mut(..heads.len()).ok_or(Refused)?;
                    let slot = expected;
                    let job = Follow {
                        text,
                        number,
                        at,
                        cursor,
                        window,
                        heads,
                        slots: &mut *table,
                        slot,
                    };
                    let ran = job.run(scan);
                    (at, cursor, window, expected) = (ran.at, ran.cursor, ran.window, ran.slot);
                    count += ran.count;
                    if ran.ended {
                        break 'value;
                    }
                    let mut slot = expected as usize;
                    if !ran.known {
                        let key = key(scan, text, at)?;
                        let (open, close, escaped) = key;
                        at = colon(text, close + 1)?;
                        let Some(found) = shape.search(text, open + 1, close, escaped, slot) else {
                            if shape.keep_others {
                                let place = Place { at, depth_left, cursor, window };
                                let link = slots + heads.len() as u32;
                                let job = KeepOther { context, place, key, link };
                                Place { at, depth_left, cursor, window } = scan.outline(job)?;
                            } else {
                                at = scan.outline(Skip { text, at, depth_left })?;
                            }
                            break 'value;
                        };
                        slot = found;
                    }
                    expected = slot as u32 + 1;
                    let link = table.get_mut(slot).ok_or(Refused)?;
                    count += u32::from(*link == ABSENT);
                    *link = cursor.next();
                    value_object = shape.keys[slot].object;
                }
            }
            if byte(text, at) <= b' ' {
                at = skip_space(text, at);
            }
            let index = cursor.next();
            let first = byte(text, at);
            let in_object = first == b'{';
            if !in_object && first != b'[' {
                let (value, end) = scalar(scan, text, at, number, index)?;
                cursor.push(&mut context.writer, value, at as usize);
                at = end;
                break 'value;
            }
            if depth_left == 0 {
                return Err(Refused);
            }
            depth_left -= 1;
            // Where we are in the container around.
            let kept = match inside {
                Inside::Slots => count | expected << 16,
                _ => count,
            };
            let mut node = if in_object {
                Node::new(Tag::Object, 0, number, 0, kept, parent)
            } else {
                let a = if SHAPED { value_object } else { 0 };
                Node::new(Tag::Array, 0, number, a, kept, parent)
            };
            let mut opened = if in_object { Inside::Object } else { Inside::Array };
            if SHAPED && in_object && value_object != ANY {
                let mut child = tree.objects.get(value_object as usize).ok_or(Refused)?;
                if !child.alternatives.is_empty() {
                    let job = Choose { text, at, depth_left, shape: child };
                    if let Some(chosen) = scan.outline(job)? {
                        value_object = chosen;
                        child = tree.objects.get(chosen as usize).ok_or(Refused)?;
                    }
                }
                let slots = slots_node(context.links, child, links_max);
                if let Some(table) = slots {
                    node = Node::new(Tag::Object, SLOTS, base + value_object, table, kept, parent);
                    opened = Inside::Slots;
                }
            }
            cursor.push(&mut context.writer, node, at as usize);
            at += 1;
            let mut inner = byte(text, at);
            if inner <= b' ' {
                at = skip_space(text, at);
                inner = byte(text, at);
            }
            let closer = if in_object { b'}' } else { b']' };
            if inner == closer {
                at += 1;
                depth_left += 1;
                let closed = cursor.node(index);
                (closed.b, closed.end) = (0, index + 1);
                if SHAPED && !in_object {
                    closed.a = 0;
                }
                break 'value;
            }
            (parent, inside, count) = (index, opened, 0);
            if SHAPED {
                object = value_object;
                (slots, expected) = (node.a, 0);
            }
            continue 'next;
        }
        loop {
            // A value ends here.
            let mut after = byte(text, at);
            let closer = match inside {
                Inside::Nothing => return Ok(Place { at, depth_left, cursor, window }),
                Inside::Array => {
                    count += 1;
                    b']'
                }
                Inside::Object | Inside::Slots => b'}',
            };
            if after <= b' ' {
                at = skip_space(text, at);
                after = byte(text, at);
            }
            at += 1;
            if after == b',' {
                continue 'next;
            }
            if after != closer {
                return Err(Refused);
            }
            let end = cursor.next();
            let closed = cursor.node(parent);
            let (outer, kept) = (closed.end, closed.b);
            (closed.end, closed.b) = (end, count);
            if inside == Inside::Array {
                closed.a = 0;
                if end - parent - 1 != count {
                    list_elements(cursor, context.links, parent, count);
                }
            }
            depth_left += 1;
            (parent, count) = (outer, kept);
            if parent == NONE {
                inside = Inside::Nothing;
                continue;
            }
            let outer = *cursor.node(parent);
            if outer.is(Tag::Array) {
                inside = Inside::Array;
                object = outer.a;
                // Most often another object follows.
                if chunk(text, at) == Some(b",{\"") {
                    let (meta, table) = if SHAPED && object != ANY {
                        let shape = tree.objects.get(object as usize).ok_or(Refused)?;
                        if !shape.alternatives.is_empty() {
                            continue;
                        }
                        match slots_node(context.links, shape, links_max) {
                            Some(table) => ((SLOTS, base + object), table),
                            None => continue,
                        }
                    } else {
                        ((0, number), 0)
                    };
                    let node = Node::new(Tag::Object, meta.0, meta.1, table, count + 1, parent);
                    (parent, count) = (cursor.next(), 0);
                    cursor.push(&mut context.writer, node, at as usize);
                    inside = if meta.0 == SLOTS { Inside::Slots } else { Inside::Object };
                    (slots, expected) = (table, 0);
                    depth_left -= 1;
                    at += 2;
                    continue 'next;
                }
            } else if SHAPED && outer.has(SLOTS) {
                inside = Inside::Slots;
                object = outer.text() - base;
                slots = outer.a;
                (count, expected) = (kept & 0xffff, kept >> 16);
            } else {
                inside = Inside::Object;
            }
        }
    }
}

/// Reads a key, space before it allowed. Returns the positions of its quotes, and whether it holds
/// escapes.
#[inline(always)]
fn key<S: Scan>(scan: S, text: &[u8], mut at: u32) -> Result<(u32, u32, bool), Refused> {
    if byte(text, at) != b'"' {
        at = skip_space(text, at);
        if byte(text, at) != b'"' {
            return Err(Refused);
        }
    }
    let (close, escaped) = string(scan, text, at)?;
    Ok((at, close, escaped))
}

/// Adds the slots of an object, if there may be so many more. Returns where they are.
#[inline(always)]
fn slots_node(links: &mut Vec<u32>, shape: &ObjectShape, links_max: usize) -> Option<u32> {
    // One more for members that the shape does not list.
    let count = shape.heads.len() + 1;
    // Objects that lack most of what is expected could take any amount of memory;
    // this ends it at four bytes for each byte of the text.
    (links.len() + count <= links_max).then(|| {
        let table = position(links.len());
        add_absent(links, count);
        table
    })
}

/// Adds slots without a value.
#[inline(always)]
fn add_absent(links: &mut Vec<u32>, count: usize) {
    let end = links.len() + count;
    // Pieces of a fixed size are written without a loop or a call.
    while links.len() < end {
        links.extend_from_slice(&[ABSENT; 8]);
    }
    links.truncate(end);
}

/// Gives an array whose elements are not all single nodes a table of them.
#[inline(never)]
fn list_elements(mut cursor: Cursor, links: &mut Vec<u32>, array: u32, count: u32) {
    let table = links.len();
    links.reserve(count as usize + 1);
    links.push(count);
    let mut element = array + 1;
    links.extend((0..count).map(|_| {
        let this = element;
        element = cursor.node(element).end;
        this
    }));
    let array = cursor.node(array);
    array.meta |= TABLE;
    array.a = position(table);
}
