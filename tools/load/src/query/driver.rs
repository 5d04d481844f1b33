//! The loop that sends and receives: one thread, one epoll, any number of connections.
//!
//! Closed loop: each connection sends its next request as soon as its response is complete. Open loop: requests start
//! as scheduled. If no connection is free they wait, and their latency counts from the scheduled start, so that a slow
//! server cannot hide behind a client that sends fewer requests (coordinated omission).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::check::{Check, ReceivedBody, RequestOutcome};
use super::recorder::{QueryRecorder, RequestEnd};
use super::request::RequestTemplate;
use super::response::{MalformedResponse, ResponseReader};
use super::response_log::ResponseLog;
use crate::client_socket::{ClientSocket, SocketRead, wait_for_events};
use crate::clock::now_us;
use crate::rate::Schedule;
use crate::report::QueryInterval;

/// The number of bytes read from a socket at a time: typical responses fit, and it stays in a core's cache.
const READ_BYTES: usize = 256 * 1024;

/// The number of events taken from the kernel at a time.
const EVENTS: usize = 256;

/// The pause before a failed connection is retried.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// The interval between two checks of timeouts, pauses and intervals.
const TICK: Duration = Duration::from_millis(20);

/// The parameters of a run, except for its schedule.
pub(super) struct RunPlan<'a> {
    pub(super) address: std::net::SocketAddr,
    pub(super) requests: &'a [RequestTemplate],
    /// The first response to each request.
    pub(super) first: &'a [Vec<u8>],
    pub(super) connections: usize,
    pub(super) check: Check,
    pub(super) timeout: Duration,
    /// The measured time, counted from the beginning of the warm-up.
    pub(super) begin: Duration,
    pub(super) end: Duration,
    /// The number of the first request, for unique values.
    pub(super) first_number: u64,
    /// The file that gets all correct responses.
    pub(super) log: Option<ResponseLog>,
}

struct QueryConnection {
    socket: ClientSocket,
    state: ConnectionState,
    /// The scheduled start and the actual start of the current request.
    intended: Duration,
    sent: Duration,
    /// The start in microseconds since 1970, if responses are logged.
    sent_us: u64,
    kind: usize,
    reader: ResponseReader,
    body: ReceivedBody,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    /// The client has no connection until this time.
    Pausing(Duration),
    Connecting,
    Idle,
    /// A request or its response is in flight.
    Busy,
}

/// The state of a running loop.
pub(super) struct QueryDriver<'a> {
    plan: RunPlan<'a>,
    poller: OwnedFd,
    connections: Vec<QueryConnection>,
    /// The connections that can take a request; the one that has waited longest is first.
    idle: VecDeque<usize>,
    busy: usize,
    started: Instant,
    schedule: Option<Schedule>,
    due: Duration,
    number: u64,
}

impl<'a> QueryDriver<'a> {
    /// Prepares a run; nothing is sent before [`Self::run`].
    pub(super) fn new(plan: RunPlan<'a>, schedule: Option<Schedule>) -> io::Result<Self> {
        let connections = (0..plan.connections)
            .map(|_| QueryConnection {
                socket: ClientSocket::default(),
                state: ConnectionState::Pausing(Duration::ZERO),
                intended: Duration::ZERO,
                sent: Duration::ZERO,
                sent_us: 0,
                kind: 0,
                reader: ResponseReader::default(),
                body: ReceivedBody::default(),
            })
            .collect();
        Ok(Self {
            number: plan.first_number,
            plan,
            poller: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections,
            idle: VecDeque::new(),
            busy: 0,
            started: Instant::now(),
            schedule,
            due: Duration::ZERO,
        })
    }

