//! Shapes: the expected structure of a text, compiled for the parser.
//!
//! A shape lists the keys of the objects at each place, in the order in which they are likely to
//! come, and the structure of their values. Objects that are parsed by it have numbered slots in
//! place of keys. Lists are not part of a shape: a shape for an object also fits lists of such
//! objects, however nested.

use std::fmt;
use std::sync::Arc;

use crate::node::TEXTS_MAX;
use crate::scan::KeyHead;
use crate::string::{self, print_string};
use crate::text::to_position;

/// Maximum depth of a shape. Values that are nested deeper are parsed without a shape. Operations
/// have lower limits, which the creator of the shape enforces.
pub const SHAPE_DEPTH_MAX: usize = 128;

/// Maximum number of keys in one object of a shape; further ones count as [other](Others) keys.
pub const SHAPE_KEYS_MAX: usize = u16::MAX as usize;

/// Text of the slot of a key that was listed before. No key equals it: it is a control character,
/// which JSON escapes, and `slot` never finds it.
const DUPLICATE_KEY: &str = "\0";

/// The key whose value selects among alternatives.
const TYPE_KEY: &str = "__typename";

/// The expected structure of a value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ShapeSpec {
    /// Any value: parsed into generic nodes.
    #[default]
    Any,
    /// Objects, or lists of objects. Values of other kinds are parsed as they are.
    Object(ObjectSpec),
}

impl ShapeSpec {
    /// An object with these keys, in the order in which they are likely to come.
    pub fn object<K: Into<Box<str>>>(fields: impl IntoIterator<Item = (K, ShapeSpec)>) -> Self {
        let fields = fields.into_iter().map(|(key, spec)| (key.into(), spec)).collect();
        Self::Object(ObjectSpec { fields, ..ObjectSpec::default() })
    }
}

/// The expected structure of objects at one place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectSpec {
    /// Keys in the order in which they are likely to come, and the structure of their values. The
    /// index in this list is the number of the slot. If a key is listed twice, the first counts.
    pub fields: Vec<(Box<str>, ShapeSpec)>,
    /// Treatment of members with other keys.
    pub others: Others,
    /// Specs that replace this one if `"__typename"` of the object is the string given here,
    /// wherever in the object it is. Alternatives of alternatives are ignored.
    pub alternatives: Vec<(Box<str>, ObjectSpec)>,
}

/// Treatment of members that a shape does not list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Others {
    /// They are checked to be JSON and dropped; no node is made.
    #[default]
    Skip,
    /// They are kept as general members.
    Keep,
}

/// One of several objects that refer to each other by their index in a list. Unlike those of a
/// [`ShapeSpec`] they may occur at many places, also inside themselves. Members with other keys are
/// [skipped](Others::Skip).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkedObject {
    /// Keys in the order in which they are likely to come, with the index of the object that is
    /// expected there. `None`, or an index past the end, means any value. The index of a key in
    /// this list is the number of the slot. If a key is listed twice, the first counts.
    pub fields: Vec<(Box<str>, Option<usize>)>,
}

/// A compiled shape. Cheap to clone and to share between threads.
#[derive(Clone)]
pub struct Shape {
    pub(crate) tree: Arc<ShapeTree>,
    /// The index in the tree of the shape of whole texts.
    pub(crate) root: u32,
}

/// All objects of a shape. The first is that of the root, if there is any.
#[derive(Debug)]
pub(crate) struct ShapeTree {
    pub(crate) objects: Vec<ObjectShape>,
    /// The data of each object that the parser uses, in the order of the objects.
    pub(crate) outlines: Vec<Outline>,
    /// The data of each key that the parser uses, object after object, with a head that matches no
    /// text after each object.
    pub(crate) heads: Vec<SlotHead>,
}

/// The data that the parser uses where an object begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outline {
    /// The head of its first key.
    pub(crate) first: u32,
    /// Number of links that the object takes: its slots, and one for members that the shape does
    /// not list. `u32::MAX`, more than there can be, if it has alternatives: so it is not begun
    /// before one is chosen.
    pub(crate) links: u32,
}

/// The data that the parser uses where a key is expected.
// Aligned so that no load of a key crosses a cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct SlotHead {
    pub(crate) key: KeyHead,
    /// The slot in its object, or the number of slots if no key follows.
    pub(crate) slot: u32,
    /// The index in this tree of the shape of the value; [`ANY`] if there is none.
    pub(crate) object: u32,
}

#[derive(Debug)]
pub(crate) struct ObjectShape {
    pub(crate) keys: Vec<ShapeKey>,
    pub(crate) keep_others: bool,
    /// Type names and the indices of the objects of this tree that they select.
    pub(crate) alternatives: Vec<(Box<str>, u32)>,
}

