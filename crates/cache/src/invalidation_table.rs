//! The times of the last invalidations, by tag, in constant memory.
//!
//! An entry is valid if its fetch began after the last invalidation of each of its tags. So an invalidation writes one
//! number, and neither looks for entries nor knows them: there are no lists from tags to entries that could keep an
//! entry that has other tags by now, and nothing is scanned. It also covers a fetch that began before an invalidation
//! and ends after it: its response is stale when it is stored.
//!
//! "Time" is the number of invalidations so far ([`Sequence`]), so that clocks and their precision do not matter.
//!
//! # Bounded memory
//!
//! The table consists of buckets of one cache line: seven tags with the sequence of their last invalidation, and a
//! floor. When an eighth tag comes, the tag that was invalidated first leaves, and its sequence becomes the floor: all
//! tags of the bucket count as invalidated then. Forgetting makes some old entries stale early, and never serves one.
//!
//! # Order of memory accesses
//!
//! Writers are serialised by a lock. A writer raises the sequence first, then the floor, then the slot. A reader reads
//! the slots first and the floor last: if it sees a slot in which a new tag has replaced another one, it also sees the
//! floor that covers the replaced tag.
//!
//! # Watchers
//!
//! A result that is kept up to date (a live query) watches its tags ([`InvalidationTable::watch`]). The watchers are
//! behind the lock of the writers: an invalidation either marks a watcher, or came before the watcher got its tags, and
//! then [`InvalidationTable::set_watched`] sees its stamp.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::tags::{Tag, Tags};
use crate::watch_registry::{WatchRegistry, WatcherId};

/// The number of slots of a bucket: with the floor, eight words of 8 bytes are one cache line.
const SLOTS: usize = 7;

/// The bits of a slot that hold the sequence. Ten million invalidations a second take 20 days to reach the end, a
/// thousand take five centuries.
const SEQUENCE_BITS: u32 = 44;
const SEQUENCE_MAX: u64 = (1 << SEQUENCE_BITS) - 1;

/// The number of buckets of [`InvalidationTable::default`]: 4 MiB, which remember about 400,000 invalidated tags.
const BUCKETS_DEFAULT: usize = 1 << 16;

/// The maximum number of buckets.
const BUCKETS_MAX: usize = 1 << 20;

/// The number of invalidations before an event: a point in the order of invalidations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Sequence(pub u64);

