//! The table of Pub/Sub subscriptions: streams, their channels and patterns, and the state of each at the broker.
//! Events go from the connection's reader directly into the bounded queues of the streams, so that nothing waits in
//! between and nothing can accumulate there. The table does no I/O.

use std::collections::HashMap;
use std::sync::Arc;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;

use super::channel_name::is_pattern;
use crate::event_queue::{EventSender, SendOutcome};
use crate::{Event, EventStream, ProviderStats, Start, StreamEnd, Wanted};

/// The first word of the error by which a node of a cluster reports that another node has the slot.
pub(super) const MOVED: &str = "MOVED";

/// The state of a subscription to one channel or pattern at the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SubscribeState {
    /// The subscription is not requested yet. The next batch contains it.
    NotRequested,
    /// The batch that is being processed contains the subscription.
    Requested,
    /// The broker has confirmed the subscription.
    Confirmed,
}

#[derive(Debug)]
struct ChannelSubscription {
    state: SubscribeState,
    streams: Vec<u64>,
}

#[derive(Debug)]
struct PubSubStream {
    sender: EventSender,
    /// True if the latest event was queued. Events in a row that do not fit make one gap together.
    is_gapless: bool,
    channels: Vec<Arc<str>>,
}

/// The next request to the broker, in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct SubscribeBatch {
    pub(super) unsubscribe: Vec<Arc<str>>,
    pub(super) subscribe: Vec<Arc<str>>,
}

/// A new stream.
pub(super) struct OpenedStream {
    pub(super) id: u64,
    pub(super) stream: EventStream,
    /// Resolves when the stream is dropped.
    pub(super) gone: futures_util::future::BoxFuture<'static, ()>,
    /// The number of the batch with which all channels of the stream are in force, from 1; 0 if they are already.
    pub(super) confirmed_by: u64,
}

#[derive(Debug)]
pub(super) struct SubscriptionTable {
    queue_events: usize,
    stats: Arc<ProviderStats>,
    /// The subscriptions by channel or by pattern. No name is both.
    channels: HashMap<Arc<str>, ChannelSubscription>,
    streams: HashMap<u64, PubSubStream>,
    next_stream: u64,
    /// Channels that were requested and have no streams any more.
    unwanted: Vec<Arc<str>>,
    /// True if some channel is [`SubscribeState::NotRequested`].
    has_new: bool,
    batches: u64,
    /// Notified when a slot has left this node.
    moved: Arc<Notify>,
}

impl SubscriptionTable {
    pub(super) fn new(queue_events: usize, stats: Arc<ProviderStats>) -> Self {
        Self {
            queue_events,
            stats,
            channels: HashMap::new(),
            streams: HashMap::new(),
            next_stream: 0,
            unwanted: Vec::new(),
            has_new: false,
            batches: 0,
            moved: Arc::default(),
        }
    }

    /// Returns the signal that a slot has left this node, with its channels.
    pub(super) fn moved(&self) -> Arc<Notify> {
        Arc::clone(&self.moved)
    }

    /// Opens a stream over `topics`. Pub/Sub has no past, so a stream that begins in the past begins with a gap.
    pub(super) fn open(&mut self, Wanted { topics, start, .. }: Wanted) -> OpenedStream {
        let id = self.next_stream;
        self.next_stream += 1;
        let (mut sender, stream) = EventSender::new(self.queue_events);
        if start != Start::New {
            sender.announce_gap();
            ProviderStats::add(&self.stats.gaps, 1);
        }
        sender.set_counts(self.stats.stream_counts(topics.iter().map(|topic| &**topic)));
        let gone = Box::pin(sender.closed());
        let mut confirmed_by = 0;
        let mut channels: Vec<Arc<str>> = Vec::with_capacity(topics.len());
        for topic in topics {
            // A channel that is named twice delivers each event once.
            if channels.iter().any(|name| **name == *topic) {
                continue;
            }
            let name = match self.channels.get_key_value(&*topic) {
                Some((name, _)) => Arc::clone(name),
                None => topic.into(),
            };
            let channel = self.channels.entry(Arc::clone(&name)).or_insert_with(|| {
                ChannelSubscription { state: SubscribeState::NotRequested, streams: Vec::new() }
            });
            channel.streams.push(id);
            confirmed_by = confirmed_by.max(match channel.state {
                SubscribeState::NotRequested => self.batches + 1,
                SubscribeState::Requested => self.batches,
                SubscribeState::Confirmed => 0,
            });
            self.has_new |= channel.state == SubscribeState::NotRequested;
            channels.push(name);
        }
        self.streams.insert(id, PubSubStream { sender, is_gapless: true, channels });
        ProviderStats::add(&self.stats.streams, 1);
        OpenedStream { id, stream, gone, confirmed_by }
    }

