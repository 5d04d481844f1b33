//! The task behind one stream of the router: it pulls messages, delivers them and keeps the position. The module
//! [`consumer_setup`](super::consumer_setup) decides what to pull from.
//!
//! The broker numbers the deliveries of a consumer. A missing number means that a message was delivered elsewhere or
//! lost on the way. The reader then makes another consumer after the position. Where the sequence of the stream jumps,
//! it checks that the messages between were filtered out, not deleted, and that its durable consumer is still the same.

use std::sync::Arc;
use std::time::Duration;

use async_nats::datetime::DateTime;
use async_nats::{Message, Subject};
use tokio::sync::watch;
use tokio::time::sleep;

use super::super::client_session::SharedClient;
use super::super::headers;
use super::api::{ApiError, JetStreamApi};
use super::consumer_error::ConsumerError;
use super::delivery::Delivery;
use super::durable_names::{DurableNames, NameClaim};
use super::pull::{PullResult, PullSubscription};
use super::stream_id::StreamId;
use super::subject_filter::{BUCKETS, SubjectFilter};
use crate::backoff::Backoff;
use crate::connection_state::ConnectionState;
use crate::event_queue::EventSender;
use crate::provider_log::ProviderLog;
use crate::{
    Durable, ErrorKind, Event, EventStream, PartitionOffset, ProviderStats, Retry, SourceError,
    Start, StreamEnd, StreamRequest,
};

/// The number of deliveries of a durable consumer that may go to other readers before this reader stops using it.
pub(super) const STRAYS_MAX: u32 = 3;

/// The interval at which the size of a stream is polled while its subscription accepts nothing. Metrics are read about
/// as often.
const LAG_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The settings and connections that all readers of one provider share.
#[derive(Debug)]
pub(in crate::nats) struct ReaderSettings {
    pub(in crate::nats) provider: Box<str>,
    pub(in crate::nats) log: Arc<ProviderLog>,
    pub(in crate::nats) state: watch::Receiver<ConnectionState<SharedClient>>,
    pub(in crate::nats) stats: Arc<ProviderStats>,
    pub(in crate::nats) retry: Retry,
    pub(in crate::nats) queue_events: usize,
    /// The time without messages after which a reader polls the stream's last sequence.
    pub(in crate::nats) idle: Duration,
    pub(in crate::nats) durable_names: Arc<DurableNames>,
}

/// The reader of one stream of the router: its queue, its position and the consumer that it should use.
pub(super) struct JetStreamReader {
    pub(super) provider: Box<str>,
    log: Arc<ProviderLog>,
    state: watch::Receiver<ConnectionState<SharedClient>>,
    pub(super) stats: Arc<ProviderStats>,
    backoff: Backoff,
    pub(super) sender: EventSender,
    /// True if the position advanced over messages that were not delivered, and the queue does not know it yet.
    progress_due: bool,
    topic: Arc<str>,
    pub(super) queue_events: usize,
    pub(super) idle: Duration,
    pub(super) filter: SubjectFilter,
    pub(super) start: Start,
    pub(super) durable: Arc<Durable>,
    pub(super) durable_names: Arc<DurableNames>,
    pub(super) claim: Option<NameClaim>,
    pub(super) strays: u32,
    /// The number of the latest delivery of the durable consumer. A broker that counts fewer has lost state.
    pub(super) durable_delivered: u64,
    /// The time at which that durable consumer was created. One that was created at another time has other numbers.
    pub(super) durable_created: Option<DateTime>,
    /// True if the durable consumer must be created again.
    pub(super) durable_is_stuck: bool,
    pub(super) stream: Option<StreamId>,
    /// The sequence up to which every message was delivered or filtered out; `None` before the stream is open.
    pub(super) position: Option<u64>,
    /// True if the stream ends with the last message that is stored when it is opened.
    pub(super) bounded: bool,
    /// The sequence of that last message; 0 if there is none. `None` if it is not known yet, or if the stream is not
    /// bounded.
    pub(super) end: Option<u64>,
}

