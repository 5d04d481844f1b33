//! Redis Pub/Sub (and what speaks like it: Valkey, KeyDB, Dragonfly), by channel and by pattern. One
//! connection for all subscriptions, one broker subscription per distinct channel, shared by all streams
//! that want it, and one connection to publish through, so that a flood of events delays no publication.
//! No replay: what was published while the connection was down is lost, and the streams hear of a gap.
//!
//! The broker may be away at any time, also at start. Two tasks hold the connections ([`subscriber`],
//! [`publisher`]); they retry with jittered backoff until the provider is dropped. In a Redis Cluster every
//! node passes on what is published at any other, so that any of them will do.

mod address;
mod channel;
mod channels;
mod publisher;
mod session;
mod subscriber;

use std::sync::Arc;
use std::time::Duration;

use net::TlsClient;
use redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

pub use address::{RedisAuthentication, RedisSettingsError};

use crate::{
    EventFuture, EventStream, Message, Provider, ProviderState, ProviderStats, PublishError, Retry,
    SourceError, TopicUsage, Wanted,
};
use address::Address;
use session::Dialer;
use subscriber::{Command, Subscriber};

/// How long a new subscription or a publication waits for the connection before it fails: covers the
/// start of the router and a broker that restarts, and is not felt as hanging.
const CONNECT_GRACE: Duration = Duration::from_secs(1);

/// Subscriptions that wait for the connection's task. It answers in microseconds; more than this many
/// at once means that it is busy, and then `subscribe` waits.
const COMMANDS_MAX: usize = 1024;

/// What one Redis provider needs to know.
#[derive(Clone)]
pub struct RedisSettings {
    /// The part of the name after `redis/`.
    pub id: Box<str>,
    /// `redis://host:port`, `rediss://host:port` (TLS) or `unix:///path`; several name nodes of one
    /// cluster, of which the first that answers is taken. They may carry `user:password@` or
    /// `:password@`; those are taken out at once and never shown.
    pub urls: Vec<String>,
    /// Overrides what `urls` carry.
    pub authentication: Option<RedisAuthentication>,
    /// For `rediss`; none: trusts what the system trusts.
    pub tls: Option<TlsClient>,
    /// How to come back.
    pub retry: Retry,
    /// Events that wait in one stream.
    pub queue_events: usize,
}

impl std::fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the URLs, which may hold credentials.
        f.debug_struct("RedisSettings")
            .field("id", &self.id)
            .field("authentication", &self.authentication)
            .field("retry", &self.retry)
            .field("queue_events", &self.queue_events)
            .finish_non_exhaustive()
    }
}

/// A connection as the provider sees it.
#[derive(Debug)]
enum Link<T> {
    /// Usable.
    Up(T),
    /// Not now, for this reason (no credentials in it).
    Away(Box<str>),
}

/// A Redis provider. Dropping it ends its streams and closes its connections.
#[derive(Debug)]
pub struct Redis {
    name: Box<str>,
    stats: Arc<ProviderStats>,
    subscriptions: watch::Receiver<Link<()>>,
    publishing: watch::Receiver<Link<MultiplexedConnection>>,
    commands: mpsc::Sender<Command>,
}

impl Redis {
    /// Starts connecting in the background; must be called inside a Tokio runtime with time and I/O, which then
    /// carries the connections. Fails only for settings that can never work.
    pub fn start(settings: RedisSettings) -> Result<Self, RedisSettingsError> {
        let RedisSettings { id, urls, authentication, tls, retry, queue_events } = settings;
        let addresses = Address::parse_list(&urls, authentication.as_ref(), tls.as_ref())?;
        let name: Box<str> = format!("redis/{id}").into();
        let stats = Arc::new(ProviderStats::default());
        let dialer =
            |purpose| Dialer::new(&name, purpose, addresses.clone(), retry, Arc::clone(&stats));
        let (link, subscriptions) = watch::channel(Link::Away("not connected yet".into()));
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let subscriber = Subscriber::new(
            name.clone(),
            dialer("subscriptions"),
            queue_events,
            Arc::clone(&stats),
            link,
            receiver,
        );
        tokio::spawn(subscriber.run());
        let (link, publishing) = watch::channel(Link::Away("not connected yet".into()));
        tokio::spawn(publisher::run(dialer("publishing"), link));
        Ok(Self { name, stats, subscriptions, publishing, commands })
    }

