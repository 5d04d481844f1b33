//! Merges small objects, which are nearly all of them: their keys are compared one by one, in
//! place. The target gets a table only if its own members change.

use crate::document::Document;
use crate::node::{ESCAPED, Node, NodeId, REPEATS, SLOTS, TABLE};
use crate::pending::{MergeLevel, Pending};
use crate::read::Key;
use crate::text::to_position;
use crate::token::KEY_HEAD_BYTES;

/// Maximum number of members that two small objects have together.
const SMALL_MEMBERS_MAX: u32 = 8;

/// Words of the table of a small object: the number of words, and room for the members.
const TABLE_WORDS: usize = 1 + 2 * SMALL_MEMBERS_MAX as usize;

/// The empty table of a small object.
const EMPTY: [u32; TABLE_WORDS] = {
    let mut words = [0; TABLE_WORDS];
    words[0] = TABLE_WORDS as u32 - 1;
    words
};

/// A position among the members of an object.
#[derive(Clone, Copy)]
struct MemberWalk {
    /// The next key node, or a position in `links`.
    at: u32,
    in_table: bool,
    left: u32,
}

impl Document {
    /// Merges an object of one member and descends as long as the next object has one member too.
    /// Returns the pair that is left to merge. Responses wrap their content in such objects, for
    /// example `data`.
    // Hot path: `cargo bench -p astjson -- micro`; some 100 instructions a level.
    #[inline(always)]
    pub(crate) fn merge_single_members(
        &mut self,
        mut target: NodeId,
        mut source: NodeId,
        mut level: MergeLevel,
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
                || !(in_table && count <= SMALL_MEMBERS_MAX || count <= 1)
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

    /// Links a member after the only member, if any, of an in-line object.
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
            (node.a, node.b) = (to_position(table), count + 1);
        }
    }

    /// Merges two objects if they are small, not in slots, and hold no key twice. Returns false if
    /// they are not. Members that are objects in both are left pending.
    // Hot path: `cargo bench -p astjson -- micro`.
    pub(crate) fn merge_small_objects(
        &mut self,
        pair: Pending,
        pending: &mut Vec<Pending>,
    ) -> bool {
        let (target, source) = (self.resolve(pair.target), self.resolve(pair.source));
        let (left, right) = (self.stored(target.0), self.stored(source.0));
        if left.b.saturating_add(right.b) > SMALL_MEMBERS_MAX
            || (left.meta | right.meta) & (SLOTS | REPEATS) != 0
            || self.may_repeat(target, left)
            || self.may_repeat(source, right)
        {
            return false;
        }
        let mut new = walk_members(source, right);
        while let Some([key, value]) = self.next_small_member(&mut new) {
            let value = self.resolve(NodeId(value));
            let Some((place, own)) = self.find_small_member(target, key) else {
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

    /// True if an in-line object may hold a key twice. May return true in error, never false.
    #[inline(always)]
    fn may_repeat(&self, object: NodeId, node: Node) -> bool {
        if node.b < 2 || node.has(TABLE) {
            return false;
        }
        let (mut members, mut seen) = (walk_members(object, node), 0);
        while let Some([key, _]) = self.next_small_member(&mut members) {
            if self.note_key(&mut seen, Key::Node(key)) {
                return true;
            }
        }
        false
    }

    /// Returns the ids of the key and value of the next member.
    #[inline(always)]
    fn next_small_member(&self, walk: &mut MemberWalk) -> Option<[u32; 2]> {
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

    /// Finds the member with the same key: its index, and its value.
    #[inline(always)]
    fn find_small_member(&self, object: NodeId, wanted: u32) -> Option<(usize, u32)> {
        let mut members = walk_members(object, self.stored(object.0));
        let mut place = 0;
        while let Some([key, value]) = self.next_small_member(&mut members) {
            if self.same_key(key, wanted) {
                return Some((place, value));
            }
            place += 1;
        }
        None
    }

    /// Links a member that a small object lacks.
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

    /// Gives a small in-line object a table.
    #[inline(always)]
    fn give_table(&mut self, object: NodeId) {
        let node = self.stored(object.0);
        if node.has(TABLE) {
            return;
        }
        let table = self.links.len();
        // With a fixed size the compiler writes the table without a call.
        self.links.extend_from_slice(&EMPTY);
        let (mut members, mut at) = (walk_members(object, node), table + 1);
        while let Some(member) = self.next_small_member(&mut members) {
            if let Some(pair) = self.links.get_mut(at..at + 2) {
                pair.copy_from_slice(&member);
            }
            at += 2;
        }
        if let Some(node) = self.nodes.get_mut(object.0 as usize) {
            node.meta |= TABLE;
            node.a = to_position(table);
        }
    }

    /// True if two key nodes have the same key.
    #[inline(always)]
    fn same_key(&self, left: u32, right: u32) -> bool {
        let (l, r) = (self.stored(left), self.stored(right));
        if (l.meta | r.meta) & ESCAPED != 0 {
            return self.keys_equal(Key::Node(left), Key::Node(right));
        }
        // Bytes after a shorter key do not count.
        let beyond = 8 * (KEY_HEAD_BYTES as u32).saturating_sub(l.b);
        if l.b != r.b || u64::from(l.end ^ r.end) << 32 << beyond != 0 {
            return false;
        }
        l.b as usize <= KEY_HEAD_BYTES || self.literal_bytes(l) == self.literal_bytes(r)
    }
}

#[inline(always)]
fn walk_members(object: NodeId, node: Node) -> MemberWalk {
    let in_table = node.has(TABLE);
    let at = if in_table { node.a } else { object.0 } + 1;
    MemberWalk { at, in_table, left: node.b }
}
