//! The tasks of the shared level: following the log, appending to it, and writing entries.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::redis_cache::RedisCache;
use super::{entries, log_appender, log_follower, scripts};

/// The tasks of the shared level, which end when this is dropped.
#[derive(Debug)]
pub struct SharedCacheTasks {
    cache: Arc<RedisCache>,
    tasks: JoinSet<()>,
}

impl SharedCacheTasks {
    /// Ends the tasks, and tells the other routers that this one is gone, so that no invalidation waits for it.
    pub async fn end(mut self) {
        self.tasks.shutdown().await;
        let RedisCache { store, router, .. } = &*self.cache;
        // Without it, the others wait until the router has not reported for a while.
        let _ = store.run_one(scripts::leave(router)).await;
    }
}

impl RedisCache {
    /// Starts the tasks that follow the log, append to it and write entries, on the runtime of the caller.
    pub fn start(self: &Arc<Self>) -> SharedCacheTasks {
        let mut tasks = JoinSet::new();
        tasks.spawn(log_follower::follow(Arc::clone(self)));
        tasks.spawn(log_appender::append_messages(Arc::clone(self)));
        tasks.spawn(entries::write_entries(Arc::clone(self)));
        SharedCacheTasks { cache: Arc::clone(self), tasks }
    }
}
