//! The connections of one core that wait for requests. Connections never move between cores.
//!
//! While there are any, a task of this core keeps them: it closes those that have been idle for too
//! long, and those that another core needs more.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use execute::FetchError;

use crate::connection::{Multiplexed, OneStream};
use crate::http1::Connection;
use crate::standing::{PoolId, Standing};
use crate::stats::OwnedGauge;

/// How often idle connections are looked through. An idle one lives at most this much longer
/// than it may.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Pool {
    exclusive: Vec<Idle>,
    multiplexed: Vec<Rc<Multiplexed>>,
    opening: Rc<Opening>,
    is_kept: bool,
    /// Wakes the task that keeps the pool.
    keeper: Option<Waker>,
}

struct Idle {
    connection: Connection,
    since: Instant,
    _gauge: OwnedGauge,
}

thread_local! {
    static POOLS: RefCell<HashMap<PoolId, Pool>> = RefCell::default();
}

/// Takes the HTTP/1.1 connection that was used last, if there is one that is still open.
pub(crate) fn take_exclusive(standing: &Standing, idle_timeout: Duration) -> Option<Connection> {
    if !standing.reuse.may_reuse() {
        let idle = POOLS.with_borrow_mut(|pools| {
            Some(std::mem::take(&mut pools.get_mut(&standing.pool)?.exclusive))
        });
        drop(idle);
        return None;
    }
    loop {
        let idle = POOLS.with_borrow_mut(|pools| pools.get_mut(&standing.pool)?.exclusive.pop())?;
        let mut connection = idle.connection;
        // Whoever sends a request waits for what comes of it anyway.
        let ended = connection.poll_end(&mut Context::from_waker(Waker::noop()));
        if idle.since.elapsed() < idle_timeout && ended.is_pending() {
            return Some(connection);
        }
    }
}

/// Gives a connection back whose answer has been read to its end.
pub(crate) fn give_back(standing: &Arc<Standing>, connection: Connection, idle_timeout: Duration) {
    // Someone on another core waits for it to close.
    if !connection.is_reusable() || standing.limits.wanted() > 0 || !standing.reuse.may_reuse() {
        return;
    }
    match standing.reuse.probation() {
        Some(time) => watch(Arc::clone(standing), connection, idle_timeout, time),
        None => keep_idle(standing, connection, idle_timeout),
    }
}

/// Gives a connection back once nothing has come on it for a while. Until then others open their own.
fn watch(
    standing: Arc<Standing>,
    mut connection: Connection,
    idle_timeout: Duration,
    time: Duration,
) {
    tokio::task::spawn_local(async move {
        let ended = poll_fn(|context| connection.poll_end(context));
        let has_stood = tokio::time::timeout(time, ended).await.is_err();
        if !has_stood {
            return;
        }
        standing.reuse.note_proven();
        if standing.reuse.may_reuse() && standing.limits.wanted() == 0 {
            keep_idle(&standing, connection, idle_timeout);
        }
    });
}

fn keep_idle(standing: &Arc<Standing>, connection: Connection, idle_timeout: Duration) {
    let idle = Idle {
        connection,
        since: Instant::now(),
        _gauge: OwnedGauge::up(&standing.stats, |it| &it.connections_idle),
    };
    let mut ended = None;
    with_pool(standing, idle_timeout, |pool| ended = pool.idle(idle));
    drop(ended);
}

/// A place on an HTTP/2 connection, if one has room.
pub(crate) fn share(standing: &Standing) -> Option<OneStream> {
    // What is dropped is dropped after the borrow has ended: dropping wakes tasks.
    let mut closed = Vec::new();
    POOLS.with_borrow_mut(|pools| {
        let pool = pools.get_mut(&standing.pool)?;
        closed.extend(pool.multiplexed.extract_if(.., |it| it.is_closed()));
        let connection = pool.multiplexed.iter().find(|it| it.has_room())?;
        Some(OneStream::new(Rc::clone(connection)))
    })
}

/// Lets others share a new HTTP/2 connection.
pub(crate) fn offer(standing: &Arc<Standing>, connection: Rc<Multiplexed>, idle_timeout: Duration) {
    with_pool(standing, idle_timeout, |pool| pool.multiplexed.push(connection));
}

/// The gate of those who would open an HTTP/2 connection: one does, the others share it.
pub(crate) fn opening(standing: &Standing) -> Rc<Opening> {
    POOLS.with_borrow_mut(|pools| Rc::clone(&pools.entry(standing.pool).or_default().opening))
}

