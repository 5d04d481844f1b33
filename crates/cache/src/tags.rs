//! Tags: the names of everything that an invalidation can name, as hashes.
//!
//! An entry has a tag for its subgraph, its type, its entity, and each text tag of `@cacheTag` and of the subgraph's
//! response. Two different names have equal tags with a chance of 1 in 2^64; an invalidation of one then also makes
//! the other stale, which costs a fetch and is never wrong. The hash has a secret key, so that clients cannot cause
//! such collisions.

use smallvec::SmallVec;

use crate::entity_key::EntityKey;
use crate::keys::{HashDomain, KeySecret, PartHasher};

/// The maximum number of tags of one entry. Entries with more are stale after any invalidation: see [`Tags`].
pub const TAGS_MAX: usize = 4096;

/// The hash of a name that an invalidation can name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub(crate) u64);

impl Tag {
    /// Returns 40 bits of the tag: all that an [`crate::InvalidationTable`] looks at.
    pub(crate) fn to_40_bits(self) -> [u8; 5] {
        let bits = self.0 >> 44 << 20 | self.0 & ((1 << 20) - 1);
        let [a, b, c, d, e, ..] = bits.to_le_bytes();
        [a, b, c, d, e]
    }

    /// Restores a tag from its 40 bits. It may be different from the whole tag, and the table cannot tell them apart.
    pub(crate) fn from_40_bits([a, b, c, d, e]: [u8; 5]) -> Self {
        let bits = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
        Self(bits >> 20 << 44 | bits & ((1 << 20) - 1))
    }
}

/// The tags of one entry or response: a bounded set.
///
/// A set that would have more than [`TAGS_MAX`] tags becomes *unbounded*: it counts as having every tag, so that any
/// invalidation makes its entry stale. That is safe, and bounds the memory of an entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tags {
    tags: SmallVec<[Tag; 4]>,
    is_unbounded: bool,
}

impl Tags {
    /// Adds a tag, if the set does not have it.
    pub fn insert(&mut self, tag: Tag) {
        if self.is_unbounded {
            return;
        }
        if let Err(place) = self.tags.binary_search(&tag) {
            if self.tags.len() >= TAGS_MAX {
                *self = Self { tags: SmallVec::new(), is_unbounded: true };
            } else {
                self.tags.insert(place, tag);
            }
        }
    }

    /// Adds all tags of `other`.
    pub fn insert_all(&mut self, other: &Self) {
        if other.is_unbounded {
            *self = other.clone();
        }
        self.extend(other.iter());
    }

    /// Returns the set of a list in any order, with repetitions.
    pub(crate) fn of_list(mut tags: Vec<Tag>, is_unbounded: bool) -> Self {
        tags.sort_unstable();
        tags.dedup();
        match is_unbounded || tags.len() > TAGS_MAX {
            true => Self::unbounded(),
            false => Self { tags: SmallVec::from_vec(tags), is_unbounded: false },
        }
    }

    /// Returns the tags; none if the set is unbounded.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Tag> + '_ {
        self.tags.iter().copied()
    }

    /// True if the set counts as having every tag.
    pub fn is_unbounded(&self) -> bool {
        self.is_unbounded
    }

    pub(crate) fn unbounded() -> Self {
        Self { tags: SmallVec::new(), is_unbounded: true }
    }
}

impl Extend<Tag> for Tags {
    fn extend<I: IntoIterator<Item = Tag>>(&mut self, tags: I) {
        tags.into_iter().for_each(|tag| self.insert(tag));
    }
}

impl FromIterator<Tag> for Tags {
    fn from_iter<I: IntoIterator<Item = Tag>>(tags: I) -> Self {
        let mut set = Self::default();
        set.extend(tags);
        set
    }
}

/// Makes tags of names. All users of one store must use the same secret.
#[derive(Clone, Debug)]
pub struct TagHasher(KeySecret);

/// The kinds of names. The numbers are part of the hash.
#[derive(Clone, Copy)]
enum TagKind {
    Text = 1,
    Entity = 2,
    Type = 3,
    TypeInSubgraph = 4,
    Subgraph = 5,
}

impl TagHasher {
    /// Creates a hasher.
    pub fn new(secret: &KeySecret) -> Self {
        Self(secret.clone())
    }

    /// Returns the tag of a text, as `@cacheTag` renders it or a subgraph sends it.
    pub fn text(&self, text: &str) -> Tag {
        self.begin(TagKind::Text).part(text).finish()
    }

