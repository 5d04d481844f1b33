//! Broadcasts: one result for all members of its group, or the results of several groups in one pass over their
//! members.
//!
//! With many groups the members of one group are far apart in memory, here and in the system. Results that wait
//! together are therefore sent in the order of the connections, not group by group: that takes a tenth less time.
//! Those that arrive while the first ones are sent join the pass: the fewer connections a pass leaves out, the less
//! each message costs.
//!
//! Traces and histories have the time at which each result was sent, not that of the end of the pass (`send_times`).

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use execute::Payload;
use hub::{GroupId, GroupSpans, OutletCommand, Subscriber};
use reactor::{SendOutcome, Token};

use super::super::client_machine::SharedResult;
use super::super::group_members::GroupMembers;
use super::super::message::Message;
use super::send_times::SendTimes;
use super::watching::note_broadcast;
use super::{ClientSockets, SubscriptionServer};
use crate::access_records::SubscriptionRecords;

/// The number of members that are read from memory before the first of them gets its message.
const READ_AHEAD: usize = 8;

/// The maximum number of results that are sent in one pass.
const RESULTS_MAX: usize = 256;

/// The size of results, in bytes, from which a pass takes no further ones. The mailbox does not count those of a pass.
const RESULT_BYTES_MAX: usize = 16 << 20;

/// The number of members that get a message before a pass looks for further results. It doubles with each look. Sending
/// to them takes some 2 ms, in which the hub resolves a burst of a hundred events.
const FIRST_SECTION: usize = 256;

/// The maximum number of members that get a message in one pass of several results. Sending to them takes some 120 ms,
/// for which no input is read, as with one result for a group of that size.
const MEMBERS_MAX: usize = 16 << 10;

/// A result for all members of a group.
pub(super) struct GroupResult {
    pub(super) group: GroupId,
    pub(super) payload: Payload,
    /// The spans of its event, if that has a trace.
    pub(super) spans: Option<Arc<GroupSpans>>,
}

/// One message of a pass: a result for a member, by its number. A pass has thousands of them, so they are small.
pub(super) struct Recipient {
    connection: u64,
    operation: u32,
    result: u32,
}

const _: () = assert!(size_of::<Recipient>() == 16);

impl Recipient {
    /// `result` is below [`RESULTS_MAX`].
    fn new(member: Subscriber, result: usize) -> Self {
        Self { connection: member.connection, operation: member.operation, result: result as u32 }
    }

    fn member(&self) -> Subscriber {
        Subscriber { connection: self.connection, operation: self.operation }
    }

    fn token(&self) -> Token {
        Token::from_u64(self.connection)
    }

    fn result(&self) -> usize {
        self.result as usize
    }
}

impl SubscriptionServer {
    /// Sends a result to its group, together with those of other groups that wait behind it in `following` or arrive
    /// meanwhile.
    // hot path: once per group and event, then once per member.
    pub(super) fn deliver(
        &mut self,
        sockets: &mut ClientSockets,
        first: GroupResult,
        following: &mut VecDeque<Message>,
    ) {
        let is_large =
            self.groups.get(&first.group).is_some_and(|members| members.len() >= MEMBERS_MAX);
        let (mut results, mut times) = (vec![first], SendTimes::default());
        let slow = match is_large {
            true => self.send_alone(sockets, &results, &mut times),
            false => self.send_pass(sockets, &mut results, following, &mut times),
        };
        debug_assert!(times.is_complete(), "a pass serves all recipients");
        note_sent(&results, &slow, &times);
        if !self.watched.is_empty() {
            let slow: Vec<_> = slow.iter().map(|it| (it.member(), it.result())).collect();
            note_broadcast(&self.watched, &self.groups, &results, &slow, &times);
        }
        for recipient in slow {
            let (member, token) = (recipient.member(), recipient.token());
            let Some(GroupResult { group, payload, .. }) = results.get(recipient.result()) else {
                continue;
            };
            let behind = self.behind.entry(token).or_default();
            if !behind.contains(group) {
                behind.push(*group);
                self.outlet.set_behind(*group, true);
            }
            self.enqueue(sockets, member, payload);
            self.drain_backlog(sockets, token);
            if sockets.client(token).is_none_or(|client| client.backlog.is_none()) {
                self.mark_caught_up(token);
            }
        }
        self.forget_deflated();
    }

