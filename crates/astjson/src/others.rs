//! Members that a shape does not list, where they are to be kept: a table beside the slots.

use crate::general::ReadGeneral;
use crate::node::{Node, REPEATS, TABLE, Tag};
use crate::parser::{ABSENT, Context, Place};
use crate::scan::{Job, Refused, Scan, chunk};
use crate::text::position;
use crate::token::key_node;

/// Reads the value of a member, and hangs both on the object in slots.
pub(crate) struct KeepOther<'c, 'a> {
    pub(crate) context: &'c mut Context<'a>,
    pub(crate) place: Place,
    /// Where the key begins and ends, and whether it holds escapes.
    pub(crate) key: (u32, u32, bool),
    /// Where the object of the other members is linked.
    pub(crate) link: u32,
}

impl Job for KeepOther<'_, '_> {
    type Made = Result<Place, Refused>;

    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> Result<Place, Refused> {
        let KeepOther { context, mut place, key: (open, close, escaped), link } = self;
        let key = place.cursor.next();
        let head = chunk(context.text, open + 1).ok_or(Refused)?;
        let node = key_node(context.number, escaped, open, close, head);
        place.cursor.push(&mut context.writer, node, place.at as usize);
        let value = place.cursor.next();
        let mut place = scan.outline(ReadGeneral { context: &mut *context, place })?;
        let link = context.links.get_mut(link as usize).ok_or(Refused)?;
        if *link == ABSENT {
            let index = place.cursor.next();
            *link = index;
            let node = Node::new(Tag::Object, TABLE | REPEATS, 0, 0, 0, index + 1);
            place.cursor.push(&mut context.writer, node, place.at as usize);
        }
        add_pair(place.cursor.node(*link), context.links, [key, value]);
        Ok(place)
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
        links.push(position(room));
        if used > 0 {
            links.extend_from_within(table + 1..table + 1 + used);
        }
        links.resize(start + 1 + room, 0);
        start
    };
    links[start + 1 + used..start + 3 + used].copy_from_slice(&pair);
    object.a = position(start);
    object.b += 1;
}
