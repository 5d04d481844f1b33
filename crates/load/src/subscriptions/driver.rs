//! The sockets of all clients: one thread, one epoll, edge-triggered, so that a message costs one `recv` and its share
//! of a wait. What is done with them, and when, is `scenario`'s. Over TLS a client has a session beside it: what it says
//! becomes records when it is sent.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use net::{TlsClientSession, TlsProgress};
use rustix::event::{Timespec, epoll};
use socket2::{Domain, Protocol, Socket, Type};

use super::Settings;
use super::client::{Client, Ear, End, Phrases, Stage};
use super::message::Reader;
use super::publisher::now_us;
use super::recorder::{Received, Recorder};
use crate::histogram::Histogram;
use crate::report::subscriptions::Interval;

/// What is read from a socket at a time.
const READ_BYTES: usize = 64 * 1024;

/// Events taken from the kernel at a time.
const EVENTS: usize = 1024;

/// How often timeouts and intervals are looked at.
const TICK: Duration = Duration::from_millis(20);

/// The receive buffer of a client that never reads: the kernel makes no smaller ones, and a window this small is full
/// after a few results.
const SLOW_RECEIVE_BYTES: usize = 4096;

/// What is read at most of one client that had stopped reading, before the others have their turn.
const READS_MAX: usize = 64;

/// One client and its socket.
struct Slot {
    stream: Option<TcpStream>,
    tls: Option<Box<Tls>>,
    client: Client,
    /// When its connection began.
    began: Duration,
    /// What the socket has not taken; hardly ever anything.
    output: Vec<u8>,
    /// Subscribes and then never reads.
    is_slow: bool,
    /// Is not read: slow, and subscribed.
    is_paused: bool,
    /// Is being closed by us; its end is none to be counted.
    is_leaving: bool,
}

/// What a client has beside its socket where it speaks TLS.
struct Tls {
    session: TlsClientSession,
    /// What the socket has not taken; hardly ever anything.
    records: Vec<u8>,
}

/// See the module.
pub(super) struct Driver<'a> {
    settings: &'a Settings,
    poller: OwnedFd,
    sources: Vec<IpAddr>,
    next_source: usize,
    slots: Vec<Slot>,
    /// Those on their way to being subscribed; their timeouts are looked at.
    pending: BTreeSet<usize>,
    /// Those that were pending and are subscribed now.
    live: usize,
    /// Those that have come to another [`State`] since the last look, if anybody looks.
    news: Option<Vec<usize>>,
    phrases: Phrases,
    reader: Reader,
    pub(super) recorder: Recorder,
    /// From the beginning of a connection to being subscribed.
    pub(super) joining: Histogram,
    started: Instant,
    next_tick: Duration,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
    /// What was read, without its TLS.
    plain: Vec<u8>,
}

/// How far a client is, for those who move it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It has no connection.
    Away,
    /// It is subscribed.
    Live,
    /// It has unsubscribed and is still connected.
    Left,
    /// It is on its way to another state.
    Between,
}

/// Hears one client for the driver.
struct Listener<'a> {
    settings: &'a Settings,
    recorder: &'a mut Recorder,
    reader: &'a mut Reader,
    client: usize,
}

impl Ear for Listener<'_> {
    fn result(&mut self, text: &[u8]) {
        let outcome = self.reader.result(text);
        if outcome.has_errors || self.recorder.message.is_none() {
            self.recorder.keep(text, outcome.has_errors);
        }
        let (client, bytes) = (self.client, text.len());
        if let Some(expected) = self.settings.subscription.expected_text(client) {
            let found = memchr::memmem::find(text, expected.as_bytes());
            self.recorder.belongs(client, found.is_some());
            if found.is_none() {
                self.recorder.keep_complaint(text);
            }
        }
        self.recorder.received(&Received { client, outcome, bytes, now_us: now_us() });
    }

    fn complaint(&mut self, text: &str) {
        self.recorder.complaint.get_or_insert_with(|| text.to_owned());
    }

    fn subscribe(&mut self, into: &mut Vec<u8>) {
        self.settings.subscription.write_subscribe(self.client, into);
    }
}

impl<'a> Driver<'a> {
    /// Prepares all clients.
    pub(super) fn new(settings: &'a Settings, recorder: Recorder) -> io::Result<Self> {
        let clients = settings.clients;
        let slots = (0..clients).map(|number| Slot {
            stream: None,
            tls: None,
            client: Client::default(),
            began: Duration::ZERO,
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
            live: 0,
            news: settings.scenario.moves_clients().then(Vec::new),
            phrases: Phrases::default(),
            reader: Reader::default(),
            recorder,
            joining: Histogram::default(),
            started: Instant::now(),
            next_tick: TICK,
            events: Vec::with_capacity(EVENTS),
            buffer: vec![0; READ_BYTES],
            plain: Vec::new(),
        })
    }

