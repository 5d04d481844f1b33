//! The thread of a reactor: an event loop that serves sockets, messages, timers and the application in turn.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wire::Machine;

use crate::connection::{Phase, ReadState};
use crate::endings::Endings;
use crate::poller::{Poller, Readiness, WAKER};
use crate::{ConnectionEnd, Mailbox, Sockets, Token};

/// The code above the sockets of a reactor. All methods are called on the reactor's thread and must not block: longer
/// work belongs to another thread, which sends its result through the [`Mailbox`].
///
/// A panic in a method ends the connection that the method was called for, and no other.
pub trait Application: Send + Sized + 'static {
    /// The protocol machine of each connection.
    type Machine: Machine + Send;
    /// The application's data of each connection.
    type Client: Send;
    /// A message from another thread.
    type Message: Send + 'static;

    /// Handles an event of a connection's machine.
    fn on_event(
        &mut self,
        sockets: &mut Sockets<Self::Machine, Self::Client>,
        token: Token,
        event: <Self::Machine as Machine>::Event,
    );

    /// Handles a message from another thread. May also take messages from the front of `following`, those behind it, if
    /// handling them together is cheaper. [`Mailbox::take_more`] adds those that have arrived since.
    fn on_message(
        &mut self,
        sockets: &mut Sockets<Self::Machine, Self::Client>,
        message: Self::Message,
        following: &mut VecDeque<Self::Message>,
    );

    /// Returns the time at which [`Application::handle_timeout`] is to be called; `None` for never.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Handles the timeout of [`Application::poll_timeout`].
    fn handle_timeout(&mut self, _: &mut Sockets<Self::Machine, Self::Client>) {}

    /// Handles that very many connections wait for their ends, which make other work slow. Called a few times a second
    /// meanwhile.
    fn on_many_leaving(&mut self) {}

    /// Handles a socket that was full and has sent everything.
    fn on_writable(&mut self, sockets: &mut Sockets<Self::Machine, Self::Client>, token: Token);

    /// Handles the end of a connection. No other call follows for it.
    fn on_closed(&mut self, token: Token, client: Self::Client, end: ConnectionEnd);
}

/// The settings of a reactor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReactorSettings {
    /// The time that a peer may take nothing at all of the unsent bytes.
    pub stall_time_max: Duration,
}

/// One thread with its sockets. Dropping it stops the thread and closes all sockets.
pub struct Reactor<A: Application> {
    mailbox: Arc<Mailbox<A::Message>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<A: Application> Reactor<A> {
    /// Starts a thread with that name. `make` receives the mailbox, for an application that passes it on.
    ///
    /// # Errors
    /// The system provides no thread or no poller (descriptors are used up).
    pub fn start(
        name: String,
        settings: ReactorSettings,
        make: impl FnOnce(&Arc<Mailbox<A::Message>>) -> A,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        let mailbox = Arc::new(Mailbox::new(&poller)?);
        let stop = Arc::new(AtomicBool::new(false));
        let event_loop = EventLoop {
            application: make(&mailbox),
            sockets: Sockets::new(poller, settings.stall_time_max, Instant::now()),
            mailbox: Arc::clone(&mailbox),
            stop: Arc::clone(&stop),
            endings: Endings::new(),
        };
        let thread = std::thread::Builder::new().name(name).spawn(move || event_loop.run())?;
        Ok(Self { mailbox, stop, thread: Some(thread) })
    }

    /// Returns the mailbox, through which other threads reach the reactor.
    pub fn mailbox(&self) -> &Arc<Mailbox<A::Message>> {
        &self.mailbox
    }
}

impl<A: Application> Drop for Reactor<A> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.mailbox.wake();
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of that thread.
            let _ = thread.join();
        }
    }
}

struct EventLoop<A: Application> {
    application: A,
    sockets: Sockets<A::Machine, A::Client>,
    mailbox: Arc<Mailbox<A::Message>>,
    stop: Arc<AtomicBool>,
    endings: Endings,
}

