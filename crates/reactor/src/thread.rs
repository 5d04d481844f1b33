//! The thread of a reactor: waits, lets sockets and the application have their turns, and ends connections.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wire::Machine;

use crate::connection::{Phase, Reading};
use crate::poller::{Epoll, Poller, Ready};
use crate::{End, Mailbox, Sockets, Token};

/// The key of the mailbox; no token is ever equal to it, since a slab does not get that large.
const MAIL: u64 = u64::MAX;

/// What lives above the sockets of a reactor. All its methods are called on the reactor's thread, and none of them may
/// wait: whatever takes longer belongs to another thread, which answers through the [`Mailbox`].
///
/// A panic in one of them costs the connection that it was called for, and no other.
pub trait Application: Send + Sized + 'static {
    /// What the sockets speak.
    type Machine: Machine + Send;
    /// What is kept for each connection.
    type Client: Send;
    /// What other threads say.
    type Message: Send + 'static;

    /// A peer means something.
    fn event(
        &mut self,
        sockets: &mut Sockets<Self::Machine, Self::Client>,
        token: Token,
        event: <Self::Machine as Machine>::Event,
    );

    /// Another thread says something.
    fn message(
        &mut self,
        sockets: &mut Sockets<Self::Machine, Self::Client>,
        message: Self::Message,
    );

    /// When the application wants to be asked what to do, though nothing comes; `None`: never.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// That is now.
    fn handle_timeout(&mut self, _: &mut Sockets<Self::Machine, Self::Client>) {}

    /// A socket that was full has taken everything.
    fn writable(&mut self, sockets: &mut Sockets<Self::Machine, Self::Client>, token: Token);

    /// A connection is over. Nothing follows for it.
    fn closed(&mut self, token: Token, client: Self::Client, end: End);
}

/// How the connections of a reactor are treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long a peer may take nothing at all of what waits for it.
    pub stall_time_max: Duration,
}

/// One thread with its sockets. Dropping it stops the thread and closes them all.
pub struct Reactor<A: Application> {
    mailbox: Arc<Mailbox<A::Message>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<A: Application> Reactor<A> {
    /// Starts a thread of that name. `make` is given the mailbox, for an application that hands it on.
    ///
    /// # Errors
    /// Where the system gives no thread, epoll instance or eventfd.
    pub fn start(
        name: String,
        settings: Settings,
        make: impl FnOnce(&Arc<Mailbox<A::Message>>) -> A,
    ) -> io::Result<Self> {
        let mailbox = Arc::new(Mailbox::new()?);
        let epoll = Epoll::new()?;
        epoll.add(mailbox.fd(), MAIL)?;
        let stop = Arc::new(AtomicBool::new(false));
        let running = Running {
            application: make(&mailbox),
            sockets: Sockets::new(epoll, settings.stall_time_max, Instant::now()),
            mailbox: Arc::clone(&mailbox),
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new().name(name).spawn(move || running.run())?;
        Ok(Self { mailbox, stop, thread: Some(thread) })
    }

    /// How to reach it.
    pub fn mailbox(&self) -> &Arc<Mailbox<A::Message>> {
        &self.mailbox
    }
}

impl<A: Application> Drop for Reactor<A> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.mailbox.wake();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own hook.
            let _ = thread.join();
        }
    }
}

struct Running<A: Application> {
    application: A,
    sockets: Sockets<A::Machine, A::Client>,
    mailbox: Arc<Mailbox<A::Message>>,
    stop: Arc<AtomicBool>,
}

