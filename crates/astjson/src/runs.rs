//! Runs of members as most texts have them: scalars, written without space and escapes. These
//! small loops read them and call nothing, so that all they work on stays in registers; whatever
//! else comes up is left to the loop in `parser`, which goes on from where they stopped.

use crate::node::Node;
use crate::parser::ABSENT;
use crate::scan::{BLOCK_BYTES, HEAD_BYTES, Job, KeyHead, Scan, chunk};
use crate::token::{KEY_HEAD_BYTES, key_node, plain_word, string_node};
use crate::window::Window;
use crate::writer::Cursor;

/// Where fewer bytes are left, there is no run.
pub(crate) const RUN_BYTES_MIN: usize = 4 * BLOCK_BYTES;

/// What is looked at from the closing quote of a key on: that, the colon, the value.
const COLON_BYTES: usize = 2 + WORD_BYTES;

/// What is looked at from the beginning of a value on.
const WORD_BYTES: usize = 9;

/// What is looked at from the last byte of a value on: that, the comma, the quote of the next key,
/// and what a node holds of that.
const AFTER_BYTES: usize = 3 + KEY_HEAD_BYTES;

/// How far a run has come.
pub(crate) struct Ran {
    /// Where the next member begins; where the value does, if `known`; or, if `ended`, what
    /// follows the last value.
    pub(crate) at: u32,
    pub(crate) cursor: Cursor,
    pub(crate) window: Window,
    /// Members that were read; in slots, those whose slot was empty.
    pub(crate) count: u32,
    /// The next expected slot.
    pub(crate) slot: u32,
    /// What follows the last value is not another member written without space.
    pub(crate) ended: bool,
    /// The key of the next member was read (and its node made, or it is that of the expected slot),
    /// and something else than a plain scalar follows.
    pub(crate) known: bool,
}

/// Reads members of an object without a shape.
pub(crate) struct Members<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) number: u32,
    pub(crate) at: u32,
    pub(crate) cursor: Cursor,
    pub(crate) window: Window,
}

impl Job for Members<'_> {
    type Made = Ran;

    // Hot path: some 80 instructions a member.
    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> Ran {
        let Members { text, number, mut at, mut cursor, mut window } = self;
        let mut count = 0;
        let (mut ended, mut known) = (false, false);
        // The key begins behind a quote at `at`.
        let begun = chunk::<{ 1 + KEY_HEAD_BYTES }>(text, at).filter(|begun| begun[0] == b'"');
        let mut head = begun.and_then(|begun| begun.last_chunk());
        while let Some(key) = head {
            let Some(close) = window.stop(scan, text, at + 1) else { break };
            let Some(colon) = chunk::<COLON_BYTES>(text, close) else { break };
            if colon[..2] != *b"\":" {
                break;
            }
            let index = cursor.next();
            let key_node = key_node(number, false, at, close, key);
            let begin = close + 2;
            let after = if colon[2] == b'"' {
                let Some(last) = window.stop(scan, text, begin + 1) else { break };
                let Some(after) = chunk::<AFTER_BYTES>(text, last) else { break };
                let value = string_node(number, false, begin, last, index + 1);
                // It may be an escape that stops it.
                if after[0] != b'"' || !cursor.push_into_room([key_node, value]) {
                    break;
                }
                at = last + 1;
                after
            } else {
                let word = colon.last_chunk().and_then(plain_word);
                let Some((tag, length)) = word else {
                    if cursor.push_into_room([key_node]) {
                        (at, known) = (begin, true);
                    }
                    break;
                };
                let Some(after) = chunk::<AFTER_BYTES>(text, begin + length - 1) else { break };
                let value = Node::new(tag, 0, number, begin, length, index + 2);
                if !cursor.push_into_room([key_node, value]) {
                    break;
                }
                at = begin + length;
                after
            };
            count += 1;
            if after[1..3] != *b",\"" {
                ended = true;
                break;
            }
            at += 1;
            head = after.last_chunk();
        }
        Ran { at, cursor, window, count, slot: 0, ended, known }
    }
}

/// Reads members of an object with slots, as long as they come in the order of its shape.
pub(crate) struct Follow<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) number: u32,
    pub(crate) at: u32,
    pub(crate) cursor: Cursor,
    pub(crate) window: Window,
    /// The keys of the shape, and the slots.
    pub(crate) heads: &'a [KeyHead],
    pub(crate) slots: &'a mut [u32],
    /// The slot that is expected first.
    pub(crate) slot: u32,
}

impl Job for Follow<'_> {
    type Made = Ran;

    // Hot path: some 60 instructions a member.
    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> Ran {
        const NEXT_BYTES: usize = 2 + HEAD_BYTES;
        let Follow { text, number, mut at, mut cursor, mut window, heads, slots, mut slot } = self;
        let mut count = 0;
        let (mut ended, mut known) = (false, false);
        let heads = heads.get(slot as usize..).unwrap_or_default();
        let slots = slots.get_mut(slot as usize..).unwrap_or_default();
        let mut key = chunk::<HEAD_BYTES>(text, at);
        for (head, link) in heads.iter().zip(slots) {
            match key {
                Some(key) if scan.begins_with(key, head) => {}
                _ => break,
            }
            let begin = at + head.length;
            let index = cursor.next();
            let Some(look) = chunk::<WORD_BYTES>(text, begin) else { break };
            let after = if look[0] == b'"' {
                let Some(last) = window.stop(scan, text, begin + 1) else { break };
                let Some(after) = chunk::<NEXT_BYTES>(text, last) else { break };
                let value = string_node(number, false, begin, last, index);
                // It may be an escape that stops it.
                if after[0] != b'"' || !cursor.push_into_room([value]) {
                    break;
                }
                at = last + 1;
                after
            } else {
                let Some((tag, length)) = plain_word(look) else {
                    (at, known) = (begin, true);
                    break;
                };
                let Some(after) = chunk::<NEXT_BYTES>(text, begin + length - 1) else { break };
                let value = Node::new(tag, 0, number, begin, length, index + 1);
                if !cursor.push_into_room([value]) {
                    break;
                }
                at = begin + length;
                after
            };
            // Of duplicate keys the last counts, once.
            count += u32::from(*link == ABSENT);
            *link = index;
            slot += 1;
            if after[1] != b',' {
                ended = true;
                break;
            }
            at += 1;
            key = after.last_chunk();
        }
        Ran { at, cursor, window, count, slot, ended, known }
    }
}
