//! Redis and compatible brokers (Valkey, KeyDB, Dragonfly): Pub/Sub by channel and by pattern, and Redis Streams.
//!
//! Pub/Sub uses one connection for all subscriptions, with one broker subscription per distinct channel, shared by all
//! streams that use it. Publishing uses another connection, so that many events do not delay a publication. There is no
//! replay: events published while the connection was down are lost, and the streams receive a gap. Redis Streams are
//! stored and read by entry id ([`streams`]); their connections are made when the first stream is opened.
//!
//! The broker may be unavailable at any time, also at start. Two tasks hold the connections ([`subscriber`],
//! [`publisher`]). They retry with jittered backoff until the provider is dropped. In a Redis Cluster each node
//! distributes the events that are published at any other, so a connection to one of them is enough.

mod channel_name;
mod cluster_connections;
mod dialer;
mod merged_stream;
mod publisher;
mod sharded_pubsub;
mod streams;
mod subscriber;
mod subscriptions;

use std::sync::Arc;

use net::TlsClient;
use redis::RedisError;
use redis::aio::MultiplexedConnection;
use redis_connection::{Cluster, RedisAddress, Sentinel, ServerSource};
use tokio::sync::{mpsc, watch};

pub use redis_connection::{RedisAuthentication, RedisSettingsError};

use crate::connection_state::{
    self, COMMANDS_MAX, ConnectionState, SubscribeCommand, wait_connected,
};
use crate::provider_log::ProviderLog;
use crate::{
    Durable, EventFuture, EventStream, Message, Provider, ProviderState, ProviderStats,
    PublishError, Retry, SourceError, StreamRequest, TopicUsage, TopicUse, Verdict, topic_check,
};
use cluster_connections::{ClusterConnections, CommandError};
use dialer::DialerFactory;
use sharded_pubsub::ShardedPubSub;
use streams::Streams;
use subscriber::{Subscriber, SubscriberKind};

/// Settings of one Redis provider.
#[derive(Clone)]
pub struct RedisSettings {
    /// The part of the name after `redis/`.
    pub id: Box<str>,
    /// `redis://host:port`, `rediss://host:port` (TLS) or `unix:///path`. Several URLs name nodes of one cluster, of
    /// which the first that responds is used. They may contain `user:password@` or `:password@`, which are removed
    /// immediately and never shown.
    pub urls: Vec<String>,
    /// The credentials. They override those in `urls`.
    pub authentication: Option<RedisAuthentication>,
    /// True if the servers are a cluster. Commands for a slot are then sent to the node that has it.
    pub cluster: bool,
    /// True if the events of a channel go through the node that has its slot, rather than through all nodes of the
    /// cluster.
    pub sharded: bool,
    /// The sentinel settings if `urls` are sentinels, which know the address of the server.
    pub sentinel: Option<RedisSentinel>,
    /// The TLS client for `rediss`. `None` trusts the authorities of the system.
    pub tls: Option<TlsClient>,
    /// The delays between attempts to connect.
    pub retry: Retry,
    /// The number of events that wait in one stream.
    pub queue_events: usize,
    /// The approximate number of entries that are kept in a Redis Stream when the router publishes to it; 0 keeps all.
    pub stream_entries_max: u64,
}

impl RedisSettings {
    /// The default of [`RedisSettings::stream_entries_max`]. Ten thousand entries of 1 KB have about 10 MB, and cover
    /// hours of most topics.
    pub const STREAM_ENTRIES_MAX: u64 = 10_000;

    /// Returns the settings for servers at these URLs, with defaults for everything else.
    pub fn new(id: &str, urls: Vec<String>) -> Self {
        Self {
            id: id.into(),
            urls,
            authentication: None,
            cluster: false,
            sharded: false,
            sentinel: None,
            tls: None,
            retry: Retry::default(),
            queue_events: QUEUE_EVENTS,
            stream_entries_max: Self::STREAM_ENTRIES_MAX,
        }
    }
}

/// The default number of events that wait in one stream: the same as for memory.
const QUEUE_EVENTS: usize = 1024;

/// Settings for sentinels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisSentinel {
    /// The name of the master that they watch.
    pub master: Box<str>,
    /// The credentials for the sentinels themselves.
    pub authentication: Option<RedisAuthentication>,
}

impl std::fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URLs are left out because they may contain credentials.
        f.debug_struct("RedisSettings")
            .field("id", &self.id)
            .field("authentication", &self.authentication)
            .field("cluster", &self.cluster)
            .field("sharded", &self.sharded)
            .field("sentinel", &self.sentinel)
            .field("retry", &self.retry)
            .field("queue_events", &self.queue_events)
            .field("stream_entries_max", &self.stream_entries_max)
            .finish_non_exhaustive()
    }
}

