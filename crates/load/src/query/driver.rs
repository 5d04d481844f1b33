//! The loop that sends and receives: one thread, one epoll, any number of connections.
//!
//! Closed loop: each connection sends as soon as its answer is there. Open loop: requests start when the schedule says
//! so; where no connection is free they wait, and their latency counts from when they were to start, so that a slow
//! server cannot hide behind a client that asks it less (coordinated omission).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::check::{Body, Check, Outcome};
use super::recorder::{Event, Recorder};
use super::request::Request;
use super::response::{Malformed, ResponseReader};
use crate::rate::Schedule;
use crate::report::Interval;

/// What is read from a socket at a time: the answers that matter fit, and it stays in a core's cache.
const READ_BYTES: usize = 256 * 1024;

/// Events taken from the kernel at a time.
const EVENTS: usize = 256;

/// Pause before a connection that could not be made is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// How often timeouts, pauses and intervals are looked at.
const TICK: Duration = Duration::from_millis(20);

/// What one run needs beside its schedule.
pub(super) struct Plan<'a> {
    pub(super) address: std::net::SocketAddr,
    pub(super) requests: &'a [Request],
    /// The first answer to each of them.
    pub(super) first: &'a [Vec<u8>],
    pub(super) connections: usize,
    pub(super) check: Check,
    pub(super) timeout: Duration,
    /// The measured time, from the beginning of the warm-up.
    pub(super) begin: Duration,
    pub(super) end: Duration,
    /// The number of the first request, for unique values.
    pub(super) first_number: u64,
}

struct Connection {
    stream: Option<TcpStream>,
    state: State,
    /// When the request on it was to start, and when it was sent.
    intended: Duration,
    sent: Duration,
    kind: usize,
    output: Vec<u8>,
    written: usize,
    reader: ResponseReader,
    body: Body,
    /// The poller also waits for room to write.
    wants_write: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No connection until then.
    Pausing(Duration),
    Connecting,
    Idle,
    /// A request is on its way, or its answer.
    Busy,
}

/// Everything of a running loop.
pub(super) struct Driver<'a> {
    plan: Plan<'a>,
    poller: OwnedFd,
    connections: Vec<Connection>,
    /// Connections that can take a request; the one that has waited longest goes first.
    idle: VecDeque<usize>,
    busy: usize,
    started: Instant,
    schedule: Option<Schedule>,
    due: Duration,
    number: u64,
}

