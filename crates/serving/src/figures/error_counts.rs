//! Counters of failed requests by the code of their first error.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use execute::ErrorCode;
use telemetry::read;

/// One counter for each code. They are allocated with the first error, since most rows have none.
#[derive(Debug, Default)]
pub(super) struct ErrorCounts(OnceLock<Box<[AtomicU64; ErrorCode::ALL.len()]>>);

impl ErrorCounts {
    /// Counts a request that failed with this code.
    pub(super) fn count(&self, code: ErrorCode) {
        self.counters()[code as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds all counts of another row.
    pub(super) fn add_all(&self, other: &Self) {
        for (code, count) in other.iter() {
            self.counters()[code as usize].fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Iterates over the codes that were counted.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ErrorCode, u64)> {
        let counters = self.0.get().into_iter().flat_map(|it| it.iter());
        ErrorCode::ALL
            .into_iter()
            .zip(counters)
            .map(|(code, it)| (code, read(it)))
            .filter(|it| it.1 > 0)
    }

    fn counters(&self) -> &[AtomicU64; ErrorCode::ALL.len()] {
        self.0.get_or_init(|| Box::new([const { AtomicU64::new(0) }; ErrorCode::ALL.len()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_counter_of_its_own() {
        for (index, code) in ErrorCode::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, index);
        }
        let (one, other) = (ErrorCounts::default(), ErrorCounts::default());
        one.count(ErrorCode::Timeout);
        other.count(ErrorCode::Timeout);
        other.count(ErrorCode::BadRequest);
        one.add_all(&other);
        let counts: Vec<_> = one.iter().collect();
        assert_eq!(counts, [(ErrorCode::BadRequest, 1), (ErrorCode::Timeout, 2)]);
    }
}
