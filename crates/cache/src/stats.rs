//! Counters of caches. Metrics that are no counters are in `metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use telemetry::read;

use crate::insertion::StoreOutcome;
use crate::lookup::{Lookup, MissReason};

telemetry::counters! {
    /// Counts of the lookups at one level of the cache for one subgraph, since the start.
    pub struct LookupStats;
    /// The metrics of these counters. The labels that name level and subgraph are added by the caller.
    pub const LOOKUP_COUNTERS;
    {
        counter hits = "starling_cache_hits": "Lookups that found a fresh entry";
        counter stale_hits = "starling_cache_stale_hits":
            "Lookups that found an entry to serve while it is fetched again";
        counter error_hits = "starling_cache_error_hits":
            "Lookups that found an entry to serve only if fetching fails";
        counter misses = "starling_cache_misses": "Lookups that found no entry";
        counter misses_invalidated = "starling_cache_misses_invalidated":
            "Lookups that found an invalidated entry; not among the misses";
        counter misses_expired = "starling_cache_misses_expired":
            "Lookups that found an expired entry; not among the misses";
        counter refreshes = "starling_cache_refreshes": "Entries fetched again while they were served";
        counter stores = "starling_cache_stores": "Responses that were stored";
        counter not_stored = "starling_cache_not_stored":
            "Responses that could be stored by their policy and were not: private without a partition, invalidated \
             meanwhile, too large, or too old";
    }
}

telemetry::counters! {
    /// Counts of one store, since the start.
    pub struct StoreStats;
    /// The metrics of these counters. The label that names the level is added by the caller.
    pub const STORE_COUNTERS;
    {
        counter removed_expired = "starling_cache_removed_expired": "Expired entries removed by a lookup";
        counter removed_invalidated = "starling_cache_removed_invalidated":
            "Invalidated entries removed by a lookup";
        counter unbounded_tags = "starling_cache_unbounded_tags":
            "Responses stored with too many tags to keep them; any invalidation makes them stale";
        counter invalidations = "starling_cache_invalidations": "Invalidations applied";
        counter copies = "starling_cache_copies": "Compressed copies stored with their entries";
        counter copies_refused = "starling_cache_copies_refused":
            "Compressed copies that were not stored, because the entry would be too large or had gone";
    }
}

impl LookupStats {
    pub(crate) fn count_lookup(&self, lookup: &Lookup) {
        let (counter, refresh) = match lookup {
            Lookup::Fresh(hit) => (&self.hits, hit.refresh.is_some()),
            Lookup::Stale(hit) => (&self.stale_hits, hit.refresh.is_some()),
            Lookup::StaleIfError(_) => (&self.error_hits, false),
            Lookup::Miss(MissReason::Absent) => (&self.misses, false),
            Lookup::Miss(MissReason::Invalidated) => (&self.misses_invalidated, false),
            Lookup::Miss(MissReason::Expired) => (&self.misses_expired, false),
        };
        count(counter);
        if refresh {
            count(&self.refreshes);
        }
    }

    /// Counts a response that was stored, or was not although its policy allows it. [`Store::insert`] does that itself.
    ///
    /// [`Store::insert`]: crate::Store::insert
    pub fn count_store(&self, outcome: StoreOutcome) {
        count(match outcome {
            StoreOutcome::Stored => &self.stores,
            _ => &self.not_stored,
        });
    }

    /// The part of lookups that were served without a fetch before; `None` without lookups.
    pub fn hit_ratio(&self) -> Option<f64> {
        let served = read(&self.hits) + read(&self.stale_hits);
        let not_served =
            [&self.error_hits, &self.misses, &self.misses_invalidated, &self.misses_expired];
        let all = served + not_served.into_iter().map(read).sum::<u64>();
        (all > 0).then(|| served as f64 / all as f64)
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
