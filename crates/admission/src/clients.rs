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

/// The clients with work, admitted or waiting. New streams have a part of the limit of their own, so they count in no
/// share of it, and clients that only open streams have none.
#[derive(Debug)]
pub(crate) struct ClientTable {
    clients: HashMap<u64, ClientWork>,
    /// The clients that have a share.
    sharing: usize,
}

#[derive(Clone, Copy, Default, Debug)]
struct ClientWork {
    /// The units of work in flight, without those that open streams.
    in_flight: u64,
    /// The requests in flight and waiting, without those that open streams.
    operations: u32,
    /// The requests in flight and waiting that open streams.
    streams: u32,
    /// How many of the waiting requests give way to those of other clients.
    giving_way: u32,
}

impl ClientTable {
    pub(crate) fn new() -> Self {
        Self { clients: HashMap::new(), sharing: 0 }
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

    pub(crate) fn add_in_flight(&mut self, key: u64, weight: u64, is_stream: bool) {
        let client = self.enter(key, is_stream);
        client.in_flight += if is_stream { 0 } else { weight };
    }

    pub(crate) fn remove_in_flight(&mut self, key: u64, weight: u64, is_stream: bool) {
        self.leave(key, if is_stream { 0 } else { weight }, is_stream);
    }

    pub(crate) fn add_waiting(&mut self, key: u64, is_stream: bool) {
        self.enter(key, is_stream);
    }

    pub(crate) fn remove_waiting(&mut self, key: u64, is_stream: bool) {
        self.leave(key, 0, is_stream);
    }

    /// Counts a waiting request that gives way to those of other clients.
    pub(crate) fn add_giving_way(&mut self, key: u64) {
        self.enter(key, false).giving_way += 1;
    }

    pub(crate) fn remove_giving_way(&mut self, key: u64) {
        if let Some(client) = self.clients.get_mut(&key) {
            client.giving_way = client.giving_way.saturating_sub(1);
        }
        self.leave(key, 0, false);
    }

    fn enter(&mut self, key: u64, is_stream: bool) -> &mut ClientWork {
        let client = self.clients.entry(key).or_default();
        if is_stream {
            client.streams += 1;
        } else {
            self.sharing += usize::from(client.operations == 0);
            client.operations += 1;
        }
        client
    }

    fn leave(&mut self, key: u64, weight: u64, is_stream: bool) {
        // hot path: one look-up, also when the last work of a client ends
        let Entry::Occupied(mut entry) = self.clients.entry(key) else { return };
        let client = entry.get_mut();
        client.in_flight = client.in_flight.saturating_sub(weight);
        if is_stream {
            client.streams = client.streams.saturating_sub(1);
        } else if client.operations > 0 {
            client.operations -= 1;
            self.sharing -= usize::from(client.operations == 0);
        }
        if client.operations == 0 && client.streams == 0 {
            entry.remove();
        }
    }

    /// Returns the work that the client has in flight, and its fair share of `limit`: an equal part for each client
    /// with operations.
    fn work_and_share(&self, key: u64, limit: u64) -> (u64, f64) {
        let own = self.clients.get(&key);
        let others = self.sharing - usize::from(own.is_some_and(|it| it.operations > 0));
        (own.map_or(0, |it| it.in_flight), limit as f64 / (others + 1) as f64)
    }

    /// True if the client has so little in flight that it is admitted with `weight` more although the limit is reached
    /// by others.
    pub(crate) fn is_far_below_share(&self, key: u64, weight: u64, limit: u64) -> bool {
        let (own, share) = self.work_and_share(key, limit);
        (own + weight) as f64 <= share * FAR_BELOW_SHARE
    }

    /// True if the client has more than its share of what is in flight, so much more that it is not chance, beside
    /// other clients with work: it is refused before the limit is reached. The requests in flight of clients that send
    /// equally many vary by the square root of their number, and the work in flight by more with heavy requests, such
    /// as this one of `weight`.
    ///
    /// `total` is the work of all clients. Those with next to nothing in flight do not make another one greedy.
    pub(crate) fn is_greedy(&self, key: u64, weight: u32, total: u64, limit: u64) -> bool {
        let (own, share) = self.work_and_share(key, total.min(limit));
        let chance = GREEDY_DEVIATIONS * (share * f64::from(weight.max(UNITS))).sqrt();
        own as f64 > share + chance && have_work(total.saturating_sub(own))
    }

    /// True if a request of the client gives way to those of other clients: it is greedy, or earlier requests of it
    /// give way, which are not in flight yet.
    pub(crate) fn gives_way(&self, key: u64, weight: u32, total: u64, limit: u64) -> bool {
        let own = self.clients.get(&key).copied().unwrap_or_default();
        let follows = own.giving_way > 0 && have_work(total.saturating_sub(own.in_flight));
        follows || self.is_greedy(key, weight, total, limit)
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

/// True if other clients have so much in flight that one can be greedy beside them.
fn have_work(others: u64) -> bool {
    others >= OTHERS_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_an_equal_part_for_each_client_with_work() {
        let mut table = ClientTable::new();
        for _ in 0..9 {
            table.add_in_flight(1, 1000, false);
        }
        assert!(!table.is_far_above_share(1, 9000, 10_000), "the only client may use everything");
        table.add_waiting(2, false);
        assert!(table.is_far_above_share(1, 10_000, 10_000));
        assert!(!table.is_far_above_share(1, 9400, 10_000), "the other has next to nothing");
        assert!(table.is_far_below_share(2, 1000, 10_000));
        assert!(!table.is_far_below_share(1, 1000, 10_000));
        table.remove_waiting(2, false);
        assert_eq!(table.active(), 1);
    }

    #[test]
    fn clients_that_only_open_streams_take_no_share() {
        let mut table = ClientTable::new();
        for client in [1, 2] {
            (0..5).for_each(|_| table.add_in_flight(client, 1000, false));
        }
        for client in 3..1000 {
            table.add_waiting(client, true);
            table.add_in_flight(client, 1000, true);
        }
        assert!(!table.is_far_above_share(1, 10_000, 10_000), "it has half");
        assert_eq!(table.active(), 999);
        // One with a share loses it with its last operation, not with its last stream.
        table.add_waiting(1, true);
        (0..5).for_each(|_| table.remove_in_flight(1, 1000, false));
        assert!(table.is_far_below_share(2, 0, 10_000), "the only one with a share has half of it");
        for client in 3..1000 {
            table.remove_waiting(client, true);
            table.remove_in_flight(client, 1000, true);
        }
        table.remove_waiting(1, true);
        assert_eq!((table.active(), table.sharing), (1, 1));
    }

    /// Returns the requests in flight with which a client is greedy, beside nine others that have so many together.
    fn in_flight_when_greedy(limit: u64, others: u64) -> Option<u64> {
        let mut table = ClientTable::new();
        (1..10).for_each(|client| table.add_waiting(client, false));
        let units = u64::from(UNITS);
        (1..1000).find(|own| {
            table.add_in_flight(0, units, false);
            table.is_greedy(0, UNITS, (own + others) * units, limit * units)
        })
    }

    #[test]
    fn a_client_is_greedy_with_more_than_its_share_and_chance() {
        assert_eq!(in_flight_when_greedy(1000, 20), Some(8), "2.8 + 3 × √2.8");
        assert_eq!(in_flight_when_greedy(1000, 500), Some(81), "58.1 + 3 × √58.1");
        assert_eq!(
            in_flight_when_greedy(400, 500),
            Some(59),
            "40 + 3 × √40: the limit is the whole"
        );
    }

    #[test]
    fn a_client_is_not_greedy_beside_others_with_next_to_nothing() {
        assert_eq!(in_flight_when_greedy(1000, 7), None);
        assert_eq!(in_flight_when_greedy(1000, 8), Some(5));
    }

    #[test]
    fn requests_give_way_while_earlier_ones_of_the_client_do() {
        let mut table = ClientTable::new();
        let mut total = 0;
        let mut add = |table: &mut ClientTable, client: u64, requests: u64| {
            (0..requests).for_each(|_| table.add_in_flight(client, 1000, false));
            total += 1000 * requests;
            total
        };
        add(&mut table, 1, 50);
        let before = add(&mut table, 2, 10);
        assert!(!table.gives_way(2, UNITS, before, 1_000_000));
        table.add_giving_way(2);
        assert!(
            table.gives_way(2, UNITS, before, 1_000_000),
            "although it has less than its share"
        );
        assert!(!table.is_greedy(2, UNITS, before, 1_000_000), "it is not refused for that");
        table.remove_giving_way(2);
        assert!(!table.gives_way(2, UNITS, before, 1_000_000));
        let after = add(&mut table, 2, 100);
        assert!(table.gives_way(2, UNITS, after, 1_000_000), "it is greedy");
    }

    #[test]
    fn a_client_without_work_is_forgotten() {
        let mut table = ClientTable::new();
        table.add_in_flight(1, 500, false);
        table.add_waiting(1, false);
        table.remove_in_flight(1, 500, false);
        assert_eq!(table.active(), 1);
        table.remove_waiting(1, false);
        assert_eq!(table.active(), 0);
    }

    #[test]
    fn more_clients_than_the_table_has_room_for_share_an_entry() {
        let mut table = ClientTable::new();
        for client in 0..CLIENTS_MAX as u64 {
            table.add_waiting(client, false);
        }
        assert_eq!(table.key_of(5), 5);
        assert_eq!(table.key_of(CLIENTS_MAX as u64), OTHERS);
        table.remove_waiting(7, false);
        assert_eq!(table.key_of(CLIENTS_MAX as u64), CLIENTS_MAX as u64);
    }
}
