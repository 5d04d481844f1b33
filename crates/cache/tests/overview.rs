//! The view of operators on a store agrees with what lookups find: totals, previews of invalidations, and lists of
//! entries.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

use std::sync::Arc;
use std::time::Duration;

use cache::{
    CachePolicy, EntityKey, EntryAddress, EntryLabel, HashDomain, Invalidation, InvalidationTable,
    KeyBase, KeySecret, Lookup, LookupStats, NewEntry, ResponseContent, Scope, Store, StoreOutcome,
    StoreSettings, TagHasher, Timestamp, is_sampled,
};
use proptest::prelude::*;

const SUBGRAPHS: [&str; 2] = ["products", "reviews"];
const TYPES: [&str; 2] = ["Product", "User"];
const IDS: u64 = 5;
const NOT_EARLY: u64 = u64::MAX;

/// An entity of one subgraph.
type Entity = (usize, usize, u64);

fn entities() -> impl Strategy<Value = Entity> {
    (0..SUBGRAPHS.len(), 0..TYPES.len(), 0..IDS)
}

struct Fixture {
    store: Store,
    stats: LookupStats,
    hasher: TagHasher,
    secret: KeySecret,
}

impl Fixture {
    fn new(bytes_max: u64) -> Self {
        let secret = KeySecret::from_bytes([3; 16]);
        let settings = StoreSettings { bytes_max, ..StoreSettings::default() };
        Self {
            store: Store::new(&settings, Arc::new(InvalidationTable::with_buckets(1 << 10))),
            stats: LookupStats::default(),
            hasher: TagHasher::new(&secret),
            secret,
        }
    }

    fn address(&self, (subgraph, of_type, id): Entity) -> EntryAddress {
        let (subgraph, name) = (SUBGRAPHS[subgraph], TYPES[of_type]);
        let mut base = KeyBase::new(&self.secret, HashDomain::Entity);
        base.part(subgraph.as_bytes());
        base.part(name.as_bytes());
        let tags = [
            self.hasher.subgraph(subgraph),
            self.hasher.type_name(name),
            self.hasher.type_in_subgraph(name, subgraph),
            self.hasher.entity(name, &key(id)),
        ];
        EntryAddress { keys: base.keys_of(&id.to_le_bytes()), tags: tags.into_iter().collect() }
    }

    fn insert(&self, entity: Entity, fresh: u64, body: usize, now: u64) {
        let policy = CachePolicy {
            fresh_for: Duration::from_millis(fresh),
            tags: [self.hasher.text(&format!("id-{}", entity.2))].into_iter().collect(),
            ..CachePolicy::default()
        };
        let start = self.store.begin_fetch(Timestamp(now));
        let body = vec![b'x'; body];
        let content = ResponseContent::Data;
        let new = NewEntry { policy: &policy, start, content, extra: b"", body: &body };
        let address = self.address(entity);
        let stored = self.store.insert(&address, &new, Timestamp(now), &self.stats);
        assert_eq!(stored, StoreOutcome::Stored);
        let label = || EntryLabel::new(Some(SUBGRAPHS[entity.0]), TYPES[entity.1], &[], false);
        self.store.note_stored(&address, Scope::Public, &body, label);
    }

    fn lookup(&self, entity: Entity, now: u64) -> Lookup {
        self.store.lookup(&self.address(entity), Timestamp(now), NOT_EARLY, &self.stats)
    }

    fn all() -> impl Iterator<Item = Entity> {
        let of_subgraph = |subgraph| {
            (0..TYPES.len()).flat_map(move |it| (0..IDS).map(move |id| (subgraph, it, id)))
        };
        (0..SUBGRAPHS.len()).flat_map(of_subgraph)
    }
}

fn key(id: u64) -> EntityKey {
    EntityKey::from_json(&format!("{{\"id\":{id}}}")).unwrap()
}

