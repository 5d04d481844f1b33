//! The sending half of one event stream: a bounded queue that drops events rather than waiting, and announces the loss.

use std::sync::Arc;

use tokio::sync::mpsc::{self, OwnedPermit, error::TrySendError};
use tokio::sync::watch;

use crate::topic_stats::StreamCounts;
use crate::{Event, EventStream, PartitionOffset, SourceMessage, StreamEnd};

/// The result of sending an event without waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOutcome {
    /// The event is in the queue.
    Queued,
    /// The queue is full. The stream receives a gap before its next event.
    Dropped {
        /// True for the first event of a gap. A gap is counted once, however many events it covers.
        starts_gap: bool,
    },
    /// The stream was dropped.
    Closed,
}

/// The sending half of one [`EventStream`].
#[derive(Debug)]
pub struct EventSender {
    sender: mpsc::Sender<SourceMessage>,
    /// The reserved slot for the last message, so that the reason for the end fits into a full queue.
    last: OwnedPermit<SourceMessage>,
    /// True if a gap must be sent before the next event.
    gap_due: bool,
    /// True if the latest message is a gap, so that a second one would say nothing new.
    gap_sent: bool,
    /// Closes when this value is dropped. Futures that wait for the end of the stream must not keep it open.
    ended: watch::Sender<()>,
    counts: Arc<StreamCounts>,
}

impl EventSender {
    /// Makes a stream that holds up to `events` messages (at least one) in addition to the last one.
    pub fn new(events: usize) -> (Self, EventStream) {
        let (sender, messages) = mpsc::channel(events.max(1) + 1);
        let last =
            sender.clone().try_reserve_owned().expect("a new queue has room for at least two");
        let ended = watch::Sender::new(());
        let counts = Arc::default();
        let sender = Self { sender, last, gap_due: false, gap_sent: false, ended, counts };
        (sender, EventStream { messages })
    }

    /// Sets the counters by topic for all further events.
    pub(crate) fn set_counts(&mut self, counts: StreamCounts) {
        self.counts = Arc::new(counts);
    }

    /// Returns the counters by topic.
    pub(crate) fn counts(&self) -> &Arc<StreamCounts> {
        &self.counts
    }

    /// Queues an event if there is room, and never waits.
    pub fn try_send(&mut self, event: impl Into<Arc<Event>>) -> SendOutcome {
        let event = event.into();
        self.counts.record_received(&event.topic);
        let topic = Arc::clone(&event.topic);
        let offered = self.try_enqueue(event);
        if matches!(offered, SendOutcome::Dropped { .. }) {
            self.counts.record_dropped(&topic);
        }
        offered
    }

    fn try_enqueue(&mut self, event: Arc<Event>) -> SendOutcome {
        if self.gap_due {
            match self.sender.try_send(SourceMessage::Gap) {
                Ok(()) => (self.gap_due, self.gap_sent) = (false, true),
                Err(TrySendError::Full(_)) => return SendOutcome::Dropped { starts_gap: false },
                Err(TrySendError::Closed(_)) => return SendOutcome::Closed,
            }
        }
        match self.sender.try_send(SourceMessage::Event(event)) {
            Ok(()) => {
                self.gap_sent = false;
                SendOutcome::Queued
            }
            // Events that are missing right after a gap belong to that gap.
            Err(TrySendError::Full(_)) if self.gap_sent => {
                SendOutcome::Dropped { starts_gap: false }
            }
            Err(TrySendError::Full(_)) => {
                self.gap_due = true;
                SendOutcome::Dropped { starts_gap: true }
            }
            Err(TrySendError::Closed(_)) => SendOutcome::Closed,
        }
    }

    /// Reports that a partition was read up to `partition_offset`, if there is room. Otherwise the next event shows the
    /// position.
    pub(crate) fn try_send_progress(&mut self, partition_offset: PartitionOffset) {
        if !self.gap_due {
            let _ = self.sender.try_send(SourceMessage::Progress(partition_offset));
        }
    }

    /// Announces that events may be missing here: at once if there is room, otherwise before the next event. Returns
    /// false if that is already announced.
    pub fn announce_gap(&mut self) -> bool {
        if self.gap_sent || self.gap_due {
            return false;
        }
        self.gap_sent = self.sender.try_send(SourceMessage::Gap).is_ok();
        self.gap_due = !self.gap_sent;
        true
    }

    /// Queues an event and waits for room, for events that the broker keeps meanwhile. Returns false if the stream was
    /// dropped.
    pub(crate) async fn send(&mut self, event: impl Into<Arc<Event>>) -> bool {
        let event = event.into();
        self.counts.record_received(&event.topic);
        if self.gap_due {
            if self.sender.send(SourceMessage::Gap).await.is_err() {
                return false;
            }
            self.gap_due = false;
        }
        self.gap_sent = false;
        self.sender.send(SourceMessage::Event(event)).await.is_ok()
    }

    /// Returns the number of messages that wait in the queue.
    pub fn waiting(&self) -> usize {
        // One slot is reserved for the last message.
        self.sender.max_capacity() - 1 - self.sender.capacity()
    }

    /// Returns the number of messages that fit now.
    pub(crate) fn capacity(&self) -> usize {
        self.sender.capacity()
    }

