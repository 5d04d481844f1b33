//! The sockets of all clients: one thread, one epoll, edge-triggered, so that a message costs one `recv` and its share
//! of a wait. `scenario` and `sequence` decide when the driver connects, unsubscribes or closes clients. Over TLS a
//! client has a session beside its socket, which turns its output into records.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use net::{TlsClientSession, TlsProgress};
use rustix::event::{Timespec, epoll};
use socket2::{Domain, Protocol, Socket, Type};

use super::client::{ClientMessages, ClientProtocol, ClientStage, ConnectionEnd, ResultListener};
use super::message::ResultReader;
use super::recorder::{ReceivedResult, SubscriptionRecorder};
use super::returns::ReturnQueue;
use super::settings::SubscriptionSettings;
use crate::clock::now_us;
use crate::histogram::Histogram;
use crate::report::subscriptions::SubscriptionInterval;

/// The number of bytes read from a socket at a time.
const READ_BYTES: usize = 64 * 1024;

/// The number of events taken from the kernel at a time.
const EVENTS: usize = 1024;

/// The interval between two checks of timeouts and intervals.
const TICK: Duration = Duration::from_millis(20);

/// The receive buffer of a client that never reads. The kernel supports no smaller ones, and a window of this size is
/// full after a few results.
const SLOW_RECEIVE_BYTES: usize = 4096;

/// The maximum number of reads of one client that had stopped reading, before other clients have their turn.
const READS_MAX: usize = 64;

/// The seed of the waits of refused clients, so that runs can be compared.
const RETURN_SEED: u64 = 1;

/// One client and its socket.
struct ClientSlot {
    stream: Option<TcpStream>,
    tls: Option<Box<TlsState>>,
    client: ClientProtocol,
    /// The time at which it began to connect, or to subscribe again, for the first time.
    began: Duration,
    /// The number of times that it has been refused since.
    refusals: u32,
    /// True if it waits to return. It may still be connected.
    is_waiting: bool,
    /// Output that the socket has not accepted; almost always empty.
    output: Vec<u8>,
    /// True if it subscribes and then never reads.
    is_slow: bool,
    /// True if it is not read: slow, and subscribed.
    is_paused: bool,
    /// True if it closes its connection itself, so that the end is not counted.
    is_leaving: bool,
}

/// The TLS state of a client.
struct TlsState {
    session: TlsClientSession,
    /// Records that the socket has not accepted; almost always empty.
    records: Vec<u8>,
}

/// The sockets of all clients, see the module.
pub(super) struct SubscriptionDriver<'a> {
    settings: &'a SubscriptionSettings,
    poller: OwnedFd,
    sources: Vec<IpAddr>,
    next_source: usize,
    slots: Vec<ClientSlot>,
    /// The clients that are not subscribed yet; their timeouts are checked.
    pending: BTreeSet<usize>,
    /// The clients that were refused and return.
    returns: ReturnQueue,
    /// The number of subscribed clients.
    live: usize,
    /// The time at which a client was subscribed last.
    last_joined: Duration,
    /// The clients whose state has changed since the last call of `take_changed`, if the scenario needs them.
    changed: Option<Vec<usize>>,
    messages: ClientMessages,
    reader: ResultReader,
    pub(super) recorder: SubscriptionRecorder,
    /// The time from the beginning of a client's first connection to being subscribed.
    pub(super) joining_times: Histogram,
    started: Instant,
    next_tick: Duration,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
    /// The last input, decrypted.
    plain: Vec<u8>,
}

/// The state of a client, for scenarios that control clients one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientState {
    /// Without a connection.
    Away,
    /// Subscribed.
    Live,
    /// Unsubscribed and still connected.
    Left,
    /// In transition to another state.
    Between,
}

/// Receives the messages of one client for the driver.
struct RecordingListener<'a> {
    settings: &'a SubscriptionSettings,
    recorder: &'a mut SubscriptionRecorder,
    reader: &'a mut ResultReader,
    client: usize,
    /// The time after which the client may return, if it was refused.
    retry_after: Option<Duration>,
}

