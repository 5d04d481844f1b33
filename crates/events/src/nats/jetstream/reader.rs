//! The task behind one of our streams: it pulls, hands on, and knows how far it is. What to pull from is decided in
//! [`source`](super::source).
//!
//! The broker numbers a consumer's deliveries. A number that is left out means that something was delivered
//! elsewhere or lost on the way; then the consumer is given up and another one made after the position.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, Subject};
use tokio::sync::watch;
use tokio::time::sleep;

use super::super::connection::Link;
use super::super::{headers, session::Line};
use super::JetStream;
use super::api::{Api, ApiError};
use super::bookmark::{Bookmarks, Claim};
use super::delivery::Delivery;
use super::failure::Failure;
use super::filter::Filter;
use super::pull::{Pull, Pulled};
use super::stream_id::StreamId;
use crate::backoff::Backoff;
use crate::event_queue::EventSender;
use crate::{
    Durable, ErrorKind, Event, EventStream, Mark, ProviderStats, SourceError, Start, StreamEnd,
    Wanted,
};

/// How often deliveries of a durable consumer may go elsewhere before it is left to whoever takes them.
pub(super) const STRAYS_MAX: u32 = 3;

/// How often the broker is asked how far a stream has grown while its subscription takes nothing: about as often as
/// metrics are read.
const LAG_ASKED_EVERY: Duration = Duration::from_secs(10);

pub(super) struct Reader {
    pub(super) provider: Box<str>,
    link: watch::Receiver<Link>,
    stats: Arc<ProviderStats>,
    backoff: Backoff,
    pub(super) sender: EventSender,
    /// A message was passed over that the sender has not heard of.
    passed_over: bool,
    topic: Arc<str>,
    pub(super) queue_events: usize,
    pub(super) idle: Duration,
    pub(super) filter: Filter,
    pub(super) start: Start,
    pub(super) durable: Arc<Durable>,
    pub(super) bookmarks: Arc<Bookmarks>,
    pub(super) claim: Option<Claim>,
    pub(super) strays: u32,
    /// The number of the latest delivery of the durable consumer: a broker that counts less has forgotten some.
    pub(super) bookmark_delivered: u64,
    /// The durable consumer must be made anew to be of use.
    pub(super) bookmark_is_stuck: bool,
    pub(super) stream: Option<StreamId>,
    /// The number up to which everything was handed on or is not wanted; none: not open yet.
    pub(super) position: Option<u64>,
    /// True if our stream ends with the last message that is stored when it is opened.
    pub(super) bounded: bool,
    /// The number of that last message; 0 if there is none. `None` if it is not known yet, or our stream is not
    /// bounded.
    pub(super) end: Option<u64>,
}

/// What is pulled from.
pub(super) struct Consumer {
    pub(super) line: Line,
    pub(super) pull: Pull,
    pub(super) name: String,
    /// It is durable and wants acknowledgements.
    pub(super) is_bookmark: bool,
    /// Another consumer takes over from there.
    pub(super) until: Option<u64>,
    /// The number of its latest delivery that came.
    pub(super) delivered: u64,
    /// The number of its latest delivery, to any reader, that the broker has named in a heartbeat.
    pub(super) delivered_by_heartbeat: u64,
    /// The broker sends what is not wanted, too.
    pub(super) filters_here: bool,
    /// Something came from it.
    pub(super) brought: bool,
    /// It has more to deliver, as far as the broker has told.
    pub(super) has_more: bool,
    /// Where to acknowledge everything up to the latest message that was handed on.
    pub(super) unacknowledged: Option<Subject>,
}

/// Why a consumer is read no longer.
enum Ended {
    /// Make another.
    Again(String),
    /// The ephemeral consumer has brought what the durable one had delivered before.
    CaughtUp,
    /// Nobody listens to our stream any more.
    Unheard,
    /// For good.
    End(StreamEnd),
}

