//! Merges trees: ids are relinked, texts are never read, and nothing recurses.

use crate::document::Document;
use crate::error::MergeError;
use crate::key_index::KeyIndex;
use crate::node::{ESCAPED, Node, NodeId, REPEATS, SLOTS, TABLE, Tag};
use crate::parser_state::ABSENT;
use crate::pending::{MergeLevel, Pending};
use crate::read::{Key, PathSegment};

/// Maximum number of pairs that one merge compares. Trees never come near: an arena of that size
/// would take gigabytes. The bound ends merges of values that contain themselves several times.
const MERGE_STEPS_MAX: u32 = 1 << 26;

impl Document {
    /// Merges `source` into `target`, deeply.
    ///
    /// - Two objects: members of `source` that `target` lacks are linked into it; the others are
    ///   merged.
    /// - Two arrays of equal length: element by element.
    /// - Anything else: the right side wins, also if it is `null`.
    ///
    /// Values of `source` are linked, not copied; see [sharing](Document#sharing). `source` itself
    /// does not change, as long as it shares nothing with `target`.
    ///
    /// # Errors
    ///
    /// Two arrays have different lengths, or values are nested deeper than [`WALK_DEPTH_MAX`](crate::WALK_DEPTH_MAX)
    /// (contain themselves). Members that were merged before stay merged.
    pub fn merge(&mut self, target: NodeId, source: NodeId) -> Result<(), MergeError> {
        self.merge_from(target, source, MergeLevel::new(false))
    }

    /// Merges as [`merge`](Document::merge) does, but a `null` member or element of `source` never
    /// replaces a value of `target`.
    ///
    /// # Errors
    ///
    /// As [`merge`](Document::merge).
    pub fn merge_filling(&mut self, target: NodeId, source: NodeId) -> Result<(), MergeError> {
        self.merge_from(target, source, MergeLevel::new(true))
    }

    #[inline(never)]
    fn merge_from(
        &mut self,
        target: NodeId,
        source: NodeId,
        level: MergeLevel,
    ) -> Result<(), MergeError> {
        let Some(Pending { target, source, level }) =
            self.merge_single_members(target, source, level)
        else {
            return Ok(());
        };
        self.merge_rest(Pending { target, source, level })
    }

    /// Merges a pair that is not handled as objects of a single member.
    #[inline(never)]
    fn merge_rest(&mut self, pair: Pending) -> Result<(), MergeError> {
        let (target, source) = (self.resolve(pair.target), self.resolve(pair.source));
        if target == source {
            return Ok(());
        }
        let (left, right) = (self.stored(target.0), self.stored(source.0));
        if left.has(SLOTS) && left.meta == right.meta {
            // Both objects have the same shape, as entities do.
            return self.merge_entities(target, source, pair.level);
        }
        if !self.both_containers(target, source) {
            self.replace(target, source);
            return Ok(());
        }
        // The document keeps the work list, so that a warm merge does not allocate.
        let mut pending = std::mem::take(&mut self.pending);
        pending.clear();
        pending.push(Pending { target, source, ..pair });
        let result = self.merge_pending(&mut pending);
        self.pending = pending;
        result
    }

