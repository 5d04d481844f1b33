//! `starling bench floor --subscriptions`: the minimum cost of sending one event to many WebSockets.
//!
//! One epoll loop speaks just enough graphql-transport-ws for `bench subscriptions`. Each event is framed once and
//! sent to each subscribed socket by one `send`. It has no GraphQL, no groups and no queues: a socket that is full is
//! closed.

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

/// The placeholder in the message for the time at which the event was published.
const TIME_PLACEHOLDER: &str = "$T";

/// The number of connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// The number of bytes read from a socket at a time.
const READ_BYTES: usize = 64 * 1024;

/// The number of events taken from the kernel at a time.
const EVENTS: usize = 1024;

/// The maximum length of an event that arrives in pieces.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The keys of listener and broker among epoll events; the keys of connections count from 0.
const LISTENER: u64 = u64::MAX;
const BROKER: u64 = u64::MAX - 1;

/// A bound floor that does not serve yet.
#[derive(Debug)]
pub struct BroadcastFloor {
    listener: TcpListener,
    broker: Option<TcpStream>,
    /// The message of every event, with `$T`.
    message: String,
}

/// A connection, from its handshake on.
struct BroadcastConnection {
    stream: TcpStream,
    is_upgraded: bool,
    /// The index in the list of subscribed connections.
    subscribed_index: Option<usize>,
    /// The part of a request that has arrived so far.
    input: Vec<u8>,
}

/// The state of [`BroadcastFloor::serve`].
struct BroadcastServer<'a> {
    floor: &'a BroadcastFloor,
    poller: OwnedFd,
    connections: Vec<Option<BroadcastConnection>>,
    free: Vec<usize>,
    subscribed: Vec<usize>,
    write_frame: Vec<u8>,
}

impl BroadcastFloor {
    /// Binds the listener, and subscribes at a NATS broker if one is given; otherwise events arrive by POST. `message`
    /// is sent for each event, with the event's time in place of `$T` or of an example of a time.
    ///
    /// # Errors
    /// The address cannot be bound, or the broker cannot be reached.
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
            message: match message.contains(TIME_PLACEHOLDER) {
                true => message.to_owned(),
                false => with_time_placeholder(message).unwrap_or_else(|| message.to_owned()),
            },
        })
    }

    /// Returns the address of the listener.
    ///
    /// # Errors
    /// The system does not report the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until a failure that no client can cause.
    ///
    /// # Errors
    /// That failure, or the end of the broker's connection.
    pub fn serve(&self) -> io::Result<()> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = |fd, key| {
            epoll::add(&poller, fd, epoll::EventData::new_u64(key), epoll::EventFlags::IN)
        };
        watch(rustix::fd::AsFd::as_fd(&self.listener), LISTENER)?;
        if let Some(broker) = &self.broker {
            watch(rustix::fd::AsFd::as_fd(broker), BROKER)?;
        }
        let mut server = BroadcastServer {
            floor: self,
            poller,
            connections: Vec::new(),
            free: Vec::new(),
            subscribed: Vec::new(),
            write_frame: Vec::new(),
        };
        let mut events = Vec::with_capacity(EVENTS);
        let mut buffer = vec![0; READ_BYTES];
        let mut from_broker = Vec::new();
        loop {
            match epoll::wait(&server.poller, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => server.accept(),
                    BROKER => server.read_broker(&mut buffer, &mut from_broker)?,
                    place => server.read(place as usize, &mut buffer),
                }
            }
        }
    }

    /// Writes the frame of an event. False if the event has no publishing time.
    fn write_frame(&self, event: &[u8], into: &mut Vec<u8>) -> bool {
        let Some((_, stamp)) = find_stamp(event) else { return false };
        into.clear();
        write_from_server(
            self.message.replace(TIME_PLACEHOLDER, &stamp.to_string()).as_bytes(),
            into,
        );
        true
    }
}

impl BroadcastServer<'_> {
    fn accept(&mut self) {
        // The client has disconnected again, or no descriptor is free: the other clients are still served.
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
            let connection = BroadcastConnection {
                stream,
                is_upgraded: false,
                subscribed_index: None,
                input: Vec::new(),
            };
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
        let mut response = Vec::new();
        if connection.is_upgraded {
            if has(b"connection_init") {
                write_from_server(br#"{"type":"connection_ack"}"#, &mut response);
            }
            if has(b"\"subscribe\"") && connection.subscribed_index.is_none() {
                connection.subscribed_index = Some(self.subscribed.len());
                self.subscribed.push(place);
            }
            if has(b"\"complete\"") {
                self.unsubscribe(place);
            }
            if has(b"\"ping\"") {
                write_from_server(br#"{"type":"pong"}"#, &mut response);
            }
            // The close frame of a client that masks with zeros.
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
                response.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                self.publish(&event);
            } else if memmem::find(&connection.input, b"\r\n\r\n").is_some() {
                connection.input = Vec::new();
                connection.is_upgraded = true;
                response = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
                     sec-websocket-accept: {WEBSOCKET_ACCEPT}\r\nsec-websocket-protocol: {SUBPROTOCOL}\r\n\r\n"
                )
                .into_bytes();
            }
        }
        if !response.is_empty() {
            self.send(place, &response);
        }
    }

    /// Reads messages of the broker.
    fn read_broker(&mut self, buffer: &mut [u8], pending: &mut Vec<u8>) -> io::Result<()> {
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
        let mut consumed = 0;
        while let Some(end) = memmem::find(&pending[consumed..], b"\r\n") {
            let line = String::from_utf8_lossy(&pending[consumed..consumed + end]).into_owned();
            let after = consumed + end + 2;
            if line.starts_with("-ERR") {
                return Err(io::Error::other(format!("the broker responded {line}")));
            }
            if line == "PING" {
                broker.write_all(b"PONG\r\n")?;
            }
            consumed = after;
            if line.starts_with("MSG ") {
                // MSG subject sid [reply-to] bytes
                let length = line.rsplit(' ').next().and_then(|it| it.parse::<usize>().ok());
                let length = length.filter(|length| *length <= EVENT_BYTES_MAX);
                let length = length.ok_or_else(|| io::Error::other("a malformed MSG"))?;
                if pending.len() < after + length + 2 {
                    consumed -= end + 2;
                    break;
                }
                let event = pending[after..after + length].to_vec();
                self.publish(&event);
                consumed = after + length + 2;
            }
        }
        pending.drain(..consumed);
        Ok(())
    }

    // hot path: framed once, then one send for each client.
    fn publish(&mut self, event: &[u8]) {
        let mut write_frame = std::mem::take(&mut self.write_frame);
        if self.floor.write_frame(event, &mut write_frame) {
            let mut full = Vec::new();
            for &place in &self.subscribed {
                let Some(Some(connection)) = self.connections.get(place) else { continue };
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                if rustix::net::send(&connection.stream, &write_frame, flags)
                    != Ok(write_frame.len())
                {
                    full.push(place);
                }
            }
            full.into_iter().for_each(|place| self.close(place));
        }
        self.write_frame = write_frame;
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
        let Some(at) = connection.subscribed_index.take() else { return };
        self.subscribed.swap_remove(at);
        if let Some(&moved) = self.subscribed.get(at)
            && let Some(Some(moved)) = self.connections.get_mut(moved)
        {
            moved.subscribed_index = Some(at);
        }
    }

    fn close(&mut self, place: usize) {
        self.unsubscribe(place);
        // Closing the socket also removes it from the poller.
        if self.connections.get_mut(place).is_some_and(|it| it.take().is_some()) {
            self.free.push(place);
        }
    }
}
