//! An index over the keys of a large object, for the while of one operation.
//!
//! The small objects that answers are made of are searched one member after the other. A custom
//! scalar may hold an object with a hundred thousand members; searching that for each of as many
//! would take minutes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Objects up to so many members are searched one after the other: some 500 comparisons of
/// lengths, still less than hashing as many keys.
const MEMBERS_SEARCHED_MAX: usize = 32;

/// Places of keys. Its hash is keyed at random, so nobody can choose keys that collide.
pub(crate) struct KeyIndex {
    places: HashMap<Box<str>, usize>,
}

impl KeyIndex {
    /// An index, if so many keys are worth one.
    pub(crate) fn for_keys(count: usize) -> Option<KeyIndex> {
        (count > MEMBERS_SEARCHED_MAX).then(|| KeyIndex { places: HashMap::with_capacity(count) })
    }

    /// Notes the place of a key, unless it has one: then that is returned and stays.
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
