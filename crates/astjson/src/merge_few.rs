//! Merging small objects, which is what nearly all are: their keys are compared one by one, where
//! they are. The object that is merged into gets a table only if its own members change.

use crate::document::Document;
use crate::merge::{Level, Pending};
use crate::node::{ESCAPED, Node, NodeId, REPEATS, SLOTS, TABLE};
use crate::read::Key;
use crate::text::position;
use crate::token::KEY_HEAD_BYTES;

/// Members that two objects may have together.
const FEW: u32 = 8;

/// Words of the table that a small object gets: their number, and room for so many members.
const TABLE_WORDS: usize = 1 + 2 * FEW as usize;

/// Such a table.
const EMPTY: [u32; TABLE_WORDS] = {
    let mut words = [0; TABLE_WORDS];
    words[0] = TABLE_WORDS as u32 - 1;
    words
};

/// A place among the members of an object.
#[derive(Clone, Copy)]
struct Walk {
    /// The next key node, or a place in `links`.
    at: u32,
    in_table: bool,
    left: u32,
}

impl Document {
    /// Merges an object of one member, follows that down as long as it is such an object too, and
    /// returns what is left to merge. (What answers wrap around the rest, `data` for example.)
    // Hot path: `cargo bench -p astjson -- micro`; some 100 instructions a level.
    #[inline(always)]
    pub(crate) fn merge_lone(
        &mut self,
        mut target: NodeId,
        mut source: NodeId,
        mut level: Level,
    ) -> Option<Pending> {
        'level: loop {
            let rest = Some(Pending { target, source, level });
            let (Some(left), Some(right)) =
                (self.nodes.get(target.0 as usize), self.nodes.get(source.0 as usize))
            else {
                return rest;
            };
            let (in_table, count, table) = (left.has(TABLE), left.b, left.a);
            if !left.is_object_without(SLOTS | REPEATS)
                || !right.is_object_without(SLOTS | TABLE)
                || right.b != 1
                || target == source
                || !(in_table && count <= FEW || count <= 1)
                || level.is_too_deep()
            {
                return rest;
            }
            let (key, value) = (source.0 + 1, source.0 + 2);
            let lone = [target.0 + 1, target.0 + 2];
            for place in 0..count {
                let own = match in_table {
                    true => self.links.get((table + 1 + 2 * place) as usize..),
                    false => lone.get(..),
                };
                let Some(&[own_key, own]) = own.and_then(|own| own.first_chunk()) else {
                    return rest;
                };
                if !self.same_key(own_key, key) {
                    continue;
                }
                let (old, new) = (self.stored(own), self.stored(value));
                if !old.is_object_without(0) || !new.is_object_without(0) || own == value {
                    return rest;
                }
                (target, source, level) = (NodeId(own), NodeId(value), level.below());
                continue 'level;
            }
            let value = self.resolve(NodeId(value));
            match in_table {
                true => self.append_pair(target.0, key, value),
                false => self.add_second(target, count, key, value),
            }
            return None;
        }
    }

    /// Links a member behind the one, if any, that an object in line has.
    #[inline(always)]
    fn add_second(&mut self, object: NodeId, count: u32, key: u32, value: NodeId) {
        let table = self.links.len();
        let mut words = EMPTY;
        [words[1], words[2]] = [object.0 + 1, object.0 + 2];
        let place = if count == 0 { 1 } else { 3 };
        [words[place], words[place + 1]] = [key, value.0];
        self.links.extend_from_slice(&words);
        if let Some(node) = self.nodes.get_mut(object.0 as usize) {
            node.meta |= TABLE;
            (node.a, node.b) = (position(table), count + 1);
        }
    }

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
                self.add_member(target, key, value);
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

    /// Links a member that a small object does not have.
    #[inline(always)]
    fn add_member(&mut self, object: NodeId, key: u32, value: NodeId) {
        let node = self.stored(object.0);
        if node.has(TABLE) {
            return self.append_pair(object.0, key, value);
        }
        self.give_table(object);
        let place = self.links.len() - TABLE_WORDS + 1 + 2 * node.b as usize;
        if let (Some(pair), Some(node)) =
            (self.links.get_mut(place..place + 2), self.nodes.get_mut(object.0 as usize))
        {
            pair.copy_from_slice(&[key, value.0]);
            node.b += 1;
        }
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
        self.links.extend_from_slice(&EMPTY);
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
        // What stands behind a shorter key does not count.
        let beyond = 8 * (KEY_HEAD_BYTES as u32).saturating_sub(l.b);
        if l.b != r.b || u64::from(l.end ^ r.end) << 32 << beyond != 0 {
            return false;
        }
        l.b as usize <= KEY_HEAD_BYTES || self.literal_bytes(l) == self.literal_bytes(r)
    }
}

#[inline(always)]
fn walk(object: NodeId, node: Node) -> Walk {
    let in_table = node.has(TABLE);
    let at = if in_table { node.a } else { object.0 } + 1;
    Walk { at, in_table, left: node.b }
}
