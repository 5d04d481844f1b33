//! Reads values: kinds, texts, members, elements, paths.

use std::borrow::Cow;

use crate::document::Document;
use crate::node::{ESCAPED, Kind, Node, NodeId, REAL, SLOTS, TABLE, Tag};
use crate::parser_state::ABSENT;
use crate::shape::Shape;
use crate::string;
use crate::text::equal;

/// One step of a path into a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PathSegment<'a> {
    /// The member with this key.
    Key(&'a str),
    /// The element at this place, counted from 0.
    Index(usize),
}

impl<'a> From<&'a str> for PathSegment<'a> {
    fn from(key: &'a str) -> Self {
        Self::Key(key)
    }
}

impl From<usize> for PathSegment<'_> {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

impl Document {
    /// The kind of value `n`.
    pub fn kind(&self, n: NodeId) -> Kind {
        match self.node(n).tag() {
            Tag::Null | Tag::Reference => Kind::Null,
            Tag::False | Tag::True => Kind::Bool,
            Tag::Number => Kind::Number,
            Tag::String => Kind::String,
            Tag::Array => Kind::Array,
            Tag::Object => Kind::Object,
        }
    }

    /// True if `n` is `null`.
    pub fn is_null(&self, n: NodeId) -> bool {
        self.node(n).is(Tag::Null)
    }

    /// The value of a boolean; `None` for other kinds.
    pub fn as_bool(&self, n: NodeId) -> Option<bool> {
        match self.node(n).tag() {
            Tag::True => Some(true),
            Tag::False => Some(false),
            _ => None,
        }
    }

