//! The outlet of a single connection: deliveries of the hub for its subscriptions, and the signal that wakes the writer
//! of the connection, which is a task of its own (HTTP/2) or a reactor (streams shared by many requests).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use config::Subscriptions;
use execute::{ErrorCode, Payload};
use hub::{GroupId, Outlet, OutletCommand};
use tokio::sync::Notify;

use super::backlog::{Backlog, BacklogBounds};
pub(crate) use super::backlog::{Delivery, NextDelivery};
use super::queue_total::QueueTotal;
use crate::end_reasons::{CLIENT_COMPLETED, CONNECTION_CLOSED};
use crate::metrics::Transport;
use crate::open_outlets::OpenOutlets;
use crate::operation_start::OperationStart;
use crate::watches::{
    SubscriberHistory, SubscriberId, SubscriberList, SubscriberView, WatchedSubscriber,
};

/// The outlet of one connection, see the module.
#[derive(Debug)]
pub(crate) struct ConnectionOutlet {
    bounds: BacklogBounds,
    queue: Mutex<Queue>,
    /// The signal that wakes the writer of the connection.
    pub(crate) output_ready: Arc<OutputReady>,
    number: u64,
    transport: Transport,
    /// The list that the outlet is in until it is dropped.
    open: Arc<OpenOutlets<Self>>,
}

/// The signal that a connection has output.
#[derive(Default)]
pub(crate) struct OutputReady {
    task: Notify,
    /// The callback of a writer that is not a task. Once it is set, no task waits.
    callback: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// True if the callback was called and the writer has not looked since.
    is_called: AtomicBool,
}

impl std::fmt::Debug for OutputReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputReady")
            .field("callback", &self.callback.get().is_some())
            .finish_non_exhaustive()
    }
}

impl OutputReady {
    /// Waits until there is output that was not there at the last call.
    pub(crate) async fn notified(&self) {
        self.task.notified().await;
    }

    /// Sets a callback that is called, on any thread, when there is output: once until [`OutputReady::acknowledge`].
    /// The caller must look for earlier output after this call.
    pub(crate) fn set_callback(&self, callback: Box<dyn Fn() + Send + Sync>) {
        let is_first = self.callback.set(callback).is_ok();
        debug_assert!(is_first, "a connection has one writer");
    }

    /// Allows the next call of the callback. The writer calls this before it looks for output.
    pub(crate) fn acknowledge(&self) {
        self.is_called.store(false, Ordering::Release);
    }

    pub(super) fn notify_one(&self) {
        match self.callback.get() {
            Some(callback) if !self.is_called.swap(true, Ordering::AcqRel) => callback(),
            Some(_) => {}
            None => self.task.notify_one(),
        }
    }
}

/// The longest time for which a full queue is attributed to a writer that has not run rather than to its client. A
/// writer that has not looked for longer is stuck, and must not delay the other members of its groups.
const UNSEEN_MAX: Duration = Duration::from_secs(10);

/// The longest time in which a writer that found its socket full looks again after more is queued, unless it gets no
/// CPU time.
const WAKE_MAX: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Queue {
    members: HashMap<GroupId, Vec<OutletMember>>,
    /// The operations with a history that an operator watches. Nearly always none.
    watched: Vec<(u32, Arc<WatchedSubscriber>)>,
    backlog: Backlog,
    /// The time at which the oldest event was queued that the writer has not seen; `None` if it has seen all.
    unseen_since: Option<Instant>,
    /// True if the writer left something in the queue when it looked last: its socket was full.
    is_blocked: bool,
}

/// A subscriber of the connection.
#[derive(Clone, Copy, Debug)]
struct OutletMember {
    operation: u32,
    start: OperationStart,
}

