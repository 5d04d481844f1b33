//! `starling bench floor`: the least that answering over HTTP/1.1 can cost.
//!
//! One epoll loop reads each request whole (head and `content-length` body) and writes the same prepared answer. No
//! routing, no GraphQL, no task: what a router needs above this, measured in the same run, is its own doing.
//!
//! [`broadcast`] is the same for subscriptions.

pub mod broadcast;

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::epoll;

/// Bytes of a request, head and body. Whoever sends more is disconnected.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;

/// Read from a socket at a time.
const READ_BYTES: usize = 64 * 1024;

/// Events taken from the kernel at a time.
const EVENTS: usize = 256;

/// The listener's place among events; connections count from 0.
const LISTENER: u64 = u64::MAX;

/// A listener that is bound and does not serve yet.
#[derive(Debug)]
pub struct Floor {
    listener: TcpListener,
    answer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    /// Bytes of the answer that are still to be written.
    pending: usize,
}

impl Floor {
    /// Binds. `body` is the body of every answer.
    ///
    /// # Errors
    /// Where the address cannot be bound.
    pub fn bind(listen: SocketAddr, body: &[u8]) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        answer.extend_from_slice(body);
        Ok(Self { listener, answer })
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
                    // A client that has left again, or no free descriptor: the others are served.
                    if let Ok(connection) = self.accept(&poller, next) {
                        connections.insert(next, connection);
                        next += 1;
                    }
                    continue;
                }
                let Some(connection) = connections.get_mut(&id) else { continue };
                if self.turn(&poller, id, connection, &mut buffer).is_err() {
                    connections.remove(&id);
                }
            }
        }
    }

    fn accept(&self, poller: &OwnedFd, id: u64) -> io::Result<Connection> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(poller, &stream, epoll::EventData::new_u64(id), epoll::EventFlags::IN)?;
        Ok(Connection { stream, input: Vec::new(), pending: 0 })
    }

    /// Reads or writes what is there; an error ends the connection.
    fn turn(
        &self,
        poller: &OwnedFd,
        id: u64,
        connection: &mut Connection,
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
            connection.pending = self.answer.len();
        }
        let from = self.answer.len() - connection.pending;
        match connection.stream.write(&self.answer[from..]) {
            Ok(count) => connection.pending -= count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let wanted = match connection.pending {
            0 => epoll::EventFlags::IN,
            _ => epoll::EventFlags::OUT,
        };
        epoll::modify(poller, &connection.stream, epoll::EventData::new_u64(id), wanted)?;
        Ok(())
    }
}

/// The length of the request at the front, once its head is there.
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