    /// Closes a stream that was dropped.
    pub(super) fn close(&mut self, id: u64) {
        if let Some(stream) = self.streams.remove(&id) {
            self.leave_channels(id, &stream.channels);
        }
    }

    /// Ends the streams of a channel that the broker refuses.
    pub(super) fn end_refused(&mut self, name: &str, reason: &str) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        // This prevents unsubscribing from a channel that is not subscribed to.
        channel.state = SubscribeState::NotRequested;
        for id in channel.streams.clone() {
            let Some(stream) = self.streams.remove(&id) else { continue };
            self.leave_channels(id, &stream.channels);
            stream.sender.end(StreamEnd::Refused(reason.to_owned()));
        }
    }

    fn leave_channels(&mut self, id: u64, channels: &[Arc<str>]) {
        ProviderStats::subtract(&self.stats.streams, 1);
        for name in channels {
            let Some(channel) = self.channels.get_mut(name) else { continue };
            channel.streams.retain(|&stream| stream != id);
            if channel.streams.is_empty()
                && let Some(channel) = self.channels.remove(name)
                && channel.state != SubscribeState::NotRequested
            {
                self.unwanted.push(Arc::clone(name));
            }
        }
    }

    /// Returns all changes since the last batch, or `None` if there are none. Only one batch is processed at a time, so
    /// the last one must have been confirmed.
    pub(super) fn next_batch(&mut self) -> Option<SubscribeBatch> {
        if !self.has_new && self.unwanted.is_empty() {
            return None;
        }
        let unsubscribe = std::mem::take(&mut self.unwanted);
        let mut subscribe = Vec::new();
        if std::mem::take(&mut self.has_new) {
            for (name, channel) in &mut self.channels {
                if channel.state == SubscribeState::NotRequested {
                    channel.state = SubscribeState::Requested;
                    subscribe.push(Arc::clone(name));
                }
            }
        }
        self.batches += 1;
        Some(SubscribeBatch { unsubscribe, subscribe })
    }

    /// Marks the last batch as confirmed by the broker. Returns its number.
    pub(super) fn on_confirmed(&mut self, batch: &SubscribeBatch) -> u64 {
        for name in &batch.subscribe {
            if let Some(channel) = self.channels.get_mut(name)
                && channel.state == SubscribeState::Requested
            {
                channel.state = SubscribeState::Confirmed;
            }
        }
        self.batches
    }

    /// Announces a gap to every stream after a loss of the connection, and marks all channels as not requested. Returns
    /// the number of streams.
    pub(super) fn on_lost(&mut self) -> usize {
        self.unwanted.clear();
        self.has_new = !self.channels.is_empty();
        for channel in self.channels.values_mut() {
            channel.state = SubscribeState::NotRequested;
        }
        for stream in self.streams.values_mut() {
            // A failed attempt to reconnect loses nothing more, so it makes no second gap.
            if stream.sender.announce_gap() {
                ProviderStats::add(&self.stats.gaps, 1);
            }
        }
        self.streams.len()
    }

    /// Ends all streams.
    pub(super) fn end_all(&mut self) {
        self.channels.clear();
        for (_, stream) in self.streams.drain() {
            stream.sender.end(StreamEnd::Closed);
        }
    }

    /// Handles a push of the broker, which is no response to a command. Never waits.
    // hot path: once per event and subscription; its budget is the number of streams.
    pub(super) fn dispatch_push(&mut self, info: PushInfo) {
        let mut data = info.data.into_iter();
        let mut next = || match data.next() {
            Some(Value::BulkString(bytes)) => Some(bytes),
            _ => None,
        };
        let (name, topic, payload) = match info.kind {
            PushKind::Message | PushKind::SMessage => (next(), None, next()),
            PushKind::PMessage => (next(), next(), next()),
            PushKind::SUnsubscribe => {
                // This push was not requested: another node has the slot now.
                if let Some(name) = next()
                    && let Ok(name) = std::str::from_utf8(&name)
                    && self
                        .channels
                        .get(name)
                        .is_some_and(|it| it.state == SubscribeState::Confirmed)
                {
                    self.end_refused(name, MOVED);
                    self.moved.notify_one();
                }
                return;
            }
            _ => return,
        };
        let (Some(name), Some(payload)) = (name, payload) else { return };
        let Ok(name) = std::str::from_utf8(&name) else { return };
        let Some((name, channel)) = self.channels.get_key_value(name) else { return };
        ProviderStats::add(&self.stats.received, 1);
        let topic = match topic {
            Some(topic) => String::from_utf8_lossy(&topic).into(),
            None => Arc::clone(name),
        };
        let event = Arc::new(Event::new(topic, payload));
        for id in &channel.streams {
            let Some(stream) = self.streams.get_mut(id) else { continue };
            // A stream that was dropped is closed by the connection's task.
            if matches!(stream.sender.try_send(Arc::clone(&event)), SendOutcome::Dropped { .. }) {
                ProviderStats::add(&self.stats.dropped, 1);
                if std::mem::take(&mut stream.is_gapless) {
                    ProviderStats::add(&self.stats.gaps, 1);
                }
            } else {
                stream.is_gapless = true;
            }
        }
    }
}

