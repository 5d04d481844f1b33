//! Records the fetches of one execution, and what it found in memory: for a client that requests it, and for the spans
//! of a trace. It also gives each request to a subgraph and each message its span.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use graph::{FieldId, SubgraphId};
use single_flight::Role;
use telemetry::spans::{OutgoingSpan, TraceContext};

use crate::{FetchError, HedgeOutcome};

/// Maximum number of fetches in a trace. Plans have a handful; further ones are left out.
const FETCHES_MAX: usize = 1_000;

/// Maximum memory of the bodies of requests that a trace keeps. Fetches beyond it have none.
const BODIES_BYTES_MAX: usize = 1 << 20;

/// A record of fetches. It is filled by the execution that leads a shared one; the trace of a
/// follower is empty.
#[derive(Debug)]
pub struct Trace {
    started: Instant,
    /// The identity of the trace that the requests belong to.
    context: Option<Arc<TraceContext>>,
    /// True if the bodies of requests are kept.
    keeps_bodies: bool,
    /// The length of the bodies so far.
    body_bytes: AtomicUsize,
    fetches: Mutex<Vec<FetchTrace>>,
    lookups: Mutex<Vec<LookupTrace>>,
    messages: Mutex<Vec<MessageTrace>>,
    printing: Mutex<Option<PrintingTrace>>,
}

/// The place of a request in its execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FetchPlace {
    /// The index of the fetch in the plan.
    pub fetch: usize,
    /// The number of distinct entities that are requested; 0 for a request that is not for entities.
    pub entities: u32,
    /// The number of representations that were left out, because each equals that of another object.
    pub deduplicated: u32,
}

/// One request to a subgraph.
#[derive(Clone, Debug)]
pub struct FetchTrace {
    /// The subgraph.
    pub subgraph: SubgraphId,
    /// The place in the execution.
    pub place: FetchPlace,
    /// The start of the request, from the start of the trace.
    pub began: Duration,
    /// The duration of the request.
    pub took: Duration,
    /// Length of the request's body.
    pub request_bytes: usize,
    /// The body of the request; `None` if the trace keeps no bodies, or has enough of them.
    pub body: Option<Bytes>,
    /// HTTP status and length of the response's body; `None` if there was no response.
    pub response: Option<(u16, usize)>,
    /// Whether the second request was faster, if there was one.
    pub hedge: Option<HedgeOutcome>,
    /// The reason why there was no response.
    pub failure: Option<FetchError>,
    /// The role in a shared request; `None` if it must not be shared, or sharing is turned off.
    pub role: Option<Role>,
    /// The span of the request, if the execution belongs to a trace. The subgraph knows that of the leader.
    pub span: Option<Arc<OutgoingSpan>>,
}

/// One message to a broker.
#[derive(Clone, Debug)]
pub struct MessageTrace {
    /// The root field that sends it.
    pub field: FieldId,
    /// The start, from the start of the trace.
    pub began: Duration,
    /// The time until the broker has accepted it, or a response has come.
    pub took: Duration,
    /// True if it was not accepted, or got no response.
    pub has_failed: bool,
    /// The span of the message.
    pub span: Arc<OutgoingSpan>,
}

/// The printing of the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrintingTrace {
    /// The start, from the start of the trace.
    pub began: Duration,
    /// The duration.
    pub took: Duration,
    /// The length of the response.
    pub bytes: usize,
}

/// The lookups of one fetch of the plan in the memory of the router. Each number counts entries: the representations of
/// an entity fetch, and one for the root fields of another fetch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LookupTrace {
    /// The index of the fetch in the plan.
    pub fetch: usize,
    /// The time of the first lookup, from the start of the trace.
    pub at: Duration,
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
        Self::of(None)
    }

    /// Creates a trace that begins now. Its requests and messages get spans of the trace `context`.
    pub fn with_spans(context: &Arc<TraceContext>) -> Self {
        Self::of(Some(Arc::clone(context)))
    }

    fn of(context: Option<Arc<TraceContext>>) -> Self {
        Self {
            started: Instant::now(),
            context,
            keeps_bodies: false,
            body_bytes: AtomicUsize::new(0),
            fetches: Mutex::default(),
            lookups: Mutex::default(),
            messages: Mutex::default(),
            printing: Mutex::default(),
        }
    }

    /// Keeps the bodies of requests, up to a megabyte.
    pub fn keeping_bodies(self) -> Self {
        Self { keeps_bodies: true, ..self }
    }

    /// Returns the body of a request if it is kept. It stays in the memory in which it was written.
    pub(crate) fn keep_body(&self, body: &Bytes) -> Option<Bytes> {
        if !self.keeps_bodies {
            return None;
        }
        let kept = self.body_bytes.fetch_add(body.len(), Ordering::Relaxed);
        (kept + body.len() <= BODIES_BYTES_MAX).then(|| body.clone())
    }

    /// The start of the trace.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Creates the span of a request or message; `None` if the execution belongs to no trace.
    pub(crate) fn outgoing_span(&self) -> Option<Arc<OutgoingSpan>> {
        self.context.as_ref().map(|context| Arc::new(OutgoingSpan::new(context)))
    }

    /// The messages so far, in the order in which they ended.
    pub fn messages(&self) -> Vec<MessageTrace> {
        lock(&self.messages).clone()
    }

    /// The printing of the response, if it has ended.
    pub fn printing(&self) -> Option<PrintingTrace> {
        *lock(&self.printing)
    }

    /// The fetches so far, in the order in which they ended.
    pub fn fetches(&self) -> Vec<FetchTrace> {
        lock(&self.fetches).clone()
    }

    /// The lookups so far, by the index of their fetch. Fetches without stored responses have none.
    pub fn lookups(&self) -> Vec<LookupTrace> {
        lock(&self.lookups).clone()
    }

    /// Adds lookups of one fetch. A fetch has several if its request is divided, or has waited for another operation.
    pub(crate) fn record_lookups(&self, new: &LookupTrace) {
        let at = self.now();
        let mut lookups = lock(&self.lookups);
        match lookups.binary_search_by_key(&new.fetch, |it| it.fetch) {
            Ok(place) => lookups[place].add(new),
            Err(place) if lookups.len() < FETCHES_MAX => {
                lookups.insert(place, LookupTrace { at, ..new.clone() });
            }
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
        let mut fetches = lock(&self.fetches);
        if fetches.len() < FETCHES_MAX {
            fetches.push(fetch);
        }
    }

    pub(crate) fn record_message(&self, message: MessageTrace) {
        let mut messages = lock(&self.messages);
        if messages.len() < FETCHES_MAX {
            messages.push(message);
        }
    }

    /// Records that the response has been printed.
    pub(crate) fn record_printing(&self, began: Duration, bytes: usize) {
        let took = self.now().saturating_sub(began);
        *lock(&self.printing) = Some(PrintingTrace { began, took, bytes });
    }
}

/// Locks a part of the trace. It is consistent at any time, so the part behind a poisoned lock is sound.
fn lock<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_kept_only_on_request_and_up_to_a_bound() {
        let body = Bytes::from(vec![b'x'; BODIES_BYTES_MAX / 2]);
        assert_eq!(Trace::new().keep_body(&body), None);
        let trace = Trace::new().keeping_bodies();
        let kept: Vec<_> = (0..3).map(|_| trace.keep_body(&body).is_some()).collect();
        assert_eq!(kept, [true, true, false]);
    }
}
