//! The guarantees of single flight, one test for each. Gates replace slow work: no test waits for time.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use single_flight::{Role, SingleFlight, WorkFailed};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};

type TestFlights = Arc<SingleFlight<&'static str, u32>>;
type JoinResult = Result<(u32, Role), WorkFailed>;

/// Work that ends when its gate opens, and counts how often it was started and dropped.
#[derive(Clone)]
struct Work {
    gate: Rc<Semaphore>,
    started: Rc<Cell<u32>>,
    dropped: Rc<Cell<u32>>,
}

impl Work {
    fn new() -> Self {
        Self { gate: Rc::new(Semaphore::new(0)), started: Rc::default(), dropped: Rc::default() }
    }

    /// The work. Its result is the number of its start.
    fn run(&self) -> impl Future<Output = u32> + use<> {
        struct CountsDrop(Rc<Cell<u32>>);
        impl Drop for CountsDrop {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let this = self.clone();
        this.started.set(this.started.get() + 1);
        let number = this.started.get();
        async move {
            let _dropped = CountsDrop(Rc::clone(&this.dropped));
            this.gate.acquire().await.expect("never closed").forget();
            number
        }
    }

    fn finish_one(&self) {
        self.gate.add_permits(1);
    }
}

fn in_a_minute() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn spawn_join(flights: &TestFlights, key: &'static str, work: &Work) -> JoinHandle<JoinResult> {
    let (flights, work) = (Arc::clone(flights), work.clone());
    spawn_local(async move { flights.join(key, in_a_minute(), || work.run()).await })
}

/// Lets every task run until it waits.
async fn run_all_tasks() {
    for _ in 0..10 {
        yield_now().await;
    }
}

fn check<F: Future<Output = ()>>(test: impl FnOnce(TestFlights, Work) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    LocalSet::new().block_on(&runtime, test(TestFlights::default(), Work::new()));
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[test]
fn equal_keys_in_flight_are_one_piece_of_work() {
    check(async |flights, work| {
        let all = [
            spawn_join(&flights, "a", &work),
            spawn_join(&flights, "a", &work),
            spawn_join(&flights, "a", &work),
        ];
        run_all_tasks().await;
        work.finish_one();
        let mut roles = Vec::new();
        for one in all {
            roles.push(one.await.expect("no panic"));
        }
        assert_eq!(
            roles,
            [Ok((1, Role::Leader)), Ok((1, Role::Follower)), Ok((1, Role::Follower))]
        );
        assert_eq!((count(&flights.stats().leaders), count(&flights.stats().followers)), (1, 2));
    });
}

#[test]
fn different_keys_are_different_work() {
    check(async |flights, work| {
        let (a, b) = (spawn_join(&flights, "a", &work), spawn_join(&flights, "b", &work));
        run_all_tasks().await;
        assert_eq!(work.started.get(), 2);
        work.gate.add_permits(2);
        assert_eq!(a.await.expect("no panic"), Ok((1, Role::Leader)));
        assert_eq!(b.await.expect("no panic"), Ok((2, Role::Leader)));
    });
}

#[test]
fn work_starts_at_once_without_waiting_for_followers() {
    check(async |flights, work| {
        work.finish_one();
        // The task of the leader is the only thing between the call and its result.
        assert_eq!(flights.join("a", in_a_minute(), || work.run()).await, Ok((1, Role::Leader)));
    });
}

#[test]
fn a_flight_that_has_ended_gives_later_callers_no_result() {
    check(async |flights, work| {
        work.gate.add_permits(2);
        assert_eq!(flights.join("a", in_a_minute(), || work.run()).await, Ok((1, Role::Leader)));
        assert_eq!(flights.join("a", in_a_minute(), || work.run()).await, Ok((2, Role::Leader)));
    });
}

#[test]
fn a_caller_after_the_result_leads_a_new_flight_even_if_followers_have_not_run_yet() {
    check(async |flights, work| {
        let first = spawn_join(&flights, "a", &work);
        run_all_tasks().await;
        let second_call = {
            let (flights, work) = (Arc::clone(&flights), work.clone());
            spawn_local(async move {
                let (_, role) =
                    flights.join("a", in_a_minute(), || work.run()).await.expect("whole");
                assert_eq!(role, Role::Follower);
                // The flight that this task followed has ended within this poll.
                work.finish_one();
                flights.join("a", in_a_minute(), || work.run()).await
            })
        };
        run_all_tasks().await;
        work.finish_one();
        assert_eq!(first.await.expect("no panic"), Ok((1, Role::Leader)));
        assert_eq!(second_call.await.expect("no panic"), Ok((2, Role::Leader)));
    });
}

#[test]
fn work_continues_for_its_followers_when_its_leader_leaves() {
    check(async |flights, work| {
        let leader = spawn_join(&flights, "a", &work);
        run_all_tasks().await;
        let follower = spawn_join(&flights, "a", &work);
        run_all_tasks().await;
        leader.abort();
        run_all_tasks().await;
        assert_eq!(work.dropped.get(), 0);
        work.finish_one();
        assert_eq!(follower.await.expect("no panic"), Ok((1, Role::Follower)));
        assert_eq!(work.started.get(), 1);
    });
}

#[test]
fn the_last_waiter_that_leaves_cancels_the_work() {
    check(async |flights, work| {
        let (leader, follower) =
            (spawn_join(&flights, "a", &work), spawn_join(&flights, "a", &work));
        run_all_tasks().await;
        leader.abort();
        follower.abort();
        run_all_tasks().await;
        assert_eq!((work.dropped.get(), count(&flights.stats().cancelled)), (1, 1));
        // The cancelled flight is not joined any more.
        let next = spawn_join(&flights, "a", &work);
        run_all_tasks().await;
        work.finish_one();
        assert_eq!(next.await.expect("no panic"), Ok((2, Role::Leader)));
    });
}

#[test]
fn all_waiters_learn_that_the_work_panicked() {
    check(async |flights, work| {
        let (panic_now, panics) = oneshot::channel::<()>();
        let leader = {
            let flights = Arc::clone(&flights);
            spawn_local(async move {
                let start = || async move {
                    let _ = panics.await;
                    panic!("a defect, on purpose")
                };
                flights.join("a", in_a_minute(), start).await
            })
        };
        run_all_tasks().await;
        let follower = spawn_join(&flights, "a", &work);
        run_all_tasks().await;
        drop(panic_now);
        assert_eq!(leader.await.expect("the panic stays in the flight"), Err(WorkFailed));
        assert_eq!(follower.await.expect("the panic stays in the flight"), Err(WorkFailed));
        // The next caller is not affected.
        work.finish_one();
        assert_eq!(flights.join("a", in_a_minute(), || work.run()).await, Ok((1, Role::Leader)));
    });
}

#[test]
fn a_caller_does_not_follow_a_leader_with_less_than_half_of_its_time() {
    check(async |flights, work| {
        let now = Instant::now();
        let join_until = |seconds| {
            let (flights, work) = (Arc::clone(&flights), work.clone());
            let deadline = now + Duration::from_secs(seconds);
            spawn_local(async move { flights.join("a", deadline, || work.run()).await })
        };
        let short = join_until(100);
        run_all_tasks().await;
        let (patient, relaxed) = (join_until(150), join_until(1_000));
        run_all_tasks().await;
        // Later callers join the flight with more time.
        let late = join_until(1_000);
        run_all_tasks().await;
        work.gate.add_permits(2);
        assert_eq!(short.await.expect("no panic"), Ok((1, Role::Leader)));
        assert_eq!(patient.await.expect("no panic"), Ok((1, Role::Follower)));
        assert_eq!(relaxed.await.expect("no panic"), Ok((2, Role::Leader)));
        assert_eq!(late.await.expect("no panic"), Ok((2, Role::Follower)));
    });
}

#[test]
fn followers_may_be_on_other_threads() {
    let flights: Arc<SingleFlight<&'static str, u32>> = Arc::default();
    let (started, has_begun) = std::sync::mpsc::channel();
    let (end, ends) = oneshot::channel::<u32>();
    let leader = spawn_thread(&flights, move |flights| async move {
        let start = || async move {
            started.send(()).expect("the test waits");
            ends.await.expect("the test ends it")
        };
        flights.join("a", in_a_minute(), start).await
    });
    has_begun.recv().expect("the leader runs");
    let follower = spawn_thread(&flights, async |flights| {
        flights.join("a", in_a_minute(), || async { unreachable!("it is in flight") }).await
    });
    while count(&flights.stats().followers) == 0 {
        std::thread::yield_now();
    }
    end.send(7).expect("the leader waits");
    assert_eq!(leader.join().expect("no panic"), Ok((7, Role::Leader)));
    assert_eq!(follower.join().expect("no panic"), Ok((7, Role::Follower)));
}

#[test]
fn followers_learn_that_the_leaders_core_has_stopped() {
    let flights: Arc<SingleFlight<&'static str, u32>> = Arc::default();
    let (started, has_begun) = std::sync::mpsc::channel();
    let (stop, stops) = oneshot::channel::<()>();
    let leader = spawn_thread(&flights, move |flights| async move {
        let leading = spawn_local(async move {
            let start = || async move {
                started.send(()).expect("the test waits");
                std::future::pending::<u32>().await
            };
            flights.join("a", in_a_minute(), start).await
        });
        let _ = stops.await;
        drop(leading);
        Err(WorkFailed)
    });
    has_begun.recv().expect("the leader runs");
    let follower = spawn_thread(&flights, async |flights| {
        flights.join("a", in_a_minute(), || async { unreachable!("it is in flight") }).await
    });
    while count(&flights.stats().followers) == 0 {
        std::thread::yield_now();
    }
    drop(stop);
    assert_eq!(leader.join().expect("no panic"), Err(WorkFailed));
    assert_eq!(follower.join().expect("no panic"), Err(WorkFailed));
}

fn spawn_thread<F: Future<Output = JoinResult>>(
    flights: &TestFlights,
    test: impl FnOnce(TestFlights) -> F + Send + 'static,
) -> std::thread::JoinHandle<JoinResult> {
    let flights = Arc::clone(flights);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        LocalSet::new().block_on(&runtime.expect("a runtime"), test(flights))
    })
}

#[test]
fn work_above_the_limit_runs_unshared() {
    check(async |_, work| {
        let flights: Arc<SingleFlight<u32, u32>> = Arc::default();
        let join = |key| {
            let (flights, work) = (Arc::clone(&flights), work.clone());
            spawn_local(async move { flights.join(key, in_a_minute(), || work.run()).await })
        };
        // More than all shards together may hold.
        let all: Vec<_> = (0..20_000).map(join).collect();
        while work.started.get() < 20_000 {
            yield_now().await;
        }
        let alone = count(&flights.stats().alone);
        assert!(alone >= 20_000 - 16 * 1_024, "{alone} alone");
        work.gate.add_permits(20_000);
        for one in all {
            assert!(one.await.expect("no panic").is_ok());
        }
    });
}
