//! Brokers behind `Source` and `Sink`: memory, NATS, Kafka and Redis.
//!
//! Invariant: topics, payloads and positions are all this crate knows; nothing of GraphQL execution.
//! A [`Provider`] is one configured broker, [`Providers`] finds it by the name that directives use.

mod backoff;
mod feed;
mod kafka;
mod memory;
mod nats;
mod provider;
mod providers;
mod redis;
mod stats;
mod tls;

pub use backoff::Retry;
pub use kafka::{
    Kafka, KafkaAuthentication, KafkaFetch, KafkaSettings, KafkaSettingsError, KafkaTls, KafkaUser,
    is_kafka_broker,
};
pub use memory::{Memory, MemorySettings};
pub use nats::{Nats, NatsAuthentication, NatsSettings, NatsSettingsError};
pub use provider::{
    Durable, Event, EventFuture, EventStream, Headers, Mark, Message, Position, Provider,
    PublishError, SourceError, SourceMessage, Start, StreamEnd, TOPIC_BYTES_MAX, TopicUsage,
    Wanted,
};
pub use providers::{Providers, ProvidersError, ResolveError};
pub use redis::{Redis, RedisAuthentication, RedisSentinel, RedisSettings, RedisSettingsError};
pub use stats::{ErrorKind, ProviderState, ProviderStats};
pub use tls::{BrokerTls, BrokerTlsError};
