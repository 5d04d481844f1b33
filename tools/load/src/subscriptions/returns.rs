//! Clients that the server has refused for now: when they return, and in which order.
//!
//! They behave as real clients do. After `retry-after` of an HTTP response, or `extensions.retryAfter` of an error,
//! they wait a little longer by chance, so that they do not return together. A close code has no time with it: there
//! they wait as graphql-ws does, twice as long after each refusal.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::client::ConnectionEnd;
use crate::random::Random;

/// The close code of RFC 6455's registry for a server that asks clients to try again later.
const TRY_AGAIN_LATER: u16 = 1013;

/// The part of the server's time that a client adds at most, by chance.
const JITTER: f64 = 0.5;

/// The longest time of a server that counts: no run takes so long.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);

/// The wait after the first refusal without a time, as in graphql-ws; it doubles with each refusal.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);

/// The longest wait without a time, before the part that chance decides.
const BACKOFF_MAX: Duration = Duration::from_secs(16);

/// The part of such a wait that chance decides, as in graphql-ws.
const BACKOFF_JITTER: (f64, f64) = (0.3, 3.0);

/// The clients that wait to return, the earliest first.
#[derive(Debug)]
pub(super) struct ReturnQueue {
    heap: BinaryHeap<Reverse<(Duration, usize)>>,
    random: Random,
}

impl ReturnQueue {
    /// Creates an empty queue; equal seeds give equal waits.
    pub(super) fn new(seed: u64) -> Self {
        Self { heap: BinaryHeap::new(), random: Random::new(seed) }
    }

    /// Returns how long a client waits after this many refusals, of which the last one had this time with it.
    pub(super) fn wait(&mut self, refusals: u32, retry_after: Option<Duration>) -> Duration {
        match retry_after {
            Some(time) => time.min(RETRY_AFTER_MAX).mul_f64(1.0 + JITTER * self.random.unit()),
            None => {
                let doubled = 1_u32.checked_shl(refusals.saturating_sub(1)).unwrap_or(u32::MAX);
                let (least, most) = BACKOFF_JITTER;
                let chance = least + (most - least) * self.random.unit();
                BACKOFF_FIRST.saturating_mul(doubled).min(BACKOFF_MAX)
                    + Duration::from_secs_f64(chance)
            }
        }
    }

    /// Adds a client that returns at this time.
    pub(super) fn add(&mut self, at: Duration, client: usize) {
        self.heap.push(Reverse((at, client)));
    }

    /// Removes and returns a client that may return now.
    pub(super) fn pop_due(&mut self, now: Duration) -> Option<usize> {
        self.heap.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.heap.pop().map(|Reverse((_, client))| client)
    }

    /// Returns the number of clients that wait.
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Removes all clients.
    pub(super) fn clear(&mut self) {
        self.heap.clear();
    }
}

impl ConnectionEnd {
    /// True if the server asks the client to return later.
    pub(super) fn is_refusal_for_now(&self) -> bool {
        matches!(
            self,
            Self::Refused(429 | 503) | Self::Closed(TRY_AGAIN_LATER) | Self::OperationRefused
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_return_in_the_order_of_their_times() {
        let mut queue = ReturnQueue::new(1);
        for (seconds, client) in [(3, 1), (1, 2), (2, 3)] {
            queue.add(Duration::from_secs(seconds), client);
        }
        assert_eq!(queue.pop_due(Duration::from_millis(999)), None);
        let now = Duration::from_secs(2);
        assert_eq!([queue.pop_due(now), queue.pop_due(now)], [Some(2), Some(3)]);
        assert_eq!((queue.pop_due(now), queue.len()), (None, 1));
        queue.clear();
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn clients_wait_for_the_time_of_the_server_and_not_together() {
        let mut queue = ReturnQueue::new(2);
        let asked = Duration::from_secs(4);
        let mut waits: Vec<_> = (0..100).map(|_| queue.wait(1, Some(asked))).collect();
        assert!(waits.iter().all(|wait| (asked..asked.mul_f64(1.5)).contains(wait)), "{waits:?}");
        waits.sort();
        waits.dedup();
        assert!(waits.len() > 90, "{waits:?}");
    }

    #[test]
    fn without_a_time_each_refusal_doubles_the_wait() {
        let mut queue = ReturnQueue::new(3);
        for (refusals, seconds) in [(1, 1.0), (2, 2.0), (3, 4.0), (5, 16.0), (40, 16.0)] {
            let wait = queue.wait(refusals, None).as_secs_f64();
            assert!((seconds + 0.3..seconds + 3.0).contains(&wait), "{refusals}: {wait}");
        }
    }
}
