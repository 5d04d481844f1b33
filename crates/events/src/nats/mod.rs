//! NATS: one connection per provider.
//!
//! **Core** is what [`connection`] does: one broker subscription per distinct subject, shared by all streams that
//! want it. No replay: what was published while the connection was down is lost, and the streams hear of a gap.
//! What streams of the broker store is read by [`jetstream`], with a task for each of ours: it reads on where it
//! was, whatever happened to the connection.
//!
//! The broker may be away at any time, also at start. A task of its own holds the connection
//! ([`connection`]); it retries with jittered backoff until the provider is dropped.

mod address;
mod connection;
mod headers;
mod jetstream;
mod permissions;
mod session;
mod subject;

use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, RequestErrorKind};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

pub use address::{NatsAuthentication, NatsSettingsError};

use crate::{
    BrokerTls, Durable, EventFuture, EventStream, Message, Provider, ProviderState, ProviderStats,
    PublishError, Retry, SourceError, TopicUsage, TopicUse, Verdict, Wanted, topic_check,
};
use address::Address;
use connection::{Command, Link};
use jetstream::JetStream;
use session::Line;

/// How long a new subscription or a publication waits for the connection before it fails: covers the
/// start of the router and a broker that restarts, and is not felt as hanging.
const CONNECT_GRACE: Duration = Duration::from_secs(1);

/// How long a publication may take to leave through the socket of a broker that stopped reading.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Subscriptions that wait for the connection's task. It answers in microseconds; more than this many
/// at once means that it is busy, and then `subscribe` waits.
const COMMANDS_MAX: usize = 1024;

/// Events that wait in one stream, unless said otherwise: as many as memory keeps.
const QUEUE_EVENTS_DEFAULT: usize = 1024;

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
    /// Files for TLS. With them, a connection without TLS is never made.
    pub tls: Option<BrokerTls>,
    /// Publications wait until a stream of JetStream has stored them.
    pub publish_ack: bool,
    /// What tells this router from others in the names of consumers; none: the name of the host.
    pub instance: Option<Box<str>>,
    /// How to come back.
    pub retry: Retry,
    /// How long a reader of JetStream waits for events before it looks how far its stream has grown by what it
    /// does not want: [`NatsSettings::IDLE_DEFAULT`].
    pub idle: Duration,
    /// Events that wait in one stream.
    pub queue_events: usize,
}

impl NatsSettings {
    /// Two short questions to the broker for each silent stream and this time, so 10,000 of them ask less than 700
    /// times a second.
    pub const IDLE_DEFAULT: Duration = Duration::from_secs(30);

    /// The provider `nats/{id}` at `url`, and nothing special about it.
    pub fn new(id: &str, url: &str) -> Self {
        Self {
            id: id.into(),
            url: url.to_owned(),
            authentication: None,
            tls: None,
            publish_ack: false,
            instance: None,
            retry: Retry::default(),
            idle: Self::IDLE_DEFAULT,
            queue_events: QUEUE_EVENTS_DEFAULT,
        }
    }
}

impl std::fmt::Debug for NatsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the URL, which may hold credentials.
        f.debug_struct("NatsSettings")
            .field("id", &self.id)
            .field("authentication", &self.authentication)
            .field("tls", &self.tls)
            .field("publish_ack", &self.publish_ack)
            .field("instance", &self.instance)
            .field("retry", &self.retry)
            .field("idle", &self.idle)
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
    publish_ack: bool,
    jetstream: JetStream,
}

impl Nats {
    /// Starts connecting in the background; must be called inside a Tokio runtime with time and I/O, which then
    /// carries the connection. Fails only for settings that can never work.
    pub fn start(settings: NatsSettings) -> Result<Self, NatsSettingsError> {
        let addresses = Address::parse_list(
            &settings.url,
            settings.authentication.as_ref(),
            settings.tls.as_ref(),
        )?;
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
        let jetstream = JetStream::new(
            name.clone(),
            link.clone(),
            Arc::clone(&stats),
            settings.retry,
            settings.queue_events,
            settings.idle,
            settings.instance,
        );
        Ok(Self { name, stats, link, commands, publish_ack: settings.publish_ack, jetstream })
    }

