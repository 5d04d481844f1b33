//! A shard with scripted callers, sources, cores and outlets. Nothing runs by itself: a test decides the next step, so
//! every order of events can be tested.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use bindings::Source;
use bytes::Bytes;
use events::{Event, Memory, MemorySettings, Provider, SourceError, SourceMessage, Start};
use execute::{FetchCacheBudget, GraphqlError, LocalFuture, Missed, Payload, Revision};
use futures_util::FutureExt;
use futures_util::future::{AbortRegistration, Abortable};
use tokio::sync::{mpsc, oneshot};

use super::leave_sender::Leave;
use super::task::Operations;
use super::{
    ConcurrencyLimit, Effect, LeaveSender, PendingSubscriber, ReaderStep, ResolutionOutcome,
    ResolutionWork, RingRoom, Shard, Shared, TriggerId,
};
use crate::cursor::{Cursors, Resume};
use crate::stats::{HubStats, SubscriptionSlot};
use crate::{
    EndReason, GroupId, GroupKey, HubSettings, LiveOperation, OperationUpdate, Outlet,
    OutletCommand, Resolve, Subscriber, Subscription, TransportId, TriggerEvent,
};

/// The commands that one subscriber has received: `join`, payloads, `end: reason`.
pub(super) type Heard = Vec<String>;

/// An outlet that keeps lists of subscribers as a real one does, and panics if the hub breaks a guarantee.
#[derive(Default)]
pub(super) struct ScriptedOutlet {
    state: Mutex<OutletState>,
}

#[derive(Default)]
struct OutletState {
    groups: HashMap<GroupId, Vec<Subscriber>>,
    heard: BTreeMap<(u64, u32), Heard>,
    deliveries: usize,
    /// While it is full it drops results, and remembers the losses of its subscribers.
    is_full: bool,
    owed: HashMap<Subscriber, Missed>,
    /// True if some of its sockets have no room; results are delivered nevertheless and wait for them.
    lacks_room: bool,
    /// True if it accepts no results, because its thread does not run.
    is_starved: bool,
}

impl ScriptedOutlet {
    pub(super) fn heard(&self, member: Subscriber) -> Heard {
        let state = self.state.lock().unwrap();
        state.heard.get(&(member.connection, member.operation)).cloned().unwrap_or_default()
    }

    /// The number of deliver commands, one per group and event.
    pub(super) fn deliveries(&self) -> usize {
        self.state.lock().unwrap().deliveries
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().unwrap().groups.is_empty()
    }

    /// Makes its sockets full, or not.
    pub(super) fn turn(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_full = !state.is_full;
    }

    /// Gives its sockets room for missed events, or takes it away.
    pub(super) fn set_room(&self, has_room: bool) {
        self.state.lock().unwrap().lacks_room = !has_room;
    }

    /// Stops or resumes its thread.
    pub(super) fn starve(&self, is_starved: bool) {
        self.state.lock().unwrap().is_starved = is_starved;
    }
}

impl Outlet for ScriptedOutlet {
    fn has_room(&self, _group: GroupId) -> bool {
        let state = self.state.lock().unwrap();
        !state.is_full && !state.lacks_room && !state.is_starved
    }

    fn accepts_result(&self, _group: GroupId) -> bool {
        !self.state.lock().unwrap().is_starved
    }

