//! The thread of a reactor: waits, lets sockets and the application have their turns, and ends connections.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use wire::connection::Protocol;

use crate::poller::{Epoll, Poller, Ready};
use crate::{Mailbox, Sockets, Token};

/// The key of the mailbox; no token is ever equal to it, since a slab does not get that large.
const MAIL: u64 = u64::MAX;

/// What lives above the sockets of a reactor. All its methods are called on the reactor's thread, and none of them may
/// wait: whatever takes longer belongs to another thread, which answers through the [`Mailbox`].
///
/// A panic in one of them costs the connection that it was called for, and no other.
pub trait Application: Send + Sized + 'static {
    /// What the sockets speak.
    type Protocol: Protocol + Send;
    /// What is kept for each connection.
    type Client: Send;
    /// What other threads say.
    type Message: Send + 'static;

    /// A peer means something.
    fn event(
        &mut self,
        sockets: &mut Sockets<Self::Protocol, Self::Client>,
        token: Token,
        event: <Self::Protocol as Protocol>::Event,
    );

    /// Another thread says something.
    fn message(
        &mut self,
        sockets: &mut Sockets<Self::Protocol, Self::Client>,
        message: Self::Message,
    );

    /// A socket that was full has taken everything.
    fn writable(&mut self, sockets: &mut Sockets<Self::Protocol, Self::Client>, token: Token);

    /// A connection is over. Nothing follows for it.
    fn closed(&mut self, token: Token, client: Self::Client);
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
        make: impl FnOnce(&Arc<Mailbox<A::Message>>) -> A,
    ) -> io::Result<Self> {
        let mailbox = Arc::new(Mailbox::new()?);
        let epoll = Epoll::new()?;
        epoll.add(mailbox.fd(), MAIL)?;
        let stop = Arc::new(AtomicBool::new(false));
        let running = Running {
            application: make(&mailbox),
            sockets: Sockets::new(epoll, Instant::now()),
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
    sockets: Sockets<A::Protocol, A::Client>,
    mailbox: Arc<Mailbox<A::Message>>,
    stop: Arc<AtomicBool>,
}

impl<A: Application> Running<A> {
    fn run(mut self) {
        let mut ready = Vec::new();
        let mut messages = Vec::new();
        let mut due = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            self.wait(&mut ready);
            self.sockets.now = Instant::now();
            for news in ready.drain(..) {
                if news.key == MAIL {
                    self.mailbox.take(&mut messages);
                } else {
                    self.guarded(Token::from_u64(news.key), |this| this.ready(news));
                }
            }
            for message in messages.drain(..) {
                // The message is gone either way; what it was about stays as it is.
                let said =
                    AssertUnwindSafe(|| self.application.message(&mut self.sockets, message));
                let _ = catch_unwind(said);
                self.settle();
            }
            for token in std::mem::take(&mut self.sockets.unread) {
                self.guarded(token, |this| this.read_on(token));
            }
            self.sockets.wheel.fire(self.sockets.now, &mut due);
            for (tick, token) in due.drain(..) {
                self.guarded(token, |this| this.sockets.timeout(tick, token));
            }
            if messages.capacity() > MESSAGES_KEPT {
                messages = Vec::new();
            }
        }
        for token in self.sockets.tokens() {
            self.end(token);
        }
    }

    fn wait(&mut self, ready: &mut Vec<Ready>) {
        let sockets = &mut self.sockets;
        let timeout = if sockets.unread.is_empty() {
            sockets.wheel.next().map(|at| at.saturating_duration_since(Instant::now()))
        } else {
            Some(std::time::Duration::ZERO)
        };
        if sockets.epoll.wait(timeout, ready).is_err() {
            // Not possible for an epoll instance of our own; if it were, spinning would be worse than slowness.
            std::thread::yield_now();
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
            entry.has_more = false;
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
            self.end(token);
        }
    }

    fn end(&mut self, token: Token) {
        if let Some(entry) = self.sockets.slab.remove(token) {
            drop(entry.socket);
            let closed = AssertUnwindSafe(|| self.application.closed(token, entry.client));
            let _ = catch_unwind(closed);
        }
    }
}

/// A list of messages that grew beyond this gives its memory back.
const MESSAGES_KEPT: usize = 4096;
