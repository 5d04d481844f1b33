//! The loop that sends and receives: one thread, one epoll, a bounded number of connections.
//!
//! Requests start when users want them, whatever the server does. An attempt takes the connection that has become free
//! last, opens one if there is none, or waits. Its latency counts from the planned time in each case, so that neither a
//! slow server nor a bound of the generator can hide (coordinated omission).

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::clients::{AttemptEnd, NextStep, UserRequest, VirtualClients};
use super::outcome::{self, KEPT_BYTES_MAX, Lost, Outcome};
use super::recorder::{Occupancy, SurgeRecorder};
use super::repetitions::RepetitionQueue;
use super::shape::SurgeSchedule;
use super::subscribers::ConnectedSubscribers;
use crate::client_socket::{ClientSocket, SocketRead, wait_for_events};
use crate::query::request::RequestTemplate;
use crate::query::response::{CompletedResponse, ResponseReader};
use crate::report::SurgeInterval;

/// The number of bytes read from a socket at a time.
const READ_BYTES: usize = 256 * 1024;

/// The number of events taken from the kernel at a time.
const EVENTS: usize = 256;

/// The interval between two checks of deadlines and intervals.
const TICK: Duration = Duration::from_millis(20);

/// The time after which an attempt to connect is abandoned.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of due requests that are started before sockets are served again: about a millisecond of work.
const STARTS_IN_TURN: usize = 128;

/// The capacity of a body's buffer that is kept for the next response.
const SCRATCH_BYTES_MAX: usize = 256 * 1024;

/// The parameters of a run, except for its schedule and its clients.
pub(super) struct SurgePlan<'a> {
    pub(super) address: SocketAddr,
    /// For each kind of request, its text and the number of its class.
    pub(super) requests: &'a [(RequestTemplate, usize)],
    pub(super) connections_max: usize,
    /// The maximum number of attempts that wait for a connection.
    pub(super) waiting_max: usize,
    /// The measured time, counted from the beginning of the warm-up.
    pub(super) begin: Duration,
    pub(super) end: Duration,
    /// The time after the end at which requests in flight are abandoned.
    pub(super) drain: Duration,
    /// The subscribers that are connected meanwhile.
    pub(super) subscribers: Option<&'a ConnectedSubscribers>,
}

/// One sending of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attempt {
    request: UserRequest,
    /// The time at which it was to be sent.
    planned: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    /// There is no socket.
    Unused,
    /// The client began to connect at this time.
    Connecting(Duration),
    Idle,
    /// An attempt or its response is in flight.
    Busy(Attempt),
}

struct SurgeConnection {
    socket: ClientSocket,
    state: ConnectionState,
    reader: ResponseReader,
    body: Vec<u8>,
    body_length: usize,
}

/// The state of a running loop.
pub(super) struct SurgeDriver<'a> {
    plan: SurgePlan<'a>,
    clients: VirtualClients,
    schedule: SurgeSchedule,
    recorder: &'a mut SurgeRecorder,
    poller: OwnedFd,
    connections: Vec<SurgeConnection>,
    /// The free connections; the one that has become free last is last.
    idle: Vec<usize>,
    /// The connections without a socket.
    unused: Vec<usize>,
    connecting: usize,
    busy: usize,
    peak: usize,
    /// The attempts that wait for a connection.
    waiting: VecDeque<Attempt>,
    repetitions: RepetitionQueue,
    started: Instant,
    /// The next request that a user wants.
    due: Option<Duration>,
}

impl<'a> SurgeDriver<'a> {
    /// Prepares a run; nothing is sent before [`Self::run`].
    pub(super) fn new(
        plan: SurgePlan<'a>,
        clients: VirtualClients,
        schedule: SurgeSchedule,
        recorder: &'a mut SurgeRecorder,
    ) -> io::Result<Self> {
        Ok(Self {
            plan,
            clients,
            schedule,
            recorder,
            poller: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: Vec::new(),
            idle: Vec::new(),
            unused: Vec::new(),
            connecting: 0,
            busy: 0,
            peak: 0,
            waiting: VecDeque::new(),
            repetitions: RepetitionQueue::default(),
            started: Instant::now(),
            due: None,
        })
    }