impl Reader {
    pub(super) fn new(shared: &JetStream, wanted: Wanted) -> (Self, EventStream) {
        // One more: the position comes before the first event.
        let (mut sender, stream) = EventSender::new(shared.queue_events + 1);
        sender.set_counts(shared.stats.stream_counts(wanted.topics.iter().map(|topic| &**topic)));
        let reader = Self {
            provider: shared.provider.clone(),
            link: shared.link.clone(),
            stats: Arc::clone(&shared.stats),
            backoff: Backoff::new(shared.retry),
            sender,
            passed_over: false,
            topic: "".into(),
            queue_events: shared.queue_events,
            idle: shared.idle,
            filter: Filter::new(wanted.topics),
            start: wanted.start,
            durable: wanted.durable.unwrap_or_default(),
            bookmarks: Arc::clone(&shared.bookmarks),
            claim: None,
            strays: 0,
            bookmark_delivered: 0,
            bookmark_is_stuck: false,
            stream: None,
            position: None,
            bounded: wanted.bounded,
            end: None,
        };
        (reader, stream)
    }

    /// Makes the first consumer and tells the sender where it begins.
    pub(super) async fn open(&mut self) -> Result<Consumer, SourceError> {
        let provider = self.provider.clone();
        let line = match &*self.link.borrow_and_update() {
            Link::Up(line) => line.clone(),
            Link::Away(reason) => {
                return Err(SourceError::Unavailable { provider, reason: reason.to_string() });
            }
        };
        let consumer = self.consumer(&line).await.map_err(|failure| match failure {
            Failure::NoStream(name) => SourceError::Refused {
                provider,
                reason: format!("JetStream has no stream {name:?}"),
            },
            Failure::PositionGone => SourceError::Gone { provider },
            Failure::Refused(reason) => SourceError::Refused { provider, reason },
            Failure::Unanswered(reason) => SourceError::Unavailable { provider, reason },
        })?;
        if let Some(mark) = self.mark() {
            self.sender.try_send_progress(mark);
        }
        Ok(consumer)
    }

    /// Until nobody listens or the stream ends.
    pub(super) async fn run(mut self, mut consumer: Consumer) {
        ProviderStats::add(&self.stats.streams, 1);
        let end = loop {
            let ended = self.read(&mut consumer).await;
            match ended {
                Ended::Unheard => {
                    self.release(&consumer).await;
                    break None;
                }
                Ended::End(end) => {
                    if end == StreamEnd::Complete {
                        self.release(&consumer).await;
                    }
                    break Some(end);
                }
                Ended::CaughtUp => self.release(&consumer).await,
                Ended::Again(reason) => {
                    tracing::debug!(
                        provider = %self.provider,
                        consumer = consumer.name,
                        reason,
                        "making another consumer of JetStream"
                    );
                    if consumer.brought {
                        self.backoff.reset();
                    } else if let Some(end) = self.pause().await {
                        break end;
                    }
                }
            }
            match self.another().await {
                Ok(next) => consumer = next,
                Err(end) => break end,
            }
        };
        ProviderStats::subtract(&self.stats.streams, 1);
        if let Some(end) = end {
            self.sender.end(end);
        }
    }

