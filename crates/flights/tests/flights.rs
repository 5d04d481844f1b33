//! What flights promise, sentence by sentence. Gates stand in for slow work: nothing here waits for time.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flights::{Broken, Flights, Role};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};

type Sky = Arc<Flights<&'static str, u32>>;
type Joined = Result<(u32, Role), Broken>;

/// Work that ends when it is told to, and counts how often it was begun and dropped.
#[derive(Clone)]
struct Work {
    gate: Rc<Semaphore>,
    begun: Rc<Cell<u32>>,
    dropped: Rc<Cell<u32>>,
}

impl Work {
    fn new() -> Self {
        Self { gate: Rc::new(Semaphore::new(0)), begun: Rc::default(), dropped: Rc::default() }
    }

    /// Its result says which time it was begun.
    fn run(&self) -> impl Future<Output = u32> + use<> {
        struct CountsDrop(Rc<Cell<u32>>);
        impl Drop for CountsDrop {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let this = self.clone();
        this.begun.set(this.begun.get() + 1);
        let number = this.begun.get();
        async move {
            let _dropped = CountsDrop(Rc::clone(&this.dropped));
            this.gate.acquire().await.expect("never closed").forget();
            number
        }
    }

    fn let_one_end(&self) {
        self.gate.add_permits(1);
    }
}

fn in_a_minute() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn joins(sky: &Sky, key: &'static str, work: &Work) -> JoinHandle<Joined> {
    let (sky, work) = (Arc::clone(sky), work.clone());
    spawn_local(async move { sky.join(key, in_a_minute(), || work.run()).await })
}

/// Lets every task run until it waits.
async fn settle() {
    for _ in 0..10 {
        yield_now().await;
    }
}

fn check<F: Future<Output = ()>>(test: impl FnOnce(Sky, Work) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    LocalSet::new().block_on(&runtime, test(Sky::default(), Work::new()));
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[test]
fn equal_keys_in_flight_are_one_piece_of_work() {
    check(async |sky, work| {
        let all = [joins(&sky, "a", &work), joins(&sky, "a", &work), joins(&sky, "a", &work)];
        settle().await;
        work.let_one_end();
        let mut roles = Vec::new();
        for one in all {
            roles.push(one.await.expect("no panic"));
        }
        assert_eq!(
            roles,
            [Ok((1, Role::Leader)), Ok((1, Role::Follower)), Ok((1, Role::Follower))]
        );
        assert_eq!((count(&sky.stats().leaders), count(&sky.stats().followers)), (1, 2));
    });
}

#[test]
fn different_keys_are_different_work() {
    check(async |sky, work| {
        let (a, b) = (joins(&sky, "a", &work), joins(&sky, "b", &work));
        settle().await;
        assert_eq!(work.begun.get(), 2);
        work.gate.add_permits(2);
        assert_eq!(a.await.expect("no panic"), Ok((1, Role::Leader)));
        assert_eq!(b.await.expect("no panic"), Ok((2, Role::Leader)));
    });
}

#[test]
fn work_begins_at_once_and_waits_for_nobody() {
    check(async |sky, work| {
        work.let_one_end();
        // The task of the leader is the only thing between the call and its result.
        assert_eq!(sky.join("a", in_a_minute(), || work.run()).await, Ok((1, Role::Leader)));
    });
}

#[test]
fn a_flight_that_has_ended_gives_nobody_its_result() {
    check(async |sky, work| {
        work.gate.add_permits(2);
        assert_eq!(sky.join("a", in_a_minute(), || work.run()).await, Ok((1, Role::Leader)));
        assert_eq!(sky.join("a", in_a_minute(), || work.run()).await, Ok((2, Role::Leader)));
    });
}

#[test]
fn whoever_asks_when_the_result_is_there_leads_anew_even_if_followers_have_not_run_yet() {
    check(async |sky, work| {
        let first = joins(&sky, "a", &work);
        settle().await;
        let asks_later = {
            let (sky, work) = (Arc::clone(&sky), work.clone());
            spawn_local(async move {
                let (_, role) = sky.join("a", in_a_minute(), || work.run()).await.expect("whole");
                assert_eq!(role, Role::Follower);
                // The flight that this task followed has landed in this very turn.
                work.let_one_end();
                sky.join("a", in_a_minute(), || work.run()).await
            })
        };
        settle().await;
        work.let_one_end();
        assert_eq!(first.await.expect("no panic"), Ok((1, Role::Leader)));
        assert_eq!(asks_later.await.expect("no panic"), Ok((2, Role::Leader)));
    });
}

#[test]
fn a_leader_that_leaves_does_not_take_its_followers_along() {
    check(async |sky, work| {
        let leader = joins(&sky, "a", &work);
        settle().await;
        let follower = joins(&sky, "a", &work);
        settle().await;
        leader.abort();
        settle().await;
        assert_eq!(work.dropped.get(), 0);
        work.let_one_end();
        assert_eq!(follower.await.expect("no panic"), Ok((1, Role::Follower)));
        assert_eq!(work.begun.get(), 1);
    });
}

#[test]
fn the_last_one_to_leave_cancels_the_work() {
    check(async |sky, work| {
        let (leader, follower) = (joins(&sky, "a", &work), joins(&sky, "a", &work));
        settle().await;
        leader.abort();
        follower.abort();
        settle().await;
        assert_eq!((work.dropped.get(), count(&sky.stats().cancelled)), (1, 1));
        // And it is not found any more.
        let next = joins(&sky, "a", &work);
        settle().await;
        work.let_one_end();
        assert_eq!(next.await.expect("no panic"), Ok((2, Role::Leader)));
    });
}

#[test]
fn work_that_panics_is_told_to_all_who_wait() {
    check(async |sky, work| {
        let (break_it, breaks) = oneshot::channel::<()>();
        let leader = {
            let sky = Arc::clone(&sky);
            spawn_local(async move {
                let start = || async move {
                    let _ = breaks.await;
                    panic!("a defect, on purpose")
                };
                sky.join("a", in_a_minute(), start).await
            })
        };
        settle().await;
        let follower = joins(&sky, "a", &work);
        settle().await;
        drop(break_it);
        assert_eq!(leader.await.expect("the panic stays in the flight"), Err(Broken));
        assert_eq!(follower.await.expect("the panic stays in the flight"), Err(Broken));
        // The next one is not concerned.
        work.let_one_end();
        assert_eq!(sky.join("a", in_a_minute(), || work.run()).await, Ok((1, Role::Leader)));
    });
}

#[test]
fn nobody_follows_a_leader_with_less_than_half_of_ones_own_time() {
    check(async |sky, work| {
        let now = Instant::now();
        let joins_until = |seconds| {
            let (sky, work) = (Arc::clone(&sky), work.clone());
            let deadline = now + Duration::from_secs(seconds);
            spawn_local(async move { sky.join("a", deadline, || work.run()).await })
        };
        let hurried = joins_until(100);
        settle().await;
        let (patient, relaxed) = (joins_until(150), joins_until(1_000));
        settle().await;
        // From now on the one with more time is the one that is found.
        let late = joins_until(1_000);
        settle().await;
        work.gate.add_permits(2);
        assert_eq!(hurried.await.expect("no panic"), Ok((1, Role::Leader)));
        assert_eq!(patient.await.expect("no panic"), Ok((1, Role::Follower)));
        assert_eq!(relaxed.await.expect("no panic"), Ok((2, Role::Leader)));
        assert_eq!(late.await.expect("no panic"), Ok((2, Role::Follower)));
    });
}

#[test]
fn followers_may_be_on_other_threads() {
    let sky: Arc<Flights<&'static str, u32>> = Arc::default();
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (end, ends) = oneshot::channel::<u32>();
    let leader = on_a_thread(&sky, move |sky| async move {
        let start = || async move {
            begun.send(()).expect("the test waits");
            ends.await.expect("the test ends it")
        };
        sky.join("a", in_a_minute(), start).await
    });
    has_begun.recv().expect("the leader runs");
    let follower = on_a_thread(&sky, async |sky| {
        sky.join("a", in_a_minute(), || async { unreachable!("it is in flight") }).await
    });
    while count(&sky.stats().followers) == 0 {
        std::thread::yield_now();
    }
    end.send(7).expect("the leader waits");
    assert_eq!(leader.join().expect("no panic"), Ok((7, Role::Leader)));
    assert_eq!(follower.join().expect("no panic"), Ok((7, Role::Follower)));
}

#[test]
fn followers_of_a_core_that_stops_are_told() {
    let sky: Arc<Flights<&'static str, u32>> = Arc::default();
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (stop, stops) = oneshot::channel::<()>();
    let leader = on_a_thread(&sky, move |sky| async move {
        let leading = spawn_local(async move {
            let start = || async move {
                begun.send(()).expect("the test waits");
                std::future::pending::<u32>().await
            };
            sky.join("a", in_a_minute(), start).await
        });
        let _ = stops.await;
        drop(leading);
        Err(Broken)
    });
    has_begun.recv().expect("the leader runs");
    let follower = on_a_thread(&sky, async |sky| {
        sky.join("a", in_a_minute(), || async { unreachable!("it is in flight") }).await
    });
    while count(&sky.stats().followers) == 0 {
        std::thread::yield_now();
    }
    drop(stop);
    assert_eq!(leader.join().expect("no panic"), Err(Broken));
    assert_eq!(follower.join().expect("no panic"), Err(Broken));
}

fn on_a_thread<F: Future<Output = Joined>>(
    sky: &Sky,
    test: impl FnOnce(Sky) -> F + Send + 'static,
) -> std::thread::JoinHandle<Joined> {
    let sky = Arc::clone(sky);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        LocalSet::new().block_on(&runtime.expect("a runtime"), test(sky))
    })
}

#[test]
fn above_the_bound_work_is_done_alone() {
    check(async |_, work| {
        let sky: Arc<Flights<u32, u32>> = Arc::default();
        let join = |key| {
            let (sky, work) = (Arc::clone(&sky), work.clone());
            spawn_local(async move { sky.join(key, in_a_minute(), || work.run()).await })
        };
        // More than all parts together may hold.
        let all: Vec<_> = (0..20_000).map(join).collect();
        while work.begun.get() < 20_000 {
            yield_now().await;
        }
        let alone = count(&sky.stats().alone);
        assert!(alone >= 20_000 - 16 * 1_024, "{alone} alone");
        work.gate.add_permits(20_000);
        for one in all {
            assert!(one.await.expect("no panic").is_ok());
        }
    });
}