/// The consumer that the reader pulls from.
pub(super) struct ActiveConsumer {
    pub(super) client: SharedClient,
    pub(super) pull: PullSubscription,
    pub(super) name: String,
    /// The time at which the consumer was created. Another router may replace a durable consumer by one of the same
    /// name.
    pub(super) created: DateTime,
    /// True if the consumer is durable and expects acknowledgements.
    pub(super) is_durable: bool,
    /// The sequence from which another consumer takes over.
    pub(super) until: Option<u64>,
    /// The number of the latest delivery that arrived.
    pub(super) delivered: u64,
    /// The number of the latest delivery, to any reader, that the broker has named in a heartbeat.
    pub(super) delivered_by_heartbeat: u64,
    /// True if the broker does not filter, so that the reader must.
    pub(super) is_unfiltered: bool,
    /// True if a message has arrived from the consumer.
    pub(super) has_delivered: bool,
    /// True if the consumer has more to deliver, as far as the broker has reported.
    pub(super) has_more: bool,
    /// The number of pull requests when the consumer was last known to be the same.
    pub(super) consumer_checked_at: u64,
    /// The number of pull requests when the stream was last searched for deleted messages.
    pub(super) stream_checked_at: u64,
    /// The subject that acknowledges everything up to the latest delivered message.
    pub(super) unacknowledged: Option<Subject>,
}

/// The reason why the reader stopped reading from a consumer.
enum ReadEnd {
    /// The consumer must be replaced, for this reason.
    Replace(String),
    /// The ephemeral consumer has delivered everything that the durable one had delivered before.
    CaughtUp,
    /// The stream was dropped.
    Dropped,
    /// The stream ends.
    End(StreamEnd),
}

impl JetStreamReader {
    pub(super) fn new(settings: &ReaderSettings, wanted: StreamRequest) -> (Self, EventStream) {
        // One more slot is needed because the position comes before the first event.
        let (mut sender, stream) = EventSender::new(settings.queue_events + 1);
        sender.set_counts(settings.stats.stream_counts(wanted.topics.iter().map(|topic| &**topic)));
        let reader = Self {
            provider: settings.provider.clone(),
            log: Arc::clone(&settings.log),
            state: settings.state.clone(),
            stats: Arc::clone(&settings.stats),
            backoff: Backoff::new(settings.retry),
            sender,
            progress_due: false,
            topic: "".into(),
            queue_events: settings.queue_events,
            idle: settings.idle,
            filter: SubjectFilter::new(wanted.topics),
            start: wanted.start,
            durable: wanted.durable.unwrap_or_default(),
            durable_names: Arc::clone(&settings.durable_names),
            claim: None,
            strays: 0,
            durable_delivered: 0,
            durable_created: None,
            durable_is_stuck: false,
            stream: None,
            position: None,
            bounded: wanted.bounded,
            end: None,
        };
        (reader, stream)
    }

    /// Makes the first consumer and reports its position to the queue.
    pub(super) async fn open(&mut self) -> Result<ActiveConsumer, SourceError> {
        let provider = self.provider.clone();
        let client = match &*self.state.borrow_and_update() {
            ConnectionState::Connected(client) => client.clone(),
            ConnectionState::Disconnected(reason) => {
                return Err(SourceError::Unavailable { provider, reason: reason.to_string() });
            }
        };
        let consumer = self.open_consumer(&client).await.map_err(|failure| match failure {
            ConsumerError::NoStream(name) => SourceError::Refused {
                provider,
                reason: format!("JetStream has no stream {name:?}"),
            },
            ConsumerError::PositionGone => SourceError::Gone { provider },
            ConsumerError::Refused(reason) => SourceError::Refused { provider, reason },
            ConsumerError::Unanswered(reason) => SourceError::Unavailable { provider, reason },
        })?;
        if let Some(partition_offset) = self.current_partition_offset() {
            self.sender.try_send_progress(partition_offset);
        }
        Ok(consumer)
    }