impl<A: Application> EventLoop<A> {
    fn run(mut self) {
        let mut ready = Vec::new();
        let mut taken = Vec::new();
        let mut messages = VecDeque::new();
        let mut due = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            self.wait(&mut ready, messages.is_empty());
            for readiness in ready.drain(..) {
                if readiness.key == WAKER {
                    self.mailbox.take_all(&mut taken);
                    messages.extend(taken.drain(..));
                } else if readiness.ending {
                    self.sockets.begin_leaving(Token::from_u64(readiness.key));
                    self.endings.add(readiness, self.sockets.now);
                } else {
                    self.serve(readiness);
                }
            }
            self.serve_endings();
            self.mailbox.note_leaving(self.endings.len());
            self.handle_messages(&mut messages);
            for token in std::mem::take(&mut self.sockets.unread) {
                self.run_guarded(token, |this| this.read_again(token));
            }
            self.sockets.wheel.fire(self.sockets.now, &mut due);
            for (tick, place) in due.drain(..) {
                if let Some(token) = self.sockets.slab.token_at(place) {
                    self.run_guarded(token, |this| this.sockets.on_timer(tick, token));
                }
            }
            if self.application.poll_timeout().is_some_and(|at| at <= self.sockets.now) {
                // After a panic the state of the application stays as it is.
                let asked = AssertUnwindSafe(|| self.application.handle_timeout(&mut self.sockets));
                let _ = catch_unwind(asked);
                self.process_dirty();
            }
            if taken.capacity() > MESSAGES_KEPT {
                taken = Vec::new();
            }
            if messages.is_empty() && messages.capacity() > MESSAGES_KEPT {
                messages = VecDeque::new();
            }
        }
        for token in self.sockets.tokens() {
            self.end_connection(token);
        }
    }

    /// Serves some of the connections that their peers have closed.
    fn serve_endings(&mut self) {
        let now = self.sockets.now;
        if self.mailbox.take_hurry() {
            self.endings.hurry(now);
        }
        if self.endings.announces_many(now) {
            // After a panic the state of the application stays as it is.
            let noted = AssertUnwindSafe(|| self.application.on_many_leaving());
            let _ = catch_unwind(noted);
        }
        let turn = self.endings.take_turn(now, self.sockets.arrivals.until(now));
        let mut left = turn;
        while let Some(readiness) = self.endings.next(&mut left) {
            self.sockets.end_leaving(Token::from_u64(readiness.key));
            self.serve(readiness);
        }
        if left < turn {
            self.endings.end_turn(Instant::now());
        }
    }

    /// Waits for events, unless there is work already.
    fn wait(&mut self, ready: &mut Vec<Readiness>, is_idle: bool) {
        let sockets = &mut self.sockets;
        let timeout = if is_idle && sockets.unread.is_empty() {
            let next = [
                sockets.wheel.next_deadline(),
                self.application.poll_timeout(),
                self.endings.next_turn(),
            ];
            let next = next.into_iter().flatten().min();
            next.map(|at| at.saturating_duration_since(Instant::now()))
        } else {
            Some(Duration::ZERO)
        };
        if sockets.poller.wait(timeout, ready).is_err() {
            // A poller of our own does not fail; if it did, a busy loop would be worse than slow service.
            std::thread::yield_now();
        }
        sockets.now = Instant::now();
    }

    /// Passes messages of other threads to the application, for a limited time: each message may write to every socket,
    /// and input must be read too.
    fn handle_messages(&mut self, messages: &mut VecDeque<A::Message>) {
        let turn_ends = self.sockets.now + MESSAGES_TIME_MAX;
        while let Some(message) = messages.pop_front() {
            // After a panic the message is lost and the state of the application stays as it is.
            let handle = AssertUnwindSafe(|| {
                self.application.on_message(&mut self.sockets, message, messages);
            });
            let _ = catch_unwind(handle);
            self.process_dirty();
            if messages.is_empty() {
                break;
            }
            self.sockets.now = Instant::now();
            if self.sockets.now >= turn_ends {
                break;
            }
        }
    }

    fn serve(&mut self, readiness: Readiness) {
        self.run_guarded(Token::from_u64(readiness.key), |this| this.on_ready(readiness));
    }

    fn on_ready(&mut self, readiness: Readiness) {
        let token = Token::from_u64(readiness.key);
        if readiness.writable && self.sockets.flush(token) {
            self.application.on_writable(&mut self.sockets, token);
            self.sockets.mark_dirty(token);
        }
        if readiness.readable {
            self.sockets.read_input(token, readiness.ending);
        }
    }

    fn read_again(&mut self, token: Token) {
        if let Some(connection) = self.sockets.slab.get_mut(token) {
            connection.reading = ReadState::Done;
            // The end of input was announced once, and is not recorded.
            self.sockets.read_input(token, true);
        }
    }

    /// Runs `turn` for a connection and processes its effects. A panic ends the connection.
    fn run_guarded(&mut self, token: Token, turn: impl FnOnce(&mut Self)) {
        let done = catch_unwind(AssertUnwindSafe(|| turn(self)));
        if done.is_err() {
            self.end_connection(token);
        }
        self.process_dirty();
    }

    /// Processes every connection that got commands or input: sends its output and passes its events to the
    /// application.
    fn process_dirty(&mut self) {
        while let Some(token) = self.sockets.dirty.pop() {
            if catch_unwind(AssertUnwindSafe(|| self.process_connection(token))).is_err() {
                self.end_connection(token);
            }
        }
    }

    fn process_connection(&mut self, token: Token) {
        if let Some(connection) = self.sockets.slab.get_mut(token) {
            connection.is_dirty = false;
        }
        loop {
            self.sockets.transmit(token);
            let Some(connection) = self.sockets.slab.get_mut(token) else { return };
            let Some(event) = connection.machine.poll_event() else { break };
            self.application.on_event(&mut self.sockets, token, event);
        }
        if self.sockets.update_phase(token) {
            return self.end_connection(token);
        }
        self.sockets.resume_reading(token);
    }

    fn end_connection(&mut self, token: Token) {
        if let Some(connection) = self.sockets.slab.remove(token) {
            let end = match connection.phase {
                Phase::Ended(end) => end,
                Phase::Open | Phase::Leaving | Phase::Closing(_) | Phase::HangUp(_) => {
                    ConnectionEnd::Closed
                }
            };
            drop(connection.stream);
            let closed =
                AssertUnwindSafe(|| self.application.on_closed(token, connection.client, end));
            let _ = catch_unwind(closed);
        }
    }
}

/// The time for which messages of other threads may keep a reactor from its sockets. The message in progress is always
/// finished.
const MESSAGES_TIME_MAX: Duration = Duration::from_millis(5);

/// The number of messages above which a list frees its memory after use.
const MESSAGES_KEPT: usize = 4096;
