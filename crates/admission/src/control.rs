//! The decisions: which request begins, waits or is refused.

use std::collections::VecDeque;
use std::time::Duration;

use crate::UNITS;
use crate::adaptive_limit::{AdaptiveLimit, LimitBounds};
use crate::class::{Class, is_within_floor};
use crate::clients::ClientTable;
use crate::lane::{Lane, OPERATIONS_BEFORE_STREAM, OPERATIONS_BESIDE_STREAM, stream_bound};
use crate::operations::OperationTable;
use crate::pressure::Pressures;
use crate::ramp::Ramp;
use crate::request::Request;
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

/// The right to work. It is given back by [`AdmissionControl::finish`].
#[derive(Debug)]
#[must_use = "work that is not finished stays in flight"]
pub struct Ticket {
    request: Request,
    client_key: u64,
    weight: u32,
    admitted_at: Duration,
    /// True if the work was admitted beyond the limit, because its client has far less than its share.
    is_beyond: bool,
    /// True if the work was admitted as the opening of a stream.
    is_stream: bool,
}

impl Ticket {
    /// Returns the request that was admitted.
    pub fn request(&self) -> Request {
        self.request
    }

    /// Returns the weight of the work, in [units](crate::UNITS).
    pub fn weight(&self) -> u32 {
        self.weight
    }
}

/// The end of admitted work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The work was done. Its latency and its cost are representative.
    Completed {
        /// The cost, in any unit that is the same for all work.
        cost: u64,
    },
    /// The work was done, and its latency says nothing about load, such as that of a cached response.
    Unmeasured {
        /// The cost, in the unit of [`Outcome::Completed`].
        cost: u64,
    },
    /// A stream was opened: the operation is known to do so from then on. The latency says nothing about load.
    Opened {
        /// The cost, in the unit of [`Outcome::Completed`].
        cost: u64,
    },
    /// Other work in flight has done this work: the latency is a part of that of the other, and the cost is next to
    /// nothing.
    Shared,
    /// The work was done, and has failed or its response has errors. Its latency counts only if it was longer than
    /// usual: many failures are quick, and those that took all of their time are the clearest sign of load.
    Failed {
        /// The cost, in the unit of [`Outcome::Completed`].
        cost: u64,
    },
    /// The work was given up. Its latency and its cost may be those of a part, so that each counts only if it is more
    /// than usual.
    Abandoned {
        /// The cost until then, in the unit of [`Outcome::Completed`].
        cost: u64,
    },
}

/// The decision about a request.
#[derive(Debug)]
pub enum Decision {
    /// The work may begin.
    Admitted(Ticket),
    /// The request waits. An [`Event`] decides, or at this time [`AdmissionControl::leave`] must be called.
    Waiting(WaiterId, Duration),
    /// The request is refused.
    Refused(Refusal),
}

/// The refusal of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
    /// The whole seconds after which the client should try again.
    pub retry_after_seconds: u64,
    /// True if the request was refused as one that opens a stream. Critical requests are not told apart.
    pub opens_stream: bool,
}

/// The reason of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RefusalReason {
    /// The queue has no room.
    QueueFull,
    /// The request has waited for as long as it may.
    WaitedTooLong,
    /// The client has far more work in flight than its share.
    ClientShare,
}

impl RefusalReason {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::QueueFull, Self::WaitedTooLong, Self::ClientShare];

    /// The position of the reason in [`RefusalReason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name of the reason, for labels of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::WaitedTooLong => "waited_too_long",
            Self::ClientShare => "client_share",
        }
    }
}

/// A later decision about a waiting request.
#[derive(Debug)]
pub enum Event {
    /// The work may begin, after this wait.
    Admitted(WaiterId, Ticket, Duration),
    /// The request is refused.
    Refused(WaiterId, Refusal),
}

/// The load as the control knows it, for metrics.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// The limit, in units of work.
    pub limit: u64,
    /// The work in flight, in units.
    pub in_flight: u64,
    /// The requests in flight of each class, in the order of [`Class::ALL`].
    pub requests: [u64; 3],
    /// The waiting requests of each class.
    pub waiting: [u64; 3],
    /// The clients with work in flight or waiting.
    pub clients: usize,
    /// How much longer operations take than without load: 1 for no longer.
    pub slow_down: f64,
}

