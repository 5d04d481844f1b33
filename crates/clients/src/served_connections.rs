//! The client connections that speak HTTP, and the time for which each has been idle. They are not counted as memory of
//! work, so while the memory of the process is short, those that have been idle for longest are closed. If that is not
//! enough, new ones are refused.
//!
//! Requests do not read the clock for that. They note the number of the last look at the connections, of which there is
//! about one a second or more, and the time without a request begins with the next one.
//!
//! A few connections are always served (`CONNECTIONS_PART`): where the graph and the caches need the whole budget, no
//! number of closed connections would end the shortage.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use admission::memory::{MemoryAccount, OPERATION_BYTES};
use telemetry::{Metric, read};
use tokio::sync::Notify;

/// The memory of a connection that has sent a request, with the buffers of HTTP and often those of TLS.
const CONNECTION_BYTES: u64 = OPERATION_BYTES;

/// The connections of this part of the budget (one in this number) are always served: 256 of them with 128 MiB.
const CONNECTIONS_PART: u64 = 16;

/// The time without a request after which a connection is idle. Clients that send one request after the other, and
/// those that have just connected, are spared.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// The number of entries up to which those of closed connections are not removed from the list.
const LISTED_MIN: usize = 1024;

/// The connections that speak HTTP. There is one for the whole process.
#[derive(Debug)]
pub struct ServedConnections {
    memory: Arc<MemoryAccount>,
    /// The number of looks at the connections since the start, one in each `relieve`. It is the clock of
    /// `ServedConnection::idle_since`, and costs a request less than the clock of the system.
    looks: AtomicU64,
    /// The last looks with their times: the latest one that is [`IDLE_AFTER`] ago, and those after it.
    look_times: Mutex<VecDeque<(u64, Instant)>>,
    open: AtomicUsize,
    /// The open connections, and some that have been closed. Empty without a memory budget.
    list: Mutex<Vec<Weak<ServedConnection>>>,
    /// True if the last look found too little memory.
    was_short: AtomicBool,
    /// True while closing idle connections does not suffice.
    is_full: AtomicBool,
    closed: AtomicU64,
    refused: AtomicU64,
}

/// The metrics of connections that are closed or refused because of the memory budget.
pub const SERVED_CONNECTION_METRICS: &[Metric<ServedConnections>] = &[
    Metric::counter(
        "starling_http_connections_refused_memory",
        "Connections closed at once because the memory budget (limits.memory) is nearly used up",
        ServedConnections::refused,
    ),
    Metric::counter(
        "starling_http_connections_closed_idle",
        "Connections without a request closed because the memory budget (limits.memory) is nearly used up",
        |it| read(&it.closed),
    ),
];

/// A connection that speaks HTTP, until this is dropped.
#[derive(Debug)]
pub struct ServedConnection {
    connections: Arc<ServedConnections>,
    /// The number of requests in progress.
    requests: AtomicU32,
    /// The number of looks at the time since which no request has been in progress.
    idle_since: AtomicU64,
    has_requested: AtomicBool,
    is_closing: AtomicBool,
    /// Notified once, when the connection is to be closed.
    closing: Notify,
}

/// Counts the requests of a connection. There is one for each connection, on the thread that serves it.
#[derive(Debug)]
pub struct RequestTracker(Rc<TrackedRequests>);

#[derive(Debug)]
struct TrackedRequests {
    connection: Arc<ServedConnection>,
    /// The number of requests in progress, of which the connection has a copy for other threads.
    in_progress: Cell<u32>,
}

/// A request in progress, until this is dropped.
#[derive(Debug)]
pub struct ServedRequest(Rc<TrackedRequests>);

