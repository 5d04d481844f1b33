//! One group: its subscribers, and the window of events between source and subscribers.
//!
//! Events go through three stages. They wait (bounded: if one more comes, a group of a stored source falls behind, and
//! any other drops the oldest event), are in flight (bounded, and resolved in any order), and are released, strictly in
//! order of arrival. Dropped events are counted with the next event that follows, so that the received and the
//! announced events are all events.
//!
//! The result of a stored event is held back, and all later results with it, while an outlet would drop it
//! ([`crate::Outlet::accepts_result`]). Meanwhile no further resolution starts, so later events wait, and the
//! group falls behind and reads the rest from its broker (see [`super::catch_up`]).
//!
//! When there is room in flight again, all events that wait are resolved as one batch, if the operation takes batches.
//! An event that finds room never waits for others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use events::Position;
use execute::{Missed, Payload, Revision};
use futures_util::future::{AbortHandle, AbortRegistration};

use super::concurrency_limit::Yielding;
use super::group_phase::GroupPhase;
use super::outlets::{OutletPlace, Outlets, SubscriberCounts};
use super::resolution::ResolutionWork;
use super::scheduler::{QueueEntry, QueuePlace};
use super::trigger_id::TriggerId;
use crate::cursor::{Cursors, EventCursor, Resume, Scope};
use crate::event_spans::EventSpans;
use crate::operation::OperationByKey;
use crate::settings::BATCH_BYTES_MAX;
use crate::stats::{self, HubStats};
use crate::{
    EndReason, GroupId, GroupSpans, GroupView, LiveOperation, OutletCommand, TriggerEvent,
};

/// The start of one resolution.
pub(super) struct StartedResolution {
    pub(super) ticket: u64,
    pub(super) work: ResolutionWork,
    /// Aborts the resolution when its result is no longer needed.
    pub(super) abort: AbortRegistration,
}

/// An event that is offered to a group.
pub(super) struct OfferedEvent {
    pub(super) event: TriggerEvent,
    /// The number of the event among those of the trigger; 0 if it did not come from the trigger.
    pub(super) number: u64,
    /// Its position, if the source provides one.
    pub(super) cursor: Option<Arc<EventCursor>>,
    /// True if it can be read again, so that an outlet must not drop it.
    pub(super) is_stored: bool,
    /// Its trace, if it has one.
    pub(super) spans: Option<Arc<EventSpans>>,
}

/// The position of an event, and the scope of its cursor.
type ScopedCursor = Option<(Arc<EventCursor>, Scope)>;

pub(super) struct QueuedEvent {
    /// The event. `None` for the current state.
    event: Option<TriggerEvent>,
    number: u64,
    cursor: ScopedCursor,
    before: Missed,
    is_stored: bool,
    spans: Option<Arc<EventSpans>>,
}

struct EventInFlight {
    number: u64,
    cursor: ScopedCursor,
    before: Missed,
    is_stored: bool,
    state: ResolutionState,
    /// True if it is the first event of its resolution, which has its ticket.
    is_first: bool,
    /// The kind of its resolution, if it was started as one that gives way to others ([`Group::next_yielding`]).
    yielding: Option<Yielding>,
    spans: Option<Arc<GroupSpans>>,
}

impl EventInFlight {
    /// True if it has a result that no outlet may drop: that of a stored event, or one of a sequence of patches.
    fn must_keep_result(&self) -> bool {
        match &self.state {
            ResolutionState::Done(Some(payload)) => self.is_stored || payload.revision.is_some(),
            _ => false,
        }
    }
}

enum ResolutionState {
    Resolving(AbortHandle),
    /// It is resolved in the same batch as the event before it.
    InBatch,
    /// It is resolved. `None` if there is nothing to deliver.
    Done(Option<Payload>),
}

/// The operation and the cursor of subscribers that resume.
pub(super) type CursorKey = (OperationByKey, Resume);