    /// Returns the tag of an entity.
    pub fn entity(&self, type_name: &str, key: &EntityKey) -> Tag {
        let mut hasher = self.begin_entity(type_name);
        for (path, value) in key.fields() {
            hasher.field(path, value);
        }
        hasher.finish()
    }

    /// Begins the tag of an entity. Its key is hashed field by field, without an [`EntityKey`]: the hot path of
    /// lookups.
    pub fn begin_entity(&self, type_name: &str) -> EntityTagHasher {
        EntityTagHasher(self.begin(TagKind::Entity).part(type_name))
    }

    /// Returns the tag of all entries with objects of a type.
    pub fn type_name(&self, name: &str) -> Tag {
        self.begin(TagKind::Type).part(name).finish()
    }

    /// Returns the tag of the entries of one subgraph with objects of a type.
    pub fn type_in_subgraph(&self, name: &str, subgraph: &str) -> Tag {
        self.begin(TagKind::TypeInSubgraph).part(name).part(subgraph).finish()
    }

    /// Returns the tag of all entries of a subgraph.
    pub fn subgraph(&self, name: &str) -> Tag {
        self.begin(TagKind::Subgraph).part(name).finish()
    }

    fn begin(&self, kind: TagKind) -> TagInProgress {
        let mut hasher = PartHasher::new(&self.0, HashDomain::Tag);
        hasher.part(&[kind as u8]);
        TagInProgress(hasher)
    }
}

#[derive(Clone)]
struct TagInProgress(PartHasher);

impl TagInProgress {
    fn part(mut self, text: &str) -> Self {
        self.0.part(text.as_bytes());
        self
    }

    fn finish(self) -> Tag {
        Tag(self.0.finish().words()[0])
    }
}

/// The tag of an entity, while the fields of its key are added. Clone it for several entities of one type.
#[derive(Clone)]
pub struct EntityTagHasher(TagInProgress);

impl EntityTagHasher {
    /// Adds a field of the key. Fields must be added in the order of their paths, as [`EntityKey`] sorts them; `path`
    /// and `value` have the form that [`EntityKey`] describes.
    pub fn field(&mut self, path: &str, value: &str) {
        self.0.0.part(path.as_bytes());
        self.0.0.part(value.as_bytes());
    }

    /// Returns the tag.
    pub fn finish(self) -> Tag {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hasher() -> TagHasher {
        TagHasher::new(&KeySecret::from_bytes([7; 16]))
    }

    #[test]
    fn equal_names_have_equal_tags_and_others_have_not() {
        let (first, second) = (hasher(), hasher());
        assert_eq!(first.text("user-1"), second.text("user-1"));
        let key = EntityKey::from_json(r#"{"id":"User"}"#).expect("a key");
        let all = [
            first.text("User"),
            first.type_name("User"),
            first.subgraph("User"),
            first.type_in_subgraph("User", "users"),
            first.type_in_subgraph("users", "User"),
            first.type_in_subgraph("Use", "rusers"),
            first.entity("User", &key),
        ];
        let set: Tags = all.into_iter().chain(all).collect();
        assert_eq!(set.iter().len(), all.len());
        let other = TagHasher::new(&KeySecret::from_bytes([8; 16]));
        assert_ne!(first.text("user-1"), other.text("user-1"));
    }

    #[test]
    fn an_entity_tag_is_the_same_from_an_event_and_from_fields_of_a_representation() {
        let event = r#"{"__typename":"Item","org":{"id":7},"sku":"a\u0062"}"#;
        let tag = hasher().entity("Item", &EntityKey::from_json(event).expect("a key"));
        let mut from_fields = hasher().begin_entity("Item");
        from_fields.field("org.id", "7");
        from_fields.field("sku", "ab");
        assert_eq!(tag, from_fields.finish());
    }

    #[test]
    fn a_set_with_too_many_tags_counts_as_having_all() {
        let mut set: Tags = (0..TAGS_MAX as u64).map(Tag).collect();
        set.insert(Tag(5));
        assert!(!set.is_unbounded());
        set.insert(Tag(u64::MAX));
        assert!(set.is_unbounded());
        let mut other: Tags = [Tag(1)].into_iter().collect();
        other.insert_all(&set);
        other.insert(Tag(2));
        assert_eq!((other.is_unbounded(), other.iter().len()), (true, 0));
    }
}
