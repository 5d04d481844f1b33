//! Watchers of tags: which results are made of what was invalidated. Live queries are executed again because of it.
//!
//! A watcher has a set of tags, and is marked when one of them is invalidated. Marks are taken by the owner of the
//! watchers. Without watchers an invalidation costs nothing here.

use std::collections::{HashMap, HashSet};

use smallvec::SmallVec;

use crate::tags::{Tag, Tags};

/// The number of watchers of one tag up to which they are a list: nearly all tags are those of entities, with few
/// watchers.
const LISTED_MAX: usize = 8;

/// The maximum number of tags of all watchers if nothing else is set. A tag of a watcher costs up to 80 bytes.
const TAGS_MAX_DEFAULT: usize = 1_000_000;

/// A watcher. Numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WatcherId(u64);

/// The watchers of one table of invalidations.
#[derive(Debug)]
pub(crate) struct WatchRegistry {
    watchers: HashMap<WatcherId, Watcher>,
    by_tag: HashMap<Tag, TagWatchers>,
    /// The watchers that are notified of every invalidation.
    of_everything: HashSet<WatcherId>,
    /// The watchers that are marked, in the order of the invalidations. Those that were removed are skipped.
    marked: Vec<WatcherId>,
    /// The number of tags of all watchers.
    tags: usize,
    tags_max: usize,
    next_id: u64,
}

#[derive(Debug, Default)]
struct Watcher {
    /// The tags in order, without repetitions. Empty if the watcher is notified of everything.
    tags: Vec<Tag>,
    is_of_everything: bool,
    is_marked: bool,
}

/// The watchers of one tag.
#[derive(Debug)]
enum TagWatchers {
    Few(SmallVec<[WatcherId; 1]>),
    /// The tag of a type or a subgraph may have a hundred thousand watchers, and each of them may leave.
    Many(HashSet<WatcherId>),
}

impl Default for WatchRegistry {
    fn default() -> Self {
        Self {
            watchers: HashMap::new(),
            by_tag: HashMap::new(),
            of_everything: HashSet::new(),
            marked: Vec::new(),
            tags: 0,
            tags_max: TAGS_MAX_DEFAULT,
            next_id: 0,
        }
    }
}

impl WatchRegistry {
    /// Limits the number of tags of all watchers. A watcher that would exceed it is notified of every invalidation.
    pub(crate) fn limit_tags(&mut self, tags_max: usize) {
        self.tags_max = tags_max;
    }

    /// True if no invalidation has to be noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    /// The number of tags of all watchers.
    pub(crate) fn tags(&self) -> usize {
        self.tags
    }

    /// The number of watchers that are notified of every invalidation.
    pub(crate) fn of_everything(&self) -> usize {
        self.of_everything.len()
    }

    /// Adds a watcher without tags.
    pub(crate) fn add(&mut self) -> WatcherId {
        let id = WatcherId(self.next_id);
        self.next_id += 1;
        self.watchers.insert(id, Watcher::default());
        id
    }

    /// Replaces the tags of a watcher, or adds `tags` to them if `keeps_old`. A mark that was not taken is removed. A
    /// watcher that was removed is ignored.
    pub(crate) fn set_tags(&mut self, id: WatcherId, tags: &Tags, keeps_old: bool) {
        let Some(watcher) = self.watchers.get_mut(&id) else { return };
        watcher.is_marked = false;
        let old = std::mem::take(&mut watcher.tags);
        let mut new: Vec<Tag> = tags.iter().collect();
        let mut is_of_everything = tags.is_unbounded();
        if keeps_old {
            new.extend_from_slice(&old);
            is_of_everything |= watcher.is_of_everything;
        }
        new.sort_unstable();
        new.dedup();
        is_of_everything |= self.tags - old.len() + new.len() > self.tags_max;
        if is_of_everything {
            new = Vec::new();
        }
        watcher.is_of_everything = is_of_everything;
        self.tags = self.tags - old.len() + new.len();
        // Mostly all tags stay.
        for tag in &old {
            if new.binary_search(tag).is_err() {
                self.remove_from_tag(*tag, id);
            }
        }
        for tag in &new {
            if old.binary_search(tag).is_err() {
                self.by_tag.entry(*tag).or_default().add(id);
            }
        }
        match is_of_everything {
            true => _ = self.of_everything.insert(id),
            false => _ = self.of_everything.remove(&id),
        }
        if let Some(watcher) = self.watchers.get_mut(&id) {
            watcher.tags = new;
        }
    }

