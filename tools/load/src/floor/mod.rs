//! `starling bench floor`: the minimum cost of responding over HTTP/1.1.
//!
//! One epoll loop reads each request whole (head and `content-length` body) and writes the same prepared response. It
//! has no routing, no GraphQL and no tasks: the cost of a router above this, measured in the same run, is the router's
//! own.
//!
//! [`broadcast`] is the floor for subscriptions.

pub mod broadcast;

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::epoll;

/// The maximum length of a request, head and body. A client that sends more is disconnected.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;

/// The number of bytes read from a socket at a time.
const READ_BYTES: usize = 64 * 1024;

/// The number of events taken from the kernel at a time.
const EVENTS: usize = 256;

/// The key of the listener among epoll events; the keys of connections count from 0.
const LISTENER: u64 = u64::MAX;

/// A bound listener that does not serve yet.
#[derive(Debug)]
pub struct Floor {
    listener: TcpListener,
    response: Vec<u8>,
}

struct FloorConnection {
    stream: TcpStream,
    input: Vec<u8>,
    /// The number of bytes of the response that are still to be written.
    pending: usize,
}

impl Floor {
    /// Binds the listener. `body` is the body of every response.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind(listen: SocketAddr, body: &[u8]) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let mut response = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        response.extend_from_slice(body);
        Ok(Self { listener, response })
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
    /// That failure.
    pub fn serve(&self) -> io::Result<()> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&poller, &self.listener, data, epoll::EventFlags::IN)?;
        let mut connections = HashMap::new();
        let mut next = 0;
        let mut events = Vec::with_capacity(EVENTS);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match epoll::wait(&poller, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                let id = event.data.u64();
                if id == LISTENER {
                    // The client has disconnected again, or no descriptor is free: the other clients are still served.
                    if let Ok(connection) = self.accept(&poller, next) {
                        connections.insert(next, connection);
                        next += 1;
                    }
                    continue;
                }
                let Some(connection) = connections.get_mut(&id) else { continue };
                if self.handle_ready(&poller, id, connection, &mut buffer).is_err() {
                    connections.remove(&id);
                }
            }
        }
    }

    fn accept(&self, poller: &OwnedFd, id: u64) -> io::Result<FloorConnection> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(poller, &stream, epoll::EventData::new_u64(id), epoll::EventFlags::IN)?;
        Ok(FloorConnection { stream, input: Vec::new(), pending: 0 })
    }

    /// Reads or writes as much as possible; an error ends the connection.
    fn handle_ready(
        &self,
        poller: &OwnedFd,
        id: u64,
        connection: &mut FloorConnection,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        if connection.pending == 0 {
            match connection.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => connection.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            let Some(length) = request_length(&connection.input)? else { return Ok(()) };
            if connection.input.len() < length {
                return Ok(());
            }
            connection.input.drain(..length);
            connection.pending = self.response.len();
        }
        let from = self.response.len() - connection.pending;
        match connection.stream.write(&self.response[from..]) {
            Ok(count) => connection.pending -= count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let interest = match connection.pending {
            0 => epoll::EventFlags::IN,
            _ => epoll::EventFlags::OUT,
        };
        epoll::modify(poller, &connection.stream, epoll::EventData::new_u64(id), interest)?;
        Ok(())
    }
}

/// Returns the length of the request at the front of `input`, once its head is complete.
fn request_length(input: &[u8]) -> io::Result<Option<usize>> {
    let Some(end) = memchr::memmem::find(input, b"\r\n\r\n") else {
        return if input.len() > REQUEST_BYTES_MAX {
            Err(ErrorKind::InvalidData.into())
        } else {
            Ok(None)
        };
    };
    let head = String::from_utf8_lossy(&input[..end]).to_ascii_lowercase();
    let body = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .map_or(Ok(0), |value| value.trim().parse::<usize>())
        .map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
    if body > REQUEST_BYTES_MAX {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(Some(end + 4 + body))
}
