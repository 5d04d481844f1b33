//! The queue of one lane, in front of the limit.
//!
//! Each client has a line of its own, and clients take turns. While the queue is short, a line is served in order. A
//! queue that was never empty for [`QueueSettings::interval`] stands: it does not even out a burst, it only delays
//! everything. Then the newest request of each line is served first, which still has time, and requests wait no longer
//! than [`QueueSettings::target`] (controlled delay, as in CoDel, with adaptive LIFO, as at Facebook).
//!
//! A heavy request does not make light ones wait for which there is room: a few other lines are tried. It keeps its
//! turn, and after a few requests have passed it, the others wait for it.
//!
//! If the queue is full, the client with the longest of some lines loses its oldest request.

use std::collections::VecDeque;
use std::time::Duration;

use foldhash::fast::RandomState;
use indexmap::IndexMap;

use crate::lane::Lane;
use crate::request::Request;

/// The settings of the queues. Each class has one, and all but the critical one have a second for requests that open
/// streams, where `target` and `interval` are multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSettings {
    /// The maximum number of waiting requests in a queue. With 0 none waits.
    pub waiting_max: u32,
    /// The longest wait in a queue that was never empty during `interval`.
    pub target: Duration,
    /// The longest wait in other queues.
    pub interval: Duration,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            waiting_max: 1000,
            target: Duration::from_millis(10),
            interval: Duration::from_millis(50),
        }
    }
}

/// Identifies a waiting request. Ids are not used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaiterId {
    lane: Lane,
    place: u32,
    number: u64,
}

/// A waiting request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) id: WaiterId,
    pub(crate) request: Request,
    pub(crate) weight: u32,
    pub(crate) entered: Duration,
    pub(crate) deadline: Duration,
}

/// The requests of one client, by their places. Places of requests that have left stay until the line is cleaned.
#[derive(Debug, Default)]
struct ClientLine {
    places: VecDeque<(u32, u64)>,
    waiting: usize,
}

/// The number of lines that are compared when a full queue drops a request, that are tried for a request that fits, and
/// of requests that pass one that does not.
const LINES_COMPARED: usize = 8;

/// The queue of one lane.
#[derive(Debug)]
pub(crate) struct WaitingQueue {
    lane: Lane,
    settings: QueueSettings,
    waiters: Vec<Option<Waiter>>,
    free: Vec<u32>,
    lines: IndexMap<u64, ClientLine, RandomState>,
    /// The position in `lines` of the client that has its turn.
    turn: usize,
    /// The last request that had its turn and did not fit, and the number of requests that have passed it.
    passed: Option<(WaiterId, usize)>,
    waiting: usize,
    next_number: u64,
    last_empty: Duration,
}

impl WaitingQueue {
    pub(crate) fn new(lane: Lane, settings: QueueSettings) -> Self {
        Self {
            lane,
            settings,
            waiters: Vec::new(),
            free: Vec::new(),
            lines: IndexMap::default(),
            turn: 0,
            passed: None,
            waiting: 0,
            next_number: 0,
            last_empty: Duration::ZERO,
        }
    }

    /// Returns the number of waiting requests.
    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    /// True if the queue was never empty for the interval.
    fn stands(&self, now: Duration) -> bool {
        self.waiting > 0 && now.saturating_sub(self.last_empty) > self.settings.interval
    }

    /// Puts a request at the end of its client's line. Returns its id, and the request that had to leave if the queue
    /// was full. `None` if the request itself finds no room.
    pub(crate) fn push(
        &mut self,
        request: Request,
        weight: u32,
        deadline: Duration,
        now: Duration,
    ) -> Option<(WaiterId, Duration, Option<Waiter>)> {
        if self.settings.waiting_max == 0 {
            return None;
        }
        if self.waiting == 0 {
            self.last_empty = now;
        }
        let mut dropped = None;
        if self.waiting >= self.settings.waiting_max as usize {
            let own = self.lines.get(&request.client).map_or(0, |it| it.waiting);
            dropped = Some(self.drop_of_longest_line(own)?);
        }
        let time = if self.stands(now) { self.settings.target } else { self.settings.interval };
        let deadline = deadline.min(now + time);
        let place = self.free.pop().unwrap_or_else(|| {
            self.waiters.push(None);
            // The bound of the queue is a `u32`.
            (self.waiters.len() - 1) as u32
        });
        let number = self.next_number;
        self.next_number += 1;
        let id = WaiterId { lane: self.lane, place, number };
        self.waiters[place as usize] = Some(Waiter { id, request, weight, entered: now, deadline });
        let line = self.lines.entry(request.client).or_default();
        line.places.push_back((place, number));
        line.waiting += 1;
        self.waiting += 1;
        Some((id, deadline, dropped))
    }

    /// Takes the oldest request of the longest of some lines, if that line is longer than `own`.
    fn drop_of_longest_line(&mut self, own: usize) -> Option<Waiter> {
        let count = self.lines.len();
        let candidates = (0..count.min(LINES_COMPARED)).map(|it| (self.turn + it) % count);
        let longest = candidates.max_by_key(|&index| self.lines[index].waiting)?;
        if self.lines[longest].waiting <= own {
            return None;
        }
        self.pop_line(longest, false)
    }

