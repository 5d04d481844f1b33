//! What every reader does, the shared one and those of single streams: hand the library's messages to the
//! dispatcher, look after topics that grow or go away, after offsets that are there no more, and how far streams are behind.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rdkafka::Offset;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use super::acl_probe::{self, ReadAccess};
use super::client::{ConsumerClient, PartitionCounts, QueryError, TopicPartition};
use super::client_callbacks::ConnectionHealth;
use super::dispatch::{AssignmentChange, DispatchOutcome, Dispatcher, Listener};
use super::shared_state::SharedState;
use crate::{ErrorKind, Event, Headers, ProviderStats, StreamEnd};

/// A topic that a broker does not know is asked for again after this, and then is gone: brokers that have just
/// started may not know all of them yet.
const RECHECK_DELAY: Duration = Duration::from_secs(1);

/// How often a topic must be unknown, one time after the other.
const UNKNOWN_CHECKS_MAX: u32 = 2;

/// How often the cluster is asked how far all partitions go: one question to each broker that leads some.
const END_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The same for those that a stream has not read to the end, of which so many are asked for at a time.
const END_POLL_INTERVAL_BEHIND: Duration = Duration::from_secs(1);
const PARTITIONS_BEHIND_POLLED_MAX: usize = 1024;

const ENDING: &str = "the router is ending";

/// What came back from the cluster.
enum ClusterResponse {
    Partitions(Result<PartitionCounts, QueryError>),
    Range(Result<Vec<(TopicPartition, u64, u64)>, QueryError>),
    /// Of those that were wanted; the others are not known now.
    Ends(Vec<(TopicPartition, u64)>),
    ReadAccess(Vec<(Arc<str>, ReadAccess)>),
}

/// The client is of no use any more.
pub(super) struct ClientFailure(pub(super) String);

/// See the head of the file.
pub(super) struct ConsumerLoop {
    pub(super) client: Arc<ConsumerClient>,
    pub(super) dispatcher: Dispatcher,
    common: Arc<SharedState>,
    health: Arc<ConnectionHealth>,
    refresh: Duration,
    /// When the topics are looked at next.
    check_at: Instant,
    /// When the ends of partitions are asked for next, of all of them, and of those that are not read to the end.
    ends_at: Instant,
    ends_behind_at: Option<Instant>,
    behind: Vec<TopicPartition>,
    /// The library has nothing more for us, as far as we know; and so it was at some time since the ends were told.
    is_idle: bool,
    was_idle: bool,
    /// Offsets that are wanted may be out of range; to be looked at with the topics.
    range_due: bool,
    /// Topics that may be the one of which the broker has refused events; to be asked for.
    suspects: VecDeque<Arc<str>>,
    /// Topics that were unknown at the latest checks, and at how many.
    unknown: Vec<(Arc<str>, u32)>,
    query: Option<JoinHandle<ClusterResponse>>,
}

impl ConsumerLoop {
    pub(super) fn new(client: Arc<ConsumerClient>, common: &Arc<SharedState>) -> Self {
        let refresh = common.settings.metadata_refresh;
        Self {
            client,
            dispatcher: Dispatcher::default(),
            common: Arc::clone(common),
            health: Arc::clone(&common.health),
            refresh,
            check_at: Instant::now() + refresh,
            ends_at: Instant::now() + refresh.min(END_POLL_INTERVAL_BEHIND),
            ends_behind_at: None,
            behind: Vec::new(),
            is_idle: false,
            was_idle: false,
            range_due: false,
            suspects: VecDeque::new(),
            unknown: Vec::new(),
            query: None,
        }
    }

    /// Goes on with another client where this one was.
    pub(super) async fn replace_client(
        &mut self,
        client: Arc<ConsumerClient>,
    ) -> Result<(), ClientFailure> {
        self.client = client;
        self.query = None;
        let partitions = self.dispatcher.partitions();
        self.run_blocking(move |client| client.assign(&partitions, &[])).await
    }

