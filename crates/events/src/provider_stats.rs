//! What a provider counts about itself. The server exports it; what is counted by topic is in
//! [`topics`](crate::topic_stats).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::topic_stats::{StreamCounts, TopicStats, TopicRegistry};

/// Is a provider usable?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProviderState {
    /// Never connected so far; it keeps trying.
    Connecting,
    /// Usable.
    Connected,
    /// It was connected and is trying again.
    Disconnected,
}

impl ProviderState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Connecting, Self::Connected, Self::Disconnected];

    /// As metrics and the admin pages show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
        }
    }
}

/// What an error of a provider has to do with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// A connection could not be made, or was lost.
    Connection,
    /// The broker refuses a subscription, or has ended it.
    Subscription,
    /// An event was not published.
    Publication,
    /// Whatever else the broker, or its client library, complains of.
    Other,
}

impl ErrorKind {
    /// Each of them.
    pub const ALL: [Self; 4] =
        [Self::Connection, Self::Subscription, Self::Publication, Self::Other];

    /// As metrics show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Subscription => "subscription",
            Self::Publication => "publication",
            Self::Other => "other",
        }
    }
}

/// Counters of one provider. All of them only grow, except `streams`.
#[derive(Debug, Default)]
pub struct ProviderStats {
    /// Events that came from the broker (memory: that were published while someone listened).
    pub received: AtomicU64,
    /// Events that the broker took from us.
    pub published: AtomicU64,
    /// Connections made after the first one.
    pub reconnects: AtomicU64,
    /// Events that did not fit a stream's queue, as far as they could be counted.
    pub dropped: AtomicU64,
    /// Gaps announced to streams.
    pub gaps: AtomicU64,
    /// Streams open now.
    pub streams: AtomicU64,
    errors: [AtomicU64; ErrorKind::ALL.len()],
    state: AtomicU8,
    topics: TopicRegistry,
}

impl ProviderStats {
    /// Errors of one kind.
    pub fn errors(&self, kind: ErrorKind) -> u64 {
        self.errors[kind as usize].load(Relaxed)
    }

    /// Errors of all kinds.
    pub fn all_errors(&self) -> u64 {
        self.errors.iter().map(|errors| errors.load(Relaxed)).sum()
    }

    /// What is counted by topic: at most [`TOPICS_NAMED_MAX`](crate::TOPICS_NAMED_MAX) under their names, in order, and
    /// the others together.
    pub fn topics(&self) -> Vec<(Box<str>, Arc<TopicStats>)> {
        self.topics.list()
    }

    /// For a new stream of these topics.
    pub(crate) fn stream_counts<'t>(
        &self,
        wanted: impl IntoIterator<Item = &'t str>,
    ) -> StreamCounts {
        StreamCounts::new(&self.topics, wanted)
    }

    pub(crate) fn record_error(&self, kind: ErrorKind) {
        Self::add(&self.errors[kind as usize], 1);
    }

    /// Somebody wanted to publish to that topic.
    pub(crate) fn record_publication(&self, topic: &str, is_done: bool) {
        let of_topic = self.topics.stats_of(topic);
        if is_done {
            Self::add(&self.published, 1);
            Self::add(&of_topic.published, 1);
        } else {
            self.record_error(ErrorKind::Publication);
            Self::add(&of_topic.publish_failures, 1);
        }
    }

    /// Is it usable?
    pub fn state(&self) -> ProviderState {
        match self.state.load(Relaxed) {
            1 => ProviderState::Connected,
            2 => ProviderState::Disconnected,
            _ => ProviderState::Connecting,
        }
    }

    pub(crate) fn set_state(&self, state: ProviderState) {
        let value = match state {
            ProviderState::Connecting => 0,
            ProviderState::Connected => 1,
            ProviderState::Disconnected => 2,
        };
        self.state.store(value, Relaxed);
    }

    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Relaxed);
    }

    pub(crate) fn subtract(counter: &AtomicU64, count: u64) {
        counter.fetch_sub(count, Relaxed);
    }
}
