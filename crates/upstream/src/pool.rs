//! Idle connections of one core, by origin. Connections never move between cores.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::target::Origin;

/// Idle connections that one core keeps to one origin. With 16 cores that is 1,024 to a server;
/// what a core needs at once above that is opened anew.
const IDLE_PER_ORIGIN_MAX: usize = 64;

/// How often idle connections are looked through. An idle one lives at most this much longer
/// than it may.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Pool {
    idle: HashMap<Origin, Vec<Idle>>,
    sweeping: bool,
}

struct Idle {
    connection: Connection,
    until: Instant,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// Takes the connection to `origin` that was used last, if there is one that is still open.
pub(crate) async fn take(origin: &Origin) -> Option<Connection> {
    loop {
        let idle = POOL.with_borrow_mut(|pool| pool.idle.get_mut(origin)?.pop())?;
        let mut connection = idle.connection;
        if Instant::now() < idle.until && connection.is_usable().await {
            return Some(connection);
        }
    }
}

/// Gives a connection back whose answer has been read to its end.
pub(crate) fn give_back(origin: &Origin, connection: Connection, idle_timeout: Duration) {
    if connection.is_closed() {
        return;
    }
    let idle = Idle { connection, until: Instant::now() + idle_timeout };
    // What does not fit is dropped after the borrow has ended: dropping wakes tasks.
    let surplus = POOL.with_borrow_mut(|pool| {
        let list = match pool.idle.get_mut(origin) {
            Some(list) => list,
            None => pool.idle.entry(origin.clone()).or_default(),
        };
        let oldest = (list.len() >= IDLE_PER_ORIGIN_MAX).then(|| list.remove(0));
        list.push(idle);
        oldest
    });
    drop(surplus);
    let must_start = POOL.with_borrow_mut(|pool| !std::mem::replace(&mut pool.sweeping, true));
    if must_start {
        tokio::task::spawn_local(sweep(Sweeping));
    }
}

/// Set while a sweeper runs on this core; reset when it ends, also with its runtime.
struct Sweeping;

impl Drop for Sweeping {
    fn drop(&mut self) {
        // While the thread ends the pool may be gone already.
        let _ = POOL.try_with(|pool| {
            if let Ok(mut pool) = pool.try_borrow_mut() {
                pool.sweeping = false;
            }
        });
    }
}

/// Closes what has been idle for too long, until nothing idle is left.
async fn sweep(_sweeping: Sweeping) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let now = Instant::now();
        let (expired, is_empty) = POOL.with_borrow_mut(|pool| {
            let mut expired = Vec::new();
            for list in pool.idle.values_mut() {
                expired
                    .extend(list.extract_if(.., |it| it.until <= now || it.connection.is_closed()));
            }
            pool.idle.retain(|_, list| !list.is_empty());
            (expired, pool.idle.is_empty())
        });
        drop(expired);
        if is_empty {
            return;
        }
    }
}
