//! Caching of entities and root fields: no value crosses between clients that the subgraph tells apart, nothing is
//! served after its invalidation or after its time to live, also if two routers share a store, and an error is about
//! its own entity or field only.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

#[path = "../kit/mod.rs"]
mod kit;
mod operations;
mod populate;
mod random_histories;
mod shared_store;
mod values_subgraph;
mod world;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cache::TtlSettings;
use execute::{LookupTrace, Trace};

use values_subgraph::{NOW, TTL, value_of};
use world::{Client, World};

fn run<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

#[test]
fn what_one_router_has_fetched_is_not_requested_by_another() {
    let routers = World::sharing(2);
    let client = |user, language| Client { user, language };
    run(async {
        for (router, client, ids) in [
            (0, client(0, 0), &[1, 5][..]),
            (1, client(1, 1), &[1, 5]),
            (1, client(1, 1), &[1, 3]),
            (0, client(1, 0), &[3]),
            (0, client(0, 0), &[3]),
            (1, client(0, 1), &[3]),
        ] {
            routers[router].ask(client, ids).await;
        }
    });
    let requests = routers[0].values.requests.lock().unwrap().clone();
    assert_eq!(
        requests,
        // The second router has stored something private, and so looks for that.
        [vec![1, 5], vec![3], vec![3], vec![3]],
        "private entities are shared by routers and not by users"
    );
}

#[test]
fn only_what_is_not_stored_is_requested() {
    let world = World::new();
    let client = |user, language| Client { user, language };
    run(async {
        for (client, ids) in [
            (client(0, 0), &[1, 5][..]),
            // Other users and languages share entities that do not depend on them.
            (client(1, 1), &[1, 5]),
            // The first response that names a header in `vary` is not stored under a key without it.
            (client(0, 0), &[2]),
            (client(0, 0), &[1, 2]),
            (client(0, 0), &[1, 2]),
            (client(1, 0), &[2]),
            (client(0, 1), &[2]),
            (client(0, 0), &[0]),
            (client(0, 0), &[0]),
            (client(1, 0), &[0]),
        ] {
            world.ask(client, ids).await;
        }
    });
    let requests = world.values.requests.lock().unwrap().clone();
    assert_eq!(
        requests,
        [vec![1, 5], vec![2], vec![1, 2], vec![2], vec![0], vec![0]],
        "after a response with `vary`, keys have the language"
    );
}

#[test]
fn what_is_asked_for_often_is_parsed_once() {
    let world = World::new();
    let memory = Arc::clone(&world.generation.caches.as_ref().unwrap().memory);
    let client = |user| Client { user, language: 0 };
    let value = |id: u64, user: &str, version| Some(value_of(id, user, "all", version));
    run(async {
        for round in 0..5 {
            let values = world.ask(client(0), &[1, 5]).await;
            let expected = HashMap::from([(1, value(1, "", 0)), (5, value(5, "", 0))]);
            assert_eq!(values, expected, "{round}");
        }
        // Fetched, found, found again and kept, then taken twice.
        assert_eq!((world.requests(), memory.taken()), (1, 2));
        // Other entries, in the same order or another one, are another response.
        assert_eq!(world.ask(client(0), &[5, 1]).await.len(), 2);
        assert_eq!(world.ask(client(0), &[5]).await.len(), 1);
        assert_eq!(memory.taken(), 2);
        // A new value takes the place of one of the entries.
        *world.values.versions.lock().unwrap().entry(5).or_default() += 1;
        world.invalidate(5);
        for _ in 0..4 {
            let values = world.ask(client(0), &[1, 5]).await;
            assert_eq!(values[&5], value(5, "", 1));
        }
        assert!(memory.taken() > 2);
        // Each client gets its own private value.
        for user in [0, 1, 0, 1, 0, 1, 0, 1] {
            let values = world.ask(client(user), &[3]).await;
            assert_eq!(values[&3], value(3, &client(user).user(), 0));
        }
    });
}

#[test]
fn a_live_query_depends_on_its_entities_whether_they_are_stored_or_not() {
    for forbids_storing in [false, true] {
        let world = World::new();
        *world.values.forbids_storing.lock().unwrap() = forbids_storing;
        let dependencies = run(world.watch(&[1, 5]));
        let expires = (!forbids_storing).then(|| Duration::from_millis(TTL));
        assert_eq!(dependencies.fresh_for, expires);
        let caches = world.generation.caches.as_ref().unwrap();
        let table = caches.store.invalidations();
        let since = table.now();
        let is_valid = || {
            let tags = &dependencies.tags;
            table.is_valid(since, tags.iter(), tags.is_unbounded())
        };
        world.invalidate(3);
        assert!(is_valid(), "it does not select this one");
        world.invalidate(5);
        assert!(!is_valid());
    }
}