impl ResultListener for RecordingListener<'_> {
    fn result(&mut self, text: &[u8]) {
        let outcome = self.reader.result(text);
        if outcome.has_errors || self.recorder.wants_message() {
            self.recorder.keep(text, &outcome);
        }
        let (client, bytes) = (self.client, text.len());
        if let Some(expected) = self.settings.subscription.expected_text(client) {
            let found = memchr::memmem::find(text, expected.as_bytes());
            self.recorder.record_ownership(client, found.is_some());
            if found.is_none() {
                self.recorder.keep_problem(text);
            }
        }
        self.recorder.received(&ReceivedResult { client, outcome, bytes, now_us: now_us() });
    }

    fn problem(&mut self, text: &str) {
        self.recorder.problem.get_or_insert_with(|| text.to_owned());
    }

    fn retry_after(&mut self, time: Duration) {
        self.retry_after = Some(time);
    }

    fn subscribe(&mut self, into: &mut Vec<u8>) {
        self.settings.subscription.write_subscribe(self.client, into);
    }
}

impl<'a> SubscriptionDriver<'a> {
    /// Prepares all clients.
    pub(super) fn new(
        settings: &'a SubscriptionSettings,
        recorder: SubscriptionRecorder,
    ) -> io::Result<Self> {
        let clients = settings.clients;
        let slots = (0..clients).map(|number| ClientSlot {
            stream: None,
            tls: None,
            client: ClientProtocol::default(),
            began: Duration::ZERO,
            refusals: 0,
            is_waiting: false,
            output: Vec::new(),
            is_slow: number >= recorder.readers(),
            is_paused: false,
            is_leaving: false,
        });
        Ok(Self {
            settings,
            poller: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            sources: settings.target.sources(clients, settings.sources),
            next_source: 0,
            slots: slots.collect(),
            pending: BTreeSet::new(),
            returns: ReturnQueue::new(RETURN_SEED),
            live: 0,
            last_joined: Duration::ZERO,
            changed: settings.scenario.moves_clients().then(Vec::new),
            messages: ClientMessages::default(),
            reader: ResultReader::default(),
            recorder,
            joining_times: Histogram::default(),
            started: Instant::now(),
            next_tick: TICK,
            events: Vec::with_capacity(EVENTS),
            buffer: vec![0; READ_BYTES],
            plain: Vec::new(),
        })
    }

    /// Returns the time since the beginning of the run.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the number of subscribed clients.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Returns the number of clients that are connecting or subscribing.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the number of clients that are not subscribed yet: those that connect or subscribe, and those that were
    /// refused and wait to return.
    pub(super) fn joining(&self) -> usize {
        self.pending.len() + self.returns.len()
    }

    /// Returns the time at which a client was subscribed last, counted from the beginning of the run.
    pub(super) fn last_joined(&self) -> Duration {
        self.last_joined
    }

    /// True if client `index` is subscribed and reads.
    pub(super) fn reads(&self, index: usize) -> bool {
        let slot = &self.slots[index];
        slot.stream.is_some() && slot.client.stage == ClientStage::Live && !slot.is_slow
    }

    /// True if client `index` is not subscribed yet and may still be.
    pub(super) fn is_joining(&self, index: usize) -> bool {
        self.slots[index].is_waiting || self.pending.contains(&index)
    }

    /// True if client `index` has a connection.
    pub(super) fn is_connected(&self, index: usize) -> bool {
        self.slots[index].stream.is_some()
    }

    /// True if client `index` had unsubscribed before its connection ended.
    pub(super) fn has_unsubscribed(&self, index: usize) -> bool {
        self.slots[index].client.stage == ClientStage::Left
    }

    /// Returns the state of client `index`.
    pub(super) fn state(&self, index: usize) -> ClientState {
        let slot = &self.slots[index];
        match (&slot.stream, slot.client.stage) {
            (None, _) => ClientState::Away,
            (_, ClientStage::Live) => ClientState::Live,
            (_, ClientStage::Left) if !slot.is_leaving => ClientState::Left,
            _ => ClientState::Between,
        }
    }

