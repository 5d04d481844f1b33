//! How the hub reaches a reactor: every command through its mailbox, but no more results of a group than its members
//! could be behind anyway, and none while the oldest has waited too long: more events than a core can send would only
//! become older on the way. What is dropped so is announced with the next result.
//!
//! QueuedResults of events that their broker stores are not dropped here: the hub asks first
//! ([`hub::Outlet::accepts_result`]) and keeps them, or reads the events again later. Of a group there is then at most
//! one result beyond the bounds in each mailbox, since a group belongs to one shard.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use execute::{Missed, Payload};
use hub::{GroupId, Outlet, OutletCommand};
use reactor::Mailbox;

use super::message::Message;

/// QueuedResults of one group that may wait for the reactor: a burst.
const RESULTS_MAX: usize = 256;

/// Of what its members missed, no more of a group is given while so many results wait: they are written to each of
/// them.
const RESULTS_AHEAD: usize = 16;

/// How long the oldest result of a group may have waited for others to be put behind it.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Bytes of results that may wait for the reactor, of all groups together.
const BYTES_MAX: usize = 64 << 20;

/// See the module.
pub(super) struct ReactorOutlet {
    mailbox: Arc<Mailbox<Message>>,
    waiting: Mutex<MailboxLoad>,
}

#[derive(Default)]
struct MailboxLoad {
    /// Only groups of which something waits, or that are owed an announcement.
    groups: HashMap<GroupId, QueuedResults>,
    bytes: usize,
    dropped: u64,
    /// How many members of a group have something waiting for them because their sockets are full.
    behind: HashMap<GroupId, usize>,
}

#[derive(Default)]
struct QueuedResults {
    /// When each of those that wait was queued_at over, the oldest first.
    queued_at: VecDeque<Instant>,
    missed: Missed,
    /// So does the news where its members are.
    has_position: bool,
}

impl QueuedResults {
    /// May one more wait?
    fn has_room(&self, now: Instant) -> bool {
        let is_stuck =
            self.queued_at.front().is_some_and(|&oldest| now.duration_since(oldest) > WAIT_MAX);
        self.queued_at.len() < RESULTS_MAX && !is_stuck
    }

    /// Takes in the news where the members are, unless it would hide what was lost, or one waits already.
    fn queue_position(&mut self) -> bool {
        self.missed == Missed::default() && !std::mem::replace(&mut self.has_position, true)
    }

    fn is_idle(&self) -> bool {
        self.queued_at.is_empty() && self.missed == Missed::default() && !self.has_position
    }
}

impl MailboxLoad {
    /// May more of what its members missed be given to a group?
    fn has_room(&self, group: GroupId, now: Instant) -> bool {
        let results = self.groups.get(&group);
        // What would be dropped can wait.
        results.is_none_or(|it| it.queued_at.len() < RESULTS_AHEAD && it.has_room(now))
            && 2 * self.bytes < BYTES_MAX
            && !self.behind.contains_key(&group)
    }

    /// The members of `from` will be announced with those of `into` what these lost. Of what they lost themselves, the rest
    /// is still owed to them.
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

    /// Counts a result that is about to wait for the reactor, and returns it with the news of what was dropped before
    /// it. `None`: there is no room, so it is dropped.
    fn queue_result(
        &mut self,
        group: GroupId,
        payload: &Payload,
        is_stored: bool,
        now: Instant,
    ) -> Option<Payload> {
        let has_room = self.bytes == 0 || self.bytes + payload.bytes.len() <= BYTES_MAX;
        let results = self.groups.entry(group).or_default();
        // Since the hub asked about a stored event, time may have passed and other shards may have sent something.
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

    /// Who is behind stays counted until it keeps up again: it may come back to the group before that.
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

    /// How to reach the reactor.
    pub(super) fn mailbox(&self) -> &Arc<Mailbox<Message>> {
        &self.mailbox
    }

    /// The reactor has taken a result of that many bytes.
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

    /// The reactor has taken the news where the members of that group are.
    pub(super) fn on_position_taken(&self, group: GroupId) {
        let mut waiting = self.lock();
        if let Some(results) = waiting.groups.get_mut(&group) {
            results.has_position = false;
            if results.is_idle() {
                waiting.groups.remove(&group);
            }
        }
    }

    /// A member of that group does not keep up, or does again.
    pub(super) fn set_behind(&self, group: GroupId, is_behind: bool) {
        self.lock().set_behind(group, is_behind);
    }

    /// What nobody of that group has been announced of what they lost. Nobody else is announced of it then.
    pub(super) fn take_missed(&self, group: GroupId) -> Missed {
        let mut waiting = self.lock();
        let results = waiting.groups.get_mut(&group);
        results.map(|it| std::mem::take(&mut it.missed)).unwrap_or_default()
    }

    /// Nobody of that group is left.
    pub(super) fn forget_group(&self, group: GroupId) {
        self.lock().forget_group(group);
    }

    /// How many results have been dropped since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.lock().dropped)
    }

    /// Nothing runs user code under this lock, so a poisoned one holds sound numbers.
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
        if let OutletCommand::Deliver { group, payload, is_stored } = &mut command {
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
        self.mailbox.send(Message::Hub(command));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_put_behind_a_result_that_has_waited_too_long() {
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
    fn a_position_waits_once_and_never_hides_what_was_lost() {
        let mut results = QueuedResults::default();
        assert!(results.queue_position() && !results.queue_position());
        assert!(!results.is_idle());
        results.has_position = false;
        assert!(results.is_idle());
        results.missed = Missed { lost: 1, gap: false };
        assert!(!results.queue_position() && !results.has_position);
    }

    #[test]
    fn what_a_group_lost_before_it_merged_is_owed_to_its_members_once() {
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
    fn what_was_missed_waits_while_it_would_be_dropped() {
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
        let payload =
            Payload { bytes: "{}".into(), splice: 1, has_data: true, errors: 0, headers: None };
        let mut is_queued =
            |is_stored, now| waiting.queue_result(group, &payload, is_stored, now).is_some();
        assert!((0..RESULTS_MAX).all(|_| is_queued(true, now)));
        // The bound was reached since the hub asked.
        assert!(is_queued(true, now) && is_queued(true, now + 2 * WAIT_MAX));
        assert!(!is_queued(false, now));
        assert_eq!((waiting.dropped, waiting.groups[&group].missed.lost), (1, 1));
        assert_eq!(waiting.groups[&group].queued_at.len(), RESULTS_MAX + 2);
    }

    #[test]
    fn who_leaves_a_group_and_comes_back_is_behind_until_it_keeps_up() {
        let (mut waiting, group) = (MailboxLoad::default(), GroupId(1));
        waiting.set_behind(group, true);
        // Its only member has left, and its socket is still full when it comes back.
        waiting.forget_group(group);
        // Another one falls behind, and the first keeps up.
        waiting.set_behind(group, true);
        waiting.set_behind(group, false);
        assert_eq!(waiting.behind.get(&group), Some(&1));
        waiting.set_behind(group, false);
        assert!(waiting.behind.is_empty());
    }

    #[test]
    fn a_burst_may_wait_and_no_more() {
        let now = Instant::now();
        let mut results = QueuedResults::default();
        results.queued_at.extend([now; RESULTS_MAX]);
        assert!(!results.has_room(now));
    }
}