/// Separates channels from patterns, because each has a command of its own.
pub(super) fn split_patterns(names: &[Arc<str>]) -> (Vec<&str>, Vec<&str>) {
    let (patterns, channels) = names.iter().map(|name| &**name).partition(|name| is_pattern(name));
    (channels, patterns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SourceMessage;
    use std::sync::atomic::Ordering::Relaxed;

    fn channels() -> SubscriptionTable {
        SubscriptionTable::new(8, Arc::default())
    }

    fn open(channels: &mut SubscriptionTable, topics: &[&str]) -> OpenedStream {
        channels.open(Wanted::new(topics.iter().map(|&topic| topic.into()).collect()))
    }

    fn push(channels: &mut SubscriptionTable, kind: PushKind, words: &[&str]) {
        let data = words.iter().map(|word| Value::BulkString(word.as_bytes().to_vec())).collect();
        channels.dispatch_push(PushInfo { kind, data });
    }

    /// Returns the changes in a batch as sorted words, such as `+c -a -b`.
    fn next_words(channels: &mut SubscriptionTable) -> (String, Option<SubscribeBatch>) {
        let batch = channels.next_batch();
        let mut words: Vec<String> = Vec::new();
        if let Some(batch) = &batch {
            words.extend(batch.unsubscribe.iter().map(|name| format!("-{name}")));
            words.extend(batch.subscribe.iter().map(|name| format!("+{name}")));
        }
        words.sort();
        (words.join(" "), batch)
    }

    fn heard(stream: &mut EventStream) -> Vec<String> {
        std::iter::from_fn(|| stream.messages.try_recv().ok())
            .map(|message| match message {
                SourceMessage::Event(event) => {
                    format!("{} {}", event.topic, String::from_utf8_lossy(&event.payload))
                }
                SourceMessage::Passed(_) => "passed".into(),
                SourceMessage::Gap => "gap".into(),
                SourceMessage::End(end) => end.to_string(),
            })
            .collect()
    }

    #[test]
    fn an_event_reaches_the_streams_of_its_channel_or_pattern() {
        let mut channels = channels();
        let mut exact = open(&mut channels, &["a", "b", "a"]);
        let mut pattern = open(&mut channels, &["a*"]);
        push(&mut channels, PushKind::Message, &["a", "1"]);
        push(&mut channels, PushKind::PMessage, &["a*", "ab", "2"]);
        push(&mut channels, PushKind::Message, &["c", "nobody"]);
        push(&mut channels, PushKind::Subscribe, &["a", "no event"]);
        push(&mut channels, PushKind::Message, &["a"]);
        assert_eq!(heard(&mut exact.stream), ["a 1"]);
        assert_eq!(heard(&mut pattern.stream), ["ab 2"]);
        assert_eq!(channels.stats.received.load(Relaxed), 2);
    }

    #[test]
    fn changes_made_while_a_batch_is_processed_go_into_the_next() {
        let mut channels = channels();
        let first = open(&mut channels, &["a", "b"]);
        assert_eq!(first.confirmed_by, 1);
        let (words, batch) = next_words(&mut channels);
        assert_eq!(words, "+a +b");
        let same = open(&mut channels, &["a"]);
        let more = open(&mut channels, &["a", "c"]);
        assert_eq!((same.confirmed_by, more.confirmed_by), (1, 2));
        channels.close(first.id);
        assert_eq!(channels.on_confirmed(&batch.unwrap()), 1);
        assert_eq!(open(&mut channels, &["a"]).confirmed_by, 0);
        assert_eq!(next_words(&mut channels).0, "+c -b");
        assert_eq!(next_words(&mut channels).0, "");
        assert_eq!(channels.stats.streams.load(Relaxed), 3);
    }

    #[test]
    fn a_channel_requested_again_before_it_was_unsubscribed_is_subscribed_to_again() {
        let mut channels = channels();
        let first = open(&mut channels, &["a"]);
        let (_, batch) = next_words(&mut channels);
        channels.close(first.id);
        let again = open(&mut channels, &["a"]);
        channels.on_confirmed(&batch.unwrap());
        assert_eq!(again.confirmed_by, 2);
        assert_eq!(next_words(&mut channels).0, "+a -a", "first unsubscribed, then subscribed");
    }

    #[test]
    fn a_channel_that_was_not_requested_yet_is_dropped_without_a_command() {
        let mut channels = channels();
        let first = open(&mut channels, &["a"]);
        channels.close(first.id);
        assert_eq!(next_words(&mut channels).0, "");
    }

    #[test]
    fn a_lost_connection_makes_one_gap_and_requests_everything_again() {
        let mut channels = channels();
        let mut stream = open(&mut channels, &["a", "b"]).stream;
        let (_, batch) = next_words(&mut channels);
        channels.on_confirmed(&batch.unwrap());
        let gone = open(&mut channels, &["c"]);
        channels.close(gone.id);
        assert_eq!(channels.on_lost(), 1);
        assert_eq!(channels.on_lost(), 1, "a reconnect failed half-way");
        assert_eq!(channels.stats.gaps.load(Relaxed), 1);
        assert_eq!(next_words(&mut channels).0, "+a +b");
        push(&mut channels, PushKind::Message, &["a", "1"]);
        assert_eq!(heard(&mut stream), ["gap", "a 1"]);
    }

    #[test]
    fn events_that_find_no_room_one_after_the_other_are_one_gap() {
        let mut channels = SubscriptionTable::new(2, Arc::default());
        let mut stream = open(&mut channels, &["a"]).stream;
        for number in ["1", "2", "3", "4"] {
            push(&mut channels, PushKind::Message, &["a", number]);
        }
        assert_eq!(channels.on_lost(), 1);
        assert_eq!(heard(&mut stream), ["a 1", "a 2"]);
        push(&mut channels, PushKind::Message, &["a", "5"]);
        assert_eq!(heard(&mut stream), ["gap", "a 5"]);
        let counted = [&channels.stats.dropped, &channels.stats.gaps].map(|it| it.load(Relaxed));
        assert_eq!(counted, [2, 1]);
    }

    #[test]
    fn a_refused_channel_ends_its_streams_and_leaves_the_others() {
        let mut channels = channels();
        let mut both = open(&mut channels, &["a", "secret"]).stream;
        let mut other = open(&mut channels, &["a", "b"]).stream;
        let (_, batch) = next_words(&mut channels);
        channels.end_refused("secret", "no");
        channels.on_confirmed(&batch.unwrap());
        assert_eq!(next_words(&mut channels).0, "");
        push(&mut channels, PushKind::Message, &["a", "1"]);
        assert_eq!(heard(&mut both), ["the broker refused: no"]);
        assert_eq!(heard(&mut other), ["a 1"]);
        assert_eq!(channels.stats.streams.load(Relaxed), 1);
    }

    #[test]
    fn a_stream_that_begins_in_the_past_begins_with_a_gap() {
        let mut channels = channels();
        let mut opened = channels.open(Wanted::new(vec!["a".into()]).with_start(Start::All));
        assert_eq!(heard(&mut opened.stream), ["gap"]);
    }

    #[test]
    fn commands_separate_channels_from_patterns() {
        let names = ["a", "b*", "c", "d?"].map(Arc::from);
        assert_eq!(split_patterns(&names), (vec!["a", "c"], vec!["b*", "d?"]));
    }
}