    /// Takes listeners in.
    pub(super) async fn add(&mut self, listeners: Vec<Listener>) -> Result<(), ClientFailure> {
        let mut changes: Vec<AssignmentChange> = Vec::new();
        for listener in listeners {
            changes.extend(self.dispatcher.add(listener));
        }
        self.apply_changes(changes).await
    }

    /// Lets listeners go.
    pub(super) async fn remove(&mut self, ids: Vec<u64>) -> Result<Vec<Listener>, ClientFailure> {
        let mut removed = Vec::with_capacity(ids.len());
        let mut unwanted = Vec::new();
        for id in ids {
            if let Some((listener, partitions)) = self.dispatcher.remove(id) {
                removed.push(listener);
                unwanted.extend(partitions);
            }
        }
        self.unassign(unwanted).await?;
        Ok(removed)
    }

    async fn apply_changes(&mut self, changes: Vec<AssignmentChange>) -> Result<(), ClientFailure> {
        if changes.is_empty() {
            return Ok(());
        }
        // Several listeners may have moved one partition; the last move goes furthest back.
        let mut known: Vec<TopicPartition> = Vec::new();
        let mut partitions: std::collections::BTreeMap<TopicPartition, u64> =
            std::collections::BTreeMap::new();
        for AssignmentChange { partition, from, known: is_known } in changes {
            let first = partitions.insert(partition.clone(), from).is_none();
            if first && is_known {
                known.push(partition);
            }
        }
        let partitions: Vec<_> = partitions.into_iter().collect();
        self.run_blocking(move |client| client.assign(&partitions, &known)).await
    }

    async fn unassign(&mut self, partitions: Vec<TopicPartition>) -> Result<(), ClientFailure> {
        if partitions.is_empty() {
            return Ok(());
        }
        self.run_blocking(move |client| client.unassign(&partitions)).await
    }

    /// Runs what waits for the library's own thread, which takes milliseconds.
    async fn run_blocking(
        &self,
        work: impl FnOnce(&ConsumerClient) -> Result<(), String> + Send + 'static,
    ) -> Result<(), ClientFailure> {
        let client = Arc::clone(&self.client);
        match spawn_blocking(move || work(&client)).await {
            Ok(result) => result.map_err(ClientFailure),
            Err(_) => Err(ClientFailure(ENDING.into())),
        }
    }

    /// Resolves when it is time to look at the topics, or when the cluster has answered; then call
    /// [`ConsumerLoop::look`] with what it gives.
    pub(super) async fn next_work(&mut self) -> Work {
        match &mut self.query {
            Some(query) => {
                let found = query.await;
                self.query = None;
                let ending =
                    |_| ClusterResponse::Partitions(Err(QueryError::Unavailable(ENDING.into())));
                Work(Some(found.unwrap_or_else(ending)))
            }
            None => {
                let next = [Some(self.check_at), Some(self.ends_at), self.ends_behind_at];
                sleep_until(next.into_iter().flatten().min().unwrap_or(self.check_at)).await;
                Work(None)
            }
        }
    }

    pub(super) async fn run(&mut self, work: Work) -> Result<(), ClientFailure> {
        match work.0 {
            None => {
                // Whatever has waited longest.
                let ends_at = self.ends_behind_at.map_or(self.ends_at, |at| at.min(self.ends_at));
                if ends_at < self.check_at {
                    self.query_ends();
                } else {
                    self.query_topics();
                }
                Ok(())
            }
            Some(ClusterResponse::Partitions(found)) => self.on_partitions(found).await,
            Some(ClusterResponse::Range(found)) => self.on_ranges(found).await,
            Some(ClusterResponse::ReadAccess(found)) => self.on_read_access(found).await,
            Some(ClusterResponse::Ends(found)) => {
                self.on_ends(found);
                Ok(())
            }
        }
    }

    /// The library has nothing more for us at present.
    pub(super) fn mark_idle(&mut self) {
        (self.is_idle, self.was_idle) = (true, true);
    }

