//! How the hub reaches a reactor: every command through its mailbox, but no more results of a group than its members
//! could be behind anyway. What comes on top while the reactor is busy is dropped and told with the next result.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use execute::Missed;
use hub::{GroupId, Outlet, OutletCommand};
use reactor::Mailbox;

use super::application::Message;

/// Results of one group that may wait for the reactor. At a hundred events a second these are two seconds.
const RESULTS_MAX: u32 = 256;

/// Bytes of results that may wait for the reactor, of all groups together.
const BYTES_MAX: usize = 64 << 20;

/// See the module.
pub(super) struct ReactorOutlet {
    mailbox: Arc<Mailbox<Message>>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// Only groups of which something waits, or that are owed an announcement.
    groups: HashMap<GroupId, Results>,
    bytes: usize,
    dropped: u64,
}

#[derive(Default)]
struct Results {
    count: u32,
    missed: Missed,
}

impl ReactorOutlet {
    pub(super) fn new(mailbox: Arc<Mailbox<Message>>) -> Self {
        Self { mailbox, waiting: Mutex::default() }
    }

    /// How to reach the reactor.
    pub(super) fn mailbox(&self) -> &Arc<Mailbox<Message>> {
        &self.mailbox
    }

    /// The reactor has taken a result of that many bytes.
    pub(super) fn taken(&self, group: GroupId, bytes: usize) {
        let mut waiting = self.lock();
        waiting.bytes -= bytes;
        if let Some(results) = waiting.groups.get_mut(&group) {
            results.count -= 1;
            if results.count == 0 && results.missed == Missed::default() {
                waiting.groups.remove(&group);
            }
        }
    }

    /// Nobody of that group is left.
    pub(super) fn forget(&self, group: GroupId) {
        let mut waiting = self.lock();
        if let Some(results) = waiting.groups.get_mut(&group) {
            results.missed = Missed::default();
            if results.count == 0 {
                waiting.groups.remove(&group);
            }
        }
    }

    /// How many results have been dropped since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.lock().dropped)
    }

    /// Nothing runs user code under this lock, so a poisoned one holds sound numbers.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outlet for ReactorOutlet {
    fn send(&self, mut command: OutletCommand) {
        if let OutletCommand::Deliver { group, payload } = &mut command {
            let mut waiting = self.lock();
            let has_room = waiting.bytes == 0 || waiting.bytes + payload.bytes.len() <= BYTES_MAX;
            let results = waiting.groups.entry(*group).or_default();
            if results.count >= RESULTS_MAX || !has_room {
                let lost = Missed { lost: 1, gap: false };
                results.missed = results.missed.and(payload.missed()).and(lost);
                waiting.dropped += 1;
                return;
            }
            results.count += 1;
            *payload = payload.with_missed(std::mem::take(&mut results.missed));
            waiting.bytes += payload.bytes.len();
        }
        self.mailbox.send(Message::Hub(command));
    }
}
