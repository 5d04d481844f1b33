//! Editing values in place: members, elements, nulls. All of it moves ids, never texts.

use crate::document::Document;
use crate::node::{ESCAPED, Node, NodeId, TABLE, Tag};
use crate::text::{OWNED, position};

/// Room for this many more children when a table is first made: an entity gains a few fields per
/// fetch that touches it.
const TABLE_ROOM: u32 = 4;

impl Document {
    /// Links `value` as member `key` of `object`: in place of the member that has this key, or as
    /// a new last one. Does nothing when `object` is no object.
    ///
    /// `value` is linked, not copied; see [sharing](Document#sharing).
    pub fn set(&mut self, object: NodeId, key: &str, value: NodeId) {
        let Some(object) = self.object_in_table(object) else { return };
        match self.find_pair(object, |document, node| document.key_is(node, key)) {
            Some(place) => self.links[place + 1] = value.0,
            None => {
                let key = self.new_key(key);
                self.append_pair(object, key, value);
            }
        }
    }

    /// Links `value` as the last element of `array`. Does nothing when `array` is no array.
    ///
    /// `value` is linked, not copied; see [sharing](Document#sharing).
    pub fn push(&mut self, array: NodeId, value: NodeId) {
        if let Some(array) = self.array_in_table(array) {
            self.grow_table(array, 1);
            let node = self.nodes[array as usize];
            self.links[(node.a + 1 + node.b) as usize] = value.0;
            self.nodes[array as usize].b += 1;
        }
    }

    /// Links `value` in place of element `i` of `array`. Returns whether there is such an element.
    pub fn set_at(&mut self, array: NodeId, i: usize, value: NodeId) -> bool {
        let Some(array) = self.array_in_table(array) else { return false };
        let node = self.nodes[array as usize];
        if i >= node.b as usize {
            return false;
        }
        self.links[node.a as usize + 1 + i] = value.0;
        true
    }

    /// Turns the value `n` itself into `null`, wherever it is linked.
    pub fn replace_with_null(&mut self, n: NodeId) {
        let n = self.resolve(n);
        if let Some(node) = self.nodes.get_mut(n.0 as usize) {
            *node = Node::new(Tag::Null, 0, OWNED, 0, 0, node.end);
        }
    }

    /// Unlinks member `key` of `object`. Returns whether there was one.
    pub fn remove(&mut self, object: NodeId, key: &str) -> bool {
        if self.get(object, key).is_none() {
            return false;
        }
        let Some(object) = self.object_in_table(object) else { return false };
        let Some(place) = self.find_pair(object, |document, node| document.key_is(node, key))
        else {
            return false;
        };
        let node = self.nodes[object as usize];
        let end = (node.a + 1 + 2 * node.b) as usize;
        self.links.copy_within(place + 2..end, place);
        self.nodes[object as usize].b -= 1;
        true
    }

    /// Makes a key node.
    pub(crate) fn new_key(&mut self, key: &str) -> u32 {
        let (start, bytes, escaped) = self.texts.own_string(key);
        let id = position(self.nodes.len());
        let flags = if escaped { ESCAPED } else { 0 };
        self.nodes.push(Node::new(Tag::String, flags, OWNED, start, bytes, id.saturating_add(1)));
        id
    }

    /// Position in `links` of the pair whose key node `matches`.
    pub(crate) fn find_pair(
        &self,
        object: u32,
        matches: impl Fn(&Document, u32) -> bool,
    ) -> Option<usize> {
        let node = self.stored(object);
        let place = self.pairs_of(node).chunks_exact(2).position(|pair| matches(self, pair[0]))?;
        Some(node.a as usize + 1 + 2 * place)
    }

    pub(crate) fn append_pair(&mut self, object: u32, key: u32, value: NodeId) {
        self.grow_table(object, 2);
        let node = self.nodes[object as usize];
        let end = (node.a + 1 + 2 * node.b) as usize;
        self.links[end] = key;
        self.links[end + 1] = value.0;
        self.nodes[object as usize].b += 1;
    }

    /// Brings an object into table form, if it is one. Of members with the same key the last
    /// stays, at the place of the first.
    pub(crate) fn object_in_table(&mut self, object: NodeId) -> Option<u32> {
        let object = self.resolve(object);
        let node = self.stored(object.0);
        if !node.is(Tag::Object) {
            return None;
        }
        if !node.has(TABLE) {
            let start = self.links.len();
            self.links.push(0);
            let mut cursor = self.member_cursor(object);
            let mut seen = 0u64;
            while let Some((key, value)) = self.next_member(&mut cursor) {
                // Keys are compared only where the filter says that they may be equal.
                let bit = self.key_bit(key);
                if seen & bit != 0
                    && let Some(place) = self.links[start + 1..]
                        .chunks_exact(2)
                        .position(|pair| self.keys_equal(pair[0], key))
                {
                    self.links[start + 2 + 2 * place] = value.0;
                } else {
                    self.links.extend([key, value.0]);
                }
                seen |= bit;
            }
            self.finish_table(object.0, start, 2);
        }
        Some(object.0)
    }

    /// Brings an array into table form, if it is one.
    pub(crate) fn array_in_table(&mut self, array: NodeId) -> Option<u32> {
        let array = self.resolve(array);
        let node = self.stored(array.0);
        if !node.is(Tag::Array) {
            return None;
        }
        if !node.has(TABLE) {
            let start = self.links.len();
            self.links.push(0);
            self.links.extend(array.0 + 1..array.0 + 1 + node.b);
            self.finish_table(array.0, start, 1);
        }
        Some(array.0)
    }

    /// Adds room to the table that begins at `start` and ends with `links`, and hangs it on `n`.
    fn finish_table(&mut self, n: u32, start: usize, words: u32) {
        let count = position(self.links.len() - start - 1) / words;
        let room = count + TABLE_ROOM;
        self.links.resize(start + 1 + (room * words) as usize, 0);
        self.links[start] = room * words;
        let node = &mut self.nodes[n as usize];
        node.meta |= TABLE;
        node.a = position(start);
        node.b = count;
    }

    /// Makes sure that one more child of `words` words fits into the table of `n`; a full table
    /// moves to the end of `links` with twice the room.
    fn grow_table(&mut self, n: u32, words: u32) {
        let node = self.nodes[n as usize];
        let used = node.b * words;
        // A container that was made empty has no table yet.
        let room = if node.b == 0 && node.a == 0 { 0 } else { self.links[node.a as usize] };
        if used + words <= room {
            return;
        }
        let start = self.links.len();
        let room = (2 * used).max(TABLE_ROOM * words);
        self.links.push(room);
        if used > 0 {
            let from = node.a as usize + 1;
            self.links.extend_from_within(from..from + used as usize);
        }
        self.links.resize(start + 1 + room as usize, 0);
        self.nodes[n as usize].a = position(start);
    }
}
