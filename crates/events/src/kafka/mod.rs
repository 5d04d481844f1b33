//! Apache Kafka and compatible brokers (Redpanda, managed Kafka services), through librdkafka.
//!
//! One consumer reads for all live streams ([`shared_consumer`]). Partitions are assigned explicitly, without a group
//! and without commits, so that every router sees every event. The offsets of each stream are kept in [`dispatch`], so
//! that streams can begin and end while others continue. A stream that starts in the past, or is too slow, has a
//! consumer of its own ([`dedicated_consumer`]) until it has caught up; the number of these is limited. Publishing uses
//! one idempotent producer ([`producer`]).
//!
//! The broker may be unavailable at any time, also at start. The library reconnects by itself and continues at the same
//! offsets, so nothing is lost while the broker keeps it.

mod acl_probe;
mod broker_outages;
mod client;
mod client_callbacks;
mod client_config;
mod consumer_loop;
mod dedicated_consumer;
mod dispatch;
mod latest_events;
mod partition_progress;
mod producer;
mod shared_consumer;
mod shared_state;
mod start_offsets;
mod topic_check;
mod topic_name;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::spawn_blocking;

use crate::connection_state::{ConnectionState, PROVIDER_CLOSED, wait_connected};
use crate::event_queue::EventSender;
use crate::{
    Durable, Event, EventFuture, EventStream, KafkaSettings, KafkaSettingsError, Message, Provider,
    ProviderState, ProviderStats, PublishError, SourceError, Start, StreamRequest, TopicUsage,
    TopicUse, Verdict,
};
use acl_probe::DeniedTopics;
use broker_outages::WatchTask;
use client::{ConsumerClient, QueryError};
use client_callbacks::ConnectionHealth;
use dedicated_consumer::{DedicatedConsumer, EVENTS_BEHIND_MAX};
use dispatch::{Counted, Listener};
use producer::{ProduceError, Publisher};
use shared_consumer::SharedConsumer;
use shared_state::SharedState;
use start_offsets::{StartOffsets, StartOffsetsError};

/// The number of streams that wait to join the shared consumer. It adds many in milliseconds; when more than this wait,
/// `subscribe` waits.
const JOINING_MAX: usize = 1024;

/// A Kafka provider. Dropping it ends its streams and closes its connections.
pub struct Kafka {
    name: Box<str>,
    common: Arc<SharedState>,
    state: watch::Receiver<ConnectionState<Arc<ConsumerClient>>>,
    joining: mpsc::Sender<Listener>,
    publisher: Publisher,
    listeners: AtomicU64,
    _watch_task: WatchTask,
}

impl std::fmt::Debug for Kafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kafka").field("settings", &self.common.settings).finish_non_exhaustive()
    }
}

impl Kafka {
    /// Starts connecting in the background. Must be called inside a Tokio runtime with time and I/O, which then runs
    /// the consumers. Fails only for settings that can never work.
    pub fn start(settings: KafkaSettings) -> Result<Self, KafkaSettingsError> {
        settings.check()?;
        let name: Box<str> = format!("kafka/{}", settings.id).into();
        let stats = Arc::new(ProviderStats::default());
        let dedicated_permits = Arc::new(Semaphore::new(settings.fetch.readers));
        let reconnect_max = settings.retry.max.max(settings.retry.initial);
        let health = Arc::new(ConnectionHealth::new(&name, stats, reconnect_max));
        let watch_task = broker_outages::start_watching(&health);
        let denied_topics = DeniedTopics::default();
        let common = Arc::new(SharedState { settings, health, dedicated_permits, denied_topics });
        let (state_sender, state) = ConnectionState::channel();
        let (joining, joined) = mpsc::channel(JOINING_MAX);
        let reader =
            SharedConsumer::new(Arc::clone(&common), state_sender, joining.downgrade(), joined);
        tokio::spawn(reader.run());
        let publisher = Publisher::new(Arc::clone(&common));
        let listeners = AtomicU64::new(0);
        Ok(Self { name, common, state, joining, publisher, listeners, _watch_task: watch_task })
    }

