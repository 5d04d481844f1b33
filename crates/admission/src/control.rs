//! The decisions: which request begins, waits or is refused.

use std::collections::VecDeque;
use std::time::Duration;

use crate::UNITS;
use crate::adaptive_limit::{AdaptiveLimit, LimitBounds};
use crate::busy_bound::BusyBound;
use crate::class::Class;
use crate::clients::ClientTable;
use crate::decision::{Decision, Event, Outcome, Refusal, RefusalReason, Ticket};
use crate::lane::{Lane, OPERATIONS_BEFORE_STREAM, OPERATIONS_BESIDE_STREAM, stream_bound};
use crate::operations::OperationTable;
use crate::pressure::Pressures;
use crate::ramp::Ramp;
use crate::request::Request;
use crate::room::Room;
use crate::waiting_queue::{QueueSettings, Waiter, WaiterId, WaitingQueue};

/// The part of the limit by which it is exceeded, by at least one average operation, for clients that have far less in
/// flight than their share.
const FAIR_HEADROOM: f64 = 0.1;

/// The settings of [`AdmissionControl`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct AdmissionSettings {
    /// The bounds of the limit.
    pub limit: LimitBounds,
    /// The queues of each class.
    pub queue: QueueSettings,
    /// The time within which the limit grows to its whole, from [`AdmissionControl::begin_ramp`] on. Zero: the limit
    /// is always the whole.
    pub ramp: Duration,
}

/// The load as the control knows it, for metrics.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// The limit, in units of work.
    pub limit: u64,
    /// The work in flight that counts in the limit, in units.
    pub in_flight: u64,
    /// The work in flight that does not count, because it waits for subgraphs that hang.
    pub uncounted: u64,
    /// The requests in flight of each class, in the order of [`Class::ALL`].
    pub requests: [u64; 3],
    /// The waiting requests of each class.
    pub waiting: [u64; 3],
    /// The clients with work in flight or waiting.
    pub clients: usize,
    /// How much longer operations take than without load: 1 for no longer.
    pub slow_down: f64,
}

/// How busy the processors are.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ProcessorLoad {
    /// True if they have time to spare, so that the router itself makes nothing slow.
    pub has_spare: bool,
    /// The part of their time for which they were busy since the last measurement; `None` if that is not known.
    pub busy_part: Option<f64>,
}

/// The requests that open no stream since the last one of a class that does.
#[derive(Clone, Copy, Default, Debug)]
struct OperationsSinceStream {
    of_class: u32,
    of_all_classes: u32,
}

/// Overload protection as a state machine. All times are durations since any fixed point, and must not go back.
#[derive(Debug)]
pub struct AdmissionControl {
    limit: AdaptiveLimit,
    /// The bound for greedy clients while the processors are busy.
    busy_bound: BusyBound,
    ramp: Ramp,
    /// The share of the limit that may be used now, and the units that may be used in any case.
    share: f64,
    units_min: u64,
    operations: OperationTable,
    clients: ClientTable,
    queues: [WaitingQueue; Lane::COUNT],
    in_flight: u64,
    /// The units of work in flight that do not count in the limit.
    uncounted: u64,
    /// The units of work in flight that were admitted beyond the limit, for clients with far less than their share.
    beyond: u64,
    /// The units of work in flight that opens streams.
    opening_streams: u64,
    /// The units of work in flight of each class.
    by_class: [u64; 3],
    requests: [u64; 3],
    operations_since_stream: [OperationsSinceStream; 3],
    pressures: Pressures,
    events: VecDeque<Event>,
}

impl AdmissionControl {
    /// Creates a control without work.
    pub fn new(settings: AdmissionSettings) -> Self {
        let ramp = Ramp::new(settings.ramp);
        Self {
            limit: AdaptiveLimit::new(settings.limit),
            busy_bound: BusyBound::default(),
            share: ramp.share(Duration::ZERO),
            ramp,
            units_min: u64::from(settings.limit.min) * u64::from(UNITS),
            operations: OperationTable::new(),
            clients: ClientTable::new(),
            queues: Lane::ALL.map(|lane| WaitingQueue::new(lane, lane.queue(settings.queue))),
            in_flight: 0,
            uncounted: 0,
            beyond: 0,
            opening_streams: 0,
            by_class: [0; 3],
            requests: [0; 3],
            operations_since_stream: [OperationsSinceStream::default(); 3],
            pressures: Pressures::default(),
            events: VecDeque::new(),
        }
    }

