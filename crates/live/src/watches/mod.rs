//! Subscribers that an operator watches. A subscriber has no history until then, so that a million of them cost
//! nothing; the thread that serves it notes what happens from then on.
//!
//! The bounds: few subscribers are watched at a time ([`WATCHED_MAX`]), each history has a bound (`history`), and a
//! history that is not read is dropped ([`UNREAD_TIME_MAX`]).

mod history;
mod subscriber_id;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use execute::Missed;
pub use history::{HistoryEntry, HistoryReading, HistoryStep, HistoryTotals};
pub use subscriber_id::{InvalidSubscriberId, SubscriberId};

pub(crate) use self::history::SubscriberHistory;
use crate::metrics::Transport;

/// The maximum number of watched subscribers: several operators with several of them each. A history has some 30 kB.
pub const WATCHED_MAX: usize = 16;

/// The time for which a history is kept that is not read.
pub const UNREAD_TIME_MAX: Duration = Duration::from_secs(5 * 60);

/// A subscriber as a list shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriberView {
    /// Its name.
    pub id: SubscriberId,
    /// The name of its transport.
    pub transport: &'static str,
    /// The time since its operation began.
    pub age: Duration,
    /// The number of its results that wait for its socket.
    pub waiting: usize,
}

/// Subscribers of one group.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SubscriberList {
    /// Some of them: first those with most waiting results, then the oldest ones.
    pub subscribers: Vec<SubscriberView>,
    /// The number of all of them.
    pub count: usize,
}

/// A watched subscriber as an operator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchReading {
    /// Its name.
    pub id: SubscriberId,
    /// The name of its transport.
    pub transport: &'static str,
    /// The time since its operation began, or the time that it lasted.
    pub age: Duration,
    /// The history since it is watched.
    pub history: HistoryReading,
}

impl SubscriberList {
    /// The maximum number of listed subscribers.
    pub const LISTED_MAX: usize = 100;

    /// Adds a subscriber.
    pub(crate) fn add(&mut self, subscriber: SubscriberView) {
        self.subscribers.push(subscriber);
        self.count += 1;
        self.bound();
    }

    /// Adds some subscribers of another list.
    pub(crate) fn append(&mut self, other: Self) {
        self.subscribers.extend(other.subscribers);
        self.count += other.count;
        self.bound();
    }

    /// Sorts the list and cuts it.
    pub(crate) fn finish(&mut self) {
        self.subscribers.sort_by_key(|it| std::cmp::Reverse((it.waiting, it.age)));
        self.subscribers.truncate(Self::LISTED_MAX);
    }

    /// Cuts the list while it is collected, so that it does not grow with the group. It is sorted only once for as many
    /// subscribers as it keeps.
    fn bound(&mut self) {
        if self.subscribers.len() >= 2 * Self::LISTED_MAX {
            self.finish();
        }
    }
}

/// The reason why a subscriber cannot be watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchRefused {
    /// There is no such subscriber.
    NotFound,
    /// [`WATCHED_MAX`] others are watched.
    TooMany,
}

/// A watched subscriber. The thread that serves it writes its history.
#[derive(Debug)]
pub(crate) struct WatchedSubscriber {
    id: SubscriberId,
    transport: Transport,
    /// The start of its operation.
    began: Instant,
    history: Mutex<SubscriberHistory>,
    /// True if no operator reads the history any more.
    is_over: AtomicBool,
}

impl WatchedSubscriber {
    /// Begins to watch a subscriber with this age, for which `waiting` results wait.
    pub(crate) fn new(
        id: SubscriberId,
        transport: Transport,
        (age, waiting): (Duration, usize),
    ) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            id,
            transport,
            began: now.checked_sub(age).unwrap_or(now),
            history: Mutex::new(SubscriberHistory::new(now, waiting)),
            is_over: AtomicBool::new(false),
        })
    }

    /// Notes something that happens now.
    pub(crate) fn note(&self, note: impl FnOnce(&mut SubscriberHistory, Instant)) {
        note(&mut self.lock(), Instant::now());
    }

    /// Notes a result that was written to a socket with room at `at`, which may be a moment ago.
    pub(crate) fn note_sent(&self, at: Instant, bytes: usize, missed: Missed) {
        self.lock().note_sent(at, bytes, missed);
    }

    /// True if nothing has to be noted any more: no operator reads the history, or the subscription has ended and
    /// nothing waits for its socket.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_over() || self.lock().is_finished()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns what an operator sees of the subscriber now.
    pub(crate) fn read(&self, now: Instant) -> WatchReading {
        let history = self.lock().read(now);
        let mut latest = history.entries.iter().rev();
        let ended = latest.find(|it| matches!(it.step, HistoryStep::Ended(_)));
        let since = ended.map_or(Duration::ZERO, |it| history.age - it.at);
        WatchReading {
            id: self.id,
            transport: self.transport.name(),
            age: (now - self.began).saturating_sub(since),
            history,
        }
    }

    /// Locks the history. Every change of it is complete, so the history behind a poisoned lock is sound.
    fn lock(&self) -> MutexGuard<'_, SubscriberHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The watched subscribers of one graph.
#[derive(Debug, Default)]
pub(crate) struct WatchBoard(Mutex<Vec<BoardEntry>>);

#[derive(Debug)]
struct BoardEntry {
    watched: Arc<WatchedSubscriber>,
    last_read: Instant,
}

impl Drop for BoardEntry {
    fn drop(&mut self) {
        self.watched.is_over.store(true, Ordering::Relaxed);
    }
}