    /// Since the run began.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// How many are subscribed.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// How many are on their way to it.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether client `index` is subscribed and reads.
    pub(super) fn reads(&self, index: usize) -> bool {
        let slot = &self.slots[index];
        slot.stream.is_some() && slot.client.stage == Stage::Live && !slot.is_slow
    }

    /// Whether client `index` has a connection.
    pub(super) fn is_connected(&self, index: usize) -> bool {
        self.slots[index].stream.is_some()
    }

    /// Whether client `index` had unsubscribed before its connection ended.
    pub(super) fn has_left(&self, index: usize) -> bool {
        self.slots[index].client.stage == Stage::Left
    }

    /// How far client `index` is.
    pub(super) fn state(&self, index: usize) -> State {
        let slot = &self.slots[index];
        match (&slot.stream, slot.client.stage) {
            (None, _) => State::Away,
            (_, Stage::Live) => State::Live,
            (_, Stage::Left) if !slot.is_leaving => State::Left,
            _ => State::Between,
        }
    }

    /// Those that are live, have left or have gone since the last call.
    pub(super) fn take_news(&mut self) -> Vec<usize> {
        self.news.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn tell(&mut self, index: usize) {
        if let Some(news) = &mut self.news {
            news.push(index);
        }
    }

    /// Handles whatever comes until then, or until the next tick. `progress` hears of intervals.
    pub(super) fn turn(
        &mut self,
        until: Duration,
        progress: &mut dyn FnMut(&Interval),
    ) -> io::Result<()> {
        let now = self.now();
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.give_up(now);
            if let Some(interval) = self.recorder.tick(now, self.live) {
                progress(&interval);
            }
        }
        let left = until.min(self.next_tick).saturating_sub(self.now());
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
        let received = self.recorder.received;
        for event in events.drain(..) {
            // Numbers of clients, as given to the poller.
            self.handle(event.data.u64() as usize, event.flags);
        }
        self.events = events;
        if self.recorder.received != received {
            self.recorder.last_received = Some(self.now());
        }
        Ok(())
    }

    /// Begins to connect client `index`.
    pub(super) fn connect(&mut self, index: usize) {
        let began = self.now();
        let slot = &mut self.slots[index];
        slot.client = Client::default();
        slot.output.clear();
        // That there can be one was seen when the target was read.
        let session = self.settings.target.session().ok().flatten();
        slot.tls = session.map(|session| Box::new(Tls { session, records: Vec::new() }));
        (slot.began, slot.is_paused, slot.is_leaving) = (began, false, false);
        self.settings.target.write_handshake(&self.settings.subscription, index, &mut slot.output);
        self.pending.insert(index);
        let source = (!self.sources.is_empty()).then(|| {
            self.next_source += 1;
            self.sources[self.next_source % self.sources.len()]
        });
        match open(self.settings.target.address(), source, slot.is_slow) {
            Ok(stream) => {
                let data = epoll::EventData::new_u64(index as u64);
                let flags = both_ways();
                let added = epoll::add(&self.poller, &stream, data, flags);
                slot.stream = Some(stream);
                if added.is_err() {
                    self.end(index, End::Connect);
                }
            }
            Err(error) => {
                self.recorder.complaint.get_or_insert_with(|| format!("cannot connect: {error}"));
                self.end(index, End::Connect);
            }
        }
    }

    /// Lets client `index` unsubscribe; it has left once the server has read that.
    pub(super) fn leave(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.client.leave(&self.phrases, &mut slot.output);
        self.flush(index);
    }

    /// Lets client `index`, which has left, subscribe anew over the same connection.
    pub(super) fn subscribe_again(&mut self, index: usize) {
        let began = self.now();
        let slot = &mut self.slots[index];
        if slot.stream.is_none() {
            return;
        }
        slot.began = began;
        let mut listener = Listener {
            settings: self.settings,
            recorder: &mut self.recorder,
            reader: &mut self.reader,
            client: index,
        };
        slot.client.subscribe(&self.phrases, &mut slot.output, &mut listener);
        self.live -= 1;
        self.pending.insert(index);
        self.flush(index);
    }

    /// Closes the connection of client `index`, as a client does that has had enough.
    pub(super) fn close(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if slot.stream.is_none() {
            return;
        }
        slot.is_leaving = true;
        let close = std::mem::take(&mut self.phrases.close);
        slot.output.extend_from_slice(&close);
        self.phrases.close = close;
        self.flush(index);
    }

    /// Drops all connections without a word, as a network does.
    pub(super) fn drop_all(&mut self) {
        for slot in &mut self.slots {
            (slot.stream, slot.tls) = (None, None);
        }
        self.pending.clear();
        self.live = 0;
    }

