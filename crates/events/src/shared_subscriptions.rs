//! Streams that share subscriptions at a broker: one subscription for each distinct name (a subject, channel or
//! pattern), used by all streams that request it. NATS core and Redis Pub/Sub use this; it does no I/O.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::event::Event;
use crate::event_queue::{EventSender, SendOutcome};
use crate::event_stream::{EventStream, Start, StreamEnd};
use crate::provider_stats::ProviderStats;

/// The open streams of one connection, with their shared subscriptions. `S` is the state of a subscription.
#[derive(Debug)]
pub(crate) struct SharedSubscriptions<S> {
    queue_events: usize,
    stats: Arc<ProviderStats>,
    subscriptions: HashMap<Arc<str>, Subscription<S>>,
    streams: HashMap<u64, OpenStream>,
    next_stream: u64,
}

/// A subscription with the ids of its streams.
#[derive(Debug)]
struct Subscription<S> {
    state: S,
    streams: Vec<u64>,
}

/// An open stream with the names of its subscriptions.
#[derive(Debug)]
struct OpenStream {
    sender: EventSender,
    names: Vec<Arc<str>>,
}

/// Names and states of subscriptions that no stream uses any more, and that were removed.
pub(crate) type UnusedSubscriptions<S> = Vec<(Arc<str>, S)>;

/// A stream that was just opened.
pub(crate) struct OpenedStream {
    /// The receiving half for the subscriber.
    pub(crate) stream: EventStream,
    /// Resolves to the id of the stream when it was dropped. It must then be closed.
    pub(crate) dropped: BoxFuture<'static, u64>,
}

impl<S> SharedSubscriptions<S> {
    pub(crate) fn new(queue_events: usize, stats: Arc<ProviderStats>) -> Self {
        let (subscriptions, streams) = (HashMap::new(), HashMap::new());
        Self { queue_events, stats, subscriptions, streams, next_stream: 0 }
    }

    /// Returns the distinct names in `topics`, which share their text with existing subscriptions. A topic that is
    /// named twice delivers each event once.
    pub(crate) fn distinct_names(&self, topics: Vec<Box<str>>) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = Vec::with_capacity(topics.len());
        for topic in topics {
            if !names.iter().any(|name| **name == *topic) {
                let known = self.subscriptions.get_key_value(&*topic);
                names.push(known.map_or_else(|| topic.into(), |(name, _)| Arc::clone(name)));
            }
        }
        names
    }

    /// Returns the state of a subscription.
    pub(crate) fn get(&self, name: &str) -> Option<&S> {
        self.subscriptions.get(name).map(|subscription| &subscription.state)
    }

    /// Returns the state of a subscription for changes.
    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut S> {
        self.subscriptions.get_mut(name).map(|subscription| &mut subscription.state)
    }

    /// Iterates over all names and the states of their subscriptions.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut S)> {
        let subscriptions = self.subscriptions.iter_mut();
        subscriptions.map(|(name, subscription)| (name, &mut subscription.state))
    }

    /// Returns the number of open streams.
    pub(crate) fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Opens a stream over distinct `names`. A name without a subscription gets one with the state `new_state`. The
    /// events of the past are not available here, so a stream that begins in the past begins with a gap.
    pub(crate) fn open(
        &mut self,
        names: Vec<Arc<str>>,
        start: &Start,
        mut new_state: impl FnMut(&Arc<str>) -> S,
    ) -> OpenedStream {
        let id = self.next_stream;
        self.next_stream += 1;
        let (mut sender, stream) = EventSender::new(self.queue_events);
        sender.set_counts(self.stats.stream_counts(names.iter().map(|name| &**name)));
        if *start != Start::New {
            ProviderStats::add(&self.stats.gaps, sender.announce_gap().into());
        }
        for name in &names {
            let subscription = self.subscriptions.entry(Arc::clone(name));
            let subscription = subscription.or_insert_with_key(|name| Subscription {
                state: new_state(name),
                streams: vec![],
            });
            subscription.streams.push(id);
        }
        let dropped = sender.closed().map(move |()| id).boxed();
        self.streams.insert(id, OpenStream { sender, names });
        ProviderStats::add(&self.stats.streams, 1);
        OpenedStream { stream, dropped }
    }

    /// Closes a stream that was dropped. Returns the subscriptions that no other stream uses.
    pub(crate) fn close(&mut self, id: u64) -> UnusedSubscriptions<S> {
        self.remove(id).map_or_else(Vec::new, |(_, unused)| unused)
    }

    /// Ends all streams of a subscription that the broker refuses. Returns the subscriptions that no other stream uses.
    pub(crate) fn end_refused(&mut self, name: &str, reason: &str) -> UnusedSubscriptions<S> {
        let mut all_unused = Vec::new();
        for id in self.streams_of(name) {
            if let Some((sender, unused)) = self.remove(id) {
                sender.end(StreamEnd::Refused(reason.to_owned()));
                all_unused.extend(unused);
            }
        }
        all_unused
    }

    /// Ends all streams because the provider was dropped.
    pub(crate) fn end_all(&mut self) {
        self.subscriptions.clear();
        for (_, stream) in self.streams.drain() {
            stream.sender.end(StreamEnd::Closed);
        }
    }

    /// Announces to all streams that events may be missing here.
    pub(crate) fn announce_gap(&mut self) {
        for stream in self.streams.values_mut() {
            ProviderStats::add(&self.stats.gaps, stream.sender.announce_gap().into());
        }
    }

    /// Announces to the streams of one subscription that events may be missing here.
    pub(crate) fn announce_gap_in(&mut self, name: &str) {
        for id in self.streams_of(name) {
            if let Some(stream) = self.streams.get_mut(&id) {
                ProviderStats::add(&self.stats.gaps, stream.sender.announce_gap().into());
            }
        }
    }

    /// Delivers an event to the streams of a subscription. `make_event` gets the name of the subscription.
    // hot path: once per event and subscription; its budget is the number of streams of the subscription.
    pub(crate) fn deliver(&mut self, name: &str, make_event: impl FnOnce(&Arc<str>) -> Event) {
        let Some((name, subscription)) = self.subscriptions.get_key_value(name) else { return };
        ProviderStats::add(&self.stats.received, 1);
        let event = Arc::new(make_event(name));
        for id in &subscription.streams {
            let Some(stream) = self.streams.get_mut(id) else { continue };
            // A stream that was dropped is closed when `OpenedStream::dropped` resolves.
            if let SendOutcome::Dropped { starts_gap } = stream.sender.try_send(Arc::clone(&event))
            {
                ProviderStats::add(&self.stats.dropped, 1);
                ProviderStats::add(&self.stats.gaps, starts_gap.into());
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn stats(&self) -> &ProviderStats {
        &self.stats
    }

    fn streams_of(&self, name: &str) -> Vec<u64> {
        self.subscriptions.get(name).map_or_else(Vec::new, |found| found.streams.clone())
    }

    fn remove(&mut self, id: u64) -> Option<(EventSender, UnusedSubscriptions<S>)> {
        let OpenStream { sender, names } = self.streams.remove(&id)?;
        ProviderStats::subtract(&self.stats.streams, 1);
        let mut unused = Vec::new();
        for name in names {
            let Some(subscription) = self.subscriptions.get_mut(&name) else { continue };
            subscription.streams.retain(|&stream| stream != id);
            if subscription.streams.is_empty()
                && let Some(subscription) = self.subscriptions.remove(&name)
            {
                unused.push((name, subscription.state));
            }
        }
        Some((sender, unused))
    }
}