    /// Returns the shared client if a broker has responded, and waits a moment for that.
    async fn client(&self) -> Result<Arc<ConsumerClient>, String> {
        wait_connected(&self.state).await
    }

    fn unavailable(&self, reason: impl Into<String>) -> SourceError {
        SourceError::Unavailable { provider: self.name.clone(), reason: reason.into() }
    }

    fn refused(&self, reason: impl Into<String>) -> SourceError {
        SourceError::Refused { provider: self.name.clone(), reason: reason.into() }
    }

    fn source_error(&self, error: StartOffsetsError) -> SourceError {
        match error {
            StartOffsetsError::Gone => SourceError::Gone { provider: self.name.clone() },
            StartOffsetsError::TooManyPartitions => {
                self.refused("there are more topics or partitions than 65,536")
            }
            StartOffsetsError::Query(QueryError::Unavailable(reason)) => self.unavailable(reason),
            StartOffsetsError::Query(QueryError::Denied(reason)) => self.refused(reason),
            StartOffsetsError::Query(QueryError::UnknownTopic(topic)) => {
                self.refused(format!("there is no topic {topic}"))
            }
        }
    }

    async fn open_stream(&self, wanted: StreamRequest) -> Result<EventStream, SourceError> {
        let StreamRequest { topics, start, .. } = wanted;
        for topic in &topics {
            topic_name::check_name(topic).map_err(|reason| SourceError::InvalidTopic {
                provider: self.name.clone(),
                topic: topic.clone(),
                reason: reason.into(),
            })?;
        }
        if let Some(topic) = topics.iter().find(|topic| self.common.denied_topics.contains(topic)) {
            return Err(self.refused(format!("{topic}: {}", acl_probe::REFUSAL)));
        }
        let topics: BTreeSet<Box<str>> = topics.into_iter().collect();
        let shared = self.client().await.map_err(|reason| self.unavailable(reason))?;
        let asked = (Arc::clone(&shared), start.clone());
        let opening =
            spawn_blocking(move || StartOffsets::resolve(&asked.0, &topics, &asked.1)).await;
        let ending = || self.unavailable("the router is shutting down");
        let opening = opening.map_err(|_| ending())?.map_err(|error| self.source_error(error))?;

        let latest = match start {
            Start::Last | Start::LastPerTopic => {
                self.read_latest(&shared, &opening, &start).await?
            }
            _ => Vec::new(),
        };
        let permit = if opening.events_behind() > EVENTS_BEHIND_MAX {
            Some(self.acquire_permit()?)
        } else {
            None
        };

        // The first messages must fit in addition to the events that the queue holds later.
        let first = latest.len() + opening.starts.len();
        let (mut sender, stream) =
            EventSender::new(self.common.settings.queue_events.max(2) + first);
        let topics = opening.topics.iter().map(|topic| &**topic);
        sender.set_counts(self.common.health.stats.stream_counts(topics));
        for (topic, behind) in opening.events_behind_by_topic() {
            sender.counts().set_topic_lag(topic, Some(behind), None);
        }
        opening
            .read_up_to(&latest)
            .into_iter()
            .for_each(|partition_offset| sender.try_send_progress(partition_offset));
        for event in latest {
            sender.try_send(event);
        }
        let listener = Listener {
            id: self.listeners.fetch_add(1, Relaxed),
            sender,
            next: opening.next_offsets(),
            topics: opening.topics,
            _counted: Counted::new(&self.common.health.stats),
        };
        match permit {
            Some(permit) => {
                let single =
                    DedicatedConsumer::new(&self.common, shared, self.joining.downgrade(), permit);
                tokio::spawn(single.run(listener));
            }
            None => {
                let closed = |_| self.unavailable(PROVIDER_CLOSED);
                self.joining.send(listener).await.map_err(closed)?;
            }
        }
        Ok(stream)
    }

