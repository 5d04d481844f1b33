//! What tells which sockets have something to say: epoll, edge-triggered. A kqueue would implement [`Poller`].

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

/// How many events one wait takes: enough to pay for the call, few enough to get to the mailbox soon.
const EVENTS_MAX: usize = 1024;

/// One socket's news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    /// As given to [`Poller::add`].
    pub(crate) key: u64,
    /// Bytes have arrived, or the end.
    pub(crate) readable: bool,
    /// There is room again.
    pub(crate) writable: bool,
    /// The peer sends no more, or the socket failed: reading must go on until it says so.
    pub(crate) ending: bool,
}

/// Watches descriptors. Each change is told once (edge-triggered); a closed descriptor is forgotten by itself.
pub(crate) trait Poller: Sized {
    /// Without any descriptor.
    fn new() -> io::Result<Self>;
    /// Watches for both directions at once, so that nothing has to be changed later.
    fn add(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()>;
    /// Waits for news, at most that long. Interrupted waits give none.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()>;
}

/// See epoll(7).
#[derive(Debug)]
pub(crate) struct Epoll {
    epoll: OwnedFd,
}

impl Poller for Epoll {
    fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    fn add(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        use epoll::EventFlags;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(key), flags)?;
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let timeout = timeout.map(|it| Timespec {
            tv_sec: it.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: i64::from(it.subsec_nanos()),
        });
        let mut events = [MaybeUninit::uninit(); EVENTS_MAX];
        let events = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => &*events,
            Err(rustix::io::Errno::INTR) => &[],
            Err(error) => return Err(error.into()),
        };
        ready.extend(events.iter().map(|event| {
            use epoll::EventFlags;
            let flags = event.flags;
            let ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            Ready {
                key: event.data.u64(),
                readable: ending || flags.contains(EventFlags::IN),
                writable: flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP),
                ending,
            }
        }));
        Ok(())
    }
}
