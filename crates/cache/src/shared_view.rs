//! The invalidations of all routers that one router knows of: they decide which entries of a shared store are valid.
//!
//! Routers append their invalidations to one log, which numbers them, and each router follows it. An entry of the
//! shared store has the number of the last invalidation that its router had applied when its fetch began
//! ([`SharedStart`]). It is valid if none of its tags was invalidated under a higher number.
//!
//! # When a router cannot judge
//!
//! - It has not read the whole log, or has lost its connection to it: every entry counts as a miss until the log is
//!   read to its end ([`SharedView::set_current`]).
//! - The log begins after the number of an entry: the entry is stale ([`SharedView::begin_epoch`] has the number).
//! - The log was lost. A log that begins again has another [`LogEpoch`], and entries of another epoch are stale.
//! - An invalidation of this router has no number yet: entries with its tags are stale until it has one
//!   ([`SharedView::announce`]). So its number is known before any entry is judged without it.
//!
//! # Order
//!
//! An invalidation is announced before it is applied to the store of the process, and its number is recorded before the
//! announcement ends. A reader takes its [`crate::FetchStart`] first, and then asks whether an entry is valid. If the
//! invalidation was applied to the process before that start, the entry is recognised here; if it is applied after it,
//! the copy in the process is stale.
//!
//! # Values that a mutation brought
//!
//! [`SharedView::announce_replacing`] announces the invalidation of a mutation with the new values, which may be shared
//! under the number of that invalidation: see [`Replacement`].

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;

use crate::invalidation::Invalidation;
use crate::invalidation_table::{InvalidationTable, Sequence};
use crate::shared_entry::SharedEntry;
use crate::shared_log::{LogEpoch, SharedStart};
use crate::shared_replacement::{Replacement, Replacements};
use crate::tags::{Tag, TagHasher, Tags};

/// The tags that one invalidation makes stale.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StaleTags {
    /// Everything with one of these tags.
    Tags(Vec<Tag>),
    /// Everything.
    All,
}

impl StaleTags {
    /// Returns the tags that invalidations name.
    pub fn of<'a>(
        invalidations: impl IntoIterator<Item = &'a Invalidation>,
        hasher: &TagHasher,
    ) -> Self {
        let mut tags = Some(Vec::new());
        for invalidation in invalidations {
            match (invalidation.tag(hasher), &mut tags) {
                (Some(tag), Some(tags)) => tags.push(tag),
                _ => tags = None,
            }
        }
        tags.map_or(Self::All, Self::Tags)
    }

    /// The tags; `None` for everything.
    fn tags(&self) -> Option<&[Tag]> {
        match self {
            Self::Tags(tags) => Some(tags),
            Self::All => None,
        }
    }

    /// True if nothing is stale.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Tags(tags) if tags.is_empty())
    }
}

/// The reason why an entry of the shared store cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedMiss {
    /// The router does not know all invalidations.
    NotCurrent,
    /// It was invalidated, or comes from another life of the log.
    Stale,
}

/// The state, see the module. Share it by `Arc`.
#[derive(Debug, Default)]
pub struct SharedView {
    epoch: ArcSwapOption<EpochView>,
    /// The number of invalidations in `announced`: no lock is taken if there are none.
    announced_count: AtomicUsize,
    announced: Mutex<AnnouncedTags>,
    replacements: Arc<Replacements>,
}

/// The invalidations of one life of the log.
#[derive(Debug)]
struct EpochView {
    epoch: LogEpoch,
    table: InvalidationTable,
    /// The number up to which the log was applied without a gap.
    applied: AtomicU64,
    is_current: AtomicBool,
}

/// Invalidations of this router that have no number yet.
#[derive(Debug, Default)]
struct AnnouncedTags {
    all: usize,
    tags: HashMap<Tag, usize>,
}

