//! The queue of one lane, in front of the limit.
//!
//! Each client has a line of its own, and clients take turns in the order in which their lines began. While the queue
//! is short, a line is served in order. A queue that was never empty for [`QueueSettings::interval`] stands: it does
//! not even out a burst, it only delays everything. Then the newest request of each line is served first, which still
//! has time, and requests wait no longer than [`QueueSettings::target`] (controlled delay, as in CoDel, with adaptive
//! LIFO, as at Facebook).
//!
//! A heavy request does not make light ones wait for which there is room: a few other lines are tried. It keeps its
//! turn, also before newer ones of its line, and after a few requests have passed it, the others wait for it. If it
//! leaves because it has waited too long, the next heavy one is passed by fewer. Otherwise an overload of light
//! requests would leave heavy ones no room at all, as each of them waits for a short time only.
//!
//! If the queue is full, the client with the longest line loses its oldest request. Every call takes logarithmic time.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use foldhash::fast::RandomState;

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
#[derive(Debug)]
struct ClientLine {
    /// The key of the client in [`WaitingQueue::order`].
    turn: u64,
    places: VecDeque<(u32, u64)>,
    waiting: usize,
}

/// The number of other lines that are tried for a request that fits, and of requests that pass one that does not.
const PASSING_MAX: usize = 8;