    /// The decoded text of a string. Allocates only if there are escapes to decode.
    ///
    /// An escaped lone surrogate names no character and is decoded to U+FFFD.
    pub fn as_str(&self, n: NodeId) -> Option<Cow<'_, str>> {
        let node = self.node(n);
        node.is(Tag::String).then(|| self.decoded(node))
    }

    /// A number as an `i64`, if it is written as an integer and fits.
    pub fn as_i64(&self, n: NodeId) -> Option<i64> {
        let node = self.node(n);
        if node.is(Tag::Number) { self.literal(node).parse().ok() } else { None }
    }

    /// A number as the nearest `f64`.
    pub fn as_f64(&self, n: NodeId) -> Option<f64> {
        let node = self.node(n);
        if node.is(Tag::Number) { self.literal(node).parse().ok() } else { None }
    }

    /// True if `n` is a number written without fraction and exponent.
    pub fn is_integer(&self, n: NodeId) -> bool {
        let node = self.node(n);
        node.is(Tag::Number) && !node.has(REAL)
    }

    /// True if `n` is the string `wanted`. Understands escapes and does not allocate.
    pub fn str_eq(&self, n: NodeId, wanted: &str) -> bool {
        let node = self.node(n);
        node.is(Tag::String) && self.literal_is(node, wanted)
    }

    /// The exact text of a scalar as it was parsed or made, strings with their quotes. Empty for
    /// arrays and objects: use [`print`](Document::print) for those.
    pub fn raw(&self, n: NodeId) -> &str {
        let node = self.node(n);
        match node.tag() {
            Tag::Null | Tag::False | Tag::True | Tag::Number => self.literal(node),
            Tag::String => self.texts.part(
                node.text(),
                node.a as usize - 1,
                node.a as usize + node.b as usize + 1,
            ),
            Tag::Array | Tag::Object | Tag::Reference => "",
        }
    }

    /// The value of member `key`; of several with this key, the last. `None` if there is none, or
    /// `object` is not an object.
    ///
    /// Compares the members one after the other, which suits the small objects of typical
    /// responses.
    pub fn get(&self, object: NodeId, key: &str) -> Option<NodeId> {
        let node = self.node(object);
        if !node.is(Tag::Object) {
            return None;
        }
        if node.has(SLOTS) {
            let shape = self.shapes.object(node.text())?;
            return match shape.slot(key) {
                Some(slot) => self.link(node.a as usize + slot),
                None => self.get(self.others(node)?, key),
            };
        }
        if node.has(TABLE) {
            let pairs = self.pairs_of(node);
            // The search goes from the end, because the last of several counts.
            let pair = pairs.chunks_exact(2).rfind(|pair| self.key_is(Key::Node(pair[0]), key));
            return pair.map(|pair| NodeId(pair[1]));
        }
        let mut found = None;
        let mut at = self.resolve(object).0 + 1;
        while at < node.end {
            let value = at + 1;
            if self.key_is(Key::Node(at), key) {
                found = Some(NodeId(value));
            }
            at = self.stored(value).end;
        }
        found
    }

    /// Like [`get`](Document::get), for callers that know the `slot` of the member if the object
    /// has slots. A wrong number costs only time.
    #[inline]
    pub fn get_near(&self, object: NodeId, key: &str, slot: usize) -> Option<NodeId> {
        let node = self.node(object);
        if node.has(SLOTS)
            && let Some(own) = self.shapes.object(node.text())?.keys.get(slot)
            && *own.text == *key
        {
            return self.link(node.a as usize + slot);
        }
        self.get(object, key)
    }

    /// The kind and the exact text ([`raw`](Document::raw)) of a value in one access.
    #[inline]
    pub fn kind_and_raw(&self, n: NodeId) -> (Kind, &str) {
        let node = self.node(n);
        match node.tag() {
            Tag::String => {
                let (start, bytes) = (node.a as usize, node.b as usize);
                (Kind::String, self.texts.part(node.text(), start - 1, start + bytes + 1))
            }
            Tag::Number => (Kind::Number, self.literal(node)),
            Tag::False | Tag::True => (Kind::Bool, self.literal(node)),
            Tag::Null => (Kind::Null, self.literal(node)),
            Tag::Array => (Kind::Array, ""),
            Tag::Object => (Kind::Object, ""),
            Tag::Reference => (Kind::Null, ""),
        }
    }

    /// The slots of an object, if they are those of object `number` of the
    /// [linked](crate::Shape::linked) `shape`. For callers that read many slots.
    #[inline]
    pub fn slots(&self, object: NodeId, shape: &Shape, number: usize) -> Option<Slots<'_>> {
        let node = self.node(object);
        if !node.has(SLOTS) {
            return None;
        }
        let keys = self.shapes.object_of(node.text(), shape, number)?.keys.len();
        let links = self.links.get(node.a as usize..node.a as usize + keys)?;
        Some(Slots { links })
    }

    /// The value in slot `slot` of an object that was parsed by a shape. The number is the index of
    /// the key in [`ObjectSpec::fields`](crate::ObjectSpec::fields). `None` if the object has no
    /// such member, or its shape does not list it.
    #[inline]
    pub fn slot(&self, object: NodeId, slot: usize) -> Option<NodeId> {
        let node = self.node(object);
        if !node.has(SLOTS) || slot >= self.shapes.object(node.text())?.keys.len() {
            return None;
        }
        self.link(node.a as usize + slot)
    }

    /// True if an object was parsed by a shape and has numbered slots.
    pub fn has_slots(&self, object: NodeId) -> bool {
        self.node(object).has(SLOTS)
    }

    /// Element `i` of an array, counted from 0.
    pub fn at(&self, array: NodeId, i: usize) -> Option<NodeId> {
        let node = self.node(array);
        if !node.is(Tag::Array) || i >= node.b as usize {
            return None;
        }
        if node.has(TABLE) {
            self.links.get(node.a as usize + 1 + i).copied().map(NodeId)
        } else {
            Some(NodeId(self.resolve(array).0 + 1 + i as u32))
        }
    }

    /// The value at the end of `path`.
    pub fn get_path(&self, root: NodeId, path: &[PathSegment<'_>]) -> Option<NodeId> {
        path.iter().try_fold(root, |n, segment| match *segment {
            PathSegment::Key(key) => self.get(n, key),
            PathSegment::Index(i) => self.at(n, i),
        })
    }

    /// Appends to `found` every value that following `keys` from `root` leads to, in the order of
    /// the text. Arrays on the way, and at the end, are replaced by their elements; a `null` or a
    /// missing member ends its branch.
    ///
    /// This finds the objects that a list of entities belongs to: `["products", "reviews",
    /// "author"]`.
    pub fn select_into(&self, root: NodeId, keys: &[&str], found: &mut Vec<NodeId>) {
        self.select(root, keys, found, 0);
    }

    fn select(&self, n: NodeId, keys: &[&str], found: &mut Vec<NodeId>, depth: usize) {
        // Only nested lists and keys recurse; the bound ends values that contain themselves.
        const DEPTH_MAX: usize = 256;
        if depth > DEPTH_MAX {
            return;
        }
        match (self.kind(n), keys) {
            (Kind::Array, _) => {
                for element in self.elements(n) {
                    self.select(element, keys, found, depth + 1);
                }
            }
            (Kind::Null, _) => {}
            (_, []) => found.push(n),
            (Kind::Object, [key, rest @ ..]) => {
                if let Some(value) = self.get(n, key) {
                    self.select(value, rest, found, depth + 1);
                }
            }
            _ => {}
        }
    }

    /// The number of elements of an array or members of an object; 0 for scalars.
    pub fn len(&self, n: NodeId) -> usize {
        let node = self.node(n);
        if !node.is_container() {
            return 0;
        }
        if !node.has(SLOTS) {
            return node.b as usize;
        }
        let slots = node.a as usize..node.a as usize + self.slots_of(node);
        let links = self.links.get(slots).unwrap_or_default();
        let taken = links.iter().filter(|link| **link != ABSENT).count();
        taken + self.others(node).map_or(0, |others| self.len(others))
    }

    /// True if `n` has no elements or members.
    pub fn is_empty(&self, n: NodeId) -> bool {
        self.len(n) == 0
    }

    /// The elements of an array in order; none for other kinds.
    pub fn elements(&self, array: NodeId) -> Elements<'_> {
        let node = self.node(array);
        if !node.is(Tag::Array) {
            return Elements { table: Some(&[]), next: 0, end: 0 };
        }
        if node.has(TABLE) {
            return Elements { table: Some(self.ids_of(node)), next: 0, end: 0 };
        }
        let first = self.resolve(array).0 + 1;
        Elements { table: None, next: first, end: first + node.b }
    }

    /// The members of an object in order, with decoded keys; none for other kinds.
    pub fn members(&self, object: NodeId) -> Members<'_> {
        Members { document: self, cursor: self.member_cursor(object) }
    }

    /// Ids of the elements of an array in table form.
    pub(crate) fn ids_of(&self, node: Node) -> &[u32] {
        let from = node.a as usize + 1;
        self.links.get(from..from + node.b as usize).unwrap_or_default()
    }

    /// Key and value ids of the members of an object in table form.
    pub(crate) fn pairs_of(&self, node: Node) -> &[u32] {
        let from = node.a as usize + 1;
        self.links.get(from..from + 2 * node.b as usize).unwrap_or_default()
    }

    /// Content of a string between its quotes, or the text of a number.
    #[inline(always)]
    pub(crate) fn literal(&self, node: Node) -> &str {
        self.texts.part(node.text(), node.a as usize, node.a as usize + node.b as usize)
    }

    /// The same as bytes, for comparing.
    #[inline(always)]
    pub(crate) fn literal_bytes(&self, node: Node) -> &[u8] {
        let (from, to) = (node.a as usize, node.a as usize + node.b as usize);
        self.texts.bytes(node.text()).get(from..to).unwrap_or_default()
    }

    pub(crate) fn decoded(&self, node: Node) -> Cow<'_, str> {
        let text = self.literal(node);
        if node.has(ESCAPED) { string::decode(text) } else { Cow::Borrowed(text) }
    }

    #[inline]
    pub(crate) fn literal_is(&self, node: Node, wanted: &str) -> bool {
        if node.has(ESCAPED) {
            string::decodes_to(self.literal(node), wanted)
        } else {
            node.b as usize == wanted.len() && equal(self.literal_bytes(node), wanted.as_bytes())
        }
    }

    #[inline]
    pub(crate) fn key_is(&self, key: Key, wanted: &str) -> bool {
        match key {
            Key::Node(node) => self.literal_is(self.stored(node), wanted),
            Key::Slot { shape, slot } => {
                equal(self.slot_key(shape, slot).as_bytes(), wanted.as_bytes())
            }
        }
    }

    /// True if two keys are equal.
    pub(crate) fn keys_equal(&self, left: Key, right: Key) -> bool {
        match (left, right) {
            (Key::Slot { shape, slot }, other) | (other, Key::Slot { shape, slot }) => {
                self.key_is(other, self.slot_key(shape, slot))
            }
            (Key::Node(left), Key::Node(right)) => {
                if left == right {
                    return true;
                }
                let (l, r) = (self.stored(left), self.stored(right));
                if (l.meta | r.meta) & ESCAPED != 0 {
                    string::decode_equal(self.literal(l), self.literal(r))
                } else {
                    l.b == r.b && equal(self.literal_bytes(l), self.literal_bytes(r))
                }
            }
        }
    }

    pub(crate) fn key_decoded(&self, key: Key) -> Cow<'_, str> {
        match key {
            Key::Node(node) => self.decoded(self.stored(node)),
            Key::Slot { shape, slot } => Cow::Borrowed(self.slot_key(shape, slot)),
        }
    }

    /// The key of a slot.
    pub(crate) fn slot_key(&self, shape: u32, slot: u32) -> &str {
        let key = self.shapes.object(shape).and_then(|shape| shape.keys.get(slot as usize));
        key.map_or("", |key| &key.text)
    }

    /// The value that a link or slot leads to.
    #[inline(always)]
    pub(crate) fn link(&self, place: usize) -> Option<NodeId> {
        self.links.get(place).copied().filter(|&id| id != ABSENT).map(NodeId)
    }

    /// The object of the members that an object in slots has in addition to its shape.
    pub(crate) fn others(&self, node: Node) -> Option<NodeId> {
        let shape = self.shapes.object(node.text())?;
        self.link(node.a as usize + shape.keys.len())
    }

    pub(crate) fn member_cursor(&self, object: NodeId) -> MemberCursor {
        let node = self.node(object);
        if !node.is(Tag::Object) {
            return MemberCursor::InLine { at: 0, end: 0 };
        }
        if node.has(SLOTS) {
            let count = self.shapes.object(node.text()).map_or(0, |shape| shape.keys.len() as u32);
            return MemberCursor::Slots { shape: node.text(), at: node.a, slot: 0, count };
        }
        if node.has(TABLE) {
            let at = node.a + 1;
            return MemberCursor::Table { at, end: at + 2 * node.b };
        }
        MemberCursor::InLine { at: self.resolve(object).0 + 1, end: node.end }
    }

    /// The next member under `cursor`.
    #[inline]
    pub(crate) fn next_member(&self, cursor: &mut MemberCursor) -> Option<(Key, NodeId)> {
        loop {
            match cursor {
                MemberCursor::InLine { at, end } => {
                    if *at >= *end {
                        return None;
                    }
                    let key = *at;
                    *at = self.stored(key + 1).end;
                    return Some((Key::Node(key), NodeId(key + 1)));
                }
                MemberCursor::Table { at, end } => {
                    if *at >= *end {
                        return None;
                    }
                    let pair = self.links.get(*at as usize..*at as usize + 2)?;
                    *at += 2;
                    return Some((Key::Node(pair[0]), NodeId(pair[1])));
                }
                MemberCursor::Slots { shape, at, slot, count } => {
                    let (shape, taken) = (*shape, *slot);
                    let value = self.link((*at + taken) as usize);
                    if taken == *count {
                        // After the slots comes the object of the other members, a table.
                        *cursor = self.member_cursor(value?);
                        continue;
                    }
                    *slot += 1;
                    if let Some(value) = value {
                        return Some((Key::Slot { shape, slot: taken }, value));
                    }
                }
            }
        }
    }
}

