//! Prints a value as compact text into any buffer.

use smallvec::SmallVec;

use crate::document::Document;
use crate::emitter::{Emitter, Run};
use crate::limits::WALK_DEPTH_MAX;
use crate::node::{Node, NodeId, SLOTS, TABLE, Tag};
use crate::shape::ShapeKey;
use crate::sink::Sink;

/// Number of open containers that printing keeps off the heap: more than responses nest.
const OPEN_INLINE: usize = 32;

/// An open container, and the position in it.
#[derive(Clone, Copy)]
struct OpenContainer {
    id: NodeId,
    form: Form,
    /// The next member or element: a node, or a position in `links`.
    at: u32,
    end: u32,
    first: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    ObjectInLine,
    ObjectTable,
    ObjectSlots,
    ArrayInLine,
    ArrayTable,
}

impl Document {
    /// Appends `n` to `out` as compact JSON. Scalars and keys are printed as they were written.
    ///
    /// A value that contains itself, or is nested deeper than [`WALK_DEPTH_MAX`], is printed as
    /// `null` where it would exceed that depth. A value that is linked at many places is printed at
    /// each of them.
    // Hot path: `cargo bench -p astjson -- print`.
    pub fn print<S: Sink + ?Sized>(&self, n: NodeId, out: &mut S) {
        let mut emitter = Emitter::new(&self.texts, out);
        let mut run = Run::EMPTY;
        self.emit(n, &mut emitter, &mut run);
        emitter.flush(&mut run);
    }

