//! Brokers behind one interface: memory, NATS, Kafka and Redis; and the interface of subgraphs that serve
//! subscriptions.
//!
//! Invariant: this crate knows topics, payloads and positions, and nothing of GraphQL execution. A [`Provider`] is one
//! configured broker. [`Providers`] finds it by the name that directives use. A [`SubscriptionClient`] is one subgraph.
//!
//! The feature `kafka` adds the Kafka client. Without it the settings are still known and checked, so that the error
//! for a configured Kafka cluster can name the feature.

mod backoff;
mod connection_state;
mod event;
mod event_queue;
mod event_stream;
#[cfg(feature = "kafka")]
mod kafka;
mod kafka_client;
mod kafka_settings;
mod memory;
mod metrics;
mod nats;
mod position;
mod provider;
mod provider_log;
mod provider_stats;
mod providers;
mod redis;
mod shared_subscriptions;
mod subscription_client;
mod tls;
mod topic;
mod topic_check;
mod topic_stats;

pub use backoff::{Backoff, Retry};
pub use event::{Event, Headers, Message, SchemaTopic};
pub use event_queue::{EventSender, SendOutcome};
pub use event_stream::{
    Durable, EventStream, SourceError, SourceMessage, Start, StreamEnd, StreamRequest,
};
#[cfg(feature = "kafka")]
pub use kafka::Kafka;
pub use kafka_client::{HAS_KAFKA, start_kafka};
pub use kafka_settings::{
    KafkaAuthentication, KafkaFetch, KafkaSettings, KafkaSettingsError, KafkaUser, is_kafka_broker,
};
pub use memory::{Memory, MemorySettings};
pub use metrics::{PROVIDER_METRICS, TOPIC_METRICS};
pub use nats::{Nats, NatsAuthentication, NatsSettings, NatsSettingsError};
pub use position::{PartitionOffset, Position};
pub use provider::{EventFuture, Provider, PublishError};
pub use provider_stats::{ErrorKind, ProviderState, ProviderStats};
pub use providers::{Providers, ProvidersError, ResolveError};
pub use redis::{Redis, RedisAuthentication, RedisSentinel, RedisSettings, RedisSettingsError};
pub use subscription_client::{SubgraphSubscription, SubscriptionClient};
pub use tls::{BrokerTls, BrokerTlsError};
pub use topic::{TOPIC_BYTES_MAX, TOPIC_WILDCARDS, TopicUsage};
pub use topic_check::{TopicUse, Verdict};
pub use topic_stats::{Lag, OTHER_TOPICS, TOPICS_NAMED_MAX, TopicStats};
