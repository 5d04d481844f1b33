//! All flights of a process, by key.

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

/// Parts with a lock of their own, so that cores rarely meet. A lock is held for a look into a map.
const PARTS: usize = 16;

/// Flights that a part keeps findable. A flight costs some 300 bytes beside what its request holds anyway. More
/// than 16,384 different pieces of work in flight have little in common; what is over the bound runs unshared
/// and is counted.
const FLIGHTS_PER_PART_MAX: usize = 1_024;

/// How somebody came by a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Started the work.
    Leader,
    /// Found it in flight.
    Follower,
    /// Did it alone, because too many flights were in the air.
    Alone,
}

/// The work broke off without a result: a defect, or its core has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

/// Counters since the start.
#[derive(Debug, Default)]
pub struct FlightStats {
    /// Flights started.
    pub leaders: AtomicU64,
    /// Those who joined one.
    pub followers: AtomicU64,
    /// Work done unshared, because there were too many flights.
    pub alone: AtomicU64,
    /// Flights cancelled because nobody waited any more.
    pub cancelled: AtomicU64,
}

/// Flights by key. Shared by all cores.
pub struct Flights<K, T> {
    parts: [Mutex<Part<K, T>>; PARTS],
    hasher: RandomState,
    stats: FlightStats,
}

type Part<K, T> = HashMap<Hashed<K>, Arc<Flight<T>>, RandomState>;

/// A key that is hashed once: it may hold a whole request body.
#[derive(Clone, PartialEq, Eq)]
struct Hashed<K> {
    hash: u64,
    key: K,
}

impl<K> Hash for Hashed<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::new(HashMap::default())),
            hasher: RandomState::default(),
            stats: FlightStats::default(),
        }
    }
}

impl<K, T> Flights<K, T>
where
    K: Hash + Eq + Clone + 'static,
    T: Clone + 'static,
{
    /// The result of `start`, or of an equal key's work that is in flight already.
    ///
    /// `deadline` is when the caller's own time is up. It is not enforced here: the work and the caller do that.
    /// It keeps the caller out of flights whose leader has much less time.
    ///
    /// Must be called inside a `tokio::task::LocalSet`, where the work goes on if its leader leaves before the
    /// others. Dropping the future leaves the flight. A leader must be polled until it is done or dropped:
    /// followers wait for it.
    ///
    /// # Errors
    /// [`Broken`] if the work panicked, which goes no further, or its core stopped.
    pub async fn join<F>(
        self: &Arc<Self>,
        key: K,
        deadline: Instant,
        start: impl FnOnce() -> F,
    ) -> Result<(T, Role), Broken>
    where
        F: Future<Output = T> + 'static,
    {
        let key = Hashed { hash: self.hasher.hash_one(&key), key };
        let Some((flight, role)) = self.board(&key, deadline) else {
            count(&self.stats.alone);
            return Ok((start().await, Role::Alone));
        };
        if role == Role::Leader {
            count(&self.stats.leaders);
            let flights = Arc::clone(self);
            let landing = Landing { flights, key, flight, result: None, has_landed: false };
            let leading = Leading { work: Some(Box::pin(start())), landing: Some(landing) };
            return leading.await.map(|result| (result, role));
        }
        count(&self.stats.followers);
        let passenger = Passenger { flights: self, key: &key, flight: &flight };
        let result = flight.wait().await.cloned();
        drop(passenger);
        result.map(|result| (result, role)).ok_or(Broken)
    }

    /// A place in the flight for `key`, which may be a new one. None: there are too many.
    fn board(&self, key: &Hashed<K>, deadline: Instant) -> Option<(Arc<Flight<T>>, Role)> {
        let mut part = self.part(key.hash);
        let known = part.get(key);
        if let Some(flight) = known
            && flight.may_be_joined(Instant::now(), deadline)
        {
            flight.board();
            return Some((Arc::clone(flight), Role::Follower));
        }
        if known.is_none() && part.len() >= FLIGHTS_PER_PART_MAX {
            return None;
        }
        let flight = Arc::new(Flight::new(deadline));
        // One that may not be joined any more flies on for those aboard, but is not found.
        part.insert(key.clone(), Arc::clone(&flight));
        Some((flight, Role::Leader))
    }
}

impl<K, T> Flights<K, T> {
    /// Counters.
    pub fn stats(&self) -> &FlightStats {
        &self.stats
    }

