//! The subscribers of a reactor that an operator watches. Nearly always none, which one comparison finds out.

use std::sync::Arc;
use std::time::Instant;

use hub::Subscriber;
use reactor::Token;

use crate::watches::{SubscriberHistory, WatchedSubscriber};

/// The watched subscribers of a reactor.
#[derive(Default)]
pub(super) struct WatchedMembers(Vec<(Subscriber, Arc<WatchedSubscriber>)>);

impl WatchedMembers {
    /// True if none is watched.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a watched subscriber, and forgets those of which nothing has to be noted any more. If two operators begin
    /// to watch a subscriber at once, it is added twice, and one of its histories is dropped later.
    pub(super) fn add(&mut self, member: Subscriber, watched: Arc<WatchedSubscriber>) {
        self.0.retain(|(_, it)| !it.is_finished());
        self.0.push((member, watched));
    }

    /// Returns the watched subscribers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Subscriber, Arc<WatchedSubscriber>)> {
        self.0.iter()
    }

    /// Returns the watched operations of a connection.
    pub(super) fn operations_of(&self, token: Token) -> impl Iterator<Item = u32> {
        let of_connection = move |it: &Subscriber| it.connection == token.to_u64();
        self.0.iter().map(|(member, _)| *member).filter(of_connection).map(|it| it.operation)
    }

    /// Notes something in the history of a subscriber, if it is watched.
    pub(super) fn note(&self, member: Subscriber, note: impl Fn(&mut SubscriberHistory, Instant)) {
        for (_, watched) in self.0.iter().filter(|(it, _)| *it == member) {
            watched.note(&note);
        }
    }

    /// Notes the end of a subscription. The results that wait for its socket are still written.
    pub(super) fn end(&mut self, token: Token, operation: u32, reason: &'static str) {
        let member = Subscriber { connection: token.to_u64(), operation };
        self.note_ends(|it| it == member, |history, now| history.note_end(now, reason));
    }

    /// Notes the end of all subscriptions of a connection, whose backlog is discarded.
    pub(super) fn end_all(&mut self, token: Token, reason: &'static str) {
        let is_ended = |it: Subscriber| it.connection == token.to_u64();
        self.note_ends(is_ended, |history, now| {
            history.note_waiting(now, 0);
            history.note_end(now, reason);
        });
    }

    /// Notes the end of some subscriptions, and forgets those of which nothing has to be noted any more.
    fn note_ends(
        &mut self,
        is_ended: impl Fn(Subscriber) -> bool,
        note: impl Fn(&mut SubscriberHistory, Instant),
    ) {
        self.0.retain(|(member, watched)| {
            if is_ended(*member) {
                watched.note(&note);
            }
            !watched.is_finished()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use execute::Missed;

    use super::*;
    use crate::metrics::Transport;
    use crate::watches::SubscriberId;

    const TOKEN: u64 = 7;

    fn watched(operation: u32, waiting: usize) -> Arc<WatchedSubscriber> {
        let id = SubscriberId::Reactor { reactor: 0, connection: TOKEN, operation };
        WatchedSubscriber::new(id, Transport::WebSocket, (Duration::ZERO, waiting))
    }

    fn member(operation: u32) -> Subscriber {
        Subscriber { connection: TOKEN, operation }
    }

    #[test]
    fn a_step_is_noted_in_both_histories_of_a_subscriber_that_two_operators_watch() {
        let mut members = WatchedMembers::default();
        let both = [watched(1, 0), watched(1, 0)];
        both.iter().for_each(|it| members.add(member(1), Arc::clone(it)));
        members.note(member(1), |history, now| {
            history.note_sent(now, 3, Missed::default());
        });
        for one in &both {
            assert_eq!(one.read(Instant::now()).history.totals.delivered, 1);
        }
    }

    #[test]
    fn a_subscriber_is_watched_until_its_waiting_results_are_written_or_discarded() {
        let (mut members, token) = (WatchedMembers::default(), Token::from_u64(TOKEN));
        let (written, discarded) = (watched(1, 1), watched(2, 1));
        members.add(member(1), Arc::clone(&written));
        members.add(member(2), Arc::clone(&discarded));
        for operation in [1, 2] {
            members.end(token, operation, "source_completed");
        }
        members.note(member(1), |history, now| {
            history.note_taken(now, 3, Missed::default(), 0);
        });
        members.end_all(token, "connection_closed");
        assert!(members.is_empty());
        let totals = |it: &WatchedSubscriber| it.read(Instant::now()).history.totals;
        assert_eq!((totals(&written).delivered, totals(&written).dropped), (1, 0));
        assert_eq!((totals(&discarded).delivered, totals(&discarded).dropped), (0, 1));
    }
}
