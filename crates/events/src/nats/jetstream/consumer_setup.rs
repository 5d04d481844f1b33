//! The setup of the consumer that a reader pulls from: which stream it reads, where it begins, whether the broker
//! filters, and whether a durable consumer is used.
//!
//! A durable consumer redelivers messages that were not acknowledged, but later and out of order. The messages that it
//! has delivered, and the reader does not have, are therefore read through an ephemeral consumer first. The reader
//! knows them when the durable consumer repeats them, and leaves them out. It does the same if another process pulls
//! from the durable consumer. If the broker has forgotten what it delivered, the durable consumer is created again at
//! the reader's position. A reader of new events leaves out all messages that were stored before it was opened.

use std::time::{Duration, SystemTime};

use async_nats::jetstream::consumer::{AckPolicy, Config, DeliverPolicy, Info};
use async_nats::jetstream::stream;

use super::super::client_session::SharedClient;
use super::api::{ApiError, JetStreamApi};
use super::consumer_error::ConsumerError;
use super::durable_names::NameClaim;
use super::pull::PullSubscription;
use super::reader::{ActiveConsumer, JetStreamReader, STRAYS_MAX};
use super::stream_id::StreamId;
use crate::Start;

/// The time for which the broker keeps an ephemeral consumer that is not pulled from, in addition to the time that a
/// request waits.
const EPHEMERAL_INACTIVE: Duration = Duration::from_secs(60);

/// The version of nats-server since which one consumer can filter several subjects.
const SEVERAL_SUBJECTS_SINCE: (i64, i64, i64) = (2, 10, 0);

/// The reason for which a stream is refused if JetStream stores none of its events.
const NO_STREAM: &str = "no stream of JetStream has the subject";

