//! What every reader does, the shared one and those of single streams: hand the library's messages to the
//! board, look after topics that grow or go away, after offsets that are there no more, and how far streams are behind.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rdkafka::Offset;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use super::board::{Board, Change, Delivered, Listener};
use super::client::{Client, PartitionCounts, Place, Unanswered};
use super::common::Common;
use super::context::Health;
use super::readable::{self, Readable};
use crate::{ErrorKind, Event, Headers, ProviderStats, StreamEnd};

/// A topic that a broker does not know is asked for again after this, and then is gone: brokers that have just
/// started may not know all of them yet.
const SECOND_LOOK_AFTER: Duration = Duration::from_secs(1);

/// How often a topic must be unknown, one time after the other.
const LOOKS_BEFORE_GONE: u32 = 2;

/// How often the cluster is asked how far all partitions go: one question to each broker that leads some.
const ENDS_ASKED_EVERY: Duration = Duration::from_secs(10);

/// The same for those that a stream has not read to the end, of which so many are asked for at a time.
const ENDS_ASKED_EVERY_WHERE_BEHIND: Duration = Duration::from_secs(1);
const PLACES_BEHIND_ASKED_MAX: usize = 1024;

const ENDING: &str = "the router is ending";

/// What came back from the cluster.
enum Found {
    Partitions(Result<PartitionCounts, Unanswered>),
    Range(Result<Vec<(Place, u64, u64)>, Unanswered>),
    /// Of those that were wanted; the others are not known now.
    Ends(Vec<(Place, u64)>),
    Readable(Vec<(Arc<str>, Readable)>),
}

/// The client is of no use any more.
pub(super) struct Broken(pub(super) String);

/// See the head of the file.
pub(super) struct Reading {
    pub(super) client: Arc<Client>,
    pub(super) board: Board,
    common: Arc<Common>,
    health: Arc<Health>,
    refresh: Duration,
    /// When the topics are looked at next.
    look_at: Instant,
    /// When the ends of partitions are asked for next, of all of them, and of those that are not read to the end.
    ends_at: Instant,
    ends_behind_at: Option<Instant>,
    behind: Vec<Place>,
    /// The library has nothing more for us, as far as we know; and so it was at some time since the ends were told.
    is_idle: bool,
    was_idle: bool,
    /// Offsets that are wanted may be out of range; to be looked at with the topics.
    range_due: bool,
    /// Topics that may be the one of which the broker has refused events; to be asked for.
    suspects: VecDeque<Arc<str>>,
    /// Topics that were unknown at the latest looks, and at how many.
    unknown: Vec<(Arc<str>, u32)>,
    asking: Option<JoinHandle<Found>>,
}

impl Reading {
    pub(super) fn new(client: Arc<Client>, common: &Arc<Common>) -> Self {
        let refresh = common.settings.metadata_refresh;
        Self {
            client,
            board: Board::default(),
            common: Arc::clone(common),
            health: Arc::clone(&common.health),
            refresh,
            look_at: Instant::now() + refresh,
            ends_at: Instant::now() + refresh.min(ENDS_ASKED_EVERY_WHERE_BEHIND),
            ends_behind_at: None,
            behind: Vec::new(),
            is_idle: false,
            was_idle: false,
            range_due: false,
            suspects: VecDeque::new(),
            unknown: Vec::new(),
            asking: None,
        }
    }

    /// Goes on with another client where this one was.
    pub(super) async fn replace_client(&mut self, client: Arc<Client>) -> Result<(), Broken> {
        self.client = client;
        self.asking = None;
        let places = self.board.places();
        self.blocking(move |client| client.assign(&places, &[])).await
    }

    /// Takes listeners in.
    pub(super) async fn add(&mut self, listeners: Vec<Listener>) -> Result<(), Broken> {
        let mut changes: Vec<Change> = Vec::new();
        for listener in listeners {
            changes.extend(self.board.add(listener));
        }
        self.change(changes).await
    }

    /// Lets listeners go.
    pub(super) async fn remove(&mut self, ids: Vec<u64>) -> Result<Vec<Listener>, Broken> {
        let mut removed = Vec::with_capacity(ids.len());
        let mut unwanted = Vec::new();
        for id in ids {
            if let Some((listener, places)) = self.board.remove(id) {
                removed.push(listener);
                unwanted.extend(places);
            }
        }
        self.unassign(unwanted).await?;
        Ok(removed)
    }