/// The last invalidations of all tags, see the module.
pub struct InvalidationTable {
    buckets: Box<[Bucket]>,
    /// The number of invalidations so far.
    sequence: AtomicU64,
    /// Entries with an earlier start of their fetch are stale, whatever their tags are.
    floor: AtomicU64,
    forgotten: AtomicU64,
    /// The watchers; also the lock of all writers.
    watchers: Mutex<WatchRegistry>,
    /// Wakes the owner of the watchers when some are marked.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for InvalidationTable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("InvalidationTable")
            .field("sequence", &self.now())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// One cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// A fingerprint of the tag above the sequence of its last invalidation; 0 if the slot is free.
    slots: [AtomicU64; SLOTS],
    /// All tags of this bucket count as invalidated at this sequence.
    floor: AtomicU64,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl InvalidationTable {
    /// Creates a table with room for `buckets` times seven tags, 64 bytes for each bucket. The number is rounded up to
    /// a power of two, and is at most 2^20.
    pub fn with_buckets(buckets: usize) -> Self {
        let buckets = buckets.clamp(1, BUCKETS_MAX).next_power_of_two();
        Self {
            buckets: std::iter::repeat_with(Bucket::default).take(buckets).collect(),
            sequence: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            watchers: Mutex::default(),
            wake: OnceLock::new(),
        }
    }

    /// Returns the sequence for a fetch that begins now. It must be read before the request is sent.
    pub fn now(&self) -> Sequence {
        Sequence(self.sequence.load(SeqCst))
    }

    /// Makes everything stale that has one of `tags`, also responses to fetches in flight. When this returns, no later
    /// lookup finds it, and its watchers are marked.
    pub fn invalidate(&self, tags: impl IntoIterator<Item = Tag>) {
        self.invalidate_checked(tags, |_| ());
    }

    /// Makes everything stale, also responses to fetches in flight, and marks all watchers.
    pub fn invalidate_all(&self) {
        self.invalidate_all_checked(|_| ());
    }

    /// Does what [`InvalidationTable::invalidate`] does, for a caller that knows the new values. `check` is called
    /// first, and no other invalidation comes between it and this one. Returns its result, and the sequence from which
    /// on the new values count. `None` at the end of all sequences.
    pub fn invalidate_checked<T>(
        &self,
        tags: impl IntoIterator<Item = Tag>,
        check: impl FnOnce(&Self) -> T,
    ) -> Option<(T, Sequence)> {
        let mut watchers = self.lock_watchers();
        let checked = check(self);
        let sequence = self.next_sequence()?;
        let has_marked = if watchers.is_empty() {
            tags.into_iter().for_each(|tag| self.stamp(tag, sequence));
            false
        } else {
            let tags: Vec<Tag> = tags.into_iter().collect();
            tags.iter().for_each(|tag| self.stamp(*tag, sequence));
            watchers.mark(&tags)
        };
        drop(watchers);
        self.wake_owner_if(has_marked);
        Some((checked, Sequence(sequence)))
    }

    /// As [`InvalidationTable::invalidate_checked`], for everything.
    pub fn invalidate_all_checked<T>(
        &self,
        check: impl FnOnce(&Self) -> T,
    ) -> Option<(T, Sequence)> {
        let mut watchers = self.lock_watchers();
        let checked = check(self);
        let sequence = self.next_sequence();
        if let Some(sequence) = sequence {
            self.floor.store(sequence, SeqCst);
        }
        let has_marked = watchers.mark_all();
        drop(watchers);
        self.wake_owner_if(has_marked);
        Some((checked, Sequence(sequence?)))
    }

    /// Sets the callback that is called when watchers were marked, on the thread of the invalidation, which must not
    /// wait there. There is one owner of watchers: further calls have no effect.
    pub fn on_marked(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Limits the number of tags of all watchers. A watcher that would exceed it is marked by every invalidation.
    pub fn limit_watched_tags(&self, tags_max: usize) {
        self.lock_watchers().limit_tags(tags_max);
    }

    /// Adds a watcher without tags. Remove it by [`InvalidationTable::unwatch`].
    pub fn watch(&self) -> WatcherId {
        self.lock_watchers().add()
    }

    /// Replaces the tags of a watcher with a result of fetches that began at `since` or later, and removes its
    /// mark. With `keeps_old` the tags are added to those that it has. Returns false if one of `tags` was invalidated
    /// after `since`: the result is stale already, and the watcher is not marked because of it.
    pub fn set_watched(
        &self,
        watcher: WatcherId,
        since: Sequence,
        tags: &Tags,
        keeps_old: bool,
    ) -> bool {
        self.lock_watchers().set_tags(watcher, tags, keeps_old);
        // An invalidation from now on marks the watcher.
        self.is_valid(since, tags.iter(), tags.is_unbounded())
    }

    /// Removes a watcher.
    pub fn unwatch(&self, watcher: WatcherId) {
        self.lock_watchers().remove(watcher);
    }

    /// Takes the watchers that were marked since the last call.
    pub fn take_marked(&self) -> Vec<WatcherId> {
        self.lock_watchers().take_marked()
    }

    /// The number of tags of all watchers, and of the watchers that every invalidation marks.
    pub fn watched(&self) -> (usize, usize) {
        let watchers = self.lock_watchers();
        (watchers.tags(), watchers.of_everything())
    }

    /// Locks out other writers. Each call under this lock leaves the watchers consistent, so a poisoned lock is sound.
    fn lock_watchers(&self) -> MutexGuard<'_, WatchRegistry> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_owner_if(&self, has_marked: bool) {
        if has_marked && let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Records an invalidation with a sequence that another table has given: an invalidation of a log that several
    /// processes follow. Invalidations may be recorded in any order, and more than once. `is_all` concerns everything,
    /// whatever the tags are.
    pub(crate) fn record(&self, sequence: Sequence, tags: &[Tag], is_all: bool) {
        // A table that follows a log has no watchers; the lock keeps other writers out.
        let _watchers = self.lock_watchers();
        if sequence.0 > SEQUENCE_MAX {
            self.floor.store(u64::MAX, SeqCst);
            return;
        }
        self.sequence.fetch_max(sequence.0, SeqCst);
        if is_all {
            self.floor.fetch_max(sequence.0, SeqCst);
        } else {
            tags.iter().for_each(|tag| self.stamp(*tag, sequence.0));
        }
    }

    /// True if none of these tags was invalidated after `since`. `is_unbounded` is true for an entry that counts as
    /// having every tag.
    ///
    /// Hot path: one load if there was no invalidation at all, otherwise one cache line for each tag.
    pub fn is_valid(
        &self,
        since: Sequence,
        tags: impl IntoIterator<Item = Tag>,
        is_unbounded: bool,
    ) -> bool {
        if self.sequence.load(SeqCst) <= since.0 {
            // Also right at the end of all sequences: the floor is above every sequence then.
            return self.floor.load(SeqCst) <= since.0;
        }
        !is_unbounded
            && self.floor.load(SeqCst) <= since.0
            && tags.into_iter().all(|tag| self.last_invalidation(tag) <= since.0)
    }

    /// The number of invalidated tags that were forgotten, because more had to be remembered than the table has room
    /// for. A number that grows means that entries become stale early.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(SeqCst)
    }

    /// The size of the table.
    pub fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// Advances the sequence. `None` at its end: everything is stale for ever then.
    fn next_sequence(&self) -> Option<u64> {
        let next = self.sequence.load(SeqCst) + 1;
        if next > SEQUENCE_MAX {
            self.floor.store(u64::MAX, SeqCst);
            return None;
        }
        self.sequence.store(next, SeqCst);
        Some(next)
    }

    fn place(&self, Tag(tag): Tag) -> (&Bucket, u64) {
        // The number of buckets is a power of two, and fingerprint and bucket use different bits: at most 20 each.
        let bucket = &self.buckets[tag as usize & (self.buckets.len() - 1)];
        // Never 0, so that a slot in use differs from a free one in the fingerprint.
        let fingerprint = (tag >> SEQUENCE_BITS).max(1);
        (bucket, fingerprint)
    }

    /// Records an invalidation. The caller holds the lock.
    fn stamp(&self, tag: Tag, sequence: u64) {
        let (bucket, fingerprint) = self.place(tag);
        let mut oldest = (u64::MAX, 0);
        // Recorded invalidations may come late: the last one of a tag counts.
        let mut sequence = sequence;
        for (index, slot) in bucket.slots.iter().enumerate() {
            let word = slot.load(SeqCst);
            if word >> SEQUENCE_BITS == fingerprint {
                sequence = sequence.max(word & SEQUENCE_MAX);
                oldest = (0, index);
                break;
            }
            // A free slot has the sequence 0, and so is the oldest.
            if word & SEQUENCE_MAX < oldest.0 {
                oldest = (word & SEQUENCE_MAX, index);
            }
        }
        let (replaced, index) = oldest;
        if replaced > 0 {
            self.forgotten.fetch_add(1, SeqCst);
            // Before the slot: see the module.
            bucket.floor.fetch_max(replaced, SeqCst);
        }
        bucket.slots[index].store(fingerprint << SEQUENCE_BITS | sequence, SeqCst);
    }

    /// The sequence of the last invalidation that a tag may have had; 0 if it had none.
    fn last_invalidation(&self, tag: Tag) -> u64 {
        let (bucket, fingerprint) = self.place(tag);
        let mut last = 0;
        for slot in &bucket.slots {
            let word = slot.load(SeqCst);
            if word >> SEQUENCE_BITS == fingerprint {
                last = word & SEQUENCE_MAX;
            }
        }
        // After the slots: see the module.
        last.max(bucket.floor.load(SeqCst))
    }
}

impl Default for InvalidationTable {
    fn default() -> Self {
        Self::with_buckets(BUCKETS_DEFAULT)
    }
}

// Entries contain a part of a tag instead of the whole tag: `Tag::to_40_bits`.
const _: () = assert!(SEQUENCE_BITS == 44 && BUCKETS_MAX <= 1 << 20);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;

