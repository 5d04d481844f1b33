//! NATS core: one connection per provider, one broker subscription per distinct subject, shared by all
//! streams that want it. No replay: what was published while the connection was down is lost, and the
//! streams hear of a gap.
//!
//! The broker may be away at any time, also at start. A task of its own holds the connection
//! ([`connection`]); it retries with jittered backoff until the provider is dropped.

mod address;
mod connection;
mod session;
mod subject;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

pub use address::{NatsAuthentication, NatsSettingsError};

use crate::{
    EventFuture, EventStream, Message, Provider, ProviderState, ProviderStats, PublishError, Retry,
    SourceError, TopicUsage, Wanted,
};
use address::Address;
use connection::{Command, Link};

/// How long a new subscription or a publication waits for the connection before it fails: covers the
/// start of the router and a broker that restarts, and is not felt as hanging.
const CONNECT_GRACE: Duration = Duration::from_secs(1);

/// How long a publication may take to leave through the socket of a broker that stopped reading.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Subscriptions that wait for the connection's task. It answers in microseconds; more than this many
/// at once means that it is busy, and then `subscribe` waits.
const COMMANDS_MAX: usize = 1024;

/// What one NATS provider needs to know.
#[derive(Clone)]
pub struct NatsSettings {
    /// The part of the name after `nats/`.
    pub id: Box<str>,
    /// `nats://host:port`, several separated by commas. It may carry `user:password@` or `token@`; they
    /// are taken out at once and never shown.
    pub url: String,
    /// Overrides what `url` carries.
    pub authentication: Option<NatsAuthentication>,
    /// How to come back.
    pub retry: Retry,
    /// Events that wait in one stream.
    pub queue_events: usize,
}

impl std::fmt::Debug for NatsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the URL, which may hold credentials.
        f.debug_struct("NatsSettings")
            .field("id", &self.id)
            .field("authentication", &self.authentication)
            .field("retry", &self.retry)
            .field("queue_events", &self.queue_events)
            .finish_non_exhaustive()
    }
}

/// A NATS provider. Dropping it ends its streams and closes its connection.
#[derive(Debug)]
pub struct Nats {
    name: Box<str>,
    stats: Arc<ProviderStats>,
    link: watch::Receiver<Link>,
    commands: mpsc::Sender<Command>,
}

impl Nats {
    /// Starts connecting in the background; must be called inside a Tokio runtime with time and I/O, which then
    /// carries the connection. Fails only for settings that can never work.
    pub fn start(settings: NatsSettings) -> Result<Self, NatsSettingsError> {
        let addresses = Address::parse_list(&settings.url, settings.authentication.as_ref())?;
        let name: Box<str> = format!("nats/{}", settings.id).into();
        let stats = Arc::new(ProviderStats::default());
        let (link_sender, link) = watch::channel(Link::Away("not connected yet".into()));
        let (commands, command_receiver) = mpsc::channel(COMMANDS_MAX);
        let task = connection::Connection::new(
            name.clone(),
            addresses,
            settings.retry,
            settings.queue_events,
            Arc::clone(&stats),
            link_sender,
            command_receiver,
        );
        tokio::spawn(task.run());
        Ok(Self { name, stats, link, commands })
    }

    /// The client of the present connection; waits a moment for one.
    async fn client(&self) -> Result<async_nats::Client, String> {
        let mut link = self.link.clone();
        let connected = link.wait_for(|link| matches!(link, Link::Up(_)));
        if let Ok(Ok(link)) = timeout(CONNECT_GRACE, connected).await
            && let Link::Up(client) = &*link
        {
            return Ok(client.clone());
        }
        match &*self.link.borrow() {
            Link::Up(client) => Ok(client.clone()),
            Link::Away(reason) => Err(reason.to_string()),
        }
    }

    fn unavailable(&self, reason: String) -> SourceError {
        SourceError::Unavailable { provider: self.name.clone(), reason }
    }

    async fn subscribe_soon(&self, wanted: Wanted) -> Result<EventStream, SourceError> {
        for topic in &wanted.topics {
            subject::check(topic, TopicUsage::Subscribe).map_err(|reason| {
                SourceError::InvalidTopic {
                    provider: self.name.clone(),
                    topic: topic.clone(),
                    reason: reason.into(),
                }
            })?;
        }
        self.client().await.map_err(|reason| self.unavailable(reason))?;
        let (reply, answer) = oneshot::channel();
        let closed = || self.unavailable("the provider was closed".into());
        self.commands.send(Command::Subscribe { wanted, reply }).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?.map_err(|reason| self.unavailable(reason))
    }

    async fn publish_soon(&self, topic: &str, payload: Bytes) -> Result<(), PublishError> {
        let refused = |reason: &str| PublishError::Refused {
            provider: self.name.clone(),
            topic: topic.into(),
            reason: reason.into(),
        };
        let unavailable =
            |reason: String| PublishError::Unavailable { provider: self.name.clone(), reason };
        subject::check(topic, TopicUsage::Publish).map_err(refused)?;
        let client = self.client().await.map_err(unavailable)?;
        let sent = async {
            client.publish(topic.to_owned(), payload).await.map_err(|error| {
                match error.kind() {
                    async_nats::PublishErrorKind::MaxPayloadExceeded => {
                        refused("it is larger than the broker accepts")
                    }
                    async_nats::PublishErrorKind::InvalidSubject => {
                        refused("the subject is invalid")
                    }
                    async_nats::PublishErrorKind::Send => {
                        unavailable("the connection was lost".into())
                    }
                }
            })?;
            client.flush().await.map_err(|_| unavailable("the connection was lost".into()))
        };
        match timeout(PUBLISH_TIMEOUT, sent).await {
            Ok(result) => result,
            Err(_) => Err(unavailable("the broker did not take the event within 5 s".into())),
        }
    }
}

impl Provider for Nats {
    fn name(&self) -> &str {
        &self.name
    }

    /// Core NATS has no past: a start other than [`Start::New`] begins with a gap.
    fn subscribe(&self, wanted: Wanted) -> EventFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(self.subscribe_soon(wanted))
    }

    /// Returns when the event has left through the socket. NATS core confirms nothing; what the broker refuses
    /// for lack of permission is logged and counted when it says so.
    fn publish(&self, message: Message) -> EventFuture<'_, Result<(), PublishError>> {
        Box::pin(async move {
            let result = self.publish_soon(&message.topic, message.payload).await;
            let counter = if result.is_ok() { &self.stats.published } else { &self.stats.errors };
            ProviderStats::add(counter, 1);
            result
        })
    }

    fn is_connected(&self) -> bool {
        self.stats.state() == ProviderState::Connected
    }

    fn connected(&self) -> EventFuture<'_, Result<(), String>> {
        Box::pin(async move { self.client().await.map(drop) })
    }

    fn stats(&self) -> &ProviderStats {
        &self.stats
    }

    fn check_topic(&self, topic: &str, usage: TopicUsage) -> Result<(), &'static str> {
        subject::check(topic, usage)
    }

    fn check_topic_value(&self, value: &str, at_start: bool) -> Result<(), &'static str> {
        subject::check_value(value, at_start)
    }
}
