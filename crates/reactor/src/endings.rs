//! The connections whose peers have gone, and which have to be ended.
//!
//! All clients may vanish at once, when a network fails. Ending one takes some 20 µs in several threads, so ten thousand
//! would take all CPU time for a fifth of a second, which queries and the clients that are left would notice. So a few
//! are ended at a time, in the order in which they have gone, with pauses. A connection that goes alone is ended at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::poller::Readiness;

/// The number of connections that are ended in one turn, and the part of all that wait: the more there are, the faster
/// they are ended, so that not even a million keep their descriptors for long.
const TURN_MIN: usize = 16;
const TURN_PART: usize = 512;

/// The pause between two turns while connections wait.
const PAUSE: Duration = Duration::from_millis(1);

/// The number of waiting connections above which the list frees its memory once it is empty.
const KEPT_MAX: usize = 1024;

/// The connections that wait for their end, the first one first.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    waiting: VecDeque<Readiness>,
    /// The time of the next turn, if some wait after the last one.
    next_turn: Option<Instant>,
}

impl Endings {
    /// Adds a connection.
    pub(crate) fn add(&mut self, readiness: Readiness) {
        self.waiting.push_back(readiness);
    }

    /// Returns the number of connections that may be ended now.
    pub(crate) fn take_turn(&mut self, now: Instant) -> usize {
        if self.next_turn.is_some_and(|at| now < at) {
            return 0;
        }
        let turn = (self.waiting.len() / TURN_PART).max(TURN_MIN);
        self.next_turn = (self.waiting.len() > turn).then(|| now + PAUSE);
        turn
    }

    /// Takes the next connection, if there is one and `left` in the turn is above zero.
    pub(crate) fn next(&mut self, left: &mut usize) -> Option<Readiness> {
        *left = left.checked_sub(1)?;
        let next = self.waiting.pop_front();
        if self.waiting.is_empty() && self.waiting.capacity() > KEPT_MAX {
            self.waiting = VecDeque::new();
        }
        next
    }

    /// Returns the time of the next turn; `None` if no connection waits.
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        self.next_turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(key: u64) -> Readiness {
        Readiness { key, readable: true, writable: true, ending: true }
    }

    /// Takes a turn and returns the keys of the connections that are ended.
    fn turn(endings: &mut Endings, now: Instant) -> Vec<u64> {
        let mut left = endings.take_turn(now);
        std::iter::from_fn(|| endings.next(&mut left)).map(|it| it.key).collect()
    }

    #[test]
    fn a_few_are_ended_at_once() {
        let (mut endings, now) = (Endings::default(), Instant::now());
        for round in 0..3 {
            (0..16).for_each(|key| endings.add(ending(key)));
            assert_eq!(turn(&mut endings, now), (0..16).collect::<Vec<_>>(), "{round}");
            assert_eq!(endings.next_turn(), None);
        }
        assert_eq!(turn(&mut endings, now), []);
    }

    #[test]
    fn many_are_ended_in_order_with_pauses() {
        let (mut endings, now) = (Endings::default(), Instant::now());
        (0..40).for_each(|key| endings.add(ending(key)));
        assert_eq!(turn(&mut endings, now), (0..16).collect::<Vec<_>>());
        assert_eq!(endings.next_turn(), Some(now + PAUSE));
        assert_eq!(turn(&mut endings, now + PAUSE / 2), [], "the pause is not over");
        assert_eq!(turn(&mut endings, now + PAUSE), (16..32).collect::<Vec<_>>());
        assert_eq!(turn(&mut endings, now + 2 * PAUSE), (32..40).collect::<Vec<_>>());
        assert_eq!(endings.next_turn(), None);
    }

    #[test]
    fn a_million_are_ended_in_seconds_and_leave_no_memory() {
        let (mut endings, mut now) = (Endings::default(), Instant::now());
        (0..1_000_000).for_each(|key| endings.add(ending(key)));
        let began = now;
        let mut ended = 0;
        while ended < 1_000_000 {
            ended += turn(&mut endings, now).len();
            now += PAUSE;
        }
        assert!(now - began < Duration::from_secs(5), "{:?}", now - began);
        assert_eq!(endings.waiting.capacity(), 0);
    }
}
