//! The part of their configured memory that caches may use: it is halved while the memory of the process is short, and
//! doubled when there is room again.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use admission::memory::MemoryAccount;

/// The minimum time between two reductions: the allocator needs about as long to return the memory of evicted entries.
const SHRINK_INTERVAL: Duration = Duration::from_secs(1);

/// The minimum time after a change before caches may use twice as much again.
const GROW_INTERVAL: Duration = Duration::from_secs(30);

/// The number of times that the configured memory is halved at most: an eighth is left.
const HALVINGS_MAX: u32 = 3;

/// The part of the budget, in eighths, below which caches may grow: if they then become twice as large, they need not be
/// shortened at once.
const GROW_EIGHTHS: u64 = 5;

/// The part of the budget (one in this number) that uncounted memory must exceed for caches to be a reason of the
/// shortage.
const UNCOUNTED_PART: u64 = 2;

/// The part of their configured memory that caches may use.
#[derive(Default, Debug)]
pub(crate) struct CacheShare {
    halvings: u32,
    /// The time of the last change.
    since: Option<Instant>,
}

impl CacheShare {
    /// Decides by the memory of the process. Returns the number of times that the configured memory is halved from now
    /// on.
    pub(crate) fn update(&mut self, memory: &MemoryAccount, now: Instant) -> u32 {
        let Some(budget) = memory.budget() else { return self.halvings };
        let waited = self.since.map(|since| now.saturating_duration_since(since));
        let has_waited = |time| waited.is_none_or(|waited| waited >= time);
        let is_short = memory.excess() > 0 && memory.uncounted() > budget / UNCOUNTED_PART;
        let has_room = memory.used() < budget / 8 * GROW_EIGHTHS;
        let halvings = if is_short && has_waited(SHRINK_INTERVAL) {
            HALVINGS_MAX.min(self.halvings + 1)
        } else if has_room && has_waited(GROW_INTERVAL) {
            self.halvings.saturating_sub(1)
        } else {
            self.halvings
        };
        if halvings != self.halvings {
            *self = Self { halvings, since: Some(now) };
        }
        halvings
    }
}

/// The caches that a share was applied to. A reload may replace them by others, which begin with all of their memory.
#[derive(Debug)]
pub(crate) struct BoundedCaches<C> {
    caches: Weak<C>,
    halvings: u32,
}

impl<C> Default for BoundedCaches<C> {
    fn default() -> Self {
        Self { caches: Weak::new(), halvings: 0 }
    }
}

impl<C> BoundedCaches<C> {
    /// Notes that `caches` are halved so many times. True if they were not before.
    pub(crate) fn update(&mut self, caches: &Arc<C>, halvings: u32) -> bool {
        let caches = Arc::downgrade(caches);
        // The address of caches that are no more is not that of others while something refers to it.
        let before = if Weak::ptr_eq(&self.caches, &caches) { self.halvings } else { 0 };
        *self = Self { caches, halvings };
        before != halvings
    }
}

#[cfg(test)]
mod tests {
    use admission::memory::{MemoryCharge, MemoryKind};

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn caches_are_halved_each_second_of_a_shortage_and_doubled_when_there_is_room_for_long() {
        let memory = MemoryAccount::new(128 * MIB);
        let (mut share, start) = (CacheShare::default(), Instant::now());
        let (mut changes, mut before) = (Vec::new(), 0);
        for tenth in 0..2000_u64 {
            // A shortage in the first 5 seconds, and then room.
            memory.measure(if tenth < 50 { 127 * MIB } else { 40 * MIB });
            let now = start + Duration::from_millis(100 * tenth);
            let halvings = share.update(&memory, now);
            if std::mem::replace(&mut before, halvings) != halvings {
                changes.push((tenth / 10, halvings));
            }
        }
        assert_eq!(changes, [(0, 1), (1, 2), (2, 3), (32, 2), (62, 1), (92, 0)]);
    }

    #[test]
    fn caches_that_replace_others_during_a_shortage_get_their_share() {
        let (first, second, mut bounded) =
            (Arc::new("first"), Arc::new("second"), BoundedCaches::default());
        let mut is_applied = |caches, halvings| bounded.update(caches, halvings);
        assert!(!is_applied(&first, 0), "all of their memory is what they begin with");
        assert!(is_applied(&first, 1));
        assert!(!is_applied(&first, 1));
        assert!(is_applied(&second, 1), "new caches begin with all of their memory");
        assert!(!is_applied(&second, 1));
        assert!(is_applied(&second, 0));
        assert!(!is_applied(&first, 0));
    }

    #[test]
    fn a_shortage_because_of_work_leaves_caches_as_they_are() {
        let memory = MemoryAccount::new(128 * MIB);
        memory.measure(40 * MIB);
        let _work = MemoryCharge::new(&memory, MemoryKind::Responses, 88 * MIB);
        assert!(memory.excess() > 0);
        for memory in [memory, MemoryAccount::unlimited()] {
            assert_eq!(CacheShare::default().update(&memory, Instant::now()), 0);
        }
    }
}
