//! The classes of entries: those of one class have their first tags in common, such as all entities of one type from
//! one subgraph.
//!
//! An entry has the number of its class in place of these tags. So a walk over the entries finds what an invalidation
//! would make stale, and an entry has 2 bytes for it instead of 24. The entries of each class are counted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{OnceLock, PoisonError, RwLock};

use smallvec::SmallVec;
use telemetry::Metric;

use crate::tags::Tag;

/// The number of tags that the entries of a class have in common: subgraph, type, and type in the subgraph.
pub(crate) const CLASS_TAGS_MAX: usize = 3;

/// The maximum number of classes, that without tags included. Entries of further classes keep all of their tags. With
/// 72 bytes for each class they take 144 KiB.
pub(crate) const CLASSES_MAX: usize = 2048;

/// The number of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClassId(pub(crate) u16);

/// The class of entries without common tags.
pub(crate) const NO_CLASS: ClassId = ClassId(0);

type ClassTags = SmallVec<[Tag; CLASS_TAGS_MAX]>;

/// All classes of one store.
#[derive(Debug)]
pub(crate) struct EntryClasses {
    ids: RwLock<HashMap<ClassTags, ClassId>>,
    classes: Box<[EntryClass]>,
}

#[derive(Debug, Default)]
struct EntryClass {
    tags: OnceLock<ClassTags>,
    entries: AtomicU64,
    bytes: AtomicU64,
    evictions: AtomicU64,
}

/// Counts of the entries of a store, or of those of one subgraph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EntryTotals {
    /// The number of entries, also of those that are stale and have not been looked up since.
    pub entries: u64,
    /// Their size, with the overhead.
    pub bytes: u64,
    /// The entries that were evicted to make room, since the start.
    pub evictions: u64,
}

/// The metrics of these totals. The labels that name level and subgraph are added by the caller.
pub const ENTRY_METRICS: &[Metric<EntryTotals>] = &[
    Metric::gauge("starling_cache_bytes", "Size of all entries with their overhead", |it| it.bytes),
    Metric::gauge(
        "starling_cache_entries",
        "Entries, with those that are stale and were not looked up",
        |it| it.entries,
    ),
    Metric::counter("starling_cache_evictions", "Entries evicted to make room", |it| it.evictions),
];

impl EntryClasses {
    /// Returns the class of entries with `tags` at their address, and the number of these tags that the class has. An
    /// entry keeps the other ones.
    pub(crate) fn class_of(&self, tags: &[Tag]) -> (ClassId, usize) {
        let common = &tags[..tags.len().min(CLASS_TAGS_MAX)];
        if common.is_empty() {
            return (NO_CLASS, 0);
        }
        // The map is consistent at any time, so the map behind a poisoned lock is sound.
        let known = self.ids.read().unwrap_or_else(PoisonError::into_inner).get(common).copied();
        if let Some(id) = known {
            return (id, common.len());
        }
        let mut ids = self.ids.write().unwrap_or_else(PoisonError::into_inner);
        // The class without tags is not in the map.
        let next = ids.len() + 1;
        let id = match ids.get(common) {
            Some(&id) => id,
            None if next >= CLASSES_MAX => return (NO_CLASS, 0),
            None => {
                // Nothing else sets the tags of this class, because of the lock.
                let _ = self.classes[next].tags.set(common.into());
                let id = ClassId(next as u16);
                ids.insert(common.into(), id);
                id
            }
        };
        (id, common.len())
    }

    /// Returns the tags of a class; none if it is not known.
    pub(crate) fn tags(&self, ClassId(id): ClassId) -> &[Tag] {
        self.classes.get(usize::from(id)).and_then(|it| it.tags.get()).map_or(&[], |tags| tags)
    }

    /// Returns whether each class has one of these tags, by its number.
    pub(crate) fn matching(&self, has: impl Fn(Tag) -> bool) -> Vec<bool> {
        let tags =
            |class: &EntryClass| class.tags.get().is_some_and(|all| all.iter().any(|it| has(*it)));
        self.classes.iter().map(tags).collect()
    }

    /// Counts an entry that is stored.
    pub(crate) fn count_stored(&self, id: ClassId, bytes: u64) {
        let class = self.class(id);
        class.entries.fetch_add(1, Relaxed);
        class.bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts an entry that is no longer stored.
    pub(crate) fn count_removed(&self, id: ClassId, bytes: u64) {
        let class = self.class(id);
        class.entries.fetch_sub(1, Relaxed);
        class.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Counts an entry that was evicted to make room, in addition to [`EntryClasses::count_removed`].
    pub(crate) fn count_evicted(&self, id: ClassId) {
        self.class(id).evictions.fetch_add(1, Relaxed);
    }

    fn class(&self, ClassId(id): ClassId) -> &EntryClass {
        &self.classes[usize::from(id)]
    }

    /// Returns the totals of the classes with an accepted first tag; `None` is the class without tags.
    pub(crate) fn totals(&self, accepts: impl Fn(Option<Tag>) -> bool) -> EntryTotals {
        let mut totals = EntryTotals::default();
        for class in &self.classes {
            let first = class.tags.get().and_then(|tags| tags.first().copied());
            let entries = class.entries.load(Relaxed);
            let evictions = class.evictions.load(Relaxed);
            if (entries > 0 || evictions > 0) && accepts(first) {
                totals.entries += entries;
                totals.bytes += class.bytes.load(Relaxed);
                totals.evictions += evictions;
            }
        }
        totals
    }
}

impl Default for EntryClasses {
    fn default() -> Self {
        let classes = std::iter::repeat_with(EntryClass::default).take(CLASSES_MAX).collect();
        Self { ids: RwLock::default(), classes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_tags_are_one_class_and_too_many_classes_are_none() {
        let classes = EntryClasses::default();
        assert_eq!(classes.class_of(&[]), (NO_CLASS, 0));
        let of_entity = [Tag(1), Tag(2), Tag(3), Tag(4)];
        let (first, common) = classes.class_of(&of_entity);
        assert_eq!((common, classes.tags(first)), (3, &of_entity[..3]));
        assert_eq!(classes.class_of(&[Tag(1), Tag(2), Tag(3), Tag(9)]), (first, 3));
        let (root, common) = classes.class_of(&[Tag(1)]);
        assert_eq!((common, classes.tags(root)), (1, &[Tag(1)][..]));
        assert_ne!(root, first);
        for number in 0..CLASSES_MAX as u64 {
            classes.class_of(&[Tag(100 + number)]);
        }
        assert_eq!(classes.class_of(&[Tag(7)]), (NO_CLASS, 0));
        assert_eq!(classes.class_of(&of_entity), (first, 3), "known classes stay");
        assert_eq!(classes.matching(|tag| tag == Tag(2)).iter().filter(|it| **it).count(), 1);
    }

    #[test]
    fn the_table_of_classes_is_small() {
        assert!(CLASSES_MAX * size_of::<EntryClass>() <= 160 << 10);
    }
}