    use super::*;

    /// A tag as a hash would make it: all bits depend on the number.
    fn tag(number: u64) -> Tag {
        Tag(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23))
    }

    #[test]
    fn an_invalidation_concerns_its_tags_and_what_began_before() {
        let table = InvalidationTable::with_buckets(16);
        let before = table.now();
        table.invalidate([tag(1)]);
        assert!(!table.is_valid(before, [tag(0), tag(1)], false));
        assert!(table.is_valid(before, [tag(0), tag(2)], false));
        assert!(!table.is_valid(before, [], true), "an unbounded set has every tag");
        assert!(table.is_valid(table.now(), [tag(1)], true), "a fetch that begins later is valid");
        table.invalidate_all();
        assert!(!table.is_valid(before, [], false));
        assert!(table.is_valid(table.now(), [tag(1)], false));
    }

    #[test]
    fn recorded_invalidations_count_in_any_order_and_forget_nothing() {
        let table = InvalidationTable::with_buckets(1);
        table.record(Sequence(9), &[tag(1)], false);
        table.record(Sequence(4), &[tag(1), tag(2)], false);
        assert!(!table.is_valid(Sequence(8), [tag(1)], false), "the later one counts");
        assert!(table.is_valid(Sequence(9), [tag(1)], false));
        assert!(!table.is_valid(Sequence(3), [tag(2)], false));
        assert!(table.is_valid(Sequence(4), [tag(2)], false));
        table.record(Sequence(6), &[], true);
        assert!(!table.is_valid(Sequence(5), [tag(3)], false));
        assert!(table.is_valid(Sequence(6), [tag(3)], false));
        // Eight tags do not fit: each of them stays invalidated.
        (10..18).rev().for_each(|number| table.record(Sequence(number), &[tag(number)], false));
        for number in 10..18 {
            assert!(!table.is_valid(Sequence(number - 1), [tag(number)], false), "{number}");
        }
        table.record(Sequence(u64::MAX), &[tag(1)], false);
        assert!(
            !table.is_valid(Sequence(1 << 50), [tag(30)], false),
            "not a sequence: everything is stale"
        );
    }

    #[test]
    fn a_tag_that_was_restored_from_40_bits_has_the_invalidations_of_the_whole_one() {
        for buckets in [1, 1 << 8, 1 << 17] {
            let table = InvalidationTable::with_buckets(buckets);
            let before = table.now();
            (0..50).for_each(|number| table.invalidate([tag(number)]));
            for number in 0..200 {
                let whole = tag(number);
                let restored = Tag::from_40_bits(whole.to_40_bits());
                assert_eq!(
                    table.is_valid(before, [whole], false),
                    table.is_valid(before, [restored], false)
                );
            }
        }
    }

    #[test]
    fn a_table_that_overflows_makes_old_entries_stale_and_remembers_new_ones() {
        let table = InvalidationTable::with_buckets(1);
        let before = table.now();
        (0..7).for_each(|number| table.invalidate([tag(number)]));
        assert_eq!(table.forgotten(), 0);
        assert!(table.is_valid(before, [tag(100)], false));
        table.invalidate([tag(7)]);
        assert_eq!(table.forgotten(), 1);
        assert!(!table.is_valid(before, [tag(100)], false), "the floor covers all tags");
        let later = Sequence(1);
        assert!(table.is_valid(later, [tag(100)], false), "it began after what was forgotten");
        assert!(!table.is_valid(later, [tag(7)], false));
    }

    #[test]
    fn at_the_end_of_all_sequences_everything_is_stale() {
        let table = InvalidationTable::with_buckets(1);
        table.sequence.store(SEQUENCE_MAX - 1, SeqCst);
        table.invalidate([tag(1)]);
        let last = table.now();
        assert!(table.is_valid(last, [tag(1)], false));
        table.invalidate([tag(2)]);
        assert!(!table.is_valid(last, [tag(1)], false));
        assert!(!table.is_valid(table.now(), [], false));
    }

    #[test]
    fn a_watcher_is_told_of_each_invalidation_after_its_result_or_its_result_is_stale_already() {
        let table = InvalidationTable::with_buckets(16);
        let woken = std::sync::Arc::new(AtomicU64::new(0));
        let counter = std::sync::Arc::clone(&woken);
        table.on_marked(move || _ = counter.fetch_add(1, SeqCst));
        let watcher = table.watch();
        let tags: Tags = [tag(1), tag(2)].into_iter().collect();
        let before = table.now();
        table.invalidate([tag(1)]);
        assert!(!table.set_watched(watcher, before, &tags, false), "it began before");
        assert!(table.set_watched(watcher, table.now(), &tags, false));
        table.invalidate([tag(3)]);
        assert_eq!((table.take_marked(), woken.load(SeqCst)), (vec![], 0));
        table.invalidate([tag(2)]);
        table.invalidate([tag(2)]);
        assert_eq!((table.take_marked(), woken.load(SeqCst)), (vec![watcher], 1));
        table.invalidate_all();
        assert_eq!((table.take_marked(), table.watched()), (vec![watcher], (2, 0)));
        table.unwatch(watcher);
        table.invalidate_all();
        assert_eq!((table.take_marked(), table.watched()), (vec![], (0, 0)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Begin,
        Invalidate(Vec<u64>),
        InvalidateAll,
    }

    fn steps(tags: u64) -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => Just(Step::Begin),
            8 => proptest::collection::vec(0..tags, 1..4).prop_map(Step::Invalidate),
            1 => Just(Step::InvalidateAll),
        ];
        proptest::collection::vec(step, 1..60)
    }

    /// Plays steps on a table and on a model that forgets nothing. Returns for each fetch and tag whether table and
    /// model say that it is valid.
    fn play(table: &InvalidationTable, steps: &[Step], tags: u64) -> Vec<(bool, bool)> {
        let mut last: HashMap<u64, usize> = HashMap::new();
        let mut fetches = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Begin => fetches.push((number, table.now())),
                Step::Invalidate(names) => {
                    table.invalidate(names.iter().copied().map(tag));
                    last.extend(names.iter().map(|name| (*name, number)));
                }
                Step::InvalidateAll => {
                    table.invalidate_all();
                    last.extend((0..tags).map(|name| (name, number)));
                }
            }
        }
        let each = |(number, since): &(usize, Sequence)| {
            let (number, since) = (*number, *since);
            let last = &last;
            (0..tags)
                .map(move |name| {
                    let is_valid = last.get(&name).is_none_or(|last| *last < number);
                    (table.is_valid(since, [tag(name)], false), is_valid)
                })
                .collect::<Vec<_>>()
        };
        fetches.iter().flat_map(each).collect()
    }

    proptest! {
        #[test]
        fn a_large_table_is_exact(steps in steps(12)) {
            let table = InvalidationTable::with_buckets(1 << 10);
            for (valid, expected) in play(&table, &steps, 12) {
                prop_assert_eq!(valid, expected);
            }
        }

        #[test]
        fn a_table_that_is_too_small_never_calls_something_stale_valid(steps in steps(40)) {
            let table = InvalidationTable::with_buckets(1);
            for (valid, expected) in play(&table, &steps, 40) {
                prop_assert!(expected || !valid);
            }
        }
    }

    /// Readers check, in every order that the scheduler makes, that what was invalidated before they looked is stale.
    #[test]
    fn readers_see_every_invalidation_that_has_returned() {
        const TAGS: u64 = 64;
        // One bucket, so that each invalidation replaces another tag.
        let table = InvalidationTable::with_buckets(1);
        let returned: Vec<AtomicU64> = (0..TAGS).map(|_| AtomicU64::new(0)).collect();
        let (start, is_done) = (Barrier::new(3), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for reader in 0..2u64 {
                let (table, returned, start, is_done) = (&table, &returned, &start, &is_done);
                scope.spawn(move || {
                    start.wait();
                    let mut number = reader;
                    while !is_done.load(SeqCst) {
                        number = (number + 7) % TAGS;
                        // The invalidation with this sequence has returned, so anything before it is stale.
                        let last = returned[number as usize].load(SeqCst);
                        if last > 0 {
                            assert!(!table.is_valid(Sequence(last - 1), [tag(number)], false));
                        }
                    }
                });
            }
            start.wait();
            for round in 0..200_000u64 {
                let number = round * 31 % TAGS;
                table.invalidate([tag(number)]);
                returned[number as usize].store(table.now().0, SeqCst);
            }
            is_done.store(true, SeqCst);
        });
    }
}
