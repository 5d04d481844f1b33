//! NATS, with one connection per provider.
//!
//! **NATS core**: [`connection_task`] holds one broker subscription per distinct subject, shared by all streams that
//! use it. There is no replay: events published while the connection was down are lost, and the streams receive a gap.
//!
//! **JetStream**: [`jetstream`] reads the streams that the broker stores, with a task for each stream of the router.
//! The task continues at its position, whatever happened to the connection.
//!
//! The broker may be unavailable at any time, also at start. The connection's task retries with jittered backoff until
//! the provider is dropped.

mod address;
mod client_session;
mod connection_task;
mod headers;
mod jetstream;
mod permissions;
mod subject;

use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, RequestErrorKind};
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

pub use address::{NatsAuthentication, NatsSettingsError};

use crate::connection_state::{self, COMMANDS_MAX, ConnectionState, LOST, SubscribeCommand};
use crate::provider_log::ProviderLog;
use crate::{
    BrokerTls, Durable, EventFuture, EventStream, Message, Provider, ProviderState, ProviderStats,
    PublishError, Retry, SourceError, StreamRequest, TopicUsage, TopicUse, Verdict, topic_check,
};
use address::NatsAddress;
use client_session::SharedClient;
use connection_task::ConnectionTask;
use jetstream::{DurableNames, JetStream, ReaderSettings};

/// The maximum time that a publication may take to leave through the socket of a broker that stopped reading.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);

/// The default number of events that wait in one stream: the same as for memory.
const QUEUE_EVENTS_DEFAULT: usize = 1024;

/// Settings of one NATS provider.
#[derive(Clone)]
pub struct NatsSettings {
    /// The part of the name after `nats/`.
    pub id: Box<str>,
    /// `nats://host:port`, several separated by commas. It may contain `user:password@` or `token@`, which are removed
    /// immediately and never shown.
    pub url: String,
    /// The credentials. They override those in `url`.
    pub authentication: Option<NatsAuthentication>,
    /// The TLS files. If they are set, a connection without TLS is never made.
    pub tls: Option<BrokerTls>,
    /// True if publications wait until a JetStream stream has stored them.
    pub publish_ack: bool,
    /// Distinguishes this router from others in the names of consumers. `None` means the name of the host.
    pub instance: Option<Box<str>>,
    /// The delays between attempts to connect.
    pub retry: Retry,
    /// The time that a JetStream reader waits for events before it polls the last sequence of its stream, which may
    /// have grown by events that are filtered out. The default is [`NatsSettings::IDLE_DEFAULT`].
    pub idle: Duration,
    /// The number of events that wait in one stream.
    pub queue_events: usize,
}

impl NatsSettings {
    /// The default of [`NatsSettings::idle`]. Each silent stream sends two short requests in this time, so 10,000
    /// streams send fewer than 700 per second.
    pub const IDLE_DEFAULT: Duration = Duration::from_secs(30);

    /// Returns the settings of the provider `nats/{id}` at `url`, with defaults for everything else.
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
        // The URL is left out because it may contain credentials.
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
    state: watch::Receiver<ConnectionState<SharedClient>>,
    commands: mpsc::Sender<SubscribeCommand>,
    publish_ack: bool,
    jetstream: JetStream,
}

impl Nats {
    /// Starts connecting in the background. Must be called inside a Tokio runtime with time and I/O, which then runs
    /// the connection. Fails only for settings that can never work.
    pub fn start(settings: NatsSettings) -> Result<Self, NatsSettingsError> {
        let addresses = NatsAddress::parse_list(
            &settings.url,
            settings.authentication.as_ref(),
            settings.tls.as_ref(),
        )?;
        let name: Box<str> = format!("nats/{}", settings.id).into();
        let stats = Arc::new(ProviderStats::default());
        let (state_sender, state) = ConnectionState::channel();
        let (commands, command_receiver) = mpsc::channel(COMMANDS_MAX);
        let log = ProviderLog::new(&name, Arc::clone(&stats));
        let task = ConnectionTask::new(
            Arc::clone(&log),
            addresses,
            settings.retry,
            settings.queue_events,
            Arc::clone(&stats),
            state_sender,
            command_receiver,
        );
        tokio::spawn(task.run());
        let jetstream = JetStream::new(ReaderSettings {
            provider: name.clone(),
            log,
            state: state.clone(),
            stats: Arc::clone(&stats),
            retry: settings.retry,
            queue_events: settings.queue_events,
            idle: settings.idle,
            durable_names: Arc::new(DurableNames::new(settings.instance)),
        });
        Ok(Self { name, stats, state, commands, publish_ack: settings.publish_ack, jetstream })
    }