    fn send(&self, command: OutletCommand) {
        let OutletState { groups, heard, deliveries, is_full, owed, lacks_room: _, is_starved } =
            &mut *self.state.lock().unwrap();
        let key = |member: Subscriber| (member.connection, member.operation);
        match command {
            OutletCommand::Join { group, member } => {
                let heard = heard.entry(key(member)).or_default();
                assert!(heard.is_empty(), "{member:?} joins first and once: {heard:?}");
                heard.push("join".into());
                groups.entry(group).or_default().push(member);
            }
            OutletCommand::Deliver { group, payload, is_stored, spans: _ } => {
                assert!(
                    !is_stored || !*is_starved,
                    "a stored result is sent only if the outlet accepts it"
                );
                let members = groups.get(&group).expect("only groups with subscribers get results");
                *deliveries += 1;
                for member in members {
                    let owed = owed.entry(*member).or_default();
                    if *is_full || *is_starved {
                        *owed = owed.and(payload.missed()).and(Missed { lost: 1, gap: false });
                        continue;
                    }
                    let payload = payload.with_missed(std::mem::take(owed));
                    let heard = heard.get_mut(&key(*member)).unwrap();
                    heard.push(String::from_utf8(payload.bytes.to_vec()).unwrap());
                }
            }
            OutletCommand::Position { group, cursor } => {
                for member in
                    groups.get(&group).expect("only groups with subscribers get positions")
                {
                    // A position would hide the loss before it.
                    let owes = owed.get(member).is_some_and(|it| *it != Missed::default());
                    if !*is_full && !owes {
                        let cursor = std::str::from_utf8(&cursor).unwrap();
                        heard.get_mut(&key(*member)).unwrap().push(position_of(cursor));
                    }
                }
            }
            OutletCommand::Leave { group, member } => {
                let members = groups.get_mut(&group).expect("only subscribers leave");
                let index = members.iter().position(|it| *it == member).expect("each leaves once");
                members.swap_remove(index);
                if members.is_empty() {
                    groups.remove(&group);
                }
                heard.get_mut(&key(member)).unwrap().push("end: unsubscribed".to_owned());
            }
            OutletCommand::Merge { from, into } => {
                let merged = groups.remove(&from).expect("only a group with subscribers is merged");
                groups.entry(into).or_default().extend(merged);
            }
            OutletCommand::End { group, reason } => {
                let reason = match reason {
                    EndReason::Complete => "complete".to_owned(),
                    EndReason::Error(error) => error.code.as_str().to_owned(),
                };
                for member in groups.remove(&group).expect("a group ends once") {
                    heard.get_mut(&key(member)).unwrap().push(format!("end: {reason}"));
                }
            }
        }
    }
}

/// A resolver that tests complete by hand.
#[derive(Clone, Copy, Default)]
struct ByHand {
    has_state: bool,
    takes_batches: bool,
    needs_slow_subgraph: bool,
}

impl Resolve for ByHand {
    fn resolve(self: Arc<Self>, _event: TriggerEvent) -> LocalFuture<'static, Payload> {
        Box::pin(std::future::pending())
    }

    fn takes_batches(&self) -> bool {
        self.takes_batches
    }

    fn needs_slow_subgraph(&self) -> bool {
        self.needs_slow_subgraph
    }

    fn has_state(&self) -> bool {
        self.has_state
    }
}

/// Returns the received form of a position.
pub(super) fn position_of(cursor: &str) -> String {
    format!("{{\"cursor\":\"{cursor}\"}}")
}

/// The text of a current state.
pub(super) const STATE: &str = "\"state\"";

