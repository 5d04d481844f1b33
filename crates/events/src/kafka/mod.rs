//! Apache Kafka (and what speaks like it: Redpanda, managed Kafka services), through librdkafka.
//!
//! One consumer reads for all live streams ([`shared`]): partitions are assigned explicitly, without a group and
//! without commits, so that every router sees every event. What each stream has had is known by offset
//! ([`board`]), so that interest comes and goes while the others go on. A stream that starts in the past, or
//! cannot keep up, is read for by a consumer of its own ([`single`]) until it has caught up; those are bounded
//! in number. Publishing goes through one idempotent producer ([`publisher`]).
//!
//! The broker may be away at any time, also at start: the library comes back by itself, reads on where it was,
//! and nothing is lost as long as the broker keeps it.

mod board;
mod check;
mod client;
mod common;
mod context;
mod latest;
mod opening;
mod partition;
mod publisher;
mod readable;
mod reading;
mod settings;
mod shared;
mod single;
mod topic;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

pub use settings::{
    KafkaAuthentication, KafkaFetch, KafkaSettings, KafkaSettingsError, KafkaTls, KafkaUser,
    is_kafka_broker,
};

use crate::event_queue::EventSender;
use crate::{
    Durable, Event, EventFuture, EventStream, Message, Provider, ProviderState, ProviderStats,
    PublishError, SourceError, Start, TopicUsage, TopicUse, Verdict, Wanted,
};
use board::{Counted, Listener};
use client::{Client, Unanswered};
use common::Common;
use context::Health;
use opening::{Opening, Unopened};
use publisher::{Publisher, Unpublished};
use readable::Refused;
use shared::SharedReader;
use single::{EVENTS_BEHIND_MAX, Single};

/// How long a new subscription or a publication waits for the connection before it fails: covers the
/// start of the router and a broker that restarts, and is not felt as hanging.
const CONNECT_GRACE: Duration = Duration::from_secs(1);

/// Streams that wait for the shared reader to take them in. It takes many in milliseconds; when more than
/// this wait, `subscribe` waits.
const JOINING_MAX: usize = 1024;

/// The connection as the provider sees it.
enum Link {
    /// A broker has answered.
    Up(Arc<Client>),
    /// Not now, for this reason (no credentials in it).
    Away(Box<str>),
}

/// A Kafka provider. Dropping it ends its streams and closes its connections.
pub struct Kafka {
    name: Box<str>,
    common: Arc<Common>,
    link: watch::Receiver<Link>,
    joining: mpsc::Sender<Listener>,
    publisher: Publisher,
    listeners: AtomicU64,
}

impl std::fmt::Debug for Kafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kafka").field("settings", &self.common.settings).finish_non_exhaustive()
    }
}

impl Kafka {
    /// Starts connecting in the background; must be called inside a Tokio runtime with time and I/O, which then
    /// carries the readers. Fails only for settings that can never work.
    pub fn start(settings: KafkaSettings) -> Result<Self, KafkaSettingsError> {
        settings.check()?;
        let name: Box<str> = format!("kafka/{}", settings.id).into();
        let stats = Arc::new(ProviderStats::default());
        let singles = Arc::new(Semaphore::new(settings.fetch.readers));
        let health = Arc::new(Health::new(name.clone(), stats));
        let refused = Refused::default();
        let common = Arc::new(Common { settings, health, singles, refused });
        let (link, receiver) = watch::channel(Link::Away("not connected yet".into()));
        let (joining, joined) = mpsc::channel(JOINING_MAX);
        let reader = SharedReader::new(Arc::clone(&common), link, joining.downgrade(), joined);
        tokio::spawn(reader.run());
        let publisher = Publisher::new(Arc::clone(&common));
        Ok(Self { name, common, link: receiver, joining, publisher, listeners: AtomicU64::new(0) })
    }

    /// The shared client, once a broker has answered; waits a moment for that.
    async fn soon(&self) -> Result<Arc<Client>, String> {
        let mut link = self.link.clone();
        // Whatever it is after that: the reason, unless it came up in the last moment.
        let _ = timeout(CONNECT_GRACE, link.wait_for(|link| matches!(link, Link::Up(_)))).await;
        match &*link.borrow() {
            Link::Up(client) => Ok(Arc::clone(client)),
            Link::Away(reason) => Err(reason.to_string()),
        }
    }

    fn unavailable(&self, reason: impl Into<String>) -> SourceError {
        SourceError::Unavailable { provider: self.name.clone(), reason: reason.into() }
    }

    fn refused(&self, reason: impl Into<String>) -> SourceError {
        SourceError::Refused { provider: self.name.clone(), reason: reason.into() }
    }

    fn unopened(&self, error: Unopened) -> SourceError {
        match error {
            Unopened::Gone => SourceError::Gone { provider: self.name.clone() },
            Unopened::TooMany => self.refused("there are more topics or partitions than 65,536"),
            Unopened::Unanswered(Unanswered::Away(reason)) => self.unavailable(reason),
            Unopened::Unanswered(Unanswered::Refused(reason)) => self.refused(reason),
            Unopened::Unanswered(Unanswered::NoTopic(topic)) => {
                self.refused(format!("there is no topic {topic}"))
            }
        }
    }