    /// Returns the current connection, and waits a moment for one.
    async fn client(&self) -> Result<SharedClient, String> {
        connection_state::wait_connected(&self.state).await
    }

    fn unavailable(&self, reason: String) -> SourceError {
        SourceError::Unavailable { provider: self.name.clone(), reason }
    }

    async fn open_stream(&self, wanted: StreamRequest) -> Result<EventStream, SourceError> {
        for topic in &wanted.topics {
            subject::check_subject(topic, TopicUsage::Subscribe).map_err(|reason| {
                SourceError::InvalidTopic {
                    provider: self.name.clone(),
                    topic: topic.clone(),
                    reason: reason.into(),
                }
            })?;
        }
        self.client().await.map_err(|reason| self.unavailable(reason))?;
        if wanted.durable.is_some() {
            return self.jetstream.open(wanted).await;
        }
        let opened = connection_state::subscribe(&self.commands, wanted).await;
        opened.map_err(|reason| self.unavailable(reason))
    }

    fn publish_refused(&self, topic: &str, reason: impl Into<String>) -> PublishError {
        PublishError::Refused {
            provider: self.name.clone(),
            topic: topic.into(),
            reason: reason.into(),
        }
    }

    fn publish_unavailable(&self, reason: impl Into<String>) -> PublishError {
        PublishError::Unavailable { provider: self.name.clone(), reason: reason.into() }
    }

    /// Checks a message and returns what publishing needs: a connection, and the headers in the form of NATS.
    async fn prepare_message(
        &self,
        message: &Message,
    ) -> Result<(SharedClient, HeaderMap), PublishError> {
        let topic = &message.topic;
        subject::check_subject(topic, TopicUsage::Publish)
            .map_err(|reason| self.publish_refused(topic, reason))?;
        let headers = headers::to_nats(&message.headers)
            .map_err(|reason| self.publish_refused(topic, reason))?;
        let client = self.client().await.map_err(|reason| self.publish_unavailable(reason))?;
        Ok((client, headers))
    }

    async fn try_publish(&self, message: Message) -> Result<(), PublishError> {
        if self.publish_ack {
            let topic = message.topic.clone();
            let response = self.try_request(message, PUBLISH_TIMEOUT).await;
            let response = response.map_err(|failure| failure.into_publish_error(self, &topic))?;
            return jetstream::check_acknowledgement(&response)
                .map_err(|reason| self.publish_refused(&topic, reason));
        }
        let (SharedClient { nats, .. }, headers) = self.prepare_message(&message).await?;
        let Message { topic, payload, .. } = message;
        let sent = async {
            let subject = topic.to_string();
            let sent = if headers.is_empty() {
                nats.publish(subject, payload).await
            } else {
                nats.publish_with_headers(subject, headers, payload).await
            };
            sent.map_err(|error| match error.kind() {
                async_nats::PublishErrorKind::MaxPayloadExceeded => {
                    self.publish_refused(&topic, TOO_LARGE)
                }
                async_nats::PublishErrorKind::InvalidSubject => {
                    self.publish_refused(&topic, "the subject is invalid")
                }
                async_nats::PublishErrorKind::Send => self.publish_unavailable(LOST),
            })?;
            nats.flush().await.map_err(|_| self.publish_unavailable(LOST))
        };
        match timeout(PUBLISH_TIMEOUT, sent).await {
            Ok(result) => result,
            Err(_) => {
                Err(self.publish_unavailable("the broker did not accept the event within 5 s"))
            }
        }
    }

    async fn try_request(
        &self,
        message: Message,
        limit: Duration,
    ) -> Result<Bytes, RequestFailure> {
        let (SharedClient { nats, .. }, headers) =
            self.prepare_message(&message).await.map_err(RequestFailure::NotSent)?;
        let topic = message.topic;
        let request = async_nats::Request::new().payload(message.payload).timeout(None);
        let request = if headers.is_empty() { request } else { request.headers(headers) };
        match timeout(limit, nats.send_request(topic.to_string(), request)).await {
            Ok(Ok(response)) => Ok(response.payload),
            Ok(Err(error)) => Err(match error.kind() {
                RequestErrorKind::NoResponders => RequestFailure::NoResponder,
                RequestErrorKind::TimedOut => RequestFailure::TimedOut,
                RequestErrorKind::MaxPayloadExceeded => {
                    RequestFailure::NotSent(self.publish_refused(&topic, TOO_LARGE))
                }
                RequestErrorKind::InvalidSubject => {
                    RequestFailure::NotSent(self.publish_refused(&topic, "the subject is invalid"))
                }
                RequestErrorKind::Other => RequestFailure::NotSent(self.publish_unavailable(LOST)),
            }),
            Err(_) => Err(RequestFailure::TimedOut),
        }
    }
}

