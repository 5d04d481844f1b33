//! Parses a text by a shape. Values without a shape are left to `generic_parser`.

use crate::alternatives::SelectAlternative;
use crate::generic_parser::ReadGeneric;
use crate::node::{Node, SLOTS, Tag};
use crate::parser_state::{
    ABSENT, Context, NONE, OpenKind, ParsePosition, RUN_BYTES_MIN, Stop, list_elements, read_key,
};
use crate::predicted_object::ReadPredicted;
use crate::scan::{Job, Refused, Scan};
use crate::shape::{ANY, ShapeTree};
use crate::skip::Skip;
use crate::text::to_position;
use crate::token::{byte, read_scalar, skip_colon, skip_space};
use crate::unknown_keys::KeepUnknownMember;

/// Number of links that a text may take in addition to one for each of its bytes. Short texts with
/// large shapes are no danger.
const LINKS_FREE: usize = 4096;

/// Number of links that are made at a time: some forty objects, and few enough for one cheap
/// `resize`.
const LINKS_AHEAD: usize = 256;

/// The shape that is expected of a text.
#[derive(Clone, Copy)]
pub(crate) struct ExpectedShape<'a> {
    pub(crate) tree: &'a ShapeTree,
    /// The index in the tree of the shape of the value that is read.
    pub(crate) object: u32,
    /// Number of the first object of the tree among the shapes of the arena.
    pub(crate) base: u32,
}

/// Reads the value at a position, leading space allowed. Returns the position after it.
pub(crate) struct ReadShaped<'c, 'a> {
    pub(crate) context: &'c mut Context<'a>,
    pub(crate) position: ParsePosition,
    pub(crate) expected: ExpectedShape<'c>,
}

/// Allocator of links: those after `taken` have no value yet.
struct LinkRoom {
    taken: u32,
    /// Maximum number of links. Objects that lack most of their expected members could take any
    /// amount of memory; this bounds it at four bytes for each byte of the text.
    max: usize,
}

impl Job for ReadShaped<'_, '_> {
    type Output = Result<ParsePosition, Refused>;