    /// Runs to the end, then until all requests are done or given up. Returns the largest number of open connections.
    pub(super) fn run(mut self, mut progress: impl FnMut(&SurgeInterval)) -> io::Result<usize> {
        self.started = Instant::now();
        self.due = self.schedule.advance();
        let mut buffer = vec![0; READ_BYTES];
        let mut events = Vec::with_capacity(EVENTS);
        let mut next_tick = Duration::ZERO;
        loop {
            let now = self.started.elapsed();
            if now >= next_tick {
                next_tick = self.tick(now, &mut progress);
            }
            let has_more = self.start_due(self.started.elapsed());
            let is_done = self.due.is_none()
                && self.busy == 0
                && self.waiting.is_empty()
                && self.repetitions.is_empty();
            let over = self.started.elapsed() >= self.plan.end;
            if over && (is_done || now >= self.plan.end + self.plan.drain) {
                break;
            }
            let until = match (has_more, self.next_start()) {
                (true, _) => Duration::ZERO,
                (false, Some(start)) => next_tick.min(start),
                (false, None) => next_tick,
            };
            self.wait(&mut events, until)?;
            for event in events.drain(..) {
                self.handle(event.data.u64() as usize, event.flags, &mut buffer);
            }
        }
        let now = self.started.elapsed();
        self.give_up_rest(now);
        let occupancy = self.occupancy();
        while let Some(interval) = self.recorder.tick(now, occupancy) {
            progress(&interval);
        }
        Ok(self.peak)
    }

    /// Handles deadlines and closes intervals; returns the time of the next call.
    fn tick(&mut self, now: Duration, progress: &mut impl FnMut(&SurgeInterval)) -> Duration {
        self.check_deadlines(now);
        let occupancy = self.occupancy();
        if let Some(interval) = self.recorder.tick(now, occupancy) {
            progress(&interval);
        }
        let mut next = now + TICK;
        // The server's CPU time must be read exactly at these times.
        for boundary in [self.plan.begin, self.plan.end] {
            if boundary > now {
                next = next.min(boundary);
            }
        }
        next
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy {
            connections: self.connections.len() - self.unused.len(),
            waiting: self.waiting.len(),
            subscribers: self.plan.subscribers.and_then(ConnectedSubscribers::latest),
        }
    }

    /// Returns the time at which the next request or repetition is due.
    fn next_start(&self) -> Option<Duration> {
        match (self.due, self.repetitions.first_time()) {
            (Some(due), Some(repetition)) => Some(due.min(repetition)),
            (due, repetition) => due.or(repetition),
        }
    }

    /// Starts due requests and repetitions, up to a number that leaves time for sockets. True if there are more.
    fn start_due(&mut self, now: Duration) -> bool {
        for _ in 0..STARTS_IN_TURN {
            let repetition = self.repetitions.first_time();
            match (self.due.filter(|due| *due <= now), repetition.filter(|at| *at <= now)) {
                (None, None) => return false,
                (Some(due), repetition) if repetition.is_none_or(|at| due <= at) => {
                    self.due = self.schedule.advance();
                    let request = self.clients.draw(due);
                    let class = self.class_of(&request);
                    self.recorder.on_due(due, now);
                    self.recorder.on_wanted(class, &request);
                    if self.clients.is_cached(&request) {
                        self.recorder.on_cached(class, &request);
                    } else {
                        self.start(Attempt { request, planned: due }, now);
                    }
                }
                _ => {
                    let Some((planned, request)) = self.repetitions.pop() else { return false };
                    self.recorder.on_due(planned, now);
                    self.start(Attempt { request, planned }, now);
                }
            }
        }
        true
    }

    fn class_of(&self, request: &UserRequest) -> usize {
        self.plan.requests[request.kind as usize].1
    }

    /// Sends an attempt, or lets it wait for a connection.
    fn start(&mut self, attempt: Attempt, now: Duration) {
        if let Some(index) = self.idle.pop() {
            return self.send(index, attempt, now);
        }
        if self.waiting.len() >= self.plan.waiting_max {
            let class = self.class_of(&attempt.request);
            return self.recorder.on_unsent(class, &attempt.request, now);
        }
        self.waiting.push_back(attempt);
        if self.connecting < self.waiting.len() {
            self.open_connection(now);
        }
    }

