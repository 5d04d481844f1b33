//! The places for opening side readers. When many clients return at once, side readers for thousands of topics may be
//! needed at once, and each is a consumer that the broker has to make. So a few are opened at a time, and the others
//! wait in their order. Each provider has places of its own, so one whose broker does not respond delays no other one.
//!
//! An opening of a broker that does not respond fails after some seconds. Each failure in a row gives the provider as
//! many places again, so thousands of readers do not wait for that time one after the other: all of them are soon open,
//! or have failed.

use std::collections::BTreeMap;

use crate::shard::trigger_id::TriggerId;

/// The side readers of a shard that are being opened, or wait to be opened.
#[derive(Default)]
pub(super) struct ReaderOpenings {
    /// The openings of each provider that has any, by its name.
    providers: BTreeMap<Box<str>, ProviderOpenings>,
    next_ticket: u64,
}

#[derive(Default)]
struct ProviderOpenings {
    /// The number of readers that are being opened.
    opening: usize,
    /// The number of readers in a row for which the provider was not available.
    failures: usize,
    /// The readers that wait, by ticket: the trigger, and the index of its reader.
    waiting: BTreeMap<u64, (TriggerId, usize)>,
}

impl ReaderOpenings {
    /// Makes a reader of a trigger wait for a place. Returns its ticket.
    pub(super) fn wait(&mut self, provider: &str, trigger: TriggerId, reader: usize) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        if !self.providers.contains_key(provider) {
            self.providers.insert(provider.into(), ProviderOpenings::default());
        }
        if let Some(openings) = self.providers.get_mut(provider) {
            openings.waiting.insert(ticket, (trigger, reader));
        }
        ticket
    }

    /// Removes a reader that waits, because it is no longer needed.
    pub(super) fn stop_waiting(&mut self, provider: &str, ticket: u64) {
        self.change(provider, |openings| {
            let waited = openings.waiting.remove(&ticket).is_some();
            debug_assert!(waited, "a reader waits until it is opened or closed");
        });
    }

    /// Takes the next reader that waits, and gives it a place, if its provider has one among `most`.
    pub(super) fn take_place(&mut self, most: usize) -> Option<(TriggerId, usize)> {
        // A reader must be opened at some time, whatever the limit.
        let has_place = |it: &&mut ProviderOpenings| it.opening < it.places(most);
        self.providers.values_mut().filter(has_place).find_map(|openings| {
            let (_, reader) = openings.waiting.pop_first()?;
            openings.opening += 1;
            Some(reader)
        })
    }

    /// Notes whether the provider was available for a reader. Must be called before the place is given back.
    pub(super) fn note_availability(&mut self, provider: &str, is_available: bool) {
        if let Some(openings) = self.providers.get_mut(provider) {
            openings.failures = if is_available { 0 } else { openings.failures.saturating_add(1) };
        }
    }

    /// Gives the place of a reader back: it is open, could not be opened, or is no longer needed.
    pub(super) fn give_place_back(&mut self, provider: &str) {
        self.change(provider, |openings| {
            debug_assert!(openings.opening > 0, "a reader gives its place back once");
            openings.opening = openings.opening.saturating_sub(1);
        });
    }

    fn change(&mut self, provider: &str, change: impl FnOnce(&mut ProviderOpenings)) {
        let Some(openings) = self.providers.get_mut(provider) else {
            debug_assert!(false, "a provider with readers to open is known");
            return;
        };
        change(openings);
        if openings.opening == 0 && openings.waiting.is_empty() {
            self.providers.remove(provider);
        }
    }

    /// Returns the number of readers that may be opened at a time, of providers with readers to open.
    #[cfg(test)]
    pub(super) fn places(&self, most: usize) -> usize {
        self.providers.values().map(|it| it.places(most)).sum()
    }

    /// Returns the number of readers that are being opened, and of those that wait.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        let all = self.providers.values();
        all.fold((0, 0), |(opening, waiting), it| {
            (opening + it.opening, waiting + it.waiting.len())
        })
    }
}

impl ProviderOpenings {
    /// Returns the number of readers that may be opened at a time.
    fn places(&self, most: usize) -> usize {
        most.max(1).saturating_mul(self.failures.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_take_places_in_their_order_and_each_provider_has_places_of_its_own() {
        let mut openings = ReaderOpenings::default();
        let tickets: Vec<_> =
            (0..5).map(|number| openings.wait("hangs", TriggerId(number), 0)).collect();
        openings.wait("other", TriggerId(5), 1);
        let take_all = |openings: &mut ReaderOpenings| -> Vec<_> {
            std::iter::from_fn(|| openings.take_place(2)).map(|(trigger, _)| trigger.0).collect()
        };
        assert_eq!(take_all(&mut openings), [0, 1, 5]);
        openings.stop_waiting("hangs", tickets[2]);
        openings.give_place_back("hangs");
        openings.give_place_back("other");
        assert_eq!(take_all(&mut openings), [3]);
        assert_eq!(openings.counts(), (2, 1));
        for _ in 0..2 {
            openings.give_place_back("hangs");
        }
        assert_eq!(take_all(&mut openings), [4]);
        openings.give_place_back("hangs");
        assert!(openings.providers.is_empty(), "nothing is kept for providers without readers");
    }

    #[test]
    fn readers_of_a_provider_that_does_not_respond_do_not_wait_for_each_other() {
        let mut openings = ReaderOpenings::default();
        for number in 0..10_000 {
            openings.wait("hangs", TriggerId(number), 0);
        }
        let mut rounds = 0;
        while openings.counts() != (0, 0) {
            while openings.take_place(32).is_some() {}
            // All of them fail at the same time.
            for _ in 0..openings.counts().0 {
                openings.note_availability("hangs", false);
                openings.give_place_back("hangs");
            }
            rounds += 1;
        }
        assert_eq!(rounds, 3);

        openings.wait("hangs", TriggerId(1), 0);
        openings.wait("hangs", TriggerId(2), 0);
        openings.note_availability("hangs", false);
        assert_eq!(openings.places(1), 2);
        openings.note_availability("hangs", true);
        assert_eq!(openings.places(1), 1, "a provider that has responded");
    }

    #[test]
    fn a_reader_is_opened_whatever_the_limit() {
        let mut openings = ReaderOpenings::default();
        openings.wait("p", TriggerId(1), 0);
        openings.wait("p", TriggerId(2), 0);
        assert_eq!(openings.take_place(0), Some((TriggerId(1), 0)));
        assert_eq!(openings.take_place(0), None);
    }
}