    /// Asks how far partitions go, so that it can be told how far streams are behind. The library knows it, too, from
    /// what it has fetched, but fetches nothing where a stream is full, which is where it matters.
    fn query_ends(&mut self) {
        let now = Instant::now();
        self.ends_behind_at = None;
        let mut partitions = std::mem::take(&mut self.behind);
        if now >= self.ends_at {
            self.ends_at = now + self.refresh.min(END_POLL_INTERVAL);
            partitions =
                self.dispatcher.partitions().into_iter().map(|(partition, _)| partition).collect();
        }
        if !partitions.is_empty() {
            let client = Arc::clone(&self.client);
            self.query = Some(spawn_blocking(move || {
                ClusterResponse::Ends(client.query_end_offsets(partitions))
            }));
        }
    }

    fn on_ends(&mut self, found: Vec<(TopicPartition, u64)>) {
        if found.is_empty() {
            // Whoever is away is asked with all the others, later.
            return;
        }
        let was_idle = std::mem::replace(&mut self.was_idle, self.is_idle);
        for (partition, end) in found {
            self.dispatcher.set_end(&partition, end, was_idle);
        }
        self.behind = self.dispatcher.report_lag();
        self.behind.truncate(PARTITIONS_BEHIND_POLLED_MAX);
        if !self.behind.is_empty() {
            let after = self.refresh.min(END_POLL_INTERVAL_BEHIND);
            self.ends_behind_at = Some(Instant::now() + after);
        }
    }

    fn query_topics(&mut self) {
        self.check_at = Instant::now() + self.refresh;
        let client = Arc::clone(&self.client);
        self.query = Some(if std::mem::take(&mut self.range_due) {
            let partitions: Vec<TopicPartition> =
                self.dispatcher.partitions().into_iter().map(|(partition, _)| partition).collect();
            spawn_blocking(move || {
                let first = client.query_offsets(&partitions, Offset::Beginning);
                let range = first.and_then(|first| {
                    let end = client.query_offsets(&partitions, Offset::End)?;
                    let ranges = partitions.into_iter().zip(first).zip(end);
                    Ok(ranges.map(|((partition, first), end)| (partition, first, end)).collect())
                });
                ClusterResponse::Range(range)
            })
        } else if !self.suspects.is_empty() {
            let wanted = self.dispatcher.topics();
            self.suspects.retain(|topic| wanted.contains(topic));
            let count = self.suspects.len().min(acl_probe::TOPICS_AT_ONCE);
            let topics: Vec<_> = self.suspects.drain(..count).collect();
            let common = Arc::clone(&self.common);
            spawn_blocking(move || {
                ClusterResponse::ReadAccess(acl_probe::probe_topics(
                    &common.settings,
                    common.callbacks(),
                    topics,
                ))
            })
        } else {
            let topics = self.dispatcher.topics();
            if topics.is_empty() {
                return;
            }
            spawn_blocking(move || ClusterResponse::Partitions(client.count_partitions(&topics)))
        });
    }

    async fn on_partitions(
        &mut self,
        found: Result<PartitionCounts, QueryError>,
    ) -> Result<(), ClientFailure> {
        // Whoever is away will be asked again.
        let Ok(found) = found else { return Ok(()) };
        let before = std::mem::take(&mut self.unknown);
        let (mut changes, mut unwanted) = (Vec::new(), Vec::new());
        for (topic, count) in found {
            match count {
                Ok(count) => changes.extend(self.dispatcher.add_partitions(&topic, count)),
                Err(QueryError::Unavailable(_)) => {}
                Err(QueryError::Denied(reason)) => {
                    self.log_topic_end(&topic, &reason);
                    unwanted.extend(self.dispatcher.end_topic(&topic, &StreamEnd::Refused(reason)));
                }
                Err(QueryError::UnknownTopic(_)) => {
                    let checks = before.iter().find(|(name, _)| *name == topic);
                    let checks = checks.map_or(0, |(_, checks)| *checks) + 1;
                    if checks >= UNKNOWN_CHECKS_MAX {
                        self.log_topic_end(&topic, "it was deleted");
                        let gone = StreamEnd::Gone(topic.to_string());
                        unwanted.extend(self.dispatcher.end_topic(&topic, &gone));
                    } else {
                        self.unknown.push((topic, checks));
                        self.check_at = Instant::now() + RECHECK_DELAY;
                    }
                }
            }
        }
        if !changes.is_empty() {
            let (provider, count) = (&self.health.provider, changes.len());
            tracing::info!(%provider, count, "new partitions are read from their start");
        }
        self.unassign(unwanted).await?;
        self.apply_changes(changes).await
    }