    /// The present connection; waits a moment for one.
    async fn line(&self) -> Result<Line, String> {
        let mut link = self.link.clone();
        let connected = link.wait_for(|link| matches!(link, Link::Up(_)));
        if let Ok(Ok(link)) = timeout(CONNECT_GRACE, connected).await
            && let Link::Up(line) = &*link
        {
            return Ok(line.clone());
        }
        match &*self.link.borrow() {
            Link::Up(line) => Ok(line.clone()),
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
        self.line().await.map_err(|reason| self.unavailable(reason))?;
        if wanted.durable.is_some() {
            return self.jetstream.open(wanted).await;
        }
        let (reply, answer) = oneshot::channel();
        let closed = || self.unavailable("the provider was closed".into());
        self.commands.send(Command::Subscribe { wanted, reply }).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?.map_err(|reason| self.unavailable(reason))
    }

    fn refused(&self, topic: &str, reason: impl Into<String>) -> PublishError {
        PublishError::Refused {
            provider: self.name.clone(),
            topic: topic.into(),
            reason: reason.into(),
        }
    }

    fn away(&self, reason: impl Into<String>) -> PublishError {
        PublishError::Unavailable { provider: self.name.clone(), reason: reason.into() }
    }

    /// What every message needs that leaves: a connection, a subject, headers that NATS carries.
    async fn prepare(&self, message: &Message) -> Result<(Line, HeaderMap), PublishError> {
        let topic = &message.topic;
        subject::check(topic, TopicUsage::Publish).map_err(|reason| self.refused(topic, reason))?;
        let headers =
            headers::to_nats(&message.headers).map_err(|reason| self.refused(topic, reason))?;
        let line = self.line().await.map_err(|reason| self.away(reason))?;
        Ok((line, headers))
    }

    async fn publish_soon(&self, message: Message) -> Result<(), PublishError> {
        if self.publish_ack {
            let topic = message.topic.clone();
            let answer = self.request_soon(message, PUBLISH_TIMEOUT).await;
            let answer = answer.map_err(|failure| failure.of_publication(self, &topic))?;
            return jetstream::acknowledged(&answer).map_err(|reason| self.refused(&topic, reason));
        }
        let (Line { client, .. }, headers) = self.prepare(&message).await?;
        let Message { topic, payload, .. } = message;
        let sent = async {
            let subject = topic.to_string();
            let sent = if headers.is_empty() {
                client.publish(subject, payload).await
            } else {
                client.publish_with_headers(subject, headers, payload).await
            };
            sent.map_err(|error| match error.kind() {
                async_nats::PublishErrorKind::MaxPayloadExceeded => self.refused(&topic, TOO_LARGE),
                async_nats::PublishErrorKind::InvalidSubject => {
                    self.refused(&topic, "the subject is invalid")
                }
                async_nats::PublishErrorKind::Send => self.away(LOST),
            })?;
            client.flush().await.map_err(|_| self.away(LOST))
        };
        match timeout(PUBLISH_TIMEOUT, sent).await {
            Ok(result) => result,
            Err(_) => Err(self.away("the broker did not take the event within 5 s")),
        }
    }

    async fn request_soon(&self, message: Message, limit: Duration) -> Result<Bytes, Unanswered> {
        let (Line { client, .. }, headers) =
            self.prepare(&message).await.map_err(Unanswered::Unsent)?;
        let topic = message.topic;
        let request = async_nats::Request::new().payload(message.payload).timeout(None);
        let request = if headers.is_empty() { request } else { request.headers(headers) };
        match timeout(limit, client.send_request(topic.to_string(), request)).await {
            Ok(Ok(answer)) => Ok(answer.payload),
            Ok(Err(error)) => Err(match error.kind() {
                RequestErrorKind::NoResponders => Unanswered::Nobody,
                RequestErrorKind::TimedOut => Unanswered::Late,
                RequestErrorKind::MaxPayloadExceeded => {
                    Unanswered::Unsent(self.refused(&topic, TOO_LARGE))
                }
                RequestErrorKind::InvalidSubject => {
                    Unanswered::Unsent(self.refused(&topic, "the subject is invalid"))
                }
                RequestErrorKind::Other => Unanswered::Unsent(self.away(LOST)),
            }),
            Err(_) => Err(Unanswered::Late),
        }
    }
}

const TOO_LARGE: &str = "it is larger than the broker accepts";
const LOST: &str = "the connection was lost";

/// Why a request has no answer.
enum Unanswered {
    /// It did not leave, or nobody knows.
    Unsent(PublishError),
    /// The broker knows of nobody who listens to the subject.
    Nobody,
    /// Not in time.
    Late,
}

impl Unanswered {
    fn of_request(self, nats: &Nats, topic: &str) -> PublishError {
        match self {
            Self::Unsent(error) => error,
            Self::Nobody => {
                PublishError::NoResponder { provider: nats.name.clone(), topic: topic.into() }
            }
            Self::Late => nats.refused(topic, "no answer came in time"),
        }
    }

