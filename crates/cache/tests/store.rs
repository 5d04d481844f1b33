//! The store as its users see it: examples, and a model that knows for each entry whether it may be served.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use cache::{
    CachePolicy, EntityKey, EntryAddress, FetchStart, HashDomain, Invalidation, InvalidationTable,
    KeyBase, KeySecret, LogEpoch, Lookup, LookupStats, MissReason, NewEntry, Partition,
    ResponseContent, Scope, Sequence, SharedEntry, SharedStart, Store, StoreOutcome, StoreSettings,
    TAGS_MAX, TagHasher, Tags, Timestamp,
};
use proptest::prelude::*;

/// A random number with which no entry is refreshed early.
const NOT_EARLY: u64 = u64::MAX;

struct Fixture {
    store: Store,
    stats: LookupStats,
    hasher: TagHasher,
}

fn secret() -> KeySecret {
    KeySecret::from_bytes([9; 16])
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn at(second: u64) -> Timestamp {
    Timestamp(1_000_000).plus(seconds(second))
}

impl Fixture {
    fn new() -> Self {
        Self::with(&StoreSettings::default(), InvalidationTable::with_buckets(1 << 10))
    }

    fn with(settings: &StoreSettings, table: InvalidationTable) -> Self {
        Self {
            store: Store::new(settings, Arc::new(table)),
            stats: LookupStats::default(),
            hasher: TagHasher::new(&secret()),
        }
    }

    /// The address of a product for a user, if the request has one.
    fn address(&self, id: u64, user: Option<&str>) -> EntryAddress {
        let mut base = KeyBase::new(&secret(), HashDomain::Entity);
        base.part(b"products");
        let partition = Partition::of_values([("sub", user.map(str::as_bytes))]);
        let key = EntityKey::from_json(&format!("{{\"id\":{id}}}")).expect("a key");
        EntryAddress {
            keys: base.for_partition(partition).keys_of(&id.to_le_bytes()),
            tags: [
                self.hasher.subgraph("products"),
                self.hasher.type_name("Product"),
                self.hasher.type_in_subgraph("Product", "products"),
                self.hasher.entity("Product", &key),
            ]
            .into_iter()
            .collect(),
        }
    }

    fn insert(
        &self,
        address: &EntryAddress,
        policy: &CachePolicy,
        start: FetchStart,
        body: &str,
        second: u64,
    ) -> StoreOutcome {
        let content = ResponseContent::Data;
        let new = NewEntry { policy, start, content, extra: b"", body: body.as_bytes() };
        self.store.insert(address, &new, at(second), &self.stats)
    }

    fn lookup(&self, address: &EntryAddress, second: u64) -> Lookup {
        self.store.lookup(address, at(second), NOT_EARLY, &self.stats)
    }

    /// The kind of a lookup's result, with the body.
    fn found(&self, address: &EntryAddress, second: u64) -> String {
        let body = |hit: &cache::Hit| String::from_utf8(hit.body().to_vec()).expect("text");
        match self.lookup(address, second) {
            Lookup::Fresh(hit) => format!("fresh {}", body(&hit)),
            Lookup::Stale(hit) if hit.refresh.is_some() => format!("refresh {}", body(&hit)),
            Lookup::Stale(hit) => format!("stale {}", body(&hit)),
            Lookup::StaleIfError(hit) => format!("if error {}", body(&hit)),
            Lookup::Miss(MissReason::Absent) => "absent".to_owned(),
            Lookup::Miss(MissReason::Invalidated) => "invalidated".to_owned(),
            Lookup::Miss(MissReason::Expired) => "expired".to_owned(),
        }
    }

    fn invalidate(&self, invalidation: Invalidation) {
        self.store.invalidate(&[invalidation], &self.hasher);
    }
}

fn policy(fresh: u64, stale: u64, error: u64) -> CachePolicy {
    CachePolicy {
        fresh_for: seconds(fresh),
        stale_for: seconds(stale),
        stale_if_error: seconds(error),
        ..CachePolicy::default()
    }
}

#[test]
fn an_entry_is_fresh_then_stale_then_for_errors_only_then_gone() {
    let fixture = Fixture::new();
    let address = fixture.address(1, None);
    assert_eq!(fixture.found(&address, 0), "absent");
    let start = fixture.store.begin_fetch(at(0));
    // The times count from the start of the fetch.
    assert_eq!(fixture.insert(&address, &policy(10, 5, 20), start, "a", 2), StoreOutcome::Stored);
    assert_eq!(fixture.found(&address, 9), "fresh a");
    let Lookup::Stale(first) = fixture.lookup(&address, 10) else { panic!("not stale") };
    assert!(first.refresh.is_some(), "one caller fetches it again");
    assert_eq!(fixture.found(&address, 14), "stale a", "all others do not");
    drop(first);
    assert_eq!(fixture.found(&address, 14), "refresh a", "the first caller has given up");
    assert_eq!(fixture.found(&address, 15), "if error a");
    assert_eq!(fixture.found(&address, 29), "if error a");
    assert_eq!((fixture.found(&address, 30), fixture.store.len()), ("expired".into(), 0));
    assert_eq!(fixture.found(&address, 30), "absent");
}

#[test]
fn a_hot_entry_is_refreshed_early_by_one_caller() {
    let fixture = Fixture::new();
    let address = fixture.address(1, None);
    let start = fixture.store.begin_fetch(at(0));
    // The fetch takes 2 seconds, so a low draw refreshes many seconds before the end.
    fixture.insert(&address, &policy(60, 0, 0), start, "a", 2);
    let look = |second| fixture.store.lookup(&address, at(second), 0, &fixture.stats);
    let Lookup::Fresh(early) = look(55) else { panic!("not fresh") };
    assert!(early.refresh.is_some());
    let Lookup::Fresh(other) = look(55) else { panic!("not fresh") };
    assert!(other.refresh.is_none());
    let again = fixture.store.begin_fetch(at(55));
    fixture.insert(&address, &policy(60, 0, 0), again, "b", 56);
    drop(early);
    assert_eq!(fixture.found(&address, 114), "fresh b");
}

#[test]
fn an_entry_of_parts_is_refreshed_as_early_as_its_execution_took() {
    let fixture = Fixture::new();
    for (id, took, is_refreshed) in [(1, 2, true), (2, 0, false)] {
        let address = fixture.address(id, None);
        let start = fixture.store.begin_fetch(at(0)).counted_from(at(took));
        fixture.insert(&address, &policy(60, 0, 0), start, "a", took);
        let found = fixture.store.lookup(&address, at(55), 0, &fixture.stats);
        let Lookup::Fresh(hit) = found else { panic!("not fresh") };
        assert_eq!(hit.refresh.is_some(), is_refreshed, "{id}");
        assert_eq!(hit.fresh_for(), seconds(60 + took - 55), "its times count from the end");
    }
}

#[test]
fn everything_that_an_invalidation_can_name_is_reached() {
    let (product, tag) = (r#"{"id":"1"}"#, "table");
    let entity = |type_name: &str| Invalidation::Entity {
        type_name: type_name.into(),
        key: EntityKey::from_json(product).expect("a key"),
    };
    let type_of = |name: &str, subgraph: Option<&str>| Invalidation::Type {
        type_name: name.into(),
        subgraph: subgraph.map(Into::into),
    };
    for (invalidation, expected) in [
        (Invalidation::Tag(tag.into()), "invalidated"),
        (Invalidation::Tag("chair".into()), "fresh a"),
        (entity("Product"), "invalidated"),
        (entity("Review"), "fresh a"),
        (type_of("Product", None), "invalidated"),
        (type_of("Product", Some("products")), "invalidated"),
        (type_of("Product", Some("stock")), "fresh a"),
        (type_of("Review", None), "fresh a"),
        (Invalidation::Subgraph("products".into()), "invalidated"),
        (Invalidation::Subgraph("stock".into()), "fresh a"),
        (Invalidation::All, "invalidated"),
    ] {
        let fixture = Fixture::new();
        let address = fixture.address(1, None);
        let tags: Tags = [fixture.hasher.text(tag)].into_iter().collect();
        let start = fixture.store.begin_fetch(at(0));
        fixture.insert(&address, &CachePolicy { tags, ..policy(60, 60, 60) }, start, "a", 0);
        fixture.invalidate(invalidation.clone());
        assert_eq!(fixture.found(&address, 1), expected, "{invalidation:?}");
    }
}

#[test]
fn an_entry_that_is_stored_again_under_other_tags_has_lost_the_old_ones() {
    let fixture = Fixture::new();
    let address = fixture.address(1, None);
    for (tag, body) in [("old", "a"), ("new", "b")] {
        let tags: Tags = [fixture.hasher.text(tag)].into_iter().collect();
        let start = fixture.store.begin_fetch(at(0));
        fixture.insert(&address, &CachePolicy { tags, ..policy(60, 0, 0) }, start, body, 0);
    }
    fixture.invalidate(Invalidation::Tag("old".into()));
    assert_eq!(fixture.found(&address, 1), "fresh b");
    fixture.invalidate(Invalidation::Tag("new".into()));
    assert_eq!(fixture.found(&address, 1), "invalidated");
}

#[test]
fn a_response_that_was_fetched_before_an_invalidation_is_not_stored_after_it() {
    let fixture = Fixture::new();
    let address = fixture.address(1, None);
    let start = fixture.store.begin_fetch(at(0));
    fixture.invalidate(Invalidation::Subgraph("products".into()));
    assert_eq!(
        fixture.insert(&address, &policy(60, 0, 0), start, "old", 1),
        StoreOutcome::Outdated
    );
    let start = fixture.store.begin_fetch(at(1));
    assert_eq!(fixture.insert(&address, &policy(60, 0, 0), start, "new", 2), StoreOutcome::Stored);
    assert_eq!(fixture.found(&address, 3), "fresh new");
}

#[test]
fn a_slow_response_does_not_replace_a_newer_one() {
    let fixture = Fixture::new();
    let address = fixture.address(1, None);
    let slow = fixture.store.begin_fetch(at(0));
    let quick = fixture.store.begin_fetch(at(1));
    assert_eq!(fixture.insert(&address, &policy(60, 0, 0), quick, "b", 2), StoreOutcome::Stored);
    assert_eq!(fixture.insert(&address, &policy(60, 0, 0), slow, "a", 3), StoreOutcome::Superseded);
    assert_eq!(fixture.found(&address, 4), "fresh b");
}

#[test]
fn private_responses_stay_in_their_partition_and_are_not_stored_without_one() {
    let fixture = Fixture::new();
    let [anonymous, alice, bob] =
        [None, Some("alice"), Some("bob")].map(|user| fixture.address(1, user));
    let private = CachePolicy { scope: Scope::Private, ..policy(60, 0, 0) };
    let start = fixture.store.begin_fetch(at(0));
    assert_eq!(fixture.insert(&anonymous, &private, start, "x", 0), StoreOutcome::NoPartition);
    assert_eq!(fixture.insert(&alice, &private, start, "a", 0), StoreOutcome::Stored);
    assert_eq!(fixture.found(&alice, 1), "fresh a");
    assert_eq!(fixture.found(&bob, 1), "absent");
    assert_eq!(fixture.found(&anonymous, 1), "absent");
    fixture.insert(&bob, &policy(60, 0, 0), start, "public", 0);
    assert_eq!(fixture.found(&anonymous, 1), "fresh public");
    assert_eq!(fixture.found(&alice, 1), "fresh a", "the response for this client goes first");
}

#[test]
fn an_entry_with_too_many_tags_is_stale_after_any_invalidation() {
    let fixture = Fixture::new();
    let address = fixture.address(1, None);
    let tags = |count: usize| -> Tags {
        (0..count).map(|number| fixture.hasher.text(&number.to_string())).collect()
    };
    for (count, expected) in [(TAGS_MAX, "fresh a"), (TAGS_MAX + 1, "invalidated")] {
        let start = fixture.store.begin_fetch(at(0));
        fixture.insert(
            &address,
            &CachePolicy { tags: tags(count), ..policy(60, 0, 0) },
            start,
            "a",
            0,
        );
        assert_eq!(fixture.found(&address, 1), "fresh a");
        fixture.invalidate(Invalidation::Tag("other".into()));
        assert_eq!(fixture.found(&address, 1), expected);
    }
    assert_eq!(telemetry::read(&fixture.store.stats().unbounded_tags), 1);
}

#[test]
fn a_store_stays_within_its_size_and_refuses_entries_that_would_empty_it() {
    let settings = StoreSettings { bytes_max: 4 << 20, ..StoreSettings::default() };
    let fixture = Fixture::with(&settings, InvalidationTable::with_buckets(1));
    let body = "x".repeat(10_000);
    for id in 0..2_000 {
        let start = fixture.store.begin_fetch(at(0));
        let address = fixture.address(id, None);
        assert_eq!(
            fixture.insert(&address, &policy(60, 0, 0), start, &body, 0),
            StoreOutcome::Stored
        );
        assert!(fixture.store.bytes() <= settings.bytes_max);
    }
    let stored = fixture.store.len() as u64;
    assert!(stored > 350, "{stored}");
    assert_eq!(fixture.store.totals().evictions, 2_000 - stored);
    let large = "x".repeat(fixture.store.entry_bytes_max() as usize + 1);
    let start = fixture.store.begin_fetch(at(0));
    let outcome = fixture.insert(&fixture.address(0, None), &policy(60, 0, 0), start, &large, 0);
    assert_eq!(outcome, StoreOutcome::TooLarge);
    let address = fixture.address(1, None);
    let outcome = fixture.insert(&address, &policy(1, 1, 0), start, "a", 3);
    assert_eq!(outcome, StoreOutcome::Expired);
}

#[test]
fn a_store_that_is_shortened_evicts_what_is_beyond_and_can_grow_again() {
    let settings = StoreSettings { bytes_max: 4 << 20, ..StoreSettings::default() };
    let fixture = Fixture::with(&settings, InvalidationTable::with_buckets(1));
    let fill = || {
        for id in 0..1_000 {
            let (start, address) = (fixture.store.begin_fetch(at(0)), fixture.address(id, None));
            fixture.insert(&address, &policy(60, 0, 0), start, &"x".repeat(10_000), 0);
        }
        fixture.store.bytes()
    };
    assert!(fill() > 3 << 20);
    fixture.store.shrink(2);
    assert!(fixture.store.bytes() <= 1 << 20, "{}", fixture.store.bytes());
    assert_eq!(fixture.store.totals().entries, fixture.store.len() as u64);
    assert!(fill() <= 1 << 20);
    fixture.store.shrink(0);
    assert!(fill() > 3 << 20);
}

#[test]
fn lookups_and_stores_are_counted() {
    let fixture = Fixture::new();
    let address = fixture.address(1, None);
    fixture.found(&address, 0);
    let start = fixture.store.begin_fetch(at(0));
    fixture.insert(&address, &policy(10, 5, 20), start, "a", 0);
    for second in [1, 2, 12, 20, 40] {
        fixture.found(&address, second);
    }
    let start = fixture.store.begin_fetch(at(50));
    fixture.insert(&address, &policy(10, 0, 0), start, "a", 50);
    fixture.invalidate(Invalidation::All);
    fixture.found(&address, 51);
    fixture.insert(&address, &policy(10, 0, 0), start, "a", 50);
    let LookupStats { hits, stale_hits, error_hits, misses, .. } = &fixture.stats;
    assert_eq!([hits, stale_hits, error_hits, misses].map(telemetry::read), [2, 1, 1, 1]);
    let LookupStats { misses_invalidated, misses_expired, refreshes, .. } = &fixture.stats;
    assert_eq!([misses_invalidated, misses_expired, refreshes].map(telemetry::read), [1, 1, 1]);
    let counts = [&fixture.stats.stores, &fixture.stats.not_stored].map(telemetry::read);
    assert_eq!(counts, [2, 1]);
    assert_eq!(fixture.stats.hit_ratio(), Some(3.0 / 7.0));
}

/// One step of a random history. Fetches overlap with everything else.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Begin { id: u64, user: usize },
    Finish { fetch: usize, policy: (u64, u64, u64), is_private: bool, tag: u64 },
    InvalidateTag(u64),
    InvalidateEntity(u64),
    InvalidateSubgraph,
    Look { id: u64, user: usize },
}

const USERS: [Option<&str>; 3] = [None, Some("alice"), Some("bob")];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let policy = (0u64..8, 0u64..4, 0u64..4);
    let step = prop_oneof![
        2 => (0u64..3).prop_map(Step::Wait),
        6 => (0u64..3, 0usize..3).prop_map(|(id, user)| Step::Begin { id, user }),
        6 => (0usize..8, policy, any::<bool>(), 0u64..3).prop_map(|(fetch, policy, is_private, tag)| {
            Step::Finish { fetch, policy, is_private, tag }
        }),
        1 => (0u64..3).prop_map(Step::InvalidateTag),
        1 => (0u64..3).prop_map(Step::InvalidateEntity),
        1 => Just(Step::InvalidateSubgraph),
        8 => (0u64..3, 0usize..3).prop_map(|(id, user)| Step::Look { id, user }),
    ];
    proptest::collection::vec(step, 1..80)
}