impl SharedView {
    /// Begins to follow the log from `applied` on: everything up to that number counts as invalidated, because the log
    /// no longer has the messages. If the epoch is known, what was recorded of it is kept, and so is the number if it
    /// is `applied` already. Entries are valid only after [`SharedView::set_current`].
    pub fn begin_epoch(&self, epoch: LogEpoch, applied: Sequence) {
        if let Some(known) = self.epoch.load_full().filter(|known| known.epoch == epoch) {
            if known.applied.load(SeqCst) != applied.0 {
                known.table.record(applied, &[], true);
                known.applied.store(applied.0, SeqCst);
                // Last: a replacement that has not begun by now sees the number.
                self.replacements.break_stale(None);
            }
            return;
        }
        let table = InvalidationTable::default();
        table.record(applied, &[], true);
        self.epoch.store(Some(Arc::new(EpochView {
            epoch,
            table,
            applied: AtomicU64::new(applied.0),
            is_current: AtomicBool::new(false),
        })));
        // Last, as above: it sees the epoch.
        self.replacements.break_stale(None);
    }

    /// Notes whether the log was read to its end and is being followed.
    pub fn set_current(&self, is_current: bool) {
        if let Some(view) = &*self.epoch.load() {
            view.is_current.store(is_current, SeqCst);
        }
    }

    /// True if entries can be judged.
    pub fn is_current(&self) -> bool {
        self.epoch.load().as_ref().is_some_and(|view| view.is_current.load(SeqCst))
    }

    /// Returns the point of a fetch that begins now. `None` if the response must not be shared, because the router does
    /// not know the log.
    pub fn begin_fetch(&self) -> Option<SharedStart> {
        let view = self.epoch.load();
        let view = view.as_ref().filter(|view| view.is_current.load(SeqCst))?;
        Some(SharedStart { epoch: view.epoch, sequence: Sequence(view.applied.load(SeqCst)) })
    }

    /// Returns the epoch, and the number up to which the log was applied. `None` before the first epoch.
    pub fn position(&self) -> Option<SharedStart> {
        let view = self.epoch.load();
        let view = view.as_ref()?;
        Some(SharedStart { epoch: view.epoch, sequence: Sequence(view.applied.load(SeqCst)) })
    }

    /// Records an invalidation that the log has numbered. The caller applies it to the store of the process as well,
    /// and then calls [`SharedView::set_applied`]. Nothing is recorded for another epoch.
    pub fn record(&self, at: SharedStart, stale: &StaleTags) {
        let view = self.epoch.load();
        let Some(view) = view.as_ref().filter(|view| view.epoch == at.epoch) else { return };
        match stale {
            StaleTags::Tags(tags) => view.table.record(at.sequence, tags, false),
            StaleTags::All => view.table.record(at.sequence, &[], true),
        }
    }

    /// Records an invalidation of another router, as [`SharedView::record`] does.
    pub fn record_foreign(&self, at: SharedStart, stale: &StaleTags) {
        self.record(at, stale);
        // Last: a replacement that has not begun by now sees the number.
        self.replacements.break_stale(stale.tags());
    }

    /// Notes that the log was applied up to and with this number.
    pub fn set_applied(&self, at: SharedStart) {
        let view = self.epoch.load();
        if let Some(view) = view.as_ref().filter(|view| view.epoch == at.epoch) {
            view.applied.store(at.sequence.0, SeqCst);
        }
    }

    /// Announces an invalidation of this router, before it is applied to the store of the process. It lasts until
    /// [`SharedView::end_announcement`].
    pub fn announce(&self, stale: &StaleTags) {
        let mut announced = self.lock_announced();
        self.replacements.break_stale(stale.tags());
        announced.add(stale);
        self.announced_count.fetch_add(1, SeqCst);
    }

    /// Announces an invalidation as [`SharedView::announce`] does, for a caller that knows the new values: those with
    /// `tags`, which a request has brought that began at `since`. They may be shared as of the number of this
    /// invalidation if, when the log was applied up to that number, the result is still intact. `None` if they must not
    /// be shared.
    pub fn announce_replacing(
        &self,
        stale: &StaleTags,
        since: SharedStart,
        tags: &Tags,
    ) -> Option<Replacement> {
        let mut announced = self.lock_announced();
        self.replacements.break_stale(stale.tags());
        let is_announced = announced.concerns(tags.iter(), tags.is_unbounded());
        announced.add(stale);
        self.announced_count.fetch_add(1, SeqCst);
        if is_announced || tags.is_unbounded() {
            return None;
        }
        let watched: HashSet<Tag> = tags.iter().collect();
        let replacement = self.replacements.begin(watched)?;
        // Behind the beginning, so that no invalidation is missed that the log brings meanwhile.
        let view = self.epoch.load();
        let view = view.as_ref().filter(|view| view.epoch == since.epoch)?;
        let is_valid = view.table.is_valid(since.sequence, tags.iter(), false);
        is_valid.then_some(replacement)
    }

