//! How other threads reach a reactor: a list under a lock, and an eventfd that wakes the thread once per batch.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::EventfdFlags;

/// The way to one reactor thread. Messages arrive in the order in which they were sent.
///
/// It has no bound: whoever sends what nobody can hold back (events, say) bounds that at the sender.
#[derive(Debug)]
pub struct Mailbox<M> {
    messages: Mutex<Vec<M>>,
    wake: OwnedFd,
}

impl<M> Mailbox<M> {
    pub(crate) fn new() -> io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { messages: Mutex::default(), wake })
    }

    /// Hands over one message. Never waits. Once the thread has ended, messages go nowhere.
    pub fn send(&self, message: M) {
        let mut messages = self.lock();
        let was_empty = messages.is_empty();
        messages.push(message);
        drop(messages);
        if was_empty {
            // Whoever finds the list empty wakes the thread; it takes all that came until it looks.
            self.wake();
        }
    }

    /// Ends the thread's wait.
    pub(crate) fn wake(&self) {
        // Fails only where the counter is full, and then the thread is awake anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// What to watch.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Moves all messages into `taken`, which must be empty and lends its memory.
    pub(crate) fn take(&self, taken: &mut Vec<M>) {
        debug_assert!(taken.is_empty(), "what is in there would be put back into the mailbox");
        // Before the list is looked at: what comes after the look wakes again.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::swap(&mut *self.lock(), taken);
    }

    /// Nothing runs user code under this lock, so a poisoned one holds a sound list.
    fn lock(&self) -> MutexGuard<'_, Vec<M>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
