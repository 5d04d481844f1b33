//! The counters of live queries. Metrics that are no counters are in `metrics`.

use telemetry::DurationHistogram;

telemetry::counters! {
    /// Counters of all live queries of the process.
    pub struct LiveQueryStats;
    /// The metrics of these counters.
    pub const LIVE_QUERY_COUNTERS;
    {
        gauge active = "starling_live_queries": "Different live queries, each with any number of watchers";
        counter executions = "starling_live_query_executions": "Executions of live queries";
        counter failed = "starling_live_query_executions_failed":
            "Executions of live queries with errors; they are tried again";
        counter unchanged = "starling_live_query_results_unchanged":
            "Results of live queries that were equal to the ones before, and not sent";
        counter patches = "starling_live_query_patches":
            "Patches made for groups of watchers that ask for them";
        counter patches_replaced = "starling_live_query_patches_replaced":
            "Complete results for groups of watchers that ask for patches, because the patch was not smaller, the result has no data or is larger than 4 MiB, other large patches were being made, or the watchers had too many different revisions";
        counter invalidated = "starling_live_query_invalidations":
            "Times that a live query became stale because of an invalidation";
        counter throttled = "starling_live_query_invalidations_throttled":
            "Times that a stale live query waited for its throttle or for the end of an execution";
        counter merged = "starling_live_query_invalidations_merged":
            "Invalidations of live queries that were stale already";
    }
    /// Durations of executions.
    pub durations: DurationHistogram,
}