/// See [`opening`].
#[derive(Default)]
pub(crate) struct Opening {
    gate: tokio::sync::Mutex<()>,
    attempts: Cell<u64>,
    failure: RefCell<Option<FetchError>>,
}

impl Opening {
    /// Runs `open` alone, unless `shared` finds what another has opened meanwhile. Who waited for an
    /// attempt that failed fails with it: a server that hangs makes nobody wait twice.
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

fn with_pool(standing: &Arc<Standing>, idle_timeout: Duration, change: impl FnOnce(&mut Pool)) {
    let must_start = POOLS.with_borrow_mut(|pools| {
        let pool = pools.entry(standing.pool).or_default();
        change(pool);
        !std::mem::replace(&mut pool.is_kept, true)
    });
    if must_start {
        let kept = Kept(standing.pool);
        tokio::task::spawn_local(keep(Arc::clone(standing), idle_timeout, kept));
    }
}

/// Ends when a server has closed a connection that waits here.
fn closing(pool: PoolId) -> impl Future<Output = ()> {
    poll_fn(move |context| {
        POOLS.with_borrow_mut(|pools| {
            let Some(pool) = pools.get_mut(&pool) else { return Poll::Ready(()) };
            pool.keeper = Some(context.waker().clone());
            let mut idle = pool.exclusive.iter_mut();
            match idle.any(|it| it.connection.poll_end(context).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
    })
}

/// Held by the task that keeps a pool. When it ends, also with its runtime, the pool goes with it.
struct Kept(PoolId);

impl Drop for Kept {
    fn drop(&mut self) {
        // While the thread ends the pools may be gone already.
        let removed =
            POOLS.try_with(|pools| pools.try_borrow_mut().map(|mut it| it.remove(&self.0)));
        drop(removed);
    }
}

async fn keep(standing: Arc<Standing>, idle_timeout: Duration, kept: Kept) {
    loop {
        // Before the look at what is wanted, so that nothing falls between the two.
        let wanting = standing.limits.wanting();
        let wanted = standing.limits.wanted();
        let (dropped, is_empty) = POOLS.with_borrow_mut(|pools| {
            let Some(pool) = pools.get_mut(&kept.0) else { return (None, true) };
            let dropped = pool.drop_idle(idle_timeout, wanted);
            (Some(dropped), pool.exclusive.is_empty() && pool.multiplexed.is_empty())
        });
        drop(dropped);
        if is_empty {
            return;
        }
        tokio::select! {
            () = wanting => {}
            () = closing(kept.0) => {}
            () = tokio::time::sleep(SWEEP_INTERVAL) => {}
        }
    }
}

impl Pool {
    /// Lets a connection wait. It comes back if it has ended already; dropping it wakes tasks, so that is the caller's.
    fn idle(&mut self, mut idle: Idle) -> Option<Idle> {
        if let Some(keeper) = &self.keeper
            && idle.connection.poll_end(&mut Context::from_waker(keeper)).is_ready()
        {
            return Some(idle);
        }
        self.exclusive.push(idle);
        None
    }

    /// Takes out what has expired or closed, and up to `wanted` more of what is idle, oldest first.
    fn drop_idle(
        &mut self,
        idle_timeout: Duration,
        wanted: usize,
    ) -> (Vec<Idle>, Vec<Rc<Multiplexed>>) {
        let is_old = |since: Instant| since.elapsed() >= idle_timeout;
        let mut context = Context::from_waker(self.keeper.as_ref().unwrap_or(Waker::noop()));
        let mut has_ended = |it: &mut Idle| it.connection.poll_end(&mut context).is_ready();
        let mut exclusive: Vec<_> =
            self.exclusive.extract_if(.., |it| is_old(it.since) || has_ended(it)).collect();
        let more = wanted.saturating_sub(exclusive.len()).min(self.exclusive.len());
        exclusive.extend(self.exclusive.drain(..more));
        let mut still_wanted = wanted.saturating_sub(exclusive.len());
        let multiplexed = self.multiplexed.extract_if(.., |it| {
            let Some(since) = it.idle_since() else { return it.is_closed() };
            let goes = it.is_closed() || is_old(since) || still_wanted > 0;
            still_wanted = still_wanted.saturating_sub(usize::from(goes));
            goes
        });
        let multiplexed = multiplexed.collect();
        (exclusive, multiplexed)
    }
}
