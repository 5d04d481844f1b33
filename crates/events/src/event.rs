//! Events as streams deliver them, and messages as the router publishes them.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::position::PartitionOffset;

/// Names and values that accompany a payload. The broker limits their size.
pub type Headers = Vec<(Box<str>, Bytes)>;

/// An event to publish.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// The topic to publish to.
    pub topic: Box<str>,
    /// The payload, which is published unchanged.
    pub payload: Bytes,
    /// The key that keeps events together and in order, at brokers that have keys.
    pub key: Option<Bytes>,
    /// The headers. They are left out at brokers that have none.
    pub headers: Headers,
    /// True if the broker should store the event rather than only distribute it, where the two differ: the event
    /// becomes an entry of a Redis Stream.
    pub durable: bool,
    /// The topic of the schema that `topic` was rendered from, by which metrics and warnings name it. Without it, the
    /// provider looks for one that matches.
    pub schema_topic: Option<Arc<SchemaTopic>>,
}

/// A topic as a schema names it. It contains no values of clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaTopic {
    /// The name, such as `moved.{{args.id}}`.
    pub name: Box<str>,
    /// True if topics that are rendered from it contain values of requests.
    pub has_placeholders: bool,
}

impl Message {
    /// Makes a message without key and headers.
    pub fn new(topic: impl Into<Box<str>>, payload: impl Into<Bytes>) -> Self {
        Self { topic: topic.into(), payload: payload.into(), ..Self::default() }
    }
}

/// An event that a stream delivers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The topic that the event was published to, not the pattern that was subscribed to.
    pub topic: Arc<str>,
    /// The payload as published.
    pub payload: Bytes,
    /// The offset of the event, if a stream can be opened after it.
    pub partition_offset: Option<PartitionOffset>,
    /// The key, if the broker has keys and the event has one.
    pub key: Option<Bytes>,
    /// The headers, or `None` if there are none.
    pub headers: Option<Arc<Headers>>,
    /// The time at which the broker received the event, if the broker reports it.
    pub published: Option<SystemTime>,
}

impl Event {
    /// Makes an event that has only a topic and a payload.
    pub fn new(topic: impl Into<Arc<str>>, payload: impl Into<Bytes>) -> Self {
        let (topic, payload) = (topic.into(), payload.into());
        Self { topic, payload, partition_offset: None, key: None, headers: None, published: None }
    }

    /// Returns the event with the offset `partition_offset`.
    #[must_use]
    pub fn at(self, partition_offset: PartitionOffset) -> Self {
        Self { partition_offset: Some(partition_offset), ..self }
    }
}
