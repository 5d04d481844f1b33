//! The sending half of one event stream: a bounded queue that drops rather than waits, and says so.

use tokio::sync::mpsc::{self, OwnedPermit, error::TrySendError};

use crate::{Event, EventStream, Mark, SourceMessage, StreamEnd};

/// What became of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offered {
    /// It is in the queue.
    Taken,
    /// The queue is full; the stream will hear of a gap before its next event.
    Dropped,
    /// Nobody listens any more.
    Gone,
}

/// Writes to one [`EventStream`].
#[derive(Debug)]
pub(crate) struct Feed {
    sender: mpsc::Sender<SourceMessage>,
    /// The place that the last message will take, so that a full queue cannot swallow the reason.
    last: OwnedPermit<SourceMessage>,
    /// A gap is due before the next event.
    gap_due: bool,
    /// The latest message is a gap: a second one would say nothing new.
    gap_sent: bool,
}

impl Feed {
    /// A stream that holds up to `events` messages (at least one) beside the last one.
    pub(crate) fn new(events: usize) -> (Self, EventStream) {
        let (sender, messages) = mpsc::channel(events.max(1) + 1);
        let last = sender
            .clone()
            .try_reserve_owned()
            .expect("a queue that was just made has room for at least two");
        (Self { sender, last, gap_due: false, gap_sent: false }, EventStream { messages })
    }

    /// Queues an event if there is room. Never waits.
    pub(crate) fn offer(&mut self, event: Event) -> Offered {
        if self.gap_due {
            match self.sender.try_send(SourceMessage::Gap) {
                Ok(()) => (self.gap_due, self.gap_sent) = (false, true),
                Err(TrySendError::Full(_)) => return Offered::Dropped,
                Err(TrySendError::Closed(_)) => return Offered::Gone,
            }
        }
        match self.sender.try_send(SourceMessage::Event(event)) {
            Ok(()) => {
                self.gap_sent = false;
                Offered::Taken
            }
            Err(TrySendError::Full(_)) => {
                self.gap_due = true;
                Offered::Dropped
            }
            Err(TrySendError::Closed(_)) => Offered::Gone,
        }
    }

    /// Says that a lane was read up to there. Best effort: what does not fit is said by the next event.
    pub(crate) fn passed(&mut self, mark: Mark) {
        if !self.gap_due {
            let _ = self.sender.try_send(SourceMessage::Passed(mark));
        }
    }

    /// Announces that events may be missing here: at once if there is room, else before the next event.
    pub(crate) fn gap(&mut self) {
        if !self.gap_sent && !self.gap_due {
            self.gap_sent = self.sender.try_send(SourceMessage::Gap).is_ok();
            self.gap_due = !self.gap_sent;
        }
    }

    /// Says why nothing follows. Always fits.
    pub(crate) fn end(self, reason: StreamEnd) {
        self.last.send(SourceMessage::End(reason));
    }

    /// Is there a place for another message?
    pub(crate) fn has_room(&self) -> bool {
        self.sender.capacity() > 0
    }

    /// Waits until `messages` find room, or nobody listens any more.
    pub(crate) async fn room(&self, messages: usize) {
        // More than the queue's length never fit.
        let messages = messages.min(self.sender.max_capacity() - 1);
        let _ = self.sender.reserve_many(messages).await;
    }

    /// Has the stream been dropped?
    pub(crate) fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }

    /// Resolves when the stream is dropped.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + 'static {
        let sender = self.sender.clone();
        async move { sender.closed().await }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> Event {
        Event::new("t", number.to_string()).at(Mark { lane: 0, offset: number, part: 0 })
    }

    fn drain(stream: &mut EventStream) -> Vec<String> {
        std::iter::from_fn(|| stream.messages.try_recv().ok())
            .map(|message| match message {
                SourceMessage::Event(event) => String::from_utf8_lossy(&event.payload).into_owned(),
                SourceMessage::Passed(mark) => format!("passed {}", mark.offset),
                SourceMessage::Gap => "gap".into(),
                SourceMessage::End(end) => end.to_string(),
            })
            .collect()
    }

    #[test]
    fn a_full_queue_drops_and_announces_the_gap_before_the_next_event() {
        let (mut feed, mut stream) = Feed::new(3);
        let offered: Vec<_> = (1..=5).map(|number| feed.offer(event(number))).collect();
        use Offered::{Dropped, Taken};
        assert_eq!(offered, [Taken, Taken, Taken, Dropped, Dropped]);
        assert_eq!(drain(&mut stream), ["1", "2", "3"]);
        assert_eq!(feed.offer(event(6)), Taken);
        assert_eq!(drain(&mut stream), ["gap", "6"]);
    }

    #[test]
    fn gaps_without_an_event_between_them_are_one() {
        let (mut feed, mut stream) = Feed::new(8);
        feed.gap();
        feed.gap();
        feed.offer(event(1));
        feed.gap();
        assert_eq!(drain(&mut stream), ["gap", "1", "gap"]);
    }

    #[test]
    fn the_end_fits_into_a_full_queue() {
        let (mut feed, mut stream) = Feed::new(1);
        feed.offer(event(1));
        feed.gap();
        feed.end(StreamEnd::Closed);
        assert_eq!(drain(&mut stream), ["1", "the provider was closed"]);
    }

    #[test]
    fn a_dropped_stream_is_noticed_at_the_next_event() {
        let (mut feed, stream) = Feed::new(1);
        drop(stream);
        assert_eq!(feed.offer(event(1)), Offered::Gone);
        assert!(feed.is_gone());
    }
}