/// A Redis provider. Dropping it ends its streams and closes its connections.
pub struct Redis {
    name: Box<str>,
    stats: Arc<ProviderStats>,
    subscriptions: watch::Receiver<ConnectionState<()>>,
    publishing: watch::Receiver<ConnectionState<MultiplexedConnection>>,
    commands: mpsc::Sender<SubscribeCommand>,
    /// The subscriptions to sharded channels, if channels are sharded.
    sharded: Option<Arc<ShardedPubSub>>,
    /// The connections for publishing to keys of a cluster.
    cluster_connections: Option<ClusterConnections>,
    streams: Streams,
    stream_entries_max: u64,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Redis {
    /// Starts connecting in the background. Must be called inside a Tokio runtime with time and I/O, which then runs
    /// the connections. Fails only for settings that can never work.
    pub fn start(settings: RedisSettings) -> Result<Self, RedisSettingsError> {
        let RedisSettings {
            id,
            urls,
            authentication,
            cluster,
            sharded,
            sentinel,
            tls,
            retry,
            queue_events,
            stream_entries_max,
        } = settings;
        let source = match sentinel {
            None => {
                let servers =
                    RedisAddress::parse_list(&urls, authentication.as_ref(), tls.as_ref())?;
                ServerSource::Any(servers.into())
            }
            Some(RedisSentinel { master, authentication: own }) => {
                let sentinels = RedisAddress::parse_list(&urls, own.as_ref(), tls.as_ref())?;
                ServerSource::Master(Arc::new(Sentinel { master, sentinels, authentication }))
            }
        };
        let cluster = match &source {
            ServerSource::Any(seeds) if cluster => Some(Arc::new(Cluster::new(seeds.to_vec()))),
            _ => None,
        };
        let name: Box<str> = format!("redis/{id}").into();
        let stats = Arc::new(ProviderStats::default());
        let log = ProviderLog::new(&name, Arc::clone(&stats));
        let dialers =
            DialerFactory { log: Arc::clone(&log), source, retry, stats: Arc::clone(&stats) };
        let (state, subscriptions) = ConnectionState::channel();
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let subscriber = Subscriber::new(
            SubscriberKind::Ordinary,
            log,
            dialers.dialer("subscriptions"),
            queue_events,
            Arc::clone(&stats),
            state,
            receiver,
        );
        tokio::spawn(subscriber.run());
        let (state, publishing) = ConnectionState::channel();
        tokio::spawn(publisher::run(dialers.dialer("publishing"), state));
        let sharded = cluster
            .clone()
            .filter(|_| sharded)
            .map(|cluster| ShardedPubSub::new(cluster, dialers.clone(), queue_events));
        let cluster_connections =
            cluster.clone().map(|cluster| ClusterConnections::new(cluster, dialers.clone()));
        let streams = Streams::new(dialers, cluster, queue_events);
        Ok(Self {
            name,
            stats,
            subscriptions,
            publishing,
            commands,
            sharded,
            cluster_connections,
            streams,
            stream_entries_max,
        })
    }

    async fn open_stream(&self, wanted: StreamRequest) -> Result<EventStream, SourceError> {
        for topic in &wanted.topics {
            // Redis Streams and sharded channels have no patterns.
            let usage = match wanted.durable {
                None if self.sharded.is_none() => TopicUsage::Subscribe,
                _ => TopicUsage::Publish,
            };
            channel_name::check_channel(topic, usage).map_err(|reason| {
                SourceError::InvalidTopic {
                    provider: self.name.clone(),
                    topic: topic.clone(),
                    reason: reason.into(),
                }
            })?;
        }
        if wanted.durable.is_some() {
            return self.streams.open(&self.name, wanted).await;
        }
        if let Some(sharded) = &self.sharded {
            return sharded.open(&self.name, wanted).await;
        }
        let unavailable =
            |reason: String| SourceError::Unavailable { provider: self.name.clone(), reason };
        wait_connected(&self.subscriptions).await.map_err(unavailable)?;
        connection_state::subscribe(&self.commands, wanted).await.map_err(unavailable)
    }

    /// Checks the permission to publish with a transaction that is discarded. The server checks permissions before it
    /// queues a command of a transaction.
    async fn check_publish_permission(&self, wanted: TopicUse) -> Verdict {
        let durable = wanted.durable.is_some();
        if self.cluster_connections.is_some() && (durable || self.sharded.is_some()) {
            return Verdict::Unknown(
                "in a cluster only the node that has the slot knows the permission".into(),
            );
        }
        let mut connection = match wait_connected(&self.publishing).await {
            Ok(connection) => connection,
            Err(reason) => return Verdict::Fails(reason),
        };
        let message = Message { durable, ..Message::new(wanted.topic, "") };
        let command =
            publisher::publish_command(&message, self.stream_entries_max, self.sharded.is_some());
        let mut transaction = redis::pipe();
        transaction.cmd("MULTI").add_command(command).cmd("DISCARD");
        match transaction.query_async::<redis::Value>(&mut connection).await {
            Ok(_) => Verdict::Works,
            Err(error) => {
                let reason = redis_connection::error_text(&error);
                // A user without transactions may still be allowed to publish.
                let is_unknown = ["'multi'", "'discard'"].iter().any(|it| reason.contains(it));
                if is_unknown { Verdict::Unknown(reason) } else { Verdict::Fails(reason) }
            }
        }
    }

    async fn try_publish(&self, message: &Message) -> Result<(), PublishError> {
        let topic = &*message.topic;
        let refused = |reason: String| PublishError::Refused {
            provider: self.name.clone(),
            topic: topic.into(),
            reason,
        };
        let unavailable =
            |reason: String| PublishError::Unavailable { provider: self.name.clone(), reason };
        channel_name::check_channel(topic, TopicUsage::Publish)
            .map_err(|reason| refused(reason.into()))?;
        let command =
            publisher::publish_command(message, self.stream_entries_max, self.sharded.is_some());
        let failed = |error: &RedisError| {
            let reason = redis_connection::error_text(error);
            if redis_connection::is_refusal(error) { refused(reason) } else { unavailable(reason) }
        };
        if (message.durable || self.sharded.is_some())
            && let Some(cluster_connections) = &self.cluster_connections
        {
            let done =
                cluster_connections.send_command(redis_connection::slot_of(topic), &command).await;
            return done.map_err(|error| match error {
                CommandError::Unavailable(reason) => unavailable(reason),
                CommandError::Refused(error) => failed(&error),
            });
        }
        let mut connection = wait_connected(&self.publishing).await.map_err(unavailable)?;
        command.exec_async(&mut connection).await.map_err(|error| failed(&error))
    }
}

impl Provider for Redis {
    fn name(&self) -> &str {
        &self.name
    }