    /// Takes a permit for a consumer in addition to the shared one.
    fn acquire_permit(&self) -> Result<tokio::sync::OwnedSemaphorePermit, SourceError> {
        let permits = Arc::clone(&self.common.dedicated_permits);
        permits.try_acquire_owned().map_err(|_| {
            let permits = self.common.settings.fetch.readers;
            self.unavailable(format!("{permits} streams are already being read from the past"))
        })
    }

    /// Returns the latest event of all topics together, or of each topic.
    async fn read_latest(
        &self,
        shared: &Arc<ConsumerClient>,
        opening: &StartOffsets,
        start: &Start,
    ) -> Result<Vec<Event>, SourceError> {
        let _permit = self.acquire_permit()?;
        let client = self.common.make_client().await.map_err(|reason| self.unavailable(reason))?;
        let events = latest_events::read_latest(Arc::clone(shared), client, opening).await;
        let mut events = events.map_err(|reason| self.unavailable(reason))?;
        // The latest event of each topic is the last one of its topic in this order. Older ones are removed.
        events.sort_by_key(|event| (event.published, event.partition_offset));
        if *start == Start::Last {
            events.drain(..events.len().saturating_sub(1));
        } else {
            let mut seen = BTreeSet::new();
            let mut latest: Vec<Event> = Vec::new();
            for event in events.into_iter().rev() {
                if seen.insert(Arc::clone(&event.topic)) {
                    latest.push(event);
                }
            }
            latest.reverse();
            events = latest;
        }
        Ok(events)
    }

    async fn try_publish(&self, message: &Message) -> Result<(), PublishError> {
        let refused = |reason: String| PublishError::Refused {
            provider: self.name.clone(),
            topic: message.topic.clone(),
            reason,
        };
        let unavailable =
            |reason: String| PublishError::Unavailable { provider: self.name.clone(), reason };
        topic_name::check_name(&message.topic).map_err(|reason| refused(reason.into()))?;
        self.client().await.map_err(unavailable)?;
        self.publisher.publish(message).await.map_err(|error| match error {
            ProduceError::Unavailable(reason) => unavailable(reason),
            ProduceError::Refused(reason) => refused(reason),
        })
    }
}

impl Provider for Kafka {
    fn name(&self) -> &str {
        &self.name
    }

    fn subscribe(
        &self,
        wanted: StreamRequest,
    ) -> EventFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(self.open_stream(wanted))
    }

    /// Returns when all in-sync replicas have the event.
    fn publish(&self, message: Message) -> EventFuture<'_, Result<(), PublishError>> {
        Box::pin(async move {
            let stats = &self.common.health.stats;
            let (topic, template) = (&message.topic, message.schema_topic.as_deref());
            stats.count_publication(topic, template, self.try_publish(&message)).await
        })
    }

    /// Kafka stores all events, whether they are durable or not.
    fn replays(&self, _: Option<&Durable>) -> bool {
        true
    }

    fn check(&self, wanted: TopicUse) -> EventFuture<'_, Verdict> {
        Box::pin(async move {
            match self.client().await {
                Ok(client) => topic_check::check_topic(&self.common, client, &wanted).await,
                Err(reason) => Verdict::Fails(reason),
            }
        })
    }

    fn is_connected(&self) -> bool {
        self.common.health.stats.state() == ProviderState::Connected
    }

    fn wait_connected(&self) -> EventFuture<'_, Result<(), String>> {
        Box::pin(async move { self.client().await.map(drop) })
    }

    fn stats(&self) -> &ProviderStats {
        &self.common.health.stats
    }

    fn check_topic(&self, topic: &str, _: TopicUsage) -> Result<(), &'static str> {
        topic_name::check_name(topic)
    }

    fn check_topic_value(&self, value: &str, at_start: bool) -> Result<(), &'static str> {
        topic_name::check_value(value, at_start)
    }
}