    async fn change(&mut self, changes: Vec<Change>) -> Result<(), Broken> {
        if changes.is_empty() {
            return Ok(());
        }
        // Several listeners may have moved one partition; the last move goes furthest back.
        let mut known: Vec<Place> = Vec::new();
        let mut places: std::collections::BTreeMap<Place, u64> = std::collections::BTreeMap::new();
        for Change { place, from, known: is_known } in changes {
            let first = places.insert(place.clone(), from).is_none();
            if first && is_known {
                known.push(place);
            }
        }
        let places: Vec<_> = places.into_iter().collect();
        self.blocking(move |client| client.assign(&places, &known)).await
    }

    async fn unassign(&mut self, places: Vec<Place>) -> Result<(), Broken> {
        if places.is_empty() {
            return Ok(());
        }
        self.blocking(move |client| client.unassign(&places)).await
    }

    /// Runs what waits for the library's own thread, which takes milliseconds.
    async fn blocking(
        &self,
        work: impl FnOnce(&Client) -> Result<(), String> + Send + 'static,
    ) -> Result<(), Broken> {
        let client = Arc::clone(&self.client);
        match spawn_blocking(move || work(&client)).await {
            Ok(result) => result.map_err(Broken),
            Err(_) => Err(Broken(ENDING.into())),
        }
    }

    /// Resolves when it is time to look at the topics, or when the cluster has answered; then call
    /// [`Reading::look`] with what it gives.
    pub(super) async fn due(&mut self) -> Due {
        match &mut self.asking {
            Some(asking) => {
                let found = asking.await;
                self.asking = None;
                let ending = |_| Found::Partitions(Err(Unanswered::Away(ENDING.into())));
                Due(Some(found.unwrap_or_else(ending)))
            }
            None => {
                let next = [Some(self.look_at), Some(self.ends_at), self.ends_behind_at];
                sleep_until(next.into_iter().flatten().min().unwrap_or(self.look_at)).await;
                Due(None)
            }
        }
    }

    pub(super) async fn look(&mut self, due: Due) -> Result<(), Broken> {
        match due.0 {
            None => {
                // Whatever has waited longest.
                let ends_at = self.ends_behind_at.map_or(self.ends_at, |at| at.min(self.ends_at));
                if ends_at < self.look_at {
                    self.ask_for_ends();
                } else {
                    self.ask();
                }
                Ok(())
            }
            Some(Found::Partitions(found)) => self.partitions_found(found).await,
            Some(Found::Range(found)) => self.range_found(found).await,
            Some(Found::Readable(found)) => self.readable_found(found).await,
            Some(Found::Ends(found)) => {
                self.ends_found(found);
                Ok(())
            }
        }
    }

    /// The library has nothing more for us at present.
    pub(super) fn idle(&mut self) {
        (self.is_idle, self.was_idle) = (true, true);
    }

    /// Asks how far partitions go, so that it can be told how far streams are behind. The library knows it, too, from
    /// what it has fetched, but fetches nothing where a stream is full, which is where it matters.
    fn ask_for_ends(&mut self) {
        let now = Instant::now();
        self.ends_behind_at = None;
        let mut places = std::mem::take(&mut self.behind);
        if now >= self.ends_at {
            self.ends_at = now + self.refresh.min(ENDS_ASKED_EVERY);
            places = self.board.places().into_iter().map(|(place, _)| place).collect();
        }
        if !places.is_empty() {
            let client = Arc::clone(&self.client);
            self.asking = Some(spawn_blocking(move || Found::Ends(client.ends(places))));
        }
    }

    fn ends_found(&mut self, found: Vec<(Place, u64)>) {
        if found.is_empty() {
            // Whoever is away is asked with all the others, later.
            return;
        }
        let was_idle = std::mem::replace(&mut self.was_idle, self.is_idle);
        for (place, end) in found {
            self.board.ends_at(&place, end, was_idle);
        }
        self.behind = self.board.tell_lag();
        self.behind.truncate(PLACES_BEHIND_ASKED_MAX);
        if !self.behind.is_empty() {
            let after = self.refresh.min(ENDS_ASKED_EVERY_WHERE_BEHIND);
            self.ends_behind_at = Some(Instant::now() + after);
        }
    }