    async fn subscribe_soon(&self, wanted: Wanted) -> Result<EventStream, SourceError> {
        for topic in &wanted.topics {
            channel::check(topic, TopicUsage::Subscribe).map_err(|reason| {
                SourceError::InvalidTopic {
                    provider: self.name.clone(),
                    topic: topic.clone(),
                    reason: reason.into(),
                }
            })?;
        }
        let unavailable =
            |reason: String| SourceError::Unavailable { provider: self.name.clone(), reason };
        soon(&self.subscriptions).await.map_err(unavailable)?;
        let (reply, answer) = oneshot::channel();
        let closed = || unavailable("the provider was closed".into());
        self.commands.send(Command::Subscribe { wanted, reply }).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?.map_err(unavailable)
    }

    async fn publish_soon(&self, topic: &str, payload: &[u8]) -> Result<(), PublishError> {
        let refused = |reason: String| PublishError::Refused {
            provider: self.name.clone(),
            topic: topic.into(),
            reason,
        };
        let unavailable =
            |reason: String| PublishError::Unavailable { provider: self.name.clone(), reason };
        channel::check(topic, TopicUsage::Publish).map_err(|reason| refused(reason.into()))?;
        let connection = soon(&self.publishing).await.map_err(unavailable)?;
        publisher::publish(connection, topic, payload).await.map_err(|error| {
            let reason = session::said(&error);
            if session::is_refusal(&error) { refused(reason) } else { unavailable(reason) }
        })
    }
}

/// What the link carries; waits a moment for it.
async fn soon<T: Clone>(link: &watch::Receiver<Link<T>>) -> Result<T, String> {
    let mut link = link.clone();
    // Whatever it is after that: the reason, unless it came up in the last moment.
    let _ = timeout(CONNECT_GRACE, link.wait_for(|link| matches!(link, Link::Up(_)))).await;
    match &*link.borrow() {
        Link::Up(carried) => Ok(carried.clone()),
        Link::Away(reason) => Err(reason.to_string()),
    }
}

impl Provider for Redis {
    fn name(&self) -> &str {
        &self.name
    }

    /// Pub/Sub has no past: a start other than [`Start::New`] begins with a gap.
    fn subscribe(&self, wanted: Wanted) -> EventFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(self.subscribe_soon(wanted))
    }

    /// Returns when the broker has passed the event on to all who listen, at that node of a cluster.
    fn publish(&self, message: Message) -> EventFuture<'_, Result<(), PublishError>> {
        Box::pin(async move {
            let result = self.publish_soon(&message.topic, &message.payload).await;
            let counter = if result.is_ok() { &self.stats.published } else { &self.stats.errors };
            ProviderStats::add(counter, 1);
            result
        })
    }

    fn is_connected(&self) -> bool {
        self.stats.state() == ProviderState::Connected
            && matches!(&*self.publishing.borrow(), Link::Up(_))
    }

    fn connected(&self) -> EventFuture<'_, Result<(), String>> {
        Box::pin(async move {
            soon(&self.subscriptions).await?;
            soon(&self.publishing).await.map(drop)
        })
    }

    fn stats(&self) -> &ProviderStats {
        &self.stats
    }

    fn check_topic(&self, topic: &str, usage: TopicUsage) -> Result<(), &'static str> {
        channel::check(topic, usage)
    }

    fn check_topic_value(&self, value: &str, at_start: bool) -> Result<(), &'static str> {
        channel::check_value(value, at_start)
    }
}
