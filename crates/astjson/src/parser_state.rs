//! State that the two parsers share: [`generic_parser`](crate::generic_parser) and, for texts with
//! a known shape, [`shaped_parser`](crate::shaped_parser). Both are one pass, without recursion.
//!
//! While a container is open, its own node holds the state of the container around it: `end` is the
//! node of that container, and `b` its progress. So there is no stack, and nothing to allocate.

use crate::lookahead::Lookahead;
use crate::node::TABLE;
use crate::scan::{BLOCK_BYTES, Refused, Scan};
use crate::text::to_position;
use crate::token::{byte, skip_space, string};
use crate::writer::{Cursor, Writer};

/// A slot or link without a value.
pub(crate) const ABSENT: u32 = u32::MAX;

/// No container is open.
pub(crate) const NONE: u32 = u32::MAX;

/// Minimum number of bytes left for reading members by runs.
pub(crate) const RUN_BYTES_MIN: usize = 4 * BLOCK_BYTES;

/// Bytes looked at from the beginning of a value on.
pub(crate) const WORD_BYTES: usize = 9;

/// The text and the buffers of a parser, which it seldom touches.
pub(crate) struct Context<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) number: u32,
    pub(crate) writer: Writer<'a>,
    pub(crate) links: &'a mut Vec<u32>,
}

/// The progress of a parser. It is passed by value: a value that is never borrowed can stay in
/// registers.
#[derive(Clone, Copy)]
pub(crate) struct ParsePosition {
    pub(crate) at: u32,
    /// The number of arrays and objects that may still be opened inside each other.
    pub(crate) depth_left: u32,
    pub(crate) cursor: Cursor,
    pub(crate) lookahead: Lookahead,
}

/// The kind of the open container.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenKind {
    /// No container: the value is the whole text.
    Nothing,
    Array,
    Object,
}

/// The point at which a run of members ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Before a member.
    Member,
    /// Before the value of a member whose key was read.
    Value,
    /// After a value.
    After,
}

/// Reads a key, leading space allowed. Returns the positions of its quotes, and true if it holds
/// escapes.
#[inline(always)]
pub(crate) fn read_key<S: Scan>(
    scan: S,
    text: &[u8],
    mut at: u32,
) -> Result<(u32, u32, bool), Refused> {
    if byte(text, at) != b'"' {
        at = skip_space(text, at);
        if byte(text, at) != b'"' {
            return Err(Refused);
        }
    }
    let (close, escaped) = string(scan, text, at)?;
    Ok((at, close, escaped))
}

/// Gives an array a table of its elements, because some are more than one node.
#[inline(never)]
pub(crate) fn list_elements(mut cursor: Cursor, links: &mut Vec<u32>, array: u32, count: u32) {
    let table = links.len();
    links.reserve(count as usize + 1);
    links.push(count);
    let mut element = array + 1;
    links.extend((0..count).map(|_| {
        let this = element;
        element = cursor.node(element).end;
        this
    }));
    let array = cursor.node(array);
    array.meta |= TABLE;
    array.a = to_position(table);
}
