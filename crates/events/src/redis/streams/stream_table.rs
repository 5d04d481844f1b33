//! Who reads which keys, and how far each has come. No I/O.
//!
//! A lane is one key of one stream. A live lane gets what the shared blocked read brings; one that is behind
//! (it begins in the past, or its stream was full) is read on its own, in pieces that fit, until it has caught
//! up. Nothing is ever dropped here: the broker keeps what does not fit.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::entry::StreamEntry;
use super::entry_id::EntryId;
use super::stream_info::StreamInfo;
use crate::event_queue::{EventSender, SendOutcome};
use crate::{EventStream, ProviderStats, StreamEnd};

/// Entries of one key in one answer, at most: enough to outrun any publisher, and bounded again in bytes.
pub(super) const ENTRIES_PER_READ: usize = 512;

/// An event, and a gap before it.
const CAPACITY_NEEDED: usize = 2;

/// The fewest events that a queue has room for, so that the announcements of a gap always fit.
const QUEUE_EVENTS_MIN: usize = 8;

/// Where a lane begins.
#[derive(Debug)]
pub(super) struct KeyStart {
    /// What was read of it already.
    pub(super) read: EntryId,
    /// Is there something after that?
    pub(super) is_behind: bool,
    /// What comes before everything else.
    pub(super) first: Option<StreamEntry>,
}

/// What was read of a key.
#[derive(Debug)]
pub(super) struct KeyRead {
    pub(super) key: Arc<str>,
    /// After which number.
    pub(super) from: EntryId,
    /// In order.
    pub(super) entries: Vec<StreamEntry>,
    /// Something that followed `from` may be missing; then this is where the stream begins now.
    pub(super) gap_after: Option<EntryId>,
}

