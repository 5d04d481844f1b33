//! The counters of overload protection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use admission::{Class, Refusal, RefusalReason};
use telemetry::{DurationHistogram, read};

/// The counters of overload protection.
#[derive(Debug, Default)]
pub(super) struct AdmissionStats {
    /// The number for each class.
    pub(super) admitted: [AtomicU64; Class::ALL.len()],
    /// The number for each class and reason.
    pub(super) refused: [[AtomicU64; RefusalReason::ALL.len()]; Class::ALL.len()],
    /// The number for each class of those that open streams.
    pub(super) streams_refused: [AtomicU64; Class::ALL.len()],
    pub(super) waits: DurationHistogram,
}

impl AdmissionStats {
    pub(super) fn count_admitted(&self, class: Class, waited: Duration) {
        self.admitted[class.index()].fetch_add(1, Ordering::Relaxed);
        self.waits.add(waited);
    }

    /// Returns the numbers of requests that count for the readiness, admitted and refused. Those that other routers
    /// would refuse as well do not: sheddable ones, and those of clients far above their share.
    pub(super) fn totals_for_readiness(&self) -> (u64, u64) {
        let (mut admitted, mut refused) = (0, 0);
        for class in [Class::Critical, Class::Normal] {
            admitted += read(&self.admitted[class.index()]);
            for reason in [RefusalReason::QueueFull, RefusalReason::WaitedTooLong] {
                refused += read(&self.refused[class.index()][reason.index()]);
            }
        }
        (admitted, refused)
    }

    pub(super) fn count_refused(&self, class: Class, refusal: &Refusal) {
        self.refused[class.index()][refusal.reason.index()].fetch_add(1, Ordering::Relaxed);
        if refusal.opens_stream {
            self.streams_refused[class.index()].fetch_add(1, Ordering::Relaxed);
        }
    }
}
