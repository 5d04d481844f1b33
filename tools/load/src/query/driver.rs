//! The loop that sends and receives: one thread, one epoll, any number of connections.
//!
//! Closed loop: each connection sends its next request as soon as its response is complete. Open loop: requests start
//! as scheduled. If no connection is free they wait, and their latency counts from the scheduled start, so that a slow
//! server cannot hide behind a client that sends fewer requests (coordinated omission).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::check::{Check, ReceivedBody, RequestOutcome};
use super::recorder::{QueryRecorder, RequestEnd};
use super::request::RequestTemplate;
use super::response::{MalformedResponse, ResponseReader};
use super::response_log::ResponseLog;
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
    stream: Option<TcpStream>,
    state: ConnectionState,
    /// The scheduled start and the actual start of the current request.
    intended: Duration,
    sent: Duration,
    /// The start in microseconds since 1970, if responses are logged.
    sent_us: u64,
    kind: usize,
    output: Vec<u8>,
    written: usize,
    reader: ResponseReader,
    body: ReceivedBody,
    /// True if the poller also reports when the socket is writable.
    wants_write: bool,
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
                stream: None,
                state: ConnectionState::Pausing(Duration::ZERO),
                intended: Duration::ZERO,
                sent: Duration::ZERO,
                sent_us: 0,
                kind: 0,
                output: Vec::new(),
                written: 0,
                reader: ResponseReader::default(),
                body: ReceivedBody::default(),
                wants_write: false,
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
        self.plan.requests[connection.kind].write(self.number, &mut connection.output);
        self.number += 1;
        connection.written = 0;
        connection.intended = intended;
        connection.sent = now;
        if self.plan.log.is_some() {
            // Before the first byte is written: what was known before this time was known before the request.
            connection.sent_us = now_us();
        }
        connection.body.clear();
        connection.state = ConnectionState::Busy;
        self.busy += 1;
        if !self.write(index) {
            self.fail(index, RequestOutcome::Closed, recorder);
        }
    }

    /// Writes as much as the socket accepts; false if the connection is broken.
    fn write(&mut self, index: usize) -> bool {
        let connection = &mut self.connections[index];
        let Some(stream) = &mut connection.stream else { return false };
        while connection.written < connection.output.len() {
            match stream.write(&connection.output[connection.written..]) {
                Ok(count) => connection.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        let wants_write = connection.written < connection.output.len();
        self.listen(index, wants_write)
    }

    /// Updates the events that the poller reports, if they changed; false if the connection is broken.
    fn listen(&mut self, index: usize, wants_write: bool) -> bool {
        let connection = &mut self.connections[index];
        if connection.wants_write == wants_write {
            return true;
        }
        let Some(stream) = &connection.stream else { return false };
        let data = epoll::EventData::new_u64(index as u64);
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, wants_write);
        connection.wants_write = wants_write;
        epoll::modify(&self.poller, stream, data, flags).is_ok()
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
            let error = connection.stream.as_ref().map(TcpStream::take_error);
            if !matches!(error, Some(Ok(None))) {
                self.fail(index, RequestOutcome::Connect, recorder);
            } else if flags.contains(epoll::EventFlags::OUT) {
                connection.state = ConnectionState::Idle;
                self.listen(index, false);
                self.on_idle(index, recorder);
            }
            return;
        }
        if flags.contains(epoll::EventFlags::OUT) && !self.write(index) {
            return self.fail(index, RequestOutcome::Closed, recorder);
        }
        let readable = epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(readable) {
            self.read(index, buffer, recorder);
        }
    }

    fn read(&mut self, index: usize, buffer: &mut [u8], recorder: &mut QueryRecorder) {
        let connection = &mut self.connections[index];
        let Some(stream) = &mut connection.stream else { return };
        let count = match stream.read(buffer) {
            Ok(count) => count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return;
            }
            Err(_) => 0,
        };
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
        if !completed.keep_alive || connection.written < connection.output.len() {
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
        // Closing the socket also removes it from the poller.
        connection.stream = None;
        connection.reader = ResponseReader::default();
        connection.wants_write = false;
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
        let address = self.plan.address;
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let data = epoll::EventData::new_u64(index as u64);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
        epoll::add(&self.poller, &socket, data, flags)?;
        let connection = &mut self.connections[index];
        connection.stream = Some(socket.into());
        connection.state = ConnectionState::Connecting;
        connection.sent = now;
        connection.wants_write = true;
        Ok(())
    }

    /// Waits for events, at most until `until`. The wait is exact to microseconds, unlike epoll's own timeout in whole
    /// milliseconds.
    fn wait(&mut self, events: &mut Vec<epoll::Event>, until: Duration) -> io::Result<()> {
        let now = self.started.elapsed();
        let left = until.saturating_sub(now);
        let mut timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        if self.schedule.is_some() && !left.is_zero() {
            let mut ready = [PollFd::new(&self.poller, PollFlags::IN)];
            match poll(&mut ready, Some(&timeout)) {
                Ok(0) => return Ok(()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
        }
        match epoll::wait(&self.poller, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
