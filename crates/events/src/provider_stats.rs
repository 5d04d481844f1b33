//! Counters and state of one provider, which the server exports. Counters by topic are in
//! [`topic_stats`](crate::topic_stats).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use telemetry::LogLimit;

use crate::event::SchemaTopic;
use crate::topic_stats::{StreamCounts, TopicRegistry, TopicStats};

/// The state of the connection of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProviderState {
    /// The provider has never been connected so far, and keeps trying.
    Connecting,
    /// The provider is connected.
    Connected,
    /// The provider was connected, lost the connection and is trying again.
    Disconnected,
}

impl ProviderState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Connecting, Self::Connected, Self::Disconnected];

    /// Returns the name of the state in metrics and on the admin pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
        }
    }
}

/// The kind of operation in which a provider failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// A connection could not be made, or was lost.
    Connection,
    /// The broker refused a subscription, or ended it.
    Subscription,
    /// An event was not published.
    Publication,
    /// Any other error that the broker or its client library reports.
    Other,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [Self; 4] =
        [Self::Connection, Self::Subscription, Self::Publication, Self::Other];

    /// Returns the name of the kind in metrics.
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
    /// The number of events received from the broker. For a memory provider: events published while a stream listened.
    pub received: AtomicU64,
    /// The number of events that the broker accepted from the router.
    pub published: AtomicU64,
    /// The number of connections made after the first one.
    pub reconnects: AtomicU64,
    /// The number of events that did not fit into the queue of a stream, as far as they could be counted.
    pub dropped: AtomicU64,
    /// The number of gaps announced to streams.
    pub gaps: AtomicU64,
    /// The number of streams that are open now.
    pub streams: AtomicU64,
    /// Limits the log lines about streams that could not be opened. Clients choose their topics.
    pub refused_stream_log: LogLimit,
    /// Limits the log lines about events that were not published, and about requests that failed.
    pub publication_log: LogLimit,
    errors: [AtomicU64; ErrorKind::ALL.len()],
    state: AtomicU8,
    topics: TopicRegistry,
}

impl ProviderStats {
    /// Returns the number of errors of one kind.
    pub fn errors(&self, kind: ErrorKind) -> u64 {
        self.errors[kind as usize].load(Relaxed)
    }

    /// Returns the number of errors of all kinds.
    pub fn all_errors(&self) -> u64 {
        self.errors.iter().map(|errors| errors.load(Relaxed)).sum()
    }

    /// Returns the counters by topic: at most [`TOPICS_NAMED_MAX`](crate::TOPICS_NAMED_MAX) topics in the order of
    /// their names, then all other topics together.
    pub fn topics(&self) -> Vec<(Box<str>, Arc<TopicStats>)> {
        self.topics.list()
    }

    /// Registers a topic of a schema, such as `moved.{{args.id}}`. Topics that it can be rendered to are counted under
    /// its name, because they may contain values of clients. `texts` are those around its placeholders, and around its
    /// wildcards if it has placeholders.
    pub fn register_topic(&self, name: &str, texts: &[String]) {
        self.topics.register(name, texts);
    }

    /// Returns the registered topic that a topic was rendered from, with or without placeholders, if there is one. It
    /// contains no values of clients.
    pub(crate) fn schema_topic(&self, topic: &str) -> Option<Box<str>> {
        self.topics.schema_topic(topic)
    }

    /// Returns the registered topic with placeholders that a topic was rendered from, if there is one.
    pub fn topic_template(&self, topic: &str) -> Option<Box<str>> {
        self.topics.template_of(topic)
    }

    /// Returns a topic without values of clients, for logs and the pages of operators: the registered topic that it was
    /// rendered from, and if that has placeholders, also a fingerprint of the rendered topic, such as
    /// `moved.{{args.id}} #3fa9c1d2`. A topic that is not registered is a fingerprint only.
    pub fn masked_topic(&self, topic: &str) -> String {
        self.topics.masked(topic)
    }

    /// Makes the counters for a new stream of these topics.
    pub(crate) fn stream_counts<'t>(
        &self,
        wanted: impl IntoIterator<Item = &'t str>,
    ) -> StreamCounts {
        StreamCounts::new(&self.topics, wanted)
    }

    /// Counts an error.
    pub(crate) fn record_error(&self, kind: ErrorKind) {
        Self::add(&self.errors[kind as usize], 1);
    }

    /// Counts the result of publishing to that topic, which was rendered from `template` if that is known.
    pub(crate) fn record_publication(
        &self,
        topic: &str,
        template: Option<&SchemaTopic>,
        is_done: bool,
    ) {
        let of_topic = self.topics.stats_of_rendered(topic, template);
        if is_done {
            Self::add(&self.published, 1);
            Self::add(&of_topic.published, 1);
        } else {
            self.record_error(ErrorKind::Publication);
            Self::add(&of_topic.publish_failures, 1);
        }
    }

    /// Waits for the result of publishing to that topic, and counts it.
    pub(crate) async fn count_publication<T, E>(
        &self,
        topic: &str,
        template: Option<&SchemaTopic>,
        publishing: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let result = publishing.await;
        self.record_publication(topic, template, result.is_ok());
        result
    }

    /// Returns the state of the connection.
    pub fn state(&self) -> ProviderState {
        match self.state.load(Relaxed) {
            1 => ProviderState::Connected,
            2 => ProviderState::Disconnected,
            _ => ProviderState::Connecting,
        }
    }

    /// Sets the state of the connection.
    pub(crate) fn set_state(&self, state: ProviderState) {
        let value = match state {
            ProviderState::Connecting => 0,
            ProviderState::Connected => 1,
            ProviderState::Disconnected => 2,
        };
        self.state.store(value, Relaxed);
    }

    /// Increases a counter.
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Relaxed);
    }

    /// Decreases a counter.
    pub(crate) fn subtract(counter: &AtomicU64, count: u64) {
        counter.fetch_sub(count, Relaxed);
    }
}
