//! The arena: nodes, child tables and texts, and how values are made in it. Reading, editing,
//! merging, parsing and printing are in modules of their own.

use crate::error::{ParseError, ParseErrorKind};
use crate::merge::Pending;
use crate::node::{ESCAPED, Node, NodeId, REAL, TABLE, Tag};
use crate::scan::Level;
use crate::shape::Shapes;
use crate::text::{FALSE, NULL, OWNED, TRUE, Texts, position};

/// Default of the depth limit of [`Document::parse`]. Real answers nest some 20 deep; 512 is what
/// other parsers allow and the JSON test suite probes.
pub const DEPTH_LIMIT_DEFAULT: u32 = 512;

/// How deep merging and printing follow values that were linked together. Parsing has its own,
/// lower limit; this one also ends walks over values that were made to contain themselves.
pub const WALK_DEPTH_MAX: usize = 4096;

/// An arena of JSON values, and the texts they point into.
///
/// Parse any number of texts into it, link, merge and edit the values, print what is wanted, then
/// [`reset`](Document::reset) it: its memory is kept, so a warm document works without
/// allocating.
///
/// # Sharing
///
/// [`set`](Document::set), [`push`](Document::push) and [`merge`](Document::merge) *link* values;
/// nothing is copied. A value may so stand at any number of places. It is then one value: what
/// changes in it later (another member, a merge, [`replace_with_null`](Document::replace_with_null))
/// is seen at every one of them. Replacing a member of an object changes that object and not the
/// value that was there.
///
/// A value must not be linked into itself. If it is, printing puts `null` where it would begin
/// again and merging stops with an error; nothing hangs.
///
/// # Duplicate keys
///
/// RFC 8259 leaves them open. Here the last one counts: [`get`](Document::get), shapes, merging
/// and projection see only that. [`members`](Document::members), [`len`](Document::len) and
/// [`print`](Document::print) give a parsed object as it came, until
/// a member of it is set, replaced or removed: then only the one that counts stays.
pub struct Document {
    pub(crate) nodes: Vec<Node>,
    /// Tables of children: capacity, then ids (arrays) or pairs of key and value ids (objects).
    /// Also the slots of shaped objects: a value id each, then the object of the other members.
    pub(crate) links: Vec<u32>,
    pub(crate) texts: Texts,
    pub(crate) shapes: Shapes,
    pub(crate) depth_limit: u32,
    /// The instructions that texts are scanned with.
    pub(crate) level: Level,
    /// Work list of `merge`, kept for its memory.
    pub(crate) pending: Vec<Pending>,
}

impl Default for Document {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Texts may hold anything, also secrets: sizes only.
        f.debug_struct("Document")
            .field("nodes", &self.nodes.len())
            .field("links", &self.links.len())
            .finish_non_exhaustive()
    }
}

impl Document {
    /// An empty document with the default depth limit, [`DEPTH_LIMIT_DEFAULT`].
    pub fn new() -> Self {
        Self::with_depth_limit(DEPTH_LIMIT_DEFAULT)
    }

    /// An empty document that refuses texts nested deeper than `limit` arrays and objects.
    pub fn with_depth_limit(limit: u32) -> Self {
        Self {
            nodes: Vec::new(),
            links: Vec::new(),
            texts: Texts::new(),
            shapes: Shapes::default(),
            depth_limit: limit,
            level: Level::detect(),
            pending: Vec::new(),
        }
    }

    /// Forgets all values and lets go of all texts, but keeps the memory for the next round.
    /// All [`NodeId`]s are invalid from here on.
    pub fn reset(&mut self) {
        self.nodes.clear();
        self.links.clear();
        self.texts.clear();
        self.shapes.clear();
    }

    /// Scans texts with the `level`-th set of instructions this CPU has (0 is portable code) and
    /// not the best one. Returns whether there are so many. For tests and measurements.
    #[doc(hidden)]
    pub fn scan_with_level(&mut self, level: usize) -> bool {
        let found = Level::get(level);
        self.level = found.unwrap_or(self.level);
        found.is_some()
    }