    /// Begins the ramp: until now a tenth of the limit may be used, and it grows from now on.
    pub fn begin_ramp(&mut self, now: Duration) {
        self.ramp.begin(now);
        self.advance_ramp(now);
    }

    /// Notes how busy the processors are. To be called once a second. Without this, the control takes them for busy and
    /// does not know how busy they are.
    pub fn set_processor_load(&mut self, load: ProcessorLoad, now: Duration) {
        self.limit.set_spare_processors(load.has_spare);
        self.busy_bound.adapt(load.busy_part, self.limit(), now);
    }

    /// Notes that other work with a bound of its own makes operations slow now and for a second: handshakes at their
    /// pace. Meanwhile the limit is not lowered below what was in flight before.
    pub fn note_other_work(&mut self, now: Duration) {
        self.limit.note_other_work(now);
    }

    /// True if work waits, or so much is in flight that operations must have become slower: there is no room for other
    /// work.
    pub fn is_pressed(&self) -> bool {
        let has_waiting = self.queues.iter().any(|queue| queue.len() > 0);
        has_waiting || self.limit.is_pressed(self.counted().saturating_sub(self.opening_streams))
    }

    /// Notes the units of work in flight that do not count in the limit: those that wait for subgraphs that hang
    /// ([`Bulkhead::waiting_in_vain`](crate::Bulkhead::waiting_in_vain)). Waiting requests notice when the next work
    /// ends.
    pub fn set_uncounted(&mut self, units: u64) {
        self.uncounted = units;
    }

    /// Notes that the work in flight has changed.
    fn note_in_flight(&mut self, now: Duration) {
        self.limit.set_in_flight(self.counted(), now);
        self.busy_bound.set_in_flight(self.counted(), now);
    }

    /// Returns the units of work in flight that count in the limit.
    fn counted(&self) -> u64 {
        self.in_flight.saturating_sub(self.uncounted)
    }

    /// Notes the time for the ramp. Requests and the end of work do so, too.
    pub fn advance_ramp(&mut self, now: Duration) {
        // hot path: one comparison once the ramp is over
        if self.share < 1.0 {
            self.share = self.ramp.share(now);
        }
    }

    /// Tells whether a request is to wait until the processor that would work on it has nothing else to do: the
    /// processors are busy, and its client has more than its share beside other clients. Returns the key for
    /// [`AdmissionControl::end_giving_way`], which is to be called before the request is decided on. Until then, later
    /// requests of the client give way as well.
    pub fn begin_giving_way(&mut self, request: &Request) -> Option<u64> {
        if self.limit.has_spare_processors()
            || request.opens_stream
            || request.class == Class::Critical
        {
            return None;
        }
        let key = self.clients.key_of(request.client);
        let (weight, _) = self.operations.look_up(request.operation);
        let shared = self.counted().saturating_sub(self.opening_streams);
        let gives_way = self.clients.gives_way(key, weight, shared, self.limit());
        gives_way.then(|| {
            self.clients.add_giving_way(key);
            key
        })
    }

    /// Notes that a request does not give way any more: it is decided on now, or its client has gone.
    pub fn end_giving_way(&mut self, key: u64) {
        self.clients.remove_giving_way(key);
    }

