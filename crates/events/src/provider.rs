//! The border to brokers: what a provider can do, and what comes out of it.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::ProviderStats;

/// A boxed future that may move between threads.
pub type EventFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One configured broker: `Source` and `Sink` in one, since both share its connection.
pub trait Provider: Send + Sync {
    /// `kind/id`, such as `nats/default`: the name in configuration, logs, metrics and directives.
    fn name(&self) -> &str;

    /// Opens one stream over all `topics`. It reconnects and resumes by itself; only what it cannot
    /// mend ends it. Dropping the stream unsubscribes.
    fn subscribe(
        &self,
        topics: Vec<Box<str>>,
        from: Position,
    ) -> EventFuture<'_, Result<EventStream, SourceError>>;

    /// Publishes and waits until the broker has it, as far as the broker can say.
    fn publish(&self, topic: &str, payload: Bytes) -> EventFuture<'_, Result<(), PublishError>>;

    /// Is it connected now?
    fn is_connected(&self) -> bool;

    /// Waits a moment for a connection. `Err` says why there is none, without credentials: for a router
    /// that is told to start only with all its brokers.
    fn connected(&self) -> EventFuture<'_, Result<(), String>> {
        let connected = self.is_connected();
        Box::pin(async move { if connected { Ok(()) } else { Err("not connected".into()) } })
    }

    /// Counters and state, for metrics.
    fn stats(&self) -> &ProviderStats;

    /// Does the broker accept `topic` for that use? `Err` says which rule it breaks.
    fn check_topic(&self, topic: &str, usage: TopicUsage) -> Result<(), &'static str> {
        let _ = usage;
        plain_topic(topic)
    }

    /// May a value that comes from a client stand in a topic? Stricter than [`Provider::check_topic`]:
    /// a value must not turn one topic into many, nor reach topics that belong to the broker itself.
    /// `at_start`: nothing stands before it.
    fn check_topic_value(&self, value: &str, at_start: bool) -> Result<(), &'static str> {
        let _ = at_start;
        plain_topic(value)
    }
}

/// What a topic is used for; patterns may be subscribed to but not published to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopicUsage {
    /// Events are read from it.
    Subscribe,
    /// Events are written to it.
    Publish,
}

/// Longest topic in bytes. NATS takes 4 KiB for a whole control line and Kafka 249 bytes for a name;
/// 1 KiB leaves room for both and keeps what a client can make us remember small.
pub const TOPIC_BYTES_MAX: usize = 1024;

/// The rule that every provider has at least: something, not too long, no control characters.
pub(crate) fn plain_topic(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        Err("it is empty")
    } else if text.len() > TOPIC_BYTES_MAX {
        Err("it is longer than 1024 bytes")
    } else if text.chars().any(char::is_control) {
        Err("it contains a control character")
    } else {
        Ok(())
    }
}

/// Where a stream begins or an event stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Position {
    /// From now on.
    #[default]
    New,
    /// After the event with this number (memory: position in the topic's ring).
    After(u64),
}

/// One event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The topic it was published to (not the pattern subscribed to).
    pub topic: Arc<str>,
    /// As published.
    pub payload: Bytes,
    /// Its number in the topic, where the broker counts.
    pub sequence: Option<u64>,
}

/// What a stream yields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceMessage {
    /// An event.
    Event(Event),
    /// Events may have been lost here: reconnected without replay, or the broker dropped some.
    Gap,
    /// Nothing follows.
    End(StreamEnd),
}

/// Why a stream ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamEnd {
    /// The provider was shut down with its configuration.
    #[error("the provider was closed")]
    Closed,
    /// The broker refuses (permissions, unknown topic).
    #[error("the broker refused: {0}")]
    Refused(String),
}

/// A live stream of one or more topics.
#[derive(Debug)]
pub struct EventStream {
    /// Bounded by the provider's `queue_events`; a provider that finds it full drops and sends a gap.
    pub messages: mpsc::Receiver<SourceMessage>,
}

/// Why a subscription could not start.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SourceError {
    /// Not connected at present; the provider keeps trying.
    #[error("provider {provider} is not connected: {reason}")]
    Unavailable {
        /// `kind/id`
        provider: Box<str>,
        /// Last error, without credentials.
        reason: String,
    },
    /// The topic is not one this broker accepts.
    #[error("provider {provider} does not accept topic {topic:?}: {reason}")]
    InvalidTopic {
        /// `kind/id`
        provider: Box<str>,
        /// As rendered.
        topic: Box<str>,
        /// Which rule it breaks.
        reason: String,
    },
}

/// Why an event could not be published.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PublishError {
    /// Not connected at present.
    #[error("provider {provider} is not connected: {reason}")]
    Unavailable {
        /// `kind/id`
        provider: Box<str>,
        /// Last error, without credentials.
        reason: String,
    },
    /// The broker or its rules refuse this event.
    #[error("provider {provider} refused the event for topic {topic:?}: {reason}")]
    Refused {
        /// `kind/id`
        provider: Box<str>,
        /// As rendered.
        topic: Box<str>,
        /// Why.
        reason: String,
    },
}