impl ServedConnections {
    /// Creates the list of a process with this memory.
    pub fn new(memory: &Arc<MemoryAccount>) -> Arc<Self> {
        Arc::new(Self {
            memory: Arc::clone(memory),
            looks: AtomicU64::new(0),
            look_times: Mutex::default(),
            open: AtomicUsize::new(0),
            list: Mutex::default(),
            was_short: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            closed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Adds a new connection. `None` if it is to be refused, because the memory is short: the refusal is counted.
    pub fn enter(self: &Arc<Self>) -> Option<Arc<ServedConnection>> {
        if self.is_full.load(Ordering::Relaxed) && self.open() >= self.always_served() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        let connection = Arc::new(ServedConnection {
            connections: Arc::clone(self),
            requests: AtomicU32::new(0),
            idle_since: AtomicU64::new(self.looks.load(Ordering::Relaxed)),
            has_requested: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            closing: Notify::new(),
        });
        if self.memory.budget().is_some() {
            let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
            if list.len() >= LISTED_MIN && list.len() / 2 >= open {
                // At least half of the entries are of closed connections, so each of those pays for one.
                list.retain(|it| it.strong_count() > 0);
            }
            list.push(Arc::downgrade(&connection));
        }
        Some(connection)
    }

    /// Closes idle connections if the memory is short, those first that have been idle for longest, and decides whether
    /// new ones are refused. To be called after each measurement of the memory. Returns the number of connections that
    /// it closes: their memory is free once the allocator has returned it.
    pub fn relieve(&self) -> usize {
        self.relieve_at(Instant::now())
    }

    fn relieve_at(&self, now: Instant) -> usize {
        let idle_before = self.begin_look(now);
        let excess = self.memory.excess();
        if excess == 0 {
            self.was_short.store(false, Ordering::Relaxed);
            self.is_full.store(false, Ordering::Relaxed);
            return 0;
        }
        let needed = usize::try_from(excess.div_ceil(CONNECTION_BYTES)).unwrap_or(usize::MAX);
        let closed_max = needed.min(self.open().saturating_sub(self.always_served()));
        let closed = self.close_idle(closed_max, idle_before);
        // The memory of closed connections is free in the next measurement at the earliest.
        let is_lasting = self.was_short.swap(true, Ordering::Relaxed);
        self.is_full.store(is_lasting || closed == 0, Ordering::Relaxed);
        closed
    }

    /// Begins a look at the connections. Returns the number of the latest look that is [`IDLE_AFTER`] ago; zero if
    /// there is none.
    fn begin_look(&self, now: Instant) -> u64 {
        let is_long_ago = |time| now.saturating_duration_since(time) >= IDLE_AFTER;
        let number = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        let mut times = self.look_times.lock().unwrap_or_else(PoisonError::into_inner);
        times.push_back((number, now));
        while times.get(1).is_some_and(|&(_, time)| is_long_ago(time)) {
            times.pop_front();
        }
        times.front().filter(|&&(_, time)| is_long_ago(time)).map_or(0, |&(number, _)| number)
    }

    /// Closes up to this number of connections that were idle before this look. Returns how many it closes.
    fn close_idle(&self, closed_max: usize, idle_before: u64) -> usize {
        if closed_max == 0 {
            return 0;
        }
        let mut idle = Vec::new();
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|it| {
            let Some(connection) = it.upgrade() else { return false };
            if let Some(since) = connection.idle_since()
                && since < idle_before
            {
                idle.push((since, connection));
            }
            true
        });
        drop(list);
        if idle.len() > closed_max {
            idle.select_nth_unstable_by_key(closed_max, |&(since, _)| since);
            idle.truncate(closed_max);
        }
        for (_, connection) in &idle {
            connection.is_closing.store(true, Ordering::SeqCst);
            connection.closing.notify_waiters();
        }
        self.closed.fetch_add(idle.len() as u64, Ordering::Relaxed);
        idle.len()
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// The number of refused connections.
    pub fn refused(&self) -> u64 {
        read(&self.refused)
    }

    /// Returns the number of connections that are served also while the memory is short.
    fn always_served(&self) -> usize {
        let budget = self.memory.budget().unwrap_or(u64::MAX);
        usize::try_from(budget / CONNECTIONS_PART / CONNECTION_BYTES).unwrap_or(usize::MAX)
    }
}

impl ServedConnection {
    /// Returns the tracker of the connection's requests, for the thread that serves them.
    pub fn track_requests(self: &Arc<Self>) -> RequestTracker {
        let (connection, in_progress) = (Arc::clone(self), Cell::new(0));
        RequestTracker(Rc::new(TrackedRequests { connection, in_progress }))
    }

    /// True if the connection has had a request.
    pub fn has_requested(&self) -> bool {
        self.has_requested.load(Ordering::Relaxed)
    }

    /// Waits until the connection is to be closed because it is idle.
    pub async fn closing(&self) {
        let mut closing = std::pin::pin!(self.closing.notified());
        // Registered before the check, so that no notification is missed.
        closing.as_mut().enable();
        if !self.is_closing.load(Ordering::SeqCst) {
            closing.await;
        }
    }

    /// Returns the number of looks since which the connection has been idle; `None` if it is not, or is to be closed
    /// already.
    fn idle_since(&self) -> Option<u64> {
        let is_idle =
            self.requests.load(Ordering::Acquire) == 0 && !self.is_closing.load(Ordering::Relaxed);
        is_idle.then(|| self.idle_since.load(Ordering::Relaxed))
    }
}

impl Drop for ServedConnection {
    fn drop(&mut self) {
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RequestTracker {
    /// Notes that a request is in progress until the result is dropped.
    // hot path: no clock, and no atomic operation but stores
    pub fn begin(&self) -> ServedRequest {
        let TrackedRequests { connection, in_progress } = &*self.0;
        in_progress.set(in_progress.get() + 1);
        connection.requests.store(in_progress.get(), Ordering::Relaxed);
        connection.has_requested.store(true, Ordering::Relaxed);
        ServedRequest(Rc::clone(&self.0))
    }
}

impl Drop for ServedRequest {
    fn drop(&mut self) {
        let TrackedRequests { connection, in_progress } = &*self.0;
        in_progress.set(in_progress.get() - 1);
        let looks = connection.connections.looks.load(Ordering::Relaxed);
        // Before the request ends, so that no other thread sees an old time of an idle connection.
        connection.idle_since.store(looks, Ordering::Relaxed);
        connection.requests.store(in_progress.get(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const BUDGET: u64 = 128 << 20;

    /// Returns the connections of a process, its memory, and a function that gives the time of each look at the
    /// connections. The looks are [`IDLE_AFTER`] apart.
    fn connections() -> (Arc<ServedConnections>, Arc<MemoryAccount>, impl Fn(u32) -> Instant) {
        let memory = MemoryAccount::new(BUDGET);
        let (connections, started) = (ServedConnections::new(&memory), Instant::now());
        (connections, memory, move |look: u32| started + look * IDLE_AFTER)
    }

    /// Opens a number of connections.
    fn open(connections: &Arc<ServedConnections>, count: usize) -> Vec<Arc<ServedConnection>> {
        let opened: Vec<_> = (0..count).filter_map(|_| connections.enter()).collect();
        assert_eq!(opened.len(), count);
        opened
    }

    fn is_closing(connection: &ServedConnection) -> bool {
        connection.closing().now_or_never().is_some()
    }

    #[test]
    fn connections_that_have_been_idle_for_longest_are_closed_when_the_memory_is_short() {
        let (connections, memory, time_of) = connections();
        let mut idle = open(&connections, 299);
        connections.relieve_at(time_of(1));
        idle.extend(open(&connections, 1));
        let trackers: Vec<_> = idle[..40].iter().map(ServedConnection::track_requests).collect();
        let requests: Vec<_> = trackers.iter().map(RequestTracker::begin).collect();
        connections.relieve_at(time_of(2));
        assert_eq!(read(&connections.closed), 0, "there is room");
        // 16 connections more than 7/8 of the budget allow.
        memory.measure(BUDGET - BUDGET / 8 + 16 * CONNECTION_BYTES);
        connections.relieve_at(time_of(3));
        assert_eq!((read(&connections.closed), connections.refused()), (16, 0));
        assert_eq!(idle.iter().filter(|it| is_closing(it)).count(), 16);
        assert!(!idle[..40].iter().any(|it| is_closing(it)), "they have requests");
        assert!(!is_closing(&idle[299]), "others have been idle for longer");
        assert!(connections.enter().is_some(), "the closed ones may suffice");
        drop(requests);
    }

    #[test]
    fn new_connections_are_refused_while_closing_idle_ones_does_not_suffice() {
        let (connections, memory, time_of) = connections();
        let idle = open(&connections, 300);
        connections.relieve_at(time_of(1));
        memory.measure(BUDGET);
        connections.relieve_at(time_of(2));
        assert_eq!(read(&connections.closed), 44, "256 are always served");
        assert!(connections.enter().is_some());
        connections.relieve_at(time_of(3));
        assert!(connections.enter().is_none());
        assert_eq!(connections.refused(), 1);
        drop(idle);
        assert!(connections.enter().is_some(), "a few are always served");
    }

    #[test]
    fn connections_in_use_are_not_closed_and_new_ones_are_refused_at_once() {
        let (connections, memory, time_of) = connections();
        let open = open(&connections, 300);
        connections.relieve_at(time_of(1));
        // Each has just had a request.
        open.iter().for_each(|it| drop(it.track_requests().begin()));
        memory.measure(BUDGET);
        connections.relieve_at(time_of(2));
        assert_eq!(read(&connections.closed), 0);
        assert!(connections.enter().is_none());
        connections.relieve_at(time_of(3));
        assert_eq!(read(&connections.closed), 44, "they are idle by now");
        // The measured memory falls in steps.
        for _ in 0..40 {
            memory.measure(0);
        }
        connections.relieve_at(time_of(4));
        assert!(connections.enter().is_some(), "there is room again");
    }

    #[test]
    fn a_connection_with_several_requests_is_idle_when_all_have_ended() {
        let (connections, memory, time_of) = connections();
        let open = open(&connections, 257);
        let trackers: Vec<_> = open.iter().map(ServedConnection::track_requests).collect();
        let requests: Vec<_> = trackers.iter().map(|it| (it.begin(), it.begin())).collect();
        memory.measure(BUDGET);
        connections.relieve_at(time_of(1));
        let (first, second): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
        drop(first);
        connections.relieve_at(time_of(2));
        connections.relieve_at(time_of(3));
        assert_eq!(read(&connections.closed), 0);
        drop(second);
        connections.relieve_at(time_of(4));
        assert_eq!(read(&connections.closed), 0, "they have just become idle");
        connections.relieve_at(time_of(5));
        assert_eq!(read(&connections.closed), 1);
    }

    #[test]
    fn without_a_budget_nothing_is_listed_and_closed_connections_are_removed_from_the_list() {
        let unlimited = ServedConnections::new(&MemoryAccount::unlimited());
        let _open = open(&unlimited, 10);
        unlimited.relieve();
        assert_eq!(unlimited.list.lock().expect("no panic").len(), 0);
        let (connections, ..) = connections();
        (0..10 * LISTED_MIN).for_each(|_| drop(connections.enter()));
        assert!(connections.list.lock().expect("no panic").len() <= LISTED_MIN);
        assert_eq!(connections.open(), 0);
    }

    #[test]
    fn the_times_of_few_looks_are_kept() {
        let (connections, _, time_of) = connections();
        for tenth in 0..1_000_u32 {
            connections.relieve_at(time_of(0) + tenth * IDLE_AFTER / 10);
        }
        assert_eq!(connections.look_times.lock().expect("no panic").len(), 11);
    }

    #[tokio::test]
    async fn a_connection_notices_that_it_is_closed_before_and_while_it_waits() {
        let (connections, memory, time_of) = connections();
        let idle = open(&connections, 257);
        connections.relieve_at(time_of(1));
        let waiting = async {
            let all = idle.iter().map(|it| Box::pin(it.closing()));
            futures_util::future::select_all(all).await.1
        };
        let shortage = async {
            tokio::task::yield_now().await;
            memory.measure(BUDGET);
            connections.relieve_at(time_of(2));
        };
        let (closed, ()) = tokio::join!(waiting, shortage);
        assert!(is_closing(&idle[closed]));
        assert!(!idle[closed].has_requested());
        drop(idle[closed].track_requests().begin());
        assert!(idle[closed].has_requested());
    }
}