    /// Those that never read, read what there is until their ends: how each of them ended, where it has.
    pub(super) fn wake_slow(&mut self) {
        for index in 0..self.slots.len() {
            if self.slots[index].is_paused {
                self.slots[index].is_paused = false;
                let data = epoll::EventData::new_u64(index as u64);
                if let Some(stream) = &self.slots[index].stream {
                    // Modifying tells anew what is already there.
                    let _ = epoll::modify(&self.poller, stream, data, both_ways());
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
        if flags.contains(EventFlags::ERR) && slot.client.stage == Stage::Upgrading {
            let error = slot.stream.as_ref().and_then(|stream| stream.take_error().ok()?);
            let what = error.map_or_else(|| "an error".to_owned(), |error| error.to_string());
            self.recorder.complaint.get_or_insert_with(|| format!("cannot connect: {what}"));
            return self.end(index, End::Connect);
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
                Ok(0) => return self.end(index, End::HungUp),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return self.end(index, End::Reset),
            };
            let mut bytes = &self.buffer[..count];
            let mut is_broken = false;
            if let Some(Tls { session, records }) = slot.tls.as_deref_mut() {
                self.plain.clear();
                is_broken = session.receive(bytes, &mut self.plain) == TlsProgress::Failed;
                session.take_records(records);
                bytes = &self.plain;
            }
            if is_broken {
                let what = "TLS failed; is the certificate one that is trusted (--ca)?";
                self.recorder.complaint.get_or_insert_with(|| what.to_owned());
                self.flush(index);
                return self.end(index, End::Tls);
            }
            let before = slot.client.stage;
            let mut listener = Listener {
                settings: self.settings,
                recorder: &mut self.recorder,
                reader: &mut self.reader,
                client: index,
            };
            let taken = slot.client.take(bytes, &self.phrases, &mut slot.output, &mut listener);
            if let Err(end) = taken {
                if !slot.is_leaving {
                    // Our half of the close handshake.
                    self.flush(index);
                }
                return self.end(index, end);
            }
            if before != self.slots[index].client.stage {
                self.advanced(index, before);
            }
            if self.slots[index].has_output() {
                self.flush(index);
            }
            if count < READ_BYTES && !ends {
                return;
            }
        }
        // More than that waits: told again by touching the watch.
        if let Some(stream) = &self.slots[index].stream {
            let data = epoll::EventData::new_u64(index as u64);
            let _ = epoll::modify(&self.poller, stream, data, both_ways());
        }
    }

    /// A client has come a stage further.
    fn advanced(&mut self, index: usize, before: Stage) {
        let now = self.now();
        let slot = &mut self.slots[index];
        if slot.client.stage >= Stage::Live && before < Stage::Live {
            self.pending.remove(&index);
            self.live += 1;
            let took = now.saturating_sub(slot.began);
            self.joining.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            slot.is_paused = slot.is_slow;
        }
        self.tell(index);
    }

    fn flush(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(stream) = &mut slot.stream else { return };
        let output = match slot.tls.as_deref_mut() {
            Some(Tls { session, records }) => {
                // Before the handshake is over it waits in the session.
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
                // Not connected yet, full, or broken: reading tells which.
                Err(_) => break,
            }
        }
        output.drain(..written);
        if output.is_empty() {
            *output = Vec::new();
        }
    }

    /// The connection of a client is over.
    fn end(&mut self, index: usize, end: End) {
        let slot = &mut self.slots[index];
        // Closing takes it out of the poller too.
        (slot.stream, slot.tls) = (None, None);
        slot.output = Vec::new();
        if !self.pending.remove(&index) {
            self.live -= 1;
        }
        let (is_leaving, is_slow) = (slot.is_leaving, slot.is_slow);
        self.tell(index);
        if !is_leaving {
            if is_slow {
                *self.recorder.slow_ends.entry(end).or_default() += 1;
            } else {
                self.recorder.ended(end);
            }
        }
    }

    /// Ends those that are not subscribed in time.
    fn give_up(&mut self, now: Duration) {
        let late =
            |index: &usize| now.saturating_sub(self.slots[*index].began) > self.settings.timeout;
        let late: Vec<usize> = self.pending.iter().copied().filter(late).collect();
        for index in late {
            self.end(index, End::Timeout);
        }
    }
}

impl Slot {
    fn has_output(&self) -> bool {
        !self.output.is_empty() || self.tls.as_ref().is_some_and(|tls| !tls.records.is_empty())
    }
}

/// What a client is watched for. Edge-triggered, so that nothing has to be changed later.
fn both_ways() -> epoll::EventFlags {
    use epoll::EventFlags;
    EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
}

fn open(address: SocketAddr, source: Option<IpAddr>, is_slow: bool) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    if is_slow {
        // Before connecting, since the window's scale is agreed on there.
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
