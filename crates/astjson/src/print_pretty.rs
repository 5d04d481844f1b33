//! Printing indented, for people. Nothing here is fast.

use smallvec::SmallVec;

use crate::document::{Document, WALK_DEPTH_MAX};
use crate::node::{NodeId, Tag};
use crate::print::Sink;
use crate::read::{Key, MemberCursor};
use crate::string::print_string;

/// Containers that are open while printing, without touching the heap: deeper than answers nest.
const OPEN_INLINE: usize = 32;

/// A container that is open, and where in it we are.
struct Open {
    id: NodeId,
    place: Place,
    first: bool,
}

enum Place {
    Elements { next: u32, count: u32 },
    Members(MemberCursor),
}

impl Document {
    /// Appends `n` to `out` as indented JSON, two spaces a level.
    pub fn print_pretty<S: Sink + ?Sized>(&self, n: NodeId, out: &mut S) {
        let mut open: SmallVec<[Open; OPEN_INLINE]> = SmallVec::new();
        let mut value = Some(self.resolve(n));
        loop {
            if let Some(id) = value.take() {
                let node = self.stored(id.0);
                if !node.is_container() {
                    out.put(self.raw(id).as_bytes());
                } else if self.is_empty(id) {
                    out.put(if node.is(Tag::Array) { b"[]" } else { b"{}" });
                } else if self.leads_too_far(id, &open) {
                    out.put(b"null");
                } else if node.is(Tag::Array) {
                    out.put(b"[");
                    let place = Place::Elements { next: 0, count: node.b };
                    open.push(Open { id, place, first: true });
                } else {
                    out.put(b"{");
                    let place = Place::Members(self.member_cursor(id));
                    open.push(Open { id, place, first: true });
                }
            }
            let depth = open.len();
            let Some(container) = open.last_mut() else { return };
            let first = std::mem::replace(&mut container.first, false);
            let (key, next) = match &mut container.place {
                Place::Elements { next, count } => {
                    let element =
                        if *next < *count { self.at(container.id, *next as usize) } else { None };
                    *next += 1;
                    (None, element)
                }
                Place::Members(cursor) => match self.next_member(cursor) {
                    Some((key, value)) => (Some(key), Some(value)),
                    None => (None, None),
                },
            };
            let Some(next) = next else {
                indent(depth - 1, out);
                out.put(if self.stored(container.id.0).is(Tag::Array) { b"]" } else { b"}" });
                open.pop();
                continue;
            };
            if !first {
                out.put(b",");
            }
            indent(depth, out);
            if let Some(key) = key {
                match key {
                    Key::Node(key) => out.put(self.raw(NodeId(key)).as_bytes()),
                    Key::Slot { shape, slot } => print_string(self.slot_key(shape, slot), out),
                }
                out.put(b": ");
            }
            value = Some(self.resolve(next));
        }
    }

    /// Whether opening `id` would go round in a circle, or too deep. Only linked values can do
    /// either, but here nobody counts the time.
    fn leads_too_far(&self, id: NodeId, open: &[Open]) -> bool {
        open.len() >= WALK_DEPTH_MAX || open.iter().any(|container| container.id == id)
    }
}

fn indent<S: Sink + ?Sized>(depth: usize, out: &mut S) {
    out.put(b"\n");
    for _ in 0..depth {
        out.put(b"  ");
    }
}