impl<A: Application> Running<A> {
    fn run(mut self) {
        let mut ready = Vec::new();
        let mut taken = Vec::new();
        let mut messages = VecDeque::new();
        let mut due = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            self.wait(&mut ready, messages.is_empty());
            for news in ready.drain(..) {
                if news.key == MAIL {
                    self.mailbox.take(&mut taken);
                    messages.extend(taken.drain(..));
                } else {
                    self.guarded(Token::from_u64(news.key), |this| this.ready(news));
                }
            }
            self.obey(&mut messages);
            for token in std::mem::take(&mut self.sockets.unread) {
                self.guarded(token, |this| this.read_on(token));
            }
            self.sockets.wheel.fire(self.sockets.now, &mut due);
            for (tick, place) in due.drain(..) {
                if let Some(token) = self.sockets.slab.token_at(place) {
                    self.guarded(token, |this| this.sockets.timeout(tick, token));
                }
            }
            if self.application.poll_timeout().is_some_and(|at| at <= self.sockets.now) {
                // What it was about stays as it is.
                let asked = AssertUnwindSafe(|| self.application.handle_timeout(&mut self.sockets));
                let _ = catch_unwind(asked);
                self.settle();
            }
            if taken.capacity() > MESSAGES_KEPT {
                taken = Vec::new();
            }
            if messages.is_empty() && messages.capacity() > MESSAGES_KEPT {
                messages = VecDeque::new();
            }
        }
        for token in self.sockets.tokens() {
            self.end(token);
        }
    }

    /// Waits for news, unless something is to be done already.
    fn wait(&mut self, ready: &mut Vec<Ready>, is_idle: bool) {
        let sockets = &mut self.sockets;
        let timeout = if is_idle && sockets.unread.is_empty() {
            let next = [sockets.wheel.next(), self.application.poll_timeout()];
            let next = next.into_iter().flatten().min();
            next.map(|at| at.saturating_duration_since(Instant::now()))
        } else {
            Some(Duration::ZERO)
        };
        if sockets.epoll.wait(timeout, ready).is_err() {
            // Not possible for an epoll instance of our own; if it were, spinning would be worse than slowness.
            std::thread::yield_now();
        }
        sockets.now = Instant::now();
    }

    /// Lets the application hear other threads, for a while: each message may be a write to every socket, and peers
    /// want to be heard as well.
    fn obey(&mut self, messages: &mut VecDeque<A::Message>) {
        let turn_ends = self.sockets.now + MESSAGES_TIME_MAX;
        while let Some(message) = messages.pop_front() {
            // The message is gone either way; what it was about stays as it is.
            let said = AssertUnwindSafe(|| self.application.message(&mut self.sockets, message));
            let _ = catch_unwind(said);
            self.settle();
            if messages.is_empty() {
                break;
            }
            self.sockets.now = Instant::now();
            if self.sockets.now >= turn_ends {
                break;
            }
        }
    }

    fn ready(&mut self, news: Ready) {
        let token = Token::from_u64(news.key);
        if news.writable && self.sockets.flush(token) {
            self.application.writable(&mut self.sockets, token);
            self.sockets.touch(token);
        }
        if news.readable {
            self.sockets.read(token, news.ending);
        }
    }

    fn read_on(&mut self, token: Token) {
        if let Some(entry) = self.sockets.slab.get_mut(token) {
            entry.reading = Reading::Done;
            // Whether the peer has ended meanwhile was told once, and is not known any more.
            self.sockets.read(token, true);
        }
    }

    /// Does something for a connection and settles what follows. A panic ends it.
    fn guarded(&mut self, token: Token, turn: impl FnOnce(&mut Self)) {
        let done = catch_unwind(AssertUnwindSafe(|| turn(self)));
        if done.is_err() {
            self.end(token);
        }
        self.settle();
    }

    /// Lets every connection that was spoken to say what it has to say, and the application hear it.
    fn settle(&mut self) {
        while let Some(token) = self.sockets.dirty.pop() {
            if catch_unwind(AssertUnwindSafe(|| self.settle_one(token))).is_err() {
                self.end(token);
            }
        }
    }

    fn settle_one(&mut self, token: Token) {
        if let Some(entry) = self.sockets.slab.get_mut(token) {
            entry.is_dirty = false;
        }
        loop {
            self.sockets.transmit(token);
            let Some(entry) = self.sockets.slab.get_mut(token) else { return };
            let Some(event) = entry.machine.poll_event() else { break };
            self.application.event(&mut self.sockets, token, event);
        }
        if self.sockets.is_over(token) {
            return self.end(token);
        }
        self.sockets.resume_reading(token);
    }

    fn end(&mut self, token: Token) {
        if let Some(entry) = self.sockets.slab.remove(token) {
            let end = match entry.phase {
                Phase::Lost(end) => end,
                Phase::Open | Phase::Farewell(_) | Phase::HangUp(_) => End::Closed,
            };
            drop(entry.stream);
            let closed = AssertUnwindSafe(|| self.application.closed(token, entry.client, end));
            let _ = catch_unwind(closed);
        }
    }
}

/// How long messages of other threads keep a reactor from looking at its sockets, but for the one that is being obeyed.
const MESSAGES_TIME_MAX: Duration = Duration::from_millis(5);

/// A list of messages that grew beyond this gives its memory back.
const MESSAGES_KEPT: usize = 4096;