/// Subscribers with equal operation, variables and partition, and the events on their way to them.
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) trigger: TriggerId,
    pub(super) phase: GroupPhase,
    /// The operation that resolves events from now on.
    pub(super) operation: Arc<LiveOperation>,
    /// The scope of its cursors. `None` if its payloads have no cursors.
    pub(super) scope: Option<Scope>,
    /// The event number from which on the group has had all events in order. It may have had some earlier events out of
    /// order: streams interleave their partitions in any order.
    pub(super) in_order_from: u64,
    /// Set while its subscribers have yet to get the current state: the position that the events after the state
    /// follow, as far as it was known when the subscribers came, and the version of that position.
    pub(super) state_after: Option<Box<(Position, u64)>>,
    /// The key by which subscribers with the same cursor find it, until it delivers its first event.
    pub(super) cursor_key: Option<Box<CursorKey>>,
    pub(super) members: SubscriberCounts,
    pub(super) waiting: VecDeque<QueuedEvent>,
    in_flight: VecDeque<EventInFlight>,
    /// The number of resolutions of the events in flight.
    resolutions: usize,
    /// The size of the last payload in bytes.
    payload_bytes: usize,
    /// The ticket of the first event in flight.
    first_ticket: u64,
    /// The version of the trigger's position that the latest cursor of all subscribers has; 0 if it is another
    /// position, or not all subscribers have a cursor.
    pub(super) sent_version: u64,
    /// The state that its subscribers have, if the source has states ([`bindings::Source::has_states`]).
    last_state: Option<Revision>,
    /// The losses since the last event that was accepted.
    missed: Missed,
    /// Its place among the groups that may start, if it has one.
    pub(super) queue_place: Option<QueuePlace>,
    /// True if it is in the shard's list of groups with results that an outlet does not accept at present.
    pub(super) is_held_back: bool,
}

/// The outcome of releasing the results of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Released {
    /// True if at least one event has left the group.
    pub(super) any: bool,
    /// True if the next result stays because an outlet would drop it.
    pub(super) is_held_back: bool,
}

impl Group {
    pub(super) fn new(
        id: GroupId,
        trigger: TriggerId,
        operation: Arc<LiveOperation>,
        scope: Option<Scope>,
    ) -> Self {
        Self {
            id,
            scope,
            in_order_from: 0,
            state_after: None,
            cursor_key: None,
            trigger,
            phase: GroupPhase::Live,
            operation,
            members: SubscriberCounts::default(),
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            resolutions: 0,
            payload_bytes: 0,
            first_ticket: 0,
            sent_version: 0,
            last_state: None,
            missed: Missed::default(),
            queue_place: None,
            is_held_back: false,
        }
    }

    /// Changes the scope of the cursors in later payloads.
    pub(super) fn change_scope(&mut self, scope: Option<Scope>) {
        if self.scope != scope {
            // The cursors that its subscribers have are no longer valid.
            self.sent_version = 0;
            self.scope = scope;
        }
    }

    /// Moves the group to another trigger, with its operation there. Events may have been missed in between.
    pub(super) fn move_to(
        &mut self,
        trigger: TriggerId,
        operation: Arc<LiveOperation>,
        scope: Option<Scope>,
    ) {
        self.trigger = trigger;
        self.operation = operation;
        self.scope = scope;
        self.phase = GroupPhase::Live;
        // The number counts events of the trigger that the group left.
        self.in_order_from = 0;
        // The first state of another source covers what was missed.
        if !self.operation.source.has_states() {
            self.record_gap();
        }
        // Its subscribers have cursors of the trigger that the group left.
        self.sent_version = 0;
    }

    /// Adds a subscriber. It gets the results that are released from now on.
    pub(super) fn add_subscriber(&mut self, outlet: OutletPlace) {
        self.members.add(outlet);
    }

    /// Removes a subscriber. Returns false if there is none behind that outlet.
    pub(super) fn remove_subscriber(&mut self, outlet: OutletPlace) -> bool {
        self.members.remove(outlet)
    }

