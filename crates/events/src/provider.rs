//! The interface to brokers: what a provider can do, and why it cannot publish.

use std::time::Duration;

use bytes::Bytes;

use crate::event::Message;
use crate::event_stream::{Durable, EventStream, SourceError, StreamRequest};
use crate::provider_log::hide_topic;
use crate::provider_stats::ProviderStats;
use crate::topic::{TopicUsage, check_plain_topic};
use crate::topic_check::{self, TopicUse, Verdict};

/// A boxed future that may move between threads.
pub type EventFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One configured broker. Subscribing and publishing are one trait because both share its connections.
pub trait Provider: Send + Sync {
    /// Returns `kind/id`, such as `nats/default`: the name in configuration, logs, metrics and directives.
    fn name(&self) -> &str;

    /// Opens one stream over all topics of `wanted`. The stream reconnects and resumes by itself, and ends only for
    /// reasons that the provider cannot repair. Dropping the stream unsubscribes.
    fn subscribe(&self, wanted: StreamRequest)
    -> EventFuture<'_, Result<EventStream, SourceError>>;

    /// Publishes an event and waits until the broker has it, as far as the broker confirms that.
    fn publish(&self, message: Message) -> EventFuture<'_, Result<(), PublishError>>;

    /// Publishes a request and waits up to `timeout` for the response of a subscriber.
    fn request(
        &self,
        message: Message,
        timeout: Duration,
    ) -> EventFuture<'_, Result<Bytes, PublishError>> {
        let _ = timeout;
        let refused = PublishError::Refused {
            provider: self.name().into(),
            topic: message.topic,
            reason: "this kind of broker does not support requests with responses".into(),
        };
        Box::pin(std::future::ready(Err(refused)))
    }

    /// True if a stream of that kind can begin after an event of the past, and its events have offsets.
    fn replays(&self, durable: Option<&Durable>) -> bool {
        let _ = durable;
        false
    }

    /// True if a stream of that kind can end with the last event that is stored when it is opened.
    fn has_bounded_streams(&self, durable: Option<&Durable>) -> bool {
        let _ = durable;
        false
    }

    /// Ends all streams that listen to `topic` with [`StreamEnd::Complete`](crate::StreamEnd::Complete). Returns their
    /// number.
    ///
    /// # Errors
    /// The provider is not a broker in this process, so it does not know the listeners of a topic.
    fn complete(&self, topic: &str) -> Result<usize, &'static str> {
        let _ = topic;
        Err("only streams of a memory provider can be completed")
    }

    /// Checks whether a use of a topic would work, without changing anything at the broker. The verdict is
    /// [`Verdict::Unknown`] if that cannot be tried.
    fn check(&self, wanted: TopicUse) -> EventFuture<'_, Verdict> {
        Box::pin(async move {
            match wanted.usage {
                TopicUsage::Subscribe => {
                    topic_check::judge_stream(self.subscribe(wanted.into())).await
                }
                TopicUsage::Publish => Verdict::Unknown(
                    "this kind of broker reports permission to publish only when an event is published"
                        .into(),
                ),
            }
        })
    }

    /// True if the provider is connected now.
    fn is_connected(&self) -> bool;

    /// Waits a moment for a connection, for a router that should start only if all its brokers are available. The
    /// error is the reason why there is none, without credentials.
    fn wait_connected(&self) -> EventFuture<'_, Result<(), String>> {
        let connected = self.is_connected();
        Box::pin(async move { if connected { Ok(()) } else { Err("not connected".into()) } })
    }

    /// Returns the counters and the state of the provider, for metrics.
    fn stats(&self) -> &ProviderStats;

    /// Checks that the broker accepts `topic` for that use. The error is the rule that the topic breaks.
    fn check_topic(&self, topic: &str, usage: TopicUsage) -> Result<(), &'static str> {
        let _ = usage;
        check_plain_topic(topic)
    }

    /// Checks that published events may have a header of that name. The error is the reason why not.
    fn check_header(&self, name: &str) -> Result<(), &'static str> {
        let _ = name;
        Ok(())
    }

    /// Returns the characters that divide topics into tokens at the broker. A value from a client contains none of them
    /// unless the template of the topic allows several tokens.
    fn topic_separators(&self) -> &'static [char] {
        &[]
    }

    /// Returns the wildcard that stands for any value in the topic of a stream of that kind, or for any token where
    /// topics have tokens. `None` if there is none.
    fn topic_wildcard(&self, durable: Option<&Durable>) -> Option<&'static str> {
        let _ = durable;
        None
    }

    /// Checks that a value from a client may be part of a topic. This is stricter than [`Provider::check_topic`]: a
    /// value must not turn one topic into many, nor reach topics that belong to the broker itself. `at_start` is true
    /// if the topic begins with the value.
    fn check_topic_value(&self, value: &str, at_start: bool) -> Result<(), &'static str> {
        let _ = at_start;
        check_plain_topic(value)
    }
}

/// The reason why an event could not be published.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PublishError {
    /// There is no connection to the broker at present.
    #[error("provider {provider} is not connected: {reason}")]
    Unavailable {
        /// The name of the provider, `kind/id`.
        provider: Box<str>,
        /// The latest error, without credentials.
        reason: String,
    },
    /// The topic has no subscriber that could respond to the request.
    #[error("topic {topic:?} of provider {provider} has no subscriber that responds to requests")]
    NoResponder {
        /// The name of the provider, `kind/id`.
        provider: Box<str>,
        /// The topic as rendered from its template.
        topic: Box<str>,
    },
    /// The broker or its rules refuse this event.
    #[error("provider {provider} refused the event for topic {topic:?}: {reason}")]
    Refused {
        /// The name of the provider, `kind/id`.
        provider: Box<str>,
        /// The topic as rendered from its template.
        topic: Box<str>,
        /// The reason.
        reason: String,
    },
}

impl PublishError {
    /// Returns the reason without the topic, which may contain values of clients.
    pub fn reason_without_topic(&self) -> String {
        match self {
            Self::Unavailable { reason, .. } => reason.clone(),
            Self::NoResponder { .. } => "the topic has no subscriber that responds".to_owned(),
            Self::Refused { topic, reason, .. } => hide_topic(reason, topic).into_owned(),
        }
    }
}
