//! Invalidations: messages that name what a change has made stale.

use crate::entity_key::EntityKey;
use crate::tags::{Tag, TagHasher};

/// One thing that is stale. It has the same meaning whether it comes from the admin API, a mutation, a broker or Redis.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Invalidation {
    /// Everything with this tag, of all subgraphs.
    Tag(Box<str>),
    /// Everything that was made of this entity, of all subgraphs.
    Entity {
        /// The name of the entity's type.
        type_name: Box<str>,
        /// The fields of one of its keys.
        key: EntityKey,
    },
    /// Everything that was made of objects of a type.
    Type {
        /// The name of the type.
        type_name: Box<str>,
        /// The subgraph of the stale entries; `None` for all subgraphs.
        subgraph: Option<Box<str>>,
    },
    /// Everything from one subgraph.
    Subgraph(Box<str>),
    /// Everything. Also the right reaction when invalidations may have been lost, because a connection broke.
    All,
}

impl Invalidation {
    /// Returns the tag that this invalidation names; `None` for [`Invalidation::All`].
    pub fn tag(&self, hasher: &TagHasher) -> Option<Tag> {
        Some(match self {
            Self::Tag(text) => hasher.text(text),
            Self::Entity { type_name, key } => hasher.entity(type_name, key),
            Self::Type { type_name, subgraph: None } => hasher.type_name(type_name),
            Self::Type { type_name, subgraph: Some(subgraph) } => {
                hasher.type_in_subgraph(type_name, subgraph)
            }
            Self::Subgraph(name) => hasher.subgraph(name),
            Self::All => return None,
        })
    }
}