    /// Takes the next request that `may_leave` accepts: that of the client that has its turn, or if that is not
    /// accepted one of a few other clients. Of each client it is the newest if the queue stands, otherwise the oldest.
    pub(crate) fn pop(
        &mut self,
        may_leave: impl Fn(&Waiter) -> bool,
        now: Duration,
    ) -> Option<Waiter> {
        if self.waiting == 0 {
            return None;
        }
        self.turn %= self.lines.len();
        let newest_first = self.stands(now);
        let first = self.head(self.turn, newest_first)?;
        let popped = if may_leave(&first) {
            let lines = self.lines.len();
            let popped = self.pop_line(self.turn, newest_first);
            if self.lines.len() == lines {
                self.turn += 1;
            }
            popped
        } else {
            self.pop_beside(&first, may_leave, newest_first)
        };
        if self.waiting == 0 {
            self.last_empty = now;
        }
        popped
    }

    /// Takes a request that passes `first`, which has its turn and is not accepted.
    fn pop_beside(
        &mut self,
        first: &Waiter,
        may_leave: impl Fn(&Waiter) -> bool,
        newest_first: bool,
    ) -> Option<Waiter> {
        let passed = self.passed.filter(|it| it.0 == first.id).map_or(0, |it| it.1);
        if passed >= LINES_COMPARED {
            return None;
        }
        let others = self.lines.len() - 1;
        // Those that have passed it before were the first ones.
        for other in (0..others.min(LINES_COMPARED)).map(|it| (passed + it) % others) {
            let index = (self.turn + 1 + other) % self.lines.len();
            if self.head(index, newest_first).is_some_and(|it| may_leave(&it)) {
                self.passed = Some((first.id, passed + 1));
                let last = self.lines.len() - 1;
                let popped = self.pop_line(index, newest_first);
                if self.turn == last && self.lines.len() == last {
                    // The last line has moved into the place of the one that was removed.
                    self.turn = index;
                }
                return popped;
            }
        }
        None
    }

    /// Returns the request of a line that is served next.
    fn head(&mut self, index: usize, newest_first: bool) -> Option<Waiter> {
        let Self { lines, waiters, .. } = self;
        let line = &mut lines[index];
        line.clean_ends(waiters);
        let end = if newest_first { line.places.back() } else { line.places.front() };
        end.and_then(|&(place, _)| waiters[place as usize])
    }

    /// Takes a request of a line, and removes the line if it was the last.
    fn pop_line(&mut self, index: usize, newest_first: bool) -> Option<Waiter> {
        let Self { lines, waiters, .. } = self;
        let line = &mut lines[index];
        line.clean_ends(waiters);
        let end = if newest_first { line.places.pop_back() } else { line.places.pop_front() };
        let waiter = waiters[end?.0 as usize].take()?;
        self.free.push(waiter.id.place);
        self.remove_from_line(index);
        Some(waiter)
    }

    /// Takes a request that no longer waits. `None` if it has left before.
    pub(crate) fn remove(&mut self, id: WaiterId, now: Duration) -> Option<Waiter> {
        let place = self.waiters.get_mut(id.place as usize)?;
        let waiter = place.take_if(|it| it.id == id)?;
        self.free.push(id.place);
        if let Some(index) = self.lines.get_index_of(&waiter.request.client) {
            self.remove_from_line(index);
        }
        if self.waiting == 0 {
            self.last_empty = now;
        }
        Some(waiter)
    }

    fn remove_from_line(&mut self, index: usize) {
        self.waiting -= 1;
        let line = &mut self.lines[index];
        line.waiting -= 1;
        if line.waiting == 0 {
            self.lines.swap_remove_index(index);
        } else if line.places.len() > 2 * line.waiting + 8 {
            // At least half of the places are of requests that have left, so each of those pays for one.
            let waiters = &self.waiters;
            line.places.retain(|&it| is_waiting(waiters, it));
        }
    }
}

fn is_waiting(waiters: &[Option<Waiter>], (place, number): (u32, u64)) -> bool {
    waiters[place as usize].is_some_and(|it| it.id.number == number)
}

impl ClientLine {
    /// Removes places of requests that have left from both ends.
    fn clean_ends(&mut self, waiters: &[Option<Waiter>]) {
        while self.places.front().is_some_and(|&it| !is_waiting(waiters, it)) {
            self.places.pop_front();
        }
        while self.places.back().is_some_and(|&it| !is_waiting(waiters, it)) {
            self.places.pop_back();
        }
    }
}