/// Everything that is true of one response, by its body.
#[derive(Clone, Debug)]
struct Known {
    id: u64,
    user: usize,
    began: u64,
    began_step: usize,
    policy: (u64, u64, u64),
    is_private: bool,
    tag: u64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Never serves what is invalidated, expired, of another entity or of another user; and serves what is there.
    #[test]
    fn the_store_serves_what_a_model_permits(steps in steps(), small_table: bool) {
        let buckets = if small_table { 1 } else { 1 << 10 };
        let settings = StoreSettings::default();
        let fixture = Fixture::with(&settings, InvalidationTable::with_buckets(buckets));
        let mut second = 0;
        let mut fetches: Vec<(u64, usize, u64, usize, FetchStart)> = Vec::new();
        let mut known: HashMap<String, Known> = HashMap::new();
        // The step of the last invalidation of each name.
        let mut invalidated: HashMap<String, usize> = HashMap::new();
        // The body that must be found, by entity and by user for private ones.
        let mut current: HashMap<(u64, Option<usize>), String> = HashMap::new();
        for (number, step) in steps.iter().enumerate() {
            match *step {
                Step::Wait(seconds) => second += seconds,
                Step::Begin { id, user } => {
                    let start = fixture.store.begin_fetch(at(second));
                    fetches.push((id, user, second, number, start));
                }
                Step::Finish { fetch, policy: times, is_private, tag } => {
                    let Some(&(id, user, began, began_step, start)) = fetches.get(fetch) else { continue };
                    let body = format!("{number}");
                    let (fresh, stale, error) = times;
                    let scope = if is_private { Scope::Private } else { Scope::Public };
                    let tags = [fixture.hasher.text(&format!("t{tag}"))].into_iter().collect();
                    let policy = CachePolicy { scope, tags, ..policy(fresh, stale, error) };
                    let address = fixture.address(id, USERS[user]);
                    let outcome = fixture.insert(&address, &policy, start, &body, second);
                    let entry = Known { id, user, began, began_step, policy: times, is_private, tag };
                    if outcome == StoreOutcome::Stored {
                        prop_assert!(!is_private || USERS[user].is_some());
                        current.insert((id, is_private.then_some(user)), body.clone());
                    }
                    known.insert(body, entry);
                }
                Step::InvalidateTag(tag) => {
                    fixture.invalidate(Invalidation::Tag(format!("t{tag}").into()));
                    invalidated.insert(format!("t{tag}"), number);
                }
                Step::InvalidateEntity(id) => {
                    let key = EntityKey::from_json(&format!("{{\"id\":\"{id}\"}}")).expect("a key");
                    fixture.invalidate(Invalidation::Entity { type_name: "Product".into(), key });
                    invalidated.insert(format!("e{id}"), number);
                }
                Step::InvalidateSubgraph => {
                    fixture.invalidate(Invalidation::Subgraph("products".into()));
                    invalidated.insert("s".to_owned(), number);
                }
                Step::Look { id, user } => {
                    let is_valid = |entry: &Known| {
                        let names = [format!("t{}", entry.tag), format!("e{}", entry.id), "s".to_owned()];
                        names.iter().all(|name| invalidated.get(name).is_none_or(|it| *it < entry.began_step))
                    };
                    let found = fixture.found(&fixture.address(id, USERS[user]), second);
                    if let Some((kind, body)) = found.rsplit_once(' ') {
                        let entry = &known[body];
                        prop_assert_eq!(entry.id, id);
                        prop_assert!(!entry.is_private || entry.user == user, "crossed to another user");
                        prop_assert!(is_valid(entry), "served after an invalidation: {:?}", entry);
                        let (fresh, stale, error) = entry.policy;
                        let longest = match kind {
                            "fresh" => fresh,
                            "refresh" | "stale" => fresh + stale,
                            _ => fresh + error,
                        };
                        prop_assert!(second - entry.began < longest, "served too late: {:?}", entry);
                    } else if !small_table {
                        // A large table forgets nothing, so a valid entry must be found.
                        let candidates = [current.get(&(id, Some(user))), current.get(&(id, None))];
                        for body in candidates.into_iter().flatten() {
                            let entry = &known[body];
                            let (fresh, stale, error) = entry.policy;
                            let is_over = second - entry.began >= fresh + stale.max(error);
                            prop_assert!(!is_valid(entry) || is_over, "lost {:?}, found {}", entry, found);
                        }
                    }
                }
            }
        }
    }
}

