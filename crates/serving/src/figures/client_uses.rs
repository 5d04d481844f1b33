//! The clients of one operation: a few counters by client, and one for all others.

use std::sync::atomic::{AtomicU64, Ordering};

use telemetry::name_table::NameKey;
use telemetry::read;

/// The number of clients with a counter of their own. An operation belongs to an application, which has a few versions.
const CLIENTS_MAX: usize = 6;

/// Counters by client: the first ones that come have one of their own.
#[derive(Debug, Default)]
pub(super) struct ClientUses {
    /// The numbers of the clients' keys; zero if the place is free.
    clients: [AtomicU64; CLIENTS_MAX],
    uses: [AtomicU64; CLIENTS_MAX],
    others: AtomicU64,
}

impl ClientUses {
    /// Counts a use.
    // hot path: a few loads, and one atomic addition to memory that other threads seldom write to
    pub(super) fn count(&self, client: NameKey) {
        self.add(client.number(), 1);
    }

    /// Adds all counts of another row.
    pub(super) fn add_all(&self, other: &Self) {
        for (client, uses) in other.iter() {
            self.add(client.number(), uses);
        }
        self.others.fetch_add(other.others(), Ordering::Relaxed);
    }

    /// Iterates over the clients with a counter of their own.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NameKey, u64)> {
        let places = self.clients.iter().zip(&self.uses);
        places
            .map(|(client, uses)| (NameKey::from_number(read(client)), read(uses)))
            .filter(|(client, _)| *client != NameKey::OTHER)
    }

    /// Returns the number of uses of all other clients.
    pub(super) fn others(&self) -> u64 {
        read(&self.others)
    }

    fn add(&self, client: u64, count: u64) {
        self.counter_of(client).fetch_add(count, Ordering::Relaxed);
    }

    fn counter_of(&self, client: u64) -> &AtomicU64 {
        if client == NameKey::OTHER.number() {
            return &self.others;
        }
        for (place, uses) in self.clients.iter().zip(&self.uses) {
            let mut known = read(place);
            if known == 0 {
                let claimed =
                    place.compare_exchange(0, client, Ordering::Relaxed, Ordering::Relaxed);
                known = claimed.map_or_else(|other| other, |_| client);
            }
            if known == client {
                return uses;
            }
        }
        &self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_clients_have_a_counter_of_their_own_and_no_use_is_lost() {
        let (one, other) = (ClientUses::default(), ClientUses::default());
        let key = NameKey::from_number;
        for client in 1..=10 {
            (0..client).for_each(|_| one.count(key(client)));
        }
        other.count(key(2));
        other.count(key(99));
        other.count(NameKey::OTHER);
        one.add_all(&other);
        let counts: Vec<_> = one.iter().map(|(client, uses)| (client.number(), uses)).collect();
        assert_eq!(counts, [(1, 1), (2, 3), (3, 3), (4, 4), (5, 5), (6, 6)]);
        assert_eq!(one.others(), 7 + 8 + 9 + 10 + 1 + 1);
    }
}
