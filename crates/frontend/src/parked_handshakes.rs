//! WebSocket handshakes that wait before a worker serves their connections.
//!
//! When a router or a network has failed, all clients return at once, and the handshakes have a pace
//! ([`clients::handshake_pace`]). The kernel's queue of connections is first come, first served: if the listener left
//! them there, a query on a new connection would wait behind thousands of handshakes for seconds. So it accepts the
//! connections, looks at their first bytes without taking them, and parks those that begin with a handshake. A parked
//! connection is a descriptor and some bytes. One that waits for its turn in HTTP also has a task and its buffers.
//!
//! The first bytes behind TLS and those of Unix domain sockets are not looked at: such connections wait in the kernel.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The number of first bytes that are looked at: enough for the header of a handshake with a token.
const FIRST_BYTES: usize = 8 * 1024;

/// The time for which a connection is parked at most. Load balancers wait for a response for 30 to 60 seconds, and a
/// refused client would be back no sooner.
pub(crate) const PARKED_TIME_MAX: Duration = Duration::from_secs(20);

/// The kind of the first bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstBytes {
    /// Nothing has arrived yet.
    None,
    /// A WebSocket handshake.
    Handshake,
    /// A GET of which the whole header is not there.
    Undecided,
    /// Anything else, or the end of the connection.
    Other,
}

impl FirstBytes {
    /// Looks at the first bytes of a connection that does not block. They stay there.
    pub(crate) fn of(socket: &TcpStream) -> Self {
        let mut bytes = [0; FIRST_BYTES];
        match socket.peek(&mut bytes) {
            Ok(length) => Self::of_bytes(&bytes[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Self::None,
            Err(_) => Self::Other,
        }
    }

    /// Reads the beginning of a request. A handshake is one that asks for a WebSocket (RFC 6455, section 4.1).
    fn of_bytes(bytes: &[u8]) -> Self {
        const METHOD: &[u8] = b"GET ";
        const NAME: &[u8] = b"upgrade:";
        const VALUE: &[u8] = b"websocket";
        let begins_with = |bytes: &[u8], word: &[u8]| {
            bytes.get(..word.len()).is_some_and(|it| it.eq_ignore_ascii_case(word))
        };
        let compared = bytes.len().min(METHOD.len());
        if bytes.is_empty() || bytes[..compared] != METHOD[..compared] {
            return Self::Other;
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n').skip(1) {
            if begins_with(line, NAME) && begins_with(line[NAME.len()..].trim_ascii_start(), VALUE)
            {
                return Self::Handshake;
            }
            if line == b"\r\n" || line == b"\n" {
                return Self::Other;
            }
        }
        Self::Undecided
    }
}

/// True if the client has closed a connection. Bytes that wait to be read hide the end behind them from other looks.
pub(crate) fn has_gone(socket: &TcpStream) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    #[cfg(target_os = "linux")]
    let end = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    #[cfg(not(target_os = "linux"))]
    let end = PollFlags::HUP | PollFlags::ERR;
    let mut looked_at = [PollFd::new(socket, end)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut looked_at, Some(&now)).is_ok() && looked_at[0].revents().intersects(end)
}

/// The parked handshakes of one listener, the first one first. `T` is a connection.
#[derive(Debug)]
pub(crate) struct ParkedHandshakes<T> {
    waiting: Mutex<VecDeque<(Instant, T)>>,
    /// The number that wait at all listeners.
    total: Arc<AtomicU64>,
    arrived: Notify,
}

/// The outcome for the first parked handshake.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unparked<T> {
    /// It may begin.
    Begins(T),
    /// It has waited for too long.
    IsLate(T),
}

impl<T> ParkedHandshakes<T> {
    /// Creates the handshakes of a listener, and counts them in `total` as well.
    pub(crate) fn new(total: Arc<AtomicU64>) -> Self {
        Self { waiting: Mutex::default(), total, arrived: Notify::new() }
    }

    /// Parks a connection.
    pub(crate) fn push(&self, connection: T) {
        self.lock().push_back((Instant::now(), connection));
        self.total.fetch_add(1, Ordering::Relaxed);
        self.arrived.notify_one();
    }

