//! The open connections of one worker that wait for requests. Connections never move between
//! workers.
//!
//! While there are any, a task of this worker maintains them: it closes connections that were idle
//! for too long, and those that another worker needs more.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use execute::FetchError;

use crate::connection::{Http2Connection, Http2Stream};
use crate::http1::Http1Connection;
use crate::shared::{PoolId, SubgraphState};
use crate::stats::OwnedGauge;

/// Interval at which idle connections are checked. A connection may exceed its idle timeout by at
/// most this time.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The kind of an attempt, which decides about its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AttemptKind {
    /// An ordinary attempt.
    Ordinary,
    /// The second request for a late response. It prefers a connection that others do not use.
    Second,
}

#[derive(Default)]
struct Pool {
    idle: Vec<IdleConnection>,
    http2: Vec<Rc<Http2Connection>>,
    connect_gate: Rc<ConnectGate>,
    is_maintained: bool,
    /// Wakes the task that maintains the pool.
    maintenance_waker: Option<Waker>,
}

struct IdleConnection {
    connection: Http1Connection,
    since: Instant,
    _gauge: OwnedGauge,
}

thread_local! {
    static POOLS: RefCell<HashMap<PoolId, Pool>> = RefCell::default();
}

/// Takes the HTTP/1.1 connection that was used last and is still open.
pub(crate) fn take_idle(state: &SubgraphState, idle_timeout: Duration) -> Option<Http1Connection> {
    if !state.reuse.may_reuse() {
        let idle = POOLS
            .with_borrow_mut(|pools| Some(std::mem::take(&mut pools.get_mut(&state.pool)?.idle)));
        drop(idle);
        return None;
    }
    loop {
        let idle = POOLS.with_borrow_mut(|pools| pools.get_mut(&state.pool)?.idle.pop())?;
        let mut connection = idle.connection;
        // No waker is needed: the request is about to wait for its response anyway.
        let ended = connection.poll_end(&mut Context::from_waker(Waker::noop()));
        if idle.since.elapsed() < idle_timeout && ended.is_pending() {
            return Some(connection);
        }
    }
}

/// Returns a connection whose response has been read to its end.
pub(crate) fn return_connection(
    state: &Arc<SubgraphState>,
    connection: Http1Connection,
    idle_timeout: Duration,
) {
    // A request on another worker waits for a connection to close.
    if !connection.is_reusable() || state.limits.wanted() > 0 || !state.reuse.may_reuse() {
        return;
    }
    match state.reuse.probation() {
        Some(time) => return_after_probation(Arc::clone(state), connection, idle_timeout, time),
        None => keep_idle(state, connection, idle_timeout),
    }
}

/// Returns a connection once nothing was received on it for a while. Until then other requests open
/// their own.
fn return_after_probation(
    state: Arc<SubgraphState>,
    mut connection: Http1Connection,
    idle_timeout: Duration,
    time: Duration,
) {
    tokio::task::spawn_local(async move {
        let ended = poll_fn(|context| connection.poll_end(context));
        let has_passed = tokio::time::timeout(time, ended).await.is_err();
        if !has_passed {
            return;
        }
        state.reuse.note_proven();
        if state.reuse.may_reuse() && state.limits.wanted() == 0 {
            keep_idle(&state, connection, idle_timeout);
        }
    });
}

fn keep_idle(state: &Arc<SubgraphState>, connection: Http1Connection, idle_timeout: Duration) {
    let idle = IdleConnection {
        connection,
        since: Instant::now(),
        _gauge: OwnedGauge::up(&state.stats, |it| &it.connections_idle),
    };
    let mut ended = None;
    with_pool(state, idle_timeout, |pool| ended = pool.add_idle(idle));
    drop(ended);
}

/// True if this worker has a connection that can carry one more request.
pub(crate) fn has_connection(state: &SubgraphState) -> bool {
    POOLS.with_borrow(|pools| {
        let has_room = |it: &Rc<Http2Connection>| !it.is_closed() && it.has_room();
        pools
            .get(&state.pool)
            .is_some_and(|it| !it.idle.is_empty() || it.http2.iter().any(has_room))
    })
}

/// Returns a slot on an HTTP/2 connection that has room. Requests fill the connections one after the other; a second
/// request takes the last one, which is most likely not that of the first.
pub(crate) fn join_http2_connection(
    state: &SubgraphState,
    kind: AttemptKind,
) -> Option<Http2Stream> {
    // Closed connections are dropped after the borrow has ended, because dropping wakes tasks.
    let mut closed = Vec::new();
    POOLS.with_borrow_mut(|pools| {
        let pool = pools.get_mut(&state.pool)?;
        closed.extend(pool.http2.extract_if(.., |it| it.is_closed()));
        let connection = match kind {
            AttemptKind::Ordinary => pool.http2.iter().find(|it| it.has_room())?,
            AttemptKind::Second => pool.http2.iter().rfind(|it| it.has_room())?,
        };
        Some(Http2Stream::new(Rc::clone(connection)))
    })
}

/// Adds a new HTTP/2 connection that other requests may share.
pub(crate) fn add_http2_connection(
    state: &Arc<SubgraphState>,
    connection: Rc<Http2Connection>,
    idle_timeout: Duration,
) {
    with_pool(state, idle_timeout, |pool| pool.http2.push(connection));
}

