//! Parsing a text by a shape. What the shape says nothing about is left to `general`.

use crate::follow::Follow;
use crate::general::ReadGeneral;
use crate::node::{Node, SLOTS, Tag};
use crate::others::KeepOther;
use crate::parser::{
    ABSENT, Context, Inside, NONE, Place, RUN_BYTES_MIN, Stop, key, list_elements,
};
use crate::scan::{Job, Refused, Scan};
use crate::shape::{ANY, ShapeTree};
use crate::skip::Skip;
use crate::text::position;
use crate::token::{byte, colon, scalar, skip_space};
use crate::type_name::Choose;

/// Links that a text may take, one for each of its bytes not counted. Short texts with large
/// shapes are no danger.
const LINKS_FREE: usize = 4096;

/// Links that are made at a time: some forty objects, and no more than a call writes in passing.
const LINKS_AHEAD: usize = 256;

/// What is expected of a text.
#[derive(Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) tree: &'a ShapeTree,
    /// The object of the tree that the value which is read is expected to be.
    pub(crate) object: u32,
    /// Number of the first object of the tree among the shapes of the arena.
    pub(crate) base: u32,
}

/// Reads the value at a place, space before it allowed. Makes the place after it.
pub(crate) struct ReadShaped<'c, 'a> {
    pub(crate) context: &'c mut Context<'a>,
    pub(crate) place: Place,
    pub(crate) expected: Expected<'c>,
}

/// Which of the links are taken. Those behind have no value yet.
struct Room {
    taken: u32,
    /// Objects that lack most of what is expected could take any amount of memory; this ends it at
    /// four bytes for each byte of the text.
    max: usize,
}

impl Job for ReadShaped<'_, '_> {
    type Made = Result<Place, Refused>;

