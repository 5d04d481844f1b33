//! `starling bench floor --subscriptions`: the least that sending one event to many WebSockets can cost.
//!
//! One epoll loop speaks just enough graphql-transport-ws for `bench subscriptions`. Each event is framed once, and each
//! subscribed socket gets it by one `send`. No GraphQL, no groups, no queues: a socket that is full is closed.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use memchr::memmem;
use rustix::event::epoll;
use rustix::net::SendFlags;
use socket2::{Domain, Protocol, Socket, Type};

use crate::subscriptions::frame::write_from_server;
use crate::subscriptions::message::find_stamp;
use crate::subscriptions::{SUBPROTOCOL, WEBSOCKET_ACCEPT, with_time_placeholder};

/// In the message: when the event was published.
const TIME: &str = "$T";

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Read from a socket at a time.
const READ_BYTES: usize = 64 * 1024;

/// Events taken from the kernel at a time.
const EVENTS: usize = 1024;

/// Bytes of an event that arrives in pieces.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The places of listener and broker among events; connections count from 0.
const LISTENER: u64 = u64::MAX;
const BROKER: u64 = u64::MAX - 1;

/// A floor that is bound and does not serve yet.
#[derive(Debug)]
pub struct BroadcastFloor {
    listener: TcpListener,
    broker: Option<TcpStream>,
    /// The message of every event, with `$T`.
    message: String,
}

/// A connection, from its handshake on.
struct Connection {
    stream: TcpStream,
    is_upgraded: bool,
    /// Its place in the list of subscribed ones.
    subscribed_at: Option<usize>,
    /// A request that has not arrived whole.
    input: Vec<u8>,
}

/// What `serve` works on.
struct Serving<'a> {
    floor: &'a BroadcastFloor,
    poller: OwnedFd,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    subscribed: Vec<usize>,
    frame: Vec<u8>,
}

impl BroadcastFloor {
    /// Binds, and subscribes at a NATS broker if one is named; without one events come by POST. `message` is sent for each
    /// of them, with `$T` or an example of a time where that of the event is to stand.
    ///
    /// # Errors
    /// Where the address cannot be bound, or the broker is not there.
    pub fn bind(
        listen: SocketAddr,
        message: &str,
        nats: Option<(SocketAddr, &str)>,
    ) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(listen), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&listen.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let broker = nats.map(|(address, subject)| {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            let hello =
                format!("CONNECT {{\"verbose\":false,\"pedantic\":false}}\r\nSUB {subject} 1\r\n");
            stream.write_all(hello.as_bytes())?;
            stream.set_nonblocking(true)?;
            Ok::<_, io::Error>(stream)
        });
        Ok(Self {
            listener: socket.into(),
            broker: broker.transpose()?,
            message: match message.contains(TIME) {
                true => message.to_owned(),
                false => with_time_placeholder(message).unwrap_or_else(|| message.to_owned()),
            },
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Where the system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until something fails that no client can cause.
    ///
    /// # Errors
    /// That failure; also the end of the broker.
    pub fn serve(&self) -> io::Result<()> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = |fd, key| {
            epoll::add(&poller, fd, epoll::EventData::new_u64(key), epoll::EventFlags::IN)
        };
        watch(rustix::fd::AsFd::as_fd(&self.listener), LISTENER)?;
        if let Some(broker) = &self.broker {
            watch(rustix::fd::AsFd::as_fd(broker), BROKER)?;
        }
        let mut serving = Serving {
            floor: self,
            poller,
            connections: Vec::new(),
            free: Vec::new(),
            subscribed: Vec::new(),
            frame: Vec::new(),
        };
        let mut events = Vec::with_capacity(EVENTS);
        let mut buffer = vec![0; READ_BYTES];
        let mut from_broker = Vec::new();
        loop {
            match epoll::wait(&serving.poller, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => serving.accept(),
                    BROKER => serving.hear(&mut buffer, &mut from_broker)?,
                    place => serving.read(place as usize, &mut buffer),
                }
            }
        }
    }

    /// The frame of an event, if it says when it was published.
    fn frame(&self, event: &[u8], into: &mut Vec<u8>) -> bool {
        let Some((_, stamp)) = find_stamp(event) else { return false };
        into.clear();
        write_from_server(self.message.replace(TIME, &stamp.to_string()).as_bytes(), into);
        true
    }
}

