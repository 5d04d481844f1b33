//! Streams of events: the request that opens one, the messages that it yields, and the errors that prevent or end it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;

use crate::event::Event;
use crate::position::{PartitionOffset, Position};
use crate::provider_log::hide_topics;

/// The topics and the beginning of a stream that a provider should open.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct StreamRequest {
    /// One or more topics.
    pub topics: Vec<Box<str>>,
    /// The place where the stream begins.
    pub start: Start,
    /// Reads the events that the broker stores rather than those that it distributes, where the two differ.
    pub durable: Option<Arc<Durable>>,
    /// Ends the stream with the last event that is stored when the stream is opened. Requires
    /// [`Provider::has_bounded_streams`](crate::Provider::has_bounded_streams).
    pub bounded: bool,
}

impl StreamRequest {
    /// Requests all events that are published from now on.
    pub fn new(topics: Vec<Box<str>>) -> Self {
        Self { topics, ..Self::default() }
    }

    /// Returns the same request with another start.
    #[must_use]
    pub fn with_start(self, start: Start) -> Self {
        Self { start, ..self }
    }
}

/// Settings for streams that the broker stores: a JetStream stream or Redis Streams. Kafka and memory do not need them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Durable {
    /// The JetStream stream. `None` selects the stream that has the subjects.
    pub stream: Option<Box<str>>,
    /// The prefix of the name of the consumer that each router keeps at the broker. `None` keeps no consumer there.
    pub consumer: Option<Box<str>>,
    /// The time for which the broker keeps a consumer that is not read. `None` means the broker's default.
    pub inactive_threshold: Option<Duration>,
}

/// The place where a stream begins.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Start {
    /// Begins with the next event that is published.
    #[default]
    New,
    /// Begins with the oldest event that is stored.
    All,
    /// Begins with the latest event of the stream.
    Last,
    /// Begins with the latest event of each topic.
    LastPerTopic,
    /// Begins with the first event that was published at that time or later.
    Since(SystemTime),
    /// Begins with that offset in each partition.
    At(u64),
    /// Begins after that position. Fails with [`SourceError::Gone`] if the broker has deleted events behind it.
    After(Position),
}

/// A message of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceMessage {
    /// An event. It is shared because most of a queue's 32 slots are empty most of the time, and a topic without
    /// events should not reserve the memory of 32 events.
    Event(Arc<Event>),
    /// The offset up to which a partition was read, including events that were filtered out. A stream whose events have
    /// offsets begins with one such message for each partition that is not empty, so that its position is known before
    /// the first event.
    Progress(PartitionOffset),
    /// Events may have been lost here: the provider reconnected without replay, or the broker dropped some.
    Gap,
    /// The last message of the stream.
    End(StreamEnd),
}

/// The reason why a stream ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamEnd {
    /// The source has an end, and every event before it was delivered.
    #[error("the source is complete")]
    Complete,
    /// The provider was shut down with its configuration.
    #[error("the provider was closed")]
    Closed,
    /// The broker refuses the subscription, because of permissions or an unknown topic.
    #[error("the broker refused: {0}")]
    Refused(String),
    /// The topic or stream was deleted.
    #[error("{0} was deleted")]
    Gone(String),
    /// A subgraph's subscription cannot continue. The reason contains no credentials, and may be shown to clients.
    #[error("{0}")]
    Failed(String),
}

/// An open stream of one or more topics.
#[derive(Debug)]
pub struct EventStream {
    /// The queue of messages, with room for the provider's `queue_events`. A provider that finds it full drops events
    /// and sends a gap.
    pub messages: mpsc::Receiver<SourceMessage>,
}

/// The reason why a stream could not be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SourceError {
    /// There is no connection to the broker at present. The provider keeps trying.
    #[error("provider {provider} is not connected: {reason}")]
    Unavailable {
        /// The name of the provider, `kind/id`.
        provider: Box<str>,
        /// The latest error, without credentials.
        reason: String,
    },
    /// The broker does not accept the topic.
    #[error("provider {provider} does not accept topic {topic:?}: {reason}")]
    InvalidTopic {
        /// The name of the provider, `kind/id`.
        provider: Box<str>,
        /// The topic as rendered from its template.
        topic: Box<str>,
        /// The rule that the topic breaks.
        reason: String,
    },
    /// The stream cannot be opened as requested: nothing is stored there, or the broker refuses.
    #[error("provider {provider}: {reason}")]
    Refused {
        /// The name of the provider, `kind/id`.
        provider: Box<str>,
        /// The reason, without credentials.
        reason: String,
    },
    /// A subgraph did not begin the subscription.
    #[error("{source_name}: {reason}")]
    Subgraph {
        /// The name of the source, `subgraph/name`.
        source_name: Box<str>,
        /// The reason, without credentials, so that it may be shown to clients.
        reason: String,
    },
    /// The events behind the requested position are not stored any more, or never were.
    #[error("provider {provider} no longer has the events after that position")]
    Gone {
        /// The name of the provider, `kind/id`.
        provider: Box<str>,
    },
}

impl StreamEnd {
    /// Returns the reason without the topics of the stream, which may contain values of clients.
    pub fn reason_without_topics(&self, topics: &[Box<str>]) -> String {
        hide_topics(&self.to_string(), topics)
    }
}

impl SourceError {
    /// Returns the reason without the topics that were requested, which may contain values of clients.
    pub fn reason_without_topics(&self, topics: &[Box<str>]) -> String {
        match self {
            Self::Unavailable { reason, .. } | Self::Subgraph { reason, .. } => reason.clone(),
            Self::InvalidTopic { reason, .. } => format!("it does not accept a topic: {reason}"),
            Self::Refused { reason, .. } => hide_topics(reason, topics),
            Self::Gone { .. } => "it no longer has the events after that position".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_the_end_of_a_stream_has_no_topics() {
        let topics: [Box<str>; 1] = ["moved.s3cret".into()];
        for (end, expected) in [
            (StreamEnd::Gone("topic moved.s3cret".into()), "topic … was deleted"),
            (
                StreamEnd::Refused("no permission to read \"moved.s3cret\"".into()),
                "the broker refused: no permission to read \"…\"",
            ),
            (StreamEnd::Closed, "the provider was closed"),
        ] {
            assert_eq!(end.reason_without_topics(&topics), expected);
        }
    }

    #[test]
    fn the_reason_for_a_warning_has_no_topics() {
        let (provider, topic): (Box<str>, Box<str>) =
            ("nats/default".into(), "moved.s3cret".into());
        let reason = "no permission to read \"moved.s3cret\"".to_owned();
        let refused = SourceError::Refused { provider: provider.clone(), reason };
        let reason = "a token is empty".to_owned();
        let invalid = SourceError::InvalidTopic { provider, topic: topic.clone(), reason };
        for (error, expected) in [
            (refused, "no permission to read \"…\""),
            (invalid, "it does not accept a topic: a token is empty"),
        ] {
            assert!(error.to_string().contains("s3cret"), "{error}");
            assert_eq!(error.reason_without_topics(std::slice::from_ref(&topic)), expected);
        }
    }
}
