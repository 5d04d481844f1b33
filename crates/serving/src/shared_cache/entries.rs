//! Entries of the shared store: read into the store of the process, and written in the background.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use cache::{FetchStart, SharedEntry, SharedKey, SharedMiss, StoreOutcome, Timestamp};
use execute::{Filled, WantedEntry};
use redis_store::{Command, Reply, StoreError};

use super::entry_queue::EntryWrite;
use super::redis_cache::{RedisCache, count};
use super::scripts::{key_text, millis, read_command};

/// The maximum number of writes that are sent together.
const BATCH_MAX: usize = 64;

/// The size of entries at which no more are added to those that are sent together: they take 2 ms at a gigabit per
/// second, which the commands behind them wait.
const BATCH_BYTES: usize = 256 << 10;

/// The result of reading one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadOutcome {
    /// The store of the process has the entry now, and it may be served.
    Found,
    /// There is no entry.
    Absent,
    /// The value is not an entry.
    Invalid,
    /// The entry may not be served.
    Unusable(SharedMiss),
    /// The server did not respond.
    Failed,
}

impl RedisCache {
    /// Copies entries into the store of the process. See `execute::SharedCache::fill`.
    pub(super) async fn fill_entries(&self, mut wanted: Vec<WantedEntry>) -> Filled {
        if !self.view.is_current() {
            self.stats.not_current.fetch_add(wanted.len() as u64, Relaxed);
            return Filled::default();
        }
        // Before the entries are read: see `cache::SharedView`.
        let start = self.process.begin_fetch((self.clock)());
        let replies = self.store.run(wanted.iter().map(|it| read_command(&it.key)).collect()).await;
        let mut replies = replies.into_iter();
        let mut is_away = false;
        wanted.retain(|wanted| {
            let reply = replies.next().unwrap_or(Err(StoreError::UnexpectedReply));
            let outcome = self.adopt(wanted, reply, start);
            self.count_read(outcome);
            is_away |= outcome == ReadOutcome::Failed;
            outcome != ReadOutcome::Found
        });
        if wanted.is_empty() || is_away || self.lock_wait.is_zero() {
            return Filled { is_complete: wanted.is_empty(), ..Filled::default() };
        }
        self.lock_or_wait(wanted).await
    }

    /// Copies what was read of one key.
    pub(super) fn adopt(
        &self,
        wanted: &WantedEntry,
        reply: Result<Reply, StoreError>,
        start: FetchStart,
    ) -> ReadOutcome {
        let bytes = match reply {
            Ok(Reply::Bytes(bytes)) if bytes.is_empty() => return ReadOutcome::Absent,
            Ok(Reply::Bytes(bytes)) => Bytes::from(bytes),
            // A value of another type.
            Ok(_) | Err(StoreError::Refused(_) | StoreError::UnexpectedReply) => {
                return ReadOutcome::Invalid;
            }
            Err(_) => return ReadOutcome::Failed,
        };
        let Ok(entry) = SharedEntry::decode(&wanted.key, bytes) else {
            return ReadOutcome::Invalid;
        };
        if wanted.newer_than.is_some_and(|known| entry.began <= known) {
            // It is the entry that is to be replaced.
            return ReadOutcome::Absent;
        }
        if let Err(miss) = self.view.check(&entry, &wanted.address.tags) {
            return ReadOutcome::Unusable(miss);
        }
        let now = (self.clock)();
        let outcome = self.process.adopt(&wanted.address, &entry, start, now);
        let is_stored = matches!(outcome, StoreOutcome::Stored | StoreOutcome::Superseded);
        // An entry that is served only if fetching fails is a miss.
        let is_served = now.since(entry.began) < served_for(&entry);
        match is_stored && is_served {
            true => ReadOutcome::Found,
            false => ReadOutcome::Unusable(SharedMiss::Stale),
        }
    }

    /// Counts the result of reading one key.
    pub(super) fn count_read(&self, outcome: ReadOutcome) {
        let stats = &self.stats;
        match outcome {
            ReadOutcome::Found => count(&stats.hits),
            ReadOutcome::Absent => count(&stats.misses),
            ReadOutcome::Invalid => count(&stats.invalid),
            ReadOutcome::Unusable(miss) => stats.count_unusable(miss),
            ReadOutcome::Failed => count(&stats.failures),
        }
    }