impl WaiterId {
    /// Returns the lane of the request.
    pub(crate) fn lane(self) -> Lane {
        self.lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOREVER: Duration = Duration::MAX;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn queue(waiting_max: u32) -> WaitingQueue {
        let settings = QueueSettings { waiting_max, target: millis(10), interval: millis(100) };
        WaitingQueue::new(Lane::Normal, settings)
    }

    /// Puts a request of a client at the end; its operation is its number.
    fn push(
        queue: &mut WaitingQueue,
        client: u64,
        operation: u64,
        now: Duration,
    ) -> Option<WaiterId> {
        let request = Request { client, operation, ..Request::default() };
        queue.push(request, 1000, FOREVER, now).map(|(id, ..)| id)
    }

    fn pop_all(queue: &mut WaitingQueue, now: Duration) -> Vec<u64> {
        pop_weights(queue, u32::MAX, now)
    }

    /// Takes all requests that are not heavier.
    fn pop_weights(queue: &mut WaitingQueue, weight_max: u32, now: Duration) -> Vec<u64> {
        let next = || queue.pop(|it| it.weight <= weight_max, now);
        std::iter::from_fn(next).map(|it| it.request.operation).collect()
    }

    #[test]
    fn a_short_queue_is_served_in_order_and_one_that_stands_newest_first() {
        let mut queue = queue(10);
        for operation in 0..4 {
            push(&mut queue, 1, operation, millis(1));
        }
        assert_eq!(pop_all(&mut queue, millis(50)), [0, 1, 2, 3]);
        for operation in 0..4 {
            push(&mut queue, 1, operation, millis(60));
        }
        assert_eq!(pop_all(&mut queue, millis(161)), [3, 2, 1, 0]);
    }

    #[test]
    fn requests_wait_less_in_a_queue_that_stands() {
        let mut queue = queue(10);
        let request = Request { client: 1, operation: 1, ..Request::default() };
        let (_, deadline, _) = queue.push(request, 1, FOREVER, millis(5)).unwrap();
        assert_eq!(deadline, millis(105));
        let (_, deadline, _) = queue.push(request, 1, FOREVER, millis(200)).unwrap();
        assert_eq!(deadline, millis(210));
        let (_, deadline, _) = queue.push(request, 1, millis(203), millis(200)).unwrap();
        assert_eq!(deadline, millis(203), "nobody waits for it longer");
    }

    #[test]
    fn clients_take_turns() {
        let mut queue = queue(10);
        for operation in 0..4 {
            push(&mut queue, 1, operation, millis(1));
        }
        push(&mut queue, 2, 20, millis(1));
        push(&mut queue, 3, 30, millis(1));
        assert_eq!(pop_all(&mut queue, millis(1)), [0, 20, 30, 1, 2, 3]);
    }

    #[test]
    fn a_few_light_requests_pass_a_heavy_one_which_keeps_its_turn() {
        let mut queue = queue(1000);
        let mut push = |client, operation, weight| {
            let request = Request { client, operation, ..Request::default() };
            queue.push(request, weight, FOREVER, millis(1)).expect("room");
        };
        push(0, 99, 9000);
        for operation in 0..12 {
            push(1 + operation, operation, 1000);
        }
        push(1, 20, 1000);
        let mut passed = pop_weights(&mut queue, 1000, millis(1));
        assert_eq!(passed.len(), LINES_COMPARED);
        passed.sort_unstable();
        passed.dedup();
        assert_eq!(passed.len(), LINES_COMPARED, "clients take turns");
        assert!(!passed.contains(&20), "{passed:?}");
        let left = pop_all(&mut queue, millis(1));
        assert_eq!((left[0], left.len()), (99, 6), "it is the first for which there is room");
    }

    #[test]
    fn a_full_queue_drops_the_oldest_request_of_the_longest_line() {
        let mut queue = queue(3);
        for operation in 0..3 {
            push(&mut queue, 1, operation, millis(1));
        }
        assert_eq!(push(&mut queue, 1, 3, millis(1)), None, "no line is longer than its own");
        let request = Request { client: 2, operation: 20, ..Request::default() };
        let (_, _, dropped) = queue.push(request, 1, FOREVER, millis(1)).unwrap();
        assert_eq!(dropped.map(|it| it.request.operation), Some(0));
        assert_eq!(queue.len(), 3);
        assert_eq!(pop_all(&mut queue, millis(1)), [1, 20, 2]);
    }

    #[test]
    fn requests_that_leave_are_not_served_and_their_places_are_used_again() {
        let mut queue = queue(100);
        let mut now = millis(1);
        for round in 0..1000 {
            now += millis(1);
            let ids: Vec<_> =
                (0..50).map(|it| push(&mut queue, it % 3, it, now).expect("room")).collect();
            for (index, id) in ids.iter().enumerate() {
                if index % 7 != round % 7 {
                    assert!(queue.remove(*id, now).is_some());
                    assert!(queue.remove(*id, now).is_none());
                }
            }
            let mut left = pop_all(&mut queue, now);
            left.sort_unstable();
            let expected: Vec<_> = (0..50).filter(|it| it % 7 == round as u64 % 7).collect();
            assert_eq!(left, expected);
        }
        assert!(queue.waiters.len() <= 50 && queue.lines.is_empty(), "{}", queue.waiters.len());
    }
}
