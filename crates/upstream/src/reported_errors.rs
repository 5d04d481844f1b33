//! Counters of the responses with errors, by the code that the subgraph gives them.
//!
//! The codes are text of the subgraph. It may put anything into them, so the number of different ones is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use telemetry::name_table::{NameKey, NameRow, NameTable, NamedCounters, TableReading};
use telemetry::read;

/// The maximum number of codes of one subgraph that are counted separately.
const CODES_MAX: usize = 32;

/// The maximum length of a code in the metrics. Longer ones are cut.
const CODE_BYTES_MAX: usize = 64;

/// The maximum length of an error code of a subgraph in the log, in bytes.
pub const LOGGED_CODE_BYTES_MAX: usize = 100;

/// The label of responses without a code in their first error.
const NO_CODE: &str = "none";

/// The label of all codes without a counter of their own.
pub(crate) const OTHER_CODES: &str = "other";

/// The responses of one subgraph with errors.
#[derive(Debug)]
pub(crate) struct ReportedErrors(NameTable<Box<str>, CodeCount>);

/// The responses with one code.
#[derive(Debug)]
pub(crate) struct ReportedCount {
    /// The number of its row.
    pub(crate) row: u64,
    pub(crate) code: Box<str>,
    pub(crate) count: u64,
}

#[derive(Debug, Default)]
struct CodeCount(AtomicU64);

impl NamedCounters for CodeCount {
    fn uses(&self) -> u64 {
        read(&self.0)
    }

    fn add_all(&self, other: &Self) {
        self.0.fetch_add(other.uses(), Ordering::Relaxed);
    }
}

impl Default for ReportedErrors {
    fn default() -> Self {
        Self(NameTable::new(CODES_MAX, Instant::now()))
    }
}

impl ReportedErrors {
    /// Counts a response with this code in its first error.
    pub(crate) fn count(&self, code: Option<&str>) {
        let code = code.filter(|it| !it.is_empty()).unwrap_or(NO_CODE);
        let code = &code[..code.floor_char_boundary(CODE_BYTES_MAX)];
        let key = match code {
            OTHER_CODES => NameKey::OTHER,
            _ => self.0.admit(code, Instant::now(), || code.into()),
        };
        self.0.count(key, |it| {
            it.0.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// Returns the number of responses by code, in the order of the codes, and that of all other codes.
    pub(crate) fn counts(&self) -> (Vec<ReportedCount>, u64) {
        let TableReading { rows, other } = self.0.read_rows();
        let count = |row: &Arc<NameRow<Box<str>, CodeCount>>| ReportedCount {
            row: row.number,
            code: row.label.clone(),
            count: row.counters.uses(),
        };
        let mut counts: Vec<_> = rows.iter().map(count).collect();
        counts.sort_unstable_by(|a, b| a.code.cmp(&b.code));
        (counts, other.uses())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_counted_by_the_code_of_their_first_error() {
        let errors = ReportedErrors::default();
        let long = "L".repeat(100);
        for code in [Some("B"), None, Some("A"), Some("B"), Some("other"), Some(""), Some(&*long)] {
            errors.count(code);
        }
        let (counts, others) = errors.counts();
        let counts: Vec<_> = counts.iter().map(|it| (&*it.code, it.count)).collect();
        assert_eq!(counts, [("A", 1), ("B", 2), (&long[..64], 1), ("none", 2)]);
        assert_eq!(others, 1);
    }

    #[test]
    fn the_number_of_codes_is_bounded() {
        let errors = ReportedErrors::default();
        (0..1_000).for_each(|number| errors.count(Some(&format!("CODE_{number}"))));
        let (counts, others) = errors.counts();
        assert_eq!(counts.len(), CODES_MAX);
        assert_eq!(counts.iter().map(|it| it.count).sum::<u64>() + others, 1_000);
    }
}
