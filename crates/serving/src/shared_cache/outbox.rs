//! The invalidations of this router on their way into the log. None is lost while the router lives: as long as the log
//! does not have it, entries of the shared store with its tags are stale for this router.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cache::{
    MESSAGE_TAGS_MAX, SharedCacheStats, SharedMessage, SharedStart, SharedView, StaleTags,
};
use tokio::sync::{Notify, oneshot};

/// The maximum number of invalidations that wait. With more, everything is stale instead.
const MESSAGES_MAX: usize = 1_024;

/// The invalidations that wait.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    messages: Mutex<VecDeque<OutboxMessage>>,
    pub(super) added: Notify,
}

/// One or more invalidations that are appended together.
#[derive(Debug)]
pub(super) struct OutboxMessage {
    stale: StaleTags,
    is_event: bool,
    wants_confirmation: bool,
    /// What was announced for it.
    pub(super) announced: Vec<StaleTags>,
    /// Those that wait for its number.
    pub(super) waiting: Vec<oneshot::Sender<SharedStart>>,
}

impl OutboxMessage {
    /// Creates a message. The receiver gets its place in the log.
    pub(super) fn new(
        stale: StaleTags,
        is_event: bool,
        wants_confirmation: bool,
    ) -> (Self, oneshot::Receiver<SharedStart>) {
        let (sender, receiver) = oneshot::channel();
        let (announced, waiting) = (vec![stale.clone()], vec![sender]);
        (Self { stale, is_event, wants_confirmation, announced, waiting }, receiver)
    }

    /// Returns another receiver of its place in the log.
    pub(super) fn add_waiting(&mut self) -> oneshot::Receiver<SharedStart> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.push(sender);
        receiver
    }

    /// Adds another invalidation.
    fn merge(&mut self, other: Self) {
        match (&mut self.stale, other.stale) {
            (StaleTags::Tags(tags), StaleTags::Tags(others)) => tags.extend(others),
            (stale, _) => *stale = StaleTags::All,
        }
        self.is_event &= other.is_event;
        self.wants_confirmation |= other.wants_confirmation;
        self.announced.extend(other.announced);
        self.waiting.extend(other.waiting.into_iter().filter(|it| !it.is_closed()));
    }

    /// True if both fit into one message and mean the same to others.
    fn accepts(&self, other: &Self) -> bool {
        let tags = |stale: &StaleTags| match stale {
            StaleTags::Tags(tags) => tags.len(),
            StaleTags::All => 0,
        };
        self.is_event == other.is_event
            && tags(&self.stale) + tags(&other.stale) <= MESSAGE_TAGS_MAX
    }

    /// Divides the message into those that the log can have.
    pub(super) fn parts(&self) -> Vec<SharedMessage> {
        let message = |stale| SharedMessage {
            stale,
            is_event: self.is_event,
            wants_confirmation: self.wants_confirmation,
        };
        match &self.stale {
            StaleTags::All => vec![message(StaleTags::All)],
            StaleTags::Tags(tags) => tags
                .chunks(MESSAGE_TAGS_MAX)
                .map(|tags| message(StaleTags::Tags(tags.to_vec())))
                .collect(),
        }
    }
}

impl Outbox {
    /// Announces and adds a message. When this returns, no entry of the shared store with its tags is used until the
    /// log has it.
    pub(super) fn push(&self, message: OutboxMessage, view: &SharedView, stats: &SharedCacheStats) {
        message.announced.iter().for_each(|stale| view.announce(stale));
        self.push_announced(message, view, stats);
    }

