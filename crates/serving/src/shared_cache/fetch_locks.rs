//! The right of one router to fetch an entry: a key in Redis that expires. Routers that find it taken wait a little for
//! the entry, and then fetch by themselves, so that a router that dies or hangs delays others by that time at most.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use cache::SharedKey;
use events::{Backoff, Retry};
use execute::{FetchLocks, Filled, WantedEntry};
use redis_store::{Command, Reply, Script, StoreError};
use tokio::sync::mpsc;

use super::entries::ReadOutcome;
use super::entry_queue::EntryWrite;
use super::redis_cache::{RedisCache, count};
use super::scripts::{key_text, millis, read_command};

/// The time after which the right ends if it is not given back.
const LOCK_TTL: Duration = Duration::from_secs(2);

/// The pauses between looks for an entry that another router fetches. The first one is about two round trips.
const LOOKS: Retry = Retry { initial: Duration::from_millis(2), max: Duration::from_millis(20) };

/// Deletes a key that still has the value of its owner.
static UNLOCK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 0",
    )
});

/// The keys that one request has locked. Dropping it gives them back.
#[derive(Debug)]
struct LockedKeys {
    keys: Vec<SharedKey>,
    /// The random value of the keys.
    owner: String,
    writes: mpsc::Sender<EntryWrite>,
}

impl LockedKeys {
    fn new(writes: mpsc::Sender<EntryWrite>) -> Self {
        Self { keys: Vec::new(), owner: format!("{:016x}", fastrand::u64(..)), writes }
    }

    /// Returns the command that locks a key, if no other router has.
    fn lock_command(&self, key: &SharedKey) -> Command {
        let command = Command::new("SET").key(key_text("lock", key)).value(self.owner.as_str());
        command.value("NX").value("PX").number(millis(LOCK_TTL))
    }
}

impl Drop for LockedKeys {
    fn drop(&mut self) {
        for key in &self.keys {
            let command = Command::script(&UNLOCK, [key_text("lock", key)]);
            // A key that is not given back expires.
            let _ = self.writes.try_send(EntryWrite::Unlock(command.value(self.owner.as_str())));
        }
    }
}

impl RedisCache {
    /// Locks entries that this router will fetch. If all of them are locked by others, waits for them, because then
    /// nothing has to be sent.
    pub(super) async fn lock_or_wait(&self, mut wanted: Vec<WantedEntry>) -> Filled {
        let deadline = Instant::now() + self.lock_wait;
        let mut backoff = Backoff::new(LOOKS);
        let mut locks = LockedKeys::new(self.entry_queue.sender().clone());
        let mut has_waited = false;
        loop {
            let start = self.process.begin_fetch((self.clock)());
            // An entry is written before its lock is given back. So one that is missing after the lock was taken is
            // not on its way.
            let commands =
                wanted.iter().flat_map(|it| [locks.lock_command(&it.key), read_command(&it.key)]);
            let replies = self.store.run(commands.collect()).await;
            let mut replies = replies.into_iter();
            let (mut is_away, mut is_locked) = (false, false);
            let known = std::mem::take(&mut wanted);
            for entry in known {
                let mut next = || replies.next().unwrap_or(Err(StoreError::UnexpectedReply));
                let (locked, read) = (next(), next());
                let is_own = matches!(locked, Ok(Reply::Bytes(_)));
                is_away |=
                    matches!(&locked, Err(error) if !matches!(error, StoreError::Refused(_)));
                if is_own {
                    locks.keys.push(entry.key);
                }
                // Other results were counted by the first look.
                if self.adopt(&entry, read, start) == ReadOutcome::Found {
                    self.count_read(ReadOutcome::Found);
                } else {
                    is_locked |= is_own || locked.is_err();
                    wanted.push(entry);
                }
            }
            let is_complete = wanted.is_empty();
            let pause = backoff.next_delay();
            let is_late = Instant::now() + pause > deadline;
            if is_complete || is_away || is_locked || is_late {
                if is_late && !(is_complete || is_away || is_locked) {
                    count(&self.stats.lock_timeouts);
                }
                return Filled { is_complete, locks: FetchLocks::new(locks) };
            }
            if !has_waited {
                count(&self.stats.lock_waits);
                has_waited = true;
            }
            tokio::time::sleep(pause).await;
        }
    }
}