    fn log_topic_end(&self, topic: &str, reason: &str) {
        let provider = &self.health.provider;
        self.health.stats.record_error(ErrorKind::Subscription);
        tracing::warn!(%provider, topic, reason, "the topic cannot be read any more; its streams end");
    }

    /// Goes on where there are events, and has all partitions read anew: the library does not tell which of
    /// them it has stopped.
    async fn on_ranges(
        &mut self,
        found: Result<Vec<(TopicPartition, u64, u64)>, QueryError>,
    ) -> Result<(), ClientFailure> {
        let Ok(found) = found else {
            self.check_soon(true);
            return Ok(());
        };
        let next: std::collections::HashMap<TopicPartition, u64> =
            self.dispatcher.partitions().into_iter().collect();
        for (partition, first, end) in found {
            let Some(&at) = next.get(&partition) else { continue };
            if (first..=end).contains(&at) {
                continue;
            }
            // Behind the end: the topic was made anew, or a broker has lost its latest events. To begin it
            // again would repeat all of it.
            let offset = if at < first { first } else { end };
            let gaps = self.dispatcher.skip_to(&partition, offset);
            ProviderStats::add(&self.health.stats.gaps, gaps);
            let ((topic, partition), provider) = (&partition, &self.health.provider);
            tracing::warn!(
                %provider, %topic, partition, wanted = at, first, end,
                "the wanted events are not there any more; going on with a gap"
            );
        }
        let partitions = self.dispatcher.partitions();
        let known: Vec<TopicPartition> =
            partitions.iter().map(|(partition, _)| partition.clone()).collect();
        self.run_blocking(move |client| client.assign(&partitions, &known)).await
    }

    /// Ends the streams of topics that may not be read.
    async fn on_read_access(
        &mut self,
        found: Vec<(Arc<str>, ReadAccess)>,
    ) -> Result<(), ClientFailure> {
        let mut unwanted = Vec::new();
        for (topic, readable) in found {
            match readable {
                ReadAccess::Allowed => {}
                ReadAccess::Unknown => self.suspect(topic),
                ReadAccess::Denied => {
                    self.common.denied_topics.insert(&topic);
                    self.log_topic_end(&topic, acl_probe::REFUSAL);
                    let refused = StreamEnd::Refused(format!("{topic}: {}", acl_probe::REFUSAL));
                    unwanted.extend(self.dispatcher.end_topic(&topic, &refused));
                }
            }
        }
        if !self.suspects.is_empty() {
            self.check_soon(false);
        }
        self.unassign(unwanted).await
    }

    fn suspect(&mut self, topic: Arc<str>) {
        if !self.suspects.contains(&topic) {
            self.suspects.push_back(topic);
        }
    }

    /// Has the topics looked at soon; also the range of their offsets.
    fn check_soon(&mut self, range: bool) {
        self.range_due |= range;
        self.check_at = self.check_at.min(Instant::now() + RECHECK_DELAY / 4);
    }