    fn part(&self, hash: u64) -> MutexGuard<'_, Part<K, T>> {
        // The maps use the low and the highest bits.
        let part = &self.parts[(hash >> 32) as usize % PARTS];
        // Nothing that panics runs under the lock; a map is whole at any time.
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq, T> Flights<K, T> {
    /// Takes `flight` out of the map, unless another has taken its place, if `may_go` says so while nobody can
    /// come aboard. False: it stays.
    fn remove_if(
        &self,
        key: &Hashed<K>,
        flight: &Arc<Flight<T>>,
        may_go: impl FnOnce(&Flight<T>) -> bool,
    ) -> bool {
        let mut part = self.part(key.hash);
        if !may_go(flight) {
            return false;
        }
        if part.get(key).is_some_and(|known| Arc::ptr_eq(known, flight)) {
            part.remove(key);
        }
        true
    }
}

/// One who waits; leaves on drop.
struct Passenger<'a, K: Eq, T> {
    flights: &'a Flights<K, T>,
    key: &'a Hashed<K>,
    flight: &'a Arc<Flight<T>>,
}

impl<K: Eq, T> Drop for Passenger<'_, K, T> {
    fn drop(&mut self) {
        // Somebody may come aboard until the flight is out of the map.
        if self.flight.leave() && self.flights.remove_if(self.key, self.flight, Flight::is_empty) {
            count(&self.flights.stats.cancelled);
            self.flight.cancel();
        }
    }
}

/// The leader, who does the work himself: nine of ten have no followers, and a task of its own would be one more
/// thing to schedule and to wake. The work becomes a task if the leader leaves while others wait.
struct Leading<K, T, F>
where
    K: Eq + Clone + 'static,
    T: Clone + 'static,
    F: Future<Output = T> + 'static,
{
    /// None: it is over.
    work: Option<Pin<Box<F>>>,
    landing: Option<Landing<K, T>>,
}

/// Nothing in it is pinned but what is in its box.
impl<K, T, F> Unpin for Leading<K, T, F>
where
    K: Eq + Clone + 'static,
    T: Clone + 'static,
    F: Future<Output = T> + 'static,
{
}

impl<K, T, F> Future for Leading<K, T, F>
where
    K: Eq + Clone + 'static,
    T: Clone + 'static,
    F: Future<Output = T> + 'static,
{
    type Output = Result<T, Broken>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(mut work) = self.work.take() else {
            return Poll::Ready(Err(Broken));
        };
        // What panicked is dropped and never polled again, so no broken state is seen by anybody.
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
        if let Some(landing) = self.landing.take() {
            landing.land_with_leader(result.as_ref());
        }
        Poll::Ready(result.ok_or(Broken))
    }
}

impl<K, T, F> Drop for Leading<K, T, F>
where
    K: Eq + Clone + 'static,
    T: Clone + 'static,
    F: Future<Output = T> + 'static,
{
    fn drop(&mut self) {
        let (Some(work), Some(landing)) = (self.work.take(), self.landing.take()) else {
            return;
        };
        let (flights, key) = (Arc::clone(&landing.flights), landing.key.clone());
        let flight = Arc::clone(&landing.flight);
        if flights.remove_if(&key, &flight, Flight::has_only_leader) {
            count(&flights.stats.cancelled);
            return;
        }
        // Still aboard, so the last of the others cannot leave before there is a task to cancel.
        let task = tokio::task::spawn_local(async move {
            let mut landing = landing;
            landing.result = Some(work.await);
        });
        flight.is_led_by(task.abort_handle());
        drop(Passenger { flights: &flights, key: &key, flight: &flight });
    }
}

/// Belongs to the work: ends the flight with it, however that comes.
struct Landing<K: Eq, T> {
    flights: Arc<Flights<K, T>>,
    key: Hashed<K>,
    flight: Arc<Flight<T>>,
    result: Option<T>,
    has_landed: bool,
}

impl<K: Eq, T: Clone> Landing<K, T> {
    /// Ends the flight while its leader is aboard, who has the result already.
    fn land_with_leader(mut self, result: Option<&T>) {
        self.flights.remove_if(&self.key, &self.flight, |_| true);
        // Nobody comes aboard any more.
        if !self.flight.has_only_leader() {
            self.flight.land(result.cloned());
        }
        self.has_landed = true;
    }
}

impl<K: Eq, T> Drop for Landing<K, T> {
    fn drop(&mut self) {
        if self.has_landed {
            return;
        }
        // First nobody comes aboard any more, then those aboard get the result.
        self.flights.remove_if(&self.key, &self.flight, |_| true);
        self.flight.land(self.result.take());
    }
}

impl<K, T> Debug for Flights<K, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flights").field("stats", &self.stats).finish_non_exhaustive()
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