    /// Decides about a request with a client that waits until `deadline` at most. `random` is any random number.
    // hot path: below 1 µs with `finish`; `benches/admission.rs`
    pub fn request(
        &mut self,
        request: Request,
        deadline: Duration,
        now: Duration,
        random: u64,
    ) -> Decision {
        self.advance_ramp(now);
        let (weight, opens_stream) = match self.operations.look_up(request.operation) {
            // The cost of a handshake is not counted, and that of an unknown operation is much more.
            (weight, _) if request.opens_stream => (weight.min(UNITS), true),
            known => known,
        };
        let key = self.clients.key_of(request.client);
        let class = request.class;
        let lane = Lane::of(class, opens_stream);
        // Shares do not change while the limit is lowered for a measurement.
        let limit = self.limit();
        let units = u64::from(weight);
        // While the ramp bounds the work, the latency says nothing about the limit.
        let is_ramp_over = self.share >= 1.0;
        let room = self.room(lane);
        // Streams count in no share.
        let shared = self.counted().saturating_sub(self.opening_streams);
        if !room.fits_greedy(weight) && self.clients.is_greedy(key, weight, shared, limit) {
            // With less in flight, the bound of busy processors was reached, which says nothing about the limit.
            if is_ramp_over && self.counted() + units > room.spare {
                self.limit.note_spare_reached();
            }
            return Decision::Refused(self.refuse(lane, RefusalReason::ClientShare, now, random));
        }
        let is_queued = self.queues[lane.index()].len() > 0
            || (!lane.has_streams() && self.is_stream_overdue(class));
        if !is_queued && room.fits(weight) {
            return Decision::Admitted(self.admit(request, lane, key, weight, now));
        }
        if is_ramp_over {
            // Sheddable requests are refused before the limit is reached. Then it need not grow.
            match class == Class::Sheddable && self.counted() + units <= limit {
                true => self.limit.note_spare_reached(),
                false => self.limit.note_reached(),
            }
        }
        let headroom = ((limit as f64 * FAIR_HEADROOM) as u64).max(UNITS.into());
        if lane.has_whole_limit()
            && self.clients.is_far_below_share(key, units, limit)
            && self.beyond + units <= headroom
        {
            self.beyond += units;
            let ticket = self.admit(request, lane, key, weight, now);
            return Decision::Admitted(Ticket { is_beyond: true, ..ticket });
        }
        if self.clients.is_far_above_share(key, shared, limit) {
            return Decision::Refused(self.refuse(lane, RefusalReason::ClientShare, now, random));
        }
        let queued = Request { client: key, ..request };
        match self.queues[lane.index()].push(queued, weight, deadline, now) {
            None => Decision::Refused(self.refuse(lane, RefusalReason::QueueFull, now, random)),
            Some((id, until, dropped)) => {
                self.clients.add_waiting(key, lane.has_streams());
                if let Some(dropped) = dropped {
                    self.drop_waiter(&dropped, RefusalReason::QueueFull, now, random);
                }
                if is_queued && room.fits(weight) {
                    // A heavy request at the head waits for more room, and this one may pass it.
                    self.admit_waiting(now, random);
                }
                Decision::Waiting(id, until)
            }
        }
    }

    /// Ends admitted work.
    pub fn finish(&mut self, ticket: Ticket, outcome: Outcome, now: Duration, random: u64) {
        self.advance_ramp(now);
        let Ticket { request, client_key, weight, admitted_at, is_beyond, is_stream } = ticket;
        let (class, weight) = (request.class.index(), u64::from(weight));
        if is_beyond {
            self.beyond -= weight;
        }
        if is_stream {
            self.opening_streams -= weight;
        }
        self.clients.remove_in_flight(client_key, weight, is_stream);
        self.in_flight -= weight;
        self.by_class[class] -= weight;
        self.requests[class] -= 1;
        self.note_in_flight(now);
        let latency = now.saturating_sub(admitted_at).as_secs_f64();
        match outcome {
            Outcome::Completed { cost } => {
                self.operations.count_cost(request.operation, cost);
                self.count_latency(request.operation, latency, now);
            }
            Outcome::Unmeasured { cost } => self.operations.count_cost(request.operation, cost),
            Outcome::Opened { cost } => {
                self.operations.count_cost(request.operation, cost);
                self.operations.note_stream(request.operation);
            }
            Outcome::Shared => {}
            Outcome::Failed { cost } => {
                self.operations.count_cost(request.operation, cost);
                // An operation with errors in all responses needs a baseline as well.
                match self.operations.baseline(request.operation) {
                    None => self.count_latency(request.operation, latency, now),
                    Some(_) => self.count_long_latency(request.operation, latency, now),
                }
            }
            Outcome::Abandoned { cost } => {
                self.operations.count_partial_cost(request.operation, cost);
                self.count_long_latency(request.operation, latency, now);
            }
        }
        self.admit_waiting(now, random);
    }

