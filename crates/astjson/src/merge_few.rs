//! Merging small objects, which is what nearly all are: their keys are compared one by one, where
//! they are. The object that is merged into gets a table only if its own members change.

use crate::document::Document;
use crate::merge::Pending;
use crate::node::{ESCAPED, Node, NodeId, REPEATS, SLOTS, TABLE};
use crate::read::Key;
use crate::text::{equal, position};

/// Members that two objects may have together.
const FEW: u32 = 8;

/// Words of the table that a small object gets: their number, and room for so many members.
const TABLE_WORDS: usize = 1 + 2 * FEW as usize;

/// A place among the members of an object.
#[derive(Clone, Copy)]
struct Walk {
    /// The next key node, or a place in `links`.
    at: u32,
    in_table: bool,
    left: u32,
}

impl Document {
    /// Merges two objects if they are small, not in slots, and hold no key twice. Returns whether it
    /// did. What is inside both is left pending.
    // Hot path: `cargo bench -p astjson -- micro`.
    pub(crate) fn merge_few(&mut self, pair: Pending, pending: &mut Vec<Pending>) -> bool {
        let (target, source) = (self.resolve(pair.target), self.resolve(pair.source));
        let (left, right) = (self.stored(target.0), self.stored(source.0));
        if left.b.saturating_add(right.b) > FEW
            || (left.meta | right.meta) & (SLOTS | REPEATS) != 0
            || self.may_repeat(target, left)
            || self.may_repeat(source, right)
        {
            return false;
        }
        let mut new = walk(source, right);
        while let Some([key, value]) = self.step(&mut new) {
            let value = self.resolve(NodeId(value));
            let Some((place, own)) = self.find(target, key) else {
                self.give_table(target);
                self.append_pair(target.0, key, value);
                continue;
            };
            let old = self.resolve(NodeId(own));
            if old == value || (pair.level.fills && self.is_null(value)) {
                continue;
            }
            if self.both_containers(old, value) {
                pending.push(Pending { target: old, source: value, level: pair.level.below() });
                continue;
            }
            self.give_table(target);
            let table = self.stored(target.0).a as usize;
            if let Some(link) = self.links.get_mut(table + 2 + 2 * place) {
                *link = value.0;
            }
        }
        true
    }

    /// Whether an object in line may hold a key twice. May say yes in error, never no.
    #[inline(always)]
    fn may_repeat(&self, object: NodeId, node: Node) -> bool {
        if node.b < 2 || node.has(TABLE) {
            return false;
        }
        let (mut members, mut seen) = (walk(object, node), 0);
        while let Some([key, _]) = self.step(&mut members) {
            if self.see(&mut seen, Key::Node(key)) {
                return true;
            }
        }
        false
    }

    /// The next member: ids of its key and value.
    #[inline(always)]
    fn step(&self, walk: &mut Walk) -> Option<[u32; 2]> {
        walk.left = walk.left.checked_sub(1)?;
        if walk.in_table {
            let member = self.links.get(walk.at as usize..)?.first_chunk().copied();
            walk.at += 2;
            return member;
        }
        let key = walk.at;
        walk.at = self.stored(key + 1).end;
        Some([key, key + 1])
    }

    /// The member with the same key: which it is, and its value.
    #[inline(always)]
    fn find(&self, object: NodeId, wanted: u32) -> Option<(usize, u32)> {
        let mut members = walk(object, self.stored(object.0));
        let mut place = 0;
        while let Some([key, value]) = self.step(&mut members) {
            if self.same_key(key, wanted) {
                return Some((place, value));
            }
            place += 1;
        }
        None
    }

    /// Gives a small object in line a table.
    #[inline(always)]
    fn give_table(&mut self, object: NodeId) {
        let node = self.stored(object.0);
        if node.has(TABLE) {
            return;
        }
        let table = self.links.len();
        // Of a fixed size, it is written without a call.
        self.links.extend_from_slice(&[0; TABLE_WORDS]);
        self.links[table] = TABLE_WORDS as u32 - 1;
        let (mut members, mut at) = (walk(object, node), table + 1);
        while let Some(member) = self.step(&mut members) {
            if let Some(pair) = self.links.get_mut(at..at + 2) {
                pair.copy_from_slice(&member);
            }
            at += 2;
        }
        if let Some(node) = self.nodes.get_mut(object.0 as usize) {
            node.meta |= TABLE;
            node.a = position(table);
        }
    }

    /// Whether two key nodes are the same key.
    #[inline(always)]
    fn same_key(&self, left: u32, right: u32) -> bool {
        let (l, r) = (self.stored(left), self.stored(right));
        if (l.meta | r.meta) & ESCAPED != 0 {
            return self.keys_equal(Key::Node(left), Key::Node(right));
        }
        l.b == r.b && equal(self.literal_bytes(l), self.literal_bytes(r))
    }
}

#[inline(always)]
fn walk(object: NodeId, node: Node) -> Walk {
    let in_table = node.has(TABLE);
    let at = if in_table { node.a } else { object.0 } + 1;
    Walk { at, in_table, left: node.b }
}
