//! The table of streams: which stream reads which keys, and up to which entry. It does no I/O.
//!
//! A cursor is the position of one stream in one key. A live cursor gets the entries of the shared blocking read. A
//! cursor that begins in the past, or whose stream was full, catches up: its key is read for this stream alone, in
//! parts that fit into the queue. No entry is ever dropped here, because the broker keeps those that do not fit.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::entry::StreamEntry;
use super::entry_id::EntryId;
use super::stream_info::StreamInfo;
use crate::event_queue::{EventSender, SendOutcome};
use crate::{EventStream, ProviderStats, StreamEnd};

/// The maximum number of entries of one key in one response: enough to read faster than any publisher writes. The bytes
/// are limited separately.
pub(super) const ENTRIES_PER_READ: usize = 512;

/// The capacity for an event and a gap before it.
const CAPACITY_NEEDED: usize = 2;

/// The minimum size of a queue, so that the announcement of a gap always fits.
const QUEUE_EVENTS_MIN: usize = 8;

/// The beginning of a stream in one key.
#[derive(Debug)]
pub(super) struct KeyStart {
    /// The id up to which the key counts as read.
    pub(super) read: EntryId,
    /// True if there are entries after that id.
    pub(super) is_behind: bool,
    /// The entry to deliver before all others.
    pub(super) first: Option<StreamEntry>,
}

/// The result of reading a key.
#[derive(Debug)]
pub(super) struct KeyRead {
    pub(super) key: Arc<str>,
    /// The id after which the key was read.
    pub(super) from: EntryId,
    /// The entries in order.
    pub(super) entries: Vec<StreamEntry>,
    /// The id after which the stream begins now, if entries behind `from` may be missing.
    pub(super) gap_after: Option<EntryId>,
}

/// A read of one key for one stream alone.
#[derive(Clone, Debug)]
pub(super) struct CatchUpRead {
    pub(super) stream: u64,
    cursor: usize,
    pub(super) key: Arc<str>,
    pub(super) from: EntryId,
    pub(super) count: usize,
}

/// The way in which a cursor reads its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadMode {
    Live,
    CatchingUp,
}

/// The position of one stream in one key.
#[derive(Debug)]
struct KeyCursor {
    key: Arc<str>,
    number: u32,
    read: EntryId,
    mode: ReadMode,
}

/// One open stream with its queue and its cursors.
#[derive(Debug)]
struct TableStream {
    sender: EventSender,
    cursors: Vec<KeyCursor>,
    /// True while a catch-up read for this stream is processed. There is one at a time, so that its entries fit.
    is_reading: bool,
    /// True while a future waits for room in the queue.
    is_awaiting_capacity: bool,
    /// Shows that the reader is needed.
    _in_use: Arc<()>,
}

/// The open streams of one reader, and the keys that it must read for them.
#[derive(Debug)]
pub(super) struct StreamTable {
    queue_events: usize,
    stats: Arc<ProviderStats>,
    streams: HashMap<u64, TableStream>,
    /// The streams of each key.
    keys: HashMap<Arc<str>, Vec<u64>>,
    next_stream: u64,
    /// The keys of the current live read, with the id after which each is read.
    live_read: HashMap<Arc<str>, EntryId>,
    /// True if the current live read lacks keys or entries that some stream needs.
    is_live_read_outdated: bool,
    /// Streams that may have a cursor to catch up. It may contain streams that were dropped.
    behind: Vec<u64>,
}

impl StreamTable {
    pub(super) fn new(queue_events: usize, stats: Arc<ProviderStats>) -> Self {
        Self {
            queue_events: queue_events.max(QUEUE_EVENTS_MIN),
            stats,
            streams: HashMap::new(),
            keys: HashMap::new(),
            next_stream: 0,
            live_read: HashMap::new(),
            is_live_read_outdated: false,
            behind: Vec::new(),
        }
    }