impl Serving<'_> {
    fn accept(&mut self) {
        // A client that has left again, or no free descriptor: the others are served.
        while let Ok((stream, _)) = self.floor.listener.accept() {
            if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_err() {
                continue;
            }
            let place = self.free.pop().unwrap_or(self.connections.len());
            let data = epoll::EventData::new_u64(place as u64);
            if epoll::add(&self.poller, &stream, data, epoll::EventFlags::IN).is_err() {
                self.free.extend((place < self.connections.len()).then_some(place));
                continue;
            }
            let connection =
                Connection { stream, is_upgraded: false, subscribed_at: None, input: Vec::new() };
            if place == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[place] = Some(connection);
        }
    }

    fn read(&mut self, place: usize, buffer: &mut [u8]) {
        let Some(Some(connection)) = self.connections.get_mut(place) else { return };
        let count = match connection.stream.read(buffer) {
            Ok(0) => return self.close(place),
            Ok(count) => count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return;
            }
            Err(_) => return self.close(place),
        };
        let has = |word: &[u8]| memmem::find(&buffer[..count], word).is_some();
        let mut answer = Vec::new();
        if connection.is_upgraded {
            if has(b"connection_init") {
                write_from_server(br#"{"type":"connection_ack"}"#, &mut answer);
            }
            if has(b"\"subscribe\"") && connection.subscribed_at.is_none() {
                connection.subscribed_at = Some(self.subscribed.len());
                self.subscribed.push(place);
            }
            if has(b"\"complete\"") {
                self.unsubscribe(place);
            }
            if has(b"\"ping\"") {
                write_from_server(br#"{"type":"pong"}"#, &mut answer);
            }
            // A close frame of a client that masks with zeros.
            if buffer[0] == 0x88 {
                return self.close(place);
            }
        } else {
            connection.input.extend_from_slice(&buffer[..count]);
            if connection.input.len() > EVENT_BYTES_MAX {
                return self.close(place);
            }
            if connection.input.starts_with(b"POST ") {
                let Ok(length) = super::request_length(&connection.input) else {
                    return self.close(place);
                };
                if length.is_none_or(|length| connection.input.len() < length) {
                    return;
                }
                let event = std::mem::take(&mut connection.input);
                answer.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                self.publish(&event);
            } else if memmem::find(&connection.input, b"\r\n\r\n").is_some() {
                connection.input = Vec::new();
                connection.is_upgraded = true;
                answer = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
                     sec-websocket-accept: {WEBSOCKET_ACCEPT}\r\nsec-websocket-protocol: {SUBPROTOCOL}\r\n\r\n"
                )
                .into_bytes();
            }
        }
        if !answer.is_empty() {
            self.send(place, &answer);
        }
    }

    /// What the broker says.
    fn hear(&mut self, buffer: &mut [u8], pending: &mut Vec<u8>) -> io::Result<()> {
        let Some(mut broker) = self.floor.broker.as_ref() else { return Ok(()) };
        match broker.read(buffer) {
            Ok(0) => return Err(io::Error::other("the broker has closed the connection")),
            Ok(count) => pending.extend_from_slice(&buffer[..count]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let mut taken = 0;
        while let Some(end) = memmem::find(&pending[taken..], b"\r\n") {
            let line = String::from_utf8_lossy(&pending[taken..taken + end]).into_owned();
            let after = taken + end + 2;
            if line.starts_with("-ERR") {
                return Err(io::Error::other(format!("the broker says {line}")));
            }
            if line == "PING" {
                broker.write_all(b"PONG\r\n")?;
            }
            taken = after;
            if line.starts_with("MSG ") {
                // MSG subject sid [reply-to] bytes
                let length = line.rsplit(' ').next().and_then(|it| it.parse::<usize>().ok());
                let length = length.filter(|length| *length <= EVENT_BYTES_MAX);
                let length = length.ok_or_else(|| io::Error::other("a malformed MSG"))?;
                if pending.len() < after + length + 2 {
                    taken -= end + 2;
                    break;
                }
                let event = pending[after..after + length].to_vec();
                self.publish(&event);
                taken = after + length + 2;
            }
        }
        pending.drain(..taken);
        Ok(())
    }

    // hot path: framed once, then one send for each.
    fn publish(&mut self, event: &[u8]) {
        let mut frame = std::mem::take(&mut self.frame);
        if self.floor.frame(event, &mut frame) {
            let mut full = Vec::new();
            for &place in &self.subscribed {
                let Some(Some(connection)) = self.connections.get(place) else { continue };
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                if rustix::net::send(&connection.stream, &frame, flags) != Ok(frame.len()) {
                    full.push(place);
                }
            }
            full.into_iter().for_each(|place| self.close(place));
        }
        self.frame = frame;
    }

    fn send(&mut self, place: usize, bytes: &[u8]) {
        let Some(Some(connection)) = self.connections.get(place) else { return };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if rustix::net::send(&connection.stream, bytes, flags) != Ok(bytes.len()) {
            self.close(place);
        }
    }

    fn unsubscribe(&mut self, place: usize) {
        let Some(Some(connection)) = self.connections.get_mut(place) else { return };
        let Some(at) = connection.subscribed_at.take() else { return };
        self.subscribed.swap_remove(at);
        if let Some(&moved) = self.subscribed.get(at)
            && let Some(Some(moved)) = self.connections.get_mut(moved)
        {
            moved.subscribed_at = Some(at);
        }
    }

    fn close(&mut self, place: usize) {
        self.unsubscribe(place);
        // Closing takes it out of the poller too.
        if self.connections.get_mut(place).is_some_and(|it| it.take().is_some()) {
            self.free.push(place);
        }
    }
}