    /// Sends a result to a group that is too large for a pass with others. Returns the members with sockets that had no
    /// room.
    fn send_alone(
        &mut self,
        sockets: &mut ClientSockets,
        results: &[GroupResult],
        times: &mut SendTimes,
    ) -> Vec<Recipient> {
        let Some(GroupResult { group, payload, .. }) = results.first() else { return Vec::new() };
        self.outlet.on_result_taken(*group, payload.bytes.len());
        add_timed(times, results, 0, &self.groups, !self.watched.is_empty());
        let shared = [SharedResult::new(payload.clone(), &self.deflation, true)];
        let members = self.groups.get(group).into_iter().flat_map(GroupMembers::iter);
        let recipients = members.map(|member| Recipient::new(member, 0));
        let (head, records) = (&mut self.head, &mut self.records);
        send_to_each(sockets, recipients, &shared, head, (times, records))
    }

    /// Sends results to all members of their groups in the order of the connections, with those in `following` and
    /// those that arrive meanwhile, which are added to `results`. Returns the members with sockets that had no room.
    fn send_pass(
        &mut self,
        sockets: &mut ClientSockets,
        results: &mut Vec<GroupResult>,
        following: &mut VecDeque<Message>,
        times: &mut SendTimes,
    ) -> Vec<Recipient> {
        let (mut shared, mut slow) = (Vec::new(), Vec::new());
        let (mut unsent, mut section) = (std::mem::take(&mut self.unsent), FIRST_SECTION);
        loop {
            let members = |group| self.groups.get(&group).map_or(0, GroupMembers::len);
            take_results(results, following, members);
            let known = shared.len();
            for GroupResult { group, payload, .. } in results.iter().skip(known) {
                self.outlet.on_result_taken(*group, payload.bytes.len());
                shared.push(SharedResult::new(payload.clone(), &self.deflation, true));
            }
            add_timed(times, results, known, &self.groups, !self.watched.is_empty());
            add_recipients(&mut unsent, results, known, &self.groups);
            let recipients = unsent.drain(unsent.len().saturating_sub(section)..).rev();
            let (head, records) = (&mut self.head, &mut self.records);
            let counts = (&mut *times, records);
            slow.append(&mut send_to_each(sockets, recipients, &shared, head, counts));
            if unsent.is_empty() {
                self.unsent = unsent;
                return slow;
            }
            section *= 2;
            self.outlet.mailbox().take_more(following);
        }
    }
}

/// Adds the members of the groups of further results, those from the number `known` on. The recipients are in the order
/// of their connections, the last one first.
fn add_recipients(
    recipients: &mut Vec<Recipient>,
    results: &[GroupResult],
    known: usize,
    groups: &HashMap<GroupId, GroupMembers>,
) {
    if results.len() == known {
        return;
    }
    let members = || results.iter().map(|it| groups.get(&it.group)).enumerate().skip(known);
    // In one piece: a list that grows is copied each time, to memory that the processor does not have at hand.
    recipients.reserve_exact(members().filter_map(|it| it.1).map(GroupMembers::len).sum());
    for (result, members) in members() {
        let members = members.into_iter().flat_map(GroupMembers::iter);
        members.for_each(|member| recipients.push(Recipient::new(member, result)));
    }
    recipients.sort_unstable_by_key(|it| Reverse((it.token().place(), it.result)));
}

/// Adds further results, those from the number `known` on, to `times` if their time is needed: by a trace that may be
/// exported, or by the histories of watched subscribers.
fn add_timed(
    times: &mut SendTimes,
    results: &[GroupResult],
    known: usize,
    groups: &HashMap<GroupId, GroupMembers>,
    is_watching: bool,
) {
    for (number, GroupResult { group, spans, .. }) in results.iter().enumerate().skip(known) {
        if is_watching || spans.as_ref().is_some_and(|spans| spans.is_event_recorded()) {
            times.add_result(number, groups.get(group).map_or(0, GroupMembers::len));
        }
    }
}

/// Notes in the traces of events when their results were sent in a pass, and for how many recipients they are queued
/// because these are in `slow`.
fn note_sent(results: &[GroupResult], slow: &[Recipient], times: &SendTimes) {
    if times.is_empty() {
        return;
    }
    let mut queued = vec![0; results.len()];
    for recipient in slow {
        if let Some(count) = queued.get_mut(recipient.result()) {
            *count += 1;
        }
    }
    for (number, (result, queued)) in results.iter().zip(queued).enumerate() {
        if let (Some(spans), Some(at)) = (&result.spans, times.time_of(number)) {
            spans.note_sent(at, queued);
        }
    }
}

