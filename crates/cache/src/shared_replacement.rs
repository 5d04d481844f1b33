//! Values that the response to a mutation brought, on their way into the shared store.
//!
//! The invalidation of the mutation gets a number in the log, and the new values are stored as if their fetch had begun
//! at that number. That is right only if no other invalidation of their tags came between the request of the mutation
//! and that number. A [`Replacement`] watches for it: until it ends, every other invalidation of one of its tags breaks
//! it, whether this router announces it or the log brings it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::tags::Tag;

/// The maximum number of replacements at one time. The values of further ones are not shared.
const REPLACEMENTS_MAX: usize = 1_024;

/// The replacements of one router that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Replacements {
    /// The number of those in `intact`: no lock is taken if there are none.
    count: AtomicUsize,
    intact: Mutex<IntactReplacements>,
}

/// The replacements that are not broken.
#[derive(Debug, Default)]
struct IntactReplacements {
    next: u64,
    /// The tags of each.
    tags: HashMap<u64, HashSet<Tag>>,
}

/// One invalidation of a mutation with the new values, see the module. It ends when it is dropped.
#[derive(Debug)]
pub struct Replacement {
    all: Arc<Replacements>,
    number: u64,
}

impl Replacements {
    /// Begins a replacement of values with these tags. `None` if there are too many.
    pub(crate) fn begin(self: &Arc<Self>, tags: HashSet<Tag>) -> Option<Replacement> {
        let mut intact = self.lock();
        if intact.tags.len() >= REPLACEMENTS_MAX {
            return None;
        }
        let number = intact.next;
        intact.next += 1;
        intact.tags.insert(number, tags);
        self.count.store(intact.tags.len(), SeqCst);
        Some(Replacement { all: Arc::clone(self), number })
    }

    /// Breaks the replacements that an invalidation of these tags concerns; `None` is one of everything.
    pub(crate) fn break_stale(&self, stale: Option<&[Tag]>) {
        if self.count.load(SeqCst) == 0 {
            return;
        }
        let mut intact = self.lock();
        match stale {
            None => intact.tags.clear(),
            Some(stale) => {
                intact.tags.retain(|_, tags| !stale.iter().any(|tag| tags.contains(tag)));
            }
        }
        self.count.store(intact.tags.len(), SeqCst);
    }

    /// Locks the replacements. They are consistent at any time, so those behind a poisoned lock are sound.
    fn lock(&self) -> MutexGuard<'_, IntactReplacements> {
        self.intact.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replacement {
    /// True if no other invalidation of its tags has come.
    pub fn is_intact(&self) -> bool {
        self.all.lock().tags.contains_key(&self.number)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        let mut intact = self.all.lock();
        intact.tags.remove(&self.number);
        self.all.count.store(intact.tags.len(), SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalidation_breaks_the_replacements_with_one_of_its_tags() {
        let all = Arc::<Replacements>::default();
        let begin = |tags: &[u64]| all.begin(tags.iter().map(|it| Tag(*it)).collect());
        let replacements = [begin(&[1, 2]), begin(&[3])].map(|it| it.expect("room"));
        let are_intact = || replacements.each_ref().map(Replacement::is_intact);
        all.break_stale(Some(&[Tag(4)]));
        assert_eq!(are_intact(), [true, true]);
        all.break_stale(Some(&[Tag(4), Tag(2)]));
        assert_eq!(are_intact(), [false, true]);
        all.break_stale(None);
        assert_eq!(are_intact(), [false, false]);
    }

    #[test]
    fn the_number_of_replacements_is_bounded() {
        let all = Arc::<Replacements>::default();
        let begin = || all.begin(HashSet::from([Tag(1)]));
        let begun: Vec<_> = std::iter::from_fn(begin).collect();
        assert_eq!(begun.len(), REPLACEMENTS_MAX);
        drop(begun);
        assert!(begin().is_some());
    }
}
