//! The mailbox of a reactor, through which other threads reach it: a list under a lock, and a waker that ends the wait
//! of the thread once per batch.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mio::Waker;

use crate::poller::Poller;

/// The mailbox of one reactor thread. Messages arrive in the order in which they were sent.
///
/// It is unbounded: a sender of messages that must not wait (events, for example) limits them itself.
#[derive(Debug)]
pub struct Mailbox<M> {
    list: Mutex<List<M>>,
    waker: Waker,
    /// The connections that their peers have closed and that wait for their end.
    leaving: AtomicUsize,
    /// True if others need the room of those connections.
    is_hurried: AtomicBool,
}

#[derive(Debug)]
struct List<M> {
    messages: Vec<M>,
    /// True if the waker was used since the thread last took all messages.
    is_woken: bool,
    /// True if a sender is about to call [`Mailbox::flush`] for these messages.
    is_flushed_later: bool,
}

impl<M> Mailbox<M> {
    /// Makes the mailbox of the thread that waits for `poller`.
    pub(crate) fn new(poller: &Poller) -> io::Result<Self> {
        let list = List { messages: Vec::new(), is_woken: false, is_flushed_later: false };
        Ok(Self {
            list: Mutex::new(list),
            waker: poller.waker()?,
            leaving: AtomicUsize::new(0),
            is_hurried: AtomicBool::new(false),
        })
    }

    /// Returns the number of connections that their peers have closed and that the thread is about to end.
    pub fn leaving(&self) -> usize {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Asks for the ends of those connections, because there is no room for others. Without it, they give way to new
    /// connections for some seconds.
    pub fn hurry_leaving(&self) {
        self.is_hurried.store(true, Ordering::Relaxed);
    }

    /// Returns whether their ends were asked for since the last call.
    pub(crate) fn take_hurry(&self) -> bool {
        // hot path: a load in almost all turns
        self.is_hurried.load(Ordering::Relaxed) && self.is_hurried.swap(false, Ordering::Relaxed)
    }

    /// Notes the number of those connections.
    pub(crate) fn note_leaving(&self, count: usize) {
        self.leaving.store(count, Ordering::Relaxed);
    }

    /// Sends one message. Never waits. Once the thread has ended, messages are discarded.
    pub fn send(&self, message: M) {
        let mut list = self.lock();
        list.messages.push(message);
        self.wake_once(list);
    }

    /// Sends one message and does not end the thread's wait. Returns true if the caller must call [`Mailbox::flush`]
    /// after further messages. The thread then wakes once for all of them.
    #[must_use]
    pub fn send_later(&self, message: M) -> bool {
        let mut list = self.lock();
        list.messages.push(message);
        !list.is_woken && !std::mem::replace(&mut list.is_flushed_later, true)
    }

    /// Sends one message that the thread need not handle before the next one, with which it wakes for both.
    pub fn send_with_next(&self, message: M) {
        self.lock().messages.push(message);
    }

    /// Ends the thread's wait if the list has messages.
    pub fn flush(&self) {
        let list = self.lock();
        if !list.messages.is_empty() {
            self.wake_once(list);
        }
    }

    /// Ends the thread's wait, unless that was done for earlier messages: the thread takes all of them together.
    fn wake_once(&self, mut list: MutexGuard<'_, List<M>>) {
        let was_woken = std::mem::replace(&mut list.is_woken, true);
        drop(list);
        if !was_woken {
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
        let mut list = self.lock();
        (list.is_woken, list.is_flushed_later) = (false, false);
        std::mem::swap(&mut list.messages, taken);
    }

    /// Appends all messages to `messages`, for an application that looks for more while it handles one. Must be called
    /// on the thread of the reactor, with the messages that
    /// [`Application::on_message`](crate::Application::on_message) got: they were sent earlier.
    ///
    /// The waker may still be reported for them; the list is empty then.
    pub fn take_more(&self, messages: &mut VecDeque<M>) {
        let mut list = self.lock();
        list.is_flushed_later = false;
        messages.extend(list.messages.drain(..));
    }

    /// Locks the list. No code of the application runs under this lock, so a poisoned lock holds a valid list.
    fn lock(&self) -> MutexGuard<'_, List<M>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A mailbox whose thread is the test.
    struct Thread {
        poller: Poller,
        mailbox: Mailbox<u32>,
    }

    impl Thread {
        fn new() -> Self {
            let poller = Poller::new().expect("a poller");
            let mailbox = Mailbox::new(&poller).expect("a waker");
            Self { poller, mailbox }
        }

        /// True if the waker is reported.
        fn is_woken(&mut self) -> bool {
            let mut ready = Vec::new();
            let wait = Some(Duration::from_millis(100));
            self.poller.wait(wait, &mut ready).expect("a poller of our own");
            !ready.is_empty()
        }

        /// Returns the messages, as the thread takes them when the waker is reported.
        fn take(&self) -> Vec<u32> {
            let mut taken = Vec::new();
            self.mailbox.take_all(&mut taken);
            taken
        }
    }

    #[test]
    fn messages_that_are_taken_early_keep_their_order_and_later_ones_wake_the_thread() {
        let mut thread = Thread::new();
        thread.mailbox.send(1);
        thread.mailbox.send(2);
        let mut messages = VecDeque::from([0]);
        thread.mailbox.take_more(&mut messages);
        assert_eq!(messages, [0, 1, 2]);
        assert!(thread.is_woken(), "by the messages that were taken");
        assert_eq!(thread.take(), []);
        assert!(!thread.is_woken());
        thread.mailbox.send(3);
        assert!(thread.is_woken());
        assert_eq!(thread.take(), [3]);
    }

    #[test]
    fn a_message_that_arrives_between_the_report_and_its_handling_is_taken_with_the_others() {
        let mut thread = Thread::new();
        thread.mailbox.send(1);
        assert!(thread.is_woken());
        thread.mailbox.send(2);
        assert_eq!(thread.take(), [1, 2]);
        thread.mailbox.send(3);
        assert!(thread.is_woken());
    }

    #[test]
    fn messages_for_later_wake_the_thread_once_and_together_with_others() {
        let mut thread = Thread::new();
        assert!(thread.mailbox.send_later(1));
        assert!(!thread.mailbox.send_later(2), "somebody else flushes");
        assert!(!thread.is_woken());
        thread.mailbox.flush();
        thread.mailbox.flush();
        assert!(thread.is_woken());
        assert_eq!(thread.take(), [1, 2]);
        assert!(!thread.is_woken());
        // A message that does not wait wakes the thread for the earlier ones as well.
        assert!(thread.mailbox.send_later(3));
        thread.mailbox.send(4);
        assert!(thread.is_woken());
        assert_eq!(thread.take(), [3, 4]);
        thread.mailbox.flush();
        assert!(!thread.is_woken(), "there are no messages any more");
        // One that can wait is taken with the next one, which is flushed.
        thread.mailbox.send_with_next(7);
        assert!(!thread.is_woken());
        assert!(thread.mailbox.send_later(8));
        thread.mailbox.send_with_next(9);
        thread.mailbox.flush();
        assert!(thread.is_woken());
        assert_eq!(thread.take(), [7, 8, 9]);
        // One that was taken early leaves nothing to flush, and the next one is flushed again.
        assert!(thread.mailbox.send_later(5));
        thread.mailbox.take_more(&mut VecDeque::new());
        assert!(thread.mailbox.send_later(6));
        thread.mailbox.flush();
        assert!(thread.is_woken());
        assert_eq!(thread.take(), [6]);
    }
}
