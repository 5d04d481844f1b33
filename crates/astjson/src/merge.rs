//! Merging trees: ids are relinked, texts never touched, nothing recurses.

use crate::document::{Document, WALK_DEPTH_MAX};
use crate::error::MergeError;
use crate::node::{ESCAPED, Node, NodeId, TABLE, Tag};
use crate::read::PathSegment;

/// Pairs that one merge looks at, at most. Trees never come near: an arena that large would take
/// gigabytes. It ends merges of values that contain themselves several times over.
const MERGE_STEPS_MAX: u32 = 1 << 26;

/// A pair that is still to be merged.
#[derive(Clone, Copy)]
pub(crate) struct Pending {
    target: NodeId,
    source: NodeId,
    depth: u32,
}

impl Document {
    /// Merges `source` into `target`, deeply.
    ///
    /// - Two objects: members of `source` that `target` lacks are linked into it; the others are
    ///   merged.
    /// - Two arrays of equal length: element by element.
    /// - Anything else: the right side wins, also where it is `null`.
    ///
    /// Values of `source` are linked, not copied; see [sharing](Document#sharing). `source` itself
    /// stays as it is, as long as it shares nothing with `target`.
    ///
    /// # Errors
    ///
    /// When two arrays of different length meet, or values are nested deeper than
    /// [`WALK_DEPTH_MAX`] (contain themselves). What was merged until then stays.
    pub fn merge(&mut self, target: NodeId, source: NodeId) -> Result<(), MergeError> {
        let (target, source) = (self.resolve(target), self.resolve(source));
        if target == source {
            return Ok(());
        }
        if !self.both_containers(target, source) {
            self.replace(target, source);
            return Ok(());
        }
        // The work list is kept in the document, so that a warm merge does not allocate.
        let mut pending = std::mem::take(&mut self.pending);
        pending.clear();
        pending.push(Pending { target, source, depth: 0 });
        let result = self.merge_pending(&mut pending);
        self.pending = pending;
        result
    }

    /// Merges `source` into what `path` leads to from `root`. Objects that are missing on the way,
    /// or `null`, are made.
    ///
    /// # Errors
    ///
    /// As [`merge`](Document::merge), and when the path leads through another kind of value or
    /// past the end of an array.
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

    /// Makes the value `target` be what `source` is, wherever it is linked. Both are resolved and
    /// not the same; so references never form a circle.
    fn replace(&mut self, target: NodeId, source: NodeId) {
        let new = self.stored(source.0);
        let Some(old) = self.nodes.get_mut(target.0 as usize) else { return };
        *old = if new.is_container() {
            Node::new(Tag::Reference, 0, 0, source.0, 0, old.end)
        } else {
            Node { end: old.end, ..new }
        };
    }

    fn both_containers(&self, left: NodeId, right: NodeId) -> bool {
        let (left, right) = (self.node(left), self.node(right));
        left.is_container() && left.tag() == right.tag()
    }

    fn merge_pending(&mut self, pending: &mut Vec<Pending>) -> Result<(), MergeError> {
        let mut steps = 0;
        while let Some(pair) = pending.pop() {
            steps += 1;
            if pair.depth as usize > WALK_DEPTH_MAX || steps > MERGE_STEPS_MAX {
                return Err(MergeError::TooDeep);
            }
            if self.node(pair.target).is(Tag::Array) {
                self.merge_arrays(pair, pending)?;
            } else {
                self.merge_objects(pair, pending);
            }
        }
        Ok(())
    }

    fn merge_arrays(
        &mut self,
        Pending { target, source, depth }: Pending,
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
                pending.push(Pending { target: left, source: right, depth: depth + 1 });
            } else {
                self.set_at(target, i, right);
            }
        }
        Ok(())
    }

    fn merge_objects(
        &mut self,
        Pending { target, source, depth }: Pending,
        pending: &mut Vec<Pending>,
    ) {
        let source = self.resolve(source);
        if self.may_repeat_keys(source) {
            // As a table the object has only the members that count.
            self.object_in_table(source);
        }
        let mut cursor = self.member_cursor(source);
        while let Some((key, value)) = self.next_member(&mut cursor) {
            let value = self.resolve(value);
            match self.member_like(target, key) {
                Some(old) if self.resolve(old) == value => {}
                Some(old) if self.both_containers(old, value) => {
                    let target = self.resolve(old);
                    pending.push(Pending { target, source: value, depth: depth + 1 });
                }
                Some(_) => {
                    let place = self.object_in_table(target).and_then(|object| {
                        self.find_pair(object, |d, node| d.keys_equal(node, key))
                    });
                    if let Some(place) = place {
                        self.links[place + 1] = value.0;
                    }
                }
                None => {
                    if let Some(object) = self.object_in_table(target) {
                        self.append_pair(object, key, value);
                    }
                }
            }
        }
    }

    /// The member of `object` that has the same key as key node `key`; of several the last.
    fn member_like(&self, object: NodeId, key: u32) -> Option<NodeId> {
        let mut cursor = self.member_cursor(object);
        let mut found = None;
        while let Some((other, value)) = self.next_member(&mut cursor) {
            if self.keys_equal(other, key) {
                found = Some(value);
            }
        }
        found
    }

    /// Whether a parsed object may hold a key twice. May say yes in error, never no.
    fn may_repeat_keys(&self, object: NodeId) -> bool {
        let node = self.node(object);
        if node.has(TABLE) || node.b < 2 {
            return false;
        }
        let mut cursor = self.member_cursor(object);
        let mut seen = 0u64;
        while let Some((key, _)) = self.next_member(&mut cursor) {
            let bit = self.key_bit(key);
            if seen & bit != 0 {
                return true;
            }
            seen |= bit;
        }
        false
    }

    /// A bit for a filter over keys: equal keys share a bit.
    pub(crate) fn key_bit(&self, key: u32) -> u64 {
        let node = self.stored(key);
        if node.has(ESCAPED) {
            return u64::MAX;
        }
        let bytes = self.literal(node).as_bytes();
        let (first, last) = (bytes.first().copied(), bytes.last().copied());
        let mix = u32::from(last.unwrap_or_default()) + 5 * u32::from(first.unwrap_or_default());
        1 << ((mix + 11 * node.b) & 63)
    }
}
