//! The table of Pub/Sub subscriptions: streams, their channels and patterns, and the state of each at the broker.
//! Events go from the connection's reader directly into the bounded queues of the streams, so that nothing waits in
//! between and nothing can accumulate there. The table does no I/O.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;

use super::channel_name::is_pattern;
use crate::shared_subscriptions::{OpenedStream, SharedSubscriptions, UnusedSubscriptions};
use crate::{Event, EventStream, ProviderStats, StreamRequest};

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

/// The next request to the broker, in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct SubscribeBatch {
    pub(super) unsubscribe: Vec<Arc<str>>,
    pub(super) subscribe: Vec<Arc<str>>,
}

/// A new stream, and when it is in force.
pub(super) struct PubSubStream {
    pub(super) stream: EventStream,
    /// Resolves to the id of the stream when it was dropped. It must then be closed.
    pub(super) dropped: BoxFuture<'static, u64>,
    /// The number of the batch with which all channels of the stream are in force, from 1; 0 if they are already.
    pub(super) confirmed_by: u64,
}

/// The streams of one connection, with the state of their channels and patterns at the broker.
#[derive(Debug)]
pub(super) struct SubscriptionTable {
    /// The subscriptions by channel or by pattern. No name is both.
    channels: SharedSubscriptions<SubscribeState>,
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
            channels: SharedSubscriptions::new(queue_events, stats),
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
    pub(super) fn open(
        &mut self,
        StreamRequest { topics, start, .. }: StreamRequest,
    ) -> PubSubStream {
        let names = self.channels.distinct_names(topics);
        let mut confirmed_by = 0;
        for name in &names {
            let state = self.channels.get(name).copied().unwrap_or(SubscribeState::NotRequested);
            confirmed_by = confirmed_by.max(match state {
                SubscribeState::NotRequested => self.batches + 1,
                SubscribeState::Requested => self.batches,
                SubscribeState::Confirmed => 0,
            });
            self.has_new |= state == SubscribeState::NotRequested;
        }
        let OpenedStream { stream, dropped } =
            self.channels.open(names, &start, |_| SubscribeState::NotRequested);
        PubSubStream { stream, dropped, confirmed_by }
    }

    /// Closes a stream that was dropped.
    pub(super) fn close(&mut self, id: u64) {
        let unused = self.channels.close(id);
        self.unsubscribe(unused);
    }

    /// Ends the streams of a channel that the broker refuses.
    pub(super) fn end_refused(&mut self, name: &str, reason: &str) {
        let Some(state) = self.channels.get_mut(name) else { return };
        // This prevents unsubscribing from a channel that is not subscribed to.
        *state = SubscribeState::NotRequested;
        let unused = self.channels.end_refused(name, reason);
        self.unsubscribe(unused);
    }