    /// Opens a stream over these keys. Returns its id, and a future that resolves when it is dropped.
    pub(super) fn open(
        &mut self,
        cursors: Vec<(u32, Arc<str>)>,
        begins: Vec<KeyStart>,
        in_use: Arc<()>,
    ) -> (u64, EventStream, BoxFuture<'static, ()>) {
        let id = self.next_stream;
        self.next_stream += 1;
        // The messages at the beginning have capacity of their own.
        let (mut sender, stream) = EventSender::new(self.queue_events + 2 * cursors.len());
        sender.set_counts(self.stats.stream_counts(cursors.iter().map(|(_, key)| &**key)));
        for ((number, _), begin) in cursors.iter().zip(&begins) {
            if begin.read != EntryId::ZERO {
                sender.try_send_progress(begin.read.partition_offset(*number));
            }
        }
        let mut open = Vec::with_capacity(cursors.len());
        for ((number, key), begin) in cursors.into_iter().zip(begins) {
            let key = match self.keys.get_key_value(&key) {
                Some((key, _)) => Arc::clone(key),
                None => key,
            };
            self.keys.entry(Arc::clone(&key)).or_default().push(id);
            let mut cursor = KeyCursor { key, number, read: begin.read, mode: ReadMode::Live };
            if let Some(entry) = begin.first {
                cursor.read = entry.id;
                sender.try_send(
                    entry.into_event(&cursor.key).at(cursor.read.partition_offset(number)),
                );
                ProviderStats::add(&self.stats.received, 1);
            }
            if begin.is_behind {
                cursor.mode = ReadMode::CatchingUp;
            } else {
                report_lag(&sender, &cursor);
                self.is_live_read_outdated |= !covers(&self.live_read, &cursor);
            }
            open.push(cursor);
        }
        if open.iter().any(|cursor| cursor.mode == ReadMode::CatchingUp) {
            self.behind.push(id);
        }
        let gone = Box::pin(sender.closed());
        let opened = TableStream {
            sender,
            cursors: open,
            is_reading: false,
            is_awaiting_capacity: false,
            _in_use: in_use,
        };
        self.streams.insert(id, opened);
        ProviderStats::add(&self.stats.streams, 1);
        (id, stream, gone)
    }

    /// Closes a stream that was dropped.
    pub(super) fn close(&mut self, id: u64) {
        drop(self.remove(id));
    }

    fn remove(&mut self, id: u64) -> Option<TableStream> {
        let stream = self.streams.remove(&id)?;
        ProviderStats::subtract(&self.stats.streams, 1);
        for cursor in &stream.cursors {
            if let Some(listeners) = self.keys.get_mut(&cursor.key) {
                listeners.retain(|&listener| listener != id);
                if listeners.is_empty() {
                    self.keys.remove(&cursor.key);
                }
            }
        }
        Some(stream)
    }

    /// Ends the streams of a key that the broker refuses. Returns their number.
    pub(super) fn end_refused(&mut self, key: &str, reason: &str) -> usize {
        let listeners = self.keys.get(key).cloned().unwrap_or_default();
        let ended = listeners.into_iter().filter_map(|id| self.remove(id));
        ended.map(|stream| stream.sender.end(StreamEnd::Refused(reason.to_owned()))).count()
    }

    /// Ends all streams.
    pub(super) fn end_all(&mut self) {
        self.keys.clear();
        for (_, stream) in self.streams.drain() {
            ProviderStats::subtract(&self.stats.streams, 1);
            stream.sender.end(StreamEnd::Closed);
        }
    }

    /// Returns all keys that some stream reads.
    pub(super) fn keys(&self) -> Vec<Arc<str>> {
        self.keys.keys().cloned().collect()
    }

    /// Returns the keys for the next live read: each key with live cursors, after the lowest position of these cursors.
    pub(super) fn start_live_read(&mut self) -> Vec<(Arc<str>, EntryId)> {
        self.is_live_read_outdated = false;
        self.live_read.clear();
        for cursor in self.streams.values().flat_map(|stream| &stream.cursors) {
            if cursor.mode == ReadMode::Live {
                let from = self.live_read.entry(Arc::clone(&cursor.key)).or_insert(cursor.read);
                *from = cursor.read.min(*from);
            }
        }
        self.live_read.iter().map(|(key, from)| (Arc::clone(key), *from)).collect()
    }

    /// Notes that the live read has ended.
    pub(super) fn stop_live_read(&mut self) {
        self.live_read.clear();
        self.is_live_read_outdated = true;
    }

    /// True if the live read should be woken, because it lacks keys or entries that some stream needs.
    pub(super) fn is_live_read_outdated(&self) -> bool {
        self.is_live_read_outdated
    }

    /// Delivers the entries of one key that the live read has returned. A cursor that became live behind the start of
    /// this read waits for the next one, which begins at the cursor's position: the entries between the two are not in
    /// this read.
    // hot path: once per event and stream; its budget is the number of streams that read the key.
    pub(super) fn on_live_read(&mut self, read: &KeyRead) {
        let Some(listeners) = self.keys.get(&read.key) else { return };
        ProviderStats::add(&self.stats.received, read.entries.len() as u64);
        for &id in listeners {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let TableStream { sender, cursors, .. } = stream;
            let cursors = cursors.iter_mut();
            let follows =
                |cursor: &KeyCursor| read.from <= cursor.read && cursor.mode == ReadMode::Live;
            for cursor in cursors.filter(|it| it.key == read.key && follows(it)) {
                deliver(sender, cursor, read, &self.stats);
                report_lag(sender, cursor);
                if cursor.mode == ReadMode::CatchingUp {
                    self.behind.push(id);
                }
            }
        }
    }