    // Hot path: most of a text is read by `predicted_object`; this loop reads the rest.
    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> Result<ParsePosition, Refused> {
        let ReadShaped { context, position, expected } = self;
        let ExpectedShape { tree, object, base } = expected;
        let (text, number) = (context.text, context.number);
        let ParsePosition { mut at, mut depth_left, mut cursor, mut lookahead } = position;
        let links = context.links.len();
        let mut room = LinkRoom { taken: to_position(links), max: links + LINKS_FREE + text.len() };
        let mut inside = OpenKind::Nothing;
        let mut parent = NONE;
        // Elements of the array, or the head of the key that the object is expected to continue
        // with.
        let mut progress = 0u32;
        'next: loop {
            // A value, or a member, comes next.
            'value: {
                let mut object = object;
                match inside {
                    OpenKind::Nothing => {}
                    OpenKind::Array => object = cursor.node(parent).a,
                    OpenKind::Object => {
                        let mut stop = Stop::Member;
                        if text.len().saturating_sub(at as usize) >= RUN_BYTES_MIN {
                            let job = ReadPredicted {
                                text,
                                number,
                                position: ParsePosition { at, depth_left, cursor, lookahead },
                                tree,
                                base,
                                links: context.links,
                                links_taken: room.taken,
                                parent,
                                head: progress,
                            };
                            let ran = job.run(scan);
                            ParsePosition { at, depth_left, cursor, lookahead } = ran.position;
                            (parent, progress, inside, stop) =
                                (ran.parent, ran.progress, ran.inside, ran.stop);
                            room.taken = ran.links_taken;
                            if stop == Stop::After {
                                break 'value;
                            }
                        }
                        let open = *cursor.node(parent);
                        if stop == Stop::Member {
                            let key = read_key(scan, text, at)?;
                            let (open_quote, close, escaped) = key;
                            at = skip_colon(text, close + 1)?;
                            let number = open.text() - base;
                            let shape = tree.objects.get(number as usize).ok_or(Refused)?;
                            let slot =
                                tree.heads.get(progress as usize).map_or(0, |head| head.slot);
                            let found =
                                shape.search(text, open_quote + 1, close, escaped, slot as usize);
                            let Some(found) = found else {
                                if shape.keep_others {
                                    let position =
                                        ParsePosition { at, depth_left, cursor, lookahead };
                                    let link = open.a + shape.links() - 1;
                                    room.give_back(context.links);
                                    let job = KeepUnknownMember { context, position, key, link };
                                    ParsePosition { at, depth_left, cursor, lookahead } =
                                        scan.outline(job)?;
                                    room.taken = to_position(context.links.len());
                                } else {
                                    at = scan.outline(Skip { text, at, depth_left })?;
                                }
                                break 'value;
                            };
                            progress = progress - slot + found as u32;
                        }
                        let head = tree.heads.get(progress as usize).ok_or(Refused)?;
                        progress += 1;
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
                    let (value, end) = read_scalar(scan, text, at, number, index)?;
                    cursor.push(&mut context.writer, value, at as usize);
                    at = end;
                    break 'value;
                }
                if depth_left == 0 {
                    return Err(Refused);
                }
                let mut node = Node::new(Tag::Array, 0, number, object, progress, parent);
                if is_object && object != ANY {
                    let mut shape = tree.objects.get(object as usize).ok_or(Refused)?;
                    if !shape.alternatives.is_empty() {
                        let job = SelectAlternative { text, at, depth_left: depth_left - 1, shape };
                        if let Some(chosen) = scan.outline(job)? {
                            object = chosen;
                            shape = tree.objects.get(object as usize).ok_or(Refused)?;
                        }
                    }
                    match room.take(context.links, shape.links()) {
                        Some(table) => {
                            node = Node::new(
                                Tag::Object,
                                SLOTS,
                                base + object,
                                table,
                                progress,
                                parent,
                            );
                        }
                        None => object = ANY,
                    }
                }
                if object == ANY {
                    let position = ParsePosition { at, depth_left, cursor, lookahead };
                    room.give_back(context.links);
                    let job = ReadGeneric { context: &mut *context, position };
                    ParsePosition { at, depth_left, cursor, lookahead } = scan.outline(job)?;
                    room.taken = to_position(context.links.len());
                    break 'value;
                }
                cursor.push(&mut context.writer, node, at as usize);
                at += 1;
                let mut inner = byte(text, at);
                if inner <= b' ' {
                    at = skip_space(text, at);
                    inner = byte(text, at);
                }
                // In ASCII, `]` and `}` are two above `[` and `{`.
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
                (inside, progress) = match is_object {
                    true => {
                        (OpenKind::Object, tree.outlines.get(object as usize).ok_or(Refused)?.first)
                    }
                    false => (OpenKind::Array, 0),
                };
                continue 'next;
            }
            loop {
                // A value ends here.
                let mut after = byte(text, at);
                let closer = match inside {
                    OpenKind::Nothing => {
                        room.give_back(context.links);
                        return Ok(ParsePosition { at, depth_left, cursor, lookahead });
                    }
                    OpenKind::Array => {
                        progress += 1;
                        b']'
                    }
                    OpenKind::Object => b'}',
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
                let (array, count) = (parent, progress);
                (parent, progress) = cursor.close(array, 0);
                if inside == OpenKind::Array {
                    let closed = cursor.node(array);
                    (closed.a, closed.b) = (0, count);
                    if cursor.next() - array - 1 != count {
                        room.give_back(context.links);
                        list_elements(cursor, context.links, array, count);
                        room.taken = to_position(context.links.len());
                    }
                }
                depth_left += 1;
                inside = match parent {
                    NONE => OpenKind::Nothing,
                    _ if cursor.node(parent).is(Tag::Array) => OpenKind::Array,
                    _ => OpenKind::Object,
                };
            }
        }
    }
}

impl LinkRoom {
    /// Takes links for an object, if that many are left. Returns the index of the first.
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
        self.taken = to_position(end);
        Some(table)
    }

    /// Releases the links that are not taken, because other code is about to append some.
    #[inline(always)]
    fn give_back(&self, links: &mut Vec<u32>) {
        links.truncate(self.taken as usize);
    }
}
