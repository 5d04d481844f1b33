//! Redis Streams: topics that the broker stores. A partition is a key, numbered in the order of the names; an offset is
//! the id of an entry. A reader continues after an id, so a lost connection loses nothing. A slow subscription is
//! waited for: entries that it has not read stay at the broker.
//!
//! Publishers trim streams. If entries were trimmed before they were read, the stream receives a gap, or, if it was to
//! begin after a position, is refused as [`SourceError::Gone`]; the rule is in [`stream_info`]. A key that does not
//! exist is an empty stream, and a key that is deleted becomes one: subscriptions wait for its entries.

mod commands;
mod entry;
mod entry_id;
mod reader;
mod stream_info;
mod stream_table;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::try_join_all;
use redis_connection::{Cluster, ServerSource, slot_of};
use tokio::runtime;
use tokio::sync::{mpsc, oneshot, watch};

use super::dialer::DialerFactory;
use super::merged_stream::merge_streams;
use crate::connection_state::{COMMANDS_MAX, ConnectionState, PROVIDER_CLOSED, wait_connected};
use crate::{EventStream, SourceError, Start, StreamRequest};
pub(super) use entry::add_command;
use reader::{OpenStreamCommand, RedisStreamReader, StreamOpenError};

/// The maximum number of slots that are read in a cluster. One read waits only for keys of one slot, so each slot needs
/// two connections. Keys share a slot if they have the same tag in braces: `{orders}.7`.
const SLOTS_MAX: usize = 64;

/// A handle to the reader of one server, or of one slot of a cluster.
#[derive(Clone, Debug)]
struct ReaderHandle {
    state: watch::Receiver<ConnectionState<()>>,
    commands: mpsc::Sender<OpenStreamCommand>,
    /// Held by each stream of the reader, and by each command that opens one.
    in_use: Arc<()>,
}

/// The Redis Streams of a provider. No connection is made before the first stream is opened.
pub(super) struct Streams {
    dialers: DialerFactory,
    cluster: Option<Arc<Cluster>>,
    queue_events: usize,
    /// Runs the readers, independently of the task that opens the first stream.
    runtime: runtime::Handle,
    /// The readers by slot. Outside of a cluster there is one reader for all keys.
    readers: Mutex<HashMap<u16, ReaderHandle>>,
}

impl Streams {
    /// Makes the state without connecting. Must be called inside a Tokio runtime.
    pub(super) fn new(
        dialers: DialerFactory,
        cluster: Option<Arc<Cluster>>,
        queue_events: usize,
    ) -> Self {
        let runtime = runtime::Handle::current();
        Self { dialers, cluster, queue_events, runtime, readers: Mutex::default() }
    }

    /// Opens a stream. In a cluster it is merged from one stream for each slot.
    pub(super) async fn open(
        &self,
        provider: &str,
        wanted: StreamRequest,
    ) -> Result<EventStream, SourceError> {
        // Partitions are numbered in the order of keys, so that every request for the same keys gets the same numbers.
        let keys: BTreeSet<Box<str>> = wanted.topics.into_iter().collect();
        let mut slots: BTreeMap<u16, Vec<(u32, Arc<str>)>> = BTreeMap::new();
        for (number, key) in (0..).zip(keys) {
            let slot = if self.cluster.is_some() { slot_of(&key) } else { 0 };
            slots.entry(slot).or_default().push((number, key.into()));
        }
        let is_one = slots.len() == 1;
        let parts = slots
            .into_iter()
            .map(|(slot, keys)| self.open_part(provider, slot, keys, wanted.start.clone()));
        let mut parts = try_join_all(parts).await?;
        if is_one && let Some(part) = parts.pop() {
            return Ok(part);
        }
        Ok(merge_streams(parts, wanted.start == Start::Last, &self.runtime))
    }

    /// Opens a stream over keys of one slot.
    async fn open_part(
        &self,
        provider: &str,
        slot: u16,
        keys: Vec<(u32, Arc<str>)>,
        start: Start,
    ) -> Result<EventStream, SourceError> {
        let unavailable =
            |reason: String| SourceError::Unavailable { provider: provider.into(), reason };
        let reader = self.reader_of(slot).ok_or_else(|| SourceError::Refused {
            provider: provider.into(),
            reason: format!(
                "streams in more than {SLOTS_MAX} slots of the cluster are read; \
                 keys with the same tag in braces share one: {{orders}}.7"
            ),
        })?;
        wait_connected(&reader.state).await.map_err(unavailable)?;
        let (reply, response) = oneshot::channel();
        let closed = || unavailable(PROVIDER_CLOSED.into());
        let command = OpenStreamCommand { keys, start, reply, in_use: reader.in_use };
        reader.commands.send(command).await.map_err(|_| closed())?;
        response.await.map_err(|_| closed())?.map_err(|error| match error {
            StreamOpenError::Unavailable(reason) => unavailable(reason),
            StreamOpenError::Refused(reason) => {
                SourceError::Refused { provider: provider.into(), reason }
            }
            StreamOpenError::Gone => SourceError::Gone { provider: provider.into() },
        })
    }

    /// Returns the reader of that slot and starts it if needed. Returns `None` if there are too many.
    fn reader_of(&self, slot: u16) -> Option<ReaderHandle> {
        // No code that can panic runs while the lock is held. Even if it did, the map would be consistent.
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = readers.get(&slot) {
            return Some(reader.clone());
        }
        if readers.len() >= SLOTS_MAX {
            // A reader without streams ends when its handle is dropped.
            readers.retain(|_, reader| Arc::strong_count(&reader.in_use) > 1);
        }
        if readers.len() >= SLOTS_MAX {
            return None;
        }
        let (state_sender, state) = ConnectionState::channel();
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let dialer = match &self.cluster {
            Some(cluster) => {
                self.dialers.dialer_for("streams", ServerSource::Slot(Arc::clone(cluster), slot))
            }
            None => self.dialers.dialer("streams"),
        };
        let reader = RedisStreamReader::new(
            Arc::clone(&self.dialers.log),
            dialer,
            self.queue_events,
            Arc::clone(&self.dialers.stats),
            state_sender,
            receiver,
        );
        self.runtime.spawn(reader.run());
        let reader = ReaderHandle { state, commands, in_use: Arc::new(()) };
        readers.insert(slot, reader.clone());
        Some(reader)
    }
}
