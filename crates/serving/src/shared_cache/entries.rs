//! Entries of the shared store: read into the store of the process, and written in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cache::{
    FetchStart, SHARED_ENTRY_BYTES_MAX, SharedEntry, SharedKey, SharedMiss, StoreOutcome, Timestamp,
};
use execute::{Filled, WantedEntry};
use redis_store::{Command, Reply, StoreError};
use tokio::sync::mpsc;

use super::fetch_locks::LockedKeys;
use super::scripts::millis;
use super::{RedisCache, count};

/// The maximum number of writes that wait. Further ones are dropped: another response will be written.
const WRITES_MAX: usize = 4_096;

/// The maximum size of all entries that wait to be written.
const WRITE_BYTES_MAX: usize = 16 << 20;

/// The maximum number of writes that are sent together.
const BATCH_MAX: usize = 64;

/// The size of entries at which no more are added to those that are sent together: they take 2 ms at a gigabit per
/// second, which the commands behind them wait.
const BATCH_BYTES: usize = 256 << 10;

/// The writes on their way to the store.
#[derive(Debug)]
pub(super) struct EntryWriter {
    queue: mpsc::Sender<EntryWrite>,
    bytes: AtomicUsize,
    /// Taken by the task that writes.
    waiting: Mutex<Option<mpsc::Receiver<EntryWrite>>>,
}

/// One write.
#[derive(Debug)]
pub(super) enum EntryWrite {
    Entry {
        key: SharedKey,
        bytes: Vec<u8>,
        ttl: Duration,
    },
    /// Gives back the right to fetch an entry. It goes through the same queue, so that the entry comes first.
    Unlock(Command),
}

impl Default for EntryWriter {
    fn default() -> Self {
        let (queue, waiting) = mpsc::channel(WRITES_MAX);
        Self { queue, bytes: AtomicUsize::new(0), waiting: Mutex::new(Some(waiting)) }
    }
}

impl EntryWriter {
    /// Returns the queue, for the guards of locks.
    pub(super) fn queue(&self) -> &mpsc::Sender<EntryWrite> {
        &self.queue
    }

    fn push(&self, key: SharedKey, bytes: Vec<u8>, ttl: Duration) -> bool {
        let size = bytes.len();
        if self.bytes.fetch_add(size, Relaxed) + size > WRITE_BYTES_MAX
            || self.queue.try_send(EntryWrite::Entry { key, bytes, ttl }).is_err()
        {
            self.bytes.fetch_sub(size, Relaxed);
            return false;
        }
        true
    }
}

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
        if !bytes.is_some_and(|bytes| self.writer.push(key, bytes, ttl)) {
            count(&self.stats.dropped);
        }
    }

    /// Returns a guard without keys, which gives back the keys that are added to it.
    pub(super) fn begin_locks(&self) -> LockedKeys {
        LockedKeys::new(self.writer.queue().clone())
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

/// Returns the command that reads an entry. A key without a value is an empty range, and one of another type an error.
/// The bound limits what is read if another program has written the key.
pub(super) fn read_command(key: &SharedKey) -> Command {
    Command::new("GETRANGE")
        .key(key_text("entry", key))
        .number(0)
        .number(SHARED_ENTRY_BYTES_MAX as u64)
}

/// Returns the name of a key.
pub(super) fn key_text(kind: &str, key: &SharedKey) -> String {
    let mut text = String::with_capacity(80);
    text.push_str("cache:");
    text.push_str(kind);
    text.push(':');
    for byte in key.0 {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    text
}

/// Writes entries until the level is dropped.
pub(super) async fn write_entries(cache: Arc<RedisCache>) {
    let waiting = cache.writer.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
    // It is started once.
    let Some(mut waiting) = waiting else { return };
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
        cache.writer.bytes.fetch_sub(bytes, Relaxed);
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

    #[test]
    fn a_key_is_readable() {
        let mut key = SharedKey([0; 32]);
        key.0[0] = 0xaf;
        assert_eq!(key_text("entry", &key), format!("cache:entry:af{}", "0".repeat(62)));
    }

    #[test]
    fn entries_that_wait_are_bounded() {
        let writer = EntryWriter::default();
        let push = |size| writer.push(SharedKey([0; 32]), vec![0; size], Duration::from_secs(1));
        assert!(push(WRITE_BYTES_MAX - 1));
        assert!(!push(2));
        assert!(push(1));
        let writer = EntryWriter::default();
        let push = || writer.push(SharedKey([0; 32]), Vec::new(), Duration::from_secs(1));
        assert_eq!((0..=WRITES_MAX).filter(|_| push()).count(), WRITES_MAX);
    }
}
