//! The outlet of a reactor, through which the hub reaches its connections. Every command goes through the mailbox, with
//! a limit on the waiting results of a group, in number and in age of the oldest: if there are more events than a
//! thread can send, waiting would only make them older. The next result announces those that were dropped.
//!
//! Results of stored events (events that their broker keeps) are not dropped here: the hub asks first
//! ([`hub::Outlet::accepts_result`]) and keeps them, or reads the events again later. At most one result of a group
//! exceeds the limits in each mailbox, since a group belongs to one shard.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use execute::{Missed, Payload};
use hub::{GroupId, Outlet, OutletCommand};
use reactor::Mailbox;

use super::message::Message;

/// The maximum number of results of one group that wait for the reactor: a burst.
const RESULTS_MAX: usize = 256;

/// The number of waiting results from which a group gets no more events that its members missed. Each result is written
/// to each member.
const RESULTS_AHEAD: usize = 16;

/// The longest time that the oldest result of a group may have waited when another is queued.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The maximum number of bytes of results that wait for the reactor, of all groups together.
const BYTES_MAX: usize = 64 << 20;

/// The outlet of a reactor, see the module.
pub(super) struct ReactorOutlet {
    mailbox: Arc<Mailbox<Message>>,
    waiting: Mutex<MailboxLoad>,
}

#[derive(Default)]
struct MailboxLoad {
    /// The groups that have results, a position or an unannounced loss waiting.
    groups: HashMap<GroupId, QueuedResults>,
    bytes: usize,
    dropped: u64,
    /// The number of members per group that have a backlog because their sockets are full.
    behind: HashMap<GroupId, usize>,
}

#[derive(Default)]
struct QueuedResults {
    /// The times at which the waiting results were queued, the oldest first.
    queued_at: VecDeque<Instant>,
    missed: Missed,
    /// True while a position of the members waits.
    has_position: bool,
}

impl QueuedResults {
    /// True if one more result may wait.
    fn has_room(&self, now: Instant) -> bool {
        let is_stuck =
            self.queued_at.front().is_some_and(|&oldest| now.duration_since(oldest) > WAIT_MAX);
        self.queued_at.len() < RESULTS_MAX && !is_stuck
    }

    /// Queues a position, unless one waits already or a loss is unannounced, which the position would hide. Returns
    /// true if it is queued.
    fn queue_position(&mut self) -> bool {
        self.missed == Missed::default() && !std::mem::replace(&mut self.has_position, true)
    }

    fn is_idle(&self) -> bool {
        self.queued_at.is_empty() && self.missed == Missed::default() && !self.has_position
    }
}

impl MailboxLoad {
    /// True if a group may get more of the events that its members missed.
    fn has_room(&self, group: GroupId, now: Instant) -> bool {
        let results = self.groups.get(&group);
        // Events that would be dropped are read later.
        results.is_none_or(|it| it.queued_at.len() < RESULTS_AHEAD && it.has_room(now))
            && 2 * self.bytes < BYTES_MAX
            && !self.behind.contains_key(&group)
    }

    /// Subtracts the losses of `into` from those of `from` before the groups merge: the members of `from` will get the
    /// announcement of `into` too.
    fn merge_groups(&mut self, from: GroupId, into: GroupId) {
        let announced = self.groups.get(&into).map(|it| it.missed).unwrap_or_default();
        if let Some(QueuedResults { missed, .. }) = self.groups.get_mut(&from) {
            missed.lost = missed.lost.saturating_sub(announced.lost);
            missed.gap &= !announced.gap;
        }
    }

    /// True if one more result of a group would not be dropped.
    fn accepts_result(&self, group: GroupId, now: Instant) -> bool {
        self.bytes < BYTES_MAX && self.groups.get(&group).is_none_or(|it| it.has_room(now))
    }

    /// Counts a result that is about to wait for the reactor. Returns it with the announcement of the losses before it,
    /// or `None` if there is no room and it is dropped.
    fn queue_result(
        &mut self,
        group: GroupId,
        payload: &Payload,
        is_stored: bool,
        now: Instant,
    ) -> Option<Payload> {
        let has_room = self.bytes == 0 || self.bytes + payload.bytes.len() <= BYTES_MAX;
        let results = self.groups.entry(group).or_default();
        // Since the hub asked about a stored event, time may have passed, and other shards may have sent results.
        if !is_stored && (!results.has_room(now) || !has_room) {
            let lost = Missed { lost: 1, gap: false };
            results.missed = results.missed.and(payload.missed()).and(lost);
            self.dropped += 1;
            return None;
        }
        results.queued_at.push_back(now);
        let payload = payload.with_missed(std::mem::take(&mut results.missed));
        self.bytes += payload.bytes.len();
        Some(payload)
    }