    /// Ends the wait of a request: its time is over, or its client has gone. Returns the refusal of a request that
    /// waited until now; `None` if there has been a decision. A request behind it may fit.
    pub fn leave(&mut self, id: WaiterId, now: Duration, random: u64) -> Option<Refusal> {
        let waiter = self.queues[id.lane().index()].remove(id, now)?;
        self.clients.remove_waiting(waiter.request.client, id.lane().has_streams());
        let refusal = self.refuse(id.lane(), RefusalReason::WaitedTooLong, now, random);
        self.admit_waiting(now, random);
        Some(refusal)
    }

    /// Returns the next decision about a waiting request. To be called until there is none after each
    /// [`AdmissionControl::request`], [`AdmissionControl::finish`] and [`AdmissionControl::leave`].
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the load now.
    pub fn load(&self) -> Load {
        Load {
            limit: self.limit(),
            in_flight: self.counted(),
            uncounted: self.in_flight - self.counted(),
            requests: self.requests,
            waiting: Class::ALL.map(|class| self.waiting(class)),
            clients: self.clients.active(),
            slow_down: self.limit.slow_down(),
        }
    }

    /// Returns the limit in units of work, without the effect of a measurement that lowers it for a moment.
    pub fn limit(&self) -> u64 {
        self.with_ramp((self.limit.operations() * f64::from(UNITS)) as u64)
    }

    /// Returns the part of a limit that may be used now.
    fn with_ramp(&self, units: u64) -> u64 {
        if self.share >= 1.0 {
            return units;
        }
        ((units as f64 * self.share).round() as u64).max(self.units_min).min(units)
    }

    /// Returns the number of waiting requests of a class.
    fn waiting(&self, class: Class) -> u64 {
        let queues = self.queues.iter().zip(Lane::ALL).filter(|(_, lane)| lane.class() == class);
        queues.map(|(queue, _)| queue.len() as u64).sum()
    }

    fn room(&self, lane: Lane) -> Room {
        let class = lane.class();
        let (limit, spare) = (self.with_ramp(self.limit.units()), self.spare_units());
        let is_bounded = lane.has_streams() && !self.is_turn_of_streams(class);
        let stream_bound = is_bounded.then(|| {
            // Requests that wait come before streams.
            let is_behind = self.queues[Lane::of(class, false).index()].len() > 0;
            if is_behind { 0 } else { stream_bound(class, limit, spare) }
        });
        let greedy = self.busy_bound.units().map_or(spare, |it| spare.min(it.max(self.units_min)));
        let (own, total) = (self.by_class[class.index()], self.counted());
        Room { class, own, total, limit, spare, greedy, stream_bound }
    }

    /// True if a stream of a class has waited for so many other requests of the class that it has their next room.
    fn is_stream_overdue(&self, class: Class) -> bool {
        let stream = Lane::of(class, true);
        // hot path: nothing waits most of the time
        stream.has_streams()
            && self.queues[stream.index()].len() > 0
            && self.operations_since_stream[class.index()].of_class
                >= OPERATIONS_BEFORE_STREAM + OPERATIONS_BESIDE_STREAM
    }

    /// True if one stream of a class may use as much as other requests of the class. Those that wait come first until
    /// enough of them were admitted: where other classes leave this one little room, many of theirs pass for each one.
    fn is_turn_of_streams(&self, class: Class) -> bool {
        let since = self.operations_since_stream[class.index()];
        since.of_class >= OPERATIONS_BEFORE_STREAM
            || (since.of_all_classes >= OPERATIONS_BEFORE_STREAM
                && self.queues[Lane::of(class, false).index()].len() == 0)
    }

    /// Returns the units of work in flight up to which greedy clients and sheddable requests are admitted.
    fn spare_units(&self) -> u64 {
        self.with_ramp(self.limit.spare_units()).max(self.units_min)
    }