/// The room for requests of a lane: the units of work in flight of the class and of all, the limit, and the spare
/// share of it.
#[derive(Clone, Copy)]
struct Room {
    class: Class,
    own: u64,
    total: u64,
    limit: u64,
    spare: u64,
    /// The units of work in flight up to which requests are admitted that open streams; `None` for other requests.
    stream_bound: Option<u64>,
}

impl Room {
    fn fits(self, weight: u32) -> bool {
        let Self { class, own, total, limit, spare, stream_bound } = self;
        let weight = u64::from(weight);
        let fits = match stream_bound {
            Some(bound) => total + weight <= bound,
            None => class.fits(weight, own, total, limit, spare),
        };
        // A request that is heavier than the whole limit runs alone.
        total == 0 || fits
    }

    /// True if a request fits although its client is greedy.
    fn fits_spare(self, weight: u64) -> bool {
        let Self { class, own, total, limit, spare, .. } = self;
        class == Class::Critical || total + weight <= spare || is_within_floor(weight, own, limit)
    }
}

/// Overload protection as a state machine. All times are durations since any fixed point, and must not go back.
#[derive(Debug)]
pub struct AdmissionControl {
    limit: AdaptiveLimit,
    ramp: Ramp,
    /// The share of the limit that may be used now, and the units that may be used in any case.
    share: f64,
    units_min: u64,
    operations: OperationTable,
    clients: ClientTable,
    queues: [WaitingQueue; Lane::COUNT],
    in_flight: u64,
    /// The units of work in flight that were admitted beyond the limit, for clients with far less than their share.
    beyond: u64,
    /// The units of work in flight that opens streams.
    opening_streams: u64,
    /// The units of work in flight of each class.
    by_class: [u64; 3],
    requests: [u64; 3],
    /// The number of requests that open no stream since the last one of each class that does.
    operations_since_stream: [u32; 3],
    pressures: Pressures,
    events: VecDeque<Event>,
}

impl AdmissionControl {
    /// Creates a control without work.
    pub fn new(settings: AdmissionSettings) -> Self {
        let ramp = Ramp::new(settings.ramp);
        Self {
            limit: AdaptiveLimit::new(settings.limit),
            share: ramp.share(Duration::ZERO),
            ramp,
            units_min: u64::from(settings.limit.min) * u64::from(UNITS),
            operations: OperationTable::new(),
            clients: ClientTable::new(),
            queues: Lane::ALL.map(|lane| WaitingQueue::new(lane, lane.queue(settings.queue))),
            in_flight: 0,
            beyond: 0,
            opening_streams: 0,
            by_class: [0; 3],
            requests: [0; 3],
            operations_since_stream: [0; 3],
            pressures: Pressures::default(),
            events: VecDeque::new(),
        }
    }

    /// Begins the ramp: until now a tenth of the limit may be used, and it grows from now on.
    pub fn begin_ramp(&mut self, now: Duration) {
        self.ramp.begin(now);
        self.advance_ramp(now);
    }

    /// Notes whether the processors have time to spare, so that the router itself makes nothing slow. Without this, the
    /// control takes them for busy.
    pub fn set_spare_processors(&mut self, has_spare: bool) {
        self.limit.set_spare_processors(has_spare);
    }

