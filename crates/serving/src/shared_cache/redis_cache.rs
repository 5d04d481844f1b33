//! The entries and the log that routers share, as the rest of the process uses them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use cache::{
    InvalidationStats, Replacement, SharedCacheStats, SharedEntry, SharedKey, SharedStart,
    SharedView, StaleTags, Tags, Timestamp,
};
use execute::{Announcement, Filled, LocalFuture, ReplacementStart, SharedCache, WantedEntry};
use redis_store::Store;
use tokio::sync::{oneshot, watch};

use super::confirmation::Confirmation;
use super::entry_queue::EntryQueue;
use super::outbox::{Outbox, OutboxMessage};
use super::routers::Routers;

/// The maximum time for which an invalidation waits until all routers have applied it.
const CONFIRMATION_TIME_MAX: Duration = Duration::from_secs(2);

/// The maximum time for which the new values of a mutation wait until they may be shared. The log brings the
/// invalidation of the mutation within milliseconds, unless Redis is away.
const REPLACEMENT_TIME_MAX: Duration = Duration::from_secs(10);

/// The entries and the log that routers share. Belongs to the process; share it by `Arc`.
pub struct RedisCache {
    pub(super) store: Arc<Store>,
    /// The store of the process, into which entries are copied.
    pub(super) process: Arc<cache::Store>,
    pub(super) clock: fn() -> Timestamp,
    /// The random name of this router.
    pub(super) router: Box<str>,
    /// The maximum time for which a request waits for another router to fetch the same; zero: not at all.
    pub(super) lock_wait: Duration,
    /// True if this router hears events of brokers that say what is stale.
    pub(super) follows_topics: bool,
    pub(super) view: Arc<SharedView>,
    /// Changes whenever a message of the log was applied.
    pub(super) applied: watch::Sender<()>,
    pub(super) entry_queue: EntryQueue,
    pub(super) outbox: Outbox,
    pub(super) routers: Routers,
    pub(super) invalidation_stats: Arc<InvalidationStats>,
    pub(super) stats: Arc<SharedCacheStats>,
}

/// The settings of the shared level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SharedCacheSettings {
    pub(crate) lock_wait: Duration,
    pub(crate) follows_topics: bool,
}

impl RedisCache {
    /// Creates the shared level in front of which `process` is. Its tasks are started by [`RedisCache::start`]; until
    /// then every lookup is a miss.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(crate) fn new(
        store: Arc<Store>,
        process: Arc<cache::Store>,
        invalidation_stats: Arc<InvalidationStats>,
        clock: fn() -> Timestamp,
        settings: SharedCacheSettings,
    ) -> Result<Self, getrandom::Error> {
        let mut name = [0; 8];
        getrandom::fill(&mut name)?;
        Ok(Self {
            store,
            process,
            clock,
            router: name.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
            lock_wait: settings.lock_wait,
            follows_topics: settings.follows_topics,
            view: Arc::default(),
            applied: watch::Sender::new(()),
            entry_queue: EntryQueue::default(),
            outbox: Outbox::default(),
            routers: Routers::default(),
            invalidation_stats,
            stats: Arc::default(),
        })
    }

    /// The namespace of the store. Routers with equal ones share the level.
    pub(crate) fn namespace(&self) -> &str {
        self.store.namespace()
    }

    /// The counters.
    pub fn stats(&self) -> &SharedCacheStats {
        &self.stats
    }

    /// Announces what events of a broker have made stale, before it is applied to the store of the process. Nothing
    /// waits for it.
    pub(crate) fn announce_event(&self, stale: StaleTags) {
        self.send(stale, true, false);
    }

    /// Announces an invalidation, before it is applied to the store of the process. The future waits until all routers
    /// have applied it, for two seconds at most.
    pub(crate) fn announce_and_confirm(
        &self,
        stale: StaleTags,
        received: Instant,
    ) -> impl Future<Output = Confirmation> {
        let appended = self.send(stale, false, true);
        async move {
            let deadline = tokio::time::Instant::from_std(received + CONFIRMATION_TIME_MAX);
            let at = match tokio::time::timeout_at(deadline, appended).await {
                Ok(Ok(at)) => at,
                Ok(Err(_)) | Err(_) => {
                    let routers = self.routers.count();
                    // Those that are known are all but this one.
                    let unconfirmed = routers.saturating_sub(1);
                    return Confirmation { routers, unconfirmed, is_pending: true };
                }
            };
            let confirmation = self.routers.wait_applied(at, deadline).await;
            self.stats.confirmation_seconds.add(received.elapsed());
            let unconfirmed = confirmation.unconfirmed as u64;
            self.stats.unconfirmed.fetch_add(unconfirmed, Relaxed);
            confirmation
        }
    }

    fn send(
        &self,
        stale: StaleTags,
        is_event: bool,
        wants_confirmation: bool,
    ) -> oneshot::Receiver<SharedStart> {
        let (message, appended) = OutboxMessage::new(stale, is_event, wants_confirmation);
        self.outbox.push(message, &self.view, &self.stats);
        appended
    }

    /// Waits until the log has an invalidation, for at most the time limit of the store. What takes longer continues
    /// without the caller.
    fn wait_appended(&self, appended: oneshot::Receiver<SharedStart>) -> Announcement {
        let limit = self.store.timeout();
        Box::pin(async move {
            let _ = tokio::time::timeout(limit, appended).await;
        })
    }
}

