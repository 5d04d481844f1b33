//! Parses runs of members without a shape: scalars and objects, written without space and escapes.
//! This small loop covers most of a text and calls nothing, so that its state stays in registers.
//! Everything else is left to the loop in `generic_parser`, which continues where this one stopped.

use crate::node::{Node, Tag};
use crate::parser_state::{NONE, OpenKind, ParsePosition, Stop, WORD_BYTES, list_elements};
use crate::scan::{Job, Scan, chunk};
use crate::token::{KEY_HEAD_BYTES, key_node, plain_word, string_node};

/// Bytes looked at from the closing quote of a key on: that quote, the colon, the value.
const COLON_BYTES: usize = 2 + WORD_BYTES;

/// Bytes looked at from the last byte of a value on: that byte, two bytes of punctuation, the quote
/// of the next key, and the part of that key that its node holds.
const AFTER_BYTES: usize = 4 + KEY_HEAD_BYTES;

/// Reads members of an object, of the objects in it, and of those that follow it in a list.
pub(crate) struct ReadMembers<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) number: u32,
    pub(crate) links: &'a mut Vec<u32>,
    pub(crate) position: ParsePosition,
    /// The open object, and the number of its members so far.
    pub(crate) parent: u32,
    pub(crate) count: u32,
}

/// Result of a run: the position that it reached, and the state there.
pub(crate) struct ObjectRun {
    pub(crate) position: ParsePosition,
    pub(crate) stop: Stop,
    /// The container that is open now.
    pub(crate) parent: u32,
    pub(crate) inside: OpenKind,
    pub(crate) count: u32,
}

impl Job for ReadMembers<'_> {
    type Output = ObjectRun;

    // Hot path: some 80 instructions a member.
    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> ObjectRun {
        let ReadMembers { text, number, links, position, mut parent, mut count } = self;
        let ParsePosition { mut at, mut depth_left, mut cursor, mut lookahead } = position;
        let (mut stop, mut inside) = (Stop::Member, OpenKind::Object);
        // The key begins after a quote at `at`.
        let begun = chunk::<{ 1 + KEY_HEAD_BYTES }>(text, at).filter(|begun| begun[0] == b'"');
        let mut head: Option<&[u8; KEY_HEAD_BYTES]> = begun.and_then(|begun| begun.last_chunk());
        'member: while let Some(key) = head {
            let Some(close) = lookahead.stop(scan, text, at + 1) else { break };
            let Some(colon) = chunk::<COLON_BYTES>(text, close) else { break };
            if colon[..2] != *b"\":" {
                break;
            }
            let index = cursor.next();
            let key_node = key_node(number, false, at, close, key);
            let begin = close + 2;
            let mut after = if colon[2] == b'"' {
                let Some(last) = lookahead.stop(scan, text, begin + 1) else { break };
                let Some(after) = chunk::<AFTER_BYTES>(text, last) else { break };
                let value = string_node(number, false, begin, last, index + 1);
                // The string may be stopped by an escape.
                if after[0] != b'"' || !cursor.push_into_room([key_node, value]) {
                    break;
                }
                at = last + 1;
                after
            } else if colon[2..4] == *b"{\"" && depth_left > 0 {
                let object = Node::new(Tag::Object, 0, number, 0, count + 1, parent);
                if !cursor.push_into_room([key_node, object]) {
                    break;
                }
                (parent, count) = (index + 1, 0);
                depth_left -= 1;
                at = begin + 1;
                head = colon[4..].first_chunk();
                continue;
            } else if colon[2..5] == *b"[{\"" && depth_left > 1 {
                let array = Node::new(Tag::Array, 0, number, 0, count + 1, parent);
                let object = Node::new(Tag::Object, 0, number, 0, 0, index + 1);
                if !cursor.push_into_room([key_node, array, object]) {
                    break;
                }
                (parent, count) = (index + 2, 0);
                depth_left -= 2;
                at = begin + 2;
                head = colon[5..].first_chunk();
                continue;
            } else {
                let word = colon.last_chunk().and_then(plain_word);
                let Some((tag, length)) = word else {
                    if cursor.push_into_room([key_node]) {
                        (at, stop) = (begin, Stop::Value);
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
            while after[1..3] != *b",\"" {
                stop = Stop::After;
                if after[1] != b'}' {
                    break 'member;
                }
                let Some(beyond) = chunk::<AFTER_BYTES>(text, at) else { break 'member };
                let end = cursor.next();
                (parent, count) = cursor.close(parent, count);
                depth_left += 1;
                at += 1;
                if parent == NONE {
                    inside = OpenKind::Nothing;
                    break 'member;
                }
                after = beyond;
                if !cursor.node(parent).is(Tag::Array) {
                    continue;
                }
                let sibling = Node::new(Tag::Object, 0, number, 0, count + 1, parent);
                if after[1..4] == *b",{\"" && cursor.push_into_room([sibling]) {
                    (parent, count) = (end, 0);
                    depth_left -= 1;
                    at += 2;
                    stop = Stop::Member;
                    head = after[4..].first_chunk();
                    continue 'member;
                }
                inside = OpenKind::Array;
                let beyond = chunk::<AFTER_BYTES>(text, at);
                let (b']', Some(beyond)) = (after[1], beyond) else { break 'member };
                // At least the last element is more than one node.
                let (array, elements) = (parent, count + 1);
                (parent, count) = cursor.close(array, elements);
                list_elements(cursor, links, array, elements);
                depth_left += 1;
                at += 1;
                if parent == NONE {
                    inside = OpenKind::Nothing;
                    break 'member;
                }
                if cursor.node(parent).is(Tag::Array) {
                    break 'member;
                }
                inside = OpenKind::Object;
                after = beyond;
            }
            stop = Stop::Member;
            at += 1;
            head = after[3..].first_chunk();
        }
        let position = ParsePosition { at, depth_left, cursor, lookahead };
        ObjectRun { position, stop, parent, inside, count }
    }
}