const TOO_LARGE: &str = "it is larger than the broker accepts";

/// The reason why a request has no response.
enum RequestFailure {
    /// The request was not sent, or it is unknown whether it was.
    NotSent(PublishError),
    /// The broker knows no subscriber of the subject.
    NoResponder,
    /// The response did not arrive in time.
    TimedOut,
}

impl RequestFailure {
    fn into_request_error(self, nats: &Nats, topic: &str) -> PublishError {
        match self {
            Self::NotSent(error) => error,
            Self::NoResponder => {
                PublishError::NoResponder { provider: nats.name.clone(), topic: topic.into() }
            }
            Self::TimedOut => nats.publish_refused(topic, "no response arrived in time"),
        }
    }

    fn into_publish_error(self, nats: &Nats, topic: &str) -> PublishError {
        match self {
            Self::NotSent(error) => error,
            Self::NoResponder => {
                nats.publish_refused(topic, "no stream of JetStream has that subject")
            }
            Self::TimedOut => {
                nats.publish_unavailable("JetStream did not confirm the event within 5 s")
            }
        }
    }
}

impl Provider for Nats {
    fn name(&self) -> &str {
        &self.name
    }

    /// Opens a stream. NATS core has no past, so a start other than [`Start::New`](crate::Start::New) begins with a gap
    /// there.
    fn subscribe(
        &self,
        wanted: StreamRequest,
    ) -> EventFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(self.open_stream(wanted))
    }

    /// Returns when the event has left through the socket, because NATS core confirms nothing. If the broker refuses it
    /// for lack of permission, that is logged and counted when the broker reports it. With `publish_ack`, returns when
    /// a stream has stored the event.
    fn publish(&self, message: Message) -> EventFuture<'_, Result<(), PublishError>> {
        Box::pin(async move {
            let (topic, template) = (message.topic.clone(), message.schema_topic.clone());
            let publishing = self.try_publish(message);
            self.stats.count_publication(&topic, template.as_deref(), publishing).await
        })
    }

    fn request(
        &self,
        message: Message,
        timeout: Duration,
    ) -> EventFuture<'_, Result<Bytes, PublishError>> {
        Box::pin(async move {
            let (topic, template) = (message.topic.clone(), message.schema_topic.clone());
            let asking = self.try_request(message, timeout);
            let result = self.stats.count_publication(&topic, template.as_deref(), asking);
            result.await.map_err(|failure| failure.into_request_error(self, &topic))
        })
    }

    fn replays(&self, durable: Option<&Durable>) -> bool {
        durable.is_some()
    }

    fn has_bounded_streams(&self, durable: Option<&Durable>) -> bool {
        durable.is_some()
    }

    fn check(&self, wanted: TopicUse) -> EventFuture<'_, Verdict> {
        Box::pin(async move {
            if wanted.usage == TopicUsage::Subscribe {
                return topic_check::judge_stream(self.subscribe(wanted.into())).await;
            }
            let nats = match self.client().await {
                Ok(SharedClient { nats, .. }) => nats,
                Err(reason) => return Verdict::Fails(reason),
            };
            match permissions::check_publish(&nats, &wanted.topic).await {
                Verdict::Fails(reason) => Verdict::Fails(reason),
                verdict if self.publish_ack => {
                    jetstream::check_is_stored(&nats, &wanted.topic).await.unwrap_or(verdict)
                }
                verdict => verdict,
            }
        })
    }

    fn is_connected(&self) -> bool {
        self.stats.state() == ProviderState::Connected
    }

    fn wait_connected(&self) -> EventFuture<'_, Result<(), String>> {
        Box::pin(async move { self.client().await.map(drop) })
    }

    fn stats(&self) -> &ProviderStats {
        &self.stats
    }

    fn check_topic(&self, topic: &str, usage: TopicUsage) -> Result<(), &'static str> {
        subject::check_subject(topic, usage)
    }

    fn check_header(&self, name: &str) -> Result<(), &'static str> {
        headers::check_name(name)
    }

    fn topic_separators(&self) -> &'static [char] {
        &['.']
    }

    fn topic_wildcard(&self, _: Option<&Durable>) -> Option<&'static str> {
        Some("*")
    }

    fn check_topic_value(&self, value: &str, at_start: bool) -> Result<(), &'static str> {
        subject::check_value(value, at_start)
    }
}