    /// Runs to the end, then until all responses are complete or timed out. Returns the number of the next request.
    pub(super) fn run(
        mut self,
        recorder: &mut QueryRecorder,
        mut progress: impl FnMut(&QueryInterval),
    ) -> io::Result<u64> {
        self.started = Instant::now();
        if let Some(schedule) = &mut self.schedule {
            self.due = schedule.advance();
        }
        let mut buffer = vec![0; READ_BYTES];
        let mut events = Vec::with_capacity(EVENTS);
        let mut next_tick = Duration::ZERO;
        loop {
            let mut now = self.started.elapsed();
            if now >= next_tick {
                self.tick(now, recorder);
                if let Some(interval) = recorder.tick(now) {
                    progress(&interval);
                }
                next_tick = now + TICK;
                // The server's CPU time must be read exactly at these times.
                for boundary in [self.plan.begin, self.plan.end] {
                    if boundary > now {
                        next_tick = next_tick.min(boundary);
                    }
                }
                now = self.started.elapsed();
            }
            let over = now >= self.plan.end;
            if over && self.busy == 0 {
                break;
            }
            if !over {
                self.start_due_requests(now, recorder);
            }
            let until = match &self.schedule {
                Some(_) if !over && !self.idle.is_empty() => next_tick.min(self.due),
                _ => next_tick,
            };
            self.wait(&mut events, until)?;
            for event in events.drain(..) {
                let index = event.data.u64() as usize;
                self.handle(index, event.flags, &mut buffer, recorder);
            }
        }
        if let Some(schedule) = &mut self.schedule {
            while self.due < self.plan.end {
                recorder.record_unsent(self.due);
                self.due = schedule.advance();
            }
        }
        while recorder.tick(self.started.elapsed()).is_some() {}
        if let Some(log) = self.plan.log {
            log.finish()?;
        }
        Ok(self.number)
    }

    /// Open loop: sends the due requests, as far as connections are free.
    fn start_due_requests(&mut self, now: Duration, recorder: &mut QueryRecorder) {
        while self.schedule.is_some() && self.due <= now && self.due < self.plan.end {
            let Some(index) = self.idle.pop_front() else { return };
            let intended = self.due;
            if let Some(schedule) = &mut self.schedule {
                self.due = schedule.advance();
            }
            self.send(index, intended, now, recorder);
        }
    }

    fn send(
        &mut self,
        index: usize,
        intended: Duration,
        now: Duration,
        recorder: &mut QueryRecorder,
    ) {
        let kinds = self.plan.requests.len() as u64;
        let connection = &mut self.connections[index];
        connection.kind = (self.number % kinds) as usize;
        self.plan.requests[connection.kind].write(self.number, connection.socket.begin_request());
        self.number += 1;
        connection.intended = intended;
        connection.sent = now;
        if self.plan.log.is_some() {
            // Before the first byte is written: what was known before this time was known before the request.
            connection.sent_us = now_us();
        }
        connection.body.clear();
        connection.state = ConnectionState::Busy;
        self.busy += 1;
        if !connection.socket.write(&self.poller, index) {
            self.fail(index, RequestOutcome::Closed, recorder);
        }
    }

    // hot path: one read, one write and a share of a wait for each response.
    fn handle(
        &mut self,
        index: usize,
        flags: epoll::EventFlags,
        buffer: &mut [u8],
        recorder: &mut QueryRecorder,
    ) {
        let connection = &mut self.connections[index];
        if connection.state == ConnectionState::Connecting {
            if connection.socket.has_failed() {
                self.fail(index, RequestOutcome::Connect, recorder);
            } else if flags.contains(epoll::EventFlags::OUT) {
                connection.state = ConnectionState::Idle;
                connection.socket.listen(&self.poller, index, false);
                self.on_idle(index, recorder);
            }
            return;
        }
        if flags.contains(epoll::EventFlags::OUT) && !connection.socket.write(&self.poller, index) {
            return self.fail(index, RequestOutcome::Closed, recorder);
        }
        let readable = epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(readable) {
            self.read(index, buffer, recorder);
        }
    }

    fn read(&mut self, index: usize, buffer: &mut [u8], recorder: &mut QueryRecorder) {
        let connection = &mut self.connections[index];
        let SocketRead::Bytes(count) = connection.socket.read(buffer) else { return };
        if connection.state == ConnectionState::Idle {
            // No request is in flight: the server closes an idle connection.
            return self.disconnect(index, RECONNECT_PAUSE);
        }
        let (check, first) = (self.plan.check, &self.plan.first[connection.kind][..]);
        let completed = if count == 0 {
            match connection.reader.closed() {
                Some(completed) => completed,
                None => return self.fail(index, RequestOutcome::Closed, recorder),
            }
        } else {
            let mut input = &buffer[..count];
            let body = &mut connection.body;
            match connection.reader.read(&mut input, |bytes| body.add(check, first, bytes)) {
                Ok(Some(completed)) if input.is_empty() => completed,
                Ok(None) => return,
                // There are bytes after the response to the only request in flight.
                Ok(Some(_)) | Err(MalformedResponse(_)) => {
                    return self.fail(index, RequestOutcome::Malformed, recorder);
                }
            }
        };
        let ended = self.started.elapsed();
        let outcome = connection.body.classify(check, first, &completed);
        let event = RequestEnd {
            intended: connection.intended,
            ended,
            outcome,
            body_bytes: connection.body.len(),
        };
        recorder.record(&event, connection.body.differing_bytes());
        if let Some(log) = self.plan.log.as_mut().filter(|_| outcome == RequestOutcome::Correct) {
            log.add(connection.sent_us, now_us(), connection.body.bytes(first));
        }
        self.busy -= 1;
        connection.state = ConnectionState::Idle;
        // A server that responds before it has read the whole request cannot read the next one.
        if !completed.keep_alive || !connection.socket.has_written_all() {
            self.disconnect(index, Duration::ZERO);
            if ended < self.plan.end {
                self.reconnect(index, ended, recorder);
            }
            return;
        }
        self.on_idle(index, recorder);
    }

