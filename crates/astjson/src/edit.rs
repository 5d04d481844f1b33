//! Edits values in place: members, elements, nulls. All edits move ids, never texts.

use crate::document::Document;
use crate::key_index::KeyIndex;
use crate::node::{ESCAPED, Node, NodeId, REPEATS, SLOTS, TABLE, Tag};
use crate::parser_state::ABSENT;
use crate::read::Key;
use crate::text::{OWNED, to_position};
use crate::token::KEY_HEAD_BYTES;

/// Spare room in a new table, in children: an entity gains a few fields with each fetch that
/// concerns it.
const TABLE_ROOM: u32 = 4;

impl Document {
    /// Links `value` as member `key` of `object`, in place of the member with this key or as a new
    /// last one. Does nothing if `object` is no object.
    ///
    /// `value` is linked, not copied; see [sharing](Document#sharing).
    pub fn set(&mut self, object: NodeId, key: &str, value: NodeId) {
        let Some(object) = self.editable(object) else { return };
        match self.member_place(object, |document, own| document.key_is(own, key)) {
            Some(place) => self.link_at(place, value),
            None => {
                let key = self.new_key(key);
                self.append_member(object, key, value);
            }
        }
    }

    /// Links `value` as the last element of `array`. Does nothing if `array` is no array.
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

