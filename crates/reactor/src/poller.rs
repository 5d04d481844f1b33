//! The poller of a reactor: reports which sockets have input or room, through `mio` (epoll on Linux, kqueue on macOS
//! and BSD).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Waker};

/// The maximum number of events of one wait: enough to amortise the system call, few enough to reach the mailbox soon.
const EVENTS_MAX: usize = 1024;

/// The key that [`Poller::waker`] reports. No token is equal to it, since a slab never has that many places.
pub(crate) const WAKER: u64 = u64::MAX;

// A key must fit into a `mio::Token`.
const _: () = assert!(usize::BITS >= u64::BITS, "a reactor needs a system of 64 bits");

/// The state of one socket that the system has announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// The key given to [`Poller::add`].
    pub(crate) key: u64,
    /// True if input or its end has arrived.
    pub(crate) readable: bool,
    /// True if the socket has room again.
    pub(crate) writable: bool,
    /// True if the peer sends no more, or the socket failed: it must be read until it reports that.
    pub(crate) ending: bool,
}

/// A set of watched descriptors. Each change is reported once (edge-triggered); a closed descriptor leaves the set by
/// itself.
#[derive(Debug)]
pub(crate) struct Poller {
    poll: Poll,
    /// Memory for the events of one wait, allocated once.
    events: Events,
}

impl Poller {
    /// Makes an empty set.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { poll: Poll::new()?, events: Events::with_capacity(EVENTS_MAX) })
    }

    /// Makes the waker of this poller, through which other threads end a wait. A poller has at most one.
    pub(crate) fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), token_of(WAKER))
    }

    /// Watches a descriptor for both directions at once, so that the registration never changes.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        let interests = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut SourceFd(&fd.as_raw_fd()), token_of(key), interests)
    }

    /// Waits for events, at most `timeout`, and appends them to `ready`. An interrupted wait has none.
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<Readiness>,
    ) -> io::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => ready.extend(self.events.iter().map(readiness)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn token_of(key: u64) -> mio::Token {
    // Lossless, see the assertion above.
    mio::Token(key as usize)
}

fn readiness(event: &Event) -> Readiness {
    let ending = event.is_read_closed() || event.is_write_closed() || event.is_error();
    Readiness {
        key: event.token().0 as u64,
        readable: ending || event.is_readable(),
        writable: event.is_writable() || event.is_write_closed() || event.is_error(),
        ending,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Waits for the first event of `key` with the `expected` readiness.
    fn wait_for(poller: &mut Poller, key: u64, expected: impl Fn(&Readiness) -> bool) {
        let mut ready = Vec::new();
        for _ in 0..100 {
            poller.wait(Some(Duration::from_millis(100)), &mut ready).expect("a poller of our own");
            if ready.drain(..).any(|it| it.key == key && expected(&it)) {
                return;
            }
        }
        panic!("no such event");
    }

    #[test]
    fn input_room_and_the_end_are_each_reported_once() {
        let mut poller = Poller::new().expect("a poller");
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        ours.set_nonblocking(true).expect("a socket");
        poller.add(ours.as_fd(), 7).expect("a descriptor can be watched");
        wait_for(&mut poller, 7, |it| it.writable && !it.ending);
        let mut ready = Vec::new();
        poller.wait(Some(Duration::ZERO), &mut ready).expect("a poller of our own");
        assert_eq!(ready, [], "the room was reported");
        theirs.write_all(b"x").expect("there is room");
        wait_for(&mut poller, 7, |it| it.readable && !it.ending);
        assert_eq!((&ours).read(&mut [0; 8]).expect("input"), 1);
        drop(theirs);
        wait_for(&mut poller, 7, |it| it.readable && it.ending);
        drop(ours);
        poller.wait(Some(Duration::ZERO), &mut ready).expect("a poller of our own");
        assert_eq!(ready, [], "a closed descriptor is not watched any more");
    }

    #[test]
    fn every_wake_up_ends_a_wait() {
        let mut poller = Poller::new().expect("a poller");
        let waker = poller.waker().expect("a waker");
        for _ in 0..3 {
            waker.wake().expect("a waker of our own");
            waker.wake().expect("a waker of our own");
            wait_for(&mut poller, WAKER, |it| it.readable);
        }
        let mut ready = Vec::new();
        poller.wait(Some(Duration::ZERO), &mut ready).expect("a poller of our own");
        assert_eq!(ready, [], "wake-ups are reported once");
    }
}