/// Returns the payload `{"data":event}`.
pub(super) fn payload(event: &Bytes) -> Payload {
    let text = format!("{{\"data\":{}}}", String::from_utf8_lossy(event));
    Payload {
        splice: text.len() - 1,
        bytes: text.into(),
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

pub(super) struct Resolution {
    pub(super) group: GroupId,
    pub(super) ticket: u64,
    pub(super) event: Bytes,
    /// The other events of a batch.
    pub(super) others: Vec<Bytes>,
    /// The state that the subscribers of the group have.
    pub(super) known: Option<Revision>,
    abort: AbortRegistration,
}

impl Resolution {
    /// True if the resolution was aborted, as its task would see it.
    pub(super) fn was_aborted(self) -> bool {
        Abortable::new(std::future::pending::<()>(), self.abort).now_or_never().is_some()
    }
}

pub(super) type SubscribeReply = oneshot::Receiver<Result<Subscription, GraphqlError>>;

/// A shard and everything around it.
pub(super) struct Stage {
    pub(super) shard: Shard,
    pub(super) stats: Arc<HubStats>,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) opening: Vec<TriggerId>,
    /// The triggers that were opened for groups that move there.
    pub(super) opened_for_move: Vec<TriggerId>,
    pub(super) closed: Vec<TriggerId>,
    /// The side readers that are being opened, and their starts.
    pub(super) readers_opening: Vec<(TriggerId, u64, Start)>,
    /// The side readers that are paused.
    pub(super) readers_paused: Vec<(TriggerId, u64)>,
    pub(super) readers_closed: Vec<(TriggerId, u64)>,
    /// The resolutions in flight, oldest first.
    pub(super) resolutions: Vec<Resolution>,
    leaves: mpsc::UnboundedReceiver<Leave>,
}

impl Stage {
    pub(super) fn new(settings: HubSettings) -> Self {
        Self::with_cursors(settings, None)
    }

    pub(super) fn with_cursors(settings: HubSettings, cursors: Option<Arc<Cursors>>) -> Self {
        let stats = Arc::new(HubStats::default());
        let (leave_sender, leaves) = LeaveSender::channel();
        let settings = HubSettings { shards: 1, ..settings };
        let permits =
            Arc::new(ConcurrencyLimit::new(settings.resolutions_in_flight, settings.shards));
        let shared = Shared {
            stats: Arc::clone(&stats),
            memo_room: Arc::new(FetchCacheBudget::new(0)),
            ring_room: Arc::new(RingRoom::new(settings.ring_bytes_total)),
            permits,
            cursors,
        };
        Self {
            shard: Shard::new(0, settings, shared, leave_sender),
            stats,
            provider: Arc::new(Memory::new("default", MemorySettings::default())),
            opening: Vec::new(),
            opened_for_move: Vec::new(),
            closed: Vec::new(),
            readers_opening: Vec::new(),
            readers_paused: Vec::new(),
            readers_closed: Vec::new(),
            resolutions: Vec::new(),
            leaves,
        }
    }

    /// Adds a subscriber. `operation` decides the group, `topic` the trigger.
    pub(super) fn subscribe(
        &mut self,
        outlet: &Arc<ScriptedOutlet>,
        member: Subscriber,
        topic: &str,
        operation: u128,
        generation: u64,
    ) -> SubscribeReply {
        self.subscribe_to(outlet, member, self.operation(topic, operation, generation))
    }

    pub(super) fn subscribe_to(
        &mut self,
        outlet: &Arc<ScriptedOutlet>,
        member: Subscriber,
        operation: LiveOperation,
    ) -> SubscribeReply {
        self.resume(outlet, member, operation, None)
    }

    /// Adds a subscriber with a cursor.
    pub(super) fn resume(
        &mut self,
        outlet: &Arc<ScriptedOutlet>,
        member: Subscriber,
        operation: LiveOperation,
        resume: Option<Resume>,
    ) -> SubscribeReply {
        let (pending, reply) = self.pending_subscriber(outlet, member, operation, resume);
        self.shard.subscribe(pending);
        self.take_effects();
        reply
    }

    /// Returns a subscriber, and the reply to it.
    pub(super) fn pending_subscriber(
        &self,
        outlet: &Arc<ScriptedOutlet>,
        member: Subscriber,
        operation: LiveOperation,
        resume: Option<Resume>,
    ) -> (PendingSubscriber, SubscribeReply) {
        let (sender, reply) = oneshot::channel();
        let pending = PendingSubscriber {
            resume,
            operation,
            outlet: Arc::clone(outlet) as Arc<dyn Outlet>,
            member,
            transport: TransportId::new(0),
            slot: SubscriptionSlot::acquire(&self.stats, usize::MAX).unwrap(),
            reply: sender,
            spans: None,
        };
        (pending, reply)
    }

    /// Returns an operation as [`Stage::subscribe`] makes it.
    pub(super) fn operation(&self, topic: &str, operation: u128, generation: u64) -> LiveOperation {
        LiveOperation {
            bound_to: Box::default(),
            generation,
            source: Source::new(Arc::clone(&self.provider), vec![topic.into()]),
            field: "Subscription.field".into(),
            group: GroupKey {
                operation_id: operation,
                variables: Arc::default(),
                partition: Box::default(),
            },
            filter: None,
            resolve: Arc::new(ByHand::default()),
        }
    }

    /// Returns the operation for a field with a current state.
    pub(super) fn with_state(operation: LiveOperation) -> LiveOperation {
        let takes_batches = operation.resolve.takes_batches();
        let resolve = ByHand { has_state: true, takes_batches, ..ByHand::default() };
        LiveOperation { resolve: Arc::new(resolve), ..operation }
    }

    /// Returns the operation with batches.
    pub(super) fn with_batches(operation: LiveOperation) -> LiveOperation {
        let has_state = operation.resolve.has_state();
        let resolve = ByHand { has_state, takes_batches: true, ..ByHand::default() };
        LiveOperation { resolve: Arc::new(resolve), ..operation }
    }

    /// Returns the operation with events that need a slow subgraph.
    pub(super) fn with_slow_subgraph(operation: LiveOperation) -> LiveOperation {
        let resolve = ByHand { needs_slow_subgraph: true, ..ByHand::default() };
        LiveOperation { resolve: Arc::new(resolve), ..operation }
    }

    /// Opens the stream of the oldest trigger that waits.
    pub(super) fn open(&mut self) -> TriggerId {
        let trigger = self.opening.remove(0);
        self.shard.on_opened(trigger, Ok(()));
        self.take_effects();
        trigger
    }

    pub(super) fn refuse_to_open(&mut self, error: SourceError) {
        let trigger = self.opening.remove(0);
        assert!(!self.shard.on_opened(trigger, Err(error)));
        self.take_effects();
    }

    pub(super) fn event(&mut self, trigger: TriggerId, payload: &str) {
        let event = Event::new("topic", payload.to_owned());
        self.message(trigger, SourceMessage::Event(event.into()));
    }

    pub(super) fn message(&mut self, trigger: TriggerId, message: SourceMessage) {
        self.shard.on_source_message(trigger, Some(message));
        self.take_effects();
    }

    /// Opens the stream of the oldest side reader that waits, or fails it.
    pub(super) fn open_reader(
        &mut self,
        result: Result<(), SourceError>,
    ) -> (TriggerId, u64, bool) {
        let (trigger, stream_id, _) = self.readers_opening.remove(0);
        let is_wanted = self.shard.on_reader_opened(trigger, stream_id, result);
        self.take_effects();
        (trigger, stream_id, is_wanted)
    }

    /// Handles a message of a side reader's stream as the task does.
    pub(super) fn read(
        &mut self,
        trigger: TriggerId,
        stream_id: u64,
        message: SourceMessage,
    ) -> ReaderStep {
        let reading = self.shard.on_reader_message(trigger, stream_id, Some(message));
        if reading == ReaderStep::Pause {
            self.readers_paused.push((trigger, stream_id));
        }
        self.take_effects();
        reading
    }

    /// Replaces the graph. Returns the groups without a renewal.
    pub(super) fn advance(
        &mut self,
        generation: u64,
        renewals: Vec<OperationUpdate>,
    ) -> Operations {
        let left = self.shard.advance(generation, renewals);
        self.take_effects();
        left
    }

    /// Completes the resolution at `index`.
    pub(super) fn resolve(&mut self, index: usize) {
        let Resolution { group, ticket, event, others, .. } = self.resolutions.remove(index);
        let outcome = match &others[..] {
            [] => ResolutionOutcome::Payload(payload(&event)),
            others => ResolutionOutcome::Batch(
                std::iter::once(&event).chain(others).map(payload).collect(),
            ),
        };
        self.shard.on_resolved(group, ticket, outcome);
        self.take_effects();
    }

    /// Completes the resolution at `index` with a payload.
    pub(super) fn resolve_with(&mut self, index: usize, payload: Payload) {
        let Resolution { group, ticket, .. } = self.resolutions.remove(index);
        self.shard.on_resolved(group, ticket, ResolutionOutcome::Payload(payload));
        self.take_effects();
    }

    /// Completes the state at `index` without a payload.
    pub(super) fn resolve_to_nothing(&mut self, index: usize) {
        let Resolution { group, ticket, event, .. } = self.resolutions.remove(index);
        assert_eq!(event, STATE, "only a state may have no payload");
        self.shard.on_resolved(group, ticket, ResolutionOutcome::Nothing);
        self.take_effects();
    }

    pub(super) fn resolve_all(&mut self) {
        while !self.resolutions.is_empty() {
            self.resolve(0);
        }
    }

    /// Drops a subscription and reports that to the shard.
    pub(super) fn leave(&mut self, subscription: Subscription) {
        drop(subscription);
        self.process_leaves();
    }

    pub(super) fn process_leaves(&mut self) {
        while let Ok((group, outlet, member)) = self.leaves.try_recv() {
            self.shard.remove_subscriber(group, outlet, member);
        }
        self.take_effects();
    }

    pub(super) fn take_effects(&mut self) {
        for effect in self.shard.take_effects() {
            match effect {
                Effect::Open { trigger, is_move, .. } => {
                    self.opening.push(trigger);
                    self.opened_for_move.extend(is_move.then_some(trigger));
                }
                Effect::Close { trigger } => {
                    self.opening.retain(|it| *it != trigger);
                    assert!(!self.closed.contains(&trigger), "a trigger closes once");
                    self.closed.push(trigger);
                }
                Effect::OpenReader { trigger, stream_id, wanted, .. } => {
                    self.readers_opening.push((trigger, stream_id, wanted.start));
                }
                Effect::ResumeReader { trigger, stream_id } => {
                    self.readers_paused.retain(|it| *it != (trigger, stream_id));
                }
                Effect::CloseReader { trigger, stream_id } => {
                    self.readers_opening.retain(|it| (it.0, it.1) != (trigger, stream_id));
                    self.readers_closed.push((trigger, stream_id));
                }
                Effect::Resolve { group, ticket, work, resolve: _, abort } => {
                    let payload = |event: &TriggerEvent| event.event.payload.clone();
                    let known = match &work {
                        ResolutionWork::State { known, .. } => known.clone(),
                        ResolutionWork::Event(_) | ResolutionWork::Batch(_) => None,
                    };
                    let mut events = match work {
                        ResolutionWork::Event(event) => vec![payload(&event)],
                        ResolutionWork::Batch(events) => events.iter().map(payload).collect(),
                        ResolutionWork::State { .. } => {
                            vec![Bytes::from_static(STATE.as_bytes())]
                        }
                    };
                    let others = events.split_off(1);
                    let event = events.remove(0);
                    let resolution = Resolution { group, ticket, event, others, known, abort };
                    self.resolutions.push(resolution);
                }
            }
        }
        // Effects that a task would no longer report.
        let (live, aborted) = std::mem::take(&mut self.resolutions)
            .into_iter()
            .partition(|it| self.shard.groups.contains(it.group));
        self.resolutions = live;
        let aborted: Vec<Resolution> = aborted;
        assert!(
            aborted.into_iter().all(Resolution::was_aborted),
            "the resolutions of removed groups are aborted"
        );
    }
}

pub(super) fn member(number: u64) -> Subscriber {
    Subscriber { connection: number, operation: 1 }
}