    /// Returns the next catch-up read, for a stream that is behind and has room. Adds a future to `full` for each
    /// stream without room, which resolves to its id when it has room.
    pub(super) fn next_catch_up_read(
        &mut self,
        count_max: usize,
        full: &mut Vec<BoxFuture<'static, u64>>,
    ) -> Option<CatchUpRead> {
        while let Some(id) = self.behind.pop() {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            if stream.is_reading || stream.is_awaiting_capacity {
                continue;
            }
            let cursor =
                stream.cursors.iter().position(|cursor| cursor.mode == ReadMode::CatchingUp);
            let Some(cursor) = cursor else { continue };
            let room = stream.sender.capacity();
            if room < CAPACITY_NEEDED {
                stream.is_awaiting_capacity = true;
                // Waiting for half of the queue avoids one read for each event that a slow subscriber takes.
                let room = stream.sender.wait_for_capacity(self.queue_events / 2);
                full.push(Box::pin(async move {
                    room.await;
                    id
                }));
                continue;
            }
            stream.is_reading = true;
            let KeyCursor { key, read, .. } = &stream.cursors[cursor];
            let count = (room - 1).min(count_max).max(1);
            return Some(CatchUpRead {
                stream: id,
                cursor,
                key: Arc::clone(key),
                from: *read,
                count,
            });
        }
        None
    }

    /// Marks a stream that has room again, or was dropped.
    pub(super) fn on_capacity(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.is_awaiting_capacity = false;
            self.behind.push(id);
        }
    }

    /// Delivers the entries of a catch-up read.
    pub(super) fn on_catch_up_read(&mut self, request: &CatchUpRead, read: &KeyRead) {
        let Some(stream) = self.streams.get_mut(&request.stream) else { return };
        stream.is_reading = false;
        ProviderStats::add(&self.stats.received, read.entries.len() as u64);
        let TableStream { sender, cursors, .. } = stream;
        let Some(cursor) = cursors.get_mut(request.cursor) else { return };
        if cursor.mode == ReadMode::CatchingUp && cursor.read == request.from {
            cursor.mode = ReadMode::Live;
            deliver(sender, cursor, read, &self.stats);
            // There may be more entries, or the stream begins elsewhere.
            if read.entries.len() >= request.count || read.gap_after.is_some() {
                cursor.mode = ReadMode::CatchingUp;
            }
            report_lag(sender, cursor);
            if cursor.mode == ReadMode::Live {
                self.is_live_read_outdated |= !covers(&self.live_read, cursor);
            }
        }
        self.behind.push(request.stream);
    }

    /// Repeats the catch-up reads that were lost with the connection.
    pub(super) fn on_lost(&mut self) {
        self.live_read.clear();
        for (id, stream) in &mut self.streams {
            if std::mem::take(&mut stream.is_reading) {
                self.behind.push(*id);
            }
        }
    }

    /// Applies the state of a key after a reconnect. Streams that cannot continue at their position receive a gap.
    pub(super) fn check_key(&mut self, key: &Arc<str>, state: &StreamInfo) {
        let Some(listeners) = self.keys.get(key) else { return };
        for &id in listeners {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let TableStream { sender, cursors, .. } = stream;
            for cursor in cursors.iter_mut().filter(|cursor| cursor.key == *key) {
                if !state.is_whole_after(cursor.read) {
                    announce_gap(sender, &self.stats);
                    cursor.read = state.id_before_first();
                    cursor.mode = ReadMode::CatchingUp;
                    self.behind.push(id);
                }
            }
        }
    }
}

/// True if the live read includes the entries that this cursor needs.
fn covers(live_read: &HashMap<Arc<str>, EntryId>, cursor: &KeyCursor) -> bool {
    live_read.get(&cursor.key).is_some_and(|from| *from <= cursor.read)
}

fn announce_gap(sender: &mut EventSender, stats: &ProviderStats) {
    if sender.announce_gap() {
        ProviderStats::add(&stats.gaps, 1);
    }
}