    /// Begins to open a connection, if the bound permits.
    fn open_connection(&mut self, now: Duration) {
        let index = match self.unused.pop() {
            Some(index) => index,
            None if self.connections.len() < self.plan.connections_max => {
                self.connections.push(SurgeConnection {
                    socket: ClientSocket::default(),
                    state: ConnectionState::Unused,
                    reader: ResponseReader::default(),
                    body: Vec::new(),
                    body_length: 0,
                });
                self.connections.len() - 1
            }
            None => return,
        };
        self.connecting += 1;
        self.connections[index].state = ConnectionState::Connecting(now);
        // Users give up in large numbers, and their connections are closed then.
        let address = self.plan.address;
        match self.connections[index].socket.connect(address, true, &self.poller, index) {
            Ok(()) => self.peak = self.peak.max(self.connections.len() - self.unused.len()),
            Err(_) => self.fail(index, Lost::Connect),
        }
    }

    fn send(&mut self, index: usize, attempt: Attempt, now: Duration) {
        let class = self.class_of(&attempt.request);
        self.recorder.on_sent(class, &attempt.request, now);
        let connection = &mut self.connections[index];
        let request = &self.plan.requests[attempt.request.kind as usize].0;
        request.write(attempt.request.client.into(), connection.socket.begin_request());
        connection.body.clear();
        connection.body.shrink_to(SCRATCH_BYTES_MAX);
        connection.body_length = 0;
        connection.state = ConnectionState::Busy(attempt);
        self.busy += 1;
        if !connection.socket.write(&self.poller, index) {
            self.fail(index, Lost::Closed);
        }
    }

    // hot path: one read, one write and a share of a wait for each response.
    fn handle(&mut self, index: usize, flags: epoll::EventFlags, buffer: &mut [u8]) {
        let connection = &mut self.connections[index];
        if let ConnectionState::Connecting(_) = connection.state {
            if connection.socket.has_failed() {
                self.fail(index, Lost::Connect);
            } else if flags.contains(epoll::EventFlags::OUT) {
                self.connecting -= 1;
                connection.state = ConnectionState::Idle;
                match connection.socket.listen(&self.poller, index, false) {
                    true => self.on_idle(index),
                    false => self.disconnect(index),
                }
            }
            return;
        }
        if flags.contains(epoll::EventFlags::OUT) && !connection.socket.write(&self.poller, index) {
            return self.fail(index, Lost::Closed);
        }
        let readable = epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(readable) {
            self.read(index, buffer);
        }
    }

    fn read(&mut self, index: usize, buffer: &mut [u8]) {
        let connection = &mut self.connections[index];
        let SocketRead::Bytes(count) = connection.socket.read(buffer) else { return };
        if !matches!(connection.state, ConnectionState::Busy(_)) {
            // No request is in flight: the server closes an idle connection.
            self.idle.retain(|idle| *idle != index);
            return self.disconnect(index);
        }
        let completed = if count == 0 {
            match connection.reader.closed() {
                Some(completed) => completed,
                None => return self.fail(index, Lost::Closed),
            }
        } else {
            let mut input = &buffer[..count];
            let (body, length) = (&mut connection.body, &mut connection.body_length);
            let read = connection.reader.read(&mut input, |bytes| {
                let room = KEPT_BYTES_MAX - body.len();
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
                *length += bytes.len();
            });
            match read {
                Ok(Some(completed)) if input.is_empty() => completed,
                Ok(None) => return,
                // There are bytes after the response to the only request in flight.
                Ok(Some(_)) | Err(_) => return self.fail(index, Lost::Malformed),
            }
        };
        self.on_response(index, &completed);
    }

    fn on_response(&mut self, index: usize, response: &CompletedResponse) {
        let connection = &mut self.connections[index];
        let ConnectionState::Busy(attempt) = connection.state else { return };
        let is_whole = connection.body_length == connection.body.len();
        let outcome = outcome::classify(response, &connection.body, is_whole);
        // A server that responds before it has read the whole request cannot read the next one.
        let is_kept = response.keep_alive && connection.socket.has_written_all();
        let seconds = |seconds: Option<u32>| seconds.map(|it| Duration::from_secs(it.into()));
        let end = match &outcome {
            Outcome::Correct => AttemptEnd::Correct { fresh: seconds(response.fresh_seconds) },
            Outcome::Refused(_) => {
                AttemptEnd::Refused { retry_after: seconds(response.retry_after_seconds) }
            }
            Outcome::Wrong(_) => AttemptEnd::Wrong,
            Outcome::NoResponse(_) => AttemptEnd::NoResponse,
        };
        self.busy -= 1;
        let body = std::mem::take(&mut self.connections[index].body);
        self.end_attempt(&attempt, &outcome, end, &body);
        let connection = &mut self.connections[index];
        connection.body = body;
        connection.state = ConnectionState::Idle;
        if is_kept {
            self.on_idle(index);
        } else {
            self.disconnect(index);
        }
    }

