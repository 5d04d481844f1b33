//! The work that the shared consumer and dedicated consumers have in common: handing the library's messages to the
//! dispatcher, and checking for topics that grow or disappear, for offsets that are out of range, and for the lag.

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

/// The delay after which a topic that a broker does not know is checked again, before it counts as deleted. Brokers
/// that have just started may not know all topics yet.
const RECHECK_DELAY: Duration = Duration::from_secs(1);

/// The number of checks in a row at which a topic must be unknown to count as deleted.
const UNKNOWN_CHECKS_MAX: u32 = 2;

/// The interval at which the ends of all partitions are queried. This costs one request to each broker that leads some.
const END_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The interval for partitions that a stream has not read to the end, and the maximum number of them per query.
const END_POLL_INTERVAL_BEHIND: Duration = Duration::from_secs(1);
const PARTITIONS_BEHIND_POLLED_MAX: usize = 1024;

/// The reason that is reported if the runtime ends during a query.
const ENDING: &str = "the router is shutting down";

/// The response to a query to the cluster.
enum ClusterResponse {
    Partitions(Result<PartitionCounts, QueryError>),
    Range(Result<Vec<(TopicPartition, u64, u64)>, QueryError>),
    /// The ends of the partitions for which the cluster responded.
    Ends(Vec<(TopicPartition, u64)>),
    ReadAccess(Vec<(Arc<str>, ReadAccess)>),
}

/// The reason why the client cannot be used any more.
pub(super) struct ClientFailure(pub(super) String);

/// The state of one consumer: its client, its dispatcher and its pending queries.
pub(super) struct ConsumerLoop {
    pub(super) client: Arc<ConsumerClient>,
    pub(super) dispatcher: Dispatcher,
    common: Arc<SharedState>,
    health: Arc<ConnectionHealth>,
    refresh: Duration,
    /// The time of the next check of the topics.
    check_at: Instant,
    /// The times at which the ends are queried next: of all partitions, and of those that are not read to the end.
    ends_at: Instant,
    ends_behind_at: Option<Instant>,
    behind: Vec<TopicPartition>,
    /// True if the library currently has no more messages, and true if that was so at some time since the latest query
    /// for the ends.
    is_idle: bool,
    was_idle: bool,
    /// True if offsets may be out of range. The next check of the topics includes them.
    range_due: bool,
    /// Topics that will be probed, because the broker has refused events of one of them.
    suspects: VecDeque<Arc<str>>,
    /// Topics that were unknown at the latest checks, with the number of these checks.
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

    /// Continues with another client at the same offsets.
    pub(super) async fn replace_client(
        &mut self,
        client: Arc<ConsumerClient>,
    ) -> Result<(), ClientFailure> {
        self.client = client;
        self.query = None;
        let partitions = self.dispatcher.partitions();
        self.run_blocking(move |client| client.assign(&partitions, &[])).await
    }

    /// Adds listeners and begins to read their partitions.
    pub(super) async fn add(&mut self, listeners: Vec<Listener>) -> Result<(), ClientFailure> {
        let mut changes: Vec<AssignmentChange> = Vec::new();
        for listener in listeners {
            changes.extend(self.dispatcher.add(listener));
        }
        self.apply_changes(changes).await
    }

    /// Removes listeners and stops reading partitions that no other listener uses.
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
        // Several listeners may have moved one partition. The last move goes furthest back.
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

    /// Runs a call that waits for the library's own thread, which takes milliseconds.
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

    /// Waits until a check is due or the cluster has responded. The result must be passed to [`ConsumerLoop::run`].
    pub(super) async fn next_work(&mut self) -> PendingWork {
        match &mut self.query {
            Some(query) => {
                let found = query.await;
                self.query = None;
                let ending =
                    |_| ClusterResponse::Partitions(Err(QueryError::Unavailable(ENDING.into())));
                PendingWork(Some(found.unwrap_or_else(ending)))
            }
            None => {
                let next = [Some(self.check_at), Some(self.ends_at), self.ends_behind_at];
                sleep_until(next.into_iter().flatten().min().unwrap_or(self.check_at)).await;
                PendingWork(None)
            }
        }
    }