    /// Links `value` in place of element `i` of `array`. Returns false if there is no such element.
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
            *node = Node { end: node.end, ..Node::NULL };
        }
    }

    /// Unlinks member `key` of `object`. Returns false if there was none.
    pub fn remove(&mut self, object: NodeId, key: &str) -> bool {
        if self.get(object, key).is_none() {
            return false;
        }
        let Some(object) = self.editable(object) else { return false };
        let Some(place) = self.member_place(object, |document, own| document.key_is(own, key))
        else {
            return false;
        };
        let node = self.nodes[object as usize];
        if node.has(SLOTS) && place < node.a as usize + self.slots_of(node) {
            self.links[place] = ABSENT;
            return true;
        }
        let table = if node.has(SLOTS) {
            self.others(node).and_then(|others| self.object_in_table(others))
        } else {
            Some(object)
        };
        let Some(table) = table else { return false };
        let node = self.nodes[table as usize];
        let end = (node.a + 1 + 2 * node.b) as usize;
        self.links.copy_within(place + 1..end, place - 1);
        self.nodes[table as usize].b -= 1;
        true
    }

    /// Makes a key node.
    pub(crate) fn new_key(&mut self, key: &str) -> u32 {
        let (start, bytes, escaped) = self.texts.own_string(key);
        let id = to_position(self.nodes.len());
        let flags = if escaped { ESCAPED } else { 0 };
        let mut head = [0; KEY_HEAD_BYTES];
        for (byte, own) in head.iter_mut().zip(self.texts.bytes(OWNED).iter().skip(start as usize))
        {
            *byte = *own;
        }
        let head = u32::from_le_bytes(head);
        self.nodes.push(Node::new(Tag::String, flags, OWNED, start, bytes, head));
        id
    }

    /// Brings an object into a form in which members can be linked: slots, or a table. `None` if
    /// `object` is no object.
    pub(crate) fn editable(&mut self, object: NodeId) -> Option<u32> {
        let object = self.resolve(object);
        let node = self.stored(object.0);
        if !node.has(SLOTS) {
            return self.object_in_table(object);
        }
        if let Some(others) = self.others(node) {
            self.object_in_table(others);
        }
        Some(object.0)
    }

    /// The number of slots of an object in slots.
    pub(crate) fn slots_of(&self, node: Node) -> usize {
        self.shapes.object(node.text()).map_or(0, |shape| shape.keys.len())
    }

    /// The index in `links` of the value whose key `matches`; the object must be
    /// [editable](Document::editable). A slot has an index even while it is empty.
    pub(crate) fn member_place(
        &self,
        object: u32,
        matches: impl Fn(&Document, Key) -> bool,
    ) -> Option<usize> {
        let mut node = self.stored(object);
        if node.has(SLOTS) {
            let shape = node.text();
            let slot = (0..self.slots_of(node) as u32)
                .find(|&slot| matches(self, Key::Slot { shape, slot }));
            if let Some(slot) = slot {
                return Some((node.a + slot) as usize);
            }
            node = self.node(self.others(node)?);
        }
        let pairs = self.pairs_of(node).chunks_exact(2);
        let place = pairs.clone().position(|pair| matches(self, Key::Node(pair[0])))?;
        Some(node.a as usize + 2 + 2 * place)
    }

    /// Links `value` at an index that [`member_place`](Document::member_place) returned.
    pub(crate) fn link_at(&mut self, place: usize, value: NodeId) {
        self.links[place] = value.0;
    }

    /// Adds a member to `object`, which must be [editable](Document::editable) and lack the key.
    pub(crate) fn append_member(&mut self, object: u32, key: u32, value: NodeId) {
        let node = self.nodes[object as usize];
        if !node.has(SLOTS) {
            return self.append_pair(object, key, value);
        }
        let others = self.others_or_new(object);
        if let Some(others) = self.object_in_table(others) {
            self.append_pair(others, key, value);
        }
    }

    /// The object that holds the members of an object in slots that its shape does not list; made
    /// if it is missing.
    pub(crate) fn others_or_new(&mut self, object: u32) -> NodeId {
        let node = self.nodes[object as usize];
        self.others(node).unwrap_or_else(|| {
            let others = self.new_object();
            let place = node.a as usize + self.slots_of(node);
            self.links[place] = others.0;
            others
        })
    }

    pub(crate) fn append_pair(&mut self, object: u32, key: u32, value: NodeId) {
        self.grow_table(object, 2);
        let node = self.nodes[object as usize];
        let end = (node.a + 1 + 2 * node.b) as usize;
        self.links[end] = key;
        self.links[end + 1] = value.0;
        self.nodes[object as usize].b += 1;
    }

    /// Brings an object that is not in slots into table form; `None` if `object` is no object. Of
    /// members with the same key the last stays, at the place of the first.
    pub(crate) fn object_in_table(&mut self, object: NodeId) -> Option<u32> {
        let object = self.resolve(object);
        let node = self.stored(object.0);
        if !node.is(Tag::Object) || node.has(SLOTS) {
            return None;
        }
        if !node.has(TABLE) || node.has(REPEATS) {
            let start = self.links.len();
            self.links.push(0);
            if node.b < 2 {
                // A single member needs no comparison; that of an in-line object is the next node.
                if node.b == 1 && !node.has(TABLE) {
                    self.links.extend_from_slice(&[object.0 + 1, object.0 + 2]);
                } else if let Some(&[key, value]) = self.pairs_of(node).first_chunk() {
                    self.links.extend_from_slice(&[key, value]);
                }
                self.finish_table(object.0, start, 2);
                return Some(object.0);
            }
            let mut cursor = self.member_cursor(object);
            let mut seen = 0u64;
            let mut index = KeyIndex::for_keys(node.b as usize);
            while let Some((key, value)) = self.next_member(&mut cursor) {
                let Key::Node(key_node) = key else { continue };
                let count = (self.links.len() - start - 1) / 2;
                let known = match &mut index {
                    Some(index) => index.insert(&self.key_decoded(key), count),
                    // Keys are compared only if the filter says that they may be equal.
                    None if self.note_key(&mut seen, key) => self.links[start + 1..]
                        .chunks_exact(2)
                        .position(|pair| self.keys_equal(Key::Node(pair[0]), key)),
                    None => None,
                };
                match known {
                    Some(place) => self.links[start + 2 + 2 * place] = value.0,
                    None => self.links.extend_from_slice(&[key_node, value.0]),
                }
            }
            self.finish_table(object.0, start, 2);
        }
        Some(object.0)
    }

    /// Notes a key in a filter. Returns true if a key that may be equal was noted before.
    pub(crate) fn note_key(&self, seen: &mut u64, key: Key) -> bool {
        let bit = self.key_bit(key);
        let before = *seen & bit != 0;
        *seen |= bit;
        before
    }

    /// Brings an array into table form; `None` if `array` is no array.
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

    /// Adds spare room to the table that begins at `start` and ends with `links`, and attaches it
    /// to `n`.
    fn finish_table(&mut self, n: u32, start: usize, words: u32) {
        let count = to_position(self.links.len() - start - 1) / words;
        let room = count + TABLE_ROOM;
        // With a fixed size the compiler writes the room without a call.
        for _ in 0..words {
            self.links.extend_from_slice(&[0; TABLE_ROOM as usize]);
        }
        self.links[start] = room * words;
        let node = &mut self.nodes[n as usize];
        node.meta = node.meta & !REPEATS | TABLE;
        node.a = to_position(start);
        node.b = count;
    }

    /// Makes sure that one more child of `words` words fits into the table of `n`. A full table
    /// moves to the end of `links` with twice the room.
    fn grow_table(&mut self, n: u32, words: u32) {
        let node = self.nodes[n as usize];
        let used = node.b * words;
        // A container that was created empty has no table yet.
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
        self.nodes[n as usize].a = to_position(start);
    }
}