    /// Counts the end of an attempt and lets the client decide about the next step.
    fn end_attempt(&mut self, attempt: &Attempt, outcome: &Outcome, end: AttemptEnd, body: &[u8]) {
        let now = self.started.elapsed();
        let request = &attempt.request;
        let class = self.class_of(request);
        self.recorder.on_end(class, request, attempt.planned, now, outcome, body);
        match self.clients.on_end(request, end, now) {
            NextStep::Done => {}
            NextStep::GiveUp => self.recorder.on_given_up(class, request, now),
            NextStep::Repeat(at, again) => {
                if !self.repetitions.add(at, again) {
                    self.recorder.on_unsent(class, &again, now);
                }
            }
        }
    }

    /// Sends the attempt that has waited longest on a connection that has become free.
    fn on_idle(&mut self, index: usize) {
        let now = self.started.elapsed();
        while let Some(attempt) = self.waiting.pop_front() {
            if self.clients.deadline(&attempt.request) > now {
                return self.send(index, attempt, now);
            }
            let class = self.class_of(&attempt.request);
            self.recorder.on_given_up(class, &attempt.request, now);
        }
        self.idle.push(index);
    }

    /// Ends a connection, and its attempt without a response.
    fn fail(&mut self, index: usize, lost: Lost) {
        let attempt = match self.connections[index].state {
            ConnectionState::Busy(attempt) => {
                self.busy -= 1;
                Some(attempt)
            }
            ConnectionState::Connecting(_) => {
                self.connecting -= 1;
                // The attempt that has waited longest is the one for which a client would have connected.
                self.waiting.pop_front()
            }
            ConnectionState::Unused | ConnectionState::Idle => None,
        };
        self.disconnect(index);
        if let Some(attempt) = attempt {
            self.end_attempt(&attempt, &Outcome::NoResponse(lost), AttemptEnd::NoResponse, b"");
        }
    }

    /// Closes a connection that has no attempt and is not in the list of free ones.
    fn disconnect(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.socket.close();
        connection.reader = ResponseReader::default();
        connection.state = ConnectionState::Unused;
        self.unused.push(index);
    }

    /// Gives up requests of users without patience left, and opens connections for those that wait.
    fn check_deadlines(&mut self, now: Duration) {
        for index in 0..self.connections.len() {
            match self.connections[index].state {
                ConnectionState::Busy(attempt)
                    if self.clients.deadline(&attempt.request) <= now =>
                {
                    self.busy -= 1;
                    self.disconnect(index);
                    let class = self.class_of(&attempt.request);
                    self.recorder.on_given_up(class, &attempt.request, now);
                }
                ConnectionState::Connecting(since)
                    if now.saturating_sub(since) > CONNECT_TIMEOUT =>
                {
                    self.fail(index, Lost::Connect);
                }
                _ => {}
            }
        }
        for _ in 0..self.waiting.len() {
            let Some(attempt) = self.waiting.pop_front() else { break };
            if self.clients.deadline(&attempt.request) > now {
                self.waiting.push_back(attempt);
            } else {
                let class = self.class_of(&attempt.request);
                self.recorder.on_given_up(class, &attempt.request, now);
            }
        }
        // Those that have failed are not opened again by a start.
        for _ in self.connecting..self.waiting.len().min(self.plan.connections_max) {
            self.open_connection(now);
        }
    }

    /// Gives up everything that is left after the end.
    fn give_up_rest(&mut self, now: Duration) {
        let busy = self.connections.iter().filter_map(|connection| match connection.state {
            ConnectionState::Busy(attempt) => Some(attempt.request),
            _ => None,
        });
        let waiting = self.waiting.iter().map(|attempt| attempt.request);
        let repetitions = self.repetitions.requests();
        let rest: Vec<UserRequest> = busy.chain(waiting).chain(repetitions).collect();
        for request in rest {
            let class = self.class_of(&request);
            self.recorder.on_given_up(class, &request, now);
        }
    }

    /// Waits for events, at most until `until`.
    fn wait(&mut self, events: &mut Vec<epoll::Event>, until: Duration) -> io::Result<()> {
        let left = until.saturating_sub(self.started.elapsed());
        wait_for_events(&self.poller, events, left, true)
    }
}
