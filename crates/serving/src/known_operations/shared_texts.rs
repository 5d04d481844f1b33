//! The texts of automatic persisted queries that all routers share, in a store. Memory comes first: a text is read from
//! the store once, when a client names it and this router does not have it, and is written there after it was prepared
//! here. Nothing waits for a write.
//!
//! Any bytes may be in the store. A text is used only if it has the hash under which it was found, and only as if the
//! client had sent it: it passes the same checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use persisted_documents::TextHash;
use redis_store::{Command, Reply, Store, StoreError};
use tokio::sync::mpsc;

/// The maximum size of a text that is shared, a hundred times that of a large operation. It bounds what is read if
/// other programs have written the key.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// The maximum number of texts that wait to be written. Further ones are not written: another router, or a later
/// request, does it.
const QUEUE_MAX: usize = 1024;

/// The maximum number of texts that are written together.
const BATCH_MAX: usize = 32;

telemetry::counters! {
    /// Counts since the start.
    pub struct SharedTextStats;
    /// The metrics of texts that routers share.
    pub const SHARED_TEXT_COUNTERS;
    {
        counter found = "starling_apq_store_found": "Texts that were found in the store of all routers";
        counter not_found = "starling_apq_store_not_found": "Hashes for which the store has no text";
        counter invalid = "starling_apq_store_invalid":
            "Values of the store that are not the text with that hash; they count as none";
        counter failed = "starling_apq_store_failures":
            "Reads and writes of texts for which the store did not respond in time";
        counter written = "starling_apq_store_written": "Texts written to the store";
        counter dropped = "starling_apq_store_dropped":
            "Texts that were not written, because they are large or too many others waited";
    }
}

/// The texts in a store.
#[derive(Debug)]
pub(super) struct SharedTexts {
    store: Arc<Store>,
    queue: mpsc::Sender<(TextHash, Bytes)>,
    stats: Arc<SharedTextStats>,
}

impl SharedTexts {
    /// Starts the task that writes texts, on the runtime of the caller. The store forgets a text after `ttl`.
    pub(super) fn start(store: &Arc<Store>, ttl: Duration) -> Self {
        let (queue, texts) = mpsc::channel(QUEUE_MAX);
        let stats = Arc::<SharedTextStats>::default();
        tokio::spawn(write_texts(Arc::clone(store), ttl, texts, Arc::clone(&stats)));
        Self { store: Arc::clone(store), queue, stats }
    }

    /// The counters.
    pub(super) fn stats(&self) -> &SharedTextStats {
        &self.stats
    }

    /// Returns the text with this hash, within the time limit of the store.
    pub(super) async fn find(&self, hash: TextHash) -> Option<Bytes> {
        // A key without a value is an empty range, and one of another type an error.
        let command = Command::new("GETRANGE").key(key(hash)).number(0);
        let command = command.number(TEXT_BYTES_MAX as u64);
        let (counter, text) = match self.store.run_one(command).await {
            Ok(Reply::Bytes(text)) if text.is_empty() => (&self.stats.not_found, None),
            Ok(Reply::Bytes(text)) if TextHash::of(&text) == hash => {
                (&self.stats.found, Some(Bytes::from(text)))
            }
            Ok(_) | Err(StoreError::Refused(_) | StoreError::UnexpectedReply) => {
                (&self.stats.invalid, None)
            }
            Err(_) => (&self.stats.failed, None),
        };
        count(counter, 1);
        text
    }

    /// Has a text written.
    pub(super) fn write(&self, hash: TextHash, text: &[u8]) {
        let is_queued = text.len() <= TEXT_BYTES_MAX
            && self.queue.try_send((hash, Bytes::copy_from_slice(text))).is_ok();
        if !is_queued {
            count(&self.stats.dropped, 1);
        }
    }
}

fn key(hash: TextHash) -> String {
    format!("apq:{hash}")
}

fn count(counter: &AtomicU64, number: usize) {
    counter.fetch_add(number as u64, Ordering::Relaxed);
}

/// Writes texts until the sender is dropped.
async fn write_texts(
    store: Arc<Store>,
    ttl: Duration,
    mut texts: mpsc::Receiver<(TextHash, Bytes)>,
    stats: Arc<SharedTextStats>,
) {
    let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while texts.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let commands = batch.drain(..).map(|(hash, text)| {
            Command::new("SET").key(key(hash)).value(text).value("PX").number(millis)
        });
        let replies = store.run(commands.collect()).await;
        let written = replies.iter().filter(|it| it.is_ok()).count();
        count(&stats.written, written);
        count(&stats.failed, replies.len() - written);
    }
}
