//! Shapes: what a caller expects of a text, compiled for the parser.
//!
//! A shape says which keys the objects at each place will have, in which order they are likely to
//! come, and what the values are like. Objects that are parsed by it have numbered slots in place
//! of keys. Lists are not part of a shape: a shape for an object is a shape for lists of such
//! objects too, however nested.

use std::fmt;
use std::sync::Arc;

use crate::node::TEXTS_MAX;
use crate::scan::KeyHead;
use crate::string::{self, print_string};
use crate::text::position;

/// How deep a shape goes. What is nested deeper is parsed as if nothing were known of it.
/// Operations are limited to less; see the limits of whoever makes shapes of them.
pub const SHAPE_DEPTH_MAX: usize = 128;

/// Most keys in one object of a shape; further ones count as [other](Others) keys.
pub const SHAPE_KEYS_MAX: usize = u16::MAX as usize;

/// Stands for a key that was listed before. No text has it: it is a control character, and looking
/// for it finds nothing.
const TAKEN: &str = "\0";

/// The key whose value selects among alternatives.
const TYPE_KEY: &str = "__typename";

/// What is expected at some place of a text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ShapeSpec {
    /// Anything: parsed into general nodes.
    #[default]
    Any,
    /// Objects, or lists of objects. Anything else that turns up is parsed as it is.
    Object(ObjectSpec),
}

impl ShapeSpec {
    /// An object with these keys, in the order in which they are likely to come.
    pub fn object<K: Into<Box<str>>>(fields: impl IntoIterator<Item = (K, ShapeSpec)>) -> Self {
        let fields = fields.into_iter().map(|(key, spec)| (key.into(), spec)).collect();
        Self::Object(ObjectSpec { fields, ..ObjectSpec::default() })
    }
}

/// What objects at some place are like.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectSpec {
    /// Keys in the order in which they are likely to come, and what is expected of their values.
    /// The place in this list is the number of the slot. Of a key that is listed twice the first
    /// counts.
    pub fields: Vec<(Box<str>, ShapeSpec)>,
    /// What becomes of members with other keys.
    pub others: Others,
    /// Specs that take the place of this one where `"__typename"` of the object is the string
    /// given here, wherever in the object it stands. Alternatives of alternatives are not looked
    /// at.
    pub alternatives: Vec<(Box<str>, ObjectSpec)>,
}

/// What becomes of members that a shape does not list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Others {
    /// They are checked to be JSON and dropped; no node is made.
    #[default]
    Skip,
    /// They are kept as general members.
    Keep,
}

/// One of several objects that name each other by their place in a list. Unlike those of a
/// [`ShapeSpec`] they may stand at many places, also inside themselves. Members with other keys
/// are [skipped](Others::Skip).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkedObject {
    /// Keys in the order in which they are likely to come, with the place of the object that is
    /// expected there; `None`, or a place behind the end: anything. The place of a key in this
    /// list is the number of the slot. Of a key that is listed twice the first counts.
    pub fields: Vec<(Box<str>, Option<usize>)>,
}

/// A compiled shape. Cheap to clone and to share between threads.
#[derive(Clone)]
pub struct Shape {
    pub(crate) tree: Arc<ShapeTree>,
    /// Where in the tree the shape of whole texts is.
    pub(crate) root: u32,
}

/// All objects of a shape. The first is that of the root, if there is any.
#[derive(Debug)]
pub(crate) struct ShapeTree {
    pub(crate) objects: Vec<ObjectShape>,
    /// What the parser looks at of all objects, in the order of the objects.
    pub(crate) outlines: Vec<Outline>,
    /// What it looks at of their keys, those of one object behind those of the other, and a head
    /// that begins no text behind each.
    pub(crate) heads: Vec<SlotHead>,
}

/// What the parser looks at where an object begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outline {
    /// The head of its first key.
    pub(crate) first: u32,
    /// Links that it takes: its slots, and one for members that the shape does not list. More than
    /// there can be if it has alternatives: so it is not begun before one is chosen.
    pub(crate) links: u32,
}

/// What the parser looks at where a key is expected.
// Aligned so that no load of a key crosses a line of the cache.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct SlotHead {
    pub(crate) key: KeyHead,
    /// The slot of its object, or the number of slots where no key follows.
    pub(crate) slot: u32,
    /// The object of this tree that values have the shape of; [`ANY`] if there is none.
    pub(crate) object: u32,
}

