//! The queue of WebSocket handshakes that wait for their turn. The handshakes of each client are in order, and clients
//! take turns, so that a client with thousands of handshakes delays those of others by one turn each.
//!
//! Clients with an identity come before anonymous ones, which have a quarter of the turns while both wait. A full queue
//! refuses the newest handshake of the client with the most. Every call takes logarithmic time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The number of turns that clients with an identity have for each turn of an anonymous client, while both wait.
const TURNS_OF_IDENTIFIED: u32 = 3;

/// The client of a handshake.
// The order of the fields decides which of two equally long lines a full queue shortens: that of an anonymous client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HandshakeClient {
    /// True if the client has proved no identity.
    pub is_anonymous: bool,
    /// The key of the client, equal for all of its connections.
    pub key: u64,
}

/// The place of a waiting handshake. Places are not used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HandshakePlace {
    client: HandshakeClient,
    number: u64,
}

/// The waiting handshakes, each with a value of type `T`.
#[derive(Debug)]
pub(crate) struct HandshakeQueue<T> {
    lines: HashMap<HandshakeClient, HandshakeLine<T>>,
    /// The clients by the numbers of their turns: those with an identity, and anonymous ones.
    order: [BTreeMap<u64, HandshakeClient>; 2],
    /// The clients by the number of their handshakes.
    by_length: BTreeSet<(usize, HandshakeClient)>,
    waiting: usize,
    /// The next number of a turn or a handshake. At a million in a second they suffice for 500,000 years.
    next_number: u64,
    /// The number of turns that clients with an identity had since the last turn of an anonymous client.
    since_anonymous: u32,
}

/// The handshakes of one client, in their order. There is at least one.
#[derive(Debug)]
struct HandshakeLine<T> {
    /// The key of the client in [`HandshakeQueue::order`].
    turn: u64,
    waiters: BTreeMap<u64, T>,
}

impl<T> Default for HandshakeQueue<T> {
    fn default() -> Self {
        Self {
            lines: HashMap::new(),
            order: Default::default(),
            by_length: BTreeSet::new(),
            waiting: 0,
            next_number: 0,
            since_anonymous: 0,
        }
    }
}

impl<T> HandshakeQueue<T> {
    /// Returns the number of waiting handshakes.
    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    /// Puts a handshake at the end of its client's line. Returns its place, and the handshake that had to leave because
    /// `waiting_max` of them waited. `None` if the handshake itself finds no room.
    pub(crate) fn push(
        &mut self,
        client: HandshakeClient,
        waiter: T,
        waiting_max: usize,
    ) -> Option<(HandshakePlace, Option<T>)> {
        let mut displaced = None;
        if self.waiting >= waiting_max {
            let own = self.lines.get(&client).map_or(0, |it| it.waiters.len());
            let &(length, longest) = self.by_length.last()?;
            if (own + 1, client.is_anonymous) >= (length, longest.is_anonymous) {
                return None;
            }
            displaced = self.pop_newest(longest);
        }
        let number = self.take_number();
        let line = self.lines.entry(client).or_insert_with(|| {
            self.order[usize::from(client.is_anonymous)].insert(number, client);
            HandshakeLine { turn: number, waiters: BTreeMap::new() }
        });
        line.waiters.insert(number, waiter);
        let length = line.waiters.len();
        self.set_length(client, length - 1, length);
        self.waiting += 1;
        Some((HandshakePlace { client, number }, displaced))
    }

