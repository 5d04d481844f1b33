//! The border to brokers: what a provider can do, and what comes out of it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::ProviderStats;
use crate::check::{self, TopicUse, Verdict};

/// A boxed future that may move between threads.
pub type EventFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One configured broker: `Source` and `Sink` in one, since both share its connection.
pub trait Provider: Send + Sync {
    /// `kind/id`, such as `nats/default`: the name in configuration, logs, metrics and directives.
    fn name(&self) -> &str;

    /// Opens one stream over all topics of `wanted`. It reconnects and resumes by itself; only what it
    /// cannot mend ends it. Dropping the stream unsubscribes.
    fn subscribe(&self, wanted: Wanted) -> EventFuture<'_, Result<EventStream, SourceError>>;

    /// Publishes and waits until the broker has it, as far as the broker can say.
    fn publish(&self, message: Message) -> EventFuture<'_, Result<(), PublishError>>;

    /// Publishes and waits up to `timeout` for an answer from whoever listens.
    fn request(
        &self,
        message: Message,
        timeout: Duration,
    ) -> EventFuture<'_, Result<Bytes, PublishError>> {
        let _ = timeout;
        let refused = PublishError::Refused {
            provider: self.name().into(),
            topic: message.topic,
            reason: "this kind of broker has no requests with answers".into(),
        };
        Box::pin(std::future::ready(Err(refused)))
    }

    /// Can a stream of that kind begin after an event of the past, and do its events say where they stand?
    fn replays(&self, durable: Option<&Durable>) -> bool {
        let _ = durable;
        false
    }

    /// True if a stream of that kind can end with the last event that is stored when it is opened.
    fn has_ends(&self, durable: Option<&Durable>) -> bool {
        let _ = durable;
        false
    }

    /// Ends all streams that listen to `topic`, as complete. Returns how many.
    ///
    /// # Errors
    /// The provider is not a broker in this process, and does not know the listeners of a topic.
    fn complete(&self, topic: &str) -> Result<usize, &'static str> {
        let _ = topic;
        Err("only streams of a memory provider can be completed")
    }

    /// Would that work? Changes nothing at the broker. What cannot be tried is [`Verdict::Unknown`].
    fn check(&self, wanted: TopicUse) -> EventFuture<'_, Verdict> {
        Box::pin(async move {
            match wanted.usage {
                TopicUsage::Subscribe => check::by_subscribing(self, &wanted).await,
                TopicUsage::Publish => {
                    Verdict::Unknown("this kind of broker tells only who publishes".into())
                }
            }
        })
    }

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

    /// May a header of that name travel beside what is published? `Err` says why not.
    fn check_header(&self, name: &str) -> Result<(), &'static str> {
        let _ = name;
        Ok(())
    }

    /// Characters that divide topics into tokens at the broker. A value from a client contains none of them unless
    /// the template of the topic allows several tokens.
    fn topic_separators(&self) -> &'static [char] {
        &[]
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

/// What a stream is to bring.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Wanted {
    /// One or more.
    pub topics: Vec<Box<str>>,
    /// From where on.
    pub start: Start,
    /// Read what the broker stores rather than what it passes on, where it makes a difference.
    pub durable: Option<Arc<Durable>>,
    /// End with the last event that is stored when the stream is opened. Only where [`Provider::has_ends`].
    pub bounded: bool,
}

impl Wanted {
    /// Everything from now on.
    pub fn new(topics: Vec<Box<str>>) -> Self {
        Self { topics, ..Self::default() }
    }

    /// The same from elsewhere.
    #[must_use]
    pub fn starting(self, start: Start) -> Self {
        Self { start, ..self }
    }
}

/// What the broker stores: a JetStream stream, Redis Streams. Kafka and memory need none of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Durable {
    /// The JetStream stream; none: the one that has the subjects.
    pub stream: Option<Box<str>>,
    /// Begin of the name of the consumer that each router keeps at the broker; none: nothing is kept there.
    pub consumer: Option<Box<str>>,
    /// How long the broker keeps a consumer that nobody reads; none: as the broker does by default.
    pub inactive_threshold: Option<Duration>,
}

/// Where a stream begins.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Start {
    /// From now on.
    #[default]
    New,
    /// With the oldest event that there is.
    All,
    /// With the latest event of the stream.
    Last,
    /// With the latest event of each topic.
    LastPerTopic,
    /// With the first event since.
    Since(SystemTime),
    /// With that number in each lane.
    At(u64),
    /// After that position. `Err(SourceError::Gone)` where the broker has dropped what follows it.
    After(Position),
}

/// A place in one of the ordered sequences that a stream is made of, its lanes: a topic of the memory provider,
/// a JetStream stream, a partition of Kafka, a key of Redis Streams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Mark {
    /// The provider's number of the lane; the same in every router for the same topics.
    pub lane: u32,
    /// Grows along the lane.
    pub offset: u64,
    /// Where offsets have two parts (Redis Streams): the second; otherwise 0.
    pub part: u64,
}

/// How far a stream was read: at most one mark for each lane, in order of the lanes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Position(Vec<Mark>);

impl Position {
    /// The marks, in order of their lanes.
    pub fn marks(&self) -> &[Mark] {
        &self.0
    }

