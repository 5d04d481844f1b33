//! Index over the keys of a large object, for the duration of one operation.
//!
//! The small objects of typical responses are searched member by member. A custom scalar may hold
//! an object with a hundred thousand members; searching that for each of as many keys would take
//! minutes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Maximum number of members of objects that are searched member by member: some 500 comparisons of
/// lengths, still less than hashing as many keys.
const MEMBERS_SEARCHED_MAX: usize = 32;

/// Positions of keys. Its hash is keyed at random, so that clients cannot choose keys that collide.
pub(crate) struct KeyIndex {
    places: HashMap<Box<str>, usize>,
}

impl KeyIndex {
    /// Creates an index, if there are enough keys to be worth one.
    pub(crate) fn for_keys(count: usize) -> Option<KeyIndex> {
        (count > MEMBERS_SEARCHED_MAX).then(|| KeyIndex { places: HashMap::with_capacity(count) })
    }

    /// Notes the position of a key. If the key has a position already, returns that and keeps it.
    pub(crate) fn insert(&mut self, key: &str, place: usize) -> Option<usize> {
        match self.places.entry(key.into()) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(new) => {
                new.insert(place);
                None
            }
        }
    }
}
