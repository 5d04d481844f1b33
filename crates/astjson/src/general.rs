//! Parsing a text of which nothing is known.

use crate::members::Members;
use crate::node::{Node, Tag};
use crate::parser::{Context, Inside, NONE, Place, RUN_BYTES_MIN, Stop, key, list_elements};
use crate::scan::{Job, Refused, Scan, chunk};
use crate::token::{byte, colon, key_node, scalar, skip_space};

/// Reads the value at a place, space before it allowed. Makes the place after it.
pub(crate) struct ReadGeneral<'c, 'a> {
    pub(crate) context: &'c mut Context<'a>,
    pub(crate) place: Place,
}

impl Job for ReadGeneral<'_, '_> {
    type Made = Result<Place, Refused>;

    // Hot path: most of a text is read by `members`; here it is about what that leaves.
    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> Result<Place, Refused> {
        let ReadGeneral { context, place } = self;
        let (text, number) = (context.text, context.number);
        let Place { mut at, mut depth_left, mut cursor, mut window } = place;
        let mut inside = Inside::Nothing;
        let mut parent = NONE;
        // Elements of the array, or members of the object.
        let mut count = 0u32;
        'next: loop {
            // A value, or a member, comes next.
            'value: {
                if inside == Inside::Object {
                    let mut stop = Stop::Member;
                    if text.len().saturating_sub(at as usize) >= RUN_BYTES_MIN {
                        let place = Place { at, depth_left, cursor, window };
                        let links = &mut *context.links;
                        let ran = Members { text, number, links, place, parent, count }.run(scan);
                        Place { at, depth_left, cursor, window } = ran.place;
                        (parent, count, inside, stop) =
                            (ran.parent, ran.count, ran.inside, ran.stop);
                        if stop == Stop::After {
                            break 'value;
                        }
                    }
                    count += 1;
                    if stop == Stop::Member {
                        let (open, close, escaped) = key(scan, text, at)?;
                        at = colon(text, close + 1)?;
                        let head = chunk(text, open + 1).ok_or(Refused)?;
                        let node = key_node(number, escaped, open, close, head);
                        cursor.push(&mut context.writer, node, at as usize);
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
                let tag = if is_object { Tag::Object } else { Tag::Array };
                let node = Node::new(tag, 0, number, 0, count, parent);
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
                    break 'value;
                }
                depth_left -= 1;
                (parent, count) = (index, 0);
                inside = if is_object { Inside::Object } else { Inside::Array };
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
                let (array, elements) = (parent, count);
                (parent, count) = cursor.close(parent, count);
                if inside == Inside::Array && cursor.next() - array - 1 != elements {
                    list_elements(cursor, context.links, array, elements);
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