    fn admit(
        &mut self,
        request: Request,
        lane: Lane,
        key: u64,
        weight: u32,
        now: Duration,
    ) -> Ticket {
        let (class, units) = (request.class.index(), u64::from(weight));
        self.in_flight += units;
        self.by_class[class] += units;
        self.requests[class] += 1;
        self.note_in_flight(now);
        self.pressures.count_admitted(lane, now);
        let is_stream = lane.has_streams();
        self.clients.add_in_flight(key, units, is_stream);
        if is_stream {
            self.opening_streams += units;
            self.operations_since_stream[class] = OperationsSinceStream::default();
        } else {
            for since in &mut self.operations_since_stream {
                since.of_all_classes = since.of_all_classes.saturating_add(1);
            }
            let since = &mut self.operations_since_stream[class];
            since.of_class = since.of_class.saturating_add(1);
        }
        Ticket { request, client_key: key, weight, admitted_at: now, is_beyond: false, is_stream }
    }

    /// Admits waiting requests while they fit, the most important class first, and of a class those first that open no
    /// stream, unless it is the turn of a stream. Requests that have waited too long are refused.
    fn admit_waiting(&mut self, now: Duration, random: u64) {
        for class in Class::ALL {
            while self.admit_next(class, now, random) {}
        }
    }

    /// Takes the next request of a class out of its queue. Returns false if none may leave.
    fn admit_next(&mut self, class: Class, now: Duration, random: u64) -> bool {
        let [first, second] = [false, true].map(|it| Lane::of(class, it));
        if !second.has_streams() {
            return self.pop_waiting(first, now, random);
        }
        match self.is_turn_of_streams(class) {
            true => {
                self.pop_waiting(second, now, random)
                    || (!self.is_stream_overdue(class) && self.pop_waiting(first, now, random))
            }
            false => self.pop_waiting(first, now, random) || self.pop_waiting(second, now, random),
        }
    }

    /// Takes the next request of a lane out of its queue. Admits it, or refuses it if it has waited too long. Returns
    /// false if none may leave.
    fn pop_waiting(&mut self, lane: Lane, now: Duration, random: u64) -> bool {
        // hot path: nothing waits most of the time
        if self.queues[lane.index()].len() == 0 {
            return false;
        }
        let room = self.room(lane);
        let may_leave = |it: &Waiter| it.deadline < now || room.fits(it.weight);
        let Some(waiter) = self.queues[lane.index()].pop(may_leave, now) else { return false };
        if waiter.deadline < now {
            self.drop_waiter(&waiter, RefusalReason::WaitedTooLong, now, random);
            return true;
        }
        let key = waiter.request.client;
        let ticket = self.admit(waiter.request, lane, key, waiter.weight, now);
        self.clients.remove_waiting(key, lane.has_streams());
        let waited = now.saturating_sub(waiter.entered);
        self.events.push_back(Event::Admitted(waiter.id, ticket, waited));
        true
    }

    fn drop_waiter(&mut self, waiter: &Waiter, reason: RefusalReason, now: Duration, random: u64) {
        let lane = waiter.id.lane();
        self.clients.remove_waiting(waiter.request.client, lane.has_streams());
        let refusal = self.refuse(lane, reason, now, random);
        self.events.push_back(Event::Refused(waiter.id, refusal));
    }

    fn refuse(&mut self, lane: Lane, reason: RefusalReason, now: Duration, random: u64) -> Refusal {
        let retry_after_seconds = match reason {
            RefusalReason::ClientShare => self.pressures.refuse_client(now, random),
            RefusalReason::QueueFull | RefusalReason::WaitedTooLong => {
                self.pressures.refuse(lane, now, random)
            }
        };
        Refusal { reason, retry_after_seconds, opens_stream: lane.has_streams() }
    }

    /// Counts a latency that is longer than usual.
    fn count_long_latency(&mut self, operation: u64, latency: f64, now: Duration) {
        let usual = self.operations.baseline(operation);
        if usual.is_some_and(|usual| latency > usual) {
            self.count_latency(operation, latency, now);
        }
    }

    fn count_latency(&mut self, operation: u64, latency: f64, now: Duration) {
        let baseline = self.operations.baseline(operation);
        self.operations.count_latency(operation, latency);
        // The first executions of an operation cannot be compared.
        let Some(baseline) = baseline else { return };
        let ended = self.limit.count_latency(latency, baseline, now);
        if let Some(slow_down) = ended {
            self.operations.end_window(slow_down);
        }
    }
}
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod tests;
