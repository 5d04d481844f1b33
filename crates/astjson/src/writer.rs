//! Writing nodes fast: a cursor over the spare room of the node vector.
//!
//! `Vec::push` reloads and stores the length of the vector for every node, and each push waits for
//! the one before. This cursor keeps it in a register and tells the vector once.
#![allow(unsafe_code)]

use crate::node::Node;

/// Nodes being written behind those of a vector. They belong to the vector only after
/// [`finish`](Writer::finish); dropped before, they are forgotten.
pub(crate) struct Writer<'a> {
    nodes: &'a mut Vec<Node>,
    /// The buffer of `nodes`. Invariant: nodes `0..next` are initialised, `next <= room`, and
    /// `room` is at most the capacity of `nodes`.
    base: *mut Node,
    next: u32,
    room: u32,
    /// Bytes of text that all nodes are expected to be made from.
    bytes: usize,
}

impl<'a> Writer<'a> {
    /// Bytes of text per node that are reckoned with at first: answers have 10 to 50. Better too
    /// few nodes than too many, since the estimate is mended on the way.
    const BYTES_PER_NODE: usize = 20;

    /// Begins behind `nodes`, for a text of so many bytes.
    ///
    /// A text has at most a node per byte, and the caller has made sure that so many fit `u32`.
    pub(crate) fn new(nodes: &'a mut Vec<Node>, bytes: usize) -> Writer<'a> {
        if nodes.capacity() - nodes.len() < bytes / Self::BYTES_PER_NODE + 4 {
            nodes.reserve(bytes / Self::BYTES_PER_NODE + 4);
        }
        let (next, room) = (nodes.len() as u32, room(nodes));
        Writer { base: nodes.as_mut_ptr(), nodes, next, room, bytes }
    }

    /// Index of the node that is written next.
    #[inline(always)]
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Writes a node. `at` is how far the text is read; it tells how much more room is needed.
    #[inline(always)]
    pub(crate) fn push(&mut self, node: Node, at: usize) {
        if self.next == self.room {
            (self.base, self.room) = grow(self.nodes, self.next, at, self.bytes);
        }
        // SAFETY: `next < room`, which is at most the capacity.
        unsafe { self.base.add(self.next as usize).write(node) };
        self.next += 1;
    }

    /// Writes two nodes.
    #[inline(always)]
    pub(crate) fn push_two(&mut self, nodes: [Node; 2], at: usize) {
        if self.room - self.next < 2 {
            (self.base, self.room) = grow(self.nodes, self.next, at, self.bytes);
        }
        // SAFETY: `next + 2 <= room`, which is at most the capacity.
        unsafe { self.base.add(self.next as usize).cast::<[Node; 2]>().write(nodes) };
        self.next += 2;
    }

    /// A node that has been written.
    #[inline(always)]
    pub(crate) fn node(&mut self, index: u32) -> &mut Node {
        assert!(index < self.next);
        // SAFETY: nodes below `next` are initialised.
        unsafe { &mut *self.base.add(index as usize) }
    }

    /// Hands all nodes written over to the vector.
    pub(crate) fn finish(self) {
        // SAFETY: nodes below `next` are initialised, and `next` is at most the capacity.
        unsafe { self.nodes.set_len(self.next as usize) };
    }
}

/// Makes more room: by what has been read so far, as much as the rest of the text needs and a
/// little more.
#[cold]
#[inline(never)]
fn grow(nodes: &mut Vec<Node>, next: u32, at: usize, bytes: usize) -> (*mut Node, u32) {
    // Nodes behind `len` would be lost when the buffer moves.
    let length = nodes.len();
    // SAFETY: the writer has written all nodes below `next`, which is at most the capacity.
    unsafe { nodes.set_len(next as usize) };
    let written = next as usize - length;
    // Never more than a node per byte, and not on the word of the first few bytes alone.
    let read = at.max(64);
    let rest = bytes.saturating_sub(at).saturating_mul(written) / read;
    nodes.reserve_exact((rest + rest / 32).min(bytes) + 16);
    // SAFETY: shorter than before. What lies behind `len` the writer knows to be initialised.
    unsafe { nodes.set_len(length) };
    (nodes.as_mut_ptr(), room(nodes))
}

fn room(nodes: &Vec<Node>) -> u32 {
    u32::try_from(nodes.capacity()).unwrap_or(u32::MAX)
}
