//! Counters of the store that several routers share.

use telemetry::{Buckets, DurationHistogram, Metric};

use crate::shared_view::SharedMiss;
use crate::stats::count;

telemetry::counters! {
    /// Counts of the entries in a store that several routers share, and of the log of their invalidations, since the
    /// start.
    pub struct SharedCacheStats;
    /// The metrics of these counters.
    pub const SHARED_CACHE_COUNTERS;
    {
        counter hits = "starling_cache_shared_hits": "Entries found in the shared store";
        counter misses = "starling_cache_shared_misses": "Keys without an entry in the shared store";
        counter stale = "starling_cache_shared_misses_stale":
            "Entries of the shared store that were invalidated, have expired, or are older than the log of invalidations; \
             not among the misses";
        counter invalid = "starling_cache_shared_misses_invalid":
            "Values of the shared store that are not an entry; not among the misses";
        counter failures = "starling_cache_shared_failures":
            "Keys that could not be read in time, and entries that could not be written";
        counter not_current = "starling_cache_shared_bypasses":
            "Keys that were not looked up, because the router does not know all invalidations at present";
        counter stores = "starling_cache_shared_stores": "Entries written to the shared store";
        counter dropped = "starling_cache_shared_dropped":
            "Entries that were not written, because they are large, too many others waited, or something made them stale \
             while a mutation returned them";
        counter lock_waits = "starling_cache_shared_lock_waits":
            "Requests that waited for another router to fetch the same";
        counter lock_timeouts = "starling_cache_shared_lock_timeouts":
            "Requests that waited in vain, and fetched by themselves";
        counter appended = "starling_cache_log_appended": "Messages that this router has appended to the log of invalidations";
        counter append_failures = "starling_cache_log_append_failures":
            "Attempts to append a message that failed and are repeated";
        counter overflows = "starling_cache_log_overflows":
            "Times at which so many invalidations waited for the log that everything became stale instead";
        counter applied = "starling_cache_log_applied": "Messages of the log that this router has applied";
        counter gaps = "starling_cache_log_gaps":
            "Times at which messages of the log may have been missed, so that everything became stale";
        counter epochs = "starling_cache_log_epochs": "Lives of the log that this router has seen: one, unless the store lost it";
        counter unconfirmed = "starling_cache_log_unconfirmed":
            "Routers that did not confirm an invalidation in time";
        gauge lag = "starling_cache_log_lag": "Messages of the log that this router has not applied yet";
        gauge routers = "starling_cache_log_routers": "Routers that follow the log";
        gauge is_current = "starling_cache_log_current":
            "1 if this router knows all invalidations and uses the shared store, 0 if not";
    }
    /// The times from the receipt of an invalidation until all routers have confirmed it.
    pub confirmation_seconds: DurationHistogram<ConfirmationBuckets>,
}

/// The metrics of the shared store that are not plain counters.
pub const SHARED_CACHE_METRICS: &[Metric<SharedCacheStats>] = &[Metric::histogram(
    "starling_cache_log_confirmation_seconds",
    "Times from the receipt of an invalidation until all routers have confirmed it",
    |it| it.confirmation_seconds.read(),
)];

/// Bounds for some round trips to a server in the same region.
#[derive(Debug, Default)]
pub struct ConfirmationBuckets;

impl Buckets for ConfirmationBuckets {
    const BOUNDS_MICROS: &'static [u64] =
        &[1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 2_000_000];
}

impl SharedCacheStats {
    /// Counts an entry that was found and cannot be used.
    pub fn count_unusable(&self, miss: SharedMiss) {
        count(match miss {
            SharedMiss::NotCurrent => &self.not_current,
            SharedMiss::Stale => &self.stale,
        });
    }
}
