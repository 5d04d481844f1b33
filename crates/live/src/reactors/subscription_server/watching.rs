//! The subscribers of a reactor for operators: lists of them, and what happens to those that are watched.

use std::collections::HashMap;
use std::sync::Arc;

use hub::{GroupId, Subscriber};
use reactor::Token;
use wire::websocket::Closed;

use super::broadcast::GroupResult;
use super::send_times::SendTimes;
use super::{ClientSockets, SubscriptionServer};
use crate::reactors::client::{Client, ClientOperation};
use crate::reactors::group_members::GroupMembers;
use crate::reactors::message::{FoundMember, FoundMembers};
use crate::reactors::watched_members::WatchedMembers;
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
        let is_subscription = match client.operations.get_mut(member.operation)? {
            ClientOperation::Subscription(..) => true,
            // A subscription has members, and is listed, before its task has ended.
            ClientOperation::Task(_) => self.groups.values().any(|it| it.contains(member)),
        };
        if !is_subscription {
            return None;
        }
        let FoundMember { transport, age, waiting, .. } = describe(sockets, member)?;
        let watched = WatchedSubscriber::new(id, transport, (age, waiting));
        self.watched.add(member, Arc::clone(&watched));
        Some(watched)
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

    /// Writes the line of a WebSocket that has ended.
    pub(super) fn end_websocket_record(
        &mut self,
        token: Token,
        client: &Client,
        closed: Option<&Closed>,
    ) {
        if let Some(record) = self.websockets.remove(&token)
            && let Some(reactor) = &self.reactor
        {
            record.finish(&reactor.runner, &client.context, closed);
        }
    }
}

/// Notes the results that were sent in a pass in the histories of their recipients, except those in `slow`. All results
/// of the pass are timed, since subscribers are watched.
pub(super) fn note_broadcast(
    watched_members: &WatchedMembers,
    groups: &HashMap<GroupId, GroupMembers>,
    results: &[GroupResult],
    slow: &[(Subscriber, usize)],
    times: &SendTimes,
) {
    for (member, watched) in watched_members.iter() {
        for (number, GroupResult { group, payload, .. }) in results.iter().enumerate() {
            let members = groups.get(group);
            let is_recipient = members.is_some_and(|members| members.contains(*member));
            if is_recipient
                && !slow.contains(&(*member, number))
                && let Some(at) = times.time_of(number)
            {
                watched.note_sent(at, payload.bytes.len(), payload.missed());
            }
        }
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::broadcast::tests::group_result;
    use super::*;
    use crate::metrics::Transport;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_history_has_the_time_at_which_the_result_was_sent_and_leaves_out_slow_recipients() {
        let members = [0, 1, 2].map(|connection| Subscriber { connection, operation: 1 });
        let (mut watched, mut groups) = (WatchedMembers::default(), HashMap::new());
        let histories = members.map(|member| {
            let Subscriber { connection, operation } = member;
            let id = SubscriberId::Reactor { reactor: 0, connection, operation };
            let one = WatchedSubscriber::new(id, Transport::WebSocket, (Duration::ZERO, 0));
            watched.add(member, Arc::clone(&one));
            // Each is in a group of its own with the number of its connection.
            let mut group = GroupMembers::default();
            group.insert(member);
            groups.insert(GroupId(connection), group);
            one
        });
        let start = Instant::now();
        let mut times = SendTimes::default();
        for result in 0..3 {
            times.add_result(result, 1);
        }
        // The results are sent in another order than that of their numbers.
        for (result, hours) in [(2, 1_u32), (0, 2), (1, 3)] {
            times.count_served(result, || start + hours * HOUR);
        }
        let results = [0, 1, 2].map(group_result);
        note_broadcast(&watched, &groups, &results, &[(members[1], 1)], &times);
        let hours = histories.map(|one| {
            let history = one.read(start + 4 * HOUR).history;
            let hours = history.entries.iter().map(|it| it.at.as_secs() / HOUR.as_secs());
            hours.collect::<Vec<_>>()
        });
        assert_eq!(hours, [vec![2], vec![], vec![1]]);
    }
}
