//! The work in flight of each client, for fair shares.

use std::collections::hash_map::Entry;

use foldhash::HashMap;
use foldhash::HashMapExt;

use crate::UNITS;

/// The maximum number of clients with an entry of their own. Further ones share the entry [`OTHERS`]. Clients are only
/// known while they have work, so more than that means more requests in flight and waiting.
const CLIENTS_MAX: usize = 100_000;

/// The key of clients that are not told apart.
const OTHERS: u64 = u64::MAX;

/// The part of its fair share below which a client is admitted although the limit is reached.
const FAR_BELOW_SHARE: f64 = 0.5;

/// The multiple of its fair share above which a client is refused without waiting.
const FAR_ABOVE_SHARE: f64 = 1.5;

/// The standard deviations of the requests in flight by which a client that is greedy exceeds its share.
const GREEDY_DEVIATIONS: f64 = 3.0;

/// The units of work that the other clients must have in flight for one to be greedy.
const OTHERS_MIN: u64 = 8 * UNITS as u64;

/// The part of the limit (one in this number) that they must have in flight, if that is less, for a client at the limit
/// to be refused because of its share.
const OTHERS_PART: u64 = 20;

/// The clients with work, admitted or waiting.
#[derive(Debug)]
pub(crate) struct ClientTable {
    clients: HashMap<u64, ClientWork>,
}

#[derive(Clone, Copy, Default, Debug)]
struct ClientWork {
    /// The units of work in flight, without those that open streams.
    in_flight: u64,
    /// The requests in flight.
    admitted: u32,
    waiting: u32,
}

impl ClientTable {
    pub(crate) fn new() -> Self {
        Self { clients: HashMap::new() }
    }

    /// Returns the number of clients with work.
    pub(crate) fn active(&self) -> usize {
        self.clients.len()
    }

    /// Returns the key under which a client is counted. It stays the same until the work that is counted under it ends:
    /// callers keep it with the work.
    pub(crate) fn key_of(&self, client: u64) -> u64 {
        if self.clients.len() < CLIENTS_MAX || self.clients.contains_key(&client) {
            client
        } else {
            OTHERS
        }
    }

    pub(crate) fn add_in_flight(&mut self, key: u64, weight: u64) {
        let client = self.clients.entry(key).or_default();
        client.in_flight += weight;
        client.admitted += 1;
    }

    pub(crate) fn remove_in_flight(&mut self, key: u64, weight: u64) {
        self.change(key, |client| {
            client.in_flight = client.in_flight.saturating_sub(weight);
            client.admitted = client.admitted.saturating_sub(1);
        });
    }

    pub(crate) fn add_waiting(&mut self, key: u64) {
        self.clients.entry(key).or_default().waiting += 1;
    }

    pub(crate) fn remove_waiting(&mut self, key: u64) {
        self.change(key, |client| client.waiting = client.waiting.saturating_sub(1));
    }

    fn change(&mut self, key: u64, change: impl FnOnce(&mut ClientWork)) {
        // hot path: one look-up, also when the last work of a client ends
        if let Entry::Occupied(mut entry) = self.clients.entry(key) {
            let client = entry.get_mut();
            change(client);
            if client.admitted == 0 && client.waiting == 0 {
                entry.remove();
            }
        }
    }

    /// Returns the work that the client has in flight, and its fair share of `limit`: an equal part for each client
    /// with work.
    fn work_and_share(&self, key: u64, limit: u64) -> (u64, f64) {
        let own = self.clients.get(&key);
        let others = self.clients.len() - usize::from(own.is_some());
        (own.map_or(0, |it| it.in_flight), limit as f64 / (others + 1) as f64)
    }

    /// True if the client has so little in flight that it is admitted with `weight` more although the limit is reached
    /// by others.
    pub(crate) fn is_far_below_share(&self, key: u64, weight: u64, limit: u64) -> bool {
        let (own, share) = self.work_and_share(key, limit);
        (own + weight) as f64 <= share * FAR_BELOW_SHARE
    }