    /// What the library says in partition of a message.
    pub(super) fn handle_error(&mut self, error: &KafkaError) -> Result<(), ClientFailure> {
        match error {
            KafkaError::MessageConsumptionFatal(code) => {
                return Err(ClientFailure(code.to_string()));
            }
            KafkaError::MessageConsumption(
                Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation,
            ) => self.check_soon(true),
            KafkaError::MessageConsumption(
                Code::UnknownTopicOrPartition
                | Code::UnknownTopic
                | Code::UnknownPartition
                | Code::UnknownTopicId,
            ) => self.check_soon(false),
            // The library says it once for each topic that is begun, but not which.
            KafkaError::MessageConsumption(Code::TopicAuthorizationFailed) => {
                self.suspects = self.dispatcher.topics().into();
                self.check_soon(false);
            }
            // The library goes on behind what it cannot read, and does not say of which topic that was.
            KafkaError::MessageConsumption(
                code @ (Code::BadMessage
                | Code::BadCompression
                | Code::InvalidMessage
                | Code::InvalidMessageSize
                | Code::MessageSizeTooLarge
                | Code::NotImplemented
                | Code::UnsupportedCompressionType),
            ) => {
                let provider = &self.health.provider;
                tracing::error!(%provider, %code, "events could not be read; all streams are told of a gap");
                let gaps = self.dispatcher.announce_gap();
                ProviderStats::add(&self.health.stats.gaps, gaps);
            }
            // What has to do with connections, leaders and time passes: the library tries again by itself, and the
            // context has counted it.
            _ => {}
        }
        Ok(())
    }

    /// Hands a message on. Answers with the event if somebody had no room for it.
    // hot path: one copy of the payload, whoever wants it.
    pub(super) fn dispatch(&mut self, message: &BorrowedMessage<'_>) -> Option<WaitingEvent> {
        self.is_idle = false;
        let offset = u64::try_from(message.offset()).unwrap_or(0);
        let (topic, partition) = (message.topic(), message.partition());
        if !self.dispatcher.is_next(topic, partition, offset) {
            return None;
        }
        let Some(event) = make_event(message) else {
            self.dispatcher.deliver(topic, partition, offset, None);
            return None;
        };
        let delivered = self.dispatcher.deliver(topic, partition, offset, Some(&event));
        if delivered.is_taken {
            ProviderStats::add(&self.health.stats.received, 1);
        }
        let DispatchOutcome { full, is_taken } = delivered;
        (!full.is_empty()).then_some(WaitingEvent { full, event, partition, offset, is_taken })
    }

    /// Offers an event again to a listener that had no room for it. False if it still has none.
    pub(super) fn redeliver(&mut self, waiting: &mut WaitingEvent, id: u64) -> bool {
        let WaitingEvent { event, partition, offset, is_taken, .. } = waiting;
        let is_delivered = self.dispatcher.redeliver(id, *partition, *offset, event);
        // Otherwise another reader reads it again, and counts it.
        if is_delivered && !std::mem::replace(is_taken, true) {
            ProviderStats::add(&self.health.stats.received, 1);
        }
        is_delivered
    }
}

/// An event for which some streams had no room.
pub(super) struct WaitingEvent {
    /// Theirs.
    pub(super) full: Vec<u64>,
    event: Event,
    partition: i32,
    offset: u64,
    /// Some other stream has it, and it was counted.
    is_taken: bool,
}

/// What [`ConsumerLoop::due`] has waited for.
pub(super) struct Work(Option<ClusterResponse>);

/// None: a tombstone, which says to those who keep a table that a key is gone, and nothing to subscribers.
pub(super) fn make_event(message: &BorrowedMessage<'_>) -> Option<Event> {
    let payload = Bytes::copy_from_slice(message.payload()?);
    let headers: Headers = message
        .headers()
        .into_iter()
        .flat_map(|headers| headers.iter())
        .map(|header| (header.key.into(), Bytes::copy_from_slice(header.value.unwrap_or_default())))
        .collect();
    let published = message.timestamp().to_millis().and_then(|at| u64::try_from(at).ok());
    Some(Event {
        key: message.key().map(Bytes::copy_from_slice),
        headers: (!headers.is_empty()).then(|| Arc::new(headers)),
        published: published.map(|at| UNIX_EPOCH + Duration::from_millis(at)),
        ..Event::new(message.topic(), payload)
    })
}

/// As Kafka counts time.
pub(super) fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