fn invalidations() -> impl Strategy<Value = Invalidation> {
    let of_type = |it: usize| Box::<str>::from(TYPES[it]);
    prop_oneof![
        (0..TYPES.len(), 0..IDS).prop_map(move |(it, id)| Invalidation::Entity {
            type_name: of_type(it),
            key: key(id)
        }),
        (0..TYPES.len(), proptest::option::of(0..SUBGRAPHS.len())).prop_map(
            move |(it, subgraph)| {
                let subgraph = subgraph.map(|it| SUBGRAPHS[it].into());
                Invalidation::Type { type_name: of_type(it), subgraph }
            }
        ),
        (0..SUBGRAPHS.len()).prop_map(|it| Invalidation::Subgraph(SUBGRAPHS[it].into())),
        (0..IDS + 1).prop_map(|id| Invalidation::Tag(format!("id-{id}").into())),
        Just(Invalidation::All),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Entity, u64, usize),
    Lookup(Entity),
    Invalidate(Invalidation),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (entities(), 1u64..100, 0usize..500).prop_map(|(it, fresh, body)| Step::Insert(it, fresh, body)),
        2 => entities().prop_map(Step::Lookup),
        1 => invalidations().prop_map(Step::Invalidate),
        1 => (0u64..40).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn a_preview_counts_what_lookups_find_before_the_invalidation_and_not_after_it(
        steps in proptest::collection::vec(steps(), 1..80),
        last in proptest::collection::vec(invalidations(), 0..3),
    ) {
        let fixture = Fixture::new(16 << 20);
        let mut now = 1_000;
        for step in steps {
            match step {
                Step::Insert(entity, fresh, body) => fixture.insert(entity, fresh, body, now),
                Step::Lookup(entity) => drop(fixture.lookup(entity, now)),
                Step::Invalidate(it) => fixture.store.invalidate(&[it], &fixture.hasher),
                Step::Wait(time) => now += time,
            }
            let totals = fixture.store.totals();
            prop_assert_eq!((totals.entries, totals.bytes), (fixture.store.len() as u64, fixture.store.bytes()));
        }
        let tags = SUBGRAPHS.map(|name| fixture.hasher.subgraph(name));
        let sum: u64 = tags.iter().map(|tag| fixture.store.totals_of(*tag).bytes).sum();
        prop_assert_eq!(sum, fixture.store.bytes());
        prop_assert_eq!(fixture.store.totals_of_others(&tags).entries, 0);

        let preview = fixture.store.preview(&last, &fixture.hasher, Timestamp(now), u64::MAX);
        prop_assert_eq!((preview.is_complete, preview.scanned), (true, fixture.store.len() as u64));
        let served = |fixture: &Fixture| {
            let is_hit = |entity: &Entity| matches!(fixture.lookup(*entity, now), Lookup::Fresh(_));
            Fixture::all().filter(is_hit).count() as u64
        };
        let before = served(&fixture);
        fixture.store.invalidate(&last, &fixture.hasher);
        prop_assert_eq!(preview.entries, before - served(&fixture));
        prop_assert_eq!(preview.bytes > 0, preview.entries > 0);
        let again = fixture.store.preview(&last, &fixture.hasher, Timestamp(now), u64::MAX);
        prop_assert_eq!(again.entries, 0, "it is stale already");
    }

    #[test]
    fn totals_are_those_of_a_store_that_evicts(ids in proptest::collection::vec(0u64..60, 1..200)) {
        let fixture = Fixture::new(200_000);
        let mut stored = 0;
        for id in &ids {
            fixture.insert((0, 0, *id), 1_000, 10_000 + 50 * *id as usize, 1);
            stored += 1;
            let totals = fixture.store.totals();
            prop_assert_eq!((totals.entries, totals.bytes), (fixture.store.len() as u64, fixture.store.bytes()));
        }
        let mut distinct = ids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let totals = fixture.store.totals();
        // Each entry that is not stored any more was evicted; one that another version replaced was not.
        prop_assert!(totals.evictions >= distinct.len() as u64 - totals.entries);
        prop_assert!(totals.evictions + totals.entries <= stored);
        let largest = fixture.store.largest(usize::MAX);
        prop_assert_eq!(largest.len() as u64, totals.entries, "each has a place in the list");
        prop_assert_eq!(largest.iter().map(|it| it.bytes).sum::<u64>(), totals.bytes);
    }
}

#[test]
fn an_entry_that_is_replaced_is_not_evicted() {
    let fixture = Fixture::new(16 << 20);
    for body in [10, 20, 30] {
        fixture.insert((0, 0, 1), 1_000, body, 1);
    }
    let totals = fixture.store.totals();
    assert_eq!((totals.entries, totals.evictions), (1, 0));
    let [largest] = &fixture.store.largest(5)[..] else { panic!("one entry") };
    assert_eq!(largest.bytes, totals.bytes);
}

#[test]
fn a_preview_stops_at_its_limit() {
    let fixture = Fixture::new(16 << 20);
    (0..4).for_each(|id| fixture.insert((0, 0, id), 1_000, 1, 1));
    let preview =
        |limit| fixture.store.preview(&[Invalidation::All], &fixture.hasher, Timestamp(2), limit);
    assert_eq!((preview(3).entries, preview(3).is_complete), (3, false));
    assert_eq!((preview(4).entries, preview(4).is_complete), (4, true));
}

#[test]
fn the_hottest_entries_are_those_that_are_found_most_often() {
    let fixture = Fixture::new(16 << 20);
    (0..IDS).for_each(|id| fixture.insert((0, 0, id), 600_000, 100, 1));
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..20_000_u64 {
        // The entries are found at 8 : 4 : 2 : 1.
        let id = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3][round as usize % 15];
        let (now, number) = (Timestamp(2 + round), random.u64(..));
        let address = fixture.address((0, 0, id));
        let Lookup::Fresh(hit) = fixture.store.lookup(&address, now, number, &fixture.stats) else {
            panic!("a hit")
        };
        if is_sampled(number) {
            let label =
                || EntryLabel::new(Some("products"), "Product", &[("id", &*id.to_string())], false);
            fixture.store.count_hit(&hit, now, label);
        }
    }
    let hottest = fixture.store.hottest(3, Timestamp(20_002));
    let keys: Vec<_> = hottest.iter().map(|it| &*it.label.key.as_ref().unwrap().values).collect();
    assert_eq!(keys, ["id: 0", "id: 1", "id: 2"]);
    let per_second = hottest[0].per_second;
    assert!((450.0..620.0).contains(&per_second), "{per_second} instead of 533");
    assert_eq!(hottest[0].error, 0);
    assert_eq!(hottest[0].bytes, Some(fixture.store.totals().bytes / IDS));
    fixture.store.invalidate(&[Invalidation::All], &fixture.hasher);
    drop(fixture.lookup((0, 0, 0), 20_003));
    assert_eq!(fixture.store.hottest(1, Timestamp(20_003))[0].bytes, None, "it was removed");
}