impl Queue {
    /// Notes something in the history of an operation, if it is watched. `note` also gets the number of its waiting
    /// results.
    fn note(&self, operation: u32, note: impl Fn(&mut SubscriberHistory, Instant, usize)) {
        let Self { watched, backlog, .. } = self;
        // There are two histories if two operators began to watch it at once.
        for (_, history) in watched.iter().filter(|(number, _)| *number == operation) {
            let waiting = backlog.waiting_of(operation);
            history.note(|history, now| note(history, now, waiting));
        }
    }

    /// Notes the end of an operation. The results that wait are still written.
    fn note_end(&mut self, operation: u32, reason: &'static str) {
        self.note(operation, |history, now, _| history.note_end(now, reason));
        self.watched.retain(|(_, it)| !it.is_finished());
    }

    /// Notes what the backlog has dropped by itself.
    fn note_dropped(&mut self) {
        for (operation, history) in &self.watched {
            let waiting = self.backlog.waiting_of(*operation);
            history.note(|history, now| history.note_waiting(now, waiting));
        }
        if self.backlog.is_overflown() {
            for (_, history) in self.watched.drain(..) {
                let reason = ErrorCode::SlowSubscriber.as_str();
                history.note(|history, now| history.note_end(now, reason));
            }
        }
    }

    /// Queues a result for one operation.
    fn push_event(&mut self, bounds: BacklogBounds, operation: u32, payload: Payload) {
        self.backlog.push_event(bounds, operation, payload);
        if !self.watched.is_empty() {
            // The writer of a socket with room takes it in a moment.
            let is_full = self.is_blocked;
            self.note(operation, |history, now, waiting| {
                history.note_queued(now, waiting, is_full);
            });
            self.note_dropped();
        }
    }

    /// Queues the end of an operation.
    fn push_end(&mut self, end: Delivery) {
        self.note_end(end.operation(), end.reason());
        self.backlog.push_end(end);
    }

    /// True unless the limits would drop an event of `group` only because the writer has not run yet.
    fn accepts_result(&self, bounds: BacklogBounds, group: GroupId, now: Instant) -> bool {
        // Without the lower limit a slow client would delay its group each time its writer is woken.
        let least = if self.is_blocked { WAKE_MAX } else { Duration::ZERO };
        let is_starved = |since| (least..UNSEEN_MAX).contains(&now.duration_since(since));
        let members = self.members.get(&group).map(Vec::as_slice).unwrap_or_default();
        !self.unseen_since.is_some_and(is_starved)
            || members.iter().all(|it| self.backlog.accepts_event(bounds, it.operation))
    }
}

impl ConnectionOutlet {
    /// Makes an empty outlet of a connection with this transport, and lists it in `open` until it is dropped.
    pub(crate) fn open(
        settings: &Subscriptions,
        total: &Arc<QueueTotal>,
        (transport, open): (Transport, &Arc<OpenOutlets<Self>>),
    ) -> Arc<Self> {
        let outlet = Arc::new(Self::new(settings, total, (transport, open)));
        open.add(outlet.number, &outlet);
        outlet
    }

    fn new(
        settings: &Subscriptions,
        total: &Arc<QueueTotal>,
        (transport, open): (Transport, &Arc<OpenOutlets<Self>>),
    ) -> Self {
        let queue = Queue {
            members: HashMap::new(),
            watched: Vec::new(),
            backlog: Backlog::new(Arc::clone(total)),
            unseen_since: None,
            is_blocked: false,
        };
        let output_ready = Arc::<OutputReady>::default();
        let writer = Arc::clone(&output_ready);
        queue.backlog.on_shed(Box::new(move || writer.notify_one()));
        Self {
            bounds: BacklogBounds::new(settings),
            queue: Mutex::new(queue),
            output_ready,
            number: open.next_number(),
            transport,
            open: Arc::clone(open),
        }
    }