    async fn read(&mut self, consumer: &mut Consumer) -> Ended {
        let gone = self.sender.closed();
        tokio::pin!(gone);
        loop {
            if self.end.is_some_and(|end| self.position >= Some(end)) {
                return Ended::End(StreamEnd::Complete);
            }
            let pulled = if let Some(pulled) = consumer.pull.ready() {
                pulled
            } else {
                consumer.acknowledge().await;
                if std::mem::take(&mut self.passed_over)
                    && let Some(mark) = self.mark()
                {
                    self.sender.try_send_progress(mark);
                }
                tokio::select! {
                    biased;
                    () = &mut gone => return Ended::Unheard,
                    changed = self.link.changed() => return match changed {
                        Ok(()) => Ended::Again("the connection is another one".into()),
                        Err(_) => Ended::End(StreamEnd::Closed),
                    },
                    pulled = consumer.pull.next() => pulled,
                }
            };
            let ended = match pulled {
                Pulled::Message(message) => self.hand_on(consumer, message).await,
                Pulled::Idle => self.look_around(consumer).await,
                Pulled::Waiting { delivered } if consumer.misses_deliveries(delivered) => {
                    if consumer.is_bookmark {
                        self.went_elsewhere(&consumer.name);
                    }
                    Some(Ended::Again("deliveries did not come here".into()))
                }
                Pulled::Waiting { .. } if consumer.is_bookmark && consumer.has_more => {
                    self.look_at_bookmark(consumer).await
                }
                Pulled::Waiting { .. } => None,
                Pulled::Broken(reason) => Some(Ended::Again(reason)),
            };
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    /// A message on its way to the sender, which may make us wait.
    // hot path: once per message of one stream.
    async fn hand_on(&mut self, consumer: &mut Consumer, message: Message) -> Option<Ended> {
        let Some(delivery) = message.reply.as_deref().and_then(Delivery::parse) else {
            return Some(Ended::Again("a message came that is of no stream".into()));
        };
        if delivery.consumer_sequence != consumer.delivered + 1 {
            if consumer.is_bookmark && delivery.consumer_sequence > consumer.delivered {
                self.went_elsewhere(&consumer.name);
            }
            return Some(Ended::Again("deliveries are missing".into()));
        }
        consumer.delivered = delivery.consumer_sequence;
        consumer.brought = true;
        consumer.has_more = delivery.pending > 0;
        let sequence = delivery.stream_sequence;
        // What a bookmark delivers again is known.
        if self.position.is_none_or(|position| sequence > position) {
            if self.end.is_some_and(|end| sequence > end) {
                // The last message was deleted before it was read.
                return Some(Ended::End(StreamEnd::Complete));
            }
            ProviderStats::add(&self.stats.received, 1);
            self.position = Some(sequence);
            let unwanted = consumer.filters_here && !self.filter.matches(&message.subject);
            if unwanted || is_deletion(&message) {
                self.passed_over = true;
            } else {
                self.passed_over = false;
                let event = self.event(&message, delivery);
                if !self.deliver(consumer, event, delivery).await {
                    return Some(Ended::Unheard);
                }
            }
            let behind = consumer.told_lag(delivery.pending);
            self.sender.counts().set_lag(behind, Some(delivery.published));
        }
        if consumer.is_bookmark {
            consumer.unacknowledged = message.reply;
            self.bookmark_delivered = consumer.delivered;
        }
        match consumer.until {
            Some(until) if delivery.pending == 0 => {
                self.position = self.position.max(Some(until));
                Some(Ended::CaughtUp)
            }
            Some(until) if sequence >= until => Some(Ended::CaughtUp),
            _ => None,
        }
    }

    /// Hands an event on. While the queue has no room for it nothing is read, so the stream's last sequence is polled
    /// instead, for the lag.
    async fn deliver(&mut self, consumer: &Consumer, event: Event, delivery: Delivery) -> bool {
        let Some(stream) = self.stream.as_ref() else { return self.sender.send(event).await };
        let counts = Arc::clone(self.sender.counts());
        let delivering = self.sender.send(event);
        tokio::pin!(delivering);
        loop {
            let asking = async {
                sleep(LAG_ASKED_EVERY).await;
                Api(&consumer.line.client).consumer(&stream.name, &consumer.name).await
            };
            tokio::select! {
                biased;
                heard = &mut delivering => return heard,
                info = asking => if let Ok(info) = info {
                    let delivered = info.delivered.consumer_sequence;
                    let on_its_way = delivered.saturating_sub(delivery.consumer_sequence);
                    let behind = consumer.told_lag(info.num_pending + on_its_way);
                    counts.lag(behind, Some(delivery.published));
                },
            }
        }
    }

    fn event(&mut self, message: &Message, delivery: Delivery) -> Event {
        if *self.topic != *message.subject {
            self.topic = message.subject.as_str().into();
        }
        Event {
            mark: self.mark(),
            key: key_of(&message.subject).map(|key| key.to_owned().into()),
            headers: headers::from_nats(message.headers.as_ref()),
            published: Some(delivery.published),
            ..Event::new(Arc::clone(&self.topic), message.payload.clone())
        }
    }

    /// Nothing came for a while: is the stream still the same, and how far was it read? So a position goes on
    /// where the stream grows by messages that are not wanted, and is not taken for one that is long gone.
    async fn look_around(&mut self, consumer: &Consumer) -> Option<Ended> {
        let (stream, position) = (self.stream.clone()?, self.position?);
        let api = Api(&consumer.line.client);
        let last = match api.stream(&stream.name).await {
            Ok(info) if StreamId::of(&stream.name, &info) == stream => info.state.last_sequence,
            Ok(_) | Err(ApiError::NoStream) => return Some(Ended::End(stream.gone())),
            Err(_) => return None,
        };
        if last > position {
            match api.consumer(&stream.name, &consumer.name).await {
                // Asked after the stream: there is nothing up to `last` that it has yet to deliver, and nothing is
                // on its way to us.
                Ok(info)
                    if info.num_pending == 0
                        && info.delivered.consumer_sequence == consumer.delivered =>
                {
                    self.position = Some(last);
                    self.passed_over = true;
                }
                Ok(_) => {}
                Err(ApiError::NoConsumer) => {
                    return Some(Ended::Again("the consumer was deleted".into()));
                }
                Err(_) => {}
            }
        }
        if consumer.until.is_some() && self.position >= consumer.until {
            return Some(Ended::CaughtUp);
        }
        (consumer.until.is_none() && !consumer.is_bookmark && self.bookmark().is_some())
            .then(|| Ended::Again("the durable consumer is free".into()))
    }

    /// The durable consumer has more, and does not deliver it: does it wait for acknowledgements? All of them were
    /// sent, so it has lost some and will wait for ever.
    async fn look_at_bookmark(&mut self, consumer: &Consumer) -> Option<Ended> {
        let stream = self.stream.clone()?;
        let info = match Api(&consumer.line.client).consumer(&stream.name, &consumer.name).await {
            Ok(info) => info,
            Err(ApiError::NoConsumer) => {
                return Some(Ended::Again("the consumer was deleted".into()));
            }
            // Asked again soon, or the connection is lost and that is noticed.
            Err(_) => return None,
        };
        // Otherwise there is something on its way to us, or to somebody else.
        let is_stuck = info.delivered.consumer_sequence == consumer.delivered
            && info.num_pending > 0
            && info.num_ack_pending > 0;
        is_stuck.then(|| {
            self.bookmark_is_stuck = true;
            Ended::Again("the durable consumer waits for what it was told already".into())
        })
    }

    /// Another consumer after the position. `Err`: how our stream ends; none of it if nobody listens.
    async fn another(&mut self) -> Result<Consumer, Option<StreamEnd>> {
        let gone = self.sender.closed();
        tokio::pin!(gone);
        let mut warned_of = String::new();
        loop {
            let line = match &*self.link.borrow_and_update() {
                Link::Up(line) => Some(line.clone()),
                Link::Away(_) => None,
            };
            let mut link = self.link.clone();
            let changed = async move { link.changed().await };
            let Some(line) = line else {
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
                consumer = self.consumer(&line) => match consumer {
                    Ok(consumer) => return Ok(consumer),
                    Err(failure) => failure,
                },
            };
            let reason = match failure {
                Failure::NoStream(name) => return Err(Some(StreamId::gone_by_name(&name))),
                Failure::PositionGone => "the position is gone".to_owned(),
                Failure::Refused(reason) | Failure::Unanswered(reason) => reason,
            };
            self.stats.record_error(ErrorKind::Subscription);
            if reason == warned_of {
                tracing::debug!(provider = %self.provider, reason, "still no consumer of JetStream");
            } else {
                tracing::warn!(provider = %self.provider, reason, "no consumer of JetStream; trying again");
                warned_of = reason;
            }
            if let Some(end) = self.pause().await {
                return Err(end);
            }
        }
    }

    /// Waits before another attempt. `Some`: there is to be none.
    async fn pause(&mut self) -> Option<Option<StreamEnd>> {
        let gone = self.sender.closed();
        tokio::select! {
            () = gone => Some(None),
            () = sleep(self.backoff.next_delay()) => None,
        }
    }

    /// Where we are, as others may come back to.
    fn mark(&self) -> Option<Mark> {
        let stream = self.stream.as_ref()?;
        Some(Mark { lane: 0, offset: self.position?, part: stream.created })
    }

    /// Events between the position and `next` are stored no more.
    pub(super) fn lost_up_to(&mut self, last: u64) {
        ProviderStats::add(&self.stats.gaps, self.sender.announce_gap().into());
        self.position = Some(last);
        self.passed_over = true;
        tracing::warn!(
            provider = %self.provider,
            "a stream of JetStream has dropped events before they were read"
        );
    }

    fn went_elsewhere(&mut self, consumer: &str) {
        self.strays += 1;
        if self.strays == STRAYS_MAX {
            tracing::warn!(
                provider = %self.provider,
                consumer,
                "somebody else reads this durable consumer; it is left alone, and nothing is lost. Give each \
                 router a name of its own with `events.instance`"
            );
        }
    }

    /// Tells the broker that a consumer is of no use any more.
    async fn release(&self, consumer: &Consumer) {
        if !consumer.is_bookmark
            && let Some(stream) = &self.stream
        {
            Api(&consumer.line.client).forget_consumer(&stream.name, &consumer.name).await;
        }
    }
}

impl Consumer {
    /// Returns the lag if the broker counts that many messages behind the position. `None` if the count includes
    /// messages that are not wanted.
    pub(super) fn told_lag(&self, pending: u64) -> Option<u64> {
        (pending == 0 || !self.filters_here).then_some(pending)
    }

    /// True if a delivery that one heartbeat named has not come before the next heartbeat: it went to another reader of
    /// this consumer, and without an event after it no gap in the numbers would show that. One heartbeat is not enough,
    /// because a replicated consumer counts a delivery before it sends it.
    fn misses_deliveries(&mut self, delivered: Option<u64>) -> bool {
        let misses = self.delivered < self.delivered_by_heartbeat;
        self.delivered_by_heartbeat = delivered.unwrap_or(self.delivered);
        misses
    }

    /// Everything that was handed on. Waits for nobody: the broker is told, and answers nothing.
    async fn acknowledge(&mut self) {
        if let Some(subject) = self.unacknowledged.take() {
            // If this fails the connection is gone, and what is delivered again is known.
            let _ = self.line.client.publish(subject, "+ACK".into()).await;
        }
    }
}

/// The beginning of subjects that hold the keys of buckets.
const BUCKETS: &str = "$KV.";

/// Does it say that a key of a bucket is no more? Such a message has no value to show.
fn is_deletion(message: &Message) -> bool {
    message.subject.starts_with(BUCKETS)
        && message.headers.as_ref().is_some_and(|headers| {
            headers.get("Nats-Marker-Reason").is_some()
                || headers
                    .get("KV-Operation")
                    .is_some_and(|operation| matches!(operation.as_str(), "DEL" | "PURGE"))
        })
}

/// The key in `$KV.BUCKET.KEY`.
fn key_of(subject: &str) -> Option<&str> {
    let (_, key) = subject.strip_prefix(BUCKETS)?.split_once('.')?;
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_bucket_is_what_follows_its_name() {
        assert_eq!(key_of("$KV.planes.ST.101"), Some("ST.101"));
        assert_eq!(key_of("$KV.planes"), None);
        assert_eq!(key_of("orders.7"), None);
    }
}
