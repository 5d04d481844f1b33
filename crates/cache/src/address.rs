//! The address of an entry: its keys, and the tags that follow from the same facts.

use smallvec::SmallVec;

use crate::keys::{CacheKey, EntryKeys};
use crate::scope::Scope;
use crate::tags::Tag;

/// The place of an entry, and the tags that follow from it. Lookups and stores of one entry use equal addresses.
///
/// The tags are not stored with the entry, which saves 32 bytes for most entities. An entry has 7 bytes that identify
/// them, so that operators see what an invalidation would make stale.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryAddress {
    /// The keys.
    pub keys: EntryKeys,
    /// The tags of the subgraph, the type, the type in the subgraph, and the entity, in this order; none for whole
    /// responses. The first three are those that many entries share.
    pub tags: SmallVec<[Tag; 4]>,
}

impl EntryAddress {
    /// Returns the key of an entry of this scope; `None` for a private entry of a client without a partition.
    pub fn key(&self, scope: Scope) -> Option<CacheKey> {
        match scope {
            Scope::Public => Some(self.keys.public),
            Scope::Private => self.keys.private,
        }
    }
}
