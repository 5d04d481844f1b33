//! The memory budget of the process: its size from the configuration, and its metrics. What it counts and refuses is in
//! [`admission::memory`].

use std::sync::Arc;

use admission::memory::{MemoryAccount, MemoryKind};
use config::MemoryLimit;
use telemetry::Metric;

/// The part of the memory of the process, in percent, that is the budget by default. The rest is for the kernel (the
/// buffers of sockets count for a cgroup), pages of files, and memory that is taken between two measurements.
const AUTO_PERCENT: u64 = 90;

/// Returns the account of a process with the budget of the configuration.
pub fn memory_account(limit: MemoryLimit) -> Arc<MemoryAccount> {
    match limit {
        MemoryLimit::Off => MemoryAccount::unlimited(),
        MemoryLimit::Bytes(budget) => measured(budget),
        MemoryLimit::Auto => match profile::available_memory() {
            Some(available) => {
                tracing::debug!(?available, "the memory that the system gives the router");
                measured(available.bytes / 100 * AUTO_PERCENT)
            }
            // Without knowing the memory, any budget could be too small.
            None => MemoryAccount::unlimited(),
        },
    }
}

fn measured(budget: u64) -> Arc<MemoryAccount> {
    MemoryAccount::measured_by(resident, budget)
}

/// Returns the resident memory. Asked only before something would be refused.
fn resident(has_released: bool) -> Option<u64> {
    if has_released {
        profile::release_free_memory();
    }
    profile::private_resident_bytes()
}

/// The metrics of the memory budget, if there is one.
pub const MEMORY_METRICS: &[Metric<MemoryAccount>] = &[
    Metric::gauge("starling_memory_budget_bytes", "Memory budget (limits.memory)", |it| {
        it.budget().unwrap_or_default()
    }),
    Metric::gauge(
        "starling_memory_used_bytes",
        "Memory that counts against the budget: measured, and counted since",
        MemoryAccount::used,
    ),
    Metric::gauges(
        "starling_memory_held_bytes",
        "Memory of work in flight, by kind",
        |it, samples| {
            let mut kinds = MemoryKind::ALL.into_iter();
            kinds.try_for_each(|kind| samples.add_labelled(("kind", kind.name()), it.held(kind)))
        },
    ),
    Metric::counters(
        "starling_memory_refused",
        "Times that memory was refused because the budget was used up, by kind",
        |it, samples| {
            let mut kinds = MemoryKind::ALL.into_iter();
            kinds.try_for_each(|kind| samples.add_labelled(("kind", kind.name()), it.refused(kind)))
        },
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_configured_or_a_part_of_what_the_system_gives() {
        let budget = |limit| memory_account(limit).budget();
        assert_eq!(budget(MemoryLimit::Off), None);
        assert_eq!(budget(MemoryLimit::Bytes(1 << 30)), Some(1 << 30));
        let available = profile::available_memory().map(|it| it.bytes);
        assert_eq!(budget(MemoryLimit::Auto), available.map(|bytes| bytes / 100 * 90));
    }
}