/// Writers change a value and invalidate it; readers fetch, store and look up meanwhile. When an invalidation has
/// returned, no lookup that begins later returns an older value.
#[test]
fn nothing_older_than_an_acknowledged_invalidation_is_served_while_threads_race() {
    const ENTITIES: u64 = 4;
    const CHANGES: u64 = 20_000;
    let fixture = Fixture::with(&StoreSettings::default(), InvalidationTable::with_buckets(1));
    let addresses: Vec<_> = (0..ENTITIES).map(|id| fixture.address(id, None)).collect();
    // The value at the subgraph, and the last value with an acknowledged invalidation.
    let values: Vec<AtomicU64> = (0..ENTITIES).map(|_| AtomicU64::new(0)).collect();
    let acknowledged: Vec<AtomicU64> = (0..ENTITIES).map(|_| AtomicU64::new(0)).collect();
    let (start, is_done) = (Barrier::new(3), AtomicBool::new(false));
    let hits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..2u64 {
            let (fixture, addresses, values) = (&fixture, &addresses, &values);
            let (acknowledged, start, is_done, hits) = (&acknowledged, &start, &is_done, &hits);
            scope.spawn(move || {
                start.wait();
                let mut round = reader;
                while !is_done.load(SeqCst) {
                    round += 1;
                    let id = (round % ENTITIES) as usize;
                    let least = acknowledged[id].load(SeqCst);
                    if let Lookup::Fresh(hit) = fixture.lookup(&addresses[id], 0) {
                        let value: u64 = std::str::from_utf8(hit.body()).unwrap().parse().unwrap();
                        assert!(value >= least, "{value} is older than {least}");
                        hits.fetch_add(1, SeqCst);
                        continue;
                    }
                    let start = fixture.store.begin_fetch(at(0));
                    let value = values[id].load(SeqCst).to_string();
                    fixture.insert(&addresses[id], &policy(60, 0, 0), start, &value, 0);
                }
            });
        }
        start.wait();
        for change in 1..=CHANGES {
            let id = change % ENTITIES;
            values[id as usize].store(change, SeqCst);
            let key = EntityKey::from_json(&format!("{{\"id\":{id}}}")).expect("a key");
            fixture.invalidate(Invalidation::Entity { type_name: "Product".into(), key });
            acknowledged[id as usize].store(change, SeqCst);
            // Gives the readers time to store and to find something on a machine with few processors.
            if change % 16 == 0 {
                std::thread::yield_now();
            }
        }
        is_done.store(true, SeqCst);
    });
    assert!(hits.load(SeqCst) > 0, "the readers found entries");
}

