//! Counters of invalidations by the source that sent them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use telemetry::{Buckets, DurationHistogram, Metric};

use crate::stats::count;

telemetry::counters! {
    /// Counts of the invalidations from one source, since the start.
    pub struct InvalidationSourceStats;
    /// The metrics of these counters. The label that names the source is added by the caller.
    pub const INVALIDATION_SOURCE_COUNTERS;
    {
        counter messages = "starling_cache_invalidation_messages":
            "Messages with invalidations that took effect";
        counter invalidations = "starling_cache_invalidations_received":
            "Invalidations in these messages";
        counter malformed = "starling_cache_invalidation_messages_malformed":
            "Messages, or parts of a subgraph's response, that cannot be read and made nothing stale";
        counter gaps = "starling_cache_invalidation_gaps":
            "Times at which messages may have been lost, so that everything became stale";
    }
    /// The times from the receipt of a message to its effect.
    pub seconds: DurationHistogram<EffectBuckets>,
}

/// The metrics of one source that are not plain counters. The label that names the source is added by the caller.
pub const INVALIDATION_SOURCE_METRICS: &[Metric<InvalidationSourceStats>] = &[Metric::histogram(
    "starling_cache_invalidation_duration_seconds",
    "Times from the receipt of a message to its effect",
    |it| it.seconds.read(),
)];

/// Bounds for the time to the effect: a single invalidation takes microseconds, the longest list milliseconds.
#[derive(Debug, Default)]
pub struct EffectBuckets;

impl Buckets for EffectBuckets {
    const BOUNDS_MICROS: &'static [u64] =
        &[10, 50, 100, 250, 1_000, 2_500, 10_000, 50_000, 250_000, 1_000_000];
}

/// Counts of the invalidations from all sources.
#[derive(Debug, Default)]
pub struct InvalidationStats {
    /// Requests to the admin listener.
    pub admin: InvalidationSourceStats,
    /// Events of brokers.
    pub event: InvalidationSourceStats,
    /// Responses to mutations.
    pub mutation: InvalidationSourceStats,
    /// Other routers, through the log in a shared store.
    pub router: InvalidationSourceStats,
}

impl InvalidationStats {
    /// Returns each source with its name.
    pub fn sources(&self) -> [(&'static str, &InvalidationSourceStats); 4] {
        [
            ("admin", &self.admin),
            ("event", &self.event),
            ("mutation", &self.mutation),
            ("router", &self.router),
        ]
    }
}

impl InvalidationSourceStats {
    /// Counts a message with `invalidations` that took effect `duration` after its receipt.
    pub fn count_message(&self, invalidations: usize, duration: Duration) {
        count(&self.messages);
        self.invalidations.fetch_add(invalidations as u64, Ordering::Relaxed);
        self.seconds.add(duration);
    }

    /// Counts a message that cannot be read.
    pub fn count_malformed(&self) {
        count(&self.malformed);
    }

    /// Counts a gap.
    pub fn count_gap(&self) {
        count(&self.gaps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use telemetry::read;

    #[test]
    fn a_message_counts_with_its_invalidations_for_its_source_only() {
        let stats = InvalidationStats::default();
        stats.event.count_message(3, Duration::from_micros(60));
        stats.event.count_malformed();
        stats.mutation.count_gap();
        let counts = stats.sources().map(|(name, it)| {
            let all = [&it.messages, &it.invalidations, &it.malformed, &it.gaps].map(read);
            (name, all, it.seconds.read().buckets.iter().map(|it| it.1).sum::<u64>())
        });
        assert_eq!(
            counts,
            [
                ("admin", [0; 4], 0),
                ("event", [1, 3, 1, 0], 1),
                ("mutation", [0, 0, 0, 1], 0),
                ("router", [0; 4], 0)
            ]
        );
    }
}