    /// Removes all subscribers and sends the reason to each outlet. Returns the number of subscribers.
    pub(super) fn end(&mut self, reason: &EndReason, outlets: &mut Outlets) -> u64 {
        let members = std::mem::take(&mut self.members);
        let mut ended = 0;
        for (outlet, count) in members.by_outlet() {
            let end = OutletCommand::End { group: self.id, reason: reason.clone() };
            outlets.send(outlet, end);
            outlets.remove_subscribers(outlet, count);
            ended += count;
        }
        ended
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Removes all subscribers without a command, for [`Group::add_members`] of another group.
    pub(super) fn take_members(&mut self) -> SubscriberCounts {
        std::mem::take(&mut self.members)
    }

    /// Adds the subscribers of another group.
    pub(super) fn add_members(&mut self, members: &SubscriberCounts) {
        self.members.add_all(members);
    }

    /// Returns the number of the first event that was not delivered yet, or `next` if there is none. `None` if an event
    /// before it was dropped, or if the next delivery is not an event of the trigger.
    pub(super) fn next_undelivered(&self, next: u64) -> Option<u64> {
        let first = match (self.in_flight.front(), self.waiting.front()) {
            (Some(EventInFlight { number, before, .. }), _) => Some((*number, before)),
            (None, first) => first.map(|it| (it.number, &it.before)),
        };
        let (number, before) = first.unwrap_or((next, &self.missed));
        (number > 0 && *before == Missed::default()).then_some(number)
    }

    /// Queues the current state, which is delivered before all events. The group is new. `spans` is the trace of the
    /// state, if it has one.
    pub(super) fn offer_state(
        &mut self,
        after: Position,
        version: u64,
        is_stored: bool,
        spans: Option<Arc<EventSpans>>,
    ) {
        debug_assert!(self.first_ticket == 0 && self.is_drained(), "a state comes first");
        self.state_after = Some(Box::new((after, version)));
        let before = Missed::default();
        self.waiting.push_back(QueuedEvent {
            event: None,
            number: 0,
            cursor: None,
            before,
            is_stored,
            spans,
        });
    }

    /// True if the ticket is that of the current state.
    pub(super) fn is_state(&self, ticket: u64) -> bool {
        self.state_after.is_some() && ticket == 0
    }

    /// Sets the position of the current state, before the state is released.
    pub(super) fn set_state_cursor(&mut self, cursor: Arc<EventCursor>) {
        if let (Some(first), Some(scope)) = (self.in_flight.front_mut(), self.scope) {
            first.cursor = Some((cursor, scope));
        }
    }

    /// Appends an event to those that wait. The caller calls [`Group::drop_oldest`] after starting resolutions.
    pub(super) fn offer(&mut self, offered: OfferedEvent) {
        let before = std::mem::take(&mut self.missed);
        let OfferedEvent { event, number, cursor, is_stored, spans } = offered;
        let (event, cursor) = (Some(event), cursor.zip(self.scope));
        self.waiting.push_back(QueuedEvent { event, number, cursor, before, is_stored, spans });
    }

    /// The number of current states that wait: none or one, before all events.
    fn waiting_states(&self) -> usize {
        usize::from(self.waiting.front().is_some_and(|it| it.event.is_none()))
    }

    /// True if more than `most` events wait.
    pub(super) fn is_behind(&self, most: usize) -> bool {
        self.waiting.len() > most + self.waiting_states()
    }

    /// Drops the oldest events beyond `most` and remembers how many. Returns how many.
    pub(super) fn drop_oldest(&mut self, most: usize) -> usize {
        // A state is not an event: it stays, and the dropped events are missing after it.
        let kept = self.waiting_states();
        let excess = self.waiting.len().saturating_sub(most + kept);
        let mut missed = Missed::default();
        for dropped in self.waiting.drain(kept..kept + excess) {
            // The latest state is read in any case.
            let lost = u64::from(!self.operation.source.has_states());
            missed = missed.and(dropped.before).and(Missed { lost, gap: false });
            if let Some(spans) = dropped.spans {
                spans.note_dropped(&self.operation);
            }
        }
        match self.waiting.get_mut(kept) {
            Some(next) => next.before = next.before.and(missed),
            None => self.missed = self.missed.and(missed),
        }
        excess
    }

    /// Records that the source may have lost events here.
    pub(super) fn record_gap(&mut self) {
        self.missed.gap = true;
    }

    pub(super) fn can_start(&self, window: usize) -> bool {
        // Each reads the latest state, so an earlier one must not end after a later one.
        let window = if self.operation.source.has_states() { 1 } else { window };
        // Further results would be held back too.
        !self.waiting.is_empty() && self.resolutions < window && !self.is_held_back
    }

    /// Returns the kind of the next resolution if it gives way to those of other groups.
    pub(super) fn next_yielding(&self) -> Option<Yielding> {
        let next = self.waiting.front()?;
        if self.operation.resolve.needs_slow_subgraph() {
            return Some(Yielding::SlowSubgraph);
        }
        if next.event.is_none() {
            return Some(Yielding::State);
        }
        // A group that has fallen behind gives way to none: its subscribers were there before. With half of the permits
        // it would fall behind further.
        let is_resumed = self.phase == GroupPhase::CatchingUp { was_live: false };
        is_resumed.then_some(Yielding::Resumed)
    }

    /// True if the entry is that of its place among the groups that may start. False if the entry is void.
    pub(super) fn has_place(&self, entry: QueueEntry) -> bool {
        self.queue_place.is_some_and(|place| place.number == entry.number)
    }

    /// Starts the next event if the window has room, together with the following ones, `most` events in all.
    /// `yielding` is noted with it.
    pub(super) fn start(
        &mut self,
        window: usize,
        most: usize,
        yielding: Option<Yielding>,
    ) -> Option<StartedResolution> {
        if !self.can_start(window) {
            return None;
        }
        let first = self.waiting.pop_front()?;
        let ticket = self.first_ticket + self.in_flight.len() as u64;
        let (handle, abort) = AbortHandle::new_pair();
        let event = self.put_in_flight(first, ResolutionState::Resolving(handle));
        if let Some(started) = self.in_flight.back_mut() {
            started.yielding = yielding;
        }
        self.resolutions += 1;
        let work = match event {
            None => {
                let spans = self.in_flight.back().and_then(|it| it.spans.clone());
                ResolutionWork::State { known: None, spans }
            }
            // The event says that there is another state. The one before it has been delivered, see `can_start`.
            Some(_) if self.operation.source.has_states() => {
                ResolutionWork::State { known: self.last_state.clone(), spans: None }
            }
            Some(event) if most > 1 && !self.waiting.is_empty() => self.batch(event, most),
            Some(event) => ResolutionWork::Event(event),
        };
        Some(StartedResolution { ticket, work, abort })
    }

    /// Moves an event that waited to those in flight. Returns it with its spans; `None` for the current state.
    fn put_in_flight(
        &mut self,
        queued: QueuedEvent,
        state: ResolutionState,
    ) -> Option<TriggerEvent> {
        let QueuedEvent { event, number, cursor, before, is_stored, spans } = queued;
        let spans = spans.and_then(|it| it.begin_group(&self.operation));
        let is_first = matches!(state, ResolutionState::Resolving(_));
        self.in_flight.push_back(EventInFlight {
            number,
            cursor,
            before,
            is_stored,
            state,
            is_first,
            yielding: None,
            spans: spans.clone(),
        });
        event.map(|event| TriggerEvent { spans, ..event })
    }

    /// Returns the work of `first`, which is in flight, and the events that wait behind it.
    fn batch(&mut self, first: TriggerEvent, most: usize) -> ResolutionWork {
        let cost = |event: &TriggerEvent| event.event.payload.len().max(self.payload_bytes);
        let mut bytes = cost(&first);
        let fits = |waiting: &&QueuedEvent| {
            bytes += waiting.event.as_ref().map_or(usize::MAX / 2, cost);
            bytes <= BATCH_BYTES_MAX
        };
        let more = self.waiting.iter().take(most - 1).take_while(fits).count();
        if more == 0 {
            return ResolutionWork::Event(first);
        }
        let mut events = Vec::with_capacity(more + 1);
        events.push(first);
        for _ in 0..more {
            let Some(queued) = self.waiting.pop_front() else { break };
            events.extend(self.put_in_flight(queued, ResolutionState::InBatch));
        }
        for spans in events.iter().filter_map(|event| event.spans.as_ref()) {
            spans.note_batch(events.len());
        }
        ResolutionWork::Batch(events)
    }

    /// Returns the number of events that the resolution with that ticket resolves.
    pub(super) fn events_of(&self, ticket: u64) -> usize {
        let Some(index) = self.index_of(ticket) else { return 0 };
        let others = self.in_flight.iter().skip(index + 1);
        1 + others.take_while(|it| matches!(it.state, ResolutionState::InBatch)).count()
    }

    /// Returns the number of resolutions of each kind that give way, for the resolution with that ticket.
    pub(super) fn yielding_of(&self, ticket: u64) -> [usize; Yielding::COUNT] {
        let event = self.index_of(ticket).map(|index| &self.in_flight[index]);
        count_kinds(event.into_iter().filter_map(|it| it.yielding))
    }

    fn index_of(&self, ticket: u64) -> Option<usize> {
        let index = usize::try_from(ticket.checked_sub(self.first_ticket)?).ok()?;
        (index < self.in_flight.len()).then_some(index)
    }

    /// Stores the result of a resolution. [`Group::release`] must be called next. `others` are the payloads behind the
    /// first of a batch.
    pub(super) fn store_result(
        &mut self,
        ticket: u64,
        payload: Option<Payload>,
        others: Vec<Payload>,
    ) {
        let Some(index) = self.index_of(ticket) else {
            debug_assert!(false, "each ticket is done once");
            return;
        };
        debug_assert_eq!(others.len() + 1, self.events_of(ticket), "one payload for each event");
        let payloads = std::iter::once(payload).chain(others.into_iter().map(Some));
        for (entry, payload) in self.in_flight.iter_mut().skip(index).zip(payloads) {
            entry.state = ResolutionState::Done(payload);
        }
    }

    /// Delivers the results that are in order, up to the first one of a stored event that an outlet would drop. `time`
    /// is that of the delivery, if events have traces.
    pub(super) fn release(
        &mut self,
        outlets: &Outlets,
        cursors: Option<&Cursors>,
        stats: &HubStats,
        time: Option<Instant>,
    ) -> Released {
        let mut released = Released { any: false, is_held_back: false };
        loop {
            let first = self.in_flight.front();
            let must_keep = first.is_some_and(EventInFlight::must_keep_result);
            if must_keep && !outlets.accept_result(self.id, &self.members) {
                released.is_held_back = true;
                break;
            }
            let is_done =
                |first: &mut EventInFlight| matches!(first.state, ResolutionState::Done(_));
            let Some(EventInFlight {
                cursor,
                before,
                is_stored,
                state: ResolutionState::Done(payload),
                is_first,
                spans,
                ..
            }) = self.in_flight.pop_front_if(is_done)
            else {
                break;
            };
            self.first_ticket += 1;
            self.resolutions -= usize::from(is_first);
            released.any = true;
            let Some(mut payload) = payload else { continue };
            self.payload_bytes = payload.bytes.len();
            let is_stored = is_stored || payload.revision.is_some();
            if self.operation.source.has_states() && !self.replace_last_state(&mut payload) {
                continue;
            }
            self.sent_version =
                cursor.as_ref().map_or(self.sent_version, |(cursor, _)| cursor.version);
            let payload = match (cursor, cursors) {
                (Some((cursor, scope)), Some(cursors)) => {
                    cursor.with_cursor(cursors, scope, |text| {
                        // The cursor is added before the losses, which then come first in the payload, where clients
                        // look for them.
                        text.map(|text| payload.with_extension("cursor", text)).unwrap_or(payload)
                    })
                }
                _ => payload,
            };
            if let Some((spans, time)) = spans.as_ref().zip(time) {
                spans.note_errors(payload.errors);
                spans.begin_broadcast(time, self.members.count());
            }
            self.deliver((payload.with_missed(before), spans), is_stored, outlets, stats);
        }
        self.give_room_back();
        released
    }

    /// Keeps the state that the subscribers have after this payload. Returns false if they have it already.
    fn replace_last_state(&mut self, payload: &mut Payload) -> bool {
        let state = payload.take_revision().unwrap_or_else(|| Revision {
            number: 0,
            state: 0,
            complete: payload.bytes.clone(),
        });
        if self.last_state.as_ref().is_some_and(|last| last.complete == state.complete) {
            return false;
        }
        self.last_state = Some(state);
        true
    }

    /// True if the next event in order is resolved.
    #[cfg(test)]
    pub(super) fn has_result(&self) -> bool {
        self.in_flight.front().is_some_and(|it| matches!(it.state, ResolutionState::Done(_)))
    }

    /// Frees the memory of its queues if they are empty: of a hundred thousand groups, few have events at a time.
    fn give_room_back(&mut self) {
        if self.is_drained() {
            (self.waiting, self.in_flight) = Default::default();
        }
    }

    // hot path: once per group and event, then once per outlet.
    fn deliver(
        &self,
        (payload, spans): (Payload, Option<Arc<GroupSpans>>),
        is_stored: bool,
        outlets: &Outlets,
        stats: &HubStats,
    ) {
        let (group, mut members) = (self.id, 0);
        for (outlet, count) in self.members.by_outlet() {
            let (payload, spans) = (payload.clone(), spans.clone());
            outlets.send(outlet, OutletCommand::Deliver { group, payload, is_stored, spans });
            members += count;
        }
        stats::add(&stats.broadcasts, self.members.by_outlet().len());
        stats::add(&stats.deliveries, members as usize);
    }

    /// Sends a position to all subscribers.
    pub(super) fn send_position(&self, cursor: &Bytes, outlets: &Outlets, stats: &HubStats) {
        let mut members = 0;
        for (outlet, count) in self.members.by_outlet() {
            let position = OutletCommand::Position { group: self.id, cursor: cursor.clone() };
            outlets.send(outlet, position);
            members += count;
        }
        stats::add(&stats.positions, members as usize);
    }

    /// True if the subscribers of both groups have the same state, so that the same patch can follow. Always true for
    /// sources without states.
    pub(super) fn has_same_state(&self, other: &Self) -> bool {
        match (&self.last_state, &other.last_state) {
            (Some(one), Some(other)) => {
                one.number == other.number && one.complete == other.complete
            }
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// True if its subscribers have yet to learn of a loss, with the next event.
    pub(super) fn has_unannounced_loss(&self) -> bool {
        self.missed != Missed::default()
    }

    /// Returns the number of resolutions that run for the group.
    pub(super) fn resolving(&self) -> usize {
        let is_resolving = |it: &&EventInFlight| matches!(it.state, ResolutionState::Resolving(_));
        self.in_flight.iter().filter(is_resolving).count()
    }

    /// Returns the number of them of each kind that give way to others.
    pub(super) fn resolving_of_kinds(&self) -> [usize; Yielding::COUNT] {
        let is_resolving = |it: &&EventInFlight| matches!(it.state, ResolutionState::Resolving(_));
        count_kinds(self.in_flight.iter().filter(is_resolving).filter_map(|it| it.yielding))
    }

    /// Returns the number of events that are being resolved.
    pub(super) fn events_resolving(&self) -> usize {
        let is_done = |it: &&EventInFlight| matches!(it.state, ResolutionState::Done(_));
        self.in_flight.len() - self.in_flight.iter().filter(is_done).count()
    }

    /// True if the group has had everything up to the position of its trigger.
    pub(super) fn is_at_trigger_position(&self) -> bool {
        // A group that waits for another source resumes from that.
        self.is_drained() && !self.has_unannounced_loss() && self.phase == GroupPhase::Live
    }

    /// True if no event waits or is in flight.
    pub(super) fn is_drained(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
    }

    /// Returns the number of events that wait behind those in flight.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn view(&self) -> GroupView {
        GroupView {
            id: self.id,
            generation: self.operation.generation,
            operation_id: self.operation.group.operation_id,
            operation_name: self.operation.resolve.operation_name().map(Into::into),
            field: Arc::clone(&self.operation.field),
            filtered: self.operation.filter.is_some(),
            members: self.members.count(),
            outlets: self.members.by_outlet().len() as u64,
            transports: self.members.by_transport(),
            in_flight: self.in_flight.len() as u64,
            waiting: self.waiting.len() as u64,
        }
    }
}

impl Drop for Group {
    /// Aborts the resolutions of the group, since no subscriber needs their results.
    fn drop(&mut self) {
        for entry in &self.in_flight {
            if let ResolutionState::Resolving(handle) = &entry.state {
                handle.abort();
            }
        }
    }
}

/// Counts the resolutions of each kind.
fn count_kinds(kinds: impl Iterator<Item = Yielding>) -> [usize; Yielding::COUNT] {
    let mut counts = [0; Yielding::COUNT];
    kinds.for_each(|kind| counts[kind as usize] += 1);
    counts
}