/// A request of a key to be read for one stream alone.
#[derive(Clone, Debug)]
pub(super) struct CatchUpRead {
    pub(super) stream: u64,
    lane: usize,
    pub(super) key: Arc<str>,
    pub(super) from: EntryId,
    pub(super) count: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadMode {
    Live,
    CatchingUp,
}

#[derive(Debug)]
struct KeyCursor {
    key: Arc<str>,
    number: u32,
    read: EntryId,
    mode: ReadMode,
}

#[derive(Debug)]
struct TableStream {
    sender: EventSender,
    lanes: Vec<KeyCursor>,
    /// A request for it is on its way: one at a time, so that together they fit.
    is_reading: bool,
    /// Somebody waits for its reader to make room.
    awaits_capacity: bool,
    /// Says that this reader is needed.
    _in_use: Arc<()>,
}

#[derive(Debug)]
pub(super) struct StreamTable {
    queue_events: usize,
    stats: Arc<ProviderStats>,
    streams: HashMap<u64, TableStream>,
    /// Who wants a key.
    keys: HashMap<Arc<str>, Vec<u64>>,
    next_stream: u64,
    /// What the blocked read asks for now.
    live_read: HashMap<Arc<str>, EntryId>,
    /// It asks for too little.
    wants_more: bool,
    /// Streams that may have a lane behind. May hold some that are gone.
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
            wants_more: false,
            behind: Vec::new(),
        }
    }

    /// A stream over these keys. Returns its number, and a future that resolves when it is dropped.
    pub(super) fn open(
        &mut self,
        lanes: Vec<(u32, Arc<str>)>,
        begins: Vec<KeyStart>,
        in_use: Arc<()>,
    ) -> (u64, EventStream, BoxFuture<'static, ()>) {
        let id = self.next_stream;
        self.next_stream += 1;
        // What is said at the beginning has room of its own.
        let (mut sender, stream) = EventSender::new(self.queue_events + 2 * lanes.len());
        sender.set_counts(self.stats.stream_counts(lanes.iter().map(|(_, key)| &**key)));
        for ((number, _), begin) in lanes.iter().zip(&begins) {
            if begin.read != EntryId::ZERO {
                sender.try_send_progress(begin.read.mark(*number));
            }
        }
        let mut open = Vec::with_capacity(lanes.len());
        for ((number, key), begin) in lanes.into_iter().zip(begins) {
            let key = match self.keys.get_key_value(&key) {
                Some((key, _)) => Arc::clone(key),
                None => key,
            };
            self.keys.entry(Arc::clone(&key)).or_default().push(id);
            let mut lane = KeyCursor { key, number, read: begin.read, mode: ReadMode::Live };
            if let Some(entry) = begin.first {
                lane.read = entry.id;
                sender.try_send(entry.into_event(&lane.key).at(lane.read.mark(number)));
                ProviderStats::add(&self.stats.received, 1);
            }
            if begin.is_behind {
                lane.mode = ReadMode::CatchingUp;
            } else {
                report_lag(&sender, &lane);
                self.wants_more |= !covers(&self.live_read, &lane);
            }
            open.push(lane);
        }
        if open.iter().any(|lane| lane.mode == ReadMode::CatchingUp) {
            self.behind.push(id);
        }
        let gone = Box::pin(sender.closed());
        let opened = TableStream {
            sender,
            lanes: open,
            is_reading: false,
            awaits_capacity: false,
            _in_use: in_use,
        };
        self.streams.insert(id, opened);
        ProviderStats::add(&self.stats.streams, 1);
        (id, stream, gone)
    }

    /// The stream was dropped.
    pub(super) fn close(&mut self, id: u64) {
        drop(self.remove(id));
    }

    fn remove(&mut self, id: u64) -> Option<TableStream> {
        let stream = self.streams.remove(&id)?;
        ProviderStats::subtract(&self.stats.streams, 1);
        for lane in &stream.lanes {
            if let Some(listeners) = self.keys.get_mut(&lane.key) {
                listeners.retain(|&listener| listener != id);
                if listeners.is_empty() {
                    self.keys.remove(&lane.key);
                }
            }
        }
        Some(stream)
    }

    /// Ends the streams that want that key. Returns how many.
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

    /// All keys that somebody wants.
    pub(super) fn keys(&self) -> Vec<Arc<str>> {
        self.keys.keys().cloned().collect()
    }

    /// What the blocked read is to ask for: each key that has live lanes, after what the last of them has read.
    pub(super) fn start_live_read(&mut self) -> Vec<(Arc<str>, EntryId)> {
        self.wants_more = false;
        self.live_read.clear();
        for lane in self.streams.values().flat_map(|stream| &stream.lanes) {
            if lane.mode == ReadMode::Live {
                let from = self.live_read.entry(Arc::clone(&lane.key)).or_insert(lane.read);
                *from = lane.read.min(*from);
            }
        }
        self.live_read.iter().map(|(key, from)| (Arc::clone(key), *from)).collect()
    }

    /// The blocked read has ended.
    pub(super) fn stop_live_read(&mut self) {
        self.live_read.clear();
        self.wants_more = true;
    }

    /// Should the blocked read be woken, because it asks for less than is wanted?
    pub(super) fn wants_more(&self) -> bool {
        self.wants_more
    }

    /// Delivers the entries of one key that the blocked read has returned. A lane that became live behind the start of
    /// this read waits for the next one, which begins at the lane's position: the entries between the two are not in
    /// this read.
    // hot path: once per event and stream; its budget is the number of streams that want the key.
    pub(super) fn on_live_read(&mut self, read: &KeyRead) {
        let Some(listeners) = self.keys.get(&read.key) else { return };
        ProviderStats::add(&self.stats.received, read.entries.len() as u64);
        for &id in listeners {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let TableStream { sender, lanes, .. } = stream;
            let lanes = lanes.iter_mut();
            let follows = |lane: &KeyCursor| read.from <= lane.read && lane.mode == ReadMode::Live;
            for lane in lanes.filter(|it| it.key == read.key && follows(it)) {
                deliver(sender, lane, read, &self.stats);
                report_lag(sender, lane);
                if lane.mode == ReadMode::CatchingUp {
                    self.behind.push(id);
                }
            }
        }
    }

    /// The next request to be read for a stream alone, if one of those that are behind has room for it; and futures
    /// that resolve to the numbers of those that have none, when they have.
    pub(super) fn next_catch_up_read(
        &mut self,
        count_max: usize,
        full: &mut Vec<BoxFuture<'static, u64>>,
    ) -> Option<CatchUpRead> {
        while let Some(id) = self.behind.pop() {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            if stream.is_reading || stream.awaits_capacity {
                continue;
            }
            let lane = stream.lanes.iter().position(|lane| lane.mode == ReadMode::CatchingUp);
            let Some(lane) = lane else { continue };
            let room = stream.sender.capacity();
            if room < CAPACITY_NEEDED {
                stream.awaits_capacity = true;
                // Half of the queue, so that a reader who takes one at a time does not cause a read for each.
                let room = stream.sender.wait_for_capacity(self.queue_events / 2);
                full.push(Box::pin(async move {
                    room.await;
                    id
                }));
                continue;
            }
            stream.is_reading = true;
            let KeyCursor { key, read, .. } = &stream.lanes[lane];
            let count = (room - 1).min(count_max).max(1);
            return Some(CatchUpRead {
                stream: id,
                lane,
                key: Arc::clone(key),
                from: *read,
                count,
            });
        }
        None
    }

    /// The stream has room again, or is gone.
    pub(super) fn on_capacity(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.awaits_capacity = false;
            self.behind.push(id);
        }
    }

    /// What a request has brought.
    pub(super) fn on_catch_up_read(&mut self, request: &CatchUpRead, read: &KeyRead) {
        let Some(stream) = self.streams.get_mut(&request.stream) else { return };
        stream.is_reading = false;
        ProviderStats::add(&self.stats.received, read.entries.len() as u64);
        let TableStream { sender, lanes, .. } = stream;
        let Some(lane) = lanes.get_mut(request.lane) else { return };
        if lane.mode == ReadMode::CatchingUp && lane.read == request.from {
            lane.mode = ReadMode::Live;
            deliver(sender, lane, read, &self.stats);
            // There may be more, or what there is begins elsewhere.
            if read.entries.len() >= request.count || read.gap_after.is_some() {
                lane.mode = ReadMode::CatchingUp;
            }
            report_lag(sender, lane);
            if lane.mode == ReadMode::Live {
                self.wants_more |= !covers(&self.live_read, lane);
            }
        }
        self.behind.push(request.stream);
    }

    /// The connection is gone and with it what was on its way.
    pub(super) fn on_lost(&mut self) {
        self.live_read.clear();
        for (id, stream) in &mut self.streams {
            if std::mem::take(&mut stream.is_reading) {
                self.behind.push(*id);
            }
        }
    }

    /// How a key is after a reconnect: those who cannot go on where they were hear of a gap.
    pub(super) fn check_key(&mut self, key: &Arc<str>, state: &StreamInfo) {
        let Some(listeners) = self.keys.get(key) else { return };
        for &id in listeners {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let TableStream { sender, lanes, .. } = stream;
            for lane in lanes.iter_mut().filter(|lane| lane.key == *key) {
                if !state.is_whole_after(lane.read) {
                    announce_gap(sender, &self.stats);
                    lane.read = state.begins_after();
                    lane.mode = ReadMode::CatchingUp;
                    self.behind.push(id);
                }
            }
        }
    }
}

