//! The numbers of the generations of a process. All of them are different, also across graphs, because caches and
//! requests in flight use them as a part of their keys.

use std::sync::atomic::{AtomicU64, Ordering};

/// The numbers of generations. The first one is 1.
#[derive(Debug, Default)]
pub(crate) struct GenerationNumbers(AtomicU64);

impl GenerationNumbers {
    /// Returns the next number.
    pub(crate) fn take(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes a number back that no generation has got, so that the next one gets it. A number that is not the last one
    /// is left out.
    pub(crate) fn give_back(&self, number: u64) {
        let _ = self.0.compare_exchange(
            number,
            number.saturating_sub(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_back_is_the_next_one_unless_another_one_followed() {
        let numbers = GenerationNumbers::default();
        assert_eq!((numbers.take(), numbers.take()), (1, 2));
        numbers.give_back(2);
        assert_eq!((numbers.take(), numbers.take()), (2, 3));
        numbers.give_back(2);
        assert_eq!(numbers.take(), 4);
    }
}
