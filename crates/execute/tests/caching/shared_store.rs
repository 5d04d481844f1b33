//! A store that several routers share, in memory.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use cache::{
    LogEpoch, Sequence, SharedEntry, SharedKey, SharedStart, SharedView, StaleTags, Store, Tags,
    Timestamp,
};
use execute::{Announcement, Filled, LocalFuture, ReplacementStart, SharedCache, WantedEntry};

use crate::values_subgraph::NOW;

/// The store that routers share, and the log of their invalidations.
#[derive(Default)]
pub(crate) struct SharedMemory {
    entries: Mutex<HashMap<SharedKey, Bytes>>,
    log: Mutex<Vec<StaleTags>>,
}

/// The view that one router has of the shared store.
pub(crate) struct SharingRouter {
    memory: Arc<SharedMemory>,
    view: Arc<SharedView>,
    store: Arc<Store>,
    /// The numbers of its own messages in the log.
    own: Mutex<HashSet<u64>>,
}

const EPOCH: LogEpoch = LogEpoch([1; 16]);

impl SharingRouter {
    pub(crate) fn new(memory: &Arc<SharedMemory>, store: &Arc<Store>) -> Self {
        let view = Arc::<SharedView>::default();
        view.begin_epoch(EPOCH, Sequence(0));
        view.set_current(true);
        let (memory, store) = (Arc::clone(memory), Arc::clone(store));
        Self { memory, view, store, own: Mutex::default() }
    }

    /// Applies what the log has.
    pub(crate) fn follow(&self) {
        let applied = self.view.position().unwrap().sequence.0;
        for (number, stale) in (1..).zip(&*self.memory.log.lock().unwrap()).skip(applied as usize) {
            let at = SharedStart { epoch: EPOCH, sequence: Sequence(number) };
            if self.own.lock().unwrap().contains(&number) {
                self.view.record(at, stale);
            } else {
                self.view.record_foreign(at, stale);
                self.store.invalidate_tags(stale);
            }
            self.view.set_applied(at);
        }
    }

    /// Appends an invalidation that was announced to the log.
    fn append(&self, stale: &StaleTags) -> SharedStart {
        let mut log = self.memory.log.lock().unwrap();
        log.push(stale.clone());
        let at = SharedStart { epoch: EPOCH, sequence: Sequence(log.len() as u64) };
        self.own.lock().unwrap().insert(at.sequence.0);
        self.view.record(at, stale);
        self.view.end_announcement(stale);
        at
    }
}

impl SharedCache for SharingRouter {
    fn begin_fetch(&self) -> Option<SharedStart> {
        self.view.begin_fetch()
    }

    fn fill<'a>(&'a self, wanted: Vec<WantedEntry>) -> LocalFuture<'a, Filled> {
        Box::pin(async move {
            let now = Timestamp(NOW.get());
            let start = self.store.begin_fetch(now);
            for WantedEntry { key, address, .. } in wanted {
                let bytes = self.memory.entries.lock().unwrap().get(&key).cloned();
                tokio::task::yield_now().await;
                let entry = bytes.map(|bytes| SharedEntry::decode(&key, bytes).unwrap());
                if let Some(entry) = entry.filter(|it| self.view.check(it, &address.tags).is_ok()) {
                    self.store.adopt(&address, &entry, start, now);
                }
            }
            Filled::default()
        })
    }

    fn store(&self, key: SharedKey, entry: SharedEntry) {
        let bytes = entry.encode(&key).unwrap();
        self.memory.entries.lock().unwrap().insert(key, bytes.into());
    }

    fn announce(&self, stale: StaleTags) -> Announcement {
        self.view.announce(&stale);
        self.append(&stale);
        Box::pin(std::future::ready(()))
    }

    fn announce_replacing(
        &self,
        stale: StaleTags,
        since: SharedStart,
        tags: &Tags,
    ) -> (Announcement, Option<ReplacementStart>) {
        let replacement = self.view.announce_replacing(&stale, since, tags);
        let at = self.append(&stale);
        let view = Arc::clone(&self.view);
        let start = replacement.map(|replacement| -> ReplacementStart {
            Box::pin(async move {
                while !view.has_applied(at) {
                    tokio::task::yield_now().await;
                }
                replacement.is_intact().then_some(at)
            })
        });
        (Box::pin(std::future::ready(())), start)
    }
}