    /// Runs until the stream is dropped or ends.
    pub(super) async fn run(mut self, mut consumer: ActiveConsumer) {
        ProviderStats::add(&self.stats.streams, 1);
        let end = loop {
            let ended = self.read(&mut consumer).await;
            match ended {
                ReadEnd::Dropped => {
                    self.forget_ephemeral(&consumer).await;
                    break None;
                }
                ReadEnd::End(end) => {
                    if end == StreamEnd::Complete {
                        self.forget_ephemeral(&consumer).await;
                    }
                    break Some(end);
                }
                ReadEnd::CaughtUp => self.forget_ephemeral(&consumer).await,
                ReadEnd::Replace(reason) => {
                    tracing::debug!(
                        provider = %self.provider,
                        consumer = consumer.name,
                        reason,
                        "making another consumer of JetStream"
                    );
                    if consumer.has_delivered {
                        self.backoff.reset();
                    } else if let Some(end) = self.wait_backoff().await {
                        break end;
                    }
                }
            }
            match self.replace_consumer().await {
                Ok(next) => consumer = next,
                Err(end) => break end,
            }
        };
        ProviderStats::subtract(&self.stats.streams, 1);
        if let Some(end) = end {
            self.sender.end(end);
        }
    }

    async fn read(&mut self, consumer: &mut ActiveConsumer) -> ReadEnd {
        let gone = self.sender.closed();
        tokio::pin!(gone);
        loop {
            if self.end.is_some_and(|end| self.position >= Some(end)) {
                return ReadEnd::End(StreamEnd::Complete);
            }
            let result = if let Some(result) = consumer.pull.try_next() {
                result
            } else {
                consumer.acknowledge().await;
                if std::mem::take(&mut self.progress_due)
                    && let Some(partition_offset) = self.current_partition_offset()
                {
                    self.sender.try_send_progress(partition_offset);
                }
                tokio::select! {
                    biased;
                    () = &mut gone => return ReadEnd::Dropped,
                    changed = self.state.changed() => return match changed {
                        Ok(()) => ReadEnd::Replace("the connection has changed".into()),
                        Err(_) => ReadEnd::End(StreamEnd::Closed),
                    },
                    result = consumer.pull.next() => result,
                }
            };
            let ended = match result {
                PullResult::Message(message) => self.handle_message(consumer, message).await,
                PullResult::Idle => self.check_stream(consumer).await,
                PullResult::Waiting { delivered } if consumer.has_missed_deliveries(delivered) => {
                    if consumer.is_durable {
                        self.record_stray(&consumer.name);
                    }
                    Some(ReadEnd::Replace("deliveries went to another reader".into()))
                }
                PullResult::Waiting { .. } if consumer.is_durable && consumer.has_more => {
                    self.check_durable_consumer(consumer).await
                }
                PullResult::Waiting { .. } => None,
                PullResult::Broken(reason) => Some(ReadEnd::Replace(reason)),
            };
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    /// Handles a message of the consumer, and waits until its event fits into the queue.
    // hot path: once per message of one stream.
    async fn handle_message(
        &mut self,
        consumer: &mut ActiveConsumer,
        message: Message,
    ) -> Option<ReadEnd> {
        let Some(delivery) = message.reply.as_deref().and_then(Delivery::parse) else {
            return Some(ReadEnd::Replace("a message arrived that belongs to no stream".into()));
        };
        if delivery.consumer_sequence != consumer.delivered + 1 {
            if consumer.is_durable && delivery.consumer_sequence > consumer.delivered {
                self.record_stray(&consumer.name);
            }
            return Some(ReadEnd::Replace("deliveries are missing".into()));
        }
        let has_jumped = self.position.is_some_and(|it| delivery.stream_sequence > it + 1);
        if has_jumped && let Some(ended) = self.check_jump(consumer, delivery).await {
            return Some(ended);
        }
        consumer.delivered = delivery.consumer_sequence;
        consumer.has_delivered = true;
        consumer.has_more = delivery.pending > 0;
        let sequence = delivery.stream_sequence;
        // A durable consumer delivers messages again that are already known.
        if self.position.is_none_or(|position| sequence > position) {
            if self.end.is_some_and(|end| sequence > end) {
                // The last message was deleted before it was read.
                return Some(ReadEnd::End(StreamEnd::Complete));
            }
            ProviderStats::add(&self.stats.received, 1);
            self.position = Some(sequence);
            let unwanted = consumer.is_unfiltered && !self.filter.matches(&message.subject);
            if unwanted || is_key_deletion(&message) {
                self.progress_due = true;
            } else {
                self.progress_due = false;
                let event = self.make_event(&message, delivery);
                if !self.deliver(consumer, event, delivery).await {
                    return Some(ReadEnd::Dropped);
                }
            }
            let behind = consumer.lag(delivery.pending);
            self.sender.counts().set_lag(behind, Some(delivery.published));
        }
        if consumer.is_durable {
            consumer.unacknowledged = message.reply;
            self.durable_delivered = consumer.delivered;
        }
        match consumer.until {
            Some(until) if delivery.pending == 0 => {
                self.position = self.position.max(Some(until));
                Some(ReadEnd::CaughtUp)
            }
            Some(until) if sequence >= until => Some(ReadEnd::CaughtUp),
            _ => None,
        }
    }

    /// Checks, where the sequence of the stream jumps, that nothing is lost: the messages between may be filtered out,
    /// but they may also have been deleted before they were delivered, and a durable consumer may have been replaced by
    /// one that begins later. Announces a gap for deleted messages.
    ///
    /// The broker delivers the messages that it has when it receives a request, so one check after each request is
    /// enough.
    async fn check_jump(
        &mut self,
        consumer: &mut ActiveConsumer,
        delivery: Delivery,
    ) -> Option<ReadEnd> {
        let requests = consumer.pull.requests();
        // A message that arrives while a request waits is delivered before it can be deleted. A bucket stores the
        // latest values only, and promises no others.
        let may_have_waited = consumer.has_more || consumer.pull.followed_a_pause();
        let checks_stream =
            may_have_waited && consumer.stream_checked_at != requests && !self.filter.is_bucket();
        let checks_consumer = consumer.is_durable && consumer.consumer_checked_at != requests;
        if !checks_stream && !checks_consumer {
            return None;
        }
        let (stream, position) = (self.stream.clone()?, self.position?);
        let api = JetStreamApi(&consumer.client.nats);
        if checks_consumer {
            match api.consumer_info(&stream.name, &consumer.name).await {
                Ok(info) if info.created == consumer.created => {}
                Ok(_) | Err(ApiError::NoConsumer) => {
                    return Some(ReadEnd::Replace("the consumer was replaced".into()));
                }
                Err(error) => {
                    let reason = format!("the consumer cannot be checked: {error:?}");
                    return Some(ReadEnd::Replace(reason));
                }
            }
            consumer.consumer_checked_at = requests;
        }
        if checks_stream {
            match api.stream_info(&stream.name).await {
                Ok(info) if StreamId::of(&stream.name, &info) == stream => {
                    let lost = info.state.first_sequence.min(delivery.stream_sequence) - 1;
                    if lost > position {
                        self.skip_lost(lost);
                    }
                }
                Ok(_) | Err(ApiError::NoStream) => return Some(ReadEnd::End(stream.deleted())),
                Err(error) => {
                    let reason = format!("the stream cannot be checked: {error:?}");
                    return Some(ReadEnd::Replace(reason));
                }
            }
            consumer.stream_checked_at = requests;
        }
        None
    }

    /// Delivers an event. While the queue is full nothing is read, so the stream's last sequence is polled instead, for
    /// the lag.
    async fn deliver(
        &mut self,
        consumer: &ActiveConsumer,
        event: Event,
        delivery: Delivery,
    ) -> bool {
        let Some(stream) = self.stream.as_ref() else { return self.sender.send(event).await };
        let counts = Arc::clone(self.sender.counts());
        let delivering = self.sender.send(event);
        tokio::pin!(delivering);
        loop {
            let asking = async {
                sleep(LAG_POLL_INTERVAL).await;
                JetStreamApi(&consumer.client.nats)
                    .consumer_info(&stream.name, &consumer.name)
                    .await
            };
            tokio::select! {
                biased;
                heard = &mut delivering => return heard,
                info = asking => if let Ok(info) = info {
                    let delivered = info.delivered.consumer_sequence;
                    let on_its_way = delivered.saturating_sub(delivery.consumer_sequence);
                    let behind = consumer.lag(info.num_pending + on_its_way);
                    counts.set_lag(behind, Some(delivery.published));
                },
            }
        }
    }

    fn make_event(&mut self, message: &Message, delivery: Delivery) -> Event {
        if *self.topic != *message.subject {
            self.topic = message.subject.as_str().into();
        }
        Event {
            partition_offset: self.current_partition_offset(),
            key: bucket_key(&message.subject).map(|key| key.to_owned().into()),
            headers: headers::from_nats(message.headers.as_ref()),
            published: Some(delivery.published),
            ..Event::new(Arc::clone(&self.topic), message.payload.clone())
        }
    }

    /// Checks, after a time without messages, that the stream is still the same, and updates the position. The position
    /// thus advances when the stream grows by messages that are filtered out, and does not point before deleted
    /// messages.
    async fn check_stream(&mut self, consumer: &ActiveConsumer) -> Option<ReadEnd> {
        let (stream, position) = (self.stream.clone()?, self.position?);
        let api = JetStreamApi(&consumer.client.nats);
        let last = match api.stream_info(&stream.name).await {
            Ok(info) if StreamId::of(&stream.name, &info) == stream => info.state.last_sequence,
            Ok(_) | Err(ApiError::NoStream) => return Some(ReadEnd::End(stream.deleted())),
            Err(_) => return None,
        };
        if last > position {
            match api.consumer_info(&stream.name, &consumer.name).await {
                Ok(info) if info.created != consumer.created => {
                    return Some(ReadEnd::Replace("the consumer was replaced".into()));
                }
                // The consumer was queried after the stream, so it has nothing left to deliver up to `last`, and
                // nothing is on its way to this reader.
                Ok(info)
                    if info.num_pending == 0
                        && info.delivered.consumer_sequence == consumer.delivered =>
                {
                    self.position = Some(last);
                    self.progress_due = true;
                }
                Ok(_) => {}
                Err(ApiError::NoConsumer) => {
                    return Some(ReadEnd::Replace("the consumer was deleted".into()));
                }
                Err(_) => {}
            }
        }
        if consumer.until.is_some() && self.position >= consumer.until {
            return Some(ReadEnd::CaughtUp);
        }
        (consumer.until.is_none() && !consumer.is_durable && self.durable_name().is_some())
            .then(|| ReadEnd::Replace("the durable consumer is free".into()))
    }

    /// Checks whether a durable consumer that has more messages, but delivers none, waits for acknowledgements. All of
    /// them were sent, so in that case it has lost some and would wait forever.
    async fn check_durable_consumer(&mut self, consumer: &ActiveConsumer) -> Option<ReadEnd> {
        let stream = self.stream.clone()?;
        let info = match JetStreamApi(&consumer.client.nats)
            .consumer_info(&stream.name, &consumer.name)
            .await
        {
            Ok(info) => info,
            Err(ApiError::NoConsumer) => {
                return Some(ReadEnd::Replace("the consumer was deleted".into()));
            }
            // Another heartbeat repeats this check soon, unless the connection is lost, which is noticed elsewhere.
            Err(_) => return None,
        };
        if info.created != consumer.created {
            return Some(ReadEnd::Replace("the consumer was replaced".into()));
        }
        // Otherwise a message is on its way to this reader or to another one.
        let is_stuck = info.delivered.consumer_sequence == consumer.delivered
            && info.num_pending > 0
            && info.num_ack_pending > 0;
        is_stuck.then(|| {
            self.durable_is_stuck = true;
            ReadEnd::Replace(
                "the durable consumer waits for acknowledgements that were already sent".into(),
            )
        })
    }

    /// Opens another consumer after the position, and retries until it succeeds. The error is the end of the stream, or
    /// `None` if the stream was dropped.
    async fn replace_consumer(&mut self) -> Result<ActiveConsumer, Option<StreamEnd>> {
        let gone = self.sender.closed();
        tokio::pin!(gone);
        loop {
            let client = match &*self.state.borrow_and_update() {
                ConnectionState::Connected(client) => Some(client.clone()),
                ConnectionState::Disconnected(_) => None,
            };
            let mut state = self.state.clone();
            let changed = async move { state.changed().await };
            let Some(client) = client else {
                tokio::select! {
                    () = &mut gone => return Err(None),
                    changed = changed => match changed {
                        Ok(()) => continue,
                        Err(_) => return Err(Some(StreamEnd::Closed)),
                    },
                }
            };
            let failure = tokio::select! {
                () = &mut gone => return Err(None),
                changed = changed => match changed {
                    Ok(()) => continue,
                    Err(_) => return Err(Some(StreamEnd::Closed)),
                },
                consumer = self.open_consumer(&client) => match consumer {
                    Ok(consumer) => return Ok(consumer),
                    Err(failure) => failure,
                },
            };
            let reason = match failure {
                ConsumerError::NoStream(name) => {
                    return Err(Some(StreamId::deleted_by_name(&name)));
                }
                ConsumerError::PositionGone => "the position is gone".to_owned(),
                ConsumerError::Refused(reason) | ConsumerError::Unanswered(reason) => reason,
            };
            self.stats.record_error(ErrorKind::Subscription);
            self.log.log_no_consumer(&reason);
            if let Some(end) = self.wait_backoff().await {
                return Err(end);
            }
        }
    }

    /// Waits before another attempt. Returns `Some` if the stream was dropped meanwhile.
    async fn wait_backoff(&mut self) -> Option<Option<StreamEnd>> {
        let gone = self.sender.closed();
        tokio::select! {
            () = gone => Some(None),
            () = sleep(self.backoff.next_delay()) => None,
        }
    }

    /// Returns the position as an offset that a stream can be opened after.
    fn current_partition_offset(&self) -> Option<PartitionOffset> {
        let stream = self.stream.as_ref()?;
        Some(PartitionOffset { partition: 0, offset: self.position?, part: stream.created })
    }

    /// Advances the position to `last`, because the events up to there are not stored any more, and announces a gap.
    pub(super) fn skip_lost(&mut self, last: u64) {
        ProviderStats::add(&self.stats.gaps, self.sender.announce_gap().into());
        self.position = Some(last);
        self.progress_due = true;
        let problem = "a stream of JetStream has dropped events before they were read";
        self.log.log_gap("", "the stream does not keep them any more", problem);
    }

    fn record_stray(&mut self, consumer: &str) {
        self.strays += 1;
        if self.strays == STRAYS_MAX {
            tracing::warn!(
                provider = %self.provider,
                consumer,
                "another reader uses this durable consumer; it is left alone, and nothing is lost. Give each \
                 router a name of its own with `events.instance`"
            );
        }
    }

    /// Requests the deletion of an ephemeral consumer that is not needed any more.
    async fn forget_ephemeral(&self, consumer: &ActiveConsumer) {
        if !consumer.is_durable
            && let Some(stream) = &self.stream
        {
            JetStreamApi(&consumer.client.nats).forget_consumer(&stream.name, &consumer.name).await;
        }
    }
}

impl ActiveConsumer {
    /// Returns the lag if the broker counts that many messages behind the position. `None` if the count includes
    /// messages that are filtered out.
    pub(super) fn lag(&self, pending: u64) -> Option<u64> {
        (pending == 0 || !self.is_unfiltered).then_some(pending)
    }

    /// True if a delivery that one heartbeat named has not arrived before the next heartbeat. It went to another reader
    /// of this consumer, and without an event after it no gap in the numbers would show that. One heartbeat is not
    /// enough, because a replicated consumer counts a delivery before it sends it.
    fn has_missed_deliveries(&mut self, delivered: Option<u64>) -> bool {
        let misses = self.delivered < self.delivered_by_heartbeat;
        self.delivered_by_heartbeat = delivered.unwrap_or(self.delivered);
        misses
    }

    /// Acknowledges everything that was delivered. This waits for no confirmation, because the broker sends none.
    async fn acknowledge(&mut self) {
        if let Some(subject) = self.unacknowledged.take() {
            // If this fails the connection is gone, and redelivered messages are recognized.
            let _ = self.client.nats.publish(subject, "+ACK".into()).await;
        }
    }
}

/// True if the message marks a key of a bucket as deleted. Such a message has no value to deliver.
fn is_key_deletion(message: &Message) -> bool {
    message.subject.starts_with(BUCKETS)
        && message.headers.as_ref().is_some_and(|headers| {
            headers.get("Nats-Marker-Reason").is_some()
                || headers
                    .get("KV-Operation")
                    .is_some_and(|operation| matches!(operation.as_str(), "DEL" | "PURGE"))
        })
}

/// Returns the key in `$KV.BUCKET.KEY`.
fn bucket_key(subject: &str) -> Option<&str> {
    let (_, key) = subject.strip_prefix(BUCKETS)?.split_once('.')?;
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_bucket_follows_its_name() {
        assert_eq!(bucket_key("$KV.planes.ST.101"), Some("ST.101"));
        assert_eq!(bucket_key("$KV.planes"), None);
        assert_eq!(bucket_key("orders.7"), None);
    }
}
