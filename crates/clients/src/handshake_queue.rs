//! The queue of WebSocket handshakes that wait for their turn. The handshakes of each client are in order, and clients
//! take turns, so that a client with thousands of handshakes delays those of others by one turn each.
//!
//! Critical handshakes come first, except for one turn in twenty while others wait as well. Among the others, clients
//! with an identity come before anonymous ones, which have a quarter of the turns while both wait. A full queue refuses
//! the newest handshake of the client with the most, and a critical one only if all that wait are critical. Every call
//! takes logarithmic time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The number of turns that clients with an identity have for each turn of an anonymous client, while both wait.
const TURNS_OF_IDENTIFIED: u32 = 3;

/// The number of turns that critical handshakes have for each turn of another one, while both wait.
const TURNS_OF_CRITICAL: u32 = 19;

/// The rank of a handshake, which decides about its turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HandshakeRank {
    /// The request is of the class `critical`.
    Critical,
    /// The client has proved an identity.
    Identified,
    /// Any other handshake.
    Anonymous,
}

/// The client of a handshake.
// The order of the fields decides which of two equally long lines a full queue shortens: that of the lower rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HandshakeClient {
    /// The rank of its handshakes.
    pub rank: HandshakeRank,
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
    /// The clients of each rank by the numbers of their turns.
    order: [BTreeMap<u64, HandshakeClient>; 3],
    /// The clients by the number of their handshakes: those with critical ones, and others.
    by_length: [BTreeSet<(usize, HandshakeClient)>; 2],
    waiting: usize,
    /// The next number of a turn or a handshake. At a million in a second they suffice for 500,000 years.
    next_number: u64,
    /// The number of turns that clients with an identity had since the last turn of an anonymous client.
    since_anonymous: u32,
    /// The number of turns of critical handshakes since the last turn of another one.
    since_other: u32,
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
            by_length: Default::default(),
            waiting: 0,
            next_number: 0,
            since_anonymous: 0,
            since_other: 0,
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
            displaced = Some(self.displace_for(client)?);
        }
        let number = self.take_number();
        let line = self.lines.entry(client).or_insert_with(|| {
            self.order[client.rank as usize].insert(number, client);
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
        let rank = self.next_rank();
        let next_turn = self.take_number();
        let order = &mut self.order[rank as usize];
        let (_, client) = order.pop_first()?;
        let line = self.lines.get_mut(&client)?;
        let (_, waiter) = line.waiters.pop_first()?;
        line.turn = next_turn;
        order.insert(next_turn, client);
        self.note_removal(client);
        Some(waiter)
    }

    /// Returns the rank that has the next turn, and counts the turn.
    fn next_rank(&mut self) -> HandshakeRank {
        let [critical, identified, anonymous] = self.order.each_ref().map(|it| !it.is_empty());
        if critical && (self.since_other < TURNS_OF_CRITICAL || !(identified || anonymous)) {
            self.since_other = self.since_other.saturating_add(1);
            return HandshakeRank::Critical;
        }
        self.since_other = 0;
        if identified && (self.since_anonymous < TURNS_OF_IDENTIFIED || !anonymous) {
            self.since_anonymous = self.since_anonymous.saturating_add(1);
            return HandshakeRank::Identified;
        }
        self.since_anonymous = 0;
        HandshakeRank::Anonymous
    }

    /// Takes the handshake that leaves a full queue for one of this client. `None` if none does.
    fn displace_for(&mut self, client: HandshakeClient) -> Option<T> {
        let own = self.lines.get(&client).map_or(0, |it| it.waiters.len());
        let [critical, others] = &self.by_length;
        let is_critical = client.rank == HandshakeRank::Critical;
        let &(length, longest) = match others.last() {
            Some(longest) if is_critical => return self.pop_newest(longest.1),
            Some(longest) => longest,
            None if is_critical => critical.last()?,
            None => return None,
        };
        if (own + 1, client.rank) >= (length, longest.rank) {
            return None;
        }
        self.pop_newest(longest)
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
            self.order[client.rank as usize].remove(&turn);
            self.lines.remove(&client);
        }
        self.set_length(client, length + 1, length);
        self.waiting -= 1;
    }

    fn set_length(&mut self, client: HandshakeClient, before: usize, after: usize) {
        let by_length = &mut self.by_length[usize::from(client.rank != HandshakeRank::Critical)];
        by_length.remove(&(before, client));
        if after > 0 {
            by_length.insert((after, client));
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

    const fn critical(key: u64) -> HandshakeClient {
        HandshakeClient { rank: HandshakeRank::Critical, key }
    }

    const fn identified(key: u64) -> HandshakeClient {
        HandshakeClient { rank: HandshakeRank::Identified, key }
    }

    const fn anonymous(key: u64) -> HandshakeClient {
        HandshakeClient { rank: HandshakeRank::Anonymous, key }
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
        assert!(queue.lines.is_empty() && queue.by_length.iter().all(BTreeSet::is_empty));
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
    fn critical_handshakes_come_first_and_leave_others_one_turn_in_twenty() {
        let mut waiters: Vec<_> = (0..3).map(|it| (anonymous(it), 100)).collect();
        waiters.extend((0..22).map(|it| (critical(it), 1)));
        let turns = pop_all(queue(&waiters));
        assert_eq!(turns[..19], [1; 19]);
        assert_eq!(turns[19..], [100, 1, 1, 1, 100, 100]);
    }

    #[test]
    fn a_critical_handshake_leaves_a_full_queue_only_for_another_critical_one() {
        let mut queue = queue(&[(critical(1), 1), (critical(1), 2), (anonymous(1), 100)]);
        let displaced = |queue: &mut HandshakeQueue<u32>, client, waiter| {
            queue.push(client, waiter, 3).map(|(_, displaced)| displaced)
        };
        assert_eq!(
            displaced(&mut queue, critical(1), 3),
            Some(Some(100)),
            "it has the most itself"
        );
        assert_eq!(displaced(&mut queue, identified(1), 50), None);
        assert_eq!(displaced(&mut queue, critical(1), 4), None);
        assert_eq!(displaced(&mut queue, critical(2), 5), Some(Some(3)));
        assert_eq!(pop_all(queue), [1, 5, 2]);
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