    /// Returns the clients that were subscribed, unsubscribed or disconnected since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<usize> {
        self.changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn mark_changed(&mut self, index: usize) {
        if let Some(changed) = &mut self.changed {
            changed.push(index);
        }
    }

    /// Handles all events until `until` or the next tick. `progress` receives intervals.
    pub(super) fn poll_events(
        &mut self,
        until: Duration,
        progress: &mut dyn FnMut(&SubscriptionInterval),
    ) -> io::Result<()> {
        let now = self.now();
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.end_late(now);
            while let Some(index) = self.returns.pop_due(now) {
                self.try_again(index);
            }
            if let Some(interval) = self.recorder.tick(now, self.live) {
                progress(&interval);
            }
        }
        let left = match self.settings.never_sleeps {
            true => Duration::ZERO,
            false => until.min(self.next_tick).saturating_sub(self.now()),
        };
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut events = std::mem::take(&mut self.events);
        match epoll::wait(&self.poller, rustix::buffer::spare_capacity(&mut events), Some(&timeout))
        {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if events.is_empty() && self.settings.never_sleeps {
            // Other programs on this core, such as mocks and brokers, have to send what is waited for.
            std::thread::yield_now();
        }
        let received = self.recorder.received;
        for event in events.drain(..) {
            // The keys are the numbers of clients.
            self.handle(event.data.u64() as usize, event.flags);
        }
        self.events = events;
        if self.recorder.received != received {
            self.recorder.last_received = Some(self.now());
        }
        Ok(())
    }

    /// Starts to connect client `index`.
    pub(super) fn connect(&mut self, index: usize) {
        let began = self.now();
        let slot = &mut self.slots[index];
        (slot.began, slot.refusals) = (began, 0);
        self.open_connection(index);
    }

    /// Connects client `index`, for the first time or again.
    fn open_connection(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.client = ClientProtocol::default();
        slot.output.clear();
        // Creating a session was tried when the target was parsed.
        let session = self.settings.target.session().ok().flatten();
        slot.tls = session.map(|session| Box::new(TlsState { session, records: Vec::new() }));
        (slot.is_paused, slot.is_leaving) = (false, false);
        self.settings.target.write_handshake(&self.settings.subscription, index, &mut slot.output);
        self.pending.insert(index);
        let source = (!self.sources.is_empty()).then(|| {
            self.next_source += 1;
            self.sources[self.next_source % self.sources.len()]
        });
        match open(self.settings.target.address(), source, slot.is_slow) {
            Ok(stream) => {
                let data = epoll::EventData::new_u64(index as u64);
                let flags = poll_flags();
                let added = epoll::add(&self.poller, &stream, data, flags);
                slot.stream = Some(stream);
                if added.is_err() {
                    self.end(index, ConnectionEnd::Connect);
                }
            }
            Err(error) => {
                self.recorder.problem.get_or_insert_with(|| format!("cannot connect: {error}"));
                self.end(index, ConnectionEnd::Connect);
            }
        }
    }

    /// Unsubscribes client `index`; it is unsubscribed once the server has read the message.
    pub(super) fn unsubscribe(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.client.unsubscribe(&self.messages, &mut slot.output);
        self.flush(index);
    }

    /// Subscribes client `index` again over the same connection after it has unsubscribed.
    pub(super) fn resubscribe(&mut self, index: usize) {
        let began = self.now();
        let slot = &mut self.slots[index];
        if slot.stream.is_none() {
            return;
        }
        (slot.began, slot.refusals) = (began, 0);
        self.live -= 1;
        self.subscribe(index);
    }

    /// Subscribes client `index`, which is connected.
    fn subscribe(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let mut listener = RecordingListener {
            settings: self.settings,
            recorder: &mut self.recorder,
            reader: &mut self.reader,
            client: index,
            retry_after: None,
        };
        slot.client.subscribe(&self.messages, &mut slot.output, &mut listener);
        self.pending.insert(index);
        self.flush(index);
    }