impl<'a> Driver<'a> {
    /// Prepares a run; nothing is sent before [`Self::run`].
    pub(super) fn new(plan: Plan<'a>, schedule: Option<Schedule>) -> io::Result<Self> {
        let connections = (0..plan.connections)
            .map(|_| Connection {
                stream: None,
                state: State::Pausing(Duration::ZERO),
                intended: Duration::ZERO,
                sent: Duration::ZERO,
                kind: 0,
                output: Vec::new(),
                written: 0,
                reader: ResponseReader::default(),
                body: Body::default(),
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

    /// Runs to the end, and then until all answers are there or have timed out. Returns the next request's number.
    pub(super) fn run(
        mut self,
        recorder: &mut Recorder,
        mut progress: impl FnMut(&Interval),
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
                // Exactly then the server's CPU time is read.
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
                self.start_due(now, recorder);
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
        Ok(self.number)
    }

    /// Open loop: sends what is to start by now, as far as there are connections for it.
    fn start_due(&mut self, now: Duration, recorder: &mut Recorder) {
        while self.schedule.is_some() && self.due <= now && self.due < self.plan.end {
            let Some(index) = self.idle.pop_front() else { return };
            let intended = self.due;
            if let Some(schedule) = &mut self.schedule {
                self.due = schedule.advance();
            }
            self.send(index, intended, now, recorder);
        }
    }

    fn send(&mut self, index: usize, intended: Duration, now: Duration, recorder: &mut Recorder) {
        let kinds = self.plan.requests.len() as u64;
        let connection = &mut self.connections[index];
        connection.kind = (self.number % kinds) as usize;
        self.plan.requests[connection.kind].write(self.number, &mut connection.output);
        self.number += 1;
        connection.written = 0;
        connection.intended = intended;
        connection.sent = now;
        connection.body.clear();
        connection.state = State::Busy;
        self.busy += 1;
        if !self.write(index) {
            self.fail(index, Outcome::Closed, recorder);
        }
    }

    /// Writes what the socket takes; false where the connection is broken.
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

    /// Tells the poller what the connection waits for, where that has changed.
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

    // hot path: for each answer one read, one write and its share of a wait.
    fn handle(
        &mut self,
        index: usize,
        flags: epoll::EventFlags,
        buffer: &mut [u8],
        recorder: &mut Recorder,
    ) {
        let connection = &mut self.connections[index];
        if connection.state == State::Connecting {
            let error = connection.stream.as_ref().map(TcpStream::take_error);
            if !matches!(error, Some(Ok(None))) {
                self.fail(index, Outcome::Connect, recorder);
            } else if flags.contains(epoll::EventFlags::OUT) {
                connection.state = State::Idle;
                self.listen(index, false);
                self.ready(index, recorder);
            }
            return;
        }
        if flags.contains(epoll::EventFlags::OUT) && !self.write(index) {
            return self.fail(index, Outcome::Closed, recorder);
        }
        let readable = epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(readable) {
            self.read(index, buffer, recorder);
        }
    }

    fn read(&mut self, index: usize, buffer: &mut [u8], recorder: &mut Recorder) {
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
        if connection.state == State::Idle {
            // Nothing was asked: the server closes a connection that it thinks nobody needs.
            return self.disconnect(index, RECONNECT_PAUSE);
        }
        let (check, first) = (self.plan.check, &self.plan.first[connection.kind][..]);
        let completed = if count == 0 {
            match connection.reader.closed() {
                Some(completed) => completed,
                None => return self.fail(index, Outcome::Closed, recorder),
            }
        } else {
            let mut input = &buffer[..count];
            let body = &mut connection.body;
            match connection.reader.read(&mut input, |bytes| body.take(check, first, bytes)) {
                Ok(Some(completed)) if input.is_empty() => completed,
                Ok(None) => return,
                // Bytes after the answer to the only request on its way.
                Ok(Some(_)) | Err(Malformed(_)) => {
                    return self.fail(index, Outcome::Malformed, recorder);
                }
            }
        };
        let ended = self.started.elapsed();
        let outcome = connection.body.judge(check, first, &completed);
        let event = Event {
            intended: connection.intended,
            ended,
            outcome,
            body_bytes: connection.body.len(),
        };
        recorder.record(&event, connection.body.kept());
        self.busy -= 1;
        connection.state = State::Idle;
        // A server that answers before it has read the whole request cannot go on with the next one.
        if !completed.keep_alive || connection.written < connection.output.len() {
            self.disconnect(index, Duration::ZERO);
            if ended < self.plan.end {
                self.reconnect(index, ended, recorder);
            }
            return;
        }
        self.ready(index, recorder);
    }

    /// A connection can take a request: the next one, if it is time for it.
    fn ready(&mut self, index: usize, recorder: &mut Recorder) {
        let now = self.started.elapsed();
        if now >= self.plan.end {
            return;
        }
        match &mut self.schedule {
            None => self.send(index, now, now, recorder),
            // Those that have waited longer for a request go first, so only where there are none.
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
    fn fail(&mut self, index: usize, outcome: Outcome, recorder: &mut Recorder) {
        let ended = self.started.elapsed();
        let connection = &mut self.connections[index];
        let failed = match connection.state {
            State::Busy => {
                self.busy -= 1;
                Some(connection.intended)
            }
            // In the open loop the requests that nobody sends are counted as such.
            State::Connecting if self.schedule.is_none() => Some(ended),
            _ => None,
        };
        if let Some(intended) = failed {
            let body_bytes = connection.body.len();
            recorder
                .record(&Event { intended, ended, outcome, body_bytes }, connection.body.kept());
        }
        self.disconnect(index, RECONNECT_PAUSE);
    }

    fn disconnect(&mut self, index: usize, pause: Duration) {
        let connection = &mut self.connections[index];
        // Closing takes it out of the poller too.
        connection.stream = None;
        connection.reader = ResponseReader::default();
        connection.wants_write = false;
        connection.state = State::Pausing(self.started.elapsed() + pause);
        self.idle.retain(|idle| *idle != index);
    }

    fn tick(&mut self, now: Duration, recorder: &mut Recorder) {
        for index in 0..self.connections.len() {
            match self.connections[index].state {
                State::Pausing(until) if until <= now && now < self.plan.end => {
                    self.reconnect(index, now, recorder);
                }
                State::Busy
                    if now.saturating_sub(self.connections[index].sent) > self.plan.timeout =>
                {
                    self.fail(index, Outcome::Timeout, recorder);
                }
                State::Connecting
                    if now.saturating_sub(self.connections[index].sent) > self.plan.timeout =>
                {
                    self.fail(index, Outcome::Connect, recorder);
                }
                _ => {}
            }
        }
    }

    fn reconnect(&mut self, index: usize, now: Duration, recorder: &mut Recorder) {
        if self.connect(index, now).is_err() {
            self.connections[index].state = State::Connecting;
            self.fail(index, Outcome::Connect, recorder);
        }
    }

    /// Begins to connect; the poller says when it is done.
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
        connection.state = State::Connecting;
        connection.sent = now;
        connection.wants_write = true;
        Ok(())
    }

    /// Waits for events, at most until then. The wait is exact to microseconds, which epoll's own, in whole
    /// milliseconds, is not.
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