/// The queue of one lane.
#[derive(Debug)]
pub(crate) struct WaitingQueue {
    lane: Lane,
    settings: QueueSettings,
    waiters: Vec<Option<Waiter>>,
    free: Vec<u32>,
    lines: HashMap<u64, ClientLine, RandomState>,
    /// The clients by the numbers of their turns. The first one has its turn.
    order: BTreeMap<u64, u64>,
    /// The clients by the number of their requests.
    by_length: BTreeSet<(usize, u64)>,
    /// The last request that had its turn and did not fit. It keeps the turn while it waits.
    blocked: Option<WaiterId>,
    /// The number of requests that have passed such a request since the last one of them was served.
    passed: usize,
    waiting: usize,
    /// The next number of a request or a turn.
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
            lines: HashMap::default(),
            order: BTreeMap::new(),
            by_length: BTreeSet::new(),
            blocked: None,
            passed: 0,
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
        let number = self.take_number();
        let id = WaiterId { lane: self.lane, place, number };
        self.waiters[place as usize] = Some(Waiter { id, request, weight, entered: now, deadline });
        let client = request.client;
        let line = self.lines.entry(client).or_insert_with(|| {
            self.order.insert(number, client);
            ClientLine { turn: number, places: VecDeque::new(), waiting: 0 }
        });
        line.places.push_back((place, number));
        line.waiting += 1;
        let length = line.waiting;
        self.set_length(client, length - 1, length);
        self.waiting += 1;
        Some((id, deadline, dropped))
    }

    /// Takes the oldest request of the longest line, if that line is longer than `own`.
    fn drop_of_longest_line(&mut self, own: usize) -> Option<Waiter> {
        let &(length, longest) = self.by_length.last()?;
        if length <= own { None } else { self.pop_line(longest, false) }
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
        let newest_first = self.stands(now);
        let blocked = self.blocked.take().and_then(|id| self.find(id));
        let first = match blocked {
            Some(waiter) => waiter,
            None => {
                let (_, &client) = self.order.first_key_value()?;
                self.head(client, newest_first)?
            }
        };
        let popped = if may_leave(&first) {
            if blocked.is_some() {
                self.passed = 0;
            }
            let popped = self.take(first.id);
            self.end_turn(first.request.client);
            popped
        } else {
            self.blocked = Some(first.id);
            self.pop_beside(&first, may_leave, newest_first)
        };
        if self.waiting == 0 {
            self.last_empty = now;
            self.passed = 0;
        }
        popped
    }

    /// Takes a request that passes `first`, which has its turn and is not accepted: of one of a few other clients, or a
    /// lighter one of its own.
    fn pop_beside(
        &mut self,
        first: &Waiter,
        may_leave: impl Fn(&Waiter) -> bool,
        newest_first: bool,
    ) -> Option<Waiter> {
        if self.passed >= PASSING_MAX {
            return None;
        }
        let own = first.request.client;
        let others = self.order.values().copied().filter(|it| *it != own).take(PASSING_MAX);
        let candidates: Vec<u64> = others.chain([own]).collect();
        let client = candidates.into_iter().find(|&client| {
            let head = self.head(client, newest_first).filter(|it| it.id != first.id);
            head.is_some_and(|it| may_leave(&it))
        })?;
        self.passed += 1;
        let popped = self.pop_line(client, newest_first);
        self.end_turn(client);
        popped
    }

    /// Gives a client its next turn after all that wait now.
    fn end_turn(&mut self, client: u64) {
        let next_turn = self.take_number();
        if let Some(line) = self.lines.get_mut(&client) {
            self.order.remove(&line.turn);
            line.turn = next_turn;
            self.order.insert(next_turn, client);
        }
    }

    /// Returns the request of a line that is served next.
    fn head(&mut self, client: u64, newest_first: bool) -> Option<Waiter> {
        let Self { lines, waiters, .. } = self;
        let line = lines.get_mut(&client)?;
        line.clean_ends(waiters);
        let end = if newest_first { line.places.back() } else { line.places.front() };
        end.and_then(|&(place, _)| waiters[place as usize])
    }

    /// Takes a request of a line, and removes the line if it was the last.
    fn pop_line(&mut self, client: u64, newest_first: bool) -> Option<Waiter> {
        let Self { lines, waiters, .. } = self;
        let line = lines.get_mut(&client)?;
        line.clean_ends(waiters);
        let end = if newest_first { line.places.pop_back() } else { line.places.pop_front() };
        let waiter = waiters[end?.0 as usize].take()?;
        self.free.push(waiter.id.place);
        self.remove_from_line(client);
        Some(waiter)
    }

    /// Takes a request that no longer waits. `None` if it has left before.
    pub(crate) fn remove(&mut self, id: WaiterId, now: Duration) -> Option<Waiter> {
        let waiter = self.take(id)?;
        if self.waiting == 0 {
            self.last_empty = now;
        }
        Some(waiter)
    }

    /// Takes a request from its place and its line.
    fn take(&mut self, id: WaiterId) -> Option<Waiter> {
        let place = self.waiters.get_mut(id.place as usize)?;
        let waiter = place.take_if(|it| it.id == id)?;
        self.free.push(id.place);
        self.remove_from_line(waiter.request.client);
        Some(waiter)
    }

    /// Returns a request that waits.
    fn find(&self, id: WaiterId) -> Option<Waiter> {
        self.waiters.get(id.place as usize).copied().flatten().filter(|it| it.id == id)
    }

    /// Updates a line of which a request was taken.
    fn remove_from_line(&mut self, client: u64) {
        let Some(line) = self.lines.get_mut(&client) else { return };
        self.waiting -= 1;
        line.waiting -= 1;
        let (turn, length) = (line.turn, line.waiting);
        if line.places.len() > 2 * length + 8 {
            // At least half of the places are of requests that have left, so each of those pays for one.
            let waiters = &self.waiters;
            line.places.retain(|&it| is_waiting(waiters, it));
        }
        if length == 0 {
            self.order.remove(&turn);
            self.lines.remove(&client);
        }
        self.set_length(client, length + 1, length);
    }

    fn set_length(&mut self, client: u64, before: usize, after: usize) {
        self.by_length.remove(&(before, client));
        if after > 0 {
            self.by_length.insert((after, client));
        }
    }

    fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
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
    fn clients_with_one_request_each_leave_in_order() {
        let mut queue = queue(10);
        let ids: Vec<_> = (0..8).map(|it| push(&mut queue, 90 - it, it, millis(1))).collect();
        for id in [ids[0], ids[3]].into_iter().flatten() {
            assert!(queue.remove(id, millis(1)).is_some());
        }
        let next =
            |queue: &mut WaitingQueue| Some(queue.pop(|_| true, millis(1))?.request.operation);
        assert_eq!((next(&mut queue), next(&mut queue)), (Some(1), Some(2)));
        push(&mut queue, 90, 8, millis(1));
        assert_eq!(pop_all(&mut queue, millis(1)), [4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_full_queue_finds_the_longest_line_among_many() {
        let mut queue = queue(200);
        for client in 0..100 {
            push(&mut queue, client, client, millis(1));
        }
        for operation in 100..200 {
            push(&mut queue, 55, operation, millis(1));
        }
        let request = Request { client: 1000, ..Request::default() };
        let (_, _, dropped) = queue.push(request, 1, FOREVER, millis(1)).expect("room");
        assert_eq!(dropped.map(|it| it.request.operation), Some(55));
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
        assert_eq!(passed.len(), PASSING_MAX);
        passed.sort_unstable();
        passed.dedup();
        assert_eq!(passed.len(), PASSING_MAX, "clients take turns");
        assert!(!passed.contains(&20), "{passed:?}");
        let left = pop_all(&mut queue, millis(1));
        assert_eq!((left[0], left.len()), (99, 6), "it is the first for which there is room");
    }

    #[test]
    fn newer_requests_do_not_keep_a_heavy_one_out_of_a_queue_that_stands() {
        let mut queue = queue(1000);
        let mut number = 0;
        let mut push = |queue: &mut WaitingQueue, client, weight, at| {
            number += 1;
            let request = Request { client, operation: number, ..Request::default() };
            queue.push(request, weight, FOREVER, at).expect("room").0
        };
        push(&mut queue, 1, 1000, millis(0));
        let mut passed = Vec::new();
        for round in 0..20 {
            // Each heavy request leaves after some time, and another one of its client comes.
            let at = millis(200 + 10 * round);
            let heavy = push(&mut queue, 1, 9000, at);
            for _ in 0..3 {
                passed.extend(queue.pop(|it| it.weight <= 1000, at).map(|it| it.weight));
                push(&mut queue, 1, 1000, at);
                push(&mut queue, 2, 1000, at);
            }
            if round < 19 {
                assert!(queue.remove(heavy, at).is_some());
            } else {
                assert_eq!(queue.pop(|_| true, at).map(|it| it.id), Some(heavy));
            }
        }
        assert_eq!(passed.len(), PASSING_MAX);
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
        assert!(queue.order.is_empty() && queue.by_length.is_empty());
    }
}
