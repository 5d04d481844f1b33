//! The hints of subgraph schemas about caching (`@cacheControl`, `@cacheTag`, `@openfed__entityCache`,
//! `@openfed__queryCache`, `@openfed__cacheInvalidate`, `@openfed__cachePopulate`), as a table beside the model: most
//! graphs have none. [`crate::sdl`] reads it; templates of tags are text here and are compiled where they are used.

use std::collections::HashMap;

use crate::{FieldId, SubgraphId, TypeId};

/// The maximum number of tags of one type or field in one subgraph.
pub const CACHE_TAGS_MAX: usize = 64;

/// The hints of a supergraph. A hint holds in the subgraph that gives it, and in no other one. Elements without a hint
/// are absent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CacheHints {
    /// The hints of object types, interfaces and unions.
    pub types: HashMap<(SubgraphId, TypeId), ElementHints>,
    /// The hints of fields.
    pub fields: HashMap<(SubgraphId, FieldId), ElementHints>,
}

/// The hints of one type or field in one subgraph.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ElementHints {
    /// `@cacheControl`.
    pub control: CacheControlHint,
    /// `maxAge` of `@openfed__entityCache` on an entity type, or of `@openfed__queryCache` on a root field, in seconds:
    /// the time of the entity or field with everything below it.
    pub whole_max_age: Option<u32>,
    /// The formats of `@cacheTag`, at most [`CACHE_TAGS_MAX`].
    pub tags: Vec<Box<str>>,
    /// True for a mutation field that has changed the entity that it returns (`@openfed__cacheInvalidate`,
    /// `@openfed__cachePopulate`).
    pub changes_entity: bool,
    /// Set for a mutation field with `@openfed__cachePopulate`: the entity that it returns may be stored.
    pub populates: Option<PopulateHint>,
}

/// The arguments of one `@openfed__cachePopulate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PopulateHint {
    /// `maxAge`, in seconds: takes the place of the time that the type of the entity has.
    pub max_age: Option<u32>,
}

/// The arguments of one `@cacheControl`. Absent arguments are `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheControlHint {
    /// `maxAge`, in seconds.
    pub max_age: Option<u32>,
    /// True for the `scope` PRIVATE, false for PUBLIC.
    pub is_private: Option<bool>,
    /// `inheritMaxAge`.
    pub inherits_max_age: bool,
}

impl CacheHints {
    /// Returns the hints of a type in a subgraph.
    pub fn of_type(&self, subgraph: SubgraphId, ty: TypeId) -> Option<&ElementHints> {
        self.types.get(&(subgraph, ty))
    }

    /// Returns the hints of a field in a subgraph.
    pub fn of_field(&self, subgraph: SubgraphId, field: FieldId) -> Option<&ElementHints> {
        self.fields.get(&(subgraph, field))
    }
}
