//! The map of all flights of a process, by key.

use std::collections::HashMap;
use std::fmt::{Debug, Formatter};
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use foldhash::fast::RandomState;

use crate::flight::Flight;

/// The number of shards of the map, each with a lock of its own, so that cores rarely contend. A lock is held for one
/// map lookup.
const SHARDS: usize = 16;

/// The maximum number of flights in one shard. A flight costs about 300 bytes in addition to the request that it
/// belongs to. More than 16,384 different pieces of work in flight have little in common, so work beyond the limit runs
/// unshared and is counted.
const FLIGHTS_PER_SHARD_MAX: usize = 1_024;

/// The way in which a caller got its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The caller started the work and polled it.
    Leader,
    /// The caller waited for work that was already in flight.
    Follower,
    /// The caller did the work unshared, because there were too many flights.
    Unshared,
}

/// The work ended without a result: it panicked, or its core has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkFailed;

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub struct SingleFlightStats {
    /// The number of flights that were started.
    pub leaders: AtomicU64,
    /// The number of callers that joined a flight.
    pub followers: AtomicU64,
    /// The number of calls that ran unshared, because there were too many flights.
    pub alone: AtomicU64,
    /// The number of flights that were cancelled because their last waiter left.
    pub cancelled: AtomicU64,
}

/// The flights of a process by key, shared by all cores.
pub struct SingleFlight<K, T> {
    shards: [Mutex<FlightMap<K, T>>; SHARDS],
    hasher: RandomState,
    stats: SingleFlightStats,
}

type FlightMap<K, T> = HashMap<HashedKey<K>, Arc<Flight<T>>, RandomState>;

/// A key with its hash, which is computed once because a key may contain a whole request body.
#[derive(Clone, PartialEq, Eq)]
struct HashedKey<K> {
    hash: u64,
    key: K,
}

impl<K> Hash for HashedKey<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<K, T> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(HashMap::default())),
            hasher: RandomState::default(),
            stats: SingleFlightStats::default(),
        }
    }
}

impl<K, T> SingleFlight<K, T>
where
    K: Hash + Eq + Clone + 'static,
    T: Clone + 'static,
{
    /// Returns the result of `start`, or of the work with an equal key that is already in flight.
    ///
    /// `deadline` is the end of the caller's own time. It is not enforced here: the work and the caller do that. A
    /// caller does not join a flight if its leader has much less time, or more than the caller.
    ///
    /// Must be called inside a `tokio::task::LocalSet`, where the work continues if its leader leaves before its
    /// followers. Dropping the future leaves the flight. A leader must be polled until it is done or dropped, because
    /// its followers wait for it.
    ///
    /// # Errors
    /// [`WorkFailed`] if the work panicked (the panic is caught) or its core stopped.
    pub async fn join<F>(
        self: &Arc<Self>,
        key: K,
        deadline: Instant,
        start: impl FnOnce() -> F,
    ) -> Result<(T, Role), WorkFailed>
    where
        F: Future<Output = T> + 'static,
    {
        let key = HashedKey { hash: self.hasher.hash_one(&key), key };
        let Some((flight, role)) = self.join_or_start(&key, deadline) else {
            count(&self.stats.alone);
            return Ok((start().await, Role::Unshared));
        };
        if role == Role::Leader {
            count(&self.stats.leaders);
            let flights = Arc::clone(self);
            let completion =
                FlightCompletion { flights, key, flight, result: None, is_completed: false };
            let leading =
                LeaderWork { work: Some(Box::pin(start())), completion: Some(completion) };
            return leading.await.map(|result| (result, role));
        }
        count(&self.stats.followers);
        let waiter = FlightWaiter { flights: self, key: &key, flight: &flight };
        let result = flight.wait().await.cloned();
        drop(waiter);
        result.map(|result| (result, role)).ok_or(WorkFailed)
    }

    /// Joins the flight for `key`, or starts one. `None` if there are too many flights.
    fn join_or_start(
        &self,
        key: &HashedKey<K>,
        deadline: Instant,
    ) -> Option<(Arc<Flight<T>>, Role)> {
        let mut shard = self.lock_shard(key.hash);
        let known = shard.get(key);
        if let Some(flight) = known
            && flight.may_be_joined(Instant::now(), deadline)
        {
            flight.add_waiter();
            return Some((Arc::clone(flight), Role::Follower));
        }
        if known.is_none() && shard.len() >= FLIGHTS_PER_SHARD_MAX {
            return None;
        }
        let flight = Arc::new(Flight::new(deadline));
        // A replaced flight continues for its waiters, but new callers do not find it.
        shard.insert(key.clone(), Arc::clone(&flight));
        Some((flight, Role::Leader))
    }
}

impl<K, T> SingleFlight<K, T> {
    /// Returns the counters.
    pub fn stats(&self) -> &SingleFlightStats {
        &self.stats
    }

