//! The counters of overload protection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use admission::{Class, Refusal, RefusalReason};
use telemetry::{DurationHistogram, HistogramReading, Striped, read};

/// The counters of overload protection.
#[derive(Debug, Default)]
pub(super) struct AdmissionStats {
    admitted: Striped<AdmittedCounts>,
    /// The number for each class and reason.
    pub(super) refused: [[AtomicU64; RefusalReason::ALL.len()]; Class::ALL.len()],
    /// The number for each class of those that open streams.
    pub(super) streams_refused: [AtomicU64; Class::ALL.len()],
    /// The waits of requests that were in the queue, or gave way.
    waits: DurationHistogram,
    /// The number of requests that gave way.
    pub(super) gave_way: AtomicU64,
    /// The number of requests that give way now.
    pub(super) giving_way: AtomicU64,
}

/// The admitted requests of each class.
#[derive(Debug, Default)]
struct AdmittedCounts {
    at_once: [AtomicU64; Class::ALL.len()],
    after_a_wait: [AtomicU64; Class::ALL.len()],
}

impl AdmissionStats {
    /// Counts an admitted request. `waited` is the time in the queue, of a request that was there.
    // hot path: one atomic addition to memory that other threads seldom write to
    pub(super) fn count_admitted(&self, class: Class, waited: Option<Duration>) {
        let AdmittedCounts { at_once, after_a_wait } = self.admitted.local();
        let counts = if waited.is_none() { at_once } else { after_a_wait };
        counts[class.index()].fetch_add(1, Ordering::Relaxed);
        if let Some(waited) = waited {
            self.waits.add(waited);
        }
    }

    /// Returns the number of admitted requests of a class.
    pub(super) fn admitted(&self, class: Class) -> u64 {
        let of_class = |it: &AdmittedCounts| {
            read(&it.at_once[class.index()]) + read(&it.after_a_wait[class.index()])
        };
        self.admitted.iter().map(of_class).sum()
    }

    /// Returns the waits of all admitted requests: zero for those that were admitted at once.
    pub(super) fn waits(&self) -> HistogramReading {
        let mut waits = self.waits.read();
        let at_once = self.admitted.iter().flat_map(|it| &it.at_once);
        if let Some((_, shortest)) = waits.buckets.first_mut() {
            *shortest += at_once.map(read).sum::<u64>();
        }
        waits
    }

    /// Returns the numbers of requests that count for the readiness, admitted and refused. Those that other routers
    /// would refuse as well do not: sheddable ones, and those of clients far above their share.
    pub(super) fn totals_for_readiness(&self) -> (u64, u64) {
        let (mut admitted, mut refused) = (0, 0);
        for class in [Class::Critical, Class::Normal] {
            admitted += self.admitted(class);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_admitted_at_once_has_waited_for_no_time() {
        let stats = AdmissionStats::default();
        stats.count_admitted(Class::Normal, None);
        stats.count_admitted(Class::Normal, Some(Duration::from_millis(2)));
        stats.count_admitted(Class::Critical, None);
        stats.count_admitted(Class::Sheddable, None);
        assert_eq!(Class::ALL.map(|class| stats.admitted(class)), [1, 2, 1]);
        assert_eq!(stats.totals_for_readiness(), (3, 0), "sheddable requests do not count");
        let HistogramReading { sum, buckets, .. } = stats.waits();
        let counts: Vec<_> = buckets.iter().map(|it| it.1).collect();
        assert_eq!(counts, [3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!((sum - 0.002).abs() < 1e-9, "{sum}");
    }
}