    /// True if the client has more in flight than comes about by chance, beside other clients with work: it is refused
    /// before the limit is reached. The requests in flight of clients that send equally many vary by the square root of
    /// their number, and the work in flight by more with heavy requests, such as this one of `weight`.
    ///
    /// `total` is the work of all clients. Those with next to nothing in flight do not make another one greedy.
    pub(crate) fn is_greedy(&self, key: u64, weight: u32, total: u64, limit: u64) -> bool {
        let (own, share) = self.work_and_share(key, limit);
        let chance = GREEDY_DEVIATIONS * (share * f64::from(weight.max(UNITS))).sqrt();
        let others = total.saturating_sub(own);
        own as f64 > share + chance && others >= OTHERS_MIN
    }

    /// True if the client has so much in flight, beside other clients with work, that it is refused at the limit
    /// instead of waiting. `total` is the work of all clients: next to a proxy with nearly all of it, a single small
    /// client makes the others behind the proxy no greedy one.
    pub(crate) fn is_far_above_share(&self, key: u64, total: u64, limit: u64) -> bool {
        let (own, share) = self.work_and_share(key, limit);
        let others = total.saturating_sub(own);
        own as f64 > share * FAR_ABOVE_SHARE && others >= OTHERS_MIN.min(limit / OTHERS_PART).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_an_equal_part_for_each_client_with_work() {
        let mut table = ClientTable::new();
        for _ in 0..9 {
            table.add_in_flight(1, 1000);
        }
        assert!(!table.is_far_above_share(1, 9000, 10_000), "the only client may use everything");
        table.add_waiting(2);
        assert!(table.is_far_above_share(1, 10_000, 10_000));
        assert!(!table.is_far_above_share(1, 9400, 10_000), "the other has next to nothing");
        assert!(table.is_far_below_share(2, 1000, 10_000));
        assert!(!table.is_far_below_share(1, 1000, 10_000));
        table.remove_waiting(2);
        assert_eq!(table.active(), 1);
    }

    /// Returns the requests in flight with which a client is greedy, beside nine others that have so many together.
    fn in_flight_when_greedy(limit: u64, others: u64) -> Option<u64> {
        let mut table = ClientTable::new();
        (1..10).for_each(|client| table.add_waiting(client));
        let units = u64::from(UNITS);
        (1..1000).find(|own| {
            table.add_in_flight(0, units);
            table.is_greedy(0, UNITS, (own + others) * units, limit * units)
        })
    }

    #[test]
    fn a_client_is_greedy_with_more_than_its_share_and_chance() {
        assert_eq!(in_flight_when_greedy(40, 20), Some(11), "4 + 3 × √4");
        assert_eq!(in_flight_when_greedy(1000, 500), Some(131), "100 + 3 × √100");
    }

    #[test]
    fn a_client_is_not_greedy_beside_others_with_next_to_nothing() {
        assert_eq!(in_flight_when_greedy(1000, 7), None);
        assert_eq!(in_flight_when_greedy(1000, 8), Some(131));
    }

    #[test]
    fn a_client_without_work_is_forgotten() {
        let mut table = ClientTable::new();
        table.add_in_flight(1, 500);
        table.add_waiting(1);
        table.remove_in_flight(1, 500);
        assert_eq!(table.active(), 1);
        table.remove_waiting(1);
        assert_eq!(table.active(), 0);
    }

    #[test]
    fn more_clients_than_the_table_has_room_for_share_an_entry() {
        let mut table = ClientTable::new();
        for client in 0..CLIENTS_MAX as u64 {
            table.add_waiting(client);
        }
        assert_eq!(table.key_of(5), 5);
        assert_eq!(table.key_of(CLIENTS_MAX as u64), OTHERS);
        table.remove_waiting(7);
        assert_eq!(table.key_of(CLIENTS_MAX as u64), CLIENTS_MAX as u64);
    }
}