    /// What was read of a lane; none: nothing.
    pub fn lane(&self, lane: u32) -> Option<Mark> {
        let at = self.0.binary_search_by_key(&lane, |mark| mark.lane).ok()?;
        self.0.get(at).copied()
    }

    /// Goes on to `mark` in its lane. Never back: false if the lane was read further already, or as far.
    pub fn advance(&mut self, mark: Mark) -> bool {
        match self.0.binary_search_by_key(&mark.lane, |known| known.lane) {
            Ok(at) if self.0[at] >= mark => false,
            Ok(at) => {
                self.0[at] = mark;
                true
            }
            Err(at) => {
                self.0.insert(at, mark);
                true
            }
        }
    }
}

impl FromIterator<Mark> for Position {
    fn from_iter<I: IntoIterator<Item = Mark>>(marks: I) -> Self {
        let mut position = Self::default();
        for mark in marks {
            position.advance(mark);
        }
        position
    }
}

/// Names and values that travel beside a payload. Bounded by what the broker takes.
pub type Headers = Vec<(Box<str>, Bytes)>;

/// An event to publish.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// Where to.
    pub topic: Box<str>,
    /// As it is.
    pub payload: Bytes,
    /// What keeps events in order and together, where the broker knows keys.
    pub key: Option<Bytes>,
    /// Left out where the broker knows none.
    pub headers: Headers,
    /// Store it rather than pass it on, where it makes a difference: the entry of a Redis Stream.
    pub durable: bool,
}

impl Message {
    /// Without key and headers.
    pub fn new(topic: impl Into<Box<str>>, payload: impl Into<Bytes>) -> Self {
        Self { topic: topic.into(), payload: payload.into(), ..Self::default() }
    }
}

/// One event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The topic it was published to (not the pattern subscribed to).
    pub topic: Arc<str>,
    /// As published.
    pub payload: Bytes,
    /// Where it stands, if the stream can be opened after it.
    pub mark: Option<Mark>,
    /// Its key, where the broker knows keys and it has one.
    pub key: Option<Bytes>,
    /// What travels beside the payload; none: nothing does.
    pub headers: Option<Arc<Headers>>,
    /// When the broker got it, if it says so.
    pub published: Option<SystemTime>,
}

impl Event {
    /// An event that nothing is known of but this.
    pub fn new(topic: impl Into<Arc<str>>, payload: impl Into<Bytes>) -> Self {
        let (topic, payload) = (topic.into(), payload.into());
        Self { topic, payload, mark: None, key: None, headers: None, published: None }
    }

    /// The same at `mark`.
    #[must_use]
    pub fn at(self, mark: Mark) -> Self {
        Self { mark: Some(mark), ..self }
    }
}

/// What a stream yields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceMessage {
    /// An event, shared: of a queue's 32 places at a time the most are empty, and a topic that nobody publishes to
    /// shall not pay for 32 events.
    Event(Arc<Event>),
    /// A lane was read up to there, whatever of it was wanted. Streams whose events have marks begin with one for
    /// each lane that holds something, so that their position is known before the first event.
    Passed(Mark),
    /// Events may have been lost here: reconnected without replay, or the broker dropped some.
    Gap,
    /// Nothing follows.
    End(StreamEnd),
}

/// Why a stream ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamEnd {
    /// The source has an end, and every event before it was handed on.
    #[error("the source is complete")]
    Complete,
    /// The provider was shut down with its configuration.
    #[error("the provider was closed")]
    Closed,
    /// The broker refuses (permissions, unknown topic).
    #[error("the broker refused: {0}")]
    Refused(String),
    /// What was listened to was deleted.
    #[error("{0} was deleted")]
    Gone(String),
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
    /// The stream cannot be opened like that: nothing is stored there, or the broker refuses.
    #[error("provider {provider}: {reason}")]
    Refused {
        /// `kind/id`
        provider: Box<str>,
        /// Why, without credentials.
        reason: String,
    },
    /// What follows the position to start after is stored no more, or never was.
    #[error("provider {provider} has no more of what follows that position")]
    Gone {
        /// `kind/id`
        provider: Box<str>,
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
    /// Nobody listens there who could answer a request.
    #[error("nobody answers requests at provider {provider}, topic {topic:?}")]
    NoResponder {
        /// `kind/id`
        provider: Box<str>,
        /// As rendered.
        topic: Box<str>,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(lane: u32, offset: u64) -> Mark {
        Mark { lane, offset, part: 0 }
    }

    #[test]
    fn a_position_goes_on_in_each_lane_and_never_back() {
        let mut position: Position =
            [mark(7, 1), mark(2, 9), mark(7, 3), mark(2, 4)].into_iter().collect();
        assert_eq!(position.marks(), [mark(2, 9), mark(7, 3)]);
        assert!(!position.advance(mark(7, 3)));
        assert!(position.advance(mark(7, 4)));
        assert!(position.advance(mark(5, 0)));
        assert_eq!(position.marks(), [mark(2, 9), mark(5, 0), mark(7, 4)]);
        assert_eq!([position.lane(7), position.lane(6)], [Some(mark(7, 4)), None]);
    }
}
