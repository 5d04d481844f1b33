//! Parsed texts: the nodes of a text that was parsed by a shape, in a form that any document can take over. Taking over
//! costs a copy of the nodes, about a fifth of parsing the text again.

use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::document::Document;
use crate::error::{ParseError, ParseErrorKind};
use crate::node::{Node, NodeId, SLOTS, TABLE, TEXT_SHIFT, Tag};
use crate::parse::TEXT_BYTES_MAX;
use crate::parser_state::ABSENT;
use crate::shape::{Shape, ShapeTree};
use crate::text::{Utf8, to_position};

/// A text with its nodes, independent of the document that has parsed it. Share it by `Arc`.
///
/// All positions in it count from 0: nodes, links, the number of the text and that of the shape.
pub struct ParsedText {
    text: Utf8,
    /// The shape. The plan owns its memory, and the text is of no use without the plan, so it is not kept alive.
    tree: Weak<ShapeTree>,
    root: u32,
    nodes: Box<[Node]>,
    links: Box<[u32]>,
    /// The positions in `links` that hold the size of a table, in ascending order; all others hold
    /// ids, or [`ABSENT`].
    sizes: Box<[u32]>,
}

impl ParsedText {
    /// The size of the text, in bytes.
    pub fn text_len(&self) -> usize {
        self.text.as_bytes().len()
    }

    /// The text.
    pub fn text(&self) -> Bytes {
        self.text.shared()
    }

    /// True if it was parsed by this shape, and not only by an equal one.
    pub fn is_of(&self, shape: &Shape) -> bool {
        // A weak reference keeps the address, so no other shape can have it.
        self.root == shape.root && std::ptr::eq(self.tree.as_ptr(), Arc::as_ptr(&shape.tree))
    }

    /// The memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.text_len()
            + size_of_val(&*self.nodes)
            + size_of_val(&*self.links)
            + size_of_val(&*self.sizes)
            + size_of::<Self>()
    }
}

impl std::fmt::Debug for ParsedText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The text may hold secrets.
        f.debug_struct("ParsedText").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

/// The sizes of a document before a text.
struct Start {
    nodes: u32,
    links: u32,
    text: u32,
    shape: u32,
}

impl Document {
    /// Parses like [`parse_shaped`](Document::parse_shaped), and also returns the text with its
    /// nodes for other documents. That is `None` if the text has objects that the shape does not
    /// know, or members that it keeps as general ones.
    ///
    /// # Errors
    ///
    /// As [`parse`](Document::parse).
    pub fn parse_shaped_to_share(
        &mut self,
        text: impl Into<Bytes>,
        shape: &Shape,
    ) -> Result<(NodeId, Option<ParsedText>), ParseError> {
        let text = text.into();
        let (nodes, links) = (self.nodes.len(), self.links.len());
        let number = self.texts.next();
        let root = self.parse_shaped(text, shape)?;
        let base = self.shapes.base_of(&shape.tree);
        let shared = number.zip(base).and_then(|(text, shape_base)| {
            let (nodes, links) = (to_position(nodes), to_position(links));
            let start = Start { nodes, links, text, shape: shape_base };
            self.share(&start, shape)
        });
        Ok((root, shared))
    }

    /// Copies the last text with its nodes, which begin at `start`.
    fn share(&self, start: &Start, shape: &Shape) -> Option<ParsedText> {
        let text = self.texts.last()?.clone();
        let nodes = self.nodes.get(start.nodes as usize..)?;
        let links = self.links.get(start.links as usize..)?;
        let mut sizes = Vec::new();
        let moved = nodes.iter().map(|node| {
            let is_slots = node.has(SLOTS);
            let has_links = node.is_container() && (is_slots || node.has(TABLE));
            // Objects without slots have nodes for their keys, which hold no position in `end`.
            if node.is(Tag::Reference) || (node.is(Tag::Object) && !is_slots) {
                return None;
            }
            if has_links && !is_slots {
                sizes.push(node.a - start.links);
            }
            Some(Node {
                meta: node.meta - ((if is_slots { start.shape } else { start.text }) << TEXT_SHIFT),
                a: if has_links { node.a - start.links } else { node.a },
                b: node.b,
                end: node.end - start.nodes,
            })
        });
        let nodes: Box<[Node]> = moved.collect::<Option<_>>()?;
        sizes.sort_unstable();
        let mut links: Box<[u32]> = links.into();
        let mut next_sizes = sizes.iter().peekable();
        for (place, link) in links.iter_mut().enumerate() {
            if next_sizes.next_if(|size| **size as usize == place).is_none() && *link != ABSENT {
                *link -= start.nodes;
            }
        }
        let (tree, root) = (Arc::downgrade(&shape.tree), shape.root);
        Some(ParsedText { text, tree, root, nodes, links, sizes: sizes.into() })
    }

    /// Takes over a parsed text, as if it were parsed here by its shape, and returns its root. The
    /// limit of its depth is that of the document that has parsed it. `None` if it was parsed by
    /// another shape.
    ///
    /// # Errors
    ///
    /// The document would be larger than 32-bit positions reach.
    pub fn append(
        &mut self,
        parsed: &ParsedText,
        shape: &Shape,
    ) -> Result<Option<NodeId>, ParseError> {
        if !parsed.is_of(shape) {
            return Ok(None);
        }
        let too_large = ParseError { kind: ParseErrorKind::TooLarge, offset: 0 };
        let (nodes, links) = (self.nodes.len(), self.links.len());
        if nodes + parsed.nodes.len() > TEXT_BYTES_MAX
            || links + parsed.links.len() > TEXT_BYTES_MAX
        {
            return Err(too_large);
        }
        let number = self.texts.next().ok_or(too_large)?;
        let base = self.shapes.register(&shape.tree).ok_or(too_large)?;
        let (first, table) = (to_position(nodes), to_position(links));
        // Hot path: both loops have no branches, so that several nodes are moved at a time.
        self.nodes.extend(parsed.nodes.iter().map(|node| Node {
            meta: node.meta + ((if node.has(SLOTS) { base } else { number }) << TEXT_SHIFT),
            a: node.a + if node.has(SLOTS | TABLE) { table } else { 0 },
            b: node.b,
            end: node.end + first,
        }));
        let moved = |link: &u32| if *link == ABSENT { ABSENT } else { *link + first };
        self.links.extend(parsed.links.iter().map(moved));
        for &place in &*parsed.sizes {
            let size = parsed.links.get(place as usize);
            if let (Some(link), Some(size)) = (self.links.get_mut(links + place as usize), size) {
                *link = *size;
            }
        }
        self.texts.push(parsed.text.clone());
        Ok(Some(NodeId(first)))
    }
}