    /// Has an entry written.
    pub(super) fn write(&self, key: SharedKey, entry: &SharedEntry) {
        let Some(ttl) = time_left(entry, (self.clock)()) else { return };
        let bytes = entry.encode(&key);
        if !bytes.is_some_and(|bytes| self.entry_queue.push(key, bytes, ttl)) {
            count(&self.stats.dropped);
        }
    }
}

/// The time for which an entry is served without a fetch before.
fn served_for(entry: &SharedEntry) -> Duration {
    entry.policy.fresh_for.saturating_add(entry.policy.stale_for)
}

/// The time after which nothing may use the entry any more; `None` if it is over.
fn time_left(entry: &SharedEntry, now: Timestamp) -> Option<Duration> {
    let policy = &entry.policy;
    let all = policy.fresh_for.saturating_add(policy.stale_for.max(policy.stale_if_error));
    // Redis refuses times beyond those that it can count.
    let all = all.min(Duration::from_millis(u32::MAX.into()));
    all.checked_sub(now.since(entry.began)).filter(|left| millis(*left) > 0)
}

/// Writes entries until the level is dropped.
pub(super) async fn write_entries(cache: Arc<RedisCache>) {
    // It is started once.
    let Some(mut waiting) = cache.entry_queue.take_waiting() else { return };
    while let Some(first) = waiting.recv().await {
        let mut commands = Vec::with_capacity(BATCH_MAX);
        let (mut entries, mut bytes) = (Vec::with_capacity(BATCH_MAX), 0);
        let mut next = Some(first);
        while let Some(write) = next {
            entries.push(matches!(write, EntryWrite::Entry { .. }));
            commands.push(match write {
                EntryWrite::Entry { key, bytes: entry, ttl } => {
                    bytes += entry.len();
                    let command = Command::new("SET").key(key_text("entry", &key)).value(entry);
                    command.value("PX").number(millis(ttl))
                }
                EntryWrite::Unlock(command) => command,
            });
            let has_room = commands.len() < BATCH_MAX && bytes < BATCH_BYTES;
            next = if has_room { waiting.try_recv().ok() } else { None };
        }
        let replies = cache.store.run(commands).await;
        cache.entry_queue.note_written(bytes);
        for (reply, is_entry) in replies.iter().zip(entries) {
            match reply {
                Ok(_) if is_entry => count(&cache.stats.stores),
                Ok(_) => {}
                Err(_) => count(&cache.stats.failures),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cache::{CachePolicy, LogEpoch, ResponseContent, Sequence, SharedStart};

    use super::*;

    fn entry(began: u64, fresh: u64, stale: u64, stale_if_error: u64) -> SharedEntry {
        let seconds = Duration::from_secs;
        SharedEntry {
            start: SharedStart { epoch: LogEpoch([0; 16]), sequence: Sequence(0) },
            began: Timestamp(began * 1000),
            fetch_took: Duration::ZERO,
            policy: CachePolicy {
                fresh_for: seconds(fresh),
                stale_for: seconds(stale),
                stale_if_error: seconds(stale_if_error),
                ..CachePolicy::default()
            },
            content: ResponseContent::Data,
            body: Bytes::new(),
        }
    }

    #[test]
    fn a_key_expires_when_nothing_may_use_the_entry_any_more() {
        let left = |entry: &SharedEntry| time_left(entry, Timestamp(10_000)).map(|it| it.as_secs());
        assert_eq!(left(&entry(4, 10, 0, 0)), Some(4));
        assert_eq!(left(&entry(4, 10, 5, 2)), Some(9));
        assert_eq!(left(&entry(4, 10, 5, 20)), Some(24));
        assert_eq!(left(&entry(4, 6, 0, 0)), None);
        assert_eq!(left(&entry(4, u64::MAX, 0, 0)), Some(u64::from(u32::MAX) / 1000 - 6));
        assert_eq!(served_for(&entry(4, 10, 5, 20)), Duration::from_secs(15));
    }
}
