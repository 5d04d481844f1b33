//! Keeps members that a shape does not list, in a table beside the slots.

use crate::generic_parser::ReadGeneric;
use crate::node::{Node, REPEATS, TABLE, Tag};
use crate::parser_state::{ABSENT, Context, ParsePosition};
use crate::scan::{Job, Refused, Scan, chunk};
use crate::text::to_position;
use crate::token::key_node;

/// Reads the value of a member, and links key and value to the object in slots.
pub(crate) struct KeepUnknownMember<'c, 'a> {
    pub(crate) context: &'c mut Context<'a>,
    pub(crate) position: ParsePosition,
    /// The positions of the quotes of the key, and true if it holds escapes.
    pub(crate) key: (u32, u32, bool),
    /// The index in `links` of the object of the other members.
    pub(crate) link: u32,
}

impl Job for KeepUnknownMember<'_, '_> {
    type Output = Result<ParsePosition, Refused>;

    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> Result<ParsePosition, Refused> {
        let KeepUnknownMember { context, mut position, key: (open, close, escaped), link } = self;
        let key = position.cursor.next();
        let head = chunk(context.text, open + 1).ok_or(Refused)?;
        let node = key_node(context.number, escaped, open, close, head);
        position.cursor.push(&mut context.writer, node, position.at as usize);
        let value = position.cursor.next();
        let mut position = scan.outline(ReadGeneric { context: &mut *context, position })?;
        let link = context.links.get_mut(link as usize).ok_or(Refused)?;
        if *link == ABSENT {
            let index = position.cursor.next();
            *link = index;
            let node = Node::new(Tag::Object, TABLE | REPEATS, 0, 0, 0, index + 1);
            position.cursor.push(&mut context.writer, node, position.at as usize);
        }
        add_pair(position.cursor.node(*link), context.links, [key, value]);
        Ok(position)
    }
}

/// Adds a member to an object in table form.
fn add_pair(object: &mut Node, links: &mut Vec<u32>, pair: [u32; 2]) {
    let (table, used) = (object.a as usize, 2 * object.b as usize);
    let start = if used > 0 && used < links[table] as usize {
        table
    } else {
        // A full table moves to the end with twice the room.
        let start = links.len();
        let room = (2 * used).max(8);
        links.push(to_position(room));
        if used > 0 {
            links.extend_from_within(table + 1..table + 1 + used);
        }
        links.resize(start + 1 + room, 0);
        start
    };
    links[start + 1 + used..start + 3 + used].copy_from_slice(&pair);
    object.a = to_position(start);
    object.b += 1;
}