    /// Sends the next request on a connection that has become free, if one is due.
    fn on_idle(&mut self, index: usize, recorder: &mut QueryRecorder) {
        let now = self.started.elapsed();
        if now >= self.plan.end {
            return;
        }
        match &mut self.schedule {
            None => self.send(index, now, now, recorder),
            // Connections that have waited longer go first, so this one sends only if there are none.
            Some(schedule)
                if self.idle.is_empty() && self.due <= now && self.due < self.plan.end =>
            {
                let intended = std::mem::replace(&mut self.due, schedule.advance());
                self.send(index, intended, now, recorder);
            }
            Some(_) => self.idle.push_back(index),
        }
    }

    /// Ends the request on a connection, if there is one, and the connection.
    fn fail(&mut self, index: usize, outcome: RequestOutcome, recorder: &mut QueryRecorder) {
        let ended = self.started.elapsed();
        let connection = &mut self.connections[index];
        let failed = match connection.state {
            ConnectionState::Busy => {
                self.busy -= 1;
                Some(connection.intended)
            }
            // In the open loop, requests that are never sent are counted as such.
            ConnectionState::Connecting if self.schedule.is_none() => Some(ended),
            _ => None,
        };
        if let Some(intended) = failed {
            let body_bytes = connection.body.len();
            recorder.record(
                &RequestEnd { intended, ended, outcome, body_bytes },
                connection.body.differing_bytes(),
            );
        }
        self.disconnect(index, RECONNECT_PAUSE);
    }

    fn disconnect(&mut self, index: usize, pause: Duration) {
        let connection = &mut self.connections[index];
        connection.socket.close();
        connection.reader = ResponseReader::default();
        connection.state = ConnectionState::Pausing(self.started.elapsed() + pause);
        self.idle.retain(|idle| *idle != index);
    }

    fn tick(&mut self, now: Duration, recorder: &mut QueryRecorder) {
        for index in 0..self.connections.len() {
            match self.connections[index].state {
                ConnectionState::Pausing(until) if until <= now && now < self.plan.end => {
                    self.reconnect(index, now, recorder);
                }
                ConnectionState::Busy
                    if now.saturating_sub(self.connections[index].sent) > self.plan.timeout =>
                {
                    self.fail(index, RequestOutcome::Timeout, recorder);
                }
                ConnectionState::Connecting
                    if now.saturating_sub(self.connections[index].sent) > self.plan.timeout =>
                {
                    self.fail(index, RequestOutcome::Connect, recorder);
                }
                _ => {}
            }
        }
    }

    fn reconnect(&mut self, index: usize, now: Duration, recorder: &mut QueryRecorder) {
        if self.connect(index, now).is_err() {
            self.connections[index].state = ConnectionState::Connecting;
            self.fail(index, RequestOutcome::Connect, recorder);
        }
    }

    /// Begins to connect; the poller reports the completion.
    fn connect(&mut self, index: usize, now: Duration) -> io::Result<()> {
        let connection = &mut self.connections[index];
        connection.socket.connect(self.plan.address, false, &self.poller, index)?;
        connection.state = ConnectionState::Connecting;
        connection.sent = now;
        Ok(())
    }

    /// Waits for events, at most until `until`: exactly, if requests are scheduled.
    fn wait(&mut self, events: &mut Vec<epoll::Event>, until: Duration) -> io::Result<()> {
        let left = until.saturating_sub(self.started.elapsed());
        wait_for_events(&self.poller, events, left, self.schedule.is_some())
    }
}