    /// Resolves when that many messages fit, or when the stream is dropped. No message fits before.
    pub(crate) fn wait_for_capacity(
        &self,
        messages: usize,
    ) -> impl Future<Output = ()> + Send + 'static {
        let sender = self.sender.clone();
        // One slot is reserved for the last message.
        let messages = messages.min(sender.max_capacity() - 1);
        async move { drop(sender.reserve_many(messages).await) }
    }

    /// Sends the reason for the end of the stream. It always fits.
    pub fn end(self, reason: StreamEnd) {
        self.last.send(SourceMessage::End(reason));
    }

    /// True if the stream was dropped.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Resolves when the stream was dropped or has ended.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let sender = self.sender.clone();
        let mut ended = self.ended.subscribe();
        async move {
            tokio::select! {
                () = sender.closed() => {}
                // No value is ever sent, so this resolves only when the channel closes.
                _ = ended.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> Event {
        Event::new("t", number.to_string()).at(PartitionOffset {
            partition: 0,
            offset: number,
            part: 0,
        })
    }

    fn drain(stream: &mut EventStream) -> Vec<String> {
        std::iter::from_fn(|| stream.messages.try_recv().ok())
            .map(|message| match message {
                SourceMessage::Event(event) => String::from_utf8_lossy(&event.payload).into_owned(),
                SourceMessage::Progress(partition_offset) => {
                    format!("passed {}", partition_offset.offset)
                }
                SourceMessage::Gap => "gap".into(),
                SourceMessage::End(end) => end.to_string(),
            })
            .collect()
    }

    #[test]
    fn a_full_queue_drops_and_announces_the_gap_before_the_next_event() {
        let (mut sender, mut stream) = EventSender::new(3);
        let offered: Vec<_> = (1..=5).map(|number| sender.try_send(event(number))).collect();
        use SendOutcome::{Dropped, Queued};
        let [first, further] = [true, false].map(|starts_gap| Dropped { starts_gap });
        assert_eq!(offered, [Queued, Queued, Queued, first, further]);
        assert_eq!(drain(&mut stream), ["1", "2", "3"]);
        assert_eq!(sender.try_send(event(6)), Queued);
        assert_eq!(drain(&mut stream), ["gap", "6"]);
    }

    #[test]
    fn gaps_without_an_event_between_them_are_one() {
        let (mut sender, mut stream) = EventSender::new(8);
        assert_eq!([sender.announce_gap(), sender.announce_gap()], [true, false]);
        sender.try_send(event(1));
        assert!(sender.announce_gap());
        assert_eq!(drain(&mut stream), ["gap", "1", "gap"]);
    }

    #[tokio::test]
    async fn an_event_that_the_broker_keeps_waits_for_room_behind_the_gap() {
        let (mut sender, mut stream) = EventSender::new(2);
        sender.try_send(event(1));
        sender.announce_gap();
        assert_eq!(sender.try_send(event(2)), SendOutcome::Dropped { starts_gap: false });
        let waiting =
            tokio::spawn(async move { sender.send(event(3)).await && sender.send(event(4)).await });
        let mut heard = Vec::new();
        while heard.len() < 4 {
            match stream.messages.recv().await.unwrap() {
                SourceMessage::Event(event) => {
                    heard.push(String::from_utf8_lossy(&event.payload).into_owned());
                }
                _ => heard.push("gap".into()),
            }
        }
        assert_eq!(heard, ["1", "gap", "3", "4"]);
        assert!(waiting.await.unwrap());
    }

    #[test]
    fn only_a_new_gap_is_announced() {
        let (mut sender, _stream) = EventSender::new(2);
        assert_eq!([sender.announce_gap(), sender.announce_gap()], [true, false]);
        assert_eq!(
            [sender.try_send(event(1)), sender.try_send(event(2))],
            [SendOutcome::Queued, SendOutcome::Dropped { starts_gap: true }]
        );
        assert!(!sender.announce_gap(), "the event that did not fit has announced one");
    }

    #[test]
    fn waiting_for_capacity_ends_when_enough_was_read_or_the_stream_is_dropped() {
        use futures_util::FutureExt;
        let (mut sender, mut stream) = EventSender::new(4);
        for number in 1..=4 {
            sender.try_send(event(number));
        }
        assert_eq!(sender.capacity(), 0);
        let mut two = Box::pin(sender.wait_for_capacity(2));
        assert_eq!(two.as_mut().now_or_never(), None);
        let _ = stream.messages.try_recv();
        assert_eq!(two.as_mut().now_or_never(), None);
        let _ = stream.messages.try_recv();
        assert_eq!(two.as_mut().now_or_never(), Some(()));
        assert_eq!(sender.capacity(), 2);
        let mut all = Box::pin(sender.wait_for_capacity(100));
        assert_eq!(all.as_mut().now_or_never(), None);
        drop(stream);
        assert_eq!(all.as_mut().now_or_never(), Some(()));
    }

    #[tokio::test]
    async fn the_stream_is_closed_after_its_end_although_a_future_waits_for_that() {
        let (sender, mut stream) = EventSender::new(1);
        let waiting = tokio::spawn(sender.closed());
        sender.end(StreamEnd::Closed);
        assert_eq!(stream.messages.recv().await, Some(SourceMessage::End(StreamEnd::Closed)));
        waiting.await.unwrap();
        assert_eq!(stream.messages.recv().await, None);
    }

    #[test]
    fn the_end_fits_into_a_full_queue() {
        let (mut sender, mut stream) = EventSender::new(1);
        sender.try_send(event(1));
        sender.announce_gap();
        sender.end(StreamEnd::Closed);
        assert_eq!(drain(&mut stream), ["1", "the provider was closed"]);
    }

    #[test]
    fn a_dropped_stream_is_noticed_at_the_next_event() {
        let (mut sender, stream) = EventSender::new(1);
        drop(stream);
        assert_eq!(sender.try_send(event(1)), SendOutcome::Closed);
        assert!(sender.is_closed());
    }
}