impl JetStreamReader {
    /// Opens a consumer after the position, or at the start of the stream if there is no position yet.
    pub(super) async fn open_consumer(
        &mut self,
        client: &SharedClient,
    ) -> Result<ActiveConsumer, ConsumerError> {
        let api = JetStreamApi(&client.nats);
        let name = match &self.stream {
            Some(stream) => stream.name.clone(),
            None => self.find_stream(&api).await?,
        };
        let info = match api.stream_info(&name).await {
            Err(ApiError::NoStream) => return Err(ConsumerError::NoStream(name)),
            info => info?,
        };
        let stream = StreamId::of(&name, &info);
        if self.stream.get_or_insert_with(|| stream.clone()) != &stream {
            return Err(ConsumerError::NoStream(name));
        }
        self.check_position(&stream, &info.state)?;
        if self.bounded && self.end.is_none() {
            let mut end = None;
            for subject in self.filter.subjects() {
                end = end.max(api.last_sequence_of(&stream.name, subject).await?);
            }
            self.end = Some(end.unwrap_or(0));
        }
        let durable_name = self.durable_name();
        let Some(durable_name) = durable_name.map(str::to_owned) else {
            return self.create_ephemeral(client, &stream, &info.state, None).await;
        };
        match api.consumer_info(&stream.name, &durable_name).await {
            Ok(known) => {
                let is_opening = self.position.is_none();
                if is_opening {
                    self.position = Some(match self.start {
                        // New subscribers get the events that are published from now on. Subscribers with a cursor read
                        // older events from their own positions.
                        Start::New => info.state.last_sequence,
                        _ => acknowledged_up_to(&known, &info.state),
                    });
                    self.check_position(&stream, &info.state)?;
                }
                if is_opening && self.start == Start::New && known.num_pending > 0 {
                    // Otherwise the consumer would deliver its backlog before the first requested event.
                    api.delete_consumer(&stream.name, &durable_name).await?;
                    return self.create_durable(client, &stream, &info.state, durable_name).await;
                }
                if self.durable_is_stuck || has_forgotten(&known, self.delivered_by(&known)) {
                    tracing::warn!(
                        provider = %self.provider,
                        consumer = durable_name,
                        position = self.position,
                        "the broker has lost the state of this durable consumer; creating it again at this router's \
                         position"
                    );
                    api.delete_consumer(&stream.name, &durable_name).await?;
                    return self.create_durable(client, &stream, &info.state, durable_name).await;
                }
                let delivered = known.delivered.stream_sequence;
                if self.position < Some(delivered) {
                    return self
                        .create_ephemeral(client, &stream, &info.state, Some(delivered))
                        .await;
                }
                self.start_pull(client, &stream, known, true, None).await
            }
            Err(ApiError::NoConsumer) => {
                self.create_durable(client, &stream, &info.state, durable_name).await
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn create_durable(
        &mut self,
        client: &SharedClient,
        stream: &StreamId,
        state: &stream::State,
        name: String,
    ) -> Result<ActiveConsumer, ConsumerError> {
        let api = JetStreamApi(&client.nats);
        let mut config = self.consumer_config(&api, stream, state).await?;
        config.name = Some(name.clone());
        config.durable_name = Some(name);
        config.ack_policy = AckPolicy::All;
        config.inactive_threshold = self.durable.inactive_threshold.unwrap_or_default();
        let info = api.create_consumer(&stream.name, &config).await?;
        self.durable_is_stuck = false;
        self.adopt_position(&info, state);
        let delivered = info.delivered.stream_sequence;
        if info.delivered.consumer_sequence > 0 && self.position < Some(delivered) {
            // Another router has created the same consumer a moment before, and was first to pull from it.
            return self.create_ephemeral(client, stream, state, Some(delivered)).await;
        }
        self.start_pull(client, stream, info, true, None).await
    }

    /// Returns the number of the latest delivery that arrived here from this durable consumer. It is 0 for a consumer
    /// that another router has created in the place of the one that this reader knew.
    fn delivered_by(&self, consumer: &Info) -> u64 {
        if self.durable_created == Some(consumer.created) { self.durable_delivered } else { 0 }
    }

    /// Returns the name of the durable consumer if one is requested and free. The reader claims it from then on.
    pub(super) fn durable_name(&mut self) -> Option<&str> {
        // Readers that begin at a position or end read the past. The durable consumer belongs to the reader of live
        // events.
        if self.strays >= STRAYS_MAX || self.bounded || matches!(self.start, Start::After(_)) {
            return None;
        }
        if self.claim.is_none()
            && let Some(stream) = &self.stream
        {
            let name = self.durable_names.name(&self.durable, &stream.name, &self.filter);
            self.claim = name.and_then(|name| self.durable_names.claim(&name));
        }
        self.claim.as_ref().map(NameClaim::name)
    }

    /// Returns the configured stream, or the only stream that has the subjects.
    async fn find_stream(&self, api: &JetStreamApi<'_>) -> Result<Box<str>, ConsumerError> {
        if let Some(name) = &self.durable.stream {
            let is_name =
                |it: char| !it.is_whitespace() && !it.is_control() && !".*>/\\".contains(it);
            return if !name.is_empty() && name.chars().all(is_name) {
                Ok(name.clone())
            } else {
                Err(ConsumerError::Refused(format!("{name:?} cannot be the name of a stream")))
            };
        }
        let mut found: Option<String> = None;
        for subject in self.filter.subjects() {
            let mut streams = api.find_streams(subject).await?;
            streams.extend(found.take());
            streams.sort_unstable();
            streams.dedup();
            match streams.as_slice() {
                [] => {
                    let (provider, subject) = (&*self.provider, self.stats.masked_topic(subject));
                    tracing::debug!(provider, subject, "no stream of JetStream has a subject");
                    return Err(ConsumerError::Refused(NO_STREAM.into()));
                }
                [_] => found = streams.pop(),
                several => {
                    let several = several.join(", ");
                    let reason =
                        format!("the subjects are in several streams ({several}): name one");
                    return Err(ConsumerError::Refused(reason));
                }
            }
        }
        found.map(Into::into).ok_or_else(|| ConsumerError::Refused("there are no subjects".into()))
    }

    /// Checks that the position is valid in the current stream. If events behind it were deleted, advances it to the
    /// first stored event, with a gap.
    fn check_position(
        &mut self,
        stream: &StreamId,
        state: &stream::State,
    ) -> Result<(), ConsumerError> {
        let (first, last) = (state.first_sequence, state.last_sequence);
        match (self.position, &self.start) {
            // The broker has fewer messages than before, so its sequences will mean other messages.
            (Some(position), _) if position > last => {
                Err(ConsumerError::NoStream(stream.name.clone()))
            }
            (Some(position), _) => {
                if first > position + 1 {
                    self.skip_lost(first - 1);
                }
                Ok(())
            }
            (None, Start::After(wanted)) => {
                // Without an offset nothing was read, and the stream begins with its first message.
                let Some(partition_offset) = wanted.partition(0) else { return Ok(()) };
                if partition_offset.part != stream.created
                    || partition_offset.offset > last
                    || partition_offset.offset.saturating_add(1) < first
                {
                    return Err(ConsumerError::PositionGone);
                }
                self.position = Some(partition_offset.offset);
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    async fn create_ephemeral(
        &mut self,
        client: &SharedClient,
        stream: &StreamId,
        state: &stream::State,
        until: Option<u64>,
    ) -> Result<ActiveConsumer, ConsumerError> {
        let api = JetStreamApi(&client.nats);
        let mut config = self.consumer_config(&api, stream, state).await?;
        config.ack_policy = AckPolicy::None;
        config.inactive_threshold = EPHEMERAL_INACTIVE + self.idle;
        config.memory_storage = true;
        config.num_replicas = 1;
        let info = api.create_consumer(&stream.name, &config).await?;
        self.adopt_position(&info, state);
        self.start_pull(client, stream, info, false, until).await
    }

    async fn start_pull(
        &mut self,
        client: &SharedClient,
        stream: &StreamId,
        info: Info,
        is_durable: bool,
        until: Option<u64>,
    ) -> Result<ActiveConsumer, ConsumerError> {
        let pull =
            PullSubscription::new(client, &stream.name, &info.name, self.queue_events, self.idle)
                .await;
        let pull = pull.map_err(|reason| ConsumerError::Unanswered(reason.into()))?;
        if is_durable {
            self.durable_delivered = self.delivered_by(&info);
            self.durable_created = Some(info.created);
        }
        let consumer = ActiveConsumer {
            client: client.clone(),
            pull,
            is_durable,
            until,
            delivered: info.delivered.consumer_sequence,
            delivered_by_heartbeat: 0,
            is_unfiltered: info.config.filter_subject.is_empty()
                && info.config.filter_subjects.is_empty(),
            has_delivered: false,
            has_more: info.num_pending > 0,
            consumer_checked_at: 0,
            stream_checked_at: 0,
            created: info.created,
            unacknowledged: None,
            name: info.name,
        };
        if until.is_none() {
            self.sender.counts().set_lag(consumer.lag(info.num_pending), None);
        }
        Ok(consumer)
    }

    /// Takes the position from a consumer that was just made, if there is none yet.
    fn adopt_position(&mut self, info: &Info, state: &stream::State) {
        let before_first = match info.delivered.stream_sequence {
            // This broker does not report where the consumer begins.
            0 if self.start == Start::New => state.last_sequence,
            0 => state.first_sequence.saturating_sub(1),
            sequence => sequence,
        };
        self.position.get_or_insert(before_first);
    }

    /// Returns the configuration that all consumers of this reader have in common.
    async fn consumer_config(
        &self,
        api: &JetStreamApi<'_>,
        stream: &StreamId,
        state: &stream::State,
    ) -> Result<Config, ConsumerError> {
        let (major, minor, patch) = SEVERAL_SUBJECTS_SINCE;
        let takes_several = api.0.is_server_compatible(major, minor, patch);
        let broker_filters = self.filter.is_supported(takes_several);
        let subjects = self.filter.subjects();
        let last = state.last_sequence;
        let from = |start_sequence: u64| DeliverPolicy::ByStartSequence { start_sequence };
        let deliver_policy = match (self.position, &self.start) {
            (Some(position), _) => from(position + 1),
            (None, Start::New) => DeliverPolicy::New,
            (None, Start::All | Start::After(_)) => DeliverPolicy::All,
            (None, Start::At(sequence)) => from((*sequence).clamp(1, last + 1)),
            (None, Start::Since(time)) => {
                let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let nanoseconds = i128::try_from(since.as_nanos()).unwrap_or(i128::MAX);
                let start_time = async_nats::datetime::from_nanos(nanoseconds).map_err(|_| {
                    ConsumerError::Refused("the time to start at is out of range".into())
                })?;
                DeliverPolicy::ByStartTime { start_time }
            }
            (None, Start::Last) if broker_filters => DeliverPolicy::Last,
            (None, Start::Last) => {
                let mut latest = None;
                for subject in subjects {
                    latest = latest.max(api.last_sequence_of(&stream.name, subject).await?);
                }
                latest.map_or(DeliverPolicy::New, from)
            }
            (None, Start::LastPerTopic) if broker_filters => DeliverPolicy::LastPerSubject,
            (None, Start::LastPerTopic) => {
                let reason = "the latest event of each of several subjects needs subjects that do not overlap, \
                              and nats-server 2.10";
                return Err(ConsumerError::Refused(reason.into()));
            }
        };
        let mut config =
            Config { description: Some("starling".into()), deliver_policy, ..Config::default() };
        if broker_filters {
            match subjects {
                [one] => config.filter_subject = one.to_string(),
                several => {
                    config.filter_subjects = several.iter().map(ToString::to_string).collect();
                }
            }
        }
        Ok(config)
    }
}

/// True if the broker has lost some of the state of a durable consumer. The broker stores the state a while after a
/// delivery, and a broker that is killed restarts with the stored state. It still accepts the acknowledgement of a
/// delivery that it has forgotten (the client library sends it when the connection is back), and applies it to messages
/// that it delivers again. Their own acknowledgements then have no effect, and when a thousand of them wait
/// (`max_ack_pending`) the consumer delivers nothing more.
fn has_forgotten(info: &Info, delivered_once: u64) -> bool {
    info.delivered.consumer_sequence < delivered_once
        || info.ack_floor.stream_sequence > info.delivered.stream_sequence
}

/// Returns the sequence up to which a durable consumer was certainly read.
fn acknowledged_up_to(info: &Info, state: &stream::State) -> u64 {
    let floor = &info.ack_floor;
    match info.config.deliver_policy {
        _ if info.num_ack_pending == 0 => info.delivered.stream_sequence.max(floor.stream_sequence),
        _ if floor.stream_sequence > 0 => floor.stream_sequence,
        // Nothing was acknowledged so far, and not every broker then reports where the consumer began.
        DeliverPolicy::ByStartSequence { start_sequence } => start_sequence.saturating_sub(1),
        _ => state.first_sequence.saturating_sub(1),
    }
}
