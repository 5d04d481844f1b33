//! The outlets of single connections that are open, by number, so that operators find their subscribers. Those of
//! reactors are found by their thread.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The number of outlets that a visit holds at a time: few enough that openings and ends of streams do not wait for the
/// lock.
const VISITED_AT_A_TIME: usize = 256;

/// The open outlets of type `O`, see the module.
#[derive(Debug)]
pub(crate) struct OpenOutlets<O> {
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, Weak<O>>>,
}

impl<O> Default for OpenOutlets<O> {
    fn default() -> Self {
        Self { next: AtomicU64::new(0), open: Mutex::default() }
    }
}

impl<O> OpenOutlets<O> {
    /// Returns a number for an outlet that is about to be made.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds an outlet under its number.
    pub(crate) fn add(&self, number: u64, outlet: &Arc<O>) {
        self.lock().insert(number, Arc::downgrade(outlet));
    }

    /// Removes an outlet that is dropped.
    pub(crate) fn remove(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// Returns an open outlet.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<O>> {
        self.lock().get(&number)?.upgrade()
    }

    /// Calls `visit` with each open outlet, in the order of their numbers. Those that open meanwhile are left out.
    pub(crate) fn visit(&self, mut visit: impl FnMut(&O)) {
        let end = self.next.load(Ordering::Relaxed);
        let mut from = 0;
        loop {
            // They are dropped here and not under the lock: there an outlet would wait for the lock to remove itself.
            let part = self.part(from, end);
            let Some((last, _)) = part.last() else { return };
            from = last + 1;
            part.iter().for_each(|(_, outlet)| visit(outlet));
        }
    }

    /// Returns the first open outlets with these numbers.
    fn part(&self, from: u64, end: u64) -> Vec<(u64, Arc<O>)> {
        let open = self.lock();
        let outlets = open.range(from..end);
        let outlets = outlets.filter_map(|(number, outlet)| Some((*number, outlet.upgrade()?)));
        outlets.take(VISITED_AT_A_TIME).collect()
    }

    /// Locks the list. No code of the application runs under this lock, so a poisoned lock holds a valid list.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<O>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visited(open: &OpenOutlets<i32>) -> Vec<i32> {
        let mut visited = Vec::new();
        open.visit(|outlet| visited.push(*outlet));
        visited
    }

    #[test]
    fn an_outlet_is_found_until_it_is_removed() {
        let open = OpenOutlets::default();
        let outlets: Vec<_> = (0..1_000).map(Arc::new).collect();
        let numbers: Vec<u64> = outlets.iter().map(|_| open.next_number()).collect();
        numbers.iter().zip(&outlets).for_each(|(number, outlet)| open.add(*number, outlet));
        assert_eq!(open.get(numbers[7]).as_deref(), Some(&7));
        assert_eq!(visited(&open), (0..1_000).collect::<Vec<_>>());
        numbers[1..].iter().for_each(|number| open.remove(*number));
        assert_eq!((open.get(numbers[7]), visited(&open)), (None, vec![0]));
        drop(outlets);
        assert_eq!(visited(&open), [0; 0]);
        assert_eq!(open.get(numbers[0]), None);
    }
}
