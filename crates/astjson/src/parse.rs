//! Entry points of parsing: limits, the number of the text, and the cleanup after an error. The
//! loops are in `generic_parser` and `shaped_parser`.

use bytes::Bytes;

use crate::document::Document;
use crate::error::{ParseError, ParseErrorKind};
use crate::generic_parser::ReadGeneric;
use crate::lookahead::Lookahead;
use crate::node::NodeId;
use crate::parser_state::{Context, ParsePosition};
use crate::scan::Refused;
use crate::shape::{ANY, Shape};
use crate::shaped_parser::{ExpectedShape, ReadShaped};
use crate::small_parser::{SMALL_TEXT_BYTES_MAX, parse_small};
use crate::text::{Utf8, to_position};
use crate::token::skip_space;
use crate::validating_parser;
use crate::writer::Writer;

/// Maximum size of a text: positions have 32 bits, with some room so that arithmetic on them cannot
/// overflow.
pub(crate) const TEXT_BYTES_MAX: usize = u32::MAX as usize - 1024;

impl Document {
    /// Parses `text` as one more document of this arena (RFC 8259, strictly) and returns its root.
    ///
    /// The text is kept by reference count and not copied. Values that were parsed before do not
    /// change; after an error nothing of `text` is kept.
    ///
    /// # Errors
    ///
    /// `text` is not JSON, nests deeper than the limit of this document, or is larger than 32-bit
    /// positions reach.
    pub fn parse(&mut self, text: impl Into<Bytes>) -> Result<NodeId, ParseError> {
        self.parse_with(text.into(), None)
    }

    /// Parses `text` like [`parse`](Document::parse), by a shape. Objects that the shape knows get
    /// numbered slots ([`slot`](Document::slot)), keys that it does not list are handled as it
    /// says, and values of another kind are parsed into generic nodes. A text is refused exactly
    /// when `parse` refuses it.
    ///
    /// # Errors
    ///
    /// As [`parse`](Document::parse).
    pub fn parse_shaped(
        &mut self,
        text: impl Into<Bytes>,
        shape: &Shape,
    ) -> Result<NodeId, ParseError> {
        let (tree, object) = (&*shape.tree, shape.root);
        if object == ANY || object as usize >= tree.objects.len() {
            return self.parse(text);
        }
        let too_large = ParseError { kind: ParseErrorKind::TooLarge, offset: 0 };
        let base = self.shapes.register(&shape.tree).ok_or(too_large)?;
        self.parse_with(text.into(), Some(ExpectedShape { tree, object, base }))
    }

    fn parse_with(
        &mut self,
        text: Bytes,
        expected: Option<ExpectedShape<'_>>,
    ) -> Result<NodeId, ParseError> {
        let too_large = ParseError { kind: ParseErrorKind::TooLarge, offset: 0 };
        // A text has at most one node per byte.
        if text.len() > TEXT_BYTES_MAX || self.nodes.len() + text.len() > TEXT_BYTES_MAX {
            return Err(too_large);
        }
        let number = self.texts.next().ok_or(too_large)?;
        let (nodes, links) = (self.nodes.len(), self.links.len());
        if expected.is_none() && text.len() <= SMALL_TEXT_BYTES_MAX {
            if parse_small(&text, number, self.depth_limit, &mut self.nodes).is_some() {
                // SAFETY: `parse_small` has looked at every byte, and accepts ASCII only.
                #[allow(unsafe_code)]
                self.texts.push(unsafe { Utf8::new_unchecked(text) });
                return Ok(NodeId(to_position(nodes)));
            }
            self.nodes.truncate(nodes);
        }
        let text = Utf8::new(text)
            .map_err(|offset| ParseError { kind: ParseErrorKind::InvalidUtf8, offset })?;
        match self.read(text.as_bytes(), number, expected) {
            Ok(()) => {
                self.texts.push(text);
                Ok(NodeId(to_position(nodes)))
            }
            Err(Refused) => {
                self.nodes.truncate(nodes);
                self.links.truncate(links);
                Err(validating_parser::validate(text.as_str(), self.depth_limit)
                    .err()
                    .unwrap_or(ParseError { kind: ParseErrorKind::ExpectedValue, offset: 0 }))
            }
        }
    }

    /// Makes nodes of a text, with or without a shape.
    pub(crate) fn read(
        &mut self,
        text: &[u8],
        number: u32,
        expected: Option<ExpectedShape<'_>>,
    ) -> Result<(), Refused> {
        let (writer, cursor) = Writer::new(&mut self.nodes, text.len());
        let mut context = Context { text, number, writer, links: &mut self.links };
        let lookahead = Lookahead::NONE;
        let position = ParsePosition { at: 0, depth_left: self.depth_limit, cursor, lookahead };
        let ParsePosition { mut at, cursor, .. } = match expected {
            None => self.level.run(ReadGeneric { context: &mut context, position }),
            Some(expected) => {
                self.level.run(ReadShaped { context: &mut context, position, expected })
            }
        }?;
        if (at as usize) < text.len() {
            at = skip_space(text, at);
            if (at as usize) < text.len() {
                return Err(Refused);
            }
        }
        context.writer.finish(cursor);
        Ok(())
    }
}
