//! The queue of repetitions that wait for their time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use super::clients::UserRequest;

/// The maximum number of repetitions that wait for their time.
const REPETITIONS_MAX: usize = 500_000;

/// Repetitions in the order of their times; those with equal times in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct RepetitionQueue {
    heap: BinaryHeap<Repetition>,
    /// The number of repetitions that were added.
    number: u64,
}

/// A repetition; the earliest one is the greatest.
#[derive(Debug)]
struct Repetition {
    order: Reverse<(Duration, u64)>,
    request: UserRequest,
}

impl RepetitionQueue {
    /// Adds a request that is to be repeated at this time. False if the queue is full.
    pub(super) fn add(&mut self, at: Duration, request: UserRequest) -> bool {
        if self.heap.len() >= REPETITIONS_MAX {
            return false;
        }
        self.number += 1;
        self.heap.push(Repetition { order: Reverse((at, self.number)), request });
        true
    }

    /// Returns the time of the first repetition.
    pub(super) fn first_time(&self) -> Option<Duration> {
        self.heap.peek().map(|repetition| repetition.order.0.0)
    }

    /// Removes the first repetition and returns its time and its request.
    pub(super) fn pop(&mut self) -> Option<(Duration, UserRequest)> {
        self.heap.pop().map(|repetition| (repetition.order.0.0, repetition.request))
    }

    /// True if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Iterates over all requests, in any order.
    pub(super) fn requests(&self) -> impl Iterator<Item = UserRequest> {
        self.heap.iter().map(|repetition| repetition.request)
    }
}

impl PartialEq for Repetition {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Repetition {}

impl PartialOrd for Repetition {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Repetition {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.cmp(&other.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(client: u32) -> UserRequest {
        UserRequest { client, kind: 0, wanted: Duration::ZERO, repeated: 1 }
    }

    #[test]
    fn the_earliest_repetition_is_first_and_equal_times_keep_their_order() {
        let mut queue = RepetitionQueue::default();
        for (millis, client) in [(30, 1), (10, 2), (20, 3), (10, 4)] {
            assert!(queue.add(Duration::from_millis(millis), request(client)));
        }
        assert_eq!(queue.first_time(), Some(Duration::from_millis(10)));
        assert_eq!(queue.requests().count(), 4);
        let order: Vec<u32> =
            std::iter::from_fn(|| queue.pop()).map(|(_, request)| request.client).collect();
        assert_eq!(order, [2, 4, 3, 1]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_full_queue_takes_no_more() {
        let mut queue = RepetitionQueue::default();
        for client in 0..REPETITIONS_MAX as u32 {
            assert!(queue.add(Duration::ZERO, request(client)));
        }
        assert!(!queue.add(Duration::ZERO, request(0)));
        queue.pop();
        assert!(queue.add(Duration::ZERO, request(0)));
    }
}
