//! Counts the events that all clients have received, for a publisher that waits for its receivers.

use std::collections::VecDeque;

/// The maximum number of events tracked at a time, more than any window. A client that is further ahead has received
/// more than was published, which its own count shows.
const TRACKED_MAX: u64 = 1 << 20;

/// The counter, see the module. Clients receive events in the order of publishing, so a client's `n`th result is the
/// `n`th event.
#[derive(Debug, Default)]
pub(super) struct ConfirmedEvents {
    clients: usize,
    /// The number of events that all clients have received.
    count: u64,
    /// The number of clients that have received each of the following events.
    pending_counts: VecDeque<usize>,
}

impl ConfirmedEvents {
    /// Creates a counter for this number of clients.
    pub(super) fn by(clients: usize) -> Self {
        Self { clients, ..Self::default() }
    }

    /// Returns the number of events that all clients have received.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Counts the `nth` result of a client; the first is 1.
    // hot path: once a message.
    pub(super) fn received(&mut self, nth: u64) {
        let Some(place) = nth.checked_sub(self.count + 1).filter(|it| *it < TRACKED_MAX) else {
            return;
        };
        // The index is below `TRACKED_MAX`, so it fits.
        let place = place as usize;
        if place >= self.pending_counts.len() {
            self.pending_counts.resize(place + 1, 0);
        }
        self.pending_counts[place] += 1;
        while self.pending_counts.front() == Some(&self.clients) {
            self.pending_counts.pop_front();
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_confirmed_when_the_last_client_has_it() {
        let mut confirmed = ConfirmedEvents::by(3);
        let mut counts = Vec::new();
        for nth in [1, 1, 2, 2, 3, 1, 2, 3, 3, 9, u64::MAX] {
            confirmed.received(nth);
            counts.push(confirmed.count());
        }
        assert_eq!(counts, [0, 0, 0, 0, 0, 1, 2, 2, 3, 3, 3]);
    }

    #[test]
    fn a_single_client_confirms_immediately_and_keeps_nothing() {
        let mut confirmed = ConfirmedEvents::by(1);
        (1..1000).for_each(|nth| confirmed.received(nth));
        assert_eq!((confirmed.count(), confirmed.pending_counts.len()), (999, 0));
    }
}