/// The key of a member.
#[derive(Clone, Copy)]
pub(crate) enum Key {
    /// A key node.
    Node(u32),
    /// A slot of a shape.
    Slot { shape: u32, slot: u32 },
}

/// A position among the members of an object.
#[derive(Clone, Copy)]
pub(crate) enum MemberCursor {
    /// Key and value nodes in turn.
    InLine { at: u32, end: u32 },
    /// Pairs of ids in `links`.
    Table { at: u32, end: u32 },
    /// Slots in `links`.
    Slots { shape: u32, at: u32, slot: u32, count: u32 },
}

/// The slots of an object. See [`Document::slots`].
#[derive(Clone, Copy, Debug)]
pub struct Slots<'a> {
    links: &'a [u32],
}

impl Slots<'_> {
    /// The value in a slot, if there is one.
    #[inline]
    pub fn get(self, slot: usize) -> Option<NodeId> {
        self.links.get(slot).copied().filter(|&id| id != ABSENT).map(NodeId)
    }
}

/// The elements of an array. See [`Document::elements`].
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    table: Option<&'a [u32]>,
    next: u32,
    end: u32,
}

impl Iterator for Elements<'_> {
    type Item = NodeId;

    fn next(&mut self) -> Option<NodeId> {
        match &mut self.table {
            Some(ids) => {
                let (first, rest) = ids.split_first()?;
                *ids = rest;
                Some(NodeId(*first))
            }
            None => {
                let next = self.next;
                (next < self.end).then(|| {
                    self.next += 1;
                    NodeId(next)
                })
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.table.map_or((self.end - self.next) as usize, <[u32]>::len);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Elements<'_> {}

/// The members of an object. See [`Document::members`].
pub struct Members<'a> {
    document: &'a Document,
    cursor: MemberCursor,
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, NodeId);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.document.next_member(&mut self.cursor)?;
        Some((self.document.key_decoded(key), value))
    }
}
