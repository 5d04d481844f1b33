//! The mailbox of a reactor, through which other threads reach it: a list under a lock, and a waker that ends the wait
//! of the thread once per batch.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mio::Waker;

use crate::poller::Poller;

/// The mailbox of one reactor thread. Messages arrive in the order in which they were sent.
///
/// It is unbounded: a sender of messages that must not wait (events, for example) limits them itself.
#[derive(Debug)]
pub struct Mailbox<M> {
    messages: Mutex<Vec<M>>,
    waker: Waker,
}

impl<M> Mailbox<M> {
    /// Makes the mailbox of the thread that waits for `poller`.
    pub(crate) fn new(poller: &Poller) -> io::Result<Self> {
        Ok(Self { messages: Mutex::default(), waker: poller.waker()? })
    }

    /// Sends one message. Never waits. Once the thread has ended, messages are discarded.
    pub fn send(&self, message: M) {
        let mut messages = self.lock();
        let was_empty = messages.is_empty();
        messages.push(message);
        drop(messages);
        if was_empty {
            // Only the sender that finds the list empty wakes the thread, which then takes all messages.
            self.wake();
        }
    }

    /// Ends the thread's wait.
    pub(crate) fn wake(&self) {
        // Does not fail for a poller that exists.
        let _ = self.waker.wake();
    }

    /// Moves all messages into `taken`, which must be empty. The memory of `taken` is reused.
    ///
    /// The poller must have reported the waker before: a message that is sent after this call wakes the thread again.
    pub(crate) fn take_all(&self, taken: &mut Vec<M>) {
        debug_assert!(taken.is_empty(), "its messages would be put back into the mailbox");
        std::mem::swap(&mut *self.lock(), taken);
    }

    /// Appends all messages to `messages`, for an application that looks for more while it handles one. Must be called
    /// on the thread of the reactor, with the messages that
    /// [`Application::on_message`](crate::Application::on_message) got: they were sent earlier.
    ///
    /// The waker may still be reported for them; the list is empty then.
    pub fn take_more(&self, messages: &mut VecDeque<M>) {
        messages.extend(self.lock().drain(..));
    }

    /// Locks the list. No code of the application runs under this lock, so a poisoned lock holds a valid list.
    fn lock(&self) -> MutexGuard<'_, Vec<M>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn messages_that_are_taken_early_keep_their_order_and_later_ones_wake_the_thread() {
        let mut poller = Poller::new().expect("a poller");
        let mailbox = Mailbox::new(&poller).expect("a waker");
        let mut reported = || {
            let mut ready = Vec::new();
            poller.wait(Some(Duration::from_millis(100)), &mut ready).expect("a poller of our own");
            ready.len()
        };
        mailbox.send(1);
        mailbox.send(2);
        let mut messages = VecDeque::from([0]);
        mailbox.take_more(&mut messages);
        assert_eq!(messages, [0, 1, 2]);
        assert_eq!((reported(), reported()), (1, 0), "the messages that were taken");
        mailbox.send(3);
        assert_eq!(reported(), 1);
        let mut taken = Vec::new();
        mailbox.take_all(&mut taken);
        assert_eq!(taken, [3]);
    }
}