    /// Lets client `index` return after a refusal.
    fn try_again(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.is_waiting = false;
        if slot.stream.is_some() { self.subscribe(index) } else { self.open_connection(index) }
    }

    /// Closes the connection of client `index` regularly.
    pub(super) fn close(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if slot.stream.is_none() {
            return;
        }
        slot.is_leaving = true;
        let close = std::mem::take(&mut self.messages.close);
        slot.output.extend_from_slice(&close);
        self.messages.close = close;
        self.flush(index);
    }

    /// Drops all connections without a close frame, as a network failure does.
    pub(super) fn drop_all(&mut self) {
        for slot in &mut self.slots {
            (slot.stream, slot.tls, slot.is_waiting) = (None, None, false);
        }
        self.pending.clear();
        self.returns.clear();
        self.live = 0;
    }

    /// Lets the clients that never read consume their input until their ends, to learn how each of them ended.
    pub(super) fn resume_slow(&mut self) {
        for index in 0..self.slots.len() {
            if self.slots[index].is_paused {
                self.slots[index].is_paused = false;
                let data = epoll::EventData::new_u64(index as u64);
                if let Some(stream) = &self.slots[index].stream {
                    // The modification makes the poller report available input again.
                    let _ = epoll::modify(&self.poller, stream, data, poll_flags());
                }
            }
        }
    }

    fn handle(&mut self, index: usize, flags: epoll::EventFlags) {
        use epoll::EventFlags;
        let slot = &self.slots[index];
        if slot.is_paused || slot.stream.is_none() {
            return;
        }
        if flags.contains(EventFlags::ERR) && slot.client.stage == ClientStage::Upgrading {
            let error = slot.stream.as_ref().and_then(|stream| stream.take_error().ok()?);
            let what = error.map_or_else(|| "an error".to_owned(), |error| error.to_string());
            self.recorder.problem.get_or_insert_with(|| format!("cannot connect: {what}"));
            return self.end(index, ConnectionEnd::Connect);
        }
        if flags.contains(EventFlags::OUT) && slot.has_output() {
            self.flush(index);
        }
        let over = EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP;
        if flags.intersects(EventFlags::IN | over) {
            self.read(index, flags.intersects(over));
        }
    }

    // hot path: one recv a message.
    fn read(&mut self, index: usize, ends: bool) {
        for _ in 0..READS_MAX {
            let slot = &mut self.slots[index];
            if slot.is_paused {
                return;
            }
            let Some(stream) = &mut slot.stream else { return };
            let count = match stream.read(&mut self.buffer) {
                Ok(0) => return self.end(index, ConnectionEnd::HungUp),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return self.end(index, ConnectionEnd::Reset),
            };
            let mut bytes = &self.buffer[..count];
            let mut is_broken = false;
            if let Some(TlsState { session, records }) = slot.tls.as_deref_mut() {
                self.plain.clear();
                is_broken = session.receive(bytes, &mut self.plain) == TlsProgress::Failed;
                session.take_records(records);
                bytes = &self.plain;
            }
            if is_broken {
                let what = "TLS failed; check that the certificate is trusted (--ca)";
                self.recorder.problem.get_or_insert_with(|| what.to_owned());
                self.flush(index);
                return self.end(index, ConnectionEnd::Tls);
            }
            let before = slot.client.stage;
            let mut listener = RecordingListener {
                settings: self.settings,
                recorder: &mut self.recorder,
                reader: &mut self.reader,
                client: index,
                retry_after: None,
            };
            let taken = slot.client.take(bytes, &self.messages, &mut slot.output, &mut listener);
            let retry_after = listener.retry_after;
            if let Err(end) = taken {
                if !slot.is_leaving {
                    // The client's half of the close handshake.
                    self.flush(index);
                }
                return self.end_after(index, end, retry_after);
            }
            if self.slots[index].client.stage == ClientStage::Refused
                && !self.slots[index].is_waiting
            {
                self.end_after(index, ConnectionEnd::OperationRefused, retry_after);
            } else if before != self.slots[index].client.stage {
                self.on_stage_change(index, before);
            }
            if self.slots[index].has_output() {
                self.flush(index);
            }
            if count < READ_BYTES && !ends {
                return;
            }
        }
        // More input is waiting: the modification makes the poller report it again.
        if let Some(stream) = &self.slots[index].stream {
            let data = epoll::EventData::new_u64(index as u64);
            let _ = epoll::modify(&self.poller, stream, data, poll_flags());
        }
    }