    /// Adds the subscribers of a group to `list`.
    pub(crate) fn list_subscribers(&self, group: GroupId, list: &mut SubscriberList) {
        let queue = self.lock();
        for member in queue.members.get(&group).map(Vec::as_slice).unwrap_or_default() {
            list.add(SubscriberView {
                id: SubscriberId::Stream { stream: self.number, operation: member.operation },
                transport: self.transport.name(),
                age: member.start.age(),
                waiting: queue.backlog.waiting_of(member.operation),
            });
        }
    }

    /// Begins to watch an operation; `None` if it is not that of a subscriber.
    pub(crate) fn watch(&self, operation: u32) -> Option<Arc<WatchedSubscriber>> {
        let mut queue = self.lock();
        let mut members = queue.members.values().flatten();
        let age = members.find(|it| it.operation == operation)?.start.age();
        let id = SubscriberId::Stream { stream: self.number, operation };
        let waiting = queue.backlog.waiting_of(operation);
        let watched = WatchedSubscriber::new(id, self.transport, (age, waiting));
        queue.watched.retain(|(_, it)| !it.is_finished());
        queue.watched.push((operation, Arc::clone(&watched)));
        Some(watched)
    }

    /// Queues the response of a query or mutation. The caller queues the end of the operation next.
    pub(crate) fn push_response(&self, operation: u32, payload: Payload) {
        self.lock().backlog.push_response(operation, payload);
        self.output_ready.notify_one();
    }

    /// Queues the end of an operation.
    pub(crate) fn push_end(&self, end: Delivery) {
        self.lock().push_end(end);
        self.output_ready.notify_one();
    }

    /// Drops the deliveries of an operation that its client has completed.
    pub(crate) fn drop_deliveries_of(&self, operation: u32) {
        let mut queue = self.lock();
        queue.backlog.drop_deliveries_of(operation);
        queue.note_dropped();
        queue.note_end(operation, CLIENT_COMPLETED);
    }

    /// Drops all deliveries: the connection is to be closed.
    pub(crate) fn overflow(&self) {
        let mut queue = self.lock();
        queue.backlog.overflow();
        queue.note_dropped();
        drop(queue);
        self.output_ready.notify_one();
    }

    /// Removes and returns the oldest delivery.
    pub(crate) fn next_delivery(&self) -> NextDelivery {
        let mut queue = self.lock();
        (queue.unseen_since, queue.is_blocked) = (None, false);
        queue.backlog.shed(self.bounds);
        if !queue.watched.is_empty() {
            queue.note_dropped();
        }
        let next = queue.backlog.pop();
        if !queue.watched.is_empty()
            && let NextDelivery::Delivery(Delivery::Next { operation, payload, missed }) = &next
        {
            let (bytes, missed) = (payload.bytes.len(), missed.and(payload.missed()));
            queue.note(*operation, |history, now, waiting| {
                history.note_taken(now, bytes, missed, waiting);
            });
        }
        next
    }

    /// True if a limit was reached and the policy is to disconnect. This is known also while nothing can be taken
    /// because the socket is full.
    pub(crate) fn is_overflown(&self) -> bool {
        let mut queue = self.lock();
        queue.backlog.shed(self.bounds);
        (queue.unseen_since, queue.is_blocked) = (None, !queue.backlog.is_idle());
        if !queue.watched.is_empty() {
            queue.note_dropped();
        }
        queue.backlog.is_overflown()
    }

    /// Returns the number of results that the policy has dropped since the last call. A connection that it closed
    /// counts as one.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.lock().backlog.take_dropped()
    }

    /// Locks the queue. No code of the application runs under this lock, so a poisoned lock holds a valid queue.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionOutlet {
    fn drop(&mut self) {
        self.open.remove(self.number);
        let queue = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (_, history) in queue.watched.drain(..) {
            history.note(|history, now| {
                history.note_waiting(now, 0);
                history.note_end(now, CONNECTION_CLOSED);
            });
        }
    }
}