    /// True if the log was applied up to and with this number.
    pub fn has_applied(&self, at: SharedStart) -> bool {
        let position = self.position();
        position.is_some_and(|it| it.epoch == at.epoch && it.sequence >= at.sequence)
    }

    /// Ends the announcement of an invalidation, after its number was recorded.
    pub fn end_announcement(&self, stale: &StaleTags) {
        let mut announced = self.lock_announced();
        match stale {
            StaleTags::All => announced.all = announced.all.saturating_sub(1),
            StaleTags::Tags(tags) => tags.iter().for_each(|tag| announced.remove(*tag)),
        }
        self.announced_count.fetch_sub(1, SeqCst);
    }

    /// Decides whether an entry with these further tags may be used.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn check(&self, entry: &SharedEntry, implied: &[Tag]) -> Result<(), SharedMiss> {
        let (tags, is_unbounded) = (&entry.policy.tags, entry.policy.tags.is_unbounded());
        let all = || tags.iter().chain(implied.iter().copied());
        // Before the table: a number is recorded before its announcement ends.
        if self.announced_count.load(SeqCst) > 0
            && self.lock_announced().concerns(all(), is_unbounded)
        {
            return Err(SharedMiss::Stale);
        }
        let view = self.epoch.load();
        let view = view.as_ref().filter(|view| view.is_current.load(SeqCst));
        let Some(view) = view else { return Err(SharedMiss::NotCurrent) };
        let is_valid = entry.start.epoch == view.epoch
            && view.table.is_valid(entry.start.sequence, all(), is_unbounded);
        if is_valid { Ok(()) } else { Err(SharedMiss::Stale) }
    }

    /// Locks the announcements. They are consistent at any time, so those behind a poisoned lock are sound.
    fn lock_announced(&self) -> MutexGuard<'_, AnnouncedTags> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnnouncedTags {
    fn add(&mut self, stale: &StaleTags) {
        match stale {
            StaleTags::All => self.all += 1,
            StaleTags::Tags(tags) => {
                tags.iter().for_each(|tag| *self.tags.entry(*tag).or_default() += 1);
            }
        }
    }

    /// True if something with these tags is stale.
    fn concerns(&self, mut tags: impl Iterator<Item = Tag>, is_unbounded: bool) -> bool {
        self.all > 0
            || is_unbounded && !self.tags.is_empty()
            || tags.any(|tag| self.tags.contains_key(&tag))
    }

    fn remove(&mut self, tag: Tag) {
        if let Some(count) = self.tags.get_mut(&tag) {
            *count -= 1;
            if *count == 0 {
                self.tags.remove(&tag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::policy::CachePolicy;
    use crate::tags::Tags;
    use crate::time::Timestamp;
    use crate::time_to_live::ResponseContent;

    const FIRST: LogEpoch = LogEpoch([1; 16]);
    const SECOND: LogEpoch = LogEpoch([2; 16]);

    fn at(epoch: LogEpoch, sequence: u64) -> SharedStart {
        SharedStart { epoch, sequence: Sequence(sequence) }
    }

    fn tag(number: u64) -> Tag {
        Tag(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23))
    }

    fn entry(start: SharedStart, tags: Tags) -> SharedEntry {
        SharedEntry {
            start,
            began: Timestamp(0),
            fetch_took: Duration::ZERO,
            policy: CachePolicy { tags, ..CachePolicy::default() },
            content: ResponseContent::Data,
            body: Bytes::new(),
        }
    }

    fn with_tag(start: SharedStart, number: u64) -> SharedEntry {
        entry(start, [tag(number)].into_iter().collect())
    }

    fn follow(view: &SharedView, at: SharedStart, stale: &StaleTags) {
        view.record(at, stale);
        view.set_applied(at);
    }

    #[test]
    fn nothing_is_valid_before_the_log_is_read_and_after_it_is_lost() {
        let view = SharedView::default();
        let first = with_tag(at(FIRST, 5), 1);
        assert_eq!(view.check(&first, &[]), Err(SharedMiss::NotCurrent));
        assert_eq!((view.begin_fetch(), view.position()), (None, None));
        view.begin_epoch(FIRST, Sequence(4));
        assert_eq!(view.check(&first, &[]), Err(SharedMiss::NotCurrent));
        assert_eq!((view.begin_fetch(), view.position()), (None, Some(at(FIRST, 4))));
        view.set_current(true);
        assert_eq!(view.check(&first, &[]), Ok(()));
        assert_eq!(view.begin_fetch(), Some(at(FIRST, 4)));
        view.set_current(false);
        assert_eq!(view.check(&first, &[]), Err(SharedMiss::NotCurrent));
        assert_eq!(view.begin_fetch(), None);
    }

    #[test]
    fn an_entry_is_stale_after_an_invalidation_of_a_tag_that_it_has_or_implies() {
        let view = SharedView::default();
        view.begin_epoch(FIRST, Sequence(4));
        view.set_current(true);
        follow(&view, at(FIRST, 5), &StaleTags::Tags(vec![tag(1)]));
        assert_eq!(view.check(&with_tag(at(FIRST, 4), 1), &[]), Err(SharedMiss::Stale));
        assert_eq!(view.check(&with_tag(at(FIRST, 4), 2), &[tag(1)]), Err(SharedMiss::Stale));
        assert_eq!(view.check(&with_tag(at(FIRST, 4), 2), &[]), Ok(()));
        assert_eq!(view.check(&with_tag(at(FIRST, 5), 1), &[]), Ok(()));
        let unbounded = entry(at(FIRST, 4), Tags::unbounded());
        assert_eq!(view.check(&unbounded, &[]), Err(SharedMiss::Stale));
        follow(&view, at(FIRST, 6), &StaleTags::All);
        assert_eq!(view.check(&with_tag(at(FIRST, 5), 2), &[]), Err(SharedMiss::Stale));
        assert_eq!(view.begin_fetch(), Some(at(FIRST, 6)));
    }

    #[test]
    fn entries_from_before_the_log_and_of_other_epochs_are_stale() {
        let view = SharedView::default();
        view.begin_epoch(FIRST, Sequence(4));
        view.set_current(true);
        assert_eq!(view.check(&with_tag(at(FIRST, 3), 1), &[]), Err(SharedMiss::Stale));
        assert_eq!(view.check(&with_tag(at(SECOND, 9), 1), &[]), Err(SharedMiss::Stale));
        view.begin_epoch(SECOND, Sequence(0));
        assert_eq!(view.check(&with_tag(at(SECOND, 0), 1), &[]), Err(SharedMiss::NotCurrent));
        view.set_current(true);
        assert_eq!(view.check(&with_tag(at(SECOND, 0), 1), &[]), Ok(()));
        assert_eq!(view.check(&with_tag(at(FIRST, 9), 1), &[]), Err(SharedMiss::Stale));
        // A message of the old epoch that comes late changes nothing.
        follow(&view, at(FIRST, 7), &StaleTags::All);
        assert_eq!(view.position(), Some(at(SECOND, 0)));
        assert_eq!(view.check(&with_tag(at(SECOND, 0), 1), &[]), Ok(()));
    }

    #[test]
    fn a_gap_makes_everything_before_it_stale() {
        let view = SharedView::default();
        view.begin_epoch(FIRST, Sequence(4));
        view.set_current(true);
        // The same place again: nothing was missed.
        view.begin_epoch(FIRST, Sequence(4));
        assert_eq!(view.check(&with_tag(at(FIRST, 4), 1), &[]), Ok(()));
        view.begin_epoch(FIRST, Sequence(9));
        assert_eq!(view.check(&with_tag(at(FIRST, 8), 1), &[]), Err(SharedMiss::Stale));
        assert_eq!(view.check(&with_tag(at(FIRST, 9), 1), &[]), Ok(()));
    }

    #[test]
    fn an_announced_invalidation_makes_stale_until_it_has_a_number() {
        let view = SharedView::default();
        view.begin_epoch(FIRST, Sequence(4));
        view.set_current(true);
        let (tags, later) = (StaleTags::Tags(vec![tag(1)]), with_tag(at(FIRST, 7), 1));
        view.announce(&tags);
        view.announce(&tags);
        assert_eq!(view.check(&later, &[]), Err(SharedMiss::Stale));
        assert_eq!(view.check(&with_tag(at(FIRST, 7), 2), &[]), Ok(()));
        assert_eq!(
            view.check(&entry(at(FIRST, 7), Tags::unbounded()), &[]),
            Err(SharedMiss::Stale)
        );
        view.record(at(FIRST, 6), &tags);
        view.end_announcement(&tags);
        assert_eq!(view.check(&later, &[]), Err(SharedMiss::Stale), "the other one has no number");
        view.end_announcement(&tags);
        assert_eq!(view.check(&later, &[]), Ok(()));
        assert_eq!(view.check(&with_tag(at(FIRST, 5), 1), &[]), Err(SharedMiss::Stale));
        view.announce(&StaleTags::All);
        assert_eq!(view.check(&with_tag(at(FIRST, 7), 2), &[]), Err(SharedMiss::Stale));
        view.end_announcement(&StaleTags::All);
        assert_eq!(view.check(&with_tag(at(FIRST, 7), 2), &[]), Ok(()));
    }

    /// Begins a replacement of values with tag 1 by a request that began at number 4.
    fn replace(view: &SharedView) -> Option<Replacement> {
        let tags = [tag(1)].into_iter().collect();
        view.announce_replacing(&StaleTags::Tags(vec![tag(1)]), at(FIRST, 4), &tags)
    }

    fn following() -> SharedView {
        let view = SharedView::default();
        view.begin_epoch(FIRST, Sequence(4));
        view.set_current(true);
        view
    }

    #[test]
    fn a_replacement_is_intact_if_its_own_invalidation_is_the_only_one() {
        let (view, own) = (following(), StaleTags::Tags(vec![tag(1)]));
        let replacement = replace(&view).expect("a replacement");
        view.record_foreign(at(FIRST, 5), &StaleTags::Tags(vec![tag(2)]));
        view.set_applied(at(FIRST, 5));
        view.record(at(FIRST, 6), &own);
        view.end_announcement(&own);
        assert!(!view.has_applied(at(FIRST, 6)));
        follow(&view, at(FIRST, 6), &own);
        assert!(view.has_applied(at(FIRST, 6)) && replacement.is_intact());
        assert_eq!(view.check(&with_tag(at(FIRST, 6), 1), &[]), Ok(()));
        assert_eq!(view.check(&with_tag(at(FIRST, 4), 1), &[]), Err(SharedMiss::Stale));
    }

    #[test]
    fn any_other_invalidation_breaks_a_replacement() {
        let other = StaleTags::Tags(vec![tag(7), tag(1)]);
        let breaks: [&dyn Fn(&SharedView); 5] = [
            &|view| view.record_foreign(at(FIRST, 5), &other),
            &|view| view.announce(&other),
            &|view| view.announce(&StaleTags::All),
            &|view| view.begin_epoch(SECOND, Sequence(0)),
            &|view| drop(replace(view)),
        ];
        for (number, break_it) in breaks.iter().enumerate() {
            let view = following();
            let replacement = replace(&view).expect("a replacement");
            break_it(&view);
            assert!(!replacement.is_intact(), "{number}: after its beginning");
            let view = following();
            break_it(&view);
            assert!(replace(&view).is_none(), "{number}: before it");
        }
        let tags = Tags::unbounded();
        let unbounded = following().announce_replacing(&StaleTags::All, at(FIRST, 4), &tags);
        assert!(unbounded.is_none());
    }
}