/// Waits until the log was applied up to the invalidation of a mutation. Returns its number if the replacement is still
/// intact then.
async fn wait_replaced(
    replacement: Replacement,
    view: Arc<SharedView>,
    appended: oneshot::Receiver<SharedStart>,
    mut applied: watch::Receiver<()>,
) -> Option<SharedStart> {
    let at = appended.await.ok()?;
    while !view.has_applied(at) {
        if !replacement.is_intact() {
            return None;
        }
        applied.changed().await.ok()?;
    }
    // The number is known to this router and the log was read up to it, so every other invalidation has been seen.
    replacement.is_intact().then_some(at)
}

impl SharedCache for RedisCache {
    fn begin_fetch(&self) -> Option<SharedStart> {
        self.view.begin_fetch()
    }

    fn fill<'a>(&'a self, wanted: Vec<WantedEntry>) -> LocalFuture<'a, Filled> {
        Box::pin(self.fill_entries(wanted))
    }

    fn store(&self, key: SharedKey, entry: SharedEntry) {
        self.write(key, &entry);
    }

    fn announce(&self, stale: StaleTags) -> Announcement {
        if stale.is_empty() {
            return Box::pin(std::future::ready(()));
        }
        self.wait_appended(self.send(stale, false, false))
    }

    fn announce_replacing(
        &self,
        stale: StaleTags,
        since: SharedStart,
        tags: &Tags,
    ) -> (Announcement, Option<ReplacementStart>) {
        let replacement = self.view.announce_replacing(&stale, since, tags);
        let (mut message, appended) = OutboxMessage::new(stale, false, false);
        let also_appended = message.add_waiting();
        self.outbox.push_announced(message, &self.view, &self.stats);
        let announcement = self.wait_appended(appended);
        let Some(replacement) = replacement else {
            count(&self.stats.dropped);
            return (announcement, None);
        };
        let (view, applied) = (Arc::clone(&self.view), self.applied.subscribe());
        let stats = Arc::clone(&self.stats);
        let start = async move {
            let replaced = wait_replaced(replacement, view, also_appended, applied);
            let start = tokio::time::timeout(REPLACEMENT_TIME_MAX, replaced).await.ok().flatten();
            if start.is_none() {
                count(&stats.dropped);
            }
            start
        };
        (announcement, Some(Box::pin(start)))
    }
}

/// Adds one to a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl std::fmt::Debug for RedisCache {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("RedisCache").field("store", &self.store.id()).finish_non_exhaustive()
    }
}