    fn ask(&mut self) {
        self.look_at = Instant::now() + self.refresh;
        let client = Arc::clone(&self.client);
        self.asking = Some(if std::mem::take(&mut self.range_due) {
            let places: Vec<Place> =
                self.board.places().into_iter().map(|(place, _)| place).collect();
            spawn_blocking(move || {
                let first = client.offsets(&places, Offset::Beginning);
                let range = first.and_then(|first| {
                    let end = client.offsets(&places, Offset::End)?;
                    let ranges = places.into_iter().zip(first).zip(end);
                    Ok(ranges.map(|((place, first), end)| (place, first, end)).collect())
                });
                Found::Range(range)
            })
        } else if !self.suspects.is_empty() {
            let wanted = self.board.topics();
            self.suspects.retain(|topic| wanted.contains(topic));
            let count = self.suspects.len().min(readable::TOPICS_AT_ONCE);
            let topics: Vec<_> = self.suspects.drain(..count).collect();
            let common = Arc::clone(&self.common);
            spawn_blocking(move || {
                Found::Readable(readable::ask(&common.settings, common.context(), topics))
            })
        } else {
            let topics = self.board.topics();
            if topics.is_empty() {
                return;
            }
            spawn_blocking(move || Found::Partitions(client.partitions(&topics)))
        });
    }

    async fn partitions_found(
        &mut self,
        found: Result<PartitionCounts, Unanswered>,
    ) -> Result<(), Broken> {
        // Whoever is away will be asked again.
        let Ok(found) = found else { return Ok(()) };
        let before = std::mem::take(&mut self.unknown);
        let (mut changes, mut unwanted) = (Vec::new(), Vec::new());
        for (topic, count) in found {
            match count {
                Ok(count) => changes.extend(self.board.grown(&topic, count)),
                Err(Unanswered::Away(_)) => {}
                Err(Unanswered::Refused(reason)) => {
                    self.ended(&topic, &reason);
                    unwanted.extend(self.board.end_topic(&topic, &StreamEnd::Refused(reason)));
                }
                Err(Unanswered::NoTopic(_)) => {
                    let looks = before.iter().find(|(name, _)| *name == topic);
                    let looks = looks.map_or(0, |(_, looks)| *looks) + 1;
                    if looks >= LOOKS_BEFORE_GONE {
                        self.ended(&topic, "it was deleted");
                        let gone = StreamEnd::Gone(topic.to_string());
                        unwanted.extend(self.board.end_topic(&topic, &gone));
                    } else {
                        self.unknown.push((topic, looks));
                        self.look_at = Instant::now() + SECOND_LOOK_AFTER;
                    }
                }
            }
        }
        if !changes.is_empty() {
            let (provider, count) = (&self.health.provider, changes.len());
            tracing::info!(%provider, count, "new partitions are read from their start");
        }
        self.unassign(unwanted).await?;
        self.change(changes).await
    }

    fn ended(&self, topic: &str, reason: &str) {
        let provider = &self.health.provider;
        self.health.stats.record_error(ErrorKind::Subscription);
        tracing::warn!(%provider, topic, reason, "the topic cannot be read any more; its streams end");
    }

    /// Goes on where there are events, and has all partitions read anew: the library does not tell which of
    /// them it has stopped.
    async fn range_found(
        &mut self,
        found: Result<Vec<(Place, u64, u64)>, Unanswered>,
    ) -> Result<(), Broken> {
        let Ok(found) = found else {
            self.look_soon(true);
            return Ok(());
        };
        let next: std::collections::HashMap<Place, u64> = self.board.places().into_iter().collect();
        for (place, first, end) in found {
            let Some(&at) = next.get(&place) else { continue };
            if (first..=end).contains(&at) {
                continue;
            }
            // Behind the end: the topic was made anew, or a broker has lost its latest events. To begin it
            // again would repeat all of it.
            let offset = if at < first { first } else { end };
            let gaps = self.board.jump(&place, offset);
            ProviderStats::add(&self.health.stats.gaps, gaps);
            let ((topic, partition), provider) = (&place, &self.health.provider);
            tracing::warn!(
                %provider, %topic, partition, wanted = at, first, end,
                "the wanted events are not there any more; going on with a gap"
            );
        }
        let places = self.board.places();
        let known: Vec<Place> = places.iter().map(|(place, _)| place.clone()).collect();
        self.blocking(move |client| client.assign(&places, &known)).await
    }

