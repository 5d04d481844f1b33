//! The arena: nodes, child tables and texts, and the functions that make new values in it. Reading,
//! editing, merging, parsing and printing are in modules of their own.

use crate::error::{ParseError, ParseErrorKind};
use crate::limits::DEPTH_LIMIT_DEFAULT;
use crate::node::{ESCAPED, Node, NodeId, REAL, TABLE, Tag};
use crate::pending::Pending;
use crate::scan::Level;
use crate::shape::Shapes;
use crate::text::{FALSE, NULL, OWNED, TRUE, Texts, to_position};

/// An arena of JSON values, and the texts they point into.
///
/// Parse any number of texts into it; link, merge and edit the values; print the result; then
/// [`reset`](Document::reset) it. A reset keeps the memory, so a warm document works without
/// allocating.
///
/// # Sharing
///
/// [`set`](Document::set), [`push`](Document::push) and [`merge`](Document::merge) *link* values
/// and copy nothing, so one value may occur at any number of places. A later change of the value
/// (another member, a merge, [`replace_with_null`](Document::replace_with_null)) is seen at every
/// one of them. Replacing a member of an object changes that object and not the value that was
/// there.
///
/// A value must not be linked into itself. If it is, printing writes `null` where it would begin
/// again and merging returns an error; neither hangs.
///
/// # Duplicate keys
///
/// RFC 8259 leaves them open. Here the last one counts: [`get`](Document::get), shapes and merging
/// see only that one. [`members`](Document::members), [`len`](Document::len) and
/// [`print`](Document::print) show a parsed object as it was written until a member of it is set,
/// replaced or removed; from then on only the one that counts is left.
pub struct Document {
    pub(crate) nodes: Vec<Node>,
    /// Tables of children: capacity, then ids (arrays) or pairs of key and value ids (objects).
    /// Also the slots of shaped objects: one value id each, then the object of the other members.
    pub(crate) links: Vec<u32>,
    pub(crate) texts: Texts,
    pub(crate) shapes: Shapes,
    pub(crate) depth_limit: u32,
    /// The CPU instructions that texts are scanned with.
    pub(crate) level: Level,
    /// Work list of `merge`, kept so that its memory is reused.
    pub(crate) pending: Vec<Pending>,
}

impl Default for Document {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Texts may hold secrets, so only sizes are printed.
        f.debug_struct("Document")
            .field("nodes", &self.nodes.len())
            .field("links", &self.links.len())
            .finish_non_exhaustive()
    }
}

impl Document {
    /// Creates an empty document with the default depth limit, [`DEPTH_LIMIT_DEFAULT`].
    pub fn new() -> Self {
        Self::with_depth_limit(DEPTH_LIMIT_DEFAULT)
    }

    /// Creates an empty document that refuses texts nested deeper than `limit` arrays and objects.
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

    /// Forgets all values and releases all texts, but keeps the memory for the next use. All
    /// [`NodeId`]s are invalid afterwards.
    pub fn reset(&mut self) {
        self.nodes.clear();
        self.links.clear();
        self.texts.clear();
        self.shapes.clear();
    }

    /// Returns the memory of the arena in bytes, with what it keeps for later, without the texts that were parsed.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.links.capacity() * size_of::<u32>()
            + self.texts.own_bytes()
    }

    /// Scans texts with set number `level` of the instructions that this CPU has (0 is portable
    /// code) in place of the best one. Returns false if there are not so many. For tests and
    /// measurements.
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

    /// Makes a scalar from its JSON text, for example `1e3` or `"a\n"`; the text is copied.
    ///
    /// # Errors
    ///
    /// `text` is not valid JSON, or is an array or object. Space around the scalar is allowed, and
    /// not kept.
    pub fn new_raw(&mut self, text: &str) -> Result<NodeId, ParseError> {
        let start = text.len() - text.trim_start_matches([' ', '\t', '\n', '\r']).len();
        let scalar = text[start..].trim_end_matches([' ', '\t', '\n', '\r']);
        let at = |kind, offset| Err(ParseError { kind, offset });
        match scalar.as_bytes().first() {
            None => return at(ParseErrorKind::UnexpectedEnd, text.len()),
            Some(b'[' | b'{') => return at(ParseErrorKind::NotAScalar, start),
            Some(_) => {}
        }
        crate::validating_parser::validate(text, 0)?;
        Ok(match scalar.as_bytes()[0] {
            b'n' => self.new_null(),
            b't' => self.new_bool(true),
            b'f' => self.new_bool(false),
            b'"' => {
                let escaped = memchr::memchr(b'\\', scalar.as_bytes()).is_some();
                let start = self.texts.own_text(scalar) + 1;
                let flags = if escaped { ESCAPED } else { 0 };
                self.add(Tag::String, flags, start, to_position(scalar.len() - 2))
            }
            _ => {
                let start = self.texts.own_text(scalar);
                let flags = if scalar.contains(['.', 'e', 'E']) { REAL } else { 0 };
                self.add(Tag::Number, flags, start, to_position(scalar.len()))
            }
        })
    }

    fn add(&mut self, tag: Tag, flags: u32, a: u32, b: u32) -> NodeId {
        let id = to_position(self.nodes.len());
        self.nodes.push(Node::new(tag, flags, OWNED, a, b, id.saturating_add(1)));
        NodeId(id)
    }

    /// The node of `n`, with references followed. Unknown ids read as `null`.
    #[inline(always)]
    pub(crate) fn node(&self, n: NodeId) -> Node {
        let node = self.stored(n.0);
        if node.is(Tag::Reference) { self.referenced(node) } else { node }
    }

    /// The id of the node of `n`, with references followed.
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

    /// References form no cycle: `merge` makes one only from a node that is no reference to another
    /// such node.
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
