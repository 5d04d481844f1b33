//! Copies of the body of an entry in other codings: made when a client first asks for one, and stored with the entry.
//! They count as bytes of the entry, and go with it. `store::copies` implements it.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

use crate::invalidation_table::Sequence;
use crate::keys::CacheKey;
use crate::time::Timestamp;

/// The copies of the body of an entry that was found. Cheap to clone. A coding is a number that the caller gives it.
#[derive(Clone, Debug)]
pub struct BodyCopies(Arc<dyn StoredCopies>);

/// The place where the copies of one entry are stored.
pub(crate) trait StoredCopies: Send + Sync + Debug {
    /// See [`BodyCopies::find`].
    fn find(&self, coding: u8) -> Option<Bytes>;
    /// See [`BodyCopies::keep`].
    fn keep(&self, coding: u8, copy: &[u8]) -> bool;
    /// See [`BodyCopies::id`].
    fn id(&self) -> EntryId;
}

/// The identity of an entry: a later response under the same key has another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EntryId {
    pub(crate) key: CacheKey,
    pub(crate) sequence: Sequence,
    pub(crate) began: Timestamp,
}

impl BodyCopies {
    pub(crate) fn new(stored: Arc<dyn StoredCopies>) -> Self {
        Self(stored)
    }

    /// Returns the copy in a coding, if it was made already.
    ///
    /// Hot path: one allocation of some 40 bytes if it was there when the entry was found, and a lookup otherwise.
    pub fn find(&self, coding: u8) -> Option<Bytes> {
        self.0.find(coding)
    }

    /// Stores a copy with the entry. Returns false if it has no room, or if another response has taken the place of the
    /// entry; that is counted.
    pub fn keep(&self, coding: u8, copy: &[u8]) -> bool {
        self.0.keep(coding, copy)
    }

    /// The identity of the entry.
    pub fn id(&self) -> EntryId {
        self.0.id()
    }
}

impl PartialEq for BodyCopies {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for BodyCopies {}