    /// Adds a message that was announced.
    pub(super) fn push_announced(
        &self,
        message: OutboxMessage,
        view: &SharedView,
        stats: &SharedCacheStats,
    ) {
        let mut messages = self.lock();
        if messages.len() >= MESSAGES_MAX {
            stats.overflows.fetch_add(1, Relaxed);
            let (everything, _) = OutboxMessage::new(StaleTags::All, false, false);
            view.announce(&StaleTags::All);
            let all = messages.drain(..).chain([message]);
            let mut all = all.fold(everything, |mut all, it| {
                all.merge(it);
                all
            });
            // The announcement of everything covers the others.
            let others = all.announced.split_off(1);
            others.iter().for_each(|stale| view.end_announcement(stale));
            messages.push_back(all);
        } else {
            messages.push_back(message);
        }
        drop(messages);
        self.added.notify_one();
    }

    /// Takes the first messages that can be appended together; `None` if there are none.
    pub(super) fn take(&self) -> Option<OutboxMessage> {
        let mut messages = self.lock();
        let mut first = messages.pop_front()?;
        while let Some(next) = messages.pop_front_if(|next| first.accepts(next)) {
            first.merge(next);
        }
        Some(first)
    }

    /// True if the first message is of events.
    pub(super) fn is_first_an_event(&self) -> bool {
        self.lock().front().is_some_and(|it| it.is_event)
    }

    /// Locks the queue. It is consistent at any time, so that behind a poisoned lock is sound.
    fn lock(&self) -> MutexGuard<'_, VecDeque<OutboxMessage>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use cache::{KeySecret, LogEpoch, Sequence, Tag, TagHasher};

    use super::*;

    fn tags(count: usize) -> StaleTags {
        let hasher = TagHasher::new(&KeySecret::of_namespace("test"));
        let tags: Vec<Tag> = (0..count).map(|number| hasher.text(&number.to_string())).collect();
        StaleTags::Tags(tags)
    }

    fn push(outbox: &Outbox, view: &SharedView, stats: &SharedCacheStats, stale: StaleTags) {
        outbox.push(OutboxMessage::new(stale, false, false).0, view, stats);
    }

    #[test]
    fn messages_are_joined_up_to_their_bound_and_events_stay_apart() {
        let (outbox, view, stats) = Default::default();
        push(&outbox, &view, &stats, tags(200));
        push(&outbox, &view, &stats, tags(56));
        push(&outbox, &view, &stats, tags(1));
        outbox.push(OutboxMessage::new(tags(1), true, false).0, &view, &stats);
        let sizes = std::iter::from_fn(|| outbox.take()).map(|it| match it.stale {
            StaleTags::Tags(tags) => tags.len(),
            StaleTags::All => panic!("tags"),
        });
        assert_eq!(sizes.collect::<Vec<_>>(), [256, 1, 1]);
    }

    #[test]
    fn a_long_list_becomes_several_messages() {
        let (message, _) = OutboxMessage::new(tags(600), false, true);
        let sizes = message.parts().into_iter().map(|it| match it.stale {
            StaleTags::Tags(tags) => tags.len(),
            StaleTags::All => panic!("tags"),
        });
        assert_eq!(sizes.collect::<Vec<_>>(), [256, 256, 88]);
    }

    #[test]
    fn too_many_messages_become_one_that_makes_everything_stale() {
        let (outbox, view, stats): (Outbox, SharedView, SharedCacheStats) = Default::default();
        view.begin_epoch(LogEpoch([1; 16]), Sequence(0));
        let (message, mut appended) = OutboxMessage::new(tags(1), false, true);
        outbox.push(message, &view, &stats);
        (0..MESSAGES_MAX).for_each(|_| push(&outbox, &view, &stats, tags(200)));
        assert_eq!(telemetry::read(&stats.overflows), 1);
        let all = outbox.take().expect("a message");
        assert_eq!((&all.stale, &all.announced[..]), (&StaleTags::All, &[StaleTags::All][..]));
        assert!(all.wants_confirmation && outbox.take().is_none());
        for waiting in all.waiting {
            let _ = waiting.send(SharedStart { epoch: LogEpoch([1; 16]), sequence: Sequence(3) });
        }
        assert_eq!(appended.try_recv().map(|it| it.sequence), Ok(Sequence(3)));
    }
}
