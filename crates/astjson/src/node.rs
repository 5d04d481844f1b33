//! The node: 16 bytes, four words. The tag decides the meaning of the words; this module is the
//! only place that packs and unpacks them.
//!
//! | tag | `meta` text field | `a` | `b` | `end` |
//! |---|---|---|---|---|
//! | null, false, true, number | text | offset | bytes | own index + 1 |
//! | string | text | offset after the opening quote | bytes between the quotes | own index + 1 |
//! | key | text | offset after the opening quote | bytes between the quotes | four bytes from the offset on |
//! | array, in line | – | – | elements; element `i` is node `self + 1 + i` | index after the subtree |
//! | array, table | – | position in `links` | elements | same |
//! | object, in line | – | – | members; key and value nodes follow in turn | same |
//! | object, table | – | position in `links` | members | same |
//! | object, slots | shape | position in `links` | – | same |
//! | reference | – | node meant | – | same |
//!
//! `end` never changes after a node is written: a walk over a parent that is still in line uses it
//! to step over this node, whatever became of the node since. A key is never stepped over alone, so
//! its `end` holds the four bytes in which most keys differ.

use std::fmt;

/// Handle of a value in a [`Document`](crate::Document).
///
/// It is valid until the document is [reset](crate::Document::reset). If it is used with another
/// document, or after a reset, it denotes some other value or reads as `null`; it never panics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// A number for tables beside the document: small, different for different nodes, and nearly
    /// without gaps.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The six kinds of JSON value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number of any size and precision; its text is kept.
    Number,
    /// A string; its text is kept.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        })
    }
}

/// The stored type of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Tag {
    Null = 0,
    False = 1,
    True = 2,
    Number = 3,
    String = 4,
    Array = 5,
    Object = 6,
    /// Refers to another node; left behind where a merge replaced a whole value in place.
    Reference = 7,
}

const TAG_MASK: u32 = 0x7;
const TAGS: [Tag; 8] = [
    Tag::Null,
    Tag::False,
    Tag::True,
    Tag::Number,
    Tag::String,
    Tag::Array,
    Tag::Object,
    Tag::Reference,
];

/// The string holds at least one backslash.
pub(crate) const ESCAPED: u32 = 1 << 3;
/// The children of this container are listed in `links`.
pub(crate) const TABLE: u32 = 1 << 4;
/// The members of this object are the slots of a shape, listed in `links`.
pub(crate) const SLOTS: u32 = 1 << 5;
/// The number has a fraction or an exponent.
pub(crate) const REAL: u32 = 1 << 6;
/// The table of this object may list a key more than once; the last counts.
pub(crate) const REPEATS: u32 = 1 << 7;

/// The lowest bit of the number of a text or of a shape.
pub(crate) const TEXT_SHIFT: u32 = 8;
/// Maximum number of texts (and of shapes) in one arena: the number that 24 bits can name.
pub(crate) const TEXTS_MAX: usize = 1 << 24;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Node {
    pub(crate) meta: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) end: u32,
}

const _: () = assert!(size_of::<Node>() == 16);

impl Node {
    /// The node that an unknown id reads as. Its text is at the beginning of the document's own
    /// buffer, see `text`.
    pub(crate) const NULL: Node = Node { meta: Tag::Null as u32, a: 0, b: 4, end: 0 };

    #[inline(always)]
    pub(crate) const fn new(tag: Tag, flags: u32, text: u32, a: u32, b: u32, end: u32) -> Node {
        Node { meta: tag as u32 | flags | text << TEXT_SHIFT, a, b, end }
    }

    #[inline(always)]
    pub(crate) fn tag(self) -> Tag {
        TAGS[(self.meta & TAG_MASK) as usize]
    }

    #[inline(always)]
    pub(crate) fn is(self, tag: Tag) -> bool {
        self.meta & TAG_MASK == tag as u32
    }

    #[inline(always)]
    pub(crate) fn has(self, flag: u32) -> bool {
        self.meta & flag != 0
    }

    #[inline(always)]
    pub(crate) fn is_container(self) -> bool {
        self.is(Tag::Array) || self.is(Tag::Object)
    }

    /// True if this is an object that has none of these flags.
    #[inline(always)]
    pub(crate) fn is_object_without(self, flags: u32) -> bool {
        self.meta & (TAG_MASK | flags) == Tag::Object as u32
    }

    /// The number of the text of a scalar, or of the shape of an object in slots.
    #[inline(always)]
    pub(crate) fn text(self) -> u32 {
        self.meta >> TEXT_SHIFT
    }
}
