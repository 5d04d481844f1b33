//! The level of the cache that several routers share, in Redis: entries of entities and root fields, and the log in
//! which routers tell each other what is stale.
//!
//! `cache::SharedView` decides which entries are valid; this module moves bytes. It does not know what an entry
//! contains.
//!
//! - `entries`: reads entries into the store of the process, and writes new ones in the background from `entry_queue`;
//!   `fetch_locks`: the right of one router to fetch an entry.
//! - `outbox`: the invalidations of this router on their way into the log; `log_appender` appends them.
//! - `log_follower`: follows the log, applies its messages, and reports the position of this router.
//! - `routers`: the positions of all routers, for invalidations that wait until each of them has applied them.
//! - `scripts`: keys, scripts and the forms of replies.
//!
//! Whatever Redis does, a request gets a miss at worst, within the time limit of the store.

mod confirmation;
mod entries;
mod entry_queue;
mod fetch_locks;
mod log_appender;
mod log_follower;
mod outbox;
mod redis_cache;
mod routers;
mod scripts;
mod tasks;

pub use confirmation::Confirmation;
pub use redis_cache::RedisCache;
pub(crate) use redis_cache::SharedCacheSettings;
pub use tasks::SharedCacheTasks;
