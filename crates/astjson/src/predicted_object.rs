//! Parses runs of members in the order that a shape predicts: scalars and objects, written without
//! space and escapes. This small loop covers most of a text and calls nothing, so that its state
//! stays in registers. Everything else is left to the loop in `shaped_parser`, which continues
//! where this one stopped.

use crate::node::{Node, SLOTS, Tag};
use crate::parser_state::{NONE, OpenKind, ParsePosition, Stop, WORD_BYTES};
use crate::scan::{HEAD_BYTES, Job, Scan, chunk};
use crate::shape::ShapeTree;
use crate::token::{plain_word, string_node};

/// Bytes looked at from the last byte of a value on: that byte, two bytes of punctuation, and the
/// next key.
const AFTER_BYTES: usize = 3 + HEAD_BYTES;

/// Reads members of an object in slots, of the objects in it, and of those that follow it in a
/// list.
pub(crate) struct ReadPredicted<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) number: u32,
    pub(crate) position: ParsePosition,
    pub(crate) tree: &'a ShapeTree,
    pub(crate) base: u32,
    /// Links of the document. Those that are not taken have no value yet.
    pub(crate) links: &'a mut [u32],
    pub(crate) links_taken: u32,
    /// The open object, and the head of the key that is expected first.
    pub(crate) parent: u32,
    pub(crate) head: u32,
}

/// Result of a run: the position that it reached, and the state there.
pub(crate) struct PredictedRun {
    pub(crate) position: ParsePosition,
    pub(crate) stop: Stop,
    pub(crate) links_taken: u32,
    /// The container that is open now.
    pub(crate) parent: u32,
    pub(crate) inside: OpenKind,
    /// The head of the expected key, or the number of elements of the array so far.
    pub(crate) progress: u32,
}

impl Job for ReadPredicted<'_> {
    type Output = PredictedRun;

    // Hot path: `cargo bench -p astjson -- shape`; 70 to 80 instructions a member, 100 an object.
    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> PredictedRun {
        let ReadPredicted { text, number, position, tree, base, links, mut links_taken, .. } = self;
        let ReadPredicted { mut parent, head: mut progress, .. } = self;
        let ParsePosition { mut at, mut depth_left, mut cursor, mut lookahead } = position;
        let (mut stop, mut inside) = (Stop::Member, OpenKind::Object);
        let (heads, outlines) = (&tree.heads[..], &tree.outlines[..]);
        let mut link = match heads.get(progress as usize) {
            Some(head) => cursor.node(parent).a + head.slot,
            None => 0,
        };
        let mut key = chunk::<HEAD_BYTES>(text, at);
        'member: while let Some(head) = heads.get(progress as usize) {
            match key {
                Some(key) if scan.begins_with(key, &head.key) => {}
                _ => break,
            }
            let begin = at + head.key.length;
            let index = cursor.next();
            let Some(look) = chunk::<WORD_BYTES>(text, begin) else { break };
            // If the value is not read here, the other loop sets the same link first.
            let Some(slot) = links.get_mut(link as usize) else { break };
            *slot = index;
            let mut after = if look[0] == b'"' {
                let Some(last) = lookahead.stop(scan, text, begin + 1) else { break };
                let Some(after) = chunk::<AFTER_BYTES>(text, last) else { break };
                let value = string_node(number, false, begin, last, index);
                // The string may be stopped by an escape.
                if after[0] != b'"' || !cursor.push_into_room([value]) {
                    break;
                }
                at = last + 1;
                after
            } else if look[..2] == *b"{\"" {
                (at, stop) = (begin, Stop::Value);
                let Some(outline) = outlines.get(head.object as usize) else { break };
                let room = links.len() - links_taken as usize;
                if depth_left == 0 || outline.links as usize > room {
                    break;
                }
                let shape = base + head.object;
                let object =
                    Node::new(Tag::Object, SLOTS, shape, links_taken, progress + 1, parent);
                if !cursor.push_into_room([object]) {
                    break;
                }
                (parent, progress, link) = (index, outline.first, links_taken);
                links_taken += outline.links;
                depth_left -= 1;
                at += 1;
                stop = Stop::Member;
                key = chunk(text, at);
                continue;
            } else {
                let Some((tag, length)) = plain_word(look) else {
                    (at, stop) = (begin, Stop::Value);
                    break;
                };
                let Some(after) = chunk::<AFTER_BYTES>(text, begin + length - 1) else { break };
                let value = Node::new(tag, 0, number, begin, length, index + 1);
                if !cursor.push_into_room([value]) {
                    break;
                }
                at = begin + length;
                after
            };
            progress += 1;
            link += 1;
            while after[1] != b',' {
                stop = Stop::After;
                if after[1] != b'}' {
                    break 'member;
                }
                let Some(beyond) = chunk::<AFTER_BYTES>(text, at) else { break 'member };
                let end = cursor.next();
                (parent, progress) = cursor.close(parent, 0);
                depth_left += 1;
                at += 1;
                if parent == NONE {
                    inside = OpenKind::Nothing;
                    break 'member;
                }
                after = beyond;
                let outer = *cursor.node(parent);
                if !outer.is(Tag::Array) {
                    let Some(head) = heads.get(progress as usize) else { break 'member };
                    link = outer.a + head.slot;
                    continue;
                }
                // Most often another object follows.
                inside = OpenKind::Array;
                let Some(outline) = outlines.get(outer.a as usize) else { break 'member };
                let room = links.len() - links_taken as usize;
                if after[1..4] != *b",{\"" || outline.links as usize > room {
                    break 'member;
                }
                let shape = base + outer.a;
                let sibling =
                    Node::new(Tag::Object, SLOTS, shape, links_taken, progress + 1, parent);
                if !cursor.push_into_room([sibling]) {
                    break 'member;
                }
                (parent, progress, link) = (end, outline.first, links_taken);
                links_taken += outline.links;
                depth_left -= 1;
                inside = OpenKind::Object;
                at += 2;
                stop = Stop::Member;
                key = after[3..].first_chunk();
                continue 'member;
            }
            stop = Stop::Member;
            at += 1;
            key = after[2..].first_chunk();
        }
        let position = ParsePosition { at, depth_left, cursor, lookahead };
        PredictedRun { position, stop, links_taken, parent, inside, progress }
    }
}