    /// Opens a stream. Pub/Sub has no past, so a start other than [`Start::New`](crate::Start::New) begins with a gap
    /// there. Durable streams are read from Redis Streams.
    fn subscribe(
        &self,
        wanted: StreamRequest,
    ) -> EventFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(self.open_stream(wanted))
    }

    /// Returns when the broker has delivered the event to all subscribers, at that node of a cluster, or has stored it
    /// in the stream.
    fn publish(&self, message: Message) -> EventFuture<'_, Result<(), PublishError>> {
        Box::pin(async move {
            let (topic, template) = (&message.topic, message.schema_topic.as_deref());
            self.stats.count_publication(topic, template, self.try_publish(&message)).await
        })
    }

    fn replays(&self, durable: Option<&Durable>) -> bool {
        durable.is_some()
    }

    fn check(&self, wanted: TopicUse) -> EventFuture<'_, Verdict> {
        Box::pin(async move {
            match wanted.usage {
                TopicUsage::Subscribe => {
                    topic_check::judge_stream(self.subscribe(wanted.into())).await
                }
                TopicUsage::Publish => self.check_publish_permission(wanted).await,
            }
        })
    }

    fn is_connected(&self) -> bool {
        self.stats.state() == ProviderState::Connected && self.publishing.borrow().is_connected()
    }

    fn wait_connected(&self) -> EventFuture<'_, Result<(), String>> {
        Box::pin(async move {
            wait_connected(&self.subscriptions).await?;
            wait_connected(&self.publishing).await.map(drop)
        })
    }

    fn stats(&self) -> &ProviderStats {
        &self.stats
    }

    fn check_topic(&self, topic: &str, usage: TopicUsage) -> Result<(), &'static str> {
        if self.sharded.is_some() && channel_name::is_pattern(topic) {
            return Err("a sharded channel cannot be a pattern (* ? [ \\)");
        }
        channel_name::check_channel(topic, usage)
    }

    fn topic_wildcard(&self, durable: Option<&Durable>) -> Option<&'static str> {
        (durable.is_none() && self.sharded.is_none()).then_some("*")
    }

    fn check_topic_value(&self, value: &str, at_start: bool) -> Result<(), &'static str> {
        channel_name::check_value(value, at_start)
    }
}
