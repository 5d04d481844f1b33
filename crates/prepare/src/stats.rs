//! Counters of a preparer.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use telemetry::DurationHistogram;

/// Counters since this preparer was created.
#[derive(Debug, Default)]
pub struct PrepareStats {
    /// Operations found in the cache.
    pub hits: AtomicU64,
    /// Operations that had to be prepared, also without success.
    pub misses: AtomicU64,
    /// Time spent preparing, in microseconds.
    pub micros: AtomicU64,
    /// Operations refused by a limit.
    pub limited: AtomicU64,
    /// Misses whose plan existed already, because another text differs in literals or in spelling
    /// only.
    pub plans_shared: AtomicU64,
    /// Operations evicted from the cache.
    pub evicted: Arc<AtomicU64>,
    /// Operations that wait now to be prepared.
    pub waiting: Arc<AtomicU64>,
    /// Texts that were parsed to find the labels of progressive overrides that concern them.
    pub texts_labelled: AtomicU64,
    /// Parts of the schema that were made for clients with other rights (`PrepareSettings::filters_introspection`).
    pub schemas_filtered: AtomicU64,
    /// Operations refused because too many waited, or because they waited for too long.
    pub overloaded: AtomicU64,
    /// Operations that were planned greedily, because the step budget did not suffice to compare all choices.
    pub greedy: AtomicU64,
    /// Duration of planning, also without success.
    pub planning: DurationHistogram,
    /// Steps of planning, also without success ([`plan::Effort::steps`]).
    pub planning_steps: AtomicU64,
}
