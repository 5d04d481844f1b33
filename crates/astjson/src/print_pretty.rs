//! Prints a value indented, for people. This code is not optimised.

use smallvec::SmallVec;

use crate::document::Document;
use crate::limits::WALK_DEPTH_MAX;
use crate::node::{NodeId, Tag};
use crate::read::{Key, MemberCursor};
use crate::sink::Sink;
use crate::string::print_string;

/// Number of open containers that printing keeps off the heap: more than responses nest.
const OPEN_INLINE: usize = 32;

/// An open container, and the position in it.
struct IndentedContainer {
    id: NodeId,
    children: NextChild,
    first: bool,
}

enum NextChild {
    Elements { next: u32, count: u32 },
    Members(MemberCursor),
}

impl Document {
    /// Appends `n` to `out` as indented JSON, two spaces a level.
    pub fn print_pretty<S: Sink + ?Sized>(&self, n: NodeId, out: &mut S) {
        let mut open: SmallVec<[IndentedContainer; OPEN_INLINE]> = SmallVec::new();
        let mut value = Some(self.resolve(n));
        loop {
            if let Some(id) = value.take() {
                let node = self.stored(id.0);
                if !node.is_container() {
                    out.put(self.raw(id).as_bytes());
                } else if self.is_empty(id) {
                    out.put(if node.is(Tag::Array) { b"[]" } else { b"{}" });
                } else if is_cycle_or_too_deep(id, &open) {
                    out.put(b"null");
                } else if node.is(Tag::Array) {
                    out.put(b"[");
                    let children = NextChild::Elements { next: 0, count: node.b };
                    open.push(IndentedContainer { id, children, first: true });
                } else {
                    out.put(b"{");
                    let children = NextChild::Members(self.member_cursor(id));
                    open.push(IndentedContainer { id, children, first: true });
                }
            }
            let depth = open.len();
            let Some(container) = open.last_mut() else { return };
            let first = std::mem::replace(&mut container.first, false);
            let (key, next) = match &mut container.children {
                NextChild::Elements { next, count } => {
                    let element =
                        if *next < *count { self.at(container.id, *next as usize) } else { None };
                    *next += 1;
                    (None, element)
                }
                NextChild::Members(cursor) => match self.next_member(cursor) {
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
}

/// True if opening `id` would enter a cycle, or exceed the depth limit. Only linked values can do
/// either; the check of all of them is slow, but speed does not matter here.
fn is_cycle_or_too_deep(id: NodeId, open: &[IndentedContainer]) -> bool {
    open.len() >= WALK_DEPTH_MAX || open.iter().any(|container| container.id == id)
}

fn indent<S: Sink + ?Sized>(depth: usize, out: &mut S) {
    out.put(b"\n");
    for _ in 0..depth {
        out.put(b"  ");
    }
}