    /// Makes a `null`.
    pub fn new_null(&mut self) -> NodeId {
        self.add(Tag::Null, 0, NULL.0, NULL.1)
    }

    /// Makes `true` or `false`.
    pub fn new_bool(&mut self, value: bool) -> NodeId {
        let (tag, (start, bytes)) = if value { (Tag::True, TRUE) } else { (Tag::False, FALSE) };
        self.add(tag, 0, start, bytes)
    }

    /// Makes an empty object.
    pub fn new_object(&mut self) -> NodeId {
        self.add(Tag::Object, TABLE, 0, 0)
    }

    /// Makes an empty array.
    pub fn new_array(&mut self) -> NodeId {
        self.add(Tag::Array, TABLE, 0, 0)
    }

    /// Makes a string; `s` is copied (and escaped) into the document.
    pub fn new_string(&mut self, s: &str) -> NodeId {
        let (start, bytes, escaped) = self.texts.own_string(s);
        self.add(Tag::String, if escaped { ESCAPED } else { 0 }, start, bytes)
    }

    /// Makes a scalar from its JSON text, `1e3` or `"a\n"` for example; the text is copied.
    ///
    /// # Errors
    ///
    /// When `text` is not valid JSON, or is an array or object. Space around the scalar is
    /// allowed, and not kept.
    pub fn new_raw(&mut self, text: &str) -> Result<NodeId, ParseError> {
        let start = text.len() - text.trim_start_matches([' ', '\t', '\n', '\r']).len();
        let scalar = text[start..].trim_end_matches([' ', '\t', '\n', '\r']);
        let at = |kind, offset| Err(ParseError { kind, offset });
        match scalar.as_bytes().first() {
            None => return at(ParseErrorKind::UnexpectedEnd, text.len()),
            Some(b'[' | b'{') => return at(ParseErrorKind::NotAScalar, start),
            Some(_) => {}
        }
        crate::careful::check(text, 0)?;
        Ok(match scalar.as_bytes()[0] {
            b'n' => self.new_null(),
            b't' => self.new_bool(true),
            b'f' => self.new_bool(false),
            b'"' => {
                let escaped = memchr::memchr(b'\\', scalar.as_bytes()).is_some();
                let start = self.texts.own_text(scalar) + 1;
                let flags = if escaped { ESCAPED } else { 0 };
                self.add(Tag::String, flags, start, position(scalar.len() - 2))
            }
            _ => {
                let start = self.texts.own_text(scalar);
                let flags = if scalar.contains(['.', 'e', 'E']) { REAL } else { 0 };
                self.add(Tag::Number, flags, start, position(scalar.len()))
            }
        })
    }

    fn add(&mut self, tag: Tag, flags: u32, a: u32, b: u32) -> NodeId {
        let id = position(self.nodes.len());
        self.nodes.push(Node::new(tag, flags, OWNED, a, b, id.saturating_add(1)));
        NodeId(id)
    }

    /// The node behind `n`, references followed. Unknown ids read as `null`.
    #[inline(always)]
    pub(crate) fn node(&self, n: NodeId) -> Node {
        let node = self.stored(n.0);
        if node.is(Tag::Reference) { self.referenced(node) } else { node }
    }

    /// The id of the node behind `n`, references followed.
    #[inline(always)]
    pub(crate) fn resolve(&self, n: NodeId) -> NodeId {
        let node = self.stored(n.0);
        if node.is(Tag::Reference) { self.resolve_far(n) } else { n }
    }

    #[inline(always)]
    pub(crate) fn stored(&self, index: u32) -> Node {
        self.nodes.get(index as usize).copied().unwrap_or(Node::NULL)
    }

    #[cold]
    fn referenced(&self, node: Node) -> Node {
        self.stored(self.resolve_far(NodeId(node.a)).0)
    }

    /// References form no circles: one is only made from a node that is none to another such
    /// node, see `merge`.
    #[cold]
    fn resolve_far(&self, mut n: NodeId) -> NodeId {
        while let node = self.stored(n.0)
            && node.is(Tag::Reference)
        {
            n = NodeId(node.a);
        }
        n
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Document>();
};