    /// Takes the first connection if it may begin, or if it has waited for longer than [`PARKED_TIME_MAX`].
    pub(crate) fn pop(&self, may_begin: impl FnOnce() -> bool) -> Option<Unparked<T>> {
        let mut waiting = self.lock();
        let (since, _) = waiting.front()?;
        let is_late = since.elapsed() > PARKED_TIME_MAX;
        if !is_late && !may_begin() {
            return None;
        }
        let (_, connection) = waiting.pop_front()?;
        if waiting.is_empty() {
            // A storm is over.
            *waiting = VecDeque::new();
        }
        self.total.fetch_sub(1, Ordering::Relaxed);
        Some(if is_late { Unparked::IsLate(connection) } else { Unparked::Begins(connection) })
    }

    /// True if none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Waits until one is parked. Returns at once if one was parked since the last call.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, T)>> {
        // No code panics half way under this lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for ParkedHandshakes<T> {
    fn drop(&mut self) {
        let left = self.lock().len() as u64;
        self.total.fetch_sub(left, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use telemetry::read;

    use super::*;

    #[test]
    fn a_handshake_is_recognised_by_its_header() {
        let long = format!("GET / HTTP/1.1\r\nauthorization: {}\r\n", "x".repeat(4000));
        for (text, expected) in [
            ("GET /graphql HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n", FirstBytes::Handshake),
            ("GET / HTTP/1.1\r\nuPGRADE:WebSocket\r\n\r\n", FirstBytes::Handshake),
            (&format!("{long}Upgrade: websocket\r\n\r\n"), FirstBytes::Handshake),
            (&long, FirstBytes::Undecided),
            ("G", FirstBytes::Undecided),
            ("GET ", FirstBytes::Undecided),
            ("GET / HTTP/1.1\r\nupgrade: web", FirstBytes::Undecided),
            ("", FirstBytes::Other),
            ("GET /upgrade:websocket HTTP/1.1\r\n\r\n", FirstBytes::Other),
            ("GET / HTTP/1.1\r\nupgrade: h2c\r\n\r\n", FirstBytes::Other),
            ("GET / HTTP/1.1\r\nx-upgrade: websocket\r\n\r\n", FirstBytes::Other),
            ("GET / HTTP/1.1\r\n\r\nupgrade: websocket\r\n", FirstBytes::Other),
            ("POST / HTTP/1.1\r\nupgrade: websocket\r\n\r\n", FirstBytes::Other),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", FirstBytes::Other),
        ] {
            assert_eq!(FirstBytes::of_bytes(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn looking_at_first_bytes_leaves_them_there() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut client = TcpStream::connect(address).expect("the listener is bound");
        let (socket, _) = listener.accept().expect("a client has connected");
        socket.set_nonblocking(true).expect("an option of sockets");
        assert_eq!(FirstBytes::of(&socket), FirstBytes::None);
        let handshake = b"GET / HTTP/1.1\r\nupgrade: websocket\r\n\r\n";
        client.write_all(handshake).expect("room in the buffer");
        while FirstBytes::of(&socket) == FirstBytes::None {
            std::thread::yield_now();
        }
        assert_eq!(FirstBytes::of(&socket), FirstBytes::Handshake);
        assert_eq!(FirstBytes::of(&socket), FirstBytes::Handshake);
        assert!(!has_gone(&socket));
        drop(client);
        while !has_gone(&socket) {
            std::thread::yield_now();
        }
        assert_eq!(FirstBytes::of(&socket), FirstBytes::Handshake, "they hide the end");
    }

    #[tokio::test(start_paused = true)]
    async fn handshakes_begin_in_order_and_those_that_wait_for_too_long_do_not() {
        let total = Arc::new(AtomicU64::new(7));
        let parked = ParkedHandshakes::new(Arc::clone(&total));
        (1..=4).for_each(|number| parked.push(number));
        parked.arrived().await;
        assert_eq!(read(&total), 11);
        assert_eq!(parked.pop(|| false), None);
        assert_eq!(parked.pop(|| true), Some(Unparked::Begins(1)));
        tokio::time::advance(PARKED_TIME_MAX + Duration::from_millis(1)).await;
        assert_eq!(parked.pop(|| false), Some(Unparked::IsLate(2)));
        parked.push(5);
        assert_eq!(parked.pop(|| true), Some(Unparked::IsLate(3)));
        assert_eq!(read(&total), 9);
        drop(parked);
        assert_eq!(read(&total), 7);
    }
}