impl WatchBoard {
    /// True if one more subscriber may be watched. Forgets a subscriber that has ended if there is no room otherwise.
    pub(crate) fn make_room(&self, now: Instant) -> bool {
        let mut entries = self.lock();
        remove_unread(&mut entries, now);
        if entries.len() >= WATCHED_MAX {
            let ended = entries.iter().enumerate().filter(|(_, it)| it.watched.lock().has_ended());
            let oldest = ended.min_by_key(|(_, it)| it.last_read).map(|(place, _)| place);
            if let Some(place) = oldest {
                entries.remove(place);
            }
        }
        entries.len() < WATCHED_MAX
    }

    /// Adds a watched subscriber. False if there is no room by now, or another request has added it.
    pub(crate) fn add(&self, watched: Arc<WatchedSubscriber>, now: Instant) -> bool {
        let mut entries = self.lock();
        let is_free = entries.len() < WATCHED_MAX;
        // Dropped if it is not added, so that its thread forgets it.
        let entry = BoardEntry { watched, last_read: now };
        if !is_free || entries.iter().any(|it| it.watched.id == entry.watched.id) {
            return false;
        }
        entries.push(entry);
        true
    }

    /// Reads the history of a watched subscriber; `None` if it is not watched.
    pub(crate) fn read(&self, id: SubscriberId, now: Instant) -> Option<WatchReading> {
        let mut entries = self.lock();
        remove_unread(&mut entries, now);
        let entry = entries.iter_mut().find(|it| it.watched.id == id)?;
        entry.last_read = now;
        Some(entry.watched.read(now))
    }

    /// Forgets histories that are not read, and returns the number of the others.
    pub(crate) fn sweep(&self, now: Instant) -> usize {
        let mut entries = self.lock();
        remove_unread(&mut entries, now);
        entries.len()
    }

    /// Locks the list. No code of the application runs under this lock, so a poisoned lock holds a valid list.
    fn lock(&self) -> MutexGuard<'_, Vec<BoardEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove_unread(entries: &mut Vec<BoardEntry>, now: Instant) {
    entries.retain(|it| now.saturating_duration_since(it.last_read) < UNREAD_TIME_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(number: u64) -> Arc<WatchedSubscriber> {
        let id = SubscriberId::Stream { stream: number, operation: 0 };
        WatchedSubscriber::new(id, Transport::Sse, (Duration::from_secs(7), 0))
    }

    #[test]
    fn the_number_of_watched_subscribers_is_bounded_and_one_that_has_ended_gives_way() {
        let (board, now) = (WatchBoard::default(), Instant::now());
        let all: Vec<_> = (0..WATCHED_MAX as u64).map(watched).collect();
        for one in &all {
            assert!(board.make_room(now) && board.add(Arc::clone(one), now));
        }
        assert!(!board.add(watched(3), now), "it is watched already");
        assert!(!board.make_room(now));
        let refused = watched(99);
        assert!(!board.add(Arc::clone(&refused), now) && refused.is_over());
        all[5].note(|history, now| history.note_end(now, "client_completed"));
        assert!(!all[5].is_over());
        assert!(board.make_room(now) && all[5].is_over());
        assert!(board.add(watched(99), now));
    }

    #[test]
    fn a_list_keeps_the_slowest_subscribers_and_is_bounded_while_it_is_collected() {
        let view = |number: u64| SubscriberView {
            id: SubscriberId::Stream { stream: number, operation: 0 },
            transport: "sse",
            age: Duration::from_secs(number % 50),
            waiting: usize::from(number == 3),
        };
        let (mut list, mut all) = (SubscriberList::default(), SubscriberList::default());
        for number in 0..1_000 {
            list.add(view(number));
            assert!(list.subscribers.len() < 2 * SubscriberList::LISTED_MAX);
            all.subscribers.push(view(number));
        }
        assert_eq!(list.count, 1_000);
        list.finish();
        all.finish();
        assert_eq!(list.subscribers, all.subscribers);
        assert_eq!(list.subscribers[0], view(3));
        let count = list.subscribers.len();
        list.append(SubscriberList { subscribers: all.subscribers, count: 7 });
        assert_eq!((list.subscribers.len(), list.count), (count, 1_007));
    }

    #[test]
    fn a_history_that_is_not_read_is_dropped() {
        let (board, now) = (WatchBoard::default(), Instant::now());
        let (first, second) = (watched(1), watched(2));
        assert!(board.add(Arc::clone(&first), now) && board.add(Arc::clone(&second), now));
        let later = now + UNREAD_TIME_MAX / 2;
        let reading = board.read(first.id, later).expect("it is watched");
        assert_eq!((reading.transport, reading.history.totals.delivered), ("sse", 0));
        assert!(reading.age >= Duration::from_secs(7), "{:?}", reading.age);
        assert_eq!(board.sweep(now + UNREAD_TIME_MAX), 1);
        assert!(second.is_over() && !first.is_over());
        assert_eq!(board.read(second.id, later), None);
    }

    #[test]
    fn the_age_of_a_subscription_that_has_ended_stays() {
        let (board, now) = (WatchBoard::default(), Instant::now());
        let one = watched(1);
        assert!(board.add(Arc::clone(&one), now));
        one.note(|history, now| history.note_end(now, "client_completed"));
        let later = now + Duration::from_secs(60);
        let age = board.read(one.id, later).map(|it| it.age).unwrap_or_default();
        assert!((7..10).contains(&age.as_secs()), "{age:?}");
    }
}