/// Does the blocked read ask for what that lane needs?
fn covers(live_read: &HashMap<Arc<str>, EntryId>, lane: &KeyCursor) -> bool {
    live_read.get(&lane.key).is_some_and(|from| *from <= lane.read)
}

fn announce_gap(sender: &mut EventSender, stats: &ProviderStats) {
    if sender.announce_gap() {
        ProviderStats::add(&stats.gaps, 1);
    }
}

/// How many entries there are behind a position is not known; how old the latest one is that was read, is.
fn report_lag(sender: &EventSender, lane: &KeyCursor) {
    let read = match lane.mode {
        ReadMode::Live => None,
        ReadMode::CatchingUp => lane.read.time(),
    };
    sender.counts().set_topic_lag_time(&lane.key, read);
}

/// Hands on what the lane has not had. Where the queue is full, the lane falls behind.
fn deliver(sender: &mut EventSender, lane: &mut KeyCursor, read: &KeyRead, stats: &ProviderStats) {
    let first = read.entries.first().map(|entry| entry.id);
    if let Some(begins_after) = read.gap_after
        && first.is_none_or(|first| first > lane.read)
    {
        announce_gap(sender, stats);
        // What was read before the broker said where it begins counts too.
        lane.read = first.map_or(begins_after, |first| begins_after.min(first.before()));
    }
    let new = read.entries.partition_point(|entry| entry.id <= lane.read);
    for entry in &read.entries[new..] {
        if sender.capacity() < CAPACITY_NEEDED {
            lane.mode = ReadMode::CatchingUp;
            return;
        }
        let event = entry.clone().into_event(&lane.key).at(entry.id.mark(lane.number));
        match sender.try_send(event) {
            SendOutcome::Queued => lane.read = entry.id,
            // Whoever dropped the stream is noticed by the reader's task.
            SendOutcome::Dropped { .. } | SendOutcome::Closed => {
                lane.mode = ReadMode::CatchingUp;
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

    /// A stream over `a` that has read up to there.
    fn open(table: &mut StreamTable, read: u64, is_behind: bool) -> EventStream {
        let begins = vec![KeyStart { read: id(read), is_behind, first: None }];
        table.open(vec![(0, "a".into())], begins, Arc::default()).1
    }

    fn heard(stream: &mut EventStream) -> Vec<String> {
        std::iter::from_fn(|| stream.messages.try_recv().ok())
            .map(|message| match message {
                SourceMessage::Event(event) => event.mark.unwrap().offset.to_string(),
                SourceMessage::Passed(mark) => format!("passed {}", mark.offset),
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
    fn the_shared_read_asks_for_what_the_slowest_needs_and_nobody_gets_anything_twice() {
        let mut table = table();
        let (mut early, mut late) = (open(&mut table, 3, false), open(&mut table, 5, false));
        assert!(table.wants_more());
        assert_eq!(table.start_live_read(), [("a".into(), id(3))]);
        assert!(!table.wants_more());
        table.on_live_read(&read("a", 3, 4..=7));
        assert_eq!(heard(&mut early), ["passed 3", "4", "5", "6", "7"]);
        assert_eq!(heard(&mut late), ["passed 5", "6", "7"]);
        table.stop_live_read();
        assert_eq!(table.start_live_read(), [("a".into(), id(7))]);
        let _later = open(&mut table, 8, false);
        assert!(!table.wants_more(), "what is asked for already covers it");
        let _earlier = open(&mut table, 2, false);
        assert!(table.wants_more());
    }

    #[test]
    fn a_stream_that_becomes_live_behind_the_shared_read_misses_nothing() {
        let mut table = table();
        let mut live = open(&mut table, 3, false);
        let mut slow = open(&mut table, 1, true);
        let request = table.next_catch_up_read(ENTRIES_PER_READ, &mut Vec::new()).unwrap();
        // The broker answers the request, stores 4 and 5, and answers the shared read, which arrives first.
        let answer = read("a", 1, 2..=3);
        table.start_live_read();
        table.on_live_read(&read("a", 3, 4..=5));
        table.stop_live_read();
        assert_eq!(table.start_live_read(), [("a".into(), id(5))]);
        table.on_catch_up_read(&request, &answer);
        // A stream that was opened at the latest entry before 4 is in the same place.
        let mut new = open(&mut table, 3, false);
        assert!(table.wants_more(), "what is asked for begins too late");
        // The read ends by itself before it can be woken.
        table.on_live_read(&read("a", 5, 6..=7));
        table.stop_live_read();
        assert_eq!(
            table.start_live_read(),
            [("a".into(), id(3))],
            "the next one begins where they are"
        );
        table.on_live_read(&read("a", 3, 4..=7));
        assert_eq!(heard(&mut live), ["passed 3", "4", "5", "6", "7"]);
        assert_eq!(heard(&mut slow), ["passed 1", "2", "3", "4", "5", "6", "7"]);
        assert_eq!(heard(&mut new), ["passed 3", "4", "5", "6", "7"]);
    }

    #[test]
    fn a_full_stream_falls_behind_and_comes_back_when_it_has_caught_up() {
        let mut table = table();
        let mut stream = open(&mut table, 1, false);
        table.start_live_read();
        table.on_live_read(&read("a", 1, 2..=20));
        table.stop_live_read();
        assert_eq!(table.start_live_read(), [], "nobody is live");
        let mut full = Vec::new();
        assert!(table.next_catch_up_read(ENTRIES_PER_READ, &mut full).is_none());
        assert_eq!(full.len(), 1, "it has no room");
        let first = heard(&mut stream);
        let last: u64 = first.last().unwrap().parse().unwrap();
        table.on_capacity(0);
        let request = table.next_catch_up_read(ENTRIES_PER_READ, &mut full).unwrap();
        assert_eq!(request.from, id(last));
        assert!(next_catch_up_read(&mut table).is_none(), "one request at a time");
        table.on_live_read(&read("a", 1, 2..=21));
        assert_eq!(heard(&mut stream), Vec::<String>::new(), "what is read live passes it by");
        table.on_catch_up_read(&request, &read("a", last, last + 1..=last + 2));
        assert_eq!(heard(&mut stream), [(last + 1).to_string(), (last + 2).to_string()]);
        assert_eq!(table.start_live_read(), [("a".into(), id(last + 2))], "it has caught up");
        assert_eq!(table.stats.dropped.load(Relaxed), 0);
    }

    #[test]
    fn a_lost_connection_asks_anew_for_what_was_on_its_way() {
        let mut table = table();
        let _stream = open(&mut table, 1, true);
        let request = next_catch_up_read(&mut table).unwrap();
        assert_eq!(request.0, 1);
        table.on_lost();
        assert_eq!(next_catch_up_read(&mut table), Some(request));
    }

    #[test]
    fn only_who_has_not_read_what_was_trimmed_hears_of_a_gap() {
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
    fn a_stream_that_was_made_anew_is_read_from_its_beginning() {
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