    /// Merges two objects in slots that have the same shape.
    // Hot path: once for each entity and place of it; some ten instructions a slot.
    #[inline(never)]
    fn merge_entities(
        &mut self,
        target: NodeId,
        source: NodeId,
        level: MergeLevel,
    ) -> Result<(), MergeError> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.clear();
        self.merge_slots(target, source, level, &mut pending);
        let result = if pending.is_empty() { Ok(()) } else { self.merge_pending(&mut pending) };
        self.pending = pending;
        result
    }

    /// Merges `source` into the value at `path` from `root`. Objects on the way that are missing,
    /// or `null`, are made.
    ///
    /// # Errors
    ///
    /// As [`merge`](Document::merge); also if the path leads through another kind of value or past
    /// the end of an array.
    pub fn merge_at(
        &mut self,
        root: NodeId,
        path: &[PathSegment<'_>],
        source: NodeId,
    ) -> Result<(), MergeError> {
        let mut target = root;
        for (segment, step) in path.iter().enumerate() {
            let next = match *step {
                PathSegment::Index(i) => self.at(target, i),
                PathSegment::Key(key) => match self.get(target, key) {
                    Some(value) if segment + 1 < path.len() && self.is_null(value) => {
                        self.set_new_object(target, key)
                    }
                    None if self.node(target).is(Tag::Object) => self.set_new_object(target, key),
                    found => found,
                },
            };
            target = next.ok_or(MergeError::NoSuchPath { segment })?;
        }
        self.merge(target, source)
    }

    fn set_new_object(&mut self, parent: NodeId, key: &str) -> Option<NodeId> {
        let object = self.new_object();
        self.set(parent, key, object);
        Some(object)
    }

    /// Makes the value `target` equal to `source`, wherever it is linked. Both ids are resolved and
    /// different, so references never form a cycle.
    fn replace(&mut self, target: NodeId, source: NodeId) {
        let new = self.stored(source.0);
        let Some(old) = self.nodes.get_mut(target.0 as usize) else { return };
        *old = if new.is_container() {
            Node::new(Tag::Reference, 0, 0, source.0, 0, old.end)
        } else {
            Node { end: old.end, ..new }
        };
    }

    pub(crate) fn both_containers(&self, left: NodeId, right: NodeId) -> bool {
        let (left, right) = (self.node(left), self.node(right));
        left.is_container() && left.tag() == right.tag()
    }

    fn merge_pending(&mut self, pending: &mut Vec<Pending>) -> Result<(), MergeError> {
        let mut steps = 0;
        while let Some(pair) = pending.pop() {
            steps += 1;
            if pair.level.is_too_deep() || steps > MERGE_STEPS_MAX {
                return Err(MergeError::TooDeep);
            }
            if self.node(pair.target).is(Tag::Array) {
                self.merge_arrays(pair, pending)?;
            } else if !self.merge_small_objects(pair, pending) {
                self.merge_objects(pair, pending);
            }
        }
        Ok(())
    }

    fn merge_arrays(
        &mut self,
        Pending { target, source, level }: Pending,
        pending: &mut Vec<Pending>,
    ) -> Result<(), MergeError> {
        let (targets, sources) = (self.len(target), self.len(source));
        if targets != sources {
            return Err(MergeError::ArrayLength { target: targets, source: sources });
        }
        for i in 0..targets {
            let (Some(left), Some(right)) = (self.at(target, i), self.at(source, i)) else { break };
            let (left, right) = (self.resolve(left), self.resolve(right));
            if left == right {
                continue;
            }
            if self.both_containers(left, right) {
                pending.push(Pending { target: left, source: right, level: level.below() });
            } else if !(level.fills && self.is_null(right)) {
                self.set_at(target, i, right);
            }
        }
        Ok(())
    }

    fn merge_objects(
        &mut self,
        Pending { target, source, level }: Pending,
        pending: &mut Vec<Pending>,
    ) {
        let (target, source) = (self.resolve(target), self.resolve(source));
        let (left, right) = (self.stored(target.0), self.stored(source.0));
        if left.has(SLOTS) && right.has(SLOTS) && left.text() == right.text() {
            self.merge_slots(target, source, level, pending);
            return;
        }
        if self.may_repeat_keys(source) {
            // As a table the object has only the members that count.
            self.editable(source);
        }
        if left.has(SLOTS) {
            self.merge_into_slots(target, source, level, pending);
            return;
        }
        let Some(object) = self.object_in_table(target) else { return };
        let mut index = self.index_members(target, source);
        let mut cursor = self.member_cursor(source);
        // Members often have the same order on both sides.
        let mut expected = 0;
        while let Some((key, value)) = self.next_member(&mut cursor) {
            let place = match &mut index {
                Some(index) => {
                    let next = self.len(target);
                    let known = index.insert(&self.key_decoded(key), next);
                    known.map(|place| self.stored(object).a as usize + 2 + 2 * place)
                }
                None => self
                    .expected_place(object, expected, key)
                    .or_else(|| self.member_place(object, |d, own| d.keys_equal(own, key))),
            };
            let Some(place) = place else {
                let key = self.key_node(key);
                self.append_member(object, key, value);
                continue;
            };
            expected = place + 2;
            self.merge_link(place, value, level, pending);
        }
    }

    /// Merges `source` into the object in slots `target`, which has the same shape.
    fn merge_slots(
        &mut self,
        target: NodeId,
        source: NodeId,
        level: MergeLevel,
        pending: &mut Vec<Pending>,
    ) {
        let (left, right) = (self.stored(target.0), self.stored(source.0));
        let slots = self.slots_of(left);
        let (to, from) = (left.a as usize, right.a as usize);
        for slot in 0..slots {
            let Some(value) = self.link(from + slot) else { continue };
            let value = self.resolve(value);
            match self.links.get_mut(to + slot) {
                // Most slots are empty: there is nothing to merge with.
                Some(link) if *link == ABSENT => *link = value.0,
                _ => self.merge_link(to + slot, value, level, pending),
            }
        }
        // The last link is the object of the other members; it is merged as one.
        if let Some(others) = self.link(from + slots) {
            let own = self.others_or_new(target.0);
            pending.push(Pending { target: own, source: others, level: level.below() });
        }
    }

    /// Merges `source`, in whatever form it is, into the object in slots `target`.
    fn merge_into_slots(
        &mut self,
        target: NodeId,
        source: NodeId,
        level: MergeLevel,
        pending: &mut Vec<Pending>,
    ) {
        let left = self.stored(target.0);
        let mut others = None;
        let mut cursor = self.member_cursor(source);
        while let Some((key, value)) = self.next_member(&mut cursor) {
            let shape = self.shapes.object(left.text());
            if let Some(slot) = shape.and_then(|shape| shape.slot(&self.key_decoded(key))) {
                self.merge_link(left.a as usize + slot, value, level, pending);
                continue;
            }
            let others = *others.get_or_insert_with(|| self.new_object());
            let key = self.key_node(key);
            self.append_member(others.0, key, value);
        }
        if let Some(others) = others {
            let own = self.others_or_new(target.0);
            pending.push(Pending { target: own, source: others, level: level.below() });
        }
    }

    /// The node of a key; made if the key is that of a slot.
    fn key_node(&mut self, key: Key) -> u32 {
        match key {
            Key::Node(node) => node,
            Key::Slot { .. } => {
                let key = self.key_decoded(key).into_owned();
                self.new_key(&key)
            }
        }
    }

    /// Merges `value` into the value linked at `place`.
    fn merge_link(
        &mut self,
        place: usize,
        value: NodeId,
        level: MergeLevel,
        pending: &mut Vec<Pending>,
    ) {
        let value = self.resolve(value);
        match self.link(place).map(|old| self.resolve(old)) {
            Some(old) if old == value => {}
            Some(old) if self.both_containers(old, value) => {
                pending.push(Pending { target: old, source: value, level: level.below() });
            }
            Some(_) if level.fills && self.is_null(value) => {}
            _ => self.link_at(place, value),
        }
    }

    /// Returns `place` if the table of `object` has a pair with this key there.
    fn expected_place(&self, object: u32, place: usize, key: Key) -> Option<usize> {
        let node = self.stored(object);
        let first = node.a as usize + 2;
        let place = place.max(first);
        let inside = place < first + 2 * node.b as usize;
        (inside && self.keys_equal(Key::Node(self.links[place - 1]), key)).then_some(place)
    }

    /// An index over the members of a table, if merging `source` into it is worth one.
    fn index_members(&self, target: NodeId, source: NodeId) -> Option<KeyIndex> {
        let node = self.stored(target.0);
        let mut index = KeyIndex::for_keys(self.len(target).min(self.len(source)))?;
        for (place, pair) in self.pairs_of(node).chunks_exact(2).enumerate() {
            index.insert(&self.key_decoded(Key::Node(pair[0])), place);
        }
        Some(index)
    }

    /// True if an object may hold a key twice. May return true in error, never false.
    fn may_repeat_keys(&self, object: NodeId) -> bool {
        let node = self.stored(object.0);
        if node.has(REPEATS | SLOTS) {
            // The other members of an object in slots may.
            return true;
        }
        if node.has(TABLE) || node.b < 2 {
            return false;
        }
        let mut cursor = self.member_cursor(object);
        let mut seen = 0u64;
        while let Some((key, _)) = self.next_member(&mut cursor) {
            if self.note_key(&mut seen, key) {
                return true;
            }
        }
        false
    }

    /// The bit of a key in a filter: equal keys share a bit.
    pub(crate) fn key_bit(&self, key: Key) -> u64 {
        let Key::Node(key) = key else { return u64::MAX };
        let node = self.stored(key);
        if node.has(ESCAPED) {
            return u64::MAX;
        }
        let bytes = self.literal_bytes(node);
        let (first, last) = (bytes.first().copied(), bytes.last().copied());
        let mix = u32::from(last.unwrap_or_default()) + 5 * u32::from(first.unwrap_or_default());
        1 << ((mix + 11 * node.b) & 63)
    }
}