    fn set_behind(&mut self, group: GroupId, is_behind: bool) {
        if is_behind {
            *self.behind.entry(group).or_default() += 1;
        } else if let Some(members) = self.behind.get_mut(&group) {
            *members -= 1;
            if *members == 0 {
                self.behind.remove(&group);
            }
        }
    }

    /// Forgets the losses of a group without members. Members that are behind stay counted until they catch up: they
    /// may rejoin the group before that.
    fn forget_group(&mut self, group: GroupId) {
        if let Some(results) = self.groups.get_mut(&group) {
            results.missed = Missed::default();
            if results.is_idle() {
                self.groups.remove(&group);
            }
        }
    }
}

impl ReactorOutlet {
    pub(super) fn new(mailbox: Arc<Mailbox<Message>>) -> Self {
        Self { mailbox, waiting: Mutex::default() }
    }

    /// Returns the mailbox of the reactor.
    pub(super) fn mailbox(&self) -> &Arc<Mailbox<Message>> {
        &self.mailbox
    }

    /// Counts a result out that the reactor has taken, of that many bytes.
    pub(super) fn on_result_taken(&self, group: GroupId, bytes: usize) {
        let mut waiting = self.lock();
        waiting.bytes -= bytes;
        if let Some(results) = waiting.groups.get_mut(&group) {
            results.queued_at.pop_front();
            if results.is_idle() {
                waiting.groups.remove(&group);
            }
        }
    }

    /// Records that the reactor has taken the position of that group.
    pub(super) fn on_position_taken(&self, group: GroupId) {
        let mut waiting = self.lock();
        if let Some(results) = waiting.groups.get_mut(&group) {
            results.has_position = false;
            if results.is_idle() {
                waiting.groups.remove(&group);
            }
        }
    }

    /// Records that a member of that group has fallen behind, or has caught up.
    pub(super) fn set_behind(&self, group: GroupId, is_behind: bool) {
        self.lock().set_behind(group, is_behind);
    }

    /// Takes the group's unannounced losses. The caller must announce them.
    pub(super) fn take_missed(&self, group: GroupId) -> Missed {
        let mut waiting = self.lock();
        let results = waiting.groups.get_mut(&group);
        results.map(|it| std::mem::take(&mut it.missed)).unwrap_or_default()
    }

    /// Forgets a group that has no members any more.
    pub(super) fn forget_group(&self, group: GroupId) {
        self.lock().forget_group(group);
    }

