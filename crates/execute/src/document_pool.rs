//! Pools of arenas: each operation takes one from the thread's pool and returns it when it ends,
//! also when it is cancelled.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use astjson::{Document, NodeId, ParseError, ParsedText, Shape};
use bytes::Bytes;

use crate::bounds::{POOLED_DOCUMENT_TEXT_BYTES_MAX, POOLED_DOCUMENTS_MAX};

thread_local! {
    static POOL: RefCell<Vec<Document>> = const { RefCell::new(Vec::new()) };
}

/// An empty document that returns to the pool on drop.
pub(crate) struct PooledDocument {
    document: Document,
    text_bytes: usize,
}

impl PooledDocument {
    /// Takes a document from the pool, or creates one.
    pub(crate) fn take() -> Self {
        let document = POOL.with_borrow_mut(Vec::pop).unwrap_or_default();
        Self { document, text_bytes: 0 }
    }

    /// Size of all texts that were parsed into it, in bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Parses one more text into it.
    pub(crate) fn parse(&mut self, text: Bytes) -> Result<NodeId, ParseError> {
        self.text_bytes = self.text_bytes.saturating_add(text.len());
        self.document.parse(text)
    }

    /// Parses one more text with a known shape into it.
    pub(crate) fn parse_shaped(
        &mut self,
        text: Bytes,
        shape: &Shape,
    ) -> Result<NodeId, ParseError> {
        self.text_bytes = self.text_bytes.saturating_add(text.len());
        self.document.parse_shaped(text, shape)
    }

    /// As [`PooledDocument::parse_shaped`], and also returns the text with its nodes for other documents, if that is
    /// possible.
    pub(crate) fn parse_shaped_to_share(
        &mut self,
        text: Bytes,
        shape: &Shape,
    ) -> Result<(NodeId, Option<ParsedText>), ParseError> {
        self.text_bytes = self.text_bytes.saturating_add(text.len());
        self.document.parse_shaped_to_share(text, shape)
    }

    /// Takes over one more text that was parsed before by this shape.
    pub(crate) fn append(
        &mut self,
        text: &ParsedText,
        shape: &Shape,
    ) -> Result<NodeId, ParseError> {
        if let Some(root) = self.document.append(text, shape)? {
            self.text_bytes = self.text_bytes.saturating_add(text.text_len());
            return Ok(root);
        }
        self.parse_shaped(text.text(), shape)
    }
}

impl Drop for PooledDocument {
    fn drop(&mut self) {
        if self.text_bytes > POOLED_DOCUMENT_TEXT_BYTES_MAX {
            return;
        }
        let mut document = std::mem::take(&mut self.document);
        document.reset();
        // While the thread ends, its pool may be gone already; then the document is dropped.
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if pool.len() < POOLED_DOCUMENTS_MAX {
                pool.push(document);
            }
        });
    }
}

impl Deref for PooledDocument {
    type Target = Document;

    fn deref(&self) -> &Document {
        &self.document
    }
}

impl DerefMut for PooledDocument {
    fn deref_mut(&mut self) -> &mut Document {
        &mut self.document
    }
}
