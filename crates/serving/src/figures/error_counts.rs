//! Counters of failed requests by the code of their first error.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use execute::ErrorCode;
use telemetry::{Samples, read};

use super::names::OTHER;

/// The number of codes with a counter of their own in each row. Operations and clients fail in a few ways; each code
/// more would let clients make the metrics half a percent larger.
const CODES_MAX: usize = 10;

/// Counters by code: the first ones that come have one of their own. They are allocated with the first error, since
/// most rows have none.
#[derive(Debug, Default)]
pub(super) struct ErrorCounts(OnceLock<Box<CodeCounters>>);

#[derive(Debug, Default)]
struct CodeCounters {
    /// The numbers of the codes, from one; zero if the place is free.
    codes: [AtomicU64; CODES_MAX],
    counts: [AtomicU64; CODES_MAX],
    others: AtomicU64,
}

impl ErrorCounts {
    /// Counts a request that failed with this code.
    pub(super) fn count(&self, code: ErrorCode) {
        self.counters().counter_of(number(code)).fetch_add(1, Ordering::Relaxed);
    }

    /// Adds all counts of another row.
    pub(super) fn add_all(&self, other: &Self) {
        let Some(other) = other.0.get() else { return };
        for (code, count) in other.iter() {
            self.counters().counter_of(code).fetch_add(count, Ordering::Relaxed);
        }
        self.counters().others.fetch_add(read(&other.others), Ordering::Relaxed);
    }

    /// Returns the codes that were counted with their counts, in the order of the codes, and all others together at the
    /// end.
    pub(super) fn read(&self) -> Vec<(&'static str, u64)> {
        let Some(counters) = self.0.get() else { return Vec::new() };
        let mut counts: Vec<(u64, u64)> = counters.iter().filter(|it| it.1 > 0).collect();
        counts.sort_unstable();
        let code = |number: u64| ErrorCode::ALL.get(number as usize - 1).map(|it| it.as_str());
        let counts = counts.into_iter().filter_map(|(number, count)| Some((code(number)?, count)));
        let others = Some((OTHER, read(&counters.others))).filter(|it| it.1 > 0);
        counts.chain(others).collect()
    }

    /// Writes a sample for each code.
    pub(super) fn write(&self, samples: &mut Samples<'_, '_>) -> fmt::Result {
        let mut counts = self.read().into_iter();
        counts.try_for_each(|(code, count)| samples.add_labelled(("code", code), count))
    }

    fn counters(&self) -> &CodeCounters {
        self.0.get_or_init(Box::default)
    }
}

impl CodeCounters {
    /// Iterates over the numbers of the codes with a counter of their own.
    fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let places = self.codes.iter().zip(&self.counts);
        places.map(|(code, count)| (read(code), read(count))).filter(|it| it.0 > 0)
    }

    fn counter_of(&self, code: u64) -> &AtomicU64 {
        for (place, count) in self.codes.iter().zip(&self.counts) {
            let mut known = read(place);
            if known == 0 {
                let claimed = place.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
                known = claimed.map_or_else(|other| other, |_| code);
            }
            if known == code {
                return count;
            }
        }
        &self.others
    }
}

/// Returns the number of a code, from one.
fn number(code: ErrorCode) -> u64 {
    code as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_codes_have_a_counter_of_their_own() {
        for (index, code) in ErrorCode::ALL.into_iter().enumerate() {
            assert_eq!(number(code), index as u64 + 1);
        }
        let (one, other) = (ErrorCounts::default(), ErrorCounts::default());
        one.count(ErrorCode::Timeout);
        other.count(ErrorCode::Timeout);
        other.count(ErrorCode::BadRequest);
        one.add_all(&other);
        assert_eq!(one.read(), [("BAD_REQUEST", 1), ("TIMEOUT", 2)]);
    }

    #[test]
    fn codes_beyond_the_bound_count_together_and_none_is_lost() {
        let (one, other) = (ErrorCounts::default(), ErrorCounts::default());
        for code in ErrorCode::ALL {
            one.count(code);
            other.count(code);
        }
        one.add_all(&other);
        let counts = one.read();
        assert_eq!(counts.len(), CODES_MAX + 1);
        assert!(counts[..CODES_MAX].iter().all(|it| it.1 == 2), "{counts:?}");
        let others = 2 * (ErrorCode::ALL.len() - CODES_MAX) as u64;
        assert_eq!(counts[CODES_MAX], (OTHER, others));
        assert_eq!(ErrorCounts::default().read(), []);
    }
}