#[test]
fn a_live_query_uses_what_is_stored_but_nothing_that_has_expired() {
    let stale_for = Duration::from_secs(60);
    let world = World::with_settings(TtlSettings { stale_for, ..TtlSettings::default() });
    let client = Client { user: 1, language: 1 };
    run(async {
        world.ask(client, &[1]).await;
        NOW.set(NOW.get() + TTL / 2);
        let dependencies = world.watch(&[1]).await;
        assert_eq!(
            (world.requests(), dependencies.fresh_for),
            (1, Some(Duration::from_millis(TTL / 2)))
        );
        NOW.set(NOW.get() + TTL);
        let dependencies = world.watch(&[1]).await;
        assert_eq!(
            (world.requests(), dependencies.fresh_for),
            (2, Some(Duration::from_millis(TTL)))
        );
    });
}

#[test]
fn a_trace_says_what_came_from_memory_and_how_old_it_was() {
    let world = World::new();
    let client = Client { user: 0, language: 0 };
    let seen = |ids: &'static [u64]| {
        let world = &world;
        async move {
            let trace = Arc::new(Trace::new());
            world.ask_traced(client, ids, Arc::clone(&trace)).await;
            let [lookups] = <[LookupTrace; 1]>::try_from(trace.lookups()).unwrap();
            LookupTrace { at: Duration::ZERO, ..lookups }
        }
    };
    let expected = |fresh, sent, oldest| LookupTrace {
        fetch: 1,
        is_entities: true,
        fresh,
        sent,
        oldest,
        ..LookupTrace::default()
    };
    run(async {
        assert_eq!(seen(&[1]).await, expected(0, 1, None));
        NOW.set(NOW.get() + 300);
        assert_eq!(seen(&[1, 5]).await, expected(1, 1, Some(Duration::from_millis(300))));
        NOW.set(NOW.get() + 200);
        assert_eq!(seen(&[1, 5]).await, expected(2, 0, Some(Duration::from_millis(500))));
        NOW.set(NOW.get() + TTL);
        assert_eq!(seen(&[1, 5]).await, expected(0, 2, None));
    });
}

#[test]
fn a_refresh_fetches_what_would_end_with_the_old_response() {
    let world = World::new();
    let client = Client { user: 0, language: 0 };
    run(async {
        world.ask(client, &[1]).await;
        NOW.set(NOW.get() + TTL / 2);
        world.ask(client, &[5]).await;
        let left = Duration::from_millis(TTL / 2);
        world.ask_renewing(client, &[1, 5], Some(left)).await;
        world.ask_renewing(client, &[1, 5], Some(Duration::ZERO)).await;
        world.ask(client, &[1, 5]).await;
    });
    let requests = world.values.requests.lock().unwrap().clone();
    assert_eq!(requests, [vec![1], vec![5], vec![1]]);
}

#[test]
fn a_request_for_root_fields_has_only_those_that_are_not_stored() {
    let world = World::new();
    let client = |user| Client { user, language: 0 };
    run(async {
        for (client, ids) in [
            (client(0), &[1, 5][..]),
            // The other user has other response keys and variables.
            (client(1), &[5, 7]),
            (client(0), &[7, 1, 5]),
            (client(0), &[11, 7]),
            // A private field does not keep others from being shared.
            (client(0), &[3, 13]),
            (client(0), &[3, 13]),
            (client(1), &[3, 13]),
        ] {
            let values = world.ask_roots(client, ids).await;
            assert!(values.values().all(Option::is_some), "{values:?}");
        }
    });
    let requests = world.values.requests.lock().unwrap().clone();
    // The subgraph says `private` about the whole response that has a private field.
    assert_eq!(requests, [vec![1, 5], vec![7], vec![11], vec![3, 13], vec![3, 13]]);
}

#[test]
fn an_error_keeps_only_its_own_entity_or_field_from_being_stored() {
    let world = World::new();
    let client = Client { user: 0, language: 0 };
    world.values.broken.lock().unwrap().insert(5);
    run(async {
        for _ in 0..2 {
            assert_eq!(world.ask(client, &[1, 5, 7]).await[&5], None);
        }
        for _ in 0..2 {
            assert_eq!(world.ask_roots(client, &[1, 5, 7]).await[&5], None);
        }
        world.values.broken.lock().unwrap().clear();
        for _ in 0..2 {
            assert!(world.ask(client, &[5, 7]).await[&5].is_some());
            assert!(world.ask_roots(client, &[5, 7]).await[&5].is_some());
        }
    });
    let requests = world.values.requests.lock().unwrap().clone();
    let (all, one) = (vec![1, 5, 7], vec![5]);
    assert_eq!(requests, [all.clone(), one.clone(), all, one.clone(), one.clone(), one]);
}

#[test]
fn a_trace_counts_an_entity_once_that_another_operation_is_fetching() {
    let world = World::new();
    let client = Client { user: 0, language: 0 };
    let traces = [Arc::new(Trace::new()), Arc::new(Trace::new())];
    run(async {
        let ask = |trace: &Arc<Trace>| world.ask_traced(client, &[1, 5], Arc::clone(trace));
        tokio::join!(ask(&traces[0]), ask(&traces[1]));
    });
    let counts = traces.map(|trace| {
        trace.lookups().iter().map(|it| (it.fresh, it.awaited, it.sent)).collect::<Vec<_>>()
    });
    assert_eq!(counts, [[(0, 0, 2)], [(0, 2, 0)]]);
}
