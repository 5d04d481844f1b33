//! The client connections that speak HTTP, and the time for which each has been idle. They are not counted as memory of
//! work, so while the memory of the process is short, those that have been idle for longest are closed. If that is not
//! enough, new ones are refused.
//!
//! A few connections are always served (`CONNECTIONS_PART`): where the graph and the caches need the whole budget, no
//! number of closed connections would end the shortage.

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
    /// The zero of `ServedConnection::idle_since`.
    started: Instant,
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
    /// The time since which no request has been in progress, in milliseconds after `ServedConnections::started`.
    idle_since: AtomicU64,
    has_requested: AtomicBool,
    is_closing: AtomicBool,
    /// Notified once, when the connection is to be closed.
    closing: Notify,
}

/// A request in progress, until this is dropped.
#[derive(Debug)]
pub struct ServedRequest(Arc<ServedConnection>);

impl ServedConnections {
    /// Creates the list of a process with this memory.
    pub fn new(memory: &Arc<MemoryAccount>) -> Arc<Self> {
        Arc::new(Self {
            memory: Arc::clone(memory),
            started: Instant::now(),
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
            idle_since: AtomicU64::new(self.now()),
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
        let excess = self.memory.excess();
        if excess == 0 {
            self.was_short.store(false, Ordering::Relaxed);
            self.is_full.store(false, Ordering::Relaxed);
            return 0;
        }
        let needed = usize::try_from(excess.div_ceil(CONNECTION_BYTES)).unwrap_or(usize::MAX);
        let closed = self.close_idle(needed.min(self.open().saturating_sub(self.always_served())));
        // The memory of closed connections is free in the next measurement at the earliest.
        let is_lasting = self.was_short.swap(true, Ordering::Relaxed);
        self.is_full.store(is_lasting || closed == 0, Ordering::Relaxed);
        closed
    }

    /// Closes up to this number of idle connections. Returns how many it closes.
    fn close_idle(&self, closed_max: usize) -> usize {
        if closed_max == 0 {
            return 0;
        }
        let now = self.now();
        let mut idle = Vec::new();
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|it| {
            let Some(connection) = it.upgrade() else { return false };
            if let Some(since) = connection.idle_since()
                && u128::from(now.saturating_sub(since)) >= IDLE_AFTER.as_millis()
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

    /// Milliseconds since the creation.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl ServedConnection {
    /// Notes that a request is in progress until the result is dropped.
    pub fn begin_request(self: &Arc<Self>) -> ServedRequest {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.has_requested.store(true, Ordering::Relaxed);
        ServedRequest(Arc::clone(self))
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

    /// Returns the time since which the connection has been idle; `None` if it is not, or is to be closed already.
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

impl Drop for ServedRequest {
    fn drop(&mut self) {
        let connection = &*self.0;
        // Before the request ends, so that no other thread sees an old time of an idle connection.
        connection.idle_since.store(connection.connections.now(), Ordering::Relaxed);
        connection.requests.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const BUDGET: u64 = 128 << 20;

    /// Returns the connections of a process that has run for a while, and its memory.
    fn connections() -> (Arc<ServedConnections>, Arc<MemoryAccount>) {
        let memory = MemoryAccount::new(BUDGET);
        let mut connections = ServedConnections::new(&memory);
        let started = Instant::now().checked_sub(10 * IDLE_AFTER).expect("it runs for longer");
        Arc::get_mut(&mut connections).expect("it is the only one").started = started;
        (connections, memory)
    }

    /// Opens a number of connections that were idle since the start.
    fn open_idle(connections: &Arc<ServedConnections>, count: usize) -> Vec<Arc<ServedConnection>> {
        let opened: Vec<_> = (0..count).filter_map(|_| connections.enter()).collect();
        assert_eq!(opened.len(), count);
        opened.iter().for_each(|it| it.idle_since.store(0, Ordering::Relaxed));
        opened
    }

    fn is_closing(connection: &ServedConnection) -> bool {
        connection.closing().now_or_never().is_some()
    }

    #[test]
    fn connections_that_have_been_idle_for_longest_are_closed_when_the_memory_is_short() {
        let (connections, memory) = connections();
        let idle = open_idle(&connections, 300);
        idle[299].idle_since.store(100, Ordering::Relaxed);
        let requests: Vec<_> = idle[..40].iter().map(ServedConnection::begin_request).collect();
        connections.relieve();
        assert_eq!(read(&connections.closed), 0, "there is room");
        // 16 connections more than 7/8 of the budget allow.
        memory.measure(BUDGET - BUDGET / 8 + 16 * CONNECTION_BYTES);
        connections.relieve();
        assert_eq!((read(&connections.closed), connections.refused()), (16, 0));
        assert_eq!(idle.iter().filter(|it| is_closing(it)).count(), 16);
        assert!(!idle[..40].iter().any(|it| is_closing(it)), "they have requests");
        assert!(!is_closing(&idle[299]), "others have been idle for longer");
        assert!(connections.enter().is_some(), "the closed ones may suffice");
        drop(requests);
    }

    #[test]
    fn new_connections_are_refused_while_closing_idle_ones_does_not_suffice() {
        let (connections, memory) = connections();
        let idle = open_idle(&connections, 300);
        memory.measure(BUDGET);
        connections.relieve();
        assert_eq!(read(&connections.closed), 44, "256 are always served");
        assert!(connections.enter().is_some());
        connections.relieve();
        assert!(connections.enter().is_none());
        assert_eq!(connections.refused(), 1);
        drop(idle);
        assert!(connections.enter().is_some(), "a few are always served");
    }

    #[test]
    fn connections_in_use_are_not_closed_and_new_ones_are_refused_at_once() {
        let (connections, memory) = connections();
        let open = open_idle(&connections, 300);
        // Each has just had a request.
        open.iter().for_each(|it| drop(it.begin_request()));
        memory.measure(BUDGET);
        connections.relieve();
        assert_eq!(read(&connections.closed), 0);
        assert!(connections.enter().is_none());
        // The measured memory falls in steps.
        for _ in 0..40 {
            memory.measure(0);
        }
        connections.relieve();
        assert!(connections.enter().is_some(), "there is room again");
    }

    #[test]
    fn without_a_budget_nothing_is_listed_and_closed_connections_are_removed_from_the_list() {
        let unlimited = ServedConnections::new(&MemoryAccount::unlimited());
        let _open = open_idle(&unlimited, 10);
        unlimited.relieve();
        assert_eq!(unlimited.list.lock().expect("no panic").len(), 0);
        let (connections, _) = connections();
        (0..10 * LISTED_MIN).for_each(|_| drop(connections.enter()));
        assert!(connections.list.lock().expect("no panic").len() <= LISTED_MIN);
        assert_eq!(connections.open(), 0);
    }

    #[tokio::test]
    async fn a_connection_notices_that_it_is_closed_before_and_while_it_waits() {
        let (connections, memory) = connections();
        let idle = open_idle(&connections, 257);
        let waiting = async {
            let all = idle.iter().map(|it| Box::pin(it.closing()));
            futures_util::future::select_all(all).await.1
        };
        let shortage = async {
            tokio::task::yield_now().await;
            memory.measure(BUDGET);
            connections.relieve();
        };
        let (closed, ()) = tokio::join!(waiting, shortage);
        assert!(is_closing(&idle[closed]));
        assert!(!idle[closed].has_requested());
        drop(idle[closed].begin_request());
        assert!(idle[closed].has_requested());
    }
}