/// Reports the age of the latest entry that was read. The number of entries behind a position is not known.
fn report_lag(sender: &EventSender, cursor: &KeyCursor) {
    let read = match cursor.mode {
        ReadMode::Live => None,
        ReadMode::CatchingUp => cursor.read.time(),
    };
    sender.counts().set_topic_lag_time(&cursor.key, read);
}

/// Delivers the entries that the cursor has not had. If the queue is full, the cursor falls behind.
fn deliver(
    sender: &mut EventSender,
    cursor: &mut KeyCursor,
    read: &KeyRead,
    stats: &ProviderStats,
) {
    let first = read.entries.first().map(|entry| entry.id);
    if let Some(begins_after) = read.gap_after
        && first.is_none_or(|first| first > cursor.read)
    {
        announce_gap(sender, stats);
        // Entries that were read before the broker reported where the stream begins count, too.
        cursor.read = first.map_or(begins_after, |first| begins_after.min(first.before()));
    }
    let new = read.entries.partition_point(|entry| entry.id <= cursor.read);
    for entry in &read.entries[new..] {
        if sender.capacity() < CAPACITY_NEEDED {
            cursor.mode = ReadMode::CatchingUp;
            return;
        }
        let event =
            entry.clone().into_event(&cursor.key).at(entry.id.partition_offset(cursor.number));
        match sender.try_send(event) {
            SendOutcome::Queued => cursor.read = entry.id,
            // The reader's task notices streams that were dropped.
            SendOutcome::Dropped { .. } | SendOutcome::Closed => {
                cursor.mode = ReadMode::CatchingUp;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use redis::Value;

    use super::*;
    use crate::SourceMessage;

    fn id(number: u64) -> EntryId {
        EntryId::of_ms(number)
    }

    fn entry(number: u64) -> StreamEntry {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let fields = Value::Array(vec![bulk("data"), bulk("x")]);
        StreamEntry::read(Value::Array(vec![bulk(&id(number).to_string()), fields])).unwrap()
    }

    fn read(key: &str, from: u64, entries: std::ops::RangeInclusive<u64>) -> KeyRead {
        let entries = entries.map(entry).collect();
        KeyRead { key: key.into(), from: id(from), entries, gap_after: None }
    }

    fn table() -> StreamTable {
        StreamTable::new(QUEUE_EVENTS_MIN, Arc::default())
    }

    /// Opens a stream over `a` that has read up to that id.
    fn open(table: &mut StreamTable, read: u64, is_behind: bool) -> EventStream {
        let begins = vec![KeyStart { read: id(read), is_behind, first: None }];
        table.open(vec![(0, "a".into())], begins, Arc::default()).1
    }

    fn heard(stream: &mut EventStream) -> Vec<String> {
        std::iter::from_fn(|| stream.messages.try_recv().ok())
            .map(|message| match message {
                SourceMessage::Event(event) => event.partition_offset.unwrap().offset.to_string(),
                SourceMessage::Progress(partition_offset) => {
                    format!("passed {}", partition_offset.offset)
                }
                SourceMessage::Gap => "gap".into(),
                SourceMessage::End(end) => end.to_string(),
            })
            .collect()
    }

    fn next_catch_up_read(table: &mut StreamTable) -> Option<(u64, usize)> {
        let request = table.next_catch_up_read(ENTRIES_PER_READ, &mut Vec::new());
        request.map(|request| (request.from.ms, request.count))
    }

    #[test]
    fn the_live_read_begins_at_the_slowest_cursor_and_no_stream_gets_an_entry_twice() {
        let mut table = table();
        let (mut early, mut late) = (open(&mut table, 3, false), open(&mut table, 5, false));
        assert!(table.is_live_read_outdated());
        assert_eq!(table.start_live_read(), [("a".into(), id(3))]);
        assert!(!table.is_live_read_outdated());
        table.on_live_read(&read("a", 3, 4..=7));
        assert_eq!(heard(&mut early), ["passed 3", "4", "5", "6", "7"]);
        assert_eq!(heard(&mut late), ["passed 5", "6", "7"]);
        table.stop_live_read();
        assert_eq!(table.start_live_read(), [("a".into(), id(7))]);
        let _later = open(&mut table, 8, false);
        assert!(!table.is_live_read_outdated(), "the live read already covers it");
        let _earlier = open(&mut table, 2, false);
        assert!(table.is_live_read_outdated());
    }

    #[test]
    fn a_stream_that_becomes_live_behind_the_shared_read_misses_nothing() {
        let mut table = table();
        let mut live = open(&mut table, 3, false);
        let mut slow = open(&mut table, 1, true);
        let request = table.next_catch_up_read(ENTRIES_PER_READ, &mut Vec::new()).unwrap();
        // The broker responds to the catch-up read, stores 4 and 5, and responds to the live read, which arrives first.
        let response = read("a", 1, 2..=3);
        table.start_live_read();
        table.on_live_read(&read("a", 3, 4..=5));
        table.stop_live_read();
        assert_eq!(table.start_live_read(), [("a".into(), id(5))]);
        table.on_catch_up_read(&request, &response);
        // A stream that was opened at the latest entry before 4 has the same position.
        let mut new = open(&mut table, 3, false);
        assert!(table.is_live_read_outdated(), "the live read begins too late");
        // The read ends by itself before it can be woken.
        table.on_live_read(&read("a", 5, 6..=7));
        table.stop_live_read();
        assert_eq!(
            table.start_live_read(),
            [("a".into(), id(3))],
            "the next one begins at their position"
        );
        table.on_live_read(&read("a", 3, 4..=7));
        assert_eq!(heard(&mut live), ["passed 3", "4", "5", "6", "7"]);
        assert_eq!(heard(&mut slow), ["passed 1", "2", "3", "4", "5", "6", "7"]);
        assert_eq!(heard(&mut new), ["passed 3", "4", "5", "6", "7"]);
    }

    #[test]
    fn a_full_stream_falls_behind_and_becomes_live_when_it_has_caught_up() {
        let mut table = table();
        let mut stream = open(&mut table, 1, false);
        table.start_live_read();
        table.on_live_read(&read("a", 1, 2..=20));
        table.stop_live_read();
        assert_eq!(table.start_live_read(), [], "no cursor is live");
        let mut full = Vec::new();
        assert!(table.next_catch_up_read(ENTRIES_PER_READ, &mut full).is_none());
        assert_eq!(full.len(), 1, "it has no room");
        let first = heard(&mut stream);
        let last: u64 = first.last().unwrap().parse().unwrap();
        table.on_capacity(0);
        let request = table.next_catch_up_read(ENTRIES_PER_READ, &mut full).unwrap();
        assert_eq!(request.from, id(last));
        assert!(next_catch_up_read(&mut table).is_none(), "one catch-up read at a time");
        table.on_live_read(&read("a", 1, 2..=21));
        assert_eq!(
            heard(&mut stream),
            Vec::<String>::new(),
            "it does not get the entries of the live read"
        );
        table.on_catch_up_read(&request, &read("a", last, last + 1..=last + 2));
        assert_eq!(heard(&mut stream), [(last + 1).to_string(), (last + 2).to_string()]);
        assert_eq!(table.start_live_read(), [("a".into(), id(last + 2))], "it has caught up");
        assert_eq!(table.stats.dropped.load(Relaxed), 0);
    }

    #[test]
    fn a_catch_up_read_lost_with_the_connection_is_repeated() {
        let mut table = table();
        let _stream = open(&mut table, 1, true);
        let request = next_catch_up_read(&mut table).unwrap();
        assert_eq!(request.0, 1);
        table.on_lost();
        assert_eq!(next_catch_up_read(&mut table), Some(request));
    }

    #[test]
    fn only_a_stream_that_had_not_read_the_trimmed_entries_receives_a_gap() {
        let mut table = table();
        let (mut slow, mut quick) = (open(&mut table, 3, false), open(&mut table, 6, false));
        table.start_live_read();
        let trimmed = KeyRead { gap_after: Some(id(6).before()), ..read("a", 3, 6..=7) };
        table.on_live_read(&trimmed);
        assert_eq!(heard(&mut slow), ["passed 3", "gap", "6", "7"]);
        assert_eq!(heard(&mut quick), ["passed 6", "7"]);
        assert_eq!(table.stats.gaps.load(Relaxed), 1);
    }

    #[test]
    fn a_stream_that_was_created_again_is_read_from_its_beginning() {
        let mut table = table();
        let mut stream = open(&mut table, 7, false);
        table.check_key(&"a".into(), &StreamInfo::default());
        assert_eq!(heard(&mut stream), ["passed 7", "gap"]);
        assert_eq!(next_catch_up_read(&mut table).map(|request| request.0), Some(0));
    }

    #[test]
    fn a_refused_key_ends_its_streams() {
        let mut table = table();
        let mut stream = open(&mut table, 7, false);
        assert_eq!(table.end_refused("b", "no"), 0);
        assert_eq!(table.end_refused("a", "no"), 1);
        assert_eq!(heard(&mut stream), ["passed 7", "the broker refused: no"]);
        assert_eq!((table.keys(), table.stats.streams.load(Relaxed)), (vec![], 0));
    }
}