    fn lock_shard(&self, hash: u64) -> MutexGuard<'_, FlightMap<K, T>> {
        // The maps use the lowest and the highest bits of the hash.
        let shard = &self.shards[(hash >> 32) as usize % SHARDS];
        // No code that panics runs under the lock, so the map is consistent at any time.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq, T> SingleFlight<K, T> {
    /// Removes `flight` from the map if `may_remove` agrees, which is called while no caller can join. A newer flight
    /// with the same key stays. Returns false if `may_remove` refused.
    fn remove_if(
        &self,
        key: &HashedKey<K>,
        flight: &Arc<Flight<T>>,
        may_remove: impl FnOnce(&Flight<T>) -> bool,
    ) -> bool {
        let mut shard = self.lock_shard(key.hash);
        if !may_remove(flight) {
            return false;
        }
        if shard.get(key).is_some_and(|known| Arc::ptr_eq(known, flight)) {
            shard.remove(key);
        }
        true
    }
}

/// A caller that waits for a flight, and leaves it on drop.
struct FlightWaiter<'a, K: Eq, T> {
    flights: &'a SingleFlight<K, T>,
    key: &'a HashedKey<K>,
    flight: &'a Arc<Flight<T>>,
}

impl<K: Eq, T> Drop for FlightWaiter<'_, K, T> {
    fn drop(&mut self) {
        // Other callers may join until the flight is out of the map.
        if self.flight.remove_waiter()
            && self.flights.remove_if(self.key, self.flight, Flight::is_empty)
        {
            count(&self.flights.stats.cancelled);
            self.flight.cancel();
        }
    }
}

/// The future of a leader, which polls the work itself: nine of ten flights have no followers, and a task for each
/// would be one more thing to schedule and to wake. The work becomes a task if the leader leaves while others wait.
struct LeaderWork<K, T, F>
where
    K: Eq + Clone + 'static,
    T: Clone + 'static,
    F: Future<Output = T> + 'static,
{
    /// The work. `None` once it is done.
    work: Option<Pin<Box<F>>>,
    completion: Option<FlightCompletion<K, T>>,
}

/// The work is pinned in its own box, and nothing else is pinned.
impl<K, T, F> Unpin for LeaderWork<K, T, F>
where
    K: Eq + Clone + 'static,
    T: Clone + 'static,
    F: Future<Output = T> + 'static,
{
}

impl<K, T, F> Future for LeaderWork<K, T, F>
where
    K: Eq + Clone + 'static,
    T: Clone + 'static,
    F: Future<Output = T> + 'static,
{
    type Output = Result<T, WorkFailed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(mut work) = self.work.take() else {
            return Poll::Ready(Err(WorkFailed));
        };
        // Work that panicked is dropped and never polled again, so no inconsistent state is observed.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        let result = match polled {
            Ok(Poll::Pending) => {
                self.work = Some(work);
                return Poll::Pending;
            }
            Ok(Poll::Ready(result)) => Some(result),
            Err(_) => None,
        };
        drop(work);
        if let Some(completion) = self.completion.take() {
            completion.complete_with_leader(result.as_ref());
        }
        Poll::Ready(result.ok_or(WorkFailed))
    }
}

impl<K, T, F> Drop for LeaderWork<K, T, F>
where
    K: Eq + Clone + 'static,
    T: Clone + 'static,
    F: Future<Output = T> + 'static,
{
    fn drop(&mut self) {
        let (Some(work), Some(completion)) = (self.work.take(), self.completion.take()) else {
            return;
        };
        let (flights, key) = (Arc::clone(&completion.flights), completion.key.clone());
        let flight = Arc::clone(&completion.flight);
        if flights.remove_if(&key, &flight, Flight::has_only_leader) {
            count(&flights.stats.cancelled);
            return;
        }
        // The leader still counts as a waiter, so the last follower cannot leave before there is a task to cancel.
        let task = tokio::task::spawn_local(async move {
            let mut completion = completion;
            completion.result = Some(work.await);
        });
        flight.set_task(task.abort_handle());
        drop(FlightWaiter { flights: &flights, key: &key, flight: &flight });
    }
}

/// Ends a flight together with its work, however the work ends.
struct FlightCompletion<K: Eq, T> {
    flights: Arc<SingleFlight<K, T>>,
    key: HashedKey<K>,
    flight: Arc<Flight<T>>,
    result: Option<T>,
    is_completed: bool,
}

impl<K: Eq, T: Clone> FlightCompletion<K, T> {
    /// Ends the flight while its leader, which already has the result, still counts as a waiter.
    fn complete_with_leader(mut self, result: Option<&T>) {
        self.flights.remove_if(&self.key, &self.flight, |_| true);
        // No caller can join any more.
        if !self.flight.has_only_leader() {
            self.flight.complete(result.cloned());
        }
        self.is_completed = true;
    }
}

impl<K: Eq, T> Drop for FlightCompletion<K, T> {
    fn drop(&mut self) {
        if self.is_completed {
            return;
        }
        // The flight leaves the map first, so that no caller joins after the waiters get the result.
        self.flights.remove_if(&self.key, &self.flight, |_| true);
        self.flight.complete(self.result.take());
    }
}

impl<K, T> Debug for SingleFlight<K, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SingleFlight").field("stats", &self.stats).finish_non_exhaustive()
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