    fn unsubscribe(&mut self, unused: UnusedSubscriptions<SubscribeState>) {
        let requested = |(_, state): &(_, SubscribeState)| *state != SubscribeState::NotRequested;
        self.unwanted.extend(unused.into_iter().filter(requested).map(|(name, _)| name));
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
            for (name, state) in self.channels.iter_mut() {
                if *state == SubscribeState::NotRequested {
                    *state = SubscribeState::Requested;
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
            if let Some(state) = self.channels.get_mut(name)
                && *state == SubscribeState::Requested
            {
                *state = SubscribeState::Confirmed;
            }
        }
        self.batches
    }

    /// Announces a gap to every stream after a loss of the connection, and marks all channels as not requested. Returns
    /// the number of streams.
    pub(super) fn on_lost(&mut self) -> usize {
        self.unwanted.clear();
        self.has_new = false;
        for (_, state) in self.channels.iter_mut() {
            *state = SubscribeState::NotRequested;
            self.has_new = true;
        }
        // A failed attempt to reconnect loses nothing more, so it makes no second gap.
        self.channels.announce_gap();
        self.channels.stream_count()
    }

    /// Ends all streams.
    pub(super) fn end_all(&mut self) {
        self.channels.end_all();
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
                    && self.channels.get(name) == Some(&SubscribeState::Confirmed)
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
        self.channels.deliver(name, |name| {
            let topic = match topic {
                Some(topic) => String::from_utf8_lossy(&topic).into(),
                None => Arc::clone(name),
            };
            Event::new(topic, payload)
        });
    }
}

/// Separates channels from patterns, because each has a command of its own.
pub(super) fn split_patterns(names: &[Arc<str>]) -> (Vec<&str>, Vec<&str>) {
    let (patterns, channels) = names.iter().map(|name| &**name).partition(|name| is_pattern(name));
    (channels, patterns)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use futures_util::FutureExt;

    use super::*;
    use crate::{SourceMessage, Start};

    impl SubscriptionTable {
        fn stats(&self) -> &ProviderStats {
            self.channels.stats()
        }
    }

    fn channels() -> SubscriptionTable {
        SubscriptionTable::new(8, Arc::default())
    }

    fn open(channels: &mut SubscriptionTable, topics: &[&str]) -> PubSubStream {
        channels.open(StreamRequest::new(topics.iter().map(|&topic| topic.into()).collect()))
    }

    fn close(channels: &mut SubscriptionTable, PubSubStream { stream, dropped, .. }: PubSubStream) {
        drop(stream);
        channels.close(dropped.now_or_never().expect("the stream was dropped"));
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
                SourceMessage::Progress(_) => "passed".into(),
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
        assert_eq!(channels.stats().received.load(Relaxed), 2);
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
        close(&mut channels, first);
        assert_eq!(channels.on_confirmed(&batch.unwrap()), 1);
        assert_eq!(open(&mut channels, &["a"]).confirmed_by, 0);
        assert_eq!(next_words(&mut channels).0, "+c -b");
        assert_eq!(next_words(&mut channels).0, "");
        assert_eq!(channels.stats().streams.load(Relaxed), 3);
    }

    #[test]
    fn a_channel_requested_again_before_it_was_unsubscribed_is_subscribed_to_again() {
        let mut channels = channels();
        let first = open(&mut channels, &["a"]);
        let (_, batch) = next_words(&mut channels);
        close(&mut channels, first);
        let again = open(&mut channels, &["a"]);
        channels.on_confirmed(&batch.unwrap());
        assert_eq!(again.confirmed_by, 2);
        assert_eq!(next_words(&mut channels).0, "+a -a", "first unsubscribed, then subscribed");
    }

    #[test]
    fn a_channel_that_was_not_requested_yet_is_dropped_without_a_command() {
        let mut channels = channels();
        let first = open(&mut channels, &["a"]);
        close(&mut channels, first);
        assert_eq!(next_words(&mut channels).0, "");
    }

    #[test]
    fn a_lost_connection_makes_one_gap_and_requests_everything_again() {
        let mut channels = channels();
        let mut stream = open(&mut channels, &["a", "b"]).stream;
        let (_, batch) = next_words(&mut channels);
        channels.on_confirmed(&batch.unwrap());
        let gone = open(&mut channels, &["c"]);
        close(&mut channels, gone);
        assert_eq!(channels.on_lost(), 1);
        assert_eq!(channels.on_lost(), 1, "a reconnect failed half-way");
        assert_eq!(channels.stats().gaps.load(Relaxed), 1);
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
        let counted =
            [&channels.stats().dropped, &channels.stats().gaps].map(|it| it.load(Relaxed));
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
        assert_eq!(channels.stats().streams.load(Relaxed), 1);
    }

    #[test]
    fn a_stream_that_begins_in_the_past_begins_with_a_gap() {
        let mut channels = channels();
        let mut opened = channels.open(StreamRequest::new(vec!["a".into()]).with_start(Start::All));
        assert_eq!(heard(&mut opened.stream), ["gap"]);
    }

    #[test]
    fn commands_separate_channels_from_patterns() {
        let names = ["a", "b*", "c", "d?"].map(Arc::from);
        assert_eq!(split_patterns(&names), (vec!["a", "c"], vec!["b*", "d?"]));
    }
}
