//! The connections of one core that wait for requests. Connections never move between cores.
//!
//! While there are any, a task of this core keeps them: it closes those that have been idle for too
//! long, and those that another core needs more.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use execute::FetchError;

use crate::connection::{Exclusive, Multiplexed, OneStream};
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
}

struct Idle {
    connection: Exclusive,
    since: Instant,
    _gauge: OwnedGauge,
}

thread_local! {
    static POOLS: RefCell<HashMap<PoolId, Pool>> = RefCell::default();
}

/// Takes the HTTP/1.1 connection that was used last, if there is one that is still open.
pub(crate) async fn take_exclusive(
    standing: &Standing,
    idle_timeout: Duration,
) -> Option<Exclusive> {
    loop {
        let idle = POOLS.with_borrow_mut(|pools| pools.get_mut(&standing.pool)?.exclusive.pop())?;
        let mut connection = idle.connection;
        if idle.since.elapsed() < idle_timeout && connection.is_usable().await {
            return Some(connection);
        }
    }
}

/// Gives a connection back whose answer has been read to its end.
pub(crate) fn give_back(standing: &Arc<Standing>, connection: Exclusive, idle_timeout: Duration) {
    // Someone on another core waits for it to close.
    if connection.is_closed() || standing.limits.wanted() > 0 {
        return;
    }
    let idle = Idle {
        connection,
        since: Instant::now(),
        _gauge: OwnedGauge::up(&standing.stats, |it| &it.connections_idle),
    };
    with_pool(standing, idle_timeout, |pool| pool.exclusive.push(idle));
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
            () = tokio::time::sleep(SWEEP_INTERVAL) => {}
        }
    }
}

impl Pool {
    /// Takes out what has expired or closed, and up to `wanted` more of what is idle, oldest first.
    fn drop_idle(
        &mut self,
        idle_timeout: Duration,
        wanted: usize,
    ) -> (Vec<Idle>, Vec<Rc<Multiplexed>>) {
        let is_old = |since: Instant| since.elapsed() >= idle_timeout;
        let mut exclusive: Vec<_> = self
            .exclusive
            .extract_if(.., |it| is_old(it.since) || it.connection.is_closed())
            .collect();
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
