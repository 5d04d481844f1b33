//! Counters of a preparer.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::durations::Durations;

/// Counters since this preparer was made.
#[derive(Debug, Default)]
pub struct PrepareStats {
    /// Operations found ready.
    pub hits: AtomicU64,
    /// Operations that had to be prepared, also in vain.
    pub misses: AtomicU64,
    /// Time spent preparing, in microseconds.
    pub micros: AtomicU64,
    /// Operations refused by a limit.
    pub limited: AtomicU64,
    /// Misses whose plan was there already, because another text differs in literals or in spelling only.
    pub plans_shared: AtomicU64,
    /// Operations let go to make room.
    pub evicted: Arc<AtomicU64>,
    /// Operations that wait now for their turn at being prepared.
    pub waiting: Arc<AtomicU64>,
    /// Texts that were parsed to learn which labels of progressive overrides concern them.
    pub texts_labelled: AtomicU64,
    /// Operations refused because too many waited, or because they waited for too long.
    pub overloaded: AtomicU64,
    /// Operations that were planned greedily, because the step budget did not suffice to compare all choices.
    pub greedy: AtomicU64,
    /// How long planning took, also in vain.
    pub planning: Durations,
    /// Steps that planning took, also in vain ([`plan::Effort::steps`]).
    pub planning_steps: AtomicU64,
}