    /// Removes a watcher, if it is there.
    pub(crate) fn remove(&mut self, id: WatcherId) {
        let Some(watcher) = self.watchers.remove(&id) else { return };
        self.tags -= watcher.tags.len();
        for tag in watcher.tags {
            self.remove_from_tag(tag, id);
        }
        self.of_everything.remove(&id);
        if self.watchers.is_empty() {
            *self = Self { tags_max: self.tags_max, next_id: self.next_id, ..Self::default() };
        }
    }

    fn remove_from_tag(&mut self, tag: Tag, id: WatcherId) {
        if let Some(watchers) = self.by_tag.get_mut(&tag)
            && watchers.remove(id)
        {
            self.by_tag.remove(&tag);
        }
    }

    /// Marks the watchers of these tags. Returns true if there is a mark that was not there before.
    pub(crate) fn mark(&mut self, tags: &[Tag]) -> bool {
        let before = self.marked.len();
        let Self { watchers, by_tag, of_everything, marked, .. } = self;
        for tag in tags {
            if let Some(of_tag) = by_tag.get(tag) {
                of_tag.for_each(|id| mark(watchers, marked, id));
            }
        }
        if !tags.is_empty() {
            of_everything.iter().for_each(|id| mark(watchers, marked, *id));
        }
        marked.len() > before
    }

    /// Marks all watchers. Returns true if there is a mark that was not there before.
    pub(crate) fn mark_all(&mut self) -> bool {
        let before = self.marked.len();
        for (id, watcher) in &mut self.watchers {
            if !std::mem::replace(&mut watcher.is_marked, true) {
                self.marked.push(*id);
            }
        }
        self.marked.len() > before
    }

    /// Takes all marks.
    pub(crate) fn take_marked(&mut self) -> Vec<WatcherId> {
        let mut marked = std::mem::take(&mut self.marked);
        marked.retain(|id| {
            let watcher = self.watchers.get_mut(id);
            watcher.is_some_and(|watcher| std::mem::take(&mut watcher.is_marked))
        });
        marked
    }
}

fn mark(watchers: &mut HashMap<WatcherId, Watcher>, marked: &mut Vec<WatcherId>, id: WatcherId) {
    if let Some(watcher) = watchers.get_mut(&id)
        && !std::mem::replace(&mut watcher.is_marked, true)
    {
        marked.push(id);
    }
}

impl Default for TagWatchers {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}

impl TagWatchers {
    fn add(&mut self, id: WatcherId) {
        match self {
            Self::Few(list) if list.len() < LISTED_MAX => list.push(id),
            Self::Few(list) => {
                let mut many: HashSet<_> = list.iter().copied().collect();
                many.insert(id);
                *self = Self::Many(many);
            }
            Self::Many(many) => _ = many.insert(id),
        }
    }

    /// Removes a watcher. Returns true if none is left.
    fn remove(&mut self, id: WatcherId) -> bool {
        match self {
            Self::Few(list) => {
                list.retain(|known| *known != id);
                list.is_empty()
            }
            Self::Many(many) => {
                many.remove(&id);
                many.is_empty()
            }
        }
    }