#[derive(Debug)]
pub(crate) struct ObjectShape {
    pub(crate) keys: Vec<ShapeKey>,
    pub(crate) keep_others: bool,
    /// Type names and the objects of this tree that they select.
    pub(crate) alternatives: Vec<(Box<str>, u32)>,
}

#[derive(Debug)]
pub(crate) struct ShapeKey {
    pub(crate) text: Box<str>,
    /// The key as it is printed, quotes and colon included.
    pub(crate) printed: Box<[u8]>,
    /// The object of this tree that values have the shape of; [`ANY`] if there is none.
    pub(crate) object: u32,
}

/// No shape.
pub(crate) const ANY: u32 = u32::MAX;

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shape").field("objects", &self.tree.objects.len()).finish_non_exhaustive()
    }
}

impl Shape {
    /// Compiles a spec.
    pub fn new(spec: &ShapeSpec) -> Shape {
        let mut objects = Vec::new();
        if let ShapeSpec::Object(object) = spec {
            compile(object, 0, true, &mut objects);
        }
        Shape { tree: Arc::new(ShapeTree::new(objects)), root: 0 }
    }

    /// Compiles objects that name each other; the first is expected of a text.
    pub fn linked(objects: &[LinkedObject]) -> Shape {
        let count = objects.len().min(TEXTS_MAX);
        let compiled = objects[..count].iter().map(|spec| {
            let mut keys: Vec<ShapeKey> = Vec::with_capacity(spec.fields.len());
            for (key, object) in spec.fields.iter().take(SHAPE_KEYS_MAX) {
                let taken = keys.iter().any(|other| other.text == *key);
                let object = object.filter(|&object| object < count && !taken);
                let text = if taken { TAKEN } else { &**key };
                keys.push(ShapeKey::new(text, object.map_or(ANY, |object| object as u32)));
            }
            ObjectShape::new(keys, false)
        });
        Shape { tree: Arc::new(ShapeTree::new(compiled.collect())), root: 0 }
    }

    /// The same shape, with another of its [linked](Shape::linked) objects expected of a text.
    /// Objects that were parsed by either have the same slots, and merge slot by slot. Behind the
    /// end: anything is expected.
    #[must_use]
    pub fn at(&self, object: usize) -> Shape {
        let root = u32::try_from(object).unwrap_or(ANY);
        Shape { tree: self.tree.clone(), root }
    }
}

/// Adds an object and all that hangs on it; returns its number.
fn compile(
    spec: &ObjectSpec,
    depth: usize,
    alternatives: bool,
    objects: &mut Vec<ObjectShape>,
) -> u32 {
    let number = objects.len();
    let keep_others = spec.others == Others::Keep;
    objects.push(ObjectShape::new(Vec::new(), keep_others));
    let mut keys: Vec<ShapeKey> = Vec::with_capacity(spec.fields.len());
    for (key, nested) in spec.fields.iter().take(SHAPE_KEYS_MAX) {
        if keys.iter().any(|other| other.text == *key) {
            // Slots keep the numbers of the list.
            keys.push(ShapeKey::new(TAKEN, ANY));
            continue;
        }
        let object = match nested {
            ShapeSpec::Object(nested) if depth < SHAPE_DEPTH_MAX => {
                compile(nested, depth + 1, true, objects)
            }
            _ => ANY,
        };
        keys.push(ShapeKey::new(key, object));
    }
    objects[number] = ObjectShape::new(keys, keep_others);
    if alternatives {
        let compiled = spec
            .alternatives
            .iter()
            .map(|(name, nested)| (name.clone(), compile(nested, depth, false, objects)))
            .collect();
        objects[number].alternatives = compiled;
    }
    number as u32
}

impl ShapeKey {
    fn new(text: &str, object: u32) -> ShapeKey {
        let mut printed = Vec::new();
        print_string(text, &mut printed);
        printed.push(b':');
        ShapeKey { text: text.into(), printed: printed.into(), object }
    }
}

