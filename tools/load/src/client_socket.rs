//! The socket of a client of a load generator, non-blocking and watched by an epoll: connecting, writing one request at
//! a time, reading. What is written and read is decided by its owner.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use socket2::{Domain, Protocol, Socket, Type};

/// The socket, and the request that is being written.
#[derive(Default)]
pub(crate) struct ClientSocket {
    stream: Option<TcpStream>,
    output: Vec<u8>,
    written: usize,
    /// True if the poller also reports when the socket is writable.
    wants_write: bool,
}

/// The outcome of one read.
pub(crate) enum SocketRead {
    /// So many bytes are in the buffer; none at the end of the stream, also if the connection is broken.
    Bytes(usize),
    /// Nothing has arrived.
    Nothing,
}

impl ClientSocket {
    /// Begins to connect; the poller reports the completion with `number`. With `resets` the connection is reset when
    /// it is closed, so that many closed ones do not use up the ports.
    pub(crate) fn connect(
        &mut self,
        address: SocketAddr,
        resets: bool,
        poller: &OwnedFd,
        number: usize,
    ) -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if resets {
            socket.set_linger(Some(Duration::ZERO))?;
        }
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(poller, &socket, data, epoll::EventFlags::IN | epoll::EventFlags::OUT)?;
        self.stream = Some(socket.into());
        self.wants_write = true;
        Ok(())
    }

    /// True if an attempt to connect has failed.
    pub(crate) fn has_failed(&self) -> bool {
        let error = self.stream.as_ref().map(TcpStream::take_error);
        !matches!(error, Some(Ok(None)))
    }

    /// Closes the socket, which also removes it from the poller.
    pub(crate) fn close(&mut self) {
        self.stream = None;
        self.wants_write = false;
    }

    /// Begins a request. The caller fills the returned buffer, then calls [`ClientSocket::write`].
    pub(crate) fn begin_request(&mut self) -> &mut Vec<u8> {
        self.written = 0;
        &mut self.output
    }

    /// True if the whole request was written.
    pub(crate) fn has_written_all(&self) -> bool {
        self.written == self.output.len()
    }

    /// Writes as much as the socket accepts; false if the connection is broken.
    pub(crate) fn write(&mut self, poller: &OwnedFd, number: usize) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        while self.written < self.output.len() {
            match stream.write(&self.output[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.listen(poller, number, !self.has_written_all())
    }

    /// Updates the events that the poller reports, if they changed; false if the connection is broken.
    pub(crate) fn listen(&mut self, poller: &OwnedFd, number: usize, wants_write: bool) -> bool {
        if self.wants_write == wants_write {
            return true;
        }
        let Some(stream) = &self.stream else { return false };
        let data = epoll::EventData::new_u64(number as u64);
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, wants_write);
        self.wants_write = wants_write;
        epoll::modify(poller, stream, data, flags).is_ok()
    }

    /// Reads once.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> SocketRead {
        let Some(stream) = &mut self.stream else { return SocketRead::Nothing };
        match stream.read(buffer) {
            Ok(count) => SocketRead::Bytes(count),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                SocketRead::Nothing
            }
            Err(_) => SocketRead::Bytes(0),
        }
    }
}

/// Waits for events, for `left` at most. The wait is exact to microseconds if `is_exact`, unlike epoll's own timeout in
/// whole milliseconds.
pub(crate) fn wait_for_events(
    poller: &OwnedFd,
    events: &mut Vec<epoll::Event>,
    left: Duration,
    is_exact: bool,
) -> io::Result<()> {
    let mut timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    if is_exact && !left.is_zero() {
        let mut ready = [PollFd::new(poller, PollFlags::IN)];
        match poll(&mut ready, Some(&timeout)) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
    }
    match epoll::wait(poller, rustix::buffer::spare_capacity(events), Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
