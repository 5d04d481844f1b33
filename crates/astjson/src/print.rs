//! Printing: a value as compact or indented text into any buffer.

use bytes::BytesMut;
use smallvec::SmallVec;

use crate::document::{Document, WALK_DEPTH_MAX};
use crate::node::{NodeId, TABLE, Tag};
use crate::read::MemberCursor;

/// Containers that are open while printing, without touching the heap: deeper than answers nest.
const OPEN_INLINE: usize = 32;

/// A buffer that text is appended to.
pub trait Sink {
    /// Appends `text`.
    fn put(&mut self, text: &str);
}

impl Sink for Vec<u8> {
    #[inline(always)]
    fn put(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }
}

impl Sink for BytesMut {
    #[inline(always)]
    fn put(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }
}

impl Sink for String {
    #[inline(always)]
    fn put(&mut self, text: &str) {
        self.push_str(text);
    }
}

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
    /// Appends `n` to `out` as compact JSON. Scalars and keys come out as they went in.
    ///
    /// A value that contains itself, or is nested deeper than [`WALK_DEPTH_MAX`], is `null` where
    /// it would go too far. A value that stands at many places is printed at each of them.
    pub fn print<S: Sink + ?Sized>(&self, n: NodeId, out: &mut S) {
        self.print_styled::<false, S>(n, out);
    }

    /// Appends `n` to `out` as indented JSON, two spaces a level.
    pub fn print_pretty<S: Sink + ?Sized>(&self, n: NodeId, out: &mut S) {
        self.print_styled::<true, S>(n, out);
    }

    /// `n` as a compact string, for messages and tests.
    pub fn to_string(&self, n: NodeId) -> String {
        let mut out = String::new();
        self.print(n, &mut out);
        out
    }

    fn print_styled<const PRETTY: bool, S: Sink + ?Sized>(&self, n: NodeId, out: &mut S) {
        let mut open: SmallVec<[Open; OPEN_INLINE]> = SmallVec::new();
        let mut value = Some(self.resolve(n));
        loop {
            if let Some(id) = value.take() {
                let node = self.stored(id.0);
                if !node.is_container() {
                    out.put(self.raw(id));
                } else if node.b == 0 {
                    out.put(if node.is(Tag::Array) { "[]" } else { "{}" });
                } else if self.goes_too_far(id, &open) {
                    out.put("null");
                } else if node.is(Tag::Array) {
                    out.put("[");
                    let place = Place::Elements { next: 0, count: node.b };
                    open.push(Open { id, place, first: true });
                } else {
                    out.put("{");
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
                if PRETTY {
                    indent(depth - 1, out);
                }
                out.put(if self.stored(container.id.0).is(Tag::Array) { "]" } else { "}" });
                open.pop();
                continue;
            };
            if !first {
                out.put(",");
            }
            if PRETTY {
                indent(depth, out);
            }
            if let Some(key) = key {
                out.put(self.raw(NodeId(key)));
                out.put(if PRETTY { ": " } else { ":" });
            }
            value = Some(self.resolve(next));
        }
    }

    /// Whether opening `id` would go round in a circle, or too deep. Only linked values can do
    /// either, so parsed containers in line are let through without a look.
    fn goes_too_far(&self, id: NodeId, open: &[Open]) -> bool {
        match open.last() {
            None => false,
            Some(parent) if !self.stored(parent.id.0).has(TABLE) && parent.id.0 < id.0 => {
                open.len() >= WALK_DEPTH_MAX
            }
            Some(_) => {
                open.len() >= WALK_DEPTH_MAX || open.iter().any(|container| container.id == id)
            }
        }
    }
}

fn indent<S: Sink + ?Sized>(depth: usize, out: &mut S) {
    out.put("\n");
    for _ in 0..depth {
        out.put("  ");
    }
}
