//! Records the fetches of one execution, and what it found in memory, if a client requested it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use graph::SubgraphId;
use single_flight::Role;

/// Maximum number of fetches in a trace. Plans have a handful; further ones are left out.
const FETCHES_MAX: usize = 1_000;

/// A record of fetches. It is filled by the execution that leads a shared one; the trace of a
/// follower is empty.
#[derive(Debug)]
pub struct Trace {
    started: Instant,
    fetches: Mutex<Vec<FetchTrace>>,
    lookups: Mutex<Vec<LookupTrace>>,
}

/// One request to a subgraph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchTrace {
    /// The subgraph.
    pub subgraph: SubgraphId,
    /// The start of the request, from the start of the trace.
    pub began: Duration,
    /// The duration of the request.
    pub took: Duration,
    /// Length of the request's body.
    pub request_bytes: usize,
    /// HTTP status and length of the response's body; `None` if there was no response.
    pub response: Option<(u16, usize)>,
    /// The role in a shared request; `None` if it must not be shared, or sharing is turned off.
    pub role: Option<Role>,
}

/// The lookups of one fetch of the plan in the memory of the router. Each number counts entries: the representations of
/// an entity fetch, and one for the root fields of another fetch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LookupTrace {
    /// The index of the fetch in the plan.
    pub fetch: usize,
    /// True if the entries are entities, false if they are root fields.
    pub is_entities: bool,
    /// Entries from memory, in time.
    pub fresh: usize,
    /// Expired entries from memory, which were served while they are fetched again.
    pub stale: usize,
    /// Entries that a request of another operation was fetching. This one waited for it.
    pub awaited: usize,
    /// Entries that were requested from the subgraph. An entry that was awaited, and that was not stored then, counts
    /// here too.
    pub sent: usize,
    /// Expired entries that were served because the subgraph failed.
    pub stale_if_error: usize,
    /// Entries that are fetched again in the background because of this operation.
    pub refreshed: usize,
    /// The time since the fetch of the oldest served entry began; `None` if none came from memory.
    pub oldest: Option<Duration>,
}

impl LookupTrace {
    /// Adds the counts of further lookups of the same fetch.
    fn add(&mut self, other: &Self) {
        self.is_entities |= other.is_entities;
        self.fresh += other.fresh;
        self.stale += other.stale;
        self.awaited += other.awaited;
        self.sent += other.sent;
        self.stale_if_error += other.stale_if_error;
        self.refreshed += other.refreshed;
        self.oldest = self.oldest.max(other.oldest);
    }
}

impl Trace {
    /// Creates a trace that begins now.
    pub fn new() -> Self {
        Self { started: Instant::now(), fetches: Mutex::default(), lookups: Mutex::default() }
    }

    /// The fetches so far, in the order in which they ended.
    pub fn fetches(&self) -> Vec<FetchTrace> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The lookups so far, by the index of their fetch. Fetches without stored responses have none.
    pub fn lookups(&self) -> Vec<LookupTrace> {
        self.lock_lookups().clone()
    }

    fn lock_lookups(&self) -> MutexGuard<'_, Vec<LookupTrace>> {
        // A list is consistent at any time, so the list behind a poisoned lock is sound.
        self.lookups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds lookups of one fetch. A fetch has several if its request is divided, or has waited for another operation.
    pub(crate) fn record_lookups(&self, new: &LookupTrace) {
        let mut lookups = self.lock_lookups();
        match lookups.binary_search_by_key(&new.fetch, |it| it.fetch) {
            Ok(place) => lookups[place].add(new),
            Err(place) if lookups.len() < FETCHES_MAX => lookups.insert(place, new.clone()),
            Err(_) => {}
        }
    }

    /// Records that the subgraph failed, and that stored entries took the place of its response.
    pub(crate) fn record_use_of_backup(&self, fetch: usize, entries: usize, oldest: Duration) {
        self.record_lookups(&LookupTrace {
            fetch,
            stale_if_error: entries,
            oldest: Some(oldest),
            ..LookupTrace::default()
        });
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn record(&self, fetch: FetchTrace) {
        let mut fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
        if fetches.len() < FETCHES_MAX {
            fetches.push(fetch);
        }
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}