    /// Takes the oldest handshake of the client that has its turn.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let [identified, anonymous] = &self.order;
        let is_anonymous = match (identified.is_empty(), anonymous.is_empty()) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => self.since_anonymous >= TURNS_OF_IDENTIFIED,
        };
        self.since_anonymous =
            if is_anonymous { 0 } else { self.since_anonymous.saturating_add(1) };
        let next_turn = self.take_number();
        let order = &mut self.order[usize::from(is_anonymous)];
        let (_, client) = order.pop_first()?;
        let line = self.lines.get_mut(&client)?;
        let (_, waiter) = line.waiters.pop_first()?;
        line.turn = next_turn;
        order.insert(next_turn, client);
        self.note_removal(client);
        Some(waiter)
    }

    /// Takes a handshake that no longer waits. `None` if it has left before.
    pub(crate) fn remove(&mut self, place: HandshakePlace) -> Option<T> {
        let waiter = self.lines.get_mut(&place.client)?.waiters.remove(&place.number)?;
        self.note_removal(place.client);
        Some(waiter)
    }

    /// Takes the newest handshake of a client.
    fn pop_newest(&mut self, client: HandshakeClient) -> Option<T> {
        let (_, waiter) = self.lines.get_mut(&client)?.waiters.pop_last()?;
        self.note_removal(client);
        Some(waiter)
    }

    /// Updates the indices after a handshake of this client was removed.
    fn note_removal(&mut self, client: HandshakeClient) {
        let Some(line) = self.lines.get(&client) else { return };
        let (turn, length) = (line.turn, line.waiters.len());
        if length == 0 {
            self.order[usize::from(client.is_anonymous)].remove(&turn);
            self.lines.remove(&client);
        }
        self.set_length(client, length + 1, length);
        self.waiting -= 1;
    }

    fn set_length(&mut self, client: HandshakeClient, before: usize, after: usize) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const fn identified(key: u64) -> HandshakeClient {
        HandshakeClient { is_anonymous: false, key }
    }

    const fn anonymous(key: u64) -> HandshakeClient {
        HandshakeClient { is_anonymous: true, key }
    }

    /// Returns a queue with these handshakes.
    fn queue(waiters: &[(HandshakeClient, u32)]) -> HandshakeQueue<u32> {
        let mut queue = HandshakeQueue::default();
        for &(client, waiter) in waiters {
            let pushed = queue.push(client, waiter, 1000);
            assert!(pushed.is_some_and(|(_, displaced)| displaced.is_none()));
        }
        queue
    }

    fn pop_all(mut queue: HandshakeQueue<u32>) -> Vec<u32> {
        let waiters = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(queue.len(), 0);
        assert!(queue.lines.is_empty() && queue.by_length.is_empty());
        assert!(queue.order.iter().all(BTreeMap::is_empty));
        waiters
    }

    #[test]
    fn clients_take_turns() {
        let [a, b, c] = [1, 2, 3].map(anonymous);
        let queue = queue(&[(a, 10), (a, 11), (a, 12), (a, 13), (b, 20), (c, 30), (b, 21)]);
        assert_eq!(pop_all(queue), [10, 20, 30, 11, 21, 12, 13]);
    }

    #[test]
    fn anonymous_clients_have_a_quarter_of_the_turns() {
        let mut waiters: Vec<_> = (0..8).map(|it| (anonymous(it), 100)).collect();
        waiters.extend((0..9).map(|it| (identified(it), 0)));
        let turns = pop_all(queue(&waiters));
        assert_eq!(turns[..8], [0, 0, 0, 100, 0, 0, 0, 100]);
        assert_eq!(turns[8..], [0, 0, 0, 100, 100, 100, 100, 100, 100], "the rest has its turns");
    }

    #[test]
    fn a_full_queue_refuses_the_newest_handshake_of_the_client_with_the_most() {
        let [a, b, c] = [1, 2, 3].map(identified);
        let mut queue = queue(&[(a, 10), (a, 11), (a, 12), (b, 20)]);
        assert!(queue.push(a, 13, 4).is_none(), "it would have the most itself");
        let displaced = |queue: &mut HandshakeQueue<u32>, client, waiter| {
            queue.push(client, waiter, 4).map(|(_, displaced)| displaced)
        };
        assert_eq!(displaced(&mut queue, c, 30), Some(Some(12)));
        assert_eq!(displaced(&mut queue, b, 21), None, "two of two would have as many");
        assert_eq!(pop_all(queue), [10, 20, 30, 11]);
    }

    #[test]
    fn a_full_queue_of_single_handshakes_refuses_an_anonymous_one_for_a_client_with_an_identity() {
        let mut queue = queue(&[(anonymous(1), 10), (identified(1), 20)]);
        assert!(queue.push(anonymous(2), 11, 2).is_none());
        let pushed = queue.push(identified(2), 21, 2);
        assert_eq!(pushed.and_then(|(_, displaced)| displaced), Some(10));
        assert!(queue.push(identified(3), 22, 2).is_none());
        assert!(HandshakeQueue::default().push(identified(1), 0, 0).is_none(), "no room at all");
        assert_eq!(pop_all(queue), [20, 21]);
    }

    #[test]
    fn handshakes_that_leave_have_no_turn() {
        let mut queue = HandshakeQueue::default();
        let places: Vec<_> = (0..100_u32)
            .map(|it| queue.push(anonymous(u64::from(it % 3)), it, 1000).expect("room").0)
            .collect();
        for place in &places[..98] {
            assert!(queue.remove(*place).is_some());
            assert!(queue.remove(*place).is_none());
        }
        assert_eq!((queue.len(), queue.lines.len()), (2, 2));
        assert_eq!(pop_all(queue), [99, 98], "the client of 99 was there first");
    }
}
