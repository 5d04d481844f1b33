//! The count of events that the policy for slow subscribers dropped.

use crate::live::metrics::Policy;
use crate::router::Router;

/// Counts events that the configured policy dropped.
pub(super) fn count_dropped(router: &Router, dropped: u64) {
    if dropped > 0 {
        let policy = Policy::of(router.config.subscriptions.policy);
        router.metrics.subscriptions.count_slow(policy, dropped);
    }
}