    /// Returns the number of results that were dropped since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.lock().dropped)
    }

    /// Locks the counts. No code of the application runs under this lock, so a poisoned lock holds valid numbers.
    fn lock(&self) -> MutexGuard<'_, MailboxLoad> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outlet for ReactorOutlet {
    fn accepts_result(&self, group: GroupId) -> bool {
        self.lock().accepts_result(group, Instant::now())
    }

    fn has_room(&self, group: GroupId) -> bool {
        self.lock().has_room(group, Instant::now())
    }

    fn send(&self, mut command: OutletCommand) {
        if let OutletCommand::Deliver { group, payload, is_stored, .. } = &mut command {
            let now = Instant::now();
            let Some(queued) = self.lock().queue_result(*group, payload, *is_stored, now) else {
                return;
            };
            *payload = queued;
        }
        if let OutletCommand::Position { group, .. } = &command
            && !self.lock().groups.entry(*group).or_default().queue_position()
        {
            return;
        }
        if let OutletCommand::Merge { from, into } = command {
            self.lock().merge_groups(from, into);
        }
        // The worker that subscribes has a message about the same operation, and it comes after this one.
        let comes_first = matches!(command, OutletCommand::Join { .. });
        let message = Message::Hub(command);
        match comes_first {
            true => self.mailbox.send_with_next(message),
            false => self.mailbox.send(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_result_is_queued_behind_one_that_has_waited_too_long() {
        let start = Instant::now();
        let mut results = QueuedResults::default();
        assert!(results.has_room(start));
        results.queued_at.extend([start, start + WAIT_MAX]);
        assert!(results.has_room(start + WAIT_MAX));
        assert!(!results.has_room(start + WAIT_MAX + Duration::from_millis(1)));
        // The oldest is taken: the next one has waited for a moment only.
        results.queued_at.pop_front();
        assert!(results.has_room(start + WAIT_MAX + Duration::from_millis(1)));
    }

    #[test]
    fn a_position_waits_once_and_never_hides_a_loss() {
        let mut results = QueuedResults::default();
        assert!(results.queue_position() && !results.queue_position());
        assert!(!results.is_idle());
        results.has_position = false;
        assert!(results.is_idle());
        results.missed = Missed { lost: 1, gap: false };
        assert!(!results.queue_position() && !results.has_position);
    }

    #[test]
    fn losses_of_a_merged_group_are_announced_to_its_members_once() {
        let (from, into) = (GroupId(1), GroupId(2));
        for (lost, announced, owed) in [
            ((3, false), (0, false), (3, false)),
            ((3, true), (2, false), (1, true)),
            ((1, true), (2, true), (0, false)),
            ((0, false), (1, false), (0, false)),
        ] {
            let missed = |(lost, gap)| Missed { lost, gap };
            let results = |it| QueuedResults { missed: missed(it), ..QueuedResults::default() };
            let groups = HashMap::from([(from, results(lost)), (into, results(announced))]);
            let mut waiting = MailboxLoad { groups, ..MailboxLoad::default() };
            waiting.merge_groups(from, into);
            let now = [from, into].map(|group| waiting.groups[&group].missed);
            assert_eq!(now, [missed(owed), missed(announced)], "{lost:?} {announced:?}");
        }
    }

    #[test]
    fn missed_events_are_not_read_while_they_would_be_dropped() {
        let (group, now) = (GroupId(1), Instant::now());
        let mut waiting = MailboxLoad::default();
        assert!(waiting.has_room(group, now));
        waiting.groups.entry(group).or_default().queued_at.push_back(now);
        assert!(waiting.has_room(group, now + WAIT_MAX));
        assert!(!waiting.has_room(group, now + WAIT_MAX + Duration::from_millis(1)));
        waiting.groups.entry(group).or_default().queued_at.extend([now; RESULTS_AHEAD]);
        assert!(!waiting.has_room(group, now));
    }

    #[test]
    fn a_full_mailbox_refuses_results_and_a_slow_socket_does_not() {
        let (group, now) = (GroupId(1), Instant::now());
        let mut waiting = MailboxLoad::default();
        waiting.set_behind(group, true);
        assert!(waiting.accepts_result(group, now) && !waiting.has_room(group, now));
        let results = waiting.groups.entry(group).or_default();
        results.queued_at.extend([now; RESULTS_MAX - 1]);
        assert!(waiting.accepts_result(group, now));
        assert!(!waiting.accepts_result(group, now + WAIT_MAX + Duration::from_millis(1)));
        waiting.groups.entry(group).or_default().queued_at.push_back(now);
        assert!(!waiting.accepts_result(group, now));
        assert!(waiting.accepts_result(GroupId(2), now));
        waiting.bytes = BYTES_MAX;
        assert!(!waiting.accepts_result(GroupId(2), now));
    }

    #[test]
    fn a_result_of_a_stored_event_is_not_dropped_and_others_are() {
        let (group, now) = (GroupId(1), Instant::now());
        let mut waiting = MailboxLoad::default();
        let payload = Payload {
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
        };
        let mut is_queued =
            |is_stored, now| waiting.queue_result(group, &payload, is_stored, now).is_some();
        assert!((0..RESULTS_MAX).all(|_| is_queued(true, now)));
        // The limit was reached after the hub had asked.
        assert!(is_queued(true, now) && is_queued(true, now + 2 * WAIT_MAX));
        assert!(!is_queued(false, now));
        assert_eq!((waiting.dropped, waiting.groups[&group].missed.lost), (1, 1));
        assert_eq!(waiting.groups[&group].queued_at.len(), RESULTS_MAX + 2);
    }

    #[test]
    fn a_member_that_rejoins_a_group_is_behind_until_it_catches_up() {
        let (mut waiting, group) = (MailboxLoad::default(), GroupId(1));
        waiting.set_behind(group, true);
        // The only member leaves, and its socket is still full when it joins again.
        waiting.forget_group(group);
        // Another member falls behind, and the first catches up.
        waiting.set_behind(group, true);
        waiting.set_behind(group, false);
        assert_eq!(waiting.behind.get(&group), Some(&1));
        waiting.set_behind(group, false);
        assert!(waiting.behind.is_empty());
    }

    #[test]
    fn at_most_a_burst_may_wait() {
        let now = Instant::now();
        let mut results = QueuedResults::default();
        results.queued_at.extend([now; RESULTS_MAX]);
        assert!(!results.has_room(now));
    }
}