#[derive(Debug)]
pub(crate) struct ShapeKey {
    pub(crate) text: Box<str>,
    /// The key as it is printed, with quotes and colon.
    pub(crate) printed: Box<[u8]>,
    /// The index in this tree of the shape of the value; [`ANY`] if there is none.
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
    /// A number that is equal for one shape as long as it exists, and mostly different for different ones.
    pub fn identity(&self) -> u64 {
        Arc::as_ptr(&self.tree).addr() as u64 ^ u64::from(self.root) << 48
    }

    /// Compiles a spec.
    pub fn new(spec: &ShapeSpec) -> Shape {
        let mut objects = Vec::new();
        if let ShapeSpec::Object(object) = spec {
            compile_object(object, 0, true, &mut objects);
        }
        Shape { tree: Arc::new(ShapeTree::new(objects)), root: 0 }
    }

    /// Compiles objects that refer to each other; the first is the shape of a text.
    pub fn linked(objects: &[LinkedObject]) -> Shape {
        let count = objects.len().min(TEXTS_MAX);
        let compiled = objects[..count].iter().map(|spec| {
            let mut keys: Vec<ShapeKey> = Vec::with_capacity(spec.fields.len());
            for (key, object) in spec.fields.iter().take(SHAPE_KEYS_MAX) {
                let taken = keys.iter().any(|other| other.text == *key);
                let object = object.filter(|&object| object < count && !taken);
                let text = if taken { DUPLICATE_KEY } else { &**key };
                keys.push(ShapeKey::new(text, object.map_or(ANY, |object| object as u32)));
            }
            ObjectShape::new(keys, false)
        });
        Shape { tree: Arc::new(ShapeTree::new(compiled.collect())), root: 0 }
    }

    /// Returns the same shape with another of its [linked](Shape::linked) objects expected of a
    /// text. Objects that were parsed by either have the same slots, and merge slot by slot. An
    /// index past the end means that any value is expected.
    #[must_use]
    pub fn at(&self, object: usize) -> Shape {
        let root = u32::try_from(object).unwrap_or(ANY);
        Shape { tree: self.tree.clone(), root }
    }
}

/// Adds an object and all objects below it; returns its index.
fn compile_object(
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
            keys.push(ShapeKey::new(DUPLICATE_KEY, ANY));
            continue;
        }
        let object = match nested {
            ShapeSpec::Object(nested) if depth < SHAPE_DEPTH_MAX => {
                compile_object(nested, depth + 1, true, objects)
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
            .map(|(name, nested)| (name.clone(), compile_object(nested, depth, false, objects)))
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
                first: to_position(heads.len()),
                links: match object.alternatives.is_empty() {
                    true => object.links(),
                    false => u32::MAX,
                },
            });
            heads.extend(object.keys.iter().zip(0..).map(|(key, slot)| SlotHead {
                key: match &*key.text {
                    DUPLICATE_KEY => KeyHead::NONE,
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
    /// Number of links of such an object: its slots, and one for members that are not listed.
    pub(crate) fn links(&self) -> u32 {
        self.keys.len() as u32 + 1
    }

    fn new(keys: Vec<ShapeKey>, keep_others: bool) -> ObjectShape {
        ObjectShape { keys, keep_others, alternatives: Vec::new() }
    }

    /// The slot of the key at `start..end` of the text. Searches the slots after `expected` first,
    /// because senders leave out keys more often than they change their order.
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
        if key == DUPLICATE_KEY {
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

/// True if a literal text is the key that selects among alternatives.
pub(crate) fn is_type_key(literal: &str, escaped: bool) -> bool {
    if escaped { string::decodes_to(literal, TYPE_KEY) } else { literal == TYPE_KEY }
}

/// The shapes of the objects in an arena.
#[derive(Default)]
pub(crate) struct Shapes {
    trees: Vec<(u32, Arc<ShapeTree>)>,
    /// The tree of every object, and its index in that tree.
    objects: Vec<(u32, u32)>,
}

impl Shapes {
    pub(crate) fn clear(&mut self) {
        self.trees.clear();
        self.objects.clear();
    }

    /// Registers the objects of a tree and returns the number of the first, or `None` if there are
    /// too many.
    pub(crate) fn register(&mut self, tree: &Arc<ShapeTree>) -> Option<u32> {
        if let Some(base) = self.base_of(tree) {
            return Some(base);
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

    /// The number of the first object of a tree, if it is registered.
    pub(crate) fn base_of(&self, tree: &Arc<ShapeTree>) -> Option<u32> {
        let known = self.trees.iter().find(|(_, known)| Arc::ptr_eq(known, tree));
        known.map(|(base, _)| *base)
    }

    /// Like [`Shapes::object`], but `None` if that is not object `wanted` of `shape`.
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

    /// The shape that a node in slots names.
    #[inline]
    pub(crate) fn object(&self, number: u32) -> Option<&ObjectShape> {
        let (tree, object) = self.objects.get(number as usize)?;
        self.trees.get(*tree as usize)?.1.objects.get(*object as usize)
    }
}
