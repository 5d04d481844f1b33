//! The memory budget of the process: its size from the configuration, and its metrics. What it counts and refuses is in
//! [`admission::memory`].

use std::sync::Arc;

use admission::memory::{MemoryAccount, MemoryKind};
use config::MemoryLimit;
use telemetry::Metric;

/// The part of the memory of the process, in percent, that is not in the budget by default. It is for the kernel (the
/// buffers of sockets count for a cgroup), pages of files, and memory that is taken between two measurements.
const AUTO_LEFT_PERCENT: u64 = 10;

/// The bytes that are left in any case, and the part of a small memory up to which they are, in percent: a loaded
/// machine measures late, and what is taken meanwhile does not become less with the memory.
const AUTO_LEFT_MIN: u64 = 32 << 20;
const AUTO_LEFT_PERCENT_MAX: u64 = 25;

/// Returns the account of a process with the budget of the configuration.
pub fn memory_account(limit: MemoryLimit) -> Arc<MemoryAccount> {
    match limit {
        MemoryLimit::Off => MemoryAccount::unlimited(),
        MemoryLimit::Bytes(budget) => measured(budget),
        MemoryLimit::Auto => match profile::available_memory() {
            Some(available) => {
                tracing::debug!(?available, "the memory that the system gives the router");
                measured(auto_budget(available.bytes))
            }
            // Without knowing the memory, any budget could be too small.
            None => MemoryAccount::unlimited(),
        },
    }
}

/// Returns the budget of a process that the system gives so many bytes.
fn auto_budget(available: u64) -> u64 {
    let percent = |percent| available / 100 * percent;
    let left_min = AUTO_LEFT_MIN.min(percent(AUTO_LEFT_PERCENT_MAX));
    available - percent(AUTO_LEFT_PERCENT).max(left_min)
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
        assert_eq!(budget(MemoryLimit::Auto), available.map(auto_budget));
    }

    #[test]
    fn a_small_memory_leaves_more_than_a_tenth() {
        // MiB of the memory and of the budget, rounded down.
        for (available, expected) in [(64, 48), (128, 96), (200, 168), (512, 460), (4096, 3686)] {
            assert_eq!(auto_budget(available << 20) >> 20, expected, "{available}");
        }
        assert_eq!(auto_budget(0), 0);
    }
}