    fn for_each(&self, mut call: impl FnMut(WatcherId)) {
        match self {
            Self::Few(list) => list.iter().for_each(|id| call(*id)),
            Self::Many(many) => many.iter().for_each(|id| call(*id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn tags(numbers: &[u64]) -> Tags {
        numbers.iter().map(|number| Tag(*number)).collect()
    }

    fn listed(numbers: &[u64]) -> Vec<Tag> {
        numbers.iter().map(|number| Tag(*number)).collect()
    }

    #[test]
    fn a_watcher_is_marked_once_until_its_mark_is_taken() {
        let mut registry = WatchRegistry::default();
        let id = registry.add();
        registry.set_tags(id, &tags(&[1, 2]), false);
        assert!(!registry.mark(&listed(&[3])));
        assert!(registry.mark(&listed(&[1])));
        assert!(!registry.mark(&listed(&[2])) && !registry.mark_all());
        assert_eq!(registry.take_marked(), [id]);
        assert_eq!(registry.take_marked(), []);
        assert!(registry.mark_all());
        registry.set_tags(id, &tags(&[1]), false);
        assert_eq!(registry.take_marked(), [], "new tags belong to a later result");
        assert!(registry.mark_all());
        registry.remove(id);
        assert_eq!((registry.take_marked(), registry.is_empty()), (vec![], true));
    }

    #[test]
    fn a_watcher_with_too_many_tags_is_told_of_everything_until_it_has_fewer() {
        let mut registry = WatchRegistry::default();
        registry.limit_tags(3);
        let (first, second) = (registry.add(), registry.add());
        registry.set_tags(first, &tags(&[1, 2]), false);
        registry.set_tags(second, &tags(&[3, 4]), false);
        assert_eq!((registry.tags(), registry.of_everything()), (2, 1));
        registry.mark(&listed(&[9]));
        assert_eq!(registry.take_marked(), [second]);
        registry.set_tags(second, &tags(&[3]), false);
        registry.mark(&listed(&[9]));
        assert_eq!(registry.take_marked(), []);
        registry.remove(first);
        registry.remove(second);
        assert_eq!((registry.tags(), registry.of_everything()), (0, 0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add,
        Remove(usize),
        SetTags(usize, Vec<u64>, bool),
        Mark(Vec<u64>),
        MarkAll,
        Take,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let numbers = || proptest::collection::vec(0u64..12, 0..5);
        let step = prop_oneof![
            3 => Just(Step::Add),
            1 => (0usize..20).prop_map(Step::Remove),
            8 => (0usize..20, numbers(), any::<bool>())
                .prop_map(|(index, tags, keeps)| Step::SetTags(index, tags, keeps)),
            6 => numbers().prop_map(Step::Mark),
            1 => Just(Step::MarkAll),
            3 => Just(Step::Take),
        ];
        proptest::collection::vec(step, 1..120)
    }

    proptest! {
        /// Only watchers with an invalidated tag are notified, and all of them.
        #[test]
        fn watchers_are_told_of_their_tags_and_of_nothing_else(steps in steps()) {
            let mut registry = WatchRegistry::default();
            let mut ids = Vec::new();
            let mut model: BTreeMap<WatcherId, (BTreeSet<u64>, bool)> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Add => {
                        let id = registry.add();
                        ids.push(id);
                        model.insert(id, Default::default());
                    }
                    Step::Remove(index) => {
                        if let Some(id) = ids.get(index) {
                            registry.remove(*id);
                            model.remove(id);
                        }
                    }
                    Step::SetTags(index, new, keeps_old) => {
                        let Some(id) = ids.get(index) else { continue };
                        registry.set_tags(*id, &tags(&new), keeps_old);
                        if let Some((known, is_marked)) = model.get_mut(id) {
                            if !keeps_old {
                                known.clear();
                            }
                            known.extend(new);
                            *is_marked = false;
                        }
                    }
                    Step::Mark(numbers) => {
                        registry.mark(&listed(&numbers));
                        for (known, is_marked) in model.values_mut() {
                            *is_marked |= numbers.iter().any(|number| known.contains(number));
                        }
                    }
                    Step::MarkAll => {
                        registry.mark_all();
                        model.values_mut().for_each(|(_, is_marked)| *is_marked = true);
                    }
                    Step::Take => {
                        let taken: BTreeSet<_> = registry.take_marked().into_iter().collect();
                        let expected = model.iter_mut().filter(|(_, state)| state.1);
                        let expected: BTreeSet<_> = expected
                            .map(|(id, state)| {
                                state.1 = false;
                                *id
                            })
                            .collect();
                        prop_assert_eq!(taken, expected);
                    }
                }
                let count: usize = model.values().map(|(known, _)| known.len()).sum();
                prop_assert_eq!(registry.tags(), count);
            }
        }
    }
}