    /// Does the work that [`ConsumerLoop::next_work`] has returned.
    pub(super) async fn run(&mut self, work: PendingWork) -> Result<(), ClientFailure> {
        match work.0 {
            None => {
                // The check that is due longest comes first.
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

    /// Notes that the library has no more messages at present.
    pub(super) fn mark_idle(&mut self) {
        (self.is_idle, self.was_idle) = (true, true);
    }

    /// Queries the ends of partitions, to report the lag of streams. The library also knows them from its fetches, but
    /// does not fetch while a stream is full, which is when the lag matters.
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
            // Partitions of unavailable brokers are queried with all others later.
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
        // An unavailable cluster is queried again later.
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
            let (provider, count) = (self.health.log.provider(), changes.len());
            tracing::info!(provider, count, "new partitions are read from their start");
        }
        self.unassign(unwanted).await?;
        self.apply_changes(changes).await
    }

    fn log_topic_end(&self, topic: &str, reason: &str) {
        self.health.stats.record_error(ErrorKind::Subscription);
        let problem = "a topic cannot be read any more; its streams end";
        self.health.log.log_refusal(topic, reason, problem);
    }

    /// Moves partitions whose offset is out of range, and begins to read all partitions again, because the library does
    /// not report which of them it has stopped.
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
            // The offset is behind the end: the topic was created again, or a broker has lost its latest events.
            // Beginning at the start would repeat all of it.
            let offset = if at < first { first } else { end };
            let gaps = self.dispatcher.skip_to(&partition, offset);
            ProviderStats::add(&self.health.stats.gaps, gaps);
            let (topic, partition) = &partition;
            let reason = format!("partition {partition} has {first} to {end}, and {at} is next");
            let problem = "the next events of a topic do not exist any more; continuing with a gap";
            self.health.log.log_gap(topic, &reason, problem);
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

    /// Schedules a check of the topics, and of the ranges of their offsets if `range` is true.
    fn check_soon(&mut self, range: bool) {
        self.range_due |= range;
        self.check_at = self.check_at.min(Instant::now() + RECHECK_DELAY / 4);
    }

    /// Handles an error that the library reports in place of a message.
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
            // The library reports this once for each topic that is begun, without naming the topic.
            KafkaError::MessageConsumption(Code::TopicAuthorizationFailed) => {
                self.suspects = self.dispatcher.topics().into();
                self.check_soon(false);
            }
            // The library continues after an event that it cannot read, and does not report its topic.
            KafkaError::MessageConsumption(
                code @ (Code::BadMessage
                | Code::BadCompression
                | Code::InvalidMessage
                | Code::InvalidMessageSize
                | Code::MessageSizeTooLarge
                | Code::NotImplemented
                | Code::UnsupportedCompressionType),
            ) => {
                // The router continues by itself, so this is no error. A publisher may repeat it with each event.
                let problem = "events could not be read; all streams receive a gap";
                self.health.log.log_gap("", &code.to_string(), problem);
                let gaps = self.dispatcher.announce_gap();
                ProviderStats::add(&self.health.stats.gaps, gaps);
            }
            // Other errors concern connections, leaders and timeouts. The library retries by itself, and the callbacks
            // have counted them.
            _ => {}
        }
        Ok(())
    }

    /// Dispatches a message. Returns the event if some streams had no room for it.
    // hot path: one copy of the payload, however many streams receive it.
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

    /// Offers an event again to a listener that had no room for it. Returns false if it still has none.
    pub(super) fn redeliver(&mut self, waiting: &mut WaitingEvent, id: u64) -> bool {
        let WaitingEvent { event, partition, offset, is_taken, .. } = waiting;
        let is_delivered = self.dispatcher.redeliver(id, *partition, *offset, event);
        // Otherwise another consumer reads the event again, and counts it.
        if is_delivered && !std::mem::replace(is_taken, true) {
            ProviderStats::add(&self.health.stats.received, 1);
        }
        is_delivered
    }
}

/// An event for which some streams had no room.
pub(super) struct WaitingEvent {
    /// The ids of these streams.
    pub(super) full: Vec<u64>,
    event: Event,
    partition: i32,
    offset: u64,
    /// True if some other stream has received the event, which is then counted.
    is_taken: bool,
}

/// The work that [`ConsumerLoop::next_work`] has waited for.
pub(super) struct PendingWork(Option<ClusterResponse>);

/// Makes an event. Returns `None` for a tombstone, which marks a key as deleted and has no value for subscribers.
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

/// Returns a time in milliseconds, as Kafka counts it.
pub(super) fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
