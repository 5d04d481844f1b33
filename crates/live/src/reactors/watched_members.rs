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

    /// Adds a watched subscriber, and forgets those that no operator watches any more.
    pub(super) fn add(&mut self, member: Subscriber, watched: Arc<WatchedSubscriber>) {
        self.0.retain(|(_, it)| !it.is_over());
        self.0.push((member, watched));
    }

    /// Returns the watched subscribers.
    pub(super) fn members(&self) -> impl Iterator<Item = Subscriber> {
        self.0.iter().map(|(member, _)| *member)
    }

    /// Returns the watched operations of a connection.
    pub(super) fn operations_of(&self, token: Token) -> impl Iterator<Item = u32> {
        let connection = token.to_u64();
        self.members().filter(move |it| it.connection == connection).map(|it| it.operation)
    }

    /// Notes something in the history of a subscriber, if it is watched.
    pub(super) fn note(
        &self,
        member: Subscriber,
        note: impl FnOnce(&mut SubscriberHistory, Instant),
    ) {
        if let Some((_, watched)) = self.0.iter().find(|(it, _)| *it == member) {
            watched.note(note);
        }
    }

    /// Notes the end of a subscription.
    pub(super) fn end(&mut self, token: Token, operation: u32, reason: &'static str) {
        let member = Subscriber { connection: token.to_u64(), operation };
        self.end_if(|it| it == member, reason);
    }

    /// Notes the end of all subscriptions of a connection.
    pub(super) fn end_all(&mut self, token: Token, reason: &'static str) {
        self.end_if(|it| it.connection == token.to_u64(), reason);
    }

    fn end_if(&mut self, is_ended: impl Fn(Subscriber) -> bool, reason: &'static str) {
        self.0.retain(|(member, watched)| {
            let is_ended = is_ended(*member);
            if is_ended {
                watched.note(|history, now| history.note_end(now, reason));
            }
            !is_ended && !watched.is_over()
        });
    }
}
