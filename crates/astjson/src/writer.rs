//! Writes nodes fast, with a cursor over the spare capacity of the node vector.
//!
//! `Vec::push` reloads and stores the length of the vector for every node, and each push waits for
//! the one before. The [`Cursor`] is a value that can live in registers; the length of the vector
//! is set once.
#![allow(unsafe_code)]

use crate::node::Node;

/// The vector to which nodes are appended. They belong to it only after [`finish`](Writer::finish);
/// if the writer is dropped before, they are forgotten.
pub(crate) struct Writer<'a> {
    nodes: &'a mut Vec<Node>,
    /// Size of the text, in bytes, that all nodes are made from.
    bytes: usize,
}

/// The position of the next node. Must only be used with the writer that made it.
///
/// Invariant: nodes `0..next` of `base`, the buffer of the vector, are initialised, `next <= room`,
/// and `room` is at most the capacity of the vector.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    base: *mut Node,
    next: u32,
    room: u32,
}

impl<'a> Writer<'a> {
    /// First estimate of the bytes of text per node: responses have 10 to 50. An estimate with too
    /// few nodes is better than one with too many, since it is corrected while the text is read.
    const BYTES_PER_NODE: usize = 32;

    /// Begins after `nodes`, for a text of `bytes` bytes.
    ///
    /// A text has at most one node per byte, and the caller has made sure that so many fit `u32`.
    pub(crate) fn new(nodes: &'a mut Vec<Node>, bytes: usize) -> (Writer<'a>, Cursor) {
        if nodes.capacity() - nodes.len() < bytes / Self::BYTES_PER_NODE + 4 {
            nodes.reserve(bytes / Self::BYTES_PER_NODE + 4);
        }
        let cursor =
            Cursor { base: nodes.as_mut_ptr(), next: nodes.len() as u32, room: room(nodes) };
        (Writer { nodes, bytes }, cursor)
    }

    /// Hands all written nodes to the vector.
    pub(crate) fn finish(self, cursor: Cursor) {
        // SAFETY: nodes below `next` are initialised, and `next` is at most the capacity.
        unsafe { self.nodes.set_len(cursor.next as usize) };
    }

    /// Makes room for the rest of the text, estimated by the part that was read, and a little more.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, cursor: Cursor, at: usize) -> Cursor {
        let length = self.nodes.len();
        // SAFETY: all nodes below `next` are written, and `next` is at most the capacity. (Nodes
        // after `len` would be lost when the buffer moves.)
        unsafe { self.nodes.set_len(cursor.next as usize) };
        let written = cursor.next as usize - length;
        // Never more than one node per byte, and not judged by the first few bytes alone.
        let rest = self.bytes.saturating_sub(at).saturating_mul(written) / at.max(64);
        self.nodes.reserve_exact((rest + rest / 32).min(self.bytes) + 16);
        // SAFETY: shorter than before. The cursor guarantees that the nodes after `len` are
        // initialised.
        unsafe { self.nodes.set_len(length) };
        Cursor { base: self.nodes.as_mut_ptr(), next: cursor.next, room: room(self.nodes) }
    }
}

impl Cursor {
    /// Index of the node that is written next.
    #[inline(always)]
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Writes a node. `at` is the position in the text; it tells how much more room is needed.
    #[inline(always)]
    pub(crate) fn push(&mut self, writer: &mut Writer<'_>, node: Node, at: usize) {
        if self.next == self.room {
            *self = writer.grow(*self, at);
        }
        // SAFETY: `next < room`, which is at most the capacity.
        unsafe { write(self.base.add(self.next as usize), node) };
        self.next += 1;
    }

    /// Writes nodes if there is room for them; otherwise returns false.
    #[inline(always)]
    pub(crate) fn push_into_room<const N: usize>(&mut self, nodes: [Node; N]) -> bool {
        if ((self.room - self.next) as usize) < N {
            return false;
        }
        for (i, node) in nodes.into_iter().enumerate() {
            // SAFETY: `next + i < room`, which is at most the capacity.
            unsafe { write(self.base.add(self.next as usize).add(i), node) };
        }
        self.next += N as u32;
        true
    }

    /// Closes a container with `count` children: all nodes after it are its own. Returns the state
    /// that it kept while it was open (see `parser_state`): the container around it, and the
    /// progress there.
    #[inline(always)]
    pub(crate) fn close(&mut self, container: u32, count: u32) -> (u32, u32) {
        let end = self.next;
        let closed = self.node(container);
        let kept = (closed.end, closed.b);
        closed.end = end;
        closed.b = count;
        kept
    }

    /// A node that was written before.
    #[inline(always)]
    pub(crate) fn node(&mut self, index: u32) -> &mut Node {
        assert!(index < self.next);
        // SAFETY: nodes below `next` are initialised.
        unsafe { &mut *self.base.add(index as usize) }
    }
}

/// Writes a node in two halves: a CPU stores one word a cycle, whatever its size.
///
/// # Safety
///
/// `place` must be valid for writing a node.
#[inline(always)]
unsafe fn write(place: *mut Node, node: Node) {
    let halves = [
        u64::from(node.meta) | u64::from(node.a) << 32,
        u64::from(node.b) | u64::from(node.end) << 32,
    ];
    #[cfg(target_endian = "little")]
    // SAFETY: as the caller promises; a node is 16 bytes without gaps, four words in the order of
    // the halves, and any bits are a valid node.
    unsafe {
        place.cast::<[u64; 2]>().write_unaligned(halves);
    };
    #[cfg(not(target_endian = "little"))]
    // SAFETY: as the caller promises.
    unsafe {
        let _ = halves;
        place.write(node);
    };
}

fn room(nodes: &Vec<Node>) -> u32 {
    u32::try_from(nodes.capacity()).unwrap_or(u32::MAX)
}