/// Returns the gate of requests that need a new HTTP/2 connection: one opens it, the others share
/// it.
pub(crate) fn connect_gate(state: &SubgraphState) -> Rc<ConnectGate> {
    POOLS.with_borrow_mut(|pools| Rc::clone(&pools.entry(state.pool).or_default().connect_gate))
}

/// The gate of requests that need a new HTTP/2 connection. See [`connect_gate`].
#[derive(Default)]
pub(crate) struct ConnectGate {
    gate: tokio::sync::Mutex<()>,
    attempts: Cell<u64>,
    failure: RefCell<Option<FetchError>>,
}

impl ConnectGate {
    /// Runs `open` alone, unless `shared` finds a connection that was opened meanwhile. Requests
    /// that waited for an attempt that failed fail with it, so that a server that hangs delays no
    /// request twice.
    pub(crate) async fn run<T>(
        &self,
        shared: impl Fn() -> Option<T>,
        open: impl AsyncFnOnce() -> Result<T, FetchError>,
    ) -> Result<T, FetchError> {
        let seen = self.attempts.get();
        let _alone = self.gate.lock().await;
        if let Some(shared) = shared() {
            return Ok(shared);
        }
        if self.attempts.get() != seen
            && let Some(failure) = &*self.failure.borrow()
        {
            return Err(failure.clone());
        }
        let opened = open().await;
        self.attempts.set(self.attempts.get().wrapping_add(1));
        *self.failure.borrow_mut() = opened.as_ref().err().cloned();
        opened
    }
}

fn with_pool(state: &Arc<SubgraphState>, idle_timeout: Duration, change: impl FnOnce(&mut Pool)) {
    let must_start = POOLS.with_borrow_mut(|pools| {
        let pool = pools.entry(state.pool).or_default();
        change(pool);
        !std::mem::replace(&mut pool.is_maintained, true)
    });
    if must_start {
        let kept = PoolGuard(state.pool);
        tokio::task::spawn_local(maintain_pool(Arc::clone(state), idle_timeout, kept));
    }
}

/// Completes when a server has closed a connection that waits here.
fn idle_connection_closed(pool: PoolId) -> impl Future<Output = ()> {
    poll_fn(move |context| {
        POOLS.with_borrow_mut(|pools| {
            let Some(pool) = pools.get_mut(&pool) else { return Poll::Ready(()) };
            pool.maintenance_waker = Some(context.waker().clone());
            let mut idle = pool.idle.iter_mut();
            match idle.any(|it| it.connection.poll_end(context).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
    })
}

/// Held by the task that maintains a pool. When the task ends, also with its runtime, the pool is
/// removed.
struct PoolGuard(PoolId);

impl Drop for PoolGuard {
    fn drop(&mut self) {
        // While the thread ends, the pools may be gone already.
        let removed =
            POOLS.try_with(|pools| pools.try_borrow_mut().map(|mut it| it.remove(&self.0)));
        drop(removed);
    }
}

async fn maintain_pool(state: Arc<SubgraphState>, idle_timeout: Duration, kept: PoolGuard) {
    loop {
        // Registered before the number is read, so that no request is missed between the two.
        let wanting = state.limits.wanting();
        let wanted = state.limits.wanted();
        let (dropped, is_empty) = POOLS.with_borrow_mut(|pools| {
            let Some(pool) = pools.get_mut(&kept.0) else { return (None, true) };
            let dropped = pool.drop_idle(idle_timeout, wanted);
            (Some(dropped), pool.idle.is_empty() && pool.http2.is_empty())
        });
        drop(dropped);
        if is_empty {
            return;
        }
        tokio::select! {
            () = wanting => {}
            () = idle_connection_closed(kept.0) => {}
            () = tokio::time::sleep(SWEEP_INTERVAL) => {}
        }
    }
}

impl Pool {
    /// Adds a connection that waits for requests. Returns it if it has ended already: dropping it
    /// wakes tasks, so the caller must do that.
    fn add_idle(&mut self, mut idle: IdleConnection) -> Option<IdleConnection> {
        if let Some(maintenance_waker) = &self.maintenance_waker
            && idle.connection.poll_end(&mut Context::from_waker(maintenance_waker)).is_ready()
        {
            return Some(idle);
        }
        self.idle.push(idle);
        None
    }

    /// Removes connections that have expired or closed, and up to `wanted` further idle ones,
    /// oldest first.
    fn drop_idle(
        &mut self,
        idle_timeout: Duration,
        wanted: usize,
    ) -> (Vec<IdleConnection>, Vec<Rc<Http2Connection>>) {
        let is_old = |since: Instant| since.elapsed() >= idle_timeout;
        let mut context =
            Context::from_waker(self.maintenance_waker.as_ref().unwrap_or(Waker::noop()));
        let mut has_ended =
            |it: &mut IdleConnection| it.connection.poll_end(&mut context).is_ready();
        let mut idle: Vec<_> =
            self.idle.extract_if(.., |it| is_old(it.since) || has_ended(it)).collect();
        let more = wanted.saturating_sub(idle.len()).min(self.idle.len());
        idle.extend(self.idle.drain(..more));
        let mut still_wanted = wanted.saturating_sub(idle.len());
        let http2 = self.http2.extract_if(.., |it| {
            let Some(since) = it.idle_since() else { return it.is_closed() };
            let is_removed = it.is_closed() || is_old(since) || still_wanted > 0;
            still_wanted = still_wanted.saturating_sub(usize::from(is_removed));
            is_removed
        });
        let http2 = http2.collect();
        (idle, http2)
    }
}
