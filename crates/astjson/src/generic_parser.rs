//! Parses a text without a shape.

use crate::node::{Node, Tag};
use crate::object_parser::ReadMembers;
use crate::parser_state::{
    Context, NONE, OpenKind, ParsePosition, RUN_BYTES_MIN, Stop, list_elements, read_key,
};
use crate::scan::{Job, Refused, Scan, chunk};
use crate::token::{byte, key_node, read_scalar, skip_colon, skip_space};

/// Reads the value at a position, leading space allowed. Returns the position after it.
pub(crate) struct ReadGeneric<'c, 'a> {
    pub(crate) context: &'c mut Context<'a>,
    pub(crate) position: ParsePosition,
}

impl Job for ReadGeneric<'_, '_> {
    type Output = Result<ParsePosition, Refused>;

    // Hot path: most of a text is read by `object_parser`; this loop reads the rest.
    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> Result<ParsePosition, Refused> {
        let ReadGeneric { context, position } = self;
        let (text, number) = (context.text, context.number);
        let ParsePosition { mut at, mut depth_left, mut cursor, mut lookahead } = position;
        let mut inside = OpenKind::Nothing;
        let mut parent = NONE;
        // Elements of the array, or members of the object.
        let mut count = 0u32;
        'next: loop {
            // A value, or a member, comes next.
            'value: {
                if inside == OpenKind::Object {
                    let mut stop = Stop::Member;
                    if text.len().saturating_sub(at as usize) >= RUN_BYTES_MIN {
                        let position = ParsePosition { at, depth_left, cursor, lookahead };
                        let links = &mut *context.links;
                        let ran =
                            ReadMembers { text, number, links, position, parent, count }.run(scan);
                        ParsePosition { at, depth_left, cursor, lookahead } = ran.position;
                        (parent, count, inside, stop) =
                            (ran.parent, ran.count, ran.inside, ran.stop);
                        if stop == Stop::After {
                            break 'value;
                        }
                    }
                    count += 1;
                    if stop == Stop::Member {
                        let (open, close, escaped) = read_key(scan, text, at)?;
                        at = skip_colon(text, close + 1)?;
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
                    let (value, end) = read_scalar(scan, text, at, number, index)?;
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
                // In ASCII, `]` and `}` are two above `[` and `{`.
                if inner == first + 2 {
                    at += 1;
                    let closed = cursor.node(index);
                    (closed.b, closed.end) = (0, index + 1);
                    break 'value;
                }
                depth_left -= 1;
                (parent, count) = (index, 0);
                inside = if is_object { OpenKind::Object } else { OpenKind::Array };
                continue 'next;
            }
            loop {
                // A value ends here.
                let mut after = byte(text, at);
                let closer = match inside {
                    OpenKind::Nothing => {
                        return Ok(ParsePosition { at, depth_left, cursor, lookahead });
                    }
                    OpenKind::Array => {
                        count += 1;
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
                let (array, elements) = (parent, count);
                (parent, count) = cursor.close(parent, count);
                if inside == OpenKind::Array && cursor.next() - array - 1 != elements {
                    list_elements(cursor, context.links, array, elements);
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