    async fn subscribe_soon(&self, wanted: Wanted) -> Result<EventStream, SourceError> {
        let Wanted { topics, start, .. } = wanted;
        for topic in &topics {
            topic::check(topic).map_err(|reason| SourceError::InvalidTopic {
                provider: self.name.clone(),
                topic: topic.clone(),
                reason: reason.into(),
            })?;
        }
        if let Some(topic) = topics.iter().find(|topic| self.common.refused.knows(topic)) {
            return Err(self.refused(format!("{topic}: {}", readable::REFUSAL)));
        }
        let topics: BTreeSet<Box<str>> = topics.into_iter().collect();
        let shared = self.soon().await.map_err(|reason| self.unavailable(reason))?;
        let asked = (Arc::clone(&shared), start.clone());
        let opening = spawn_blocking(move || Opening::ask(&asked.0, &topics, &asked.1)).await;
        let ending = || self.unavailable("the router is ending");
        let opening = opening.map_err(|_| ending())?.map_err(|error| self.unopened(error))?;

        let latest = match start {
            Start::Last | Start::LastPerTopic => self.latest(&shared, &opening, &start).await?,
            _ => Vec::new(),
        };
        let place = if opening.behind() > EVENTS_BEHIND_MAX { Some(self.place()?) } else { None };

        // What is said first must fit beside what the queue holds for later.
        let first = latest.len() + opening.lanes.len();
        let (mut sender, stream) = EventSender::new(self.common.settings.queue_events.max(2) + first);
        let topics = opening.topics.iter().map(|topic| &**topic);
        sender.set_counts(self.common.health.stats.stream_counts(topics));
        for (topic, behind) in opening.behind_by_topic() {
            sender.counts().set_topic_lag(topic, Some(behind), None);
        }
        opening.passed(&latest).into_iter().for_each(|mark| sender.try_send_progress(mark));
        for event in latest {
            sender.try_send(event);
        }
        let listener = Listener {
            id: self.listeners.fetch_add(1, Relaxed),
            sender,
            next: opening.next(),
            topics: opening.topics,
            _counted: Counted::new(&self.common.health.stats),
        };
        match place {
            Some(place) => {
                let single = Single::new(&self.common, shared, self.joining.downgrade(), place);
                tokio::spawn(single.run(listener));
            }
            None => {
                let closed = |_| self.unavailable("the provider was closed");
                self.joining.send(listener).await.map_err(closed)?;
            }
        }
        Ok(stream)
    }

    /// A place for a consumer beside the shared one.
    fn place(&self) -> Result<tokio::sync::OwnedSemaphorePermit, SourceError> {
        let places = Arc::clone(&self.common.singles);
        places.try_acquire_owned().map_err(|_| {
            let places = self.common.settings.fetch.readers;
            self.unavailable(format!("{places} streams are being read from the past already"))
        })
    }

    /// The latest event of all topics together, or of each.
    async fn latest(
        &self,
        shared: &Arc<Client>,
        opening: &Opening,
        start: &Start,
    ) -> Result<Vec<Event>, SourceError> {
        let _place = self.place()?;
        let client = self.common.client().await.map_err(|reason| self.unavailable(reason))?;
        let events = latest::of_lanes(Arc::clone(shared), client, opening).await;
        let mut events = events.map_err(|reason| self.unavailable(reason))?;
        // The latest of each topic stand last among their likes, and what is older goes.
        events.sort_by_key(|event| (event.published, event.mark));
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

    async fn publish_soon(&self, message: &Message) -> Result<(), PublishError> {
        let refused = |reason: String| PublishError::Refused {
            provider: self.name.clone(),
            topic: message.topic.clone(),
            reason,
        };
        let unavailable =
            |reason: String| PublishError::Unavailable { provider: self.name.clone(), reason };
        topic::check(&message.topic).map_err(|reason| refused(reason.into()))?;
        self.soon().await.map_err(unavailable)?;
        self.publisher.publish(message).await.map_err(|error| match error {
            Unpublished::Away(reason) => unavailable(reason),
            Unpublished::Refused(reason) => refused(reason),
        })
    }
}

impl Provider for Kafka {
    fn name(&self) -> &str {
        &self.name
    }

    fn subscribe(&self, wanted: Wanted) -> EventFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(self.subscribe_soon(wanted))
    }

    /// Returns when all replicas that are in step have the event.
    fn publish(&self, message: Message) -> EventFuture<'_, Result<(), PublishError>> {
        Box::pin(async move {
            let result = self.publish_soon(&message).await;
            let stats = &self.common.health.stats;
            stats.record_publication(&message.topic, result.is_ok());
            result
        })
    }

    /// Kafka stores everything, durable or not.
    fn replays(&self, _: Option<&Durable>) -> bool {
        true
    }

    fn check(&self, wanted: TopicUse) -> EventFuture<'_, Verdict> {
        Box::pin(async move {
            match self.soon().await {
                Ok(client) => check::topic(&self.common, client, &wanted).await,
                Err(reason) => Verdict::Fails(reason),
            }
        })
    }

    fn is_connected(&self) -> bool {
        self.common.health.stats.state() == ProviderState::Connected
    }

    fn connected(&self) -> EventFuture<'_, Result<(), String>> {
        Box::pin(async move { self.soon().await.map(drop) })
    }

    fn stats(&self) -> &ProviderStats {
        &self.common.health.stats
    }

    fn check_topic(&self, topic: &str, _: TopicUsage) -> Result<(), &'static str> {
        topic::check(topic)
    }

    fn check_topic_value(&self, value: &str, at_start: bool) -> Result<(), &'static str> {
        topic::check_value(value, at_start)
    }
}