    // Hot path: most of a text is read by `follow`; here it is about what that leaves.
    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> Result<Place, Refused> {
        let ReadShaped { context, place, expected } = self;
        let Expected { tree, object, base } = expected;
        let (text, number) = (context.text, context.number);
        let Place { mut at, mut depth_left, mut cursor, mut window } = place;
        let links = context.links.len();
        let mut room = Room { taken: position(links), max: links + LINKS_FREE + text.len() };
        let mut inside = Inside::Nothing;
        let mut parent = NONE;
        // Elements of the array, or the head of the key that the object is expected to go on with.
        let mut come = 0u32;
        'next: loop {
            // A value, or a member, comes next.
            'value: {
                let mut object = object;
                match inside {
                    Inside::Nothing => {}
                    Inside::Array => object = cursor.node(parent).a,
                    Inside::Object => {
                        let mut stop = Stop::Member;
                        if text.len().saturating_sub(at as usize) >= RUN_BYTES_MIN {
                            let job = Follow {
                                text,
                                number,
                                place: Place { at, depth_left, cursor, window },
                                tree,
                                base,
                                links: context.links,
                                links_taken: room.taken,
                                parent,
                                head: come,
                            };
                            let ran = job.run(scan);
                            Place { at, depth_left, cursor, window } = ran.place;
                            (parent, come, inside, stop) =
                                (ran.parent, ran.come, ran.inside, ran.stop);
                            room.taken = ran.links_taken;
                            if stop == Stop::After {
                                break 'value;
                            }
                        }
                        let open = *cursor.node(parent);
                        if stop == Stop::Member {
                            let key = key(scan, text, at)?;
                            let (open_quote, close, escaped) = key;
                            at = colon(text, close + 1)?;
                            let number = open.text() - base;
                            let shape = tree.objects.get(number as usize).ok_or(Refused)?;
                            let slot = tree.heads.get(come as usize).map_or(0, |head| head.slot);
                            let found =
                                shape.search(text, open_quote + 1, close, escaped, slot as usize);
                            let Some(found) = found else {
                                if shape.keep_others {
                                    let place = Place { at, depth_left, cursor, window };
                                    let link = open.a + shape.links() - 1;
                                    room.give_back(context.links);
                                    let job = KeepOther { context, place, key, link };
                                    Place { at, depth_left, cursor, window } = scan.outline(job)?;
                                    room.taken = position(context.links.len());
                                } else {
                                    at = scan.outline(Skip { text, at, depth_left })?;
                                }
                                break 'value;
                            };
                            come = come - slot + found as u32;
                        }
                        let head = tree.heads.get(come as usize).ok_or(Refused)?;
                        come += 1;
                        let link = context.links.get_mut((open.a + head.slot) as usize);
                        *link.ok_or(Refused)? = cursor.next();
                        object = head.object;
                    }
                }
                if byte(text, at) <= b' ' {
                    at = skip_space(text, at);
                }
                let index = cursor.next();
                let first = byte(text, at);
                let is_object = first == b'{';
                if !is_object && first != b'[' {
                    let (value, end) = scalar(scan, text, at, number, index)?;
                    cursor.push(&mut context.writer, value, at as usize);
                    at = end;
                    break 'value;
                }
                if depth_left == 0 {
                    return Err(Refused);
                }
                let mut node = Node::new(Tag::Array, 0, number, object, come, parent);
                if is_object && object != ANY {
                    let mut shape = tree.objects.get(object as usize).ok_or(Refused)?;
                    if !shape.alternatives.is_empty() {
                        let job = Choose { text, at, depth_left: depth_left - 1, shape };
                        if let Some(chosen) = scan.outline(job)? {
                            object = chosen;
                            shape = tree.objects.get(object as usize).ok_or(Refused)?;
                        }
                    }
                    match room.take(context.links, shape.links()) {
                        Some(table) => {
                            node =
                                Node::new(Tag::Object, SLOTS, base + object, table, come, parent);
                        }
                        None => object = ANY,
                    }
                }
                if object == ANY {
                    let place = Place { at, depth_left, cursor, window };
                    room.give_back(context.links);
                    let job = ReadGeneral { context: &mut *context, place };
                    Place { at, depth_left, cursor, window } = scan.outline(job)?;
                    room.taken = position(context.links.len());
                    break 'value;
                }
                cursor.push(&mut context.writer, node, at as usize);
                at += 1;
                let mut inner = byte(text, at);
                if inner <= b' ' {
                    at = skip_space(text, at);
                    inner = byte(text, at);
                }
                // `]` and `}` stand two after `[` and `{` in ASCII.
                if inner == first + 2 {
                    at += 1;
                    let closed = cursor.node(index);
                    (closed.b, closed.end) = (0, index + 1);
                    if !is_object {
                        closed.a = 0;
                    }
                    break 'value;
                }
                depth_left -= 1;
                parent = index;
                (inside, come) = match is_object {
                    true => {
                        (Inside::Object, tree.outlines.get(object as usize).ok_or(Refused)?.first)
                    }
                    false => (Inside::Array, 0),
                };
                continue 'next;
            }
            loop {
                // A value ends here.
                let mut after = byte(text, at);
                let closer = match inside {
                    Inside::Nothing => {
                        room.give_back(context.links);
                        return Ok(Place { at, depth_left, cursor, window });
                    }
                    Inside::Array => {
                        come += 1;
                        b']'
                    }
                    Inside::Object => b'}',
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
                let (array, count) = (parent, come);
                (parent, come) = cursor.close(array, 0);
                if inside == Inside::Array {
                    let closed = cursor.node(array);
                    (closed.a, closed.b) = (0, count);
                    if cursor.next() - array - 1 != count {
                        room.give_back(context.links);
                        list_elements(cursor, context.links, array, count);
                        room.taken = position(context.links.len());
                    }
                }
                depth_left += 1;
                inside = match parent {
                    NONE => Inside::Nothing,
                    _ if cursor.node(parent).is(Tag::Array) => Inside::Array,
                    _ => Inside::Object,
                };
            }
        }
    }
}

impl Room {
    /// Takes links for an object, if there may be so many more. Returns where they are.
    #[inline(always)]
    fn take(&mut self, links: &mut Vec<u32>, count: u32) -> Option<u32> {
        let table = self.taken;
        let end = table as usize + count as usize;
        if end > links.len() {
            if end > self.max {
                return None;
            }
            links.resize((end + LINKS_AHEAD).min(self.max), ABSENT);
        }
        self.taken = position(end);
        Some(table)
    }

    /// Gives back the links that are not taken: others are going to add some.
    #[inline(always)]
    fn give_back(&self, links: &mut Vec<u32>) {
        links.truncate(self.taken as usize);
    }
}
