//! The subscribers of a reactor for operators: lists of them, and what happens to those that are watched.

use std::sync::Arc;

use hub::{GroupId, Subscriber};
use reactor::Token;

use super::broadcast::GroupResult;
use super::{ClientSockets, SubscriptionServer};
use crate::reactors::client::ClientOperation;
use crate::reactors::message::{FoundMember, FoundMembers};
use crate::watches::{SubscriberId, SubscriberList, WatchedSubscriber};

impl SubscriptionServer {
    /// Returns at most [`SubscriberList::LISTED_MAX`] subscribers of a group: first those with a full socket, which an
    /// operator looks for.
    pub(super) fn list_subscribers(
        &self,
        sockets: &mut ClientSockets,
        group: GroupId,
    ) -> FoundMembers {
        let Some(members) = self.groups.get(&group) else { return FoundMembers::default() };
        let mut listed = Vec::new();
        for (token, _) in self.behind.iter().filter(|(_, groups)| groups.contains(&group)) {
            if listed.len() >= SubscriberList::LISTED_MAX {
                break;
            }
            let Some(client) = sockets.client(*token) else { continue };
            let numbers = client.operations.numbers().into_iter();
            let of_client =
                numbers.map(|operation| Subscriber { connection: token.to_u64(), operation });
            listed.extend(of_client.filter(|it| members.contains(*it)));
        }
        listed.truncate(SubscriberList::LISTED_MAX);
        let others = members.iter().filter(|member| {
            let behind = self.behind.get(&Token::from_u64(member.connection));
            !behind.is_some_and(|groups| groups.contains(&group))
        });
        listed.extend(others.take(SubscriberList::LISTED_MAX - listed.len()));
        let found = listed.into_iter().filter_map(|member| describe(sockets, member));
        FoundMembers { members: found.collect(), count: members.len() }
    }

    /// Begins to watch a subscriber; `None` if there is no such subscription.
    pub(super) fn watch(
        &mut self,
        sockets: &mut ClientSockets,
        id: SubscriberId,
        member: Subscriber,
    ) -> Option<Arc<WatchedSubscriber>> {
        let client = sockets.client(Token::from_u64(member.connection))?;
        let operation = client.operations.get_mut(member.operation)?;
        if !matches!(operation, ClientOperation::Subscription(..)) {
            return None;
        }
        let FoundMember { transport, age, waiting, .. } = describe(sockets, member)?;
        let watched = WatchedSubscriber::new(id, transport, (age, waiting));
        self.watched.add(member, Arc::clone(&watched));
        Some(watched)
    }

    /// Notes results that were sent in a pass, but for the recipients in `slow`.
    pub(super) fn note_broadcast(&self, results: &[GroupResult], slow: &[(Subscriber, usize)]) {
        for (member, watched) in self.watched.iter() {
            for (number, GroupResult { group, payload, .. }) in results.iter().enumerate() {
                let members = self.groups.get(group);
                let is_recipient = members.is_some_and(|members| members.contains(*member));
                if is_recipient && !slow.contains(&(*member, number)) {
                    let (bytes, missed) = (payload.bytes.len(), payload.missed());
                    watched.note(|history, now| history.note_sent(now, bytes, missed));
                }
            }
        }
    }

    /// Notes a result that was queued, because the socket is full.
    pub(super) fn note_queued(&self, sockets: &mut ClientSockets, member: Subscriber) {
        let waiting = waiting_of(sockets, member);
        self.watched.note(member, |history, now| history.note_queued(now, waiting, true));
    }

    /// Notes how many results of a connection still wait, since some may have been dropped.
    pub(super) fn note_waiting(&self, sockets: &mut ClientSockets, token: Token) {
        for operation in self.watched.operations_of(token) {
            let member = Subscriber { connection: token.to_u64(), operation };
            let waiting = waiting_of(sockets, member);
            self.watched.note(member, |history, now| history.note_waiting(now, waiting));
        }
    }

    /// Writes the last line of a subscription that has ended for this reason, and notes it in its history.
    pub(super) fn end_records(&mut self, token: Token, operation: u32, reason: &'static str) {
        self.records.end(token, operation, reason);
        self.watched.end(token, operation, reason);
    }

    /// Does the same for all subscriptions of a connection, whose backlog is discarded.
    pub(super) fn end_all_records(&mut self, token: Token, reason: &'static str) {
        self.records.end_all(token, reason);
        self.watched.end_all(token, reason);
    }
}

/// Returns a subscriber as a list shows it; `None` if its operation has ended.
fn describe(sockets: &mut ClientSockets, member: Subscriber) -> Option<FoundMember> {
    let waiting = waiting_of(sockets, member);
    let client = sockets.client(Token::from_u64(member.connection))?;
    let age = client.start_of(member.operation)?.age();
    Some(FoundMember { member, transport: client.transport, age, waiting })
}

/// Returns the number of results of a subscriber that wait for its socket.
pub(super) fn waiting_of(sockets: &mut ClientSockets, member: Subscriber) -> usize {
    let client = sockets.client(Token::from_u64(member.connection));
    let backlog = client.and_then(|client| client.backlog.as_ref());
    backlog.map_or(0, |it| it.waiting_of(member.operation))
}