impl Outlet for ConnectionOutlet {
    fn accepts_result(&self, group: GroupId) -> bool {
        let queue = self.lock();
        // The writer has nearly always seen everything, and then no clock is read.
        queue.unseen_since.is_none() || queue.accepts_result(self.bounds, group, Instant::now())
    }

    fn has_room(&self, group: GroupId) -> bool {
        let queue = self.lock();
        let members = queue.members.get(&group).map(Vec::as_slice).unwrap_or_default();
        members.iter().all(|it| queue.backlog.has_room(self.bounds, it.operation))
    }

    fn send(&self, command: OutletCommand) {
        let mut queue = self.lock();
        let mut traced = None;
        match command {
            OutletCommand::Join { group, member } => {
                let (operation, start) = (member.operation, OperationStart::now());
                queue.members.entry(group).or_default().push(OutletMember { operation, start });
                return;
            }
            OutletCommand::Deliver { group, payload, spans, is_stored: _ } => {
                let members = queue.members.get(&group).cloned().unwrap_or_default();
                for member in &members {
                    queue.push_event(self.bounds, member.operation, payload.clone());
                }
                queue.unseen_since.get_or_insert_with(Instant::now);
                traced = spans.map(|spans| (spans, members.len()));
            }
            OutletCommand::Position { group, cursor } => {
                let members = queue.members.get(&group).cloned().unwrap_or_default();
                for member in members {
                    queue.backlog.push_position(member.operation, cursor.clone());
                }
            }
            OutletCommand::Leave { group, member } => {
                if let Some(members) = queue.members.get_mut(&group) {
                    // The outlet has one connection only, so its number does not matter.
                    members.retain(|it| it.operation != member.operation);
                    if members.is_empty() {
                        queue.members.remove(&group);
                    }
                }
                return queue.backlog.clear_missed(member.operation);
            }
            OutletCommand::Merge { from, into } => {
                let merged = queue.members.remove(&from).unwrap_or_default();
                queue.members.entry(into).or_default().extend(merged);
                return;
            }
            OutletCommand::End { group, reason } => {
                let members = queue.members.remove(&group).unwrap_or_default();
                for OutletMember { operation, .. } in members {
                    queue.push_end(Delivery::end(operation, &reason));
                }
            }
        }
        drop(queue);
        self.output_ready.notify_one();
        // The writer is another thread or task, so the bytes for all subscribers wait. The trace may end here, which is
        // no work for the time under the lock.
        if let Some((spans, subscribers)) = traced {
            spans.note_sent(Instant::now(), subscribers);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use execute::Missed;
    use hub::{EndReason, Subscriber};

    use super::*;
    use crate::end_reasons::SOURCE_COMPLETED;
    use crate::watches::HistoryStep;
    use config::OverflowPolicy;

    fn payload(text: &'static str) -> Payload {
        Payload {
            bytes: text.into(),
            splice: 0,
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

    fn deliver(group: GroupId, text: &'static str) -> OutletCommand {
        OutletCommand::Deliver { group, payload: payload(text), is_stored: true, spans: None }
    }

    #[test]
    fn the_policy_applies_to_a_full_queue_only_once_the_writer_has_seen_it() {
        for policy in [OverflowPolicy::Disconnect, OverflowPolicy::DropOldest] {
            let outlet = outlet(policy, 100, 2);
            let (group, other) = (GroupId(1), GroupId(2));
            for (group, operation) in [(group, 7), (other, 8)] {
                let member = Subscriber { connection: 0, operation };
                outlet.send(OutletCommand::Join { group, member });
            }
            assert!(outlet.accepts_result(group));
            outlet.send(deliver(group, "1"));
            assert!(outlet.accepts_result(group), "there is room");
            outlet.send(deliver(group, "2"));
            assert!(!outlet.accepts_result(group) && outlet.accepts_result(other));
            let now = Instant::now();
            let accepts_after = |outlet: &ConnectionOutlet, time| {
                outlet.lock().accepts_result(outlet.bounds, group, now + time)
            };
            assert!(accepts_after(&outlet, UNSEEN_MAX), "it is stuck");
            // The socket is full: the writer looks and takes nothing.
            assert!(!outlet.is_overflown());
            assert!(outlet.accepts_result(group), "from now on the policy decides");
            outlet.lock().unseen_since = Some(now);
            assert!(accepts_after(&outlet, WAKE_MAX / 2), "the writer is about to look again");
            assert!(!accepts_after(&outlet, WAKE_MAX), "it does not run");
            // The writer takes some deliveries, and then does not run again.
            assert_eq!(all(&outlet).len(), 2);
            outlet.send(deliver(group, "3"));
            outlet.send(deliver(group, "4"));
            assert!(!outlet.accepts_result(group), "{policy:?}");
            outlet.send(OutletCommand::Leave {
                group,
                member: Subscriber { connection: 0, operation: 7 },
            });
            assert!(outlet.accepts_result(group));
        }
    }

    fn outlet(policy: OverflowPolicy, bytes: usize, events: u32) -> ConnectionOutlet {
        outlet_within(policy, bytes, events, &Arc::new(QueueTotal::new(1 << 20)))
    }

    fn outlet_within(
        policy: OverflowPolicy,
        bytes: usize,
        events: u32,
        total: &Arc<QueueTotal>,
    ) -> ConnectionOutlet {
        let settings = Subscriptions {
            queue_bytes: bytes,
            queue_events: events,
            policy,
            ..Subscriptions::default()
        };
        ConnectionOutlet::new(&settings, total, (Transport::Sse, &Arc::default()))
    }

    #[test]
    fn the_callback_is_called_once_until_the_writer_looks() {
        let outlet = outlet(OverflowPolicy::DropOldest, 1 << 20, 16);
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        event(&outlet, 1, payload("1"));
        outlet
            .output_ready
            .set_callback(Box::new(move || _ = count.fetch_add(1, Ordering::Relaxed)));
        let end = || outlet.push_end(Delivery::Complete { operation: 1 });
        end();
        end();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        outlet.output_ready.acknowledge();
        assert_eq!(all(&outlet), [(1, "1", 0)]);
        end();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    fn all(outlet: &ConnectionOutlet) -> Vec<(u32, &'static str, u64)> {
        std::iter::from_fn(|| match outlet.next_delivery() {
            NextDelivery::Delivery(Delivery::Next { operation, payload, missed }) => {
                let text =
                    ["1", "2", "3", "4"].into_iter().find(|it| it.as_bytes() == payload.bytes);
                Some((operation, text.unwrap_or("?"), missed.lost))
            }
            _ => None,
        })
        .collect()
    }

    fn event(outlet: &ConnectionOutlet, operation: u32, payload: Payload) {
        outlet.lock().backlog.push_event(outlet.bounds, operation, payload);
    }

    #[test]
    fn a_group_delivers_to_each_of_its_members_until_they_leave() {
        let outlet = outlet(OverflowPolicy::Disconnect, 100, 10);
        let group = GroupId(1);
        let member = |operation| Subscriber { connection: 0, operation };
        for operation in [7, 8] {
            outlet.send(OutletCommand::Join { group, member: member(operation) });
        }
        outlet.send(deliver(group, "1"));
        outlet.send(OutletCommand::Leave { group, member: member(7) });
        outlet.send(deliver(group, "2"));
        assert_eq!(all(&outlet), [(7, "1", 0), (8, "1", 0), (8, "2", 0)]);
        outlet.send(OutletCommand::End { group, reason: EndReason::Complete });
        assert_eq!(
            outlet.next_delivery(),
            NextDelivery::Delivery(Delivery::Complete { operation: 8 })
        );
        assert_eq!(outlet.next_delivery(), NextDelivery::Nothing);
    }

    #[test]
    fn members_of_a_merged_group_get_the_results_of_the_other_group_and_leave_it() {
        let outlet = outlet(OverflowPolicy::Disconnect, 100, 10);
        let member = |operation| Subscriber { connection: 0, operation };
        let (from, into) = (GroupId(1), GroupId(2));
        outlet.send(OutletCommand::Join { group: from, member: member(7) });
        outlet.send(OutletCommand::Merge { from, into });
        outlet.send(deliver(into, "1"));
        outlet.send(OutletCommand::Leave { group: into, member: member(7) });
        assert_eq!(all(&outlet), [(7, "1", 0)]);
        assert!(outlet.lock().members.is_empty());
    }

    #[test]
    fn the_policy_disconnect_gives_up_at_the_limit() {
        let outlet = outlet(OverflowPolicy::Disconnect, 100, 2);
        for text in ["1", "2", "3"] {
            event(&outlet, 0, payload(text));
        }
        assert_eq!(outlet.next_delivery(), NextDelivery::Overflown);
        assert_eq!(outlet.take_dropped(), 1);
    }

    #[test]
    fn the_policy_drop_oldest_keeps_the_newest_and_announces_the_losses() {
        let outlet = outlet(OverflowPolicy::DropOldest, 100, 2);
        for text in ["1", "2", "3", "4"] {
            event(&outlet, 0, payload(text));
        }
        assert_eq!(all(&outlet), [(0, "3", 2), (0, "4", 0)]);
        assert_eq!(outlet.take_dropped(), 2);
    }

    #[test]
    fn a_dropped_result_passes_its_announcement_on() {
        let outlet = outlet(OverflowPolicy::DropOldest, 1000, 1);
        let announced = Missed { lost: 2, gap: true };
        let first = Payload {
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
        event(&outlet, 0, first.with_missed(announced));
        event(&outlet, 0, payload("2"));
        let NextDelivery::Delivery(Delivery::Next { missed, .. }) = outlet.next_delivery() else {
            panic!("nothing was kept")
        };
        assert_eq!(missed, Missed { lost: 3, gap: true });
    }

    #[test]
    fn a_position_waits_in_its_turn_and_once_and_never_hides_a_loss() {
        let outlet = outlet(OverflowPolicy::DropOldest, 1000, 1);
        let group = GroupId(1);
        for operation in [7, 8] {
            outlet.send(OutletCommand::Join {
                group,
                member: Subscriber { connection: 0, operation },
            });
        }
        let tell = |cursor: &'static str| {
            outlet.send(OutletCommand::Position { group, cursor: cursor.into() });
        };
        let position = |operation, cursor: &'static str| {
            NextDelivery::Delivery(Delivery::Position { operation, cursor: cursor.into() })
        };
        // A second position does not wait behind the first.
        tell("a");
        tell("b");
        outlet.send(deliver(group, "1"));
        assert_eq!(
            [outlet.next_delivery(), outlet.next_delivery()],
            [position(7, "a"), position(8, "a")]
        );
        // Nothing of the first operation waits any more.
        let taken = outlet.next_delivery();
        assert!(matches!(taken, NextDelivery::Delivery(Delivery::Next { operation: 7, .. })));
        tell("c");
        let taken = outlet.next_delivery();
        assert!(matches!(taken, NextDelivery::Delivery(Delivery::Next { operation: 8, .. })));
        assert_eq!(
            [outlet.next_delivery(), outlet.next_delivery()],
            [position(7, "c"), NextDelivery::Nothing]
        );
        // An event is lost, and no later event announces it.
        let full =
            outlet_within(OverflowPolicy::DropOldest, 1000, 1, &Arc::new(QueueTotal::new(0)));
        event(&full, 7, payload("1"));
        full.lock().backlog.push_position(7, "d".into());
        assert_eq!(full.next_delivery(), NextDelivery::Nothing);
        assert!(full.lock().backlog.has_news_of(7));
        assert!(!full.lock().backlog.has_news_of(8));
        assert!(outlet.lock().backlog.is_idle());
    }

    #[test]
    fn bytes_are_limited_too() {
        let outlet = outlet(OverflowPolicy::DropOldest, 2, 100);
        for text in ["1", "2", "3"] {
            event(&outlet, 0, payload(text));
        }
        assert_eq!(all(&outlet), [(0, "2", 1), (0, "3", 0)]);
    }

    #[test]
    fn the_policy_latest_keeps_one_result_for_each_operation() {
        let outlet = outlet(OverflowPolicy::Latest, 100, 10);
        for (operation, text) in [(0, "1"), (1, "2"), (0, "3"), (0, "4")] {
            event(&outlet, operation, payload(text));
        }
        assert_eq!(all(&outlet), [(1, "2", 0), (0, "4", 2)]);
    }

    #[test]
    fn a_result_that_a_patch_follows_is_never_dropped_alone() {
        let patch = |text| {
            let revision = execute::Revision { number: 2, state: 0, complete: Default::default() };
            Payload { revision: Some(Arc::new(revision)), ..payload(text) }
        };
        for policy in
            [OverflowPolicy::Disconnect, OverflowPolicy::DropOldest, OverflowPolicy::Latest]
        {
            let total = Arc::new(QueueTotal::new(1 << 20));
            let outlet = outlet_within(policy, 100, 2, &total);
            event(&outlet, 0, patch("1"));
            event(&outlet, 0, patch("2"));
            assert_eq!(all(&outlet), [(0, "1", 0), (0, "2", 0)], "{policy:?}");
            for text in ["1", "2", "3", "4"] {
                event(&outlet, 0, patch(text));
            }
            assert_eq!(outlet.next_delivery(), NextDelivery::Overflown, "{policy:?}");
            assert_eq!((outlet.take_dropped(), total.bytes()), (1, 0), "{policy:?}");
        }
        // A result of another operation that needs the room.
        let small = outlet(OverflowPolicy::DropOldest, 2, 10);
        event(&small, 0, patch("1"));
        event(&small, 1, payload("2"));
        event(&small, 1, payload("3"));
        assert_eq!(small.next_delivery(), NextDelivery::Overflown);
        // Other connections have all the memory.
        let full =
            outlet_within(OverflowPolicy::DropOldest, 1000, 1, &Arc::new(QueueTotal::new(0)));
        event(&full, 0, patch("1"));
        assert_eq!(full.next_delivery(), NextDelivery::Overflown);
    }

    #[test]
    fn histories_have_the_results_that_are_written_after_the_end() {
        let outlet = outlet(OverflowPolicy::DropOldest, 100, 10);
        let (group, other) = (GroupId(1), GroupId(2));
        for (group, operation) in [(group, 7), (other, 8), (other, 9)] {
            let member = Subscriber { connection: 0, operation };
            outlet.send(OutletCommand::Join { group, member });
        }
        let watch = |operation| outlet.watch(operation).expect("it is a subscriber");
        // Two operators begin to watch one of them at once.
        let (ended, again, stopped, left) = (watch(7), watch(7), watch(8), watch(9));
        for group in [group, group, other] {
            outlet.send(deliver(group, "1"));
        }
        outlet.send(OutletCommand::End { group, reason: EndReason::Complete });
        outlet.drop_deliveries_of(8);
        while let NextDelivery::Delivery(delivery) = outlet.next_delivery() {
            if matches!(delivery, Delivery::Complete { .. }) {
                break;
            }
        }
        outlet.send(deliver(other, "2"));
        drop(outlet);
        let describe = |it: &WatchedSubscriber| {
            let history = it.read(Instant::now()).history;
            let end = history.entries.iter().find_map(|it| match it.step {
                HistoryStep::Ended(reason) => Some(reason),
                _ => None,
            });
            (history.totals.delivered, history.totals.dropped, end)
        };
        for both in [ended, again] {
            assert_eq!(describe(&both), (2, 0, Some(SOURCE_COMPLETED)));
        }
        assert_eq!(describe(&stopped), (0, 1, Some(CLIENT_COMPLETED)));
        assert_eq!(describe(&left), (1, 1, Some(CONNECTION_CLOSED)));
    }

    #[test]
    fn many_subscriptions_of_one_connection_do_not_fill_the_queues_of_each_other() {
        let outlet = outlet(OverflowPolicy::Disconnect, 100, 2);
        let group = GroupId(1);
        for operation in 0..10 {
            outlet.send(OutletCommand::Join {
                group,
                member: Subscriber { connection: 0, operation },
            });
        }
        outlet.send(deliver(group, "1"));
        outlet.send(deliver(group, "2"));
        assert_eq!(all(&outlet).len(), 20);
    }

    #[test]
    fn an_event_that_exceeds_the_limit_alone_is_accepted() {
        for policy in [OverflowPolicy::Disconnect, OverflowPolicy::DropOldest] {
            let outlet = outlet(policy, 3, 10);
            event(&outlet, 0, payload("a large one"));
            assert_eq!(all(&outlet), [(0, "?", 0)], "{policy:?}");
        }
    }

    #[test]
    fn responses_of_queries_are_never_dropped_and_drop_no_events() {
        for policy in
            [OverflowPolicy::Disconnect, OverflowPolicy::DropOldest, OverflowPolicy::Latest]
        {
            let outlet = outlet(policy, 2, 1);
            for operation in 0..3 {
                outlet.push_response(operation, payload("a large one"));
                outlet.push_end(Delivery::Complete { operation });
            }
            event(&outlet, 7, payload("1"));
            let mut taken = std::iter::from_fn(|| match outlet.next_delivery() {
                NextDelivery::Delivery(delivery) => Some(delivery),
                _ => None,
            });
            assert_eq!(taken.by_ref().count(), 7, "{policy:?}");
        }
    }

    #[test]
    fn the_events_of_all_connections_together_are_limited() {
        let total = Arc::new(QueueTotal::new(3));
        let outlets: Vec<_> =
            (0..2).map(|_| outlet_within(OverflowPolicy::DropOldest, 100, 10, &total)).collect();
        for text in ["1", "2", "3"] {
            event(&outlets[0], 0, payload(text));
        }
        // There is no room: the connection that holds the most makes room, even if it is the one that wants more.
        event(&outlets[1], 0, payload("1"));
        event(&outlets[0], 0, payload("4"));
        assert_eq!(all(&outlets[0]), [(0, "3", 2), (0, "4", 0)]);
        assert_eq!((all(&outlets[1]), outlets[1].take_dropped()), (vec![(0, "1", 0)], 0));
        assert_eq!((total.bytes(), total.refused()), (0, 2));
        let strict = outlet_within(OverflowPolicy::Disconnect, 100, 10, &total);
        event(&outlets[0], 0, payload("1"));
        event(&strict, 0, payload("a large one"));
        assert_eq!(strict.next_delivery(), NextDelivery::Overflown);
        drop(outlets);
        assert_eq!(total.bytes(), 0);
    }

    #[test]
    fn nothing_is_kept_of_an_operation_that_has_ended() {
        let outlet = outlet(OverflowPolicy::DropOldest, 100, 1);
        let (group, member) = (GroupId(1), Subscriber { connection: 0, operation: 3 });
        outlet.send(OutletCommand::Join { group, member });
        for text in ["1", "2"] {
            outlet.send(deliver(group, text));
        }
        outlet.send(OutletCommand::Leave { group, member });
        assert_eq!(all(&outlet), [(3, "2", 1)]);
        let queue = outlet.lock();
        assert!(queue.backlog.is_idle() && queue.members.is_empty());
    }
}