    fn of_publication(self, nats: &Nats, topic: &str) -> PublishError {
        match self {
            Self::Unsent(error) => error,
            Self::Nobody => nats.refused(topic, "no stream of JetStream has that subject"),
            Self::Late => nats.away("JetStream did not confirm the event within 5 s"),
        }
    }
}

impl Provider for Nats {
    fn name(&self) -> &str {
        &self.name
    }

    /// Core NATS has no past: a start other than [`Start::New`](crate::Start::New) begins with a gap.
    fn subscribe(&self, wanted: Wanted) -> EventFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(self.subscribe_soon(wanted))
    }

    /// Returns when the event has left through the socket: NATS core confirms nothing, and what the broker refuses
    /// for lack of permission is logged and counted when it says so. With `publish_ack`, when a stream has stored it.
    fn publish(&self, message: Message) -> EventFuture<'_, Result<(), PublishError>> {
        Box::pin(async move {
            let topic = message.topic.clone();
            let result = self.publish_soon(message).await;
            self.stats.record_publication(&topic, result.is_ok());
            result
        })
    }

    fn request(
        &self,
        message: Message,
        timeout: Duration,
    ) -> EventFuture<'_, Result<Bytes, PublishError>> {
        Box::pin(async move {
            let topic = message.topic.clone();
            let result = self.request_soon(message, timeout).await;
            self.stats.record_publication(&topic, result.is_ok());
            result.map_err(|failure| failure.of_request(self, &topic))
        })
    }

    fn replays(&self, durable: Option<&Durable>) -> bool {
        durable.is_some()
    }

    fn has_ends(&self, durable: Option<&Durable>) -> bool {
        durable.is_some()
    }

    fn check(&self, wanted: TopicUse) -> EventFuture<'_, Verdict> {
        Box::pin(async move {
            if wanted.usage == TopicUsage::Subscribe {
                return topic_check::by_subscribing(self, &wanted).await;
            }
            let client = match self.line().await {
                Ok(Line { client, .. }) => client,
                Err(reason) => return Verdict::Fails(reason),
            };
            match permissions::may_publish(&client, &wanted.topic).await {
                Verdict::Fails(reason) => Verdict::Fails(reason),
                verdict if self.publish_ack => {
                    jetstream::stores(&client, &wanted.topic).await.unwrap_or(verdict)
                }
                verdict => verdict,
            }
        })
    }

    fn is_connected(&self) -> bool {
        self.stats.state() == ProviderState::Connected
    }

    fn connected(&self) -> EventFuture<'_, Result<(), String>> {
        Box::pin(async move { self.line().await.map(drop) })
    }

    fn stats(&self) -> &ProviderStats {
        &self.stats
    }

    fn check_topic(&self, topic: &str, usage: TopicUsage) -> Result<(), &'static str> {
        subject::check(topic, usage)
    }

    fn check_header(&self, name: &str) -> Result<(), &'static str> {
        headers::check(name)
    }

    fn topic_separators(&self) -> &'static [char] {
        &['.']
    }

    fn check_topic_value(&self, value: &str, at_start: bool) -> Result<(), &'static str> {
        subject::check_value(value, at_start)
    }
}