    /// Handles a change of a client's stage.
    fn on_stage_change(&mut self, index: usize, before: ClientStage) {
        let now = self.now();
        let slot = &mut self.slots[index];
        if slot.client.stage >= ClientStage::Live && before < ClientStage::Live {
            self.pending.remove(&index);
            self.live += 1;
            self.last_joined = now;
            let took = now.saturating_sub(slot.began);
            self.joining_times.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            slot.is_paused = slot.is_slow;
        }
        self.mark_changed(index);
    }

    fn flush(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(stream) = &mut slot.stream else { return };
        let output = match slot.tls.as_deref_mut() {
            Some(TlsState { session, records }) => {
                // Before the TLS handshake is complete, the output waits in the session.
                session.send(&std::mem::take(&mut slot.output), records);
                records
            }
            None => &mut slot.output,
        };
        let mut written = 0;
        while written < output.len() {
            match stream.write(&output[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Not connected yet, full, or broken: the next read shows which.
                Err(_) => break,
            }
        }
        output.drain(..written);
        if output.is_empty() {
            *output = Vec::new();
        }
    }

    /// Handles the end of a client's connection.
    fn end(&mut self, index: usize, end: ConnectionEnd) {
        self.end_after(index, end, None);
    }

    /// Handles the end of a client's connection, or the refusal of its subscription, for which the server has given
    /// this time to return.
    fn end_after(&mut self, index: usize, end: ConnectionEnd, retry_after: Option<Duration>) {
        let now = self.now();
        let slot = &mut self.slots[index];
        if end != ConnectionEnd::OperationRefused {
            slot.disconnect();
        }
        if slot.is_waiting {
            // It connects again when its time has come.
            return;
        }
        if !self.pending.remove(&index) {
            self.live -= 1;
        }
        if !slot.is_leaving && end.is_refusal_for_now() && slot.refusals < self.settings.retries {
            slot.refusals += 1;
            let at = now + self.returns.wait(slot.refusals, retry_after);
            if at <= slot.began + self.settings.timeout {
                slot.is_waiting = true;
                self.returns.add(at, index);
                self.recorder.record_return(end);
                return;
            }
        }
        slot.disconnect();
        let (is_leaving, is_slow) = (slot.is_leaving, slot.is_slow);
        self.mark_changed(index);
        if !is_leaving {
            if is_slow {
                *self.recorder.slow_ends.entry(end).or_default() += 1;
            } else {
                self.recorder.record_end(end);
            }
        }
    }

    /// Ends the clients that are not subscribed in time.
    fn end_late(&mut self, now: Duration) {
        let late =
            |index: &usize| now.saturating_sub(self.slots[*index].began) > self.settings.timeout;
        let late: Vec<usize> = self.pending.iter().copied().filter(late).collect();
        for index in late {
            self.end(index, ConnectionEnd::Timeout);
        }
    }
}

impl ClientSlot {
    /// Closes the socket, which also removes it from the poller.
    fn disconnect(&mut self) {
        (self.stream, self.tls) = (None, None);
        self.output = Vec::new();
    }

    fn has_output(&self) -> bool {
        !self.output.is_empty() || self.tls.as_ref().is_some_and(|tls| !tls.records.is_empty())
    }
}

/// The events that a client is polled for. They are edge-triggered, so that nothing has to be changed later.
fn poll_flags() -> epoll::EventFlags {
    use epoll::EventFlags;
    EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
}

fn open(address: SocketAddr, source: Option<IpAddr>, is_slow: bool) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    if is_slow {
        // Set before connecting, since the handshake negotiates the scale of the window.
        socket.set_recv_buffer_size(SLOW_RECEIVE_BYTES)?;
    }
    if let Some(source) = source {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error)
            if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}