    /// Emits a whole value.
    pub(crate) fn emit<'a, S: Sink + ?Sized>(
        &'a self,
        n: NodeId,
        emitter: &mut Emitter<'a, S>,
        run: &mut Run<'a>,
    ) {
        let mut around: SmallVec<[OpenContainer; OPEN_INLINE]> = SmallVec::new();
        let mut next = n;
        loop {
            // A value that may be a container begins.
            let mut open = match self.enter(next, &around, emitter, run) {
                Some(entered) => entered,
                None => match around.pop() {
                    Some(outer) => outer,
                    None => return,
                },
            };
            loop {
                if let Some(inner) = self.emit_scalars(&mut open, emitter, run) {
                    around.push(open);
                    next = inner;
                    break;
                }
                let array = matches!(open.form, Form::ArrayInLine | Form::ArrayTable);
                emitter.punctuation(run, if array { b']' } else { b'}' });
                match around.pop() {
                    Some(outer) => open = outer,
                    None => return,
                }
            }
        }
    }

    /// Emits the members or elements of a container up to the first that is not a scalar, and
    /// returns that one.
    #[inline(always)]
    fn emit_scalars<'a, S: Sink + ?Sized>(
        &'a self,
        open: &mut OpenContainer,
        emitter: &mut Emitter<'a, S>,
        run: &mut Run<'a>,
    ) -> Option<NodeId> {
        match open.form {
            Form::ObjectInLine => {
                while open.at < open.end {
                    if !open.first {
                        let members = self.nodes.get(open.at as usize..open.end as usize);
                        open.at += run.follow_members(members.unwrap_or_default());
                        if open.at >= open.end {
                            break;
                        }
                    }
                    if !std::mem::replace(&mut open.first, false) {
                        emitter.punctuation(run, b',');
                    }
                    emitter.token(run, self.stored(open.at));
                    emitter.punctuation(run, b':');
                    let value = self.stored(open.at + 1);
                    let id = NodeId(open.at + 1);
                    open.at = value.end;
                    if !is_scalar(value) {
                        return Some(id);
                    }
                    emitter.token(run, value);
                }
            }
            Form::ArrayInLine | Form::ArrayTable => {
                while open.at < open.end {
                    if !std::mem::replace(&mut open.first, false) {
                        emitter.punctuation(run, b',');
                    }
                    let id = match open.form {
                        Form::ArrayInLine => Some(NodeId(open.at)),
                        _ => self.link(open.at as usize),
                    };
                    open.at += 1;
                    let Some(id) = id else { continue };
                    let value = self.stored(id.0);
                    if !is_scalar(value) {
                        return Some(id);
                    }
                    emitter.token(run, value);
                }
            }
            Form::ObjectTable | Form::ObjectSlots => {
                while let Some(id) = self.emit_key(open, emitter, run) {
                    let value = self.stored(id.0);
                    if !is_scalar(value) {
                        return Some(id);
                    }
                    emitter.token(run, value);
                }
            }
        }
        None
    }

    /// Emits the next key of an object in table form or in slots, and returns its value.
    #[inline(always)]
    fn emit_key<'a, S: Sink + ?Sized>(
        &'a self,
        open: &mut OpenContainer,
        emitter: &mut Emitter<'a, S>,
        run: &mut Run<'a>,
    ) -> Option<NodeId> {
        if open.form == Form::ObjectSlots {
            let node = self.stored(open.id.0);
            let keys: &[ShapeKey] =
                self.shapes.object(node.text()).map_or(&[], |shape| &shape.keys);
            while open.at < open.end {
                let value = self.link(open.at as usize);
                let key = keys.get((open.at - node.a) as usize);
                open.at += 1;
                if let (Some(value), Some(key)) = (value, key) {
                    if !std::mem::replace(&mut open.first, false) {
                        emitter.punctuation(run, b',');
                    }
                    emitter.bytes(run, &key.printed);
                    return Some(value);
                }
            }
            // The members that the shape does not list follow.
            let others = self.node(self.link(open.end as usize)?);
            open.form = Form::ObjectTable;
            (open.at, open.end) = (others.a + 1, others.a + 1 + 2 * others.b);
        }
        loop {
            if open.at >= open.end {
                return None;
            }
            let &[key_id, id] = self.links.get(open.at as usize..)?.first_chunk()?;
            open.at += 2;
            if !std::mem::replace(&mut open.first, false) {
                emitter.punctuation(run, b',');
            }
            let key = self.stored(key_id);
            // Key and value are one piece if they are still side by side, as they were parsed.
            if id == key_id + 1 && emitter.member(run, key, self.stored(id)) {
                continue;
            }
            emitter.token(run, key);
            emitter.punctuation(run, b':');
            return Some(NodeId(id));
        }
    }

    /// Begins a value that may be a container. A scalar, or a container that must not be opened, is
    /// emitted at once.
    #[inline(always)]
    fn enter<'a, S: Sink + ?Sized>(
        &'a self,
        id: NodeId,
        around: &[OpenContainer],
        emitter: &mut Emitter<'a, S>,
        run: &mut Run<'a>,
    ) -> Option<OpenContainer> {
        let id = self.resolve(id);
        let node = self.stored(id.0);
        if !node.is_container() {
            emitter.token(run, node);
            return None;
        }
        if self.is_cycle_or_too_deep(id, around) {
            emitter.bytes(run, b"null");
            return None;
        }
        let (form, at, end) = if node.is(Tag::Array) {
            emitter.punctuation(run, b'[');
            match node.has(TABLE) {
                true => (Form::ArrayTable, node.a + 1, node.a + 1 + node.b),
                false => (Form::ArrayInLine, id.0 + 1, id.0 + 1 + node.b),
            }
        } else {
            emitter.punctuation(run, b'{');
            if node.has(SLOTS) {
                (Form::ObjectSlots, node.a, node.a + self.slots_of(node) as u32)
            } else if node.has(TABLE) {
                (Form::ObjectTable, node.a + 1, node.a + 1 + 2 * node.b)
            } else {
                (Form::ObjectInLine, id.0 + 1, node.end)
            }
        };
        Some(OpenContainer { id, form, at, end, first: true })
    }

    /// True if opening `id` would enter a cycle, or exceed the depth limit. Values in line after
    /// their parent cannot form a cycle.
    #[inline]
    fn is_cycle_or_too_deep(&self, id: NodeId, around: &[OpenContainer]) -> bool {
        let Some(parent) = around.last() else { return false };
        let in_line = matches!(parent.form, Form::ObjectInLine | Form::ArrayInLine)
            && (parent.id.0..self.stored(parent.id.0).end).contains(&id.0);
        around.len() >= WALK_DEPTH_MAX || (!in_line && around.iter().any(|open| open.id == id))
    }

    /// Returns `n` as a compact string, for messages and tests.
    pub fn to_string(&self, n: NodeId) -> String {
        let mut out = Vec::new();
        self.print(n, &mut out);
        String::from_utf8(out).unwrap_or_default()
    }
}

#[inline(always)]
fn is_scalar(node: Node) -> bool {
    !node.is_container() && !node.is(Tag::Reference)
}
