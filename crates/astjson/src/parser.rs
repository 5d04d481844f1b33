//! What the two parsers have in common: [`general`](crate::general), and [`shaped`](crate::shaped)
//! for texts of which a shape is known. Both are one pass, without recursion.
//!
//! What surrounds the open container is kept in its own node while it is open: `end` names the
//! container around it, `b` is how far that one is. So there is no stack, and nothing to allocate.

use crate::node::TABLE;
use crate::scan::{BLOCK_BYTES, Refused, Scan};
use crate::text::position;
use crate::token::{byte, skip_space, string};
use crate::window::Window;
use crate::writer::{Cursor, Writer};

/// A slot or link without a value.
pub(crate) const ABSENT: u32 = u32::MAX;

/// No container is open.
pub(crate) const NONE: u32 = u32::MAX;

/// Where fewer bytes are left, nothing is read by runs.
pub(crate) const RUN_BYTES_MIN: usize = 4 * BLOCK_BYTES;

/// What is looked at from the beginning of a value on.
pub(crate) const WORD_BYTES: usize = 9;

/// What a parser works on, and what it seldom touches.
pub(crate) struct Context<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) number: u32,
    pub(crate) writer: Writer<'a>,
    pub(crate) links: &'a mut Vec<u32>,
}

/// How far a parser has come. Handed over by value: what is never lent can stay in registers.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: u32,
    /// Arrays and objects that may still be opened inside each other.
    pub(crate) depth_left: u32,
    pub(crate) cursor: Cursor,
    pub(crate) window: Window,
}

/// The container that is open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inside {
    /// None: the value is the whole text.
    Nothing,
    Array,
    Object,
}

/// Where a run of members ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Before a member.
    Member,
    /// Before the value of a member whose key was read.
    Value,
    /// After a value.
    After,
}

/// Reads a key, space before it allowed. Returns the positions of its quotes, and whether it holds
/// escapes.
#[inline(always)]
pub(crate) fn key<S: Scan>(scan: S, text: &[u8], mut at: u32) -> Result<(u32, u32, bool), Refused> {
    if byte(text, at) != b'"' {
        at = skip_space(text, at);
        if byte(text, at) != b'"' {
            return Err(Refused);
        }
    }
    let (close, escaped) = string(scan, text, at)?;
    Ok((at, close, escaped))
}

/// Gives an array whose elements are not all single nodes a table of them.
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
    array.a = position(table);
}
