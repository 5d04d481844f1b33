//! Which events everybody has got: what a publisher that waits for its receivers has to know.

use std::collections::VecDeque;

/// Events that are followed at a time; more than any window. A client that is further ahead has got more than was
/// published, which its count tells.
const FOLLOWED_MAX: u64 = 1 << 20;

/// See the module. Clients get events in the order in which they were published, so a client's `n`th result is the
/// `n`th event.
#[derive(Debug, Default)]
pub(super) struct Confirmed {
    clients: usize,
    /// Events that everybody has got.
    count: u64,
    /// How many have got each of the following ones.
    begun: VecDeque<usize>,
}

impl Confirmed {
    /// Nothing yet, of so many clients.
    pub(super) fn by(clients: usize) -> Self {
        Self { clients, ..Self::default() }
    }

    /// Events that everybody has got.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// A client has got its `nth` result; the first is 1.
    // hot path: once a message.
    pub(super) fn received(&mut self, nth: u64) {
        let Some(place) = nth.checked_sub(self.count + 1).filter(|it| *it < FOLLOWED_MAX) else {
            return;
        };
        // Below FOLLOWED_MAX, so it fits.
        let place = place as usize;
        if place >= self.begun.len() {
            self.begun.resize(place + 1, 0);
        }
        self.begun[place] += 1;
        while self.begun.front() == Some(&self.clients) {
            self.begun.pop_front();
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_confirmed_when_the_last_client_has_it() {
        let mut confirmed = Confirmed::by(3);
        let mut counts = Vec::new();
        for nth in [1, 1, 2, 2, 3, 1, 2, 3, 3, 9, u64::MAX] {
            confirmed.received(nth);
            counts.push(confirmed.count());
        }
        assert_eq!(counts, [0, 0, 0, 0, 0, 1, 2, 2, 3, 3, 3]);
    }

    #[test]
    fn one_client_confirms_at_once_and_keeps_nothing() {
        let mut confirmed = Confirmed::by(1);
        (1..1000).for_each(|nth| confirmed.received(nth));
        assert_eq!((confirmed.count(), confirmed.begun.len()), (999, 0));
    }
}