/// Adds the results at the front of `following` that can be sent in one pass with `results`: up to a command of another
/// kind, a second result of one group, or the limits of a pass. `members` returns the number of members of a group.
fn take_results(
    results: &mut Vec<GroupResult>,
    following: &mut VecDeque<Message>,
    members: impl Fn(GroupId) -> usize,
) {
    let mut recipients = None;
    let mut bytes: usize = results.iter().map(|taken| taken.payload.bytes.len()).sum();
    while let Some(Message::Hub(OutletCommand::Deliver { group, .. })) = following.front() {
        let group = *group;
        let of_pass = || results.iter().map(|taken| members(taken.group)).sum::<usize>();
        let sum = recipients.unwrap_or_else(of_pass) + members(group);
        recipients = Some(sum);
        let is_full =
            sum > MEMBERS_MAX || results.len() >= RESULTS_MAX || bytes >= RESULT_BYTES_MAX;
        if is_full || results.iter().any(|taken| taken.group == group) {
            break;
        }
        if let Some(Message::Hub(OutletCommand::Deliver { payload, spans, .. })) =
            following.pop_front()
        {
            bytes += payload.bytes.len();
            results.push(GroupResult { group, payload, spans });
        }
    }
}

/// Sends each recipient its result, and returns those with sockets that had no room. `head` is a buffer. Counts the
/// recipients in `times`, and the sent results in `records`.
fn send_to_each(
    sockets: &mut ClientSockets,
    mut recipients: impl Iterator<Item = Recipient>,
    results: &[SharedResult<'_>],
    head: &mut Vec<u8>,
    (times, records): (&mut SendTimes, &mut SubscriptionRecords),
) -> Vec<Recipient> {
    let (mut slow, mut ahead) = (Vec::new(), VecDeque::with_capacity(READ_AHEAD));
    loop {
        if ahead.is_empty() {
            for recipient in recipients.by_ref().take(READ_AHEAD) {
                sockets.read_ahead(recipient.token(), |machine, client| {
                    client.backlog.is_none() && machine.read_ahead(recipient.operation)
                });
                ahead.push_back(recipient);
            }
        }
        let Some(recipient) = ahead.pop_front() else { return slow };
        let Some(result) = results.get(recipient.result()) else { continue };
        let mut has_backlog = false;
        let sent = sockets.send_with(recipient.token(), |machine, client| {
            // The backlog is sent first, and holds announcements of lost events.
            has_backlog = client.backlog.is_some();
            if has_backlog {
                return None;
            }
            head.clear();
            let (body, tail) = machine.next(recipient.operation, result, head)?;
            Some((&head[..], body, tail))
        });
        times.count_served(recipient.result(), Instant::now);
        if sent == Some(SendOutcome::Taken) {
            records.count_event(recipient.token(), recipient.operation);
        } else if has_backlog || sent == Some(SendOutcome::Blocked) {
            slow.push(recipient);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    fn payload() -> Payload {
        Payload {
            bytes: "{}".into(),
            splice: 1,
            has_data: true,
            errors: 0,
            first_error: None,
            subgraph_requests: 0,
            headers: None,
            cost: None,
            caching: None,
            revision: None,
        }
    }

    fn result(group: u64) -> Message {
        let (group, payload, spans) = (GroupId(group), payload(), None);
        Message::Hub(OutletCommand::Deliver { group, payload, is_stored: false, spans })
    }

    /// Returns the groups of one pass that begins with group 0, and the number of messages that are left.
    fn pass(following: impl IntoIterator<Item = Message>, members: usize) -> (Vec<u64>, usize) {
        let mut following: VecDeque<Message> = following.into_iter().collect();
        let mut results = vec![group_result(0)];
        take_results(&mut results, &mut following, |_| members);
        (results.iter().map(|it| it.group.0).collect(), following.len())
    }

    pub(in super::super) fn group_result(group: u64) -> GroupResult {
        GroupResult { group: GroupId(group), payload: payload(), spans: None }
    }

    fn members(places: &[u64]) -> GroupMembers {
        let mut members = GroupMembers::default();
        let member = |place: &u64| Subscriber { connection: *place, operation: 7 };
        places.iter().for_each(|place| members.insert(member(place)));
        members
    }

    #[test]
    fn waiting_results_of_different_groups_are_one_pass() {
        assert_eq!(pass([], 1), (vec![0], 0));
        assert_eq!(pass([result(2), result(1)], 1), (vec![0, 2, 1], 0));
    }

    #[test]
    fn a_second_result_of_a_group_waits_for_the_next_pass() {
        assert_eq!(pass([result(1), result(1), result(2)], 1), (vec![0, 1], 2));
        assert_eq!(pass([result(0)], 1), (vec![0], 1));
    }

    #[test]
    fn other_commands_keep_their_place() {
        let end = Message::Hub(OutletCommand::Leave {
            group: GroupId(3),
            member: Subscriber { connection: 0, operation: 0 },
        });
        assert_eq!(pass([result(1), end, result(2)], 1), (vec![0, 1], 2));
    }

    #[test]
    fn a_pass_is_limited_in_members_and_results() {
        assert_eq!(pass([result(1), result(2)], MEMBERS_MAX / 2), (vec![0, 1], 1));
        assert_eq!(pass([result(1)], MEMBERS_MAX), (vec![0], 1));
        let (groups, left) = pass((1..1000).map(result), 0);
        assert_eq!((groups.len(), left), (RESULTS_MAX, 1000 - RESULTS_MAX));
    }

    #[test]
    fn a_pass_is_limited_in_bytes() {
        let large = Payload { bytes: vec![b' '; RESULT_BYTES_MAX].into(), ..payload() };
        let mut results = vec![GroupResult { group: GroupId(0), payload: large, spans: None }];
        let mut following = VecDeque::from([result(1)]);
        take_results(&mut results, &mut following, |_| 1);
        assert_eq!((results.len(), following.len()), (1, 1));
    }

    #[test]
    fn results_that_arrive_during_a_pass_count_against_its_limits() {
        let mut results = vec![group_result(0), group_result(1)];
        let mut following = VecDeque::from([result(2), result(0)]);
        take_results(&mut results, &mut following, |_| 1);
        assert_eq!((results.len(), following.len()), (3, 1), "a second result of group 0");
        let mut following = VecDeque::from([result(3), result(4)]);
        take_results(&mut results, &mut following, |_| MEMBERS_MAX / 4);
        assert_eq!((results.len(), following.len()), (4, 1));
    }

    #[test]
    fn recipients_of_later_results_take_their_places_in_the_order_of_the_connections() {
        let groups = HashMap::from([
            (GroupId(0), members(&[1, 4, 6])),
            (GroupId(1), members(&[4, 5])),
            (GroupId(2), members(&[2, 6])),
        ]);
        let order = |recipients: &[Recipient]| -> Vec<(u64, usize)> {
            recipients.iter().rev().map(|it| (it.connection, it.result())).collect()
        };
        let (mut recipients, mut results) = (Vec::new(), vec![group_result(0), group_result(1)]);
        add_recipients(&mut recipients, &results, 0, &groups);
        assert_eq!(order(&recipients), [(1, 0), (4, 0), (4, 1), (5, 1), (6, 0)]);
        recipients.truncate(3);
        // The result of a group without members adds no recipients.
        results.extend([group_result(9), group_result(2)]);
        add_recipients(&mut recipients, &results, 2, &groups);
        assert_eq!(order(&recipients), [(2, 3), (4, 1), (5, 1), (6, 0), (6, 3)]);
    }

    #[test]
    fn each_result_of_a_pass_has_the_time_of_its_own_last_recipient() {
        let groups = HashMap::from([
            (GroupId(0), members(&[1, 2])),
            (GroupId(1), members(&[1, 5])),
            (GroupId(2), members(&[3, 4])),
        ]);
        let (start, mut served) = (Instant::now(), 0);
        // Serving a recipient takes a millisecond.
        let mut serve = |recipients: &mut Vec<Recipient>, count: usize, times: &mut SendTimes| {
            for recipient in recipients.drain(recipients.len() - count..).rev() {
                served += 1;
                let now = start + Duration::from_millis(served);
                times.count_served(recipient.result(), || now);
            }
        };
        let (mut recipients, mut times) = (Vec::new(), SendTimes::default());
        let mut results = vec![group_result(0), group_result(1)];
        add_timed(&mut times, &results, 0, &groups, true);
        add_recipients(&mut recipients, &results, 0, &groups);
        serve(&mut recipients, 1, &mut times);
        // A result joins the pass, and is sent before the one with the last connection.
        results.push(group_result(2));
        add_timed(&mut times, &results, 2, &groups, true);
        add_recipients(&mut recipients, &results, 2, &groups);
        serve(&mut recipients, 5, &mut times);
        assert!(recipients.is_empty() && times.is_complete());
        let sent_at = [3, 6, 5].map(|millis| Some(start + Duration::from_millis(millis)));
        assert_eq!([0, 1, 2].map(|result| times.time_of(result)), sent_at);
    }

    #[test]
    fn results_without_a_trace_are_timed_only_while_subscribers_are_watched() {
        let groups = HashMap::from([(GroupId(0), members(&[1]))]);
        let mut times = SendTimes::default();
        add_timed(&mut times, &[group_result(0)], 0, &groups, false);
        assert!(times.is_empty());
        add_timed(&mut times, &[group_result(0)], 0, &groups, true);
        assert!(!times.is_empty());
    }
}