    /// Notes the time for the ramp. Requests and the end of work do so, too.
    pub fn advance_ramp(&mut self, now: Duration) {
        // hot path: one comparison once the ramp is over
        if self.share < 1.0 {
            self.share = self.ramp.share(now);
        }
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
        let weight = match self.operations.weight(request.operation) {
            // The cost of a handshake is not counted, and that of an unknown operation is much more.
            weight if request.opens_stream => weight.min(UNITS),
            weight => weight,
        };
        let key = self.clients.key_of(request.client);
        let class = request.class;
        let opens_stream = request.opens_stream || self.operations.opens_stream(request.operation);
        let lane = Lane::of(class, opens_stream);
        // Shares do not change while the limit is lowered for a measurement.
        let limit = self.limit();
        let units = u64::from(weight);
        // While the ramp bounds the work, the latency says nothing about the limit.
        let is_ramp_over = self.share >= 1.0;
        let room = self.room(lane);
        // Streams have a part of the limit of their own, so that they count in no share of it.
        let shared = self.in_flight - self.opening_streams;
        if !room.fits_spare(units) && self.clients.is_greedy(key, weight, shared, limit) {
            if is_ramp_over {
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
            match class == Class::Sheddable && self.in_flight + units <= limit {
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
                self.clients.add_waiting(key);
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
        self.clients.remove_in_flight(client_key, if is_stream { 0 } else { weight });
        self.in_flight -= weight;
        self.by_class[class] -= weight;
        self.requests[class] -= 1;
        self.limit.set_in_flight(self.in_flight, now);
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
        self.clients.remove_waiting(waiter.request.client);
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
            limit: self.with_ramp(self.limit.units()),
            in_flight: self.in_flight,
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
        let (own, total) = (self.by_class[class.index()], self.in_flight);
        Room { class, own, total, limit, spare, stream_bound }
    }

    /// True if a stream of a class has waited for so many other requests that it has the next room.
    fn is_stream_overdue(&self, class: Class) -> bool {
        let stream = Lane::of(class, true);
        // hot path: nothing waits most of the time
        stream.has_streams()
            && self.queues[stream.index()].len() > 0
            && self.operations_since_stream[class.index()]
                >= OPERATIONS_BEFORE_STREAM + OPERATIONS_BESIDE_STREAM
    }

    /// True if one stream of a class may use as much as other requests of the class.
    fn is_turn_of_streams(&self, class: Class) -> bool {
        self.operations_since_stream[class.index()] >= OPERATIONS_BEFORE_STREAM
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
        self.limit.set_in_flight(self.in_flight, now);
        self.pressures.count_admitted(lane, now);
        let is_stream = lane.has_streams();
        self.clients.add_in_flight(key, if is_stream { 0 } else { units });
        if is_stream {
            self.opening_streams += units;
            self.operations_since_stream[class] = 0;
        } else {
            for count in &mut self.operations_since_stream {
                *count = count.saturating_add(1);
            }
        }
        Ticket { request, client_key: key, weight, admitted_at: now, is_beyond: false, is_stream }
    }

    /// Admits waiting requests while they fit, the most important class first, and of a class those first that open no
    /// stream. Requests that have waited too long are refused.
    fn admit_waiting(&mut self, now: Duration, random: u64) {
        for class in Class::ALL {
            while self.admit_next(class, now, random) {}
        }
    }

    /// Takes the next request of a class out of its queue. Returns false if none may leave.
    fn admit_next(&mut self, class: Class, now: Duration, random: u64) -> bool {
        let [first, second] = [false, true].map(|it| Lane::of(class, it));
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
        self.clients.remove_waiting(key);
        let waited = now.saturating_sub(waiter.entered);
        self.events.push_back(Event::Admitted(waiter.id, ticket, waited));
        true
    }

    fn drop_waiter(&mut self, waiter: &Waiter, reason: RefusalReason, now: Duration, random: u64) {
        self.clients.remove_waiting(waiter.request.client);
        let refusal = self.refuse(waiter.id.lane(), reason, now, random);
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
mod tests {
    use super::*;

    fn control(limit: u32, waiting_max: u32) -> AdmissionControl {
        AdmissionControl::new(AdmissionSettings {
            limit: LimitBounds { initial: limit, min: limit, max: limit },
            queue: QueueSettings { waiting_max, ..QueueSettings::default() },
            ramp: Duration::ZERO,
        })
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn request(control: &mut AdmissionControl, client: u64, class: Class, millis: u64) -> Decision {
        let request = Request { client, operation: 1, class, ..Request::default() };
        control.request(request, Duration::MAX, at(millis), 0)
    }

    fn admitted(decision: Decision) -> Ticket {
        match decision {
            Decision::Admitted(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }

    fn finish(control: &mut AdmissionControl, ticket: Ticket, millis: u64) {
        control.finish(ticket, Outcome::Completed { cost: 100 }, at(millis), 0);
    }

    #[test]
    fn work_waits_at_the_limit_and_begins_when_other_work_ends() {
        let mut control = control(2, 10);
        let first = admitted(request(&mut control, 1, Class::Normal, 0));
        let _second = admitted(request(&mut control, 1, Class::Normal, 0));
        let Decision::Waiting(id, until) = request(&mut control, 1, Class::Normal, 1) else {
            panic!("it waits")
        };
        assert_eq!(until, at(51));
        assert!(control.poll_event().is_none());
        finish(&mut control, first, 20);
        match control.poll_event() {
            Some(Event::Admitted(admitted, _, waited)) => {
                assert_eq!((admitted, waited), (id, at(19)));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(control.leave(id, at(21), 0), None, "it waits no longer");
        assert_eq!(control.load().in_flight, 2000);
    }

    /// Admits requests while there is room, and returns their number.
    fn fill(control: &mut AdmissionControl, millis: u64) -> usize {
        let room = || match request(control, 1, Class::Normal, millis) {
            Decision::Admitted(ticket) => Some(ticket),
            Decision::Waiting(..) | Decision::Refused(_) => None,
        };
        let tickets: Vec<_> = std::iter::from_fn(room).collect();
        let count = tickets.len();
        for ticket in tickets {
            control.finish(ticket, Outcome::Abandoned { cost: 0 }, at(millis), 0);
        }
        count
    }

    #[test]
    fn the_limit_grows_with_the_ramp_from_a_tenth_to_the_whole() {
        let mut control = AdmissionControl::new(AdmissionSettings {
            limit: LimitBounds { initial: 100, min: 1, max: 100 },
            queue: QueueSettings { waiting_max: 0, ..QueueSettings::default() },
            ramp: at(9_000),
        });
        assert_eq!(fill(&mut control, 50_000), 10, "it has not begun");
        control.begin_ramp(at(60_000));
        for (millis, expected) in [(60_000, 10), (63_000, 40), (66_000, 70), (69_000, 100)] {
            assert_eq!(fill(&mut control, millis), expected, "{millis}");
        }
        assert_eq!(control.load().limit, 100_000);
    }

    #[test]
    fn the_ramp_leaves_the_lowest_limit() {
        let mut control = AdmissionControl::new(AdmissionSettings {
            limit: LimitBounds { initial: 100, min: 32, max: 100 },
            queue: QueueSettings { waiting_max: 0, ..QueueSettings::default() },
            ramp: at(9_000),
        });
        assert_eq!(fill(&mut control, 0), 32);
    }

    #[test]
    fn a_request_that_waits_for_too_long_is_refused() {
        let mut control = control(1, 1);
        let ticket = admitted(request(&mut control, 1, Class::Normal, 0));
        let Decision::Waiting(id, _) = request(&mut control, 1, Class::Normal, 0) else {
            panic!("it waits")
        };
        let Decision::Refused(refusal) = request(&mut control, 1, Class::Normal, 0) else {
            panic!("the queue is full")
        };
        assert_eq!(refusal.reason, RefusalReason::QueueFull);
        // The work ends after the time of the request is over.
        finish(&mut control, ticket, 200);
        match control.poll_event() {
            Some(Event::Refused(refused, refusal)) => {
                assert_eq!((refused, refusal.reason), (id, RefusalReason::WaitedTooLong));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(control.load().waiting, [0; 3]);
        assert_eq!(control.load().clients, 0);
    }

    #[test]
    fn critical_requests_pass_work_of_other_classes() {
        let mut control = control(10, 10);
        let mut tickets = Vec::new();
        while let Decision::Admitted(ticket) = request(&mut control, 1, Class::Normal, 0) {
            tickets.push(ticket);
        }
        assert_eq!(tickets.len(), 10);
        for _ in 0..10 {
            tickets.push(admitted(request(&mut control, 1, Class::Critical, 0)));
        }
        assert!(matches!(request(&mut control, 1, Class::Critical, 0), Decision::Waiting(..)));
        // The place of normal work does not go to other normal work while the limit is exceeded.
        finish(&mut control, tickets.remove(0), 1);
        assert!(control.poll_event().is_none());
    }

    #[test]
    fn a_client_far_below_its_share_is_admitted_at_the_limit_and_one_far_above_is_refused() {
        let mut control = control(20, 10);
        let mut tickets: Vec<_> =
            (0..20).map(|_| admitted(request(&mut control, 1, Class::Normal, 0))).collect();
        assert!(matches!(request(&mut control, 1, Class::Normal, 0), Decision::Waiting(..)));
        let quiet = admitted(request(&mut control, 2, Class::Normal, 0));
        let Decision::Refused(refusal) = request(&mut control, 1, Class::Normal, 0) else {
            panic!("the other client has work")
        };
        assert_eq!(refusal.reason, RefusalReason::ClientShare);
        tickets.push(admitted(request(&mut control, 2, Class::Normal, 0)));
        assert!(
            matches!(request(&mut control, 2, Class::Normal, 0), Decision::Waiting(..)),
            "such work is a tenth of the limit at most"
        );
        finish(&mut control, quiet, 1);
    }

    /// Asks for an operation of one client at the start.
    fn ask_for(control: &mut AdmissionControl, operation: u64) -> Decision {
        let request = Request { client: 1, operation, ..Request::default() };
        control.request(request, Duration::MAX, at(0), 0)
    }

    /// Teaches the control that operation 7 opens a stream. It costs as much as the usual one.
    fn learn_subscription(control: &mut AdmissionControl) {
        for (operation, outcome) in
            [(1, Outcome::Completed { cost: 100 }), (7, Outcome::Opened { cost: 100 })]
        {
            let ticket = admitted(ask_for(control, operation));
            control.finish(ticket, outcome, at(0), 0);
        }
    }

    #[test]
    fn new_streams_leave_a_part_of_the_limit_to_other_requests() {
        let mut control = control(20, 10);
        learn_subscription(&mut control);
        let mut tickets: Vec<_> = (0..17).map(|_| admitted(ask_for(&mut control, 7))).collect();
        assert!(matches!(ask_for(&mut control, 7), Decision::Waiting(..)));
        let handshake = Request { client: 1, opens_stream: true, ..Request::default() };
        let decision = control.request(handshake, Duration::MAX, at(0), 0);
        assert!(matches!(decision, Decision::Waiting(..)), "{decision:?}");
        // Streams count in no share: the queries of the client are less than half of its share, so two exceed the
        // limit.
        tickets.extend((0..5).map(|_| admitted(ask_for(&mut control, 1))));
        assert!(matches!(ask_for(&mut control, 1), Decision::Waiting(..)));
    }

    #[test]
    fn a_heavy_stream_does_not_starve_behind_light_queries() {
        let mut control = control(20, 1000);
        learn_subscription(&mut control);
        let heavy = admitted(ask_for(&mut control, 8));
        control.finish(heavy, Outcome::Opened { cost: 500 }, at(0), 0);
        let fill = || match ask_for(&mut control, 1) {
            Decision::Admitted(ticket) => Some(ticket),
            _ => None,
        };
        let mut running: VecDeque<_> = std::iter::from_fn(fill).collect();
        let stream = waiting(ask_for(&mut control, 8));
        let mut queries = 0;
        loop {
            // One ends, and another one arrives.
            let ended = running.pop_front().expect("some are in flight");
            control.finish(ended, Outcome::Unmeasured { cost: 100 }, at(0), 0);
            match ask_for(&mut control, 1) {
                Decision::Admitted(ticket) => running.push_back(ticket),
                Decision::Waiting(..) => {}
                Decision::Refused(refusal) => panic!("{refusal:?}"),
            }
            let mut is_opened = false;
            while let Some(Event::Admitted(id, ticket, _)) = control.poll_event() {
                is_opened |= id == stream;
                running.push_back(ticket);
            }
            if is_opened {
                break;
            }
            queries += 1;
            assert!(queries < 100, "the stream starves");
        }
    }

    #[test]
    fn critical_subscriptions_use_the_whole_limit() {
        let mut control = control(20, 10);
        learn_subscription(&mut control);
        let critical = Request { operation: 7, class: Class::Critical, ..Request::default() };
        let _tickets: Vec<_> =
            (0..20).map(|_| admitted(control.request(critical, Duration::MAX, at(0), 0))).collect();
        let decision = control.request(critical, Duration::MAX, at(0), 0);
        assert!(matches!(decision, Decision::Waiting(..)), "{decision:?}");
    }

    fn waiting(decision: Decision) -> WaiterId {
        match decision {
            Decision::Waiting(id, _) => id,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the request that is admitted after its wait.
    fn admitted_next(control: &mut AdmissionControl) -> (WaiterId, Ticket) {
        match control.poll_event() {
            Some(Event::Admitted(id, ticket, _)) => (id, ticket),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_query_that_waits_comes_before_a_subscription_that_waited_longer() {
        let mut control = control(1, 10);
        learn_subscription(&mut control);
        let first = admitted(ask_for(&mut control, 1));
        let subscription = waiting(ask_for(&mut control, 7));
        let query = waiting(ask_for(&mut control, 1));
        finish(&mut control, first, 1);
        let (id, ticket) = admitted_next(&mut control);
        assert_eq!(id, query);
        assert!(control.poll_event().is_none());
        finish(&mut control, ticket, 2);
        let (id, _ticket) = admitted_next(&mut control);
        assert_eq!(id, subscription);
    }

    #[test]
    fn subscriptions_do_not_starve_behind_queries() {
        let mut control = control(1, 10);
        learn_subscription(&mut control);
        let mut running = admitted(ask_for(&mut control, 1));
        let subscription = waiting(ask_for(&mut control, 7));
        let mut queries = 0;
        loop {
            waiting(ask_for(&mut control, 1));
            control.finish(running, Outcome::Unmeasured { cost: 100 }, at(0), 0);
            let (id, ticket) = admitted_next(&mut control);
            if id == subscription {
                break;
            }
            running = ticket;
            queries += 1;
        }
        // Three were admitted before it came.
        assert_eq!(queries, OPERATIONS_BEFORE_STREAM - 3);
    }

    #[test]
    fn the_refusals_of_a_greedy_client_do_not_make_others_wait_for_longer() {
        let mut control = control(20, 0);
        let mut tickets: Vec<_> =
            (0..20).map(|_| admitted(request(&mut control, 1, Class::Normal, 0))).collect();
        tickets.push(admitted(request(&mut control, 2, Class::Normal, 0)));
        let refused = |control: &mut AdmissionControl, client| {
            let request = Request { client, operation: 1, ..Request::default() };
            match control.request(request, Duration::MAX, at(0), 59) {
                Decision::Refused(refusal) => refusal,
                other => panic!("{other:?}"),
            }
        };
        let of_greedy = (0..1000).map(|_| refused(&mut control, 1)).last();
        let of_greedy = of_greedy.expect("it was refused");
        assert_eq!(of_greedy.reason, RefusalReason::ClientShare);
        assert_eq!(of_greedy.retry_after_seconds, 30);
        tickets.push(admitted(request(&mut control, 2, Class::Normal, 0)));
        let of_other = refused(&mut control, 2);
        assert_eq!(of_other.reason, RefusalReason::QueueFull);
        assert_eq!(of_other.retry_after_seconds, 2);
    }

    /// Teaches the control a heavy operation, 2, beside the usual one.
    fn learn_heavy_operation(control: &mut AdmissionControl) {
        for (operation, cost) in [(1, 100), (2, 10_000)].repeat(2000) {
            let request = Request { client: 1, operation, ..Request::default() };
            let ticket = admitted(control.request(request, Duration::MAX, at(0), 0));
            control.finish(ticket, Outcome::Completed { cost }, at(1), 0);
        }
    }

    fn ask(control: &mut AdmissionControl, client: u64, operation: u64) -> Decision {
        let request = Request { client, operation, ..Request::default() };
        control.request(request, Duration::MAX, at(2), 0)
    }

    #[test]
    fn requests_that_fit_do_not_wait_behind_a_heavy_one_of_another_client() {
        let mut control = control(10, 10);
        learn_heavy_operation(&mut control);
        let mut heavy: Vec<_> = (0..5).map(|_| admitted(ask(&mut control, 1, 2))).collect();
        assert!(matches!(ask(&mut control, 1, 2), Decision::Waiting(..)));
        // A tenth of the limit is for clients far below their share.
        let _light: Vec<_> = (0..10).map(|_| admitted(ask(&mut control, 3, 1))).collect();
        let Decision::Waiting(light, _) = ask(&mut control, 2, 1) else { panic!("it waits") };
        let ticket = heavy.remove(0);
        control.finish(ticket, Outcome::Unmeasured { cost: 10_000 }, at(3), 0);
        match control.poll_event() {
            Some(Event::Admitted(id, ..)) => assert_eq!(id, light),
            other => panic!("{other:?}"),
        }
        assert!(control.poll_event().is_none(), "there is no room for the heavy one");
    }

    #[test]
    fn a_request_that_leaves_makes_room_for_the_one_behind_it() {
        let mut control = control(11, 10);
        learn_heavy_operation(&mut control);
        let _heavy: Vec<_> = (0..5).map(|_| admitted(ask(&mut control, 1, 2))).collect();
        let Decision::Waiting(heavy, _) = ask(&mut control, 1, 2) else { panic!("it waits") };
        let Decision::Waiting(light, _) = ask(&mut control, 1, 1) else { panic!("it waits") };
        assert!(control.leave(heavy, at(3), 0).is_some());
        match control.poll_event() {
            Some(Event::Admitted(id, ..)) => assert_eq!(id, light),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn shared_work_changes_neither_the_cost_nor_the_latency_of_an_operation() {
        let mut control = control(100, 10);
        let mut run = |outcome, millis: u64| {
            let ticket = admitted(ask(&mut control, 1, 1));
            control.finish(ticket, outcome, at(2 + millis), 0);
            (control.operations.baseline(1), control.operations.known_cost(1))
        };
        let learnt = (0..8).map(|_| run(Outcome::Completed { cost: 1000 }, 50)).last();
        let learnt = learnt.expect("it was executed");
        assert!(learnt.0.is_some() && learnt.1.is_some());
        for _ in 0..1000 {
            assert_eq!(run(Outcome::Shared, 5), learnt);
        }
    }

    #[test]
    fn failed_work_counts_with_its_cost_and_with_a_latency_that_is_longer_than_usual() {
        let mut control = control(100, 10);
        let mut now = 0;
        let mut run = |outcome, latency| {
            let request = Request { client: 1, operation: 1, ..Request::default() };
            for _ in 0..1000 {
                let ticket = admitted(control.request(request, Duration::MAX, at(now), 0));
                now += latency;
                control.finish(ticket, outcome, at(now), 0);
            }
            (control.load().slow_down, control.operations.known_cost(1).unwrap_or_default())
        };
        let (slow_down, cost) = run(Outcome::Completed { cost: 100 }, 20);
        assert!(slow_down < 1.01 && cost.round() == 100.0, "{slow_down} {cost}");
        let (slow_down, cost) = run(Outcome::Failed { cost: 300 }, 1);
        assert!(slow_down < 1.01 && cost.round() == 300.0, "often quick: {slow_down} {cost}");
        let (slow_down, _) = run(Outcome::Failed { cost: 300 }, 100);
        assert!(slow_down > 2.0, "{slow_down}");
    }

    #[test]
    fn the_cost_of_work_that_was_given_up_counts_if_it_is_more_than_usual() {
        let mut control = control(100, 10);
        let mut run = |operation, outcome| {
            for _ in 0..1000 {
                let ticket = admitted(ask(&mut control, 1, operation));
                control.finish(ticket, outcome, at(2), 0);
            }
            control.operations.weight(operation)
        };
        assert_eq!(run(1, Outcome::Completed { cost: 100 }), UNITS);
        assert_eq!(run(1, Outcome::Abandoned { cost: 1 }), UNITS, "only the beginning was done");
        assert_eq!(run(2, Outcome::Abandoned { cost: 1 }), UNITS);
        let weight = run(3, Outcome::Abandoned { cost: 10_000 });
        assert!(weight > UNITS, "it is never done, and not cheap: {weight}");
    }

    #[test]
    fn cheap_operations_take_a_small_part_of_the_limit() {
        let mut control = control(10, 0);
        let run = |control: &mut AdmissionControl, operation, cost| {
            let request = Request { client: 1, operation, ..Request::default() };
            let ticket = admitted(control.request(request, Duration::MAX, at(0), 0));
            control.finish(ticket, Outcome::Completed { cost }, at(1), 0);
        };
        for _ in 0..1000 {
            run(&mut control, 1, 10);
            run(&mut control, 2, 1000);
        }
        let mut count = |operation| {
            let mut tickets = Vec::new();
            let request = Request { client: 1, operation, ..Request::default() };
            while let Decision::Admitted(ticket) = control.request(request, Duration::MAX, at(1), 0)
            {
                tickets.push(ticket);
            }
            let count = tickets.len();
            for ticket in tickets {
                control.finish(ticket, Outcome::Abandoned { cost: 0 }, at(1), 0);
            }
            count
        };
        assert_eq!(count(1), 100);
        assert_eq!(count(2), 5);
    }
}