impl ShapeTree {
    fn new(objects: Vec<ObjectShape>) -> ShapeTree {
        let (mut outlines, mut heads) = (Vec::new(), Vec::new());
        for object in &objects {
            outlines.push(Outline {
                first: position(heads.len()),
                links: match object.alternatives.is_empty() {
                    true => object.links(),
                    false => u32::MAX,
                },
            });
            heads.extend(object.keys.iter().zip(0..).map(|(key, slot)| SlotHead {
                key: match &*key.text {
                    TAKEN => KeyHead::NONE,
                    _ => KeyHead::new(&key.printed),
                },
                slot,
                object: key.object,
            }));
            let slot = object.keys.len() as u32;
            heads.push(SlotHead { key: KeyHead::NONE, slot, object: ANY });
        }
        ShapeTree { objects, outlines, heads }
    }
}

impl ObjectShape {
    /// Links that such an object takes: its slots, and one for members that are not listed.
    pub(crate) fn links(&self) -> u32 {
        self.keys.len() as u32 + 1
    }

    fn new(keys: Vec<ShapeKey>, keep_others: bool) -> ObjectShape {
        ObjectShape { keys, keep_others, alternatives: Vec::new() }
    }

    /// The slot of the key at `start..end` of the text. Looks at the slots behind `expected` first:
    /// senders leave out keys more often than they change their order.
    #[inline(never)]
    pub(crate) fn search(
        &self,
        text: &[u8],
        start: u32,
        end: u32,
        escaped: bool,
        expected: usize,
    ) -> Option<usize> {
        let literal = text.get(start as usize..end as usize)?;
        if escaped {
            return self.slot(&string::decode(std::str::from_utf8(literal).ok()?));
        }
        let matches = |key: &ShapeKey| key.text.as_bytes() == literal;
        let expected = expected.min(self.keys.len());
        let behind = self.keys[expected..].iter().position(matches).map(|slot| expected + slot);
        behind.or_else(|| self.keys[..expected].iter().position(matches))
    }

    /// The slot of a key.
    pub(crate) fn slot(&self, key: &str) -> Option<usize> {
        if key == TAKEN {
            return None;
        }
        self.keys.iter().position(|own| *own.text == *key)
    }

    /// The alternative that a type name selects.
    pub(crate) fn alternative(&self, literal: &str, escaped: bool) -> Option<u32> {
        let chosen = self.alternatives.iter().find(|(name, _)| {
            if escaped { string::decodes_to(literal, name) } else { **name == *literal }
        });
        chosen.map(|(_, object)| *object)
    }
}

/// Whether a literal text is the key that selects among alternatives.
pub(crate) fn is_type_key(literal: &str, escaped: bool) -> bool {
    if escaped { string::decodes_to(literal, TYPE_KEY) } else { literal == TYPE_KEY }
}

/// The shapes that objects of an arena are in.
#[derive(Default)]
pub(crate) struct Shapes {
    trees: Vec<(u32, Arc<ShapeTree>)>,
    /// For every object of every tree: which tree, and which object of it.
    objects: Vec<(u32, u32)>,
}

impl Shapes {
    pub(crate) fn clear(&mut self) {
        self.trees.clear();
        self.objects.clear();
    }

    /// Makes the objects of a tree known; returns the number of the first, or nothing when there
    /// are too many.
    pub(crate) fn register(&mut self, tree: &Arc<ShapeTree>) -> Option<u32> {
        if let Some((base, _)) = self.trees.iter().find(|(_, known)| Arc::ptr_eq(known, tree)) {
            return Some(*base);
        }
        let base = self.objects.len();
        if base + tree.objects.len() > TEXTS_MAX {
            return None;
        }
        let number = self.trees.len() as u32;
        self.objects.extend((0..tree.objects.len() as u32).map(|object| (number, object)));
        self.trees.push((base as u32, tree.clone()));
        Some(base as u32)
    }

    /// As [`Shapes::object`], if that is object `wanted` of `shape`.
    #[inline]
    pub(crate) fn object_of(
        &self,
        number: u32,
        shape: &Shape,
        wanted: usize,
    ) -> Option<&ObjectShape> {
        let (tree, object) = self.objects.get(number as usize)?;
        let (_, tree) = self.trees.get(*tree as usize)?;
        if *object as usize != wanted || !Arc::ptr_eq(tree, &shape.tree) {
            return None;
        }
        tree.objects.get(wanted)
    }

    /// The object that a node in slots names.
    #[inline]
    pub(crate) fn object(&self, number: u32) -> Option<&ObjectShape> {
        let (tree, object) = self.objects.get(number as usize)?;
        self.trees.get(*tree as usize)?.1.objects.get(*object as usize)
    }
}
