//! Random histories of requests, changes, errors and invalidations: a client gets what the subgraph says to it, and
//! nothing that is stale.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;

use crate::run;
use crate::values_subgraph::{ITEMS, NOW, TTL, value_of};
use crate::world::{Client, World};

#[derive(Clone, Debug)]
enum Step {
    Ask(Client, Vec<u64>),
    AskRoots(Client, Vec<u64>),
    /// The subgraph reports an error for a value, or no longer.
    Break(u64),
    Repair(u64),
    /// A value changes and is invalidated.
    Change(u64),
    /// A value changes, and nothing says so.
    ChangeSilently(u64),
    /// A mutation of a client changes a value and returns the entity.
    Mutate(Client, u64),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    let client = (0u8..2, 0u8..2).prop_map(|(user, language)| Client { user, language });
    let ids = proptest::sample::subsequence((0..ITEMS).collect::<Vec<_>>(), 0..=ITEMS as usize);
    let some = proptest::sample::subsequence((0..ITEMS).collect::<Vec<_>>(), 1..=ITEMS as usize);
    prop_oneof![
        6 => (client.clone(), ids).prop_map(|(client, ids)| Step::Ask(client, ids)),
        6 => (client.clone(), some).prop_map(|(client, ids)| Step::AskRoots(client, ids)),
        2 => (client, 0..ITEMS).prop_map(|(client, id)| Step::Mutate(client, id)),
        1 => (0..ITEMS).prop_map(Step::Break),
        2 => (0..ITEMS).prop_map(Step::Repair),
        1 => (0..ITEMS).prop_map(Step::Change),
        1 => (0..ITEMS).prop_map(Step::ChangeSilently),
        1 => (0..TTL).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn a_client_gets_what_the_subgraph_says_to_it(all in proptest::collection::vec(steps(), 1..60)) {
        let world = World::new();
        // The versions of each entity that may be served, with the time at which each was replaced.
        let history = Rc::<RefCell<HashMap<u64, Vec<(u64, u64)>>>>::default();
        run(async {
            for step in all {
                let change = |id: u64| {
                    let mut versions = world.values.versions.lock().unwrap();
                    let version = versions.entry(id).or_default();
                    history.borrow_mut().entry(id).or_default().push((*version, NOW.get()));
                    *version += 1;
                };
                match step {
                    Step::Wait(time) => NOW.set(NOW.get() + time),
                    Step::ChangeSilently(id) => change(id),
                    Step::Change(id) => {
                        change(id);
                        world.invalidate(id);
                        history.borrow_mut().remove(&id);
                    }
                    Step::Mutate(client, id) => {
                        world.mutate(client, id).await;
                        history.borrow_mut().remove(&id);
                    }
                    Step::Break(id) => drop(world.values.broken.lock().unwrap().insert(id)),
                    Step::Repair(id) => drop(world.values.broken.lock().unwrap().remove(&id)),
                    Step::Ask(client, ref ids) | Step::AskRoots(client, ref ids) => {
                        let values = match step {
                            Step::Ask(..) => world.ask(client, ids).await,
                            _ => world.ask_roots(client, ids).await,
                        };
                        let broken = world.values.broken.lock().unwrap().clone();
                        for id in ids {
                            let text = |version| value_of(*id, &client.user(), &client.language(), version);
                            let mut allowed = Vec::new();
                            match broken.contains(id) {
                                true => allowed.push(None),
                                false => allowed.push(Some(text(world.values.version(*id)))),
                            }
                            // A value that was fetched before the error may be served instead of it.
                            if broken.contains(id) {
                                allowed.push(Some(text(world.values.version(*id))));
                            }
                            for (version, until) in history.borrow().get(id).into_iter().flatten() {
                                // Fetched before it was replaced, and served within the time to live.
                                if NOW.get() < until + TTL {
                                    allowed.push(Some(text(*version)));
                                }
                            }
                            let got = &values[id];
                            assert!(allowed.contains(got), "{got:?} is not one of {allowed:?}");
                        }
                    }
                }
            }
        });
    }
}

proptest! {
    /// After an invalidation is acknowledged, which means that all routers have followed the log, no router serves
    /// anything older. Before that, the router that sent it does not.
    #[test]
    fn no_router_serves_what_another_one_has_invalidated(
        all in proptest::collection::vec((0usize..2, any::<bool>(), steps()), 1..80)
    ) {
        let routers = World::sharing(2);
        let values = Arc::clone(&routers[0].values);
        // The time at which each version of each entity was replaced.
        let mut replaced: HashMap<u64, Vec<u64>> = HashMap::new();
        // The oldest version of each entity that each router may serve, and that all may serve when they have followed
        // the log.
        let mut oldest = [[0; ITEMS as usize]; 2];
        let mut announced = [0; ITEMS as usize];
        let change = |replaced: &mut HashMap<u64, Vec<u64>>, id: u64| {
            replaced.entry(id).or_default().push(NOW.get());
            *values.versions.lock().unwrap().entry(id).or_default() += 1;
        };
        run(async {
            for (router, is_acknowledged, step) in all {
                if is_acknowledged {
                    routers.iter().for_each(|it| it.shared.as_ref().unwrap().follow());
                    oldest = [announced; 2];
                }
                match step {
                    Step::Wait(time) => NOW.set(NOW.get() + time),
                    Step::ChangeSilently(id) => change(&mut replaced, id),
                    Step::Change(id) => {
                        change(&mut replaced, id);
                        routers[router].invalidate(id);
                        announced[id as usize] = values.version(id);
                        oldest[router][id as usize] = values.version(id);
                    }
                    Step::Mutate(client, id) => {
                        replaced.entry(id).or_default().push(NOW.get());
                        routers[router].mutate(client, id).await;
                        announced[id as usize] = values.version(id);
                        oldest[router][id as usize] = values.version(id);
                    }
                    Step::Break(id) => drop(values.broken.lock().unwrap().insert(id)),
                    Step::Repair(id) => drop(values.broken.lock().unwrap().remove(&id)),
                    Step::Ask(client, ref ids) | Step::AskRoots(client, ref ids) => {
                        let got = match step {
                            Step::Ask(..) => routers[router].ask(client, ids).await,
                            _ => routers[router].ask_roots(client, ids).await,
                        };
                        let broken = values.broken.lock().unwrap().clone();
                        for &id in ids {
                            let text = |version| {
                                Some(value_of(id, &client.user(), &client.language(), version))
                            };
                            let mut allowed = vec![text(values.version(id))];
                            if broken.contains(&id) {
                                allowed.push(None);
                            }
                            let times = (0u64..).zip(replaced.get(&id).into_iter().flatten());
                            for (version, until) in times {
                                // Fetched before it was replaced, and served within the time to live.
                                if version >= oldest[router][id as usize] && NOW.get() < until + TTL {
                                    allowed.push(text(version));
                                }
                            }
                            let value = &got[&id];
                            assert!(allowed.contains(value), "{value:?} is not one of {allowed:?}");
                        }
                    }
                }
            }
        });
    }
}
