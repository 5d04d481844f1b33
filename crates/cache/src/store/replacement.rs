//! Invalidations that come with the new values, as those by the response to a mutation do.

use super::Store;
use crate::address::EntryAddress;
use crate::insertion::FetchStart;
use crate::invalidation::Invalidation;
use crate::invalidation_table::InvalidationTable;
use crate::shared_view::StaleTags;
use crate::stats::count;
use crate::tags::{TagHasher, Tags};

impl Store {
    /// Makes everything stale that the invalidations name, as [`Store::invalidate`] does, for a caller that stores new
    /// values in its place. `start` is the start of the request that brought them, and `new` has the address and the
    /// further tags of each.
    ///
    /// Returns the start with which each of them is to be inserted, so that this invalidation does not concern it, but
    /// every later one. `None` for a value that another invalidation has made stale since `start`: that may be about a
    /// later change.
    pub fn replace(
        &self,
        invalidations: &[Invalidation],
        hasher: &TagHasher,
        start: FetchStart,
        new: &[(&EntryAddress, &Tags)],
    ) -> Vec<Option<FetchStart>> {
        let counted = invalidations.iter().inspect(|_| count(&self.stats.invalidations));
        let table = &*self.invalidations;
        let is_valid = |(address, tags): &(&EntryAddress, &Tags)| {
            let all = address.tags.iter().copied().chain(tags.iter());
            table.is_valid(start.sequence, all, tags.is_unbounded())
        };
        let check = |_: &InvalidationTable| new.iter().map(is_valid).collect::<Vec<bool>>();
        let replaced = match StaleTags::of(counted, hasher) {
            StaleTags::All => table.invalidate_all_checked(check),
            StaleTags::Tags(tags) => table.invalidate_checked(tags, check),
        };
        // At the end of all sequences, every entry is stale.
        let Some((valid, sequence)) = replaced else { return vec![None; new.len()] };
        let start = FetchStart { sequence, ..start };
        valid.into_iter().map(|is_valid| is_valid.then_some(start)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::store::StoreSettings;
    use crate::{
        CachePolicy, EntityKey, HashDomain, KeyBase, KeySecret, Lookup, LookupStats, NewEntry,
        ResponseContent, StoreOutcome, Timestamp,
    };

    use super::*;

    const SECRET: KeySecret = KeySecret::from_bytes([3; 16]);

    struct World {
        store: Store,
        hasher: TagHasher,
        address: EntryAddress,
        tags: Tags,
    }

    fn product() -> Invalidation {
        let key = EntityKey::from_json(r#"{"id":1}"#).expect("a key");
        Invalidation::Entity { type_name: "Product".into(), key }
    }

    impl World {
        fn new() -> Self {
            let hasher = TagHasher::new(&SECRET);
            let tag = product().tag(&hasher).expect("a tag");
            let types = [hasher.type_name("Product"), hasher.type_in_subgraph("Product", "shop")];
            let tags = [hasher.subgraph("shop"), types[0], types[1], tag];
            let keys = KeyBase::new(&SECRET, HashDomain::Entity).keys_of(b"1");
            Self {
                store: Store::new(&StoreSettings::default(), Arc::default()),
                address: EntryAddress { keys, tags: tags.into() },
                tags: [hasher.text("sale")].into_iter().collect(),
                hasher,
            }
        }

        fn insert(&self, start: FetchStart, body: &[u8]) -> StoreOutcome {
            let fresh_for = Duration::from_secs(60);
            let policy =
                CachePolicy { fresh_for, tags: self.tags.clone(), ..CachePolicy::default() };
            let content = ResponseContent::Data;
            let new = NewEntry { policy: &policy, start, content, extra: b"", body };
            self.store.insert(&self.address, &new, Timestamp(10), &LookupStats::default())
        }

        fn replace(&self, start: FetchStart) -> Option<FetchStart> {
            let new = [(&self.address, &self.tags)];
            self.store.replace(&[product()], &self.hasher, start, &new).pop().flatten()
        }

        fn found(&self) -> Option<Vec<u8>> {
            let stats = LookupStats::default();
            match self.store.lookup(&self.address, Timestamp(20), u64::MAX, &stats) {
                Lookup::Fresh(hit) => Some(hit.body().to_vec()),
                _ => None,
            }
        }
    }

    #[test]
    fn a_new_value_takes_the_place_of_those_that_its_invalidation_makes_stale() {
        let world = World::new();
        let before = world.store.begin_fetch(Timestamp(0));
        assert_eq!(world.insert(before, b"old"), StoreOutcome::Stored);
        let start = world.replace(world.store.begin_fetch(Timestamp(5))).expect("a start");
        assert_eq!(world.found(), None);
        assert_eq!(world.insert(start, b"new"), StoreOutcome::Stored);
        assert_eq!(world.insert(before, b"late"), StoreOutcome::Outdated);
        assert_eq!(world.found().as_deref(), Some(&b"new"[..]));
        world.store.invalidate(&[product()], &world.hasher);
        assert_eq!(world.found(), None);
        assert_eq!(world.insert(start, b"new"), StoreOutcome::Outdated);
    }

    #[test]
    fn an_invalidation_since_the_request_keeps_the_new_value_out() {
        for other in [product(), Invalidation::Tag("sale".into()), Invalidation::All] {
            let world = World::new();
            let start = world.store.begin_fetch(Timestamp(5));
            world.store.invalidate([&other], &world.hasher);
            assert_eq!(world.replace(start), None, "{other:?}");
        }
        let world = World::new();
        let start = world.store.begin_fetch(Timestamp(5));
        let others = [Invalidation::Tag("other".into()), Invalidation::Subgraph("stock".into())];
        world.store.invalidate(&others, &world.hasher);
        assert!(world.replace(start).is_some(), "those are about something else");
    }
}