    /// Ends the streams of topics that may not be read.
    async fn readable_found(&mut self, found: Vec<(Arc<str>, Readable)>) -> Result<(), Broken> {
        let mut unwanted = Vec::new();
        for (topic, readable) in found {
            match readable {
                Readable::Yes => {}
                Readable::Unknown => self.suspect(topic),
                Readable::No => {
                    self.common.refused.remember(&topic);
                    self.ended(&topic, readable::REFUSAL);
                    let refused = StreamEnd::Refused(format!("{topic}: {}", readable::REFUSAL));
                    unwanted.extend(self.board.end_topic(&topic, &refused));
                }
            }
        }
        if !self.suspects.is_empty() {
            self.look_soon(false);
        }
        self.unassign(unwanted).await
    }

    fn suspect(&mut self, topic: Arc<str>) {
        if !self.suspects.contains(&topic) {
            self.suspects.push_back(topic);
        }
    }

    /// Has the topics looked at soon; also the range of their offsets.
    fn look_soon(&mut self, range: bool) {
        self.range_due |= range;
        self.look_at = self.look_at.min(Instant::now() + SECOND_LOOK_AFTER / 4);
    }

    /// What the library says in place of a message.
    pub(super) fn failed(&mut self, error: &KafkaError) -> Result<(), Broken> {
        match error {
            KafkaError::MessageConsumptionFatal(code) => return Err(Broken(code.to_string())),
            KafkaError::MessageConsumption(
                Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation,
            ) => self.look_soon(true),
            KafkaError::MessageConsumption(
                Code::UnknownTopicOrPartition
                | Code::UnknownTopic
                | Code::UnknownPartition
                | Code::UnknownTopicId,
            ) => self.look_soon(false),
            // The library says it once for each topic that is begun, but not which.
            KafkaError::MessageConsumption(Code::TopicAuthorizationFailed) => {
                self.suspects = self.board.topics().into();
                self.look_soon(false);
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
                let gaps = self.board.gap();
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
    pub(super) fn received(&mut self, message: &BorrowedMessage<'_>) -> Option<Unsettled> {
        self.is_idle = false;
        let offset = u64::try_from(message.offset()).unwrap_or(0);
        let (topic, partition) = (message.topic(), message.partition());
        if !self.board.wants(topic, partition, offset) {
            return None;
        }
        let Some(event) = event(message) else {
            self.board.deliver(topic, partition, offset, None);
            return None;
        };
        let delivered = self.board.deliver(topic, partition, offset, Some(&event));
        if delivered.is_taken {
            ProviderStats::add(&self.health.stats.received, 1);
        }
        let Delivered { full, is_taken } = delivered;
        (!full.is_empty()).then_some(Unsettled { full, event, partition, offset, is_taken })
    }

    /// Offers an event again to a listener that had no room for it. False if it still has none.
    pub(super) fn settle(&mut self, unsettled: &mut Unsettled, id: u64) -> bool {
        let Unsettled { event, partition, offset, is_taken, .. } = unsettled;
        let settled = self.board.deliver_to(id, *partition, *offset, event);
        // Otherwise another reader reads it again, and counts it.
        if settled && !std::mem::replace(is_taken, true) {
            ProviderStats::add(&self.health.stats.received, 1);
        }
        settled
    }
}

/// An event for which some streams had no room.
pub(super) struct Unsettled {
    /// Theirs.
    pub(super) full: Vec<u64>,
    event: Event,
    partition: i32,
    offset: u64,
    /// Some other stream has it, and it was counted.
    is_taken: bool,
}

/// What [`Reading::due`] has waited for.
pub(super) struct Due(Option<Found>);

/// None: a tombstone, which says to those who keep a table that a key is gone, and nothing to subscribers.
pub(super) fn event(message: &BorrowedMessage<'_>) -> Option<Event> {
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
