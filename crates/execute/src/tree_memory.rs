//! The memory of the tree of one execution, and of the response that is printed from it.
//!
//! Texts of responses are counted by the client of the subgraph. The nodes of the tree are about as large as the texts,
//! and up to eight times as large for lists of small numbers; the printed response is seldom larger than the texts.

use std::sync::Arc;

use admission::memory::{CHARGED_BYTES_MIN, MemoryAccount, MemoryCharge, MemoryKind, MemoryUsedUp};

use crate::document_pool::PooledDocument;

/// The multiple of the size of texts that their nodes and the printed response take.
const TREE_RATIO: u64 = 2;

/// The counted memory of a tree. Small trees are a part of the memory of a usual operation.
#[derive(Default)]
pub(crate) struct TreeMemory {
    charge: Option<MemoryCharge>,
}

impl TreeMemory {
    /// Counts the memory that is needed when a text of `more` bytes is added to the tree.
    ///
    /// # Errors
    /// The text does not fit into the budget.
    pub(crate) fn reserve(
        &mut self,
        memory: &Arc<MemoryAccount>,
        document: &PooledDocument,
        more: usize,
    ) -> Result<(), MemoryUsedUp> {
        let texts = document.text_bytes().saturating_add(more);
        if texts < CHARGED_BYTES_MIN {
            return Ok(());
        }
        let charge = self
            .charge
            .get_or_insert_with(|| MemoryCharge::empty(memory, MemoryKind::ResponseTrees));
        let needed = (texts as u64).saturating_mul(TREE_RATIO);
        charge.try_promise(needed.saturating_sub(charge.bytes()))
    }

    /// Counts what the tree takes now, after a text was added. The memory of the printed response stays promised.
    pub(crate) fn update(&mut self, document: &PooledDocument) {
        if let Some(charge) = &mut self.charge {
            let tree = document.memory_bytes() as u64;
            let needed = tree.saturating_add(document.text_bytes() as u64);
            charge.set(charge.bytes().max(needed));
            charge.set_taken(tree);
        }
    }
}