#[test]
fn an_entry_of_a_shared_store_keeps_its_age_and_is_stale_after_an_invalidation_meanwhile() {
    let fixture = Fixture::new();
    let address = fixture.address(1, None);
    let policy = CachePolicy { fresh_for: seconds(60), ..CachePolicy::default() };
    let entry = |began| SharedEntry {
        start: SharedStart { epoch: LogEpoch([1; 16]), sequence: Sequence(1) },
        began: at(began),
        fetch_took: Duration::from_millis(5),
        policy: policy.clone(),
        content: ResponseContent::Data,
        body: "shared".into(),
    };
    let start = fixture.store.begin_fetch(at(40));
    assert_eq!(fixture.store.adopt(&address, &entry(10), start, at(40)), StoreOutcome::Stored);
    let Lookup::Fresh(hit) = fixture.store.lookup(&address, at(41), NOT_EARLY, &fixture.stats)
    else {
        panic!("a hit");
    };
    assert_eq!((hit.body(), hit.age), (&b"shared"[..], seconds(31)));
    assert_eq!(fixture.store.adopt(&address, &entry(5), start, at(42)), StoreOutcome::Superseded);
    fixture.store.invalidate(&[Invalidation::Subgraph("products".into())], &fixture.hasher);
    assert_eq!(fixture.store.adopt(&address, &entry(10), start, at(43)), StoreOutcome::Outdated);
    let later = fixture.store.begin_fetch(at(44));
    assert_eq!(fixture.store.adopt(&address, &entry(10), later, at(71)), StoreOutcome::Expired);
}
