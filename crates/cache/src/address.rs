//! The address of an entry: its keys, and the tags that follow from the same facts.

use smallvec::SmallVec;

use crate::keys::EntryKeys;
use crate::tags::Tag;

/// The place of an entry, and the tags that follow from it. Lookups and stores of one entry use equal addresses.
///
/// The tags are not stored with the entry, which saves 32 bytes for most entities.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryAddress {
    /// The keys.
    pub keys: EntryKeys,
    /// The tags of the subgraph, the type, the type in the subgraph, and the entity; none for whole responses.
    pub tags: SmallVec<[Tag; 4]>,
}
