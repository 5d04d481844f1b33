//! The outlets of single connections that are open, by number, so that operators find their subscribers. Those of
//! reactors are found by their thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The number of outlets for which room is always kept.
const ROOM_KEPT: usize = 64;

/// The open outlets of type `O`, see the module.
#[derive(Debug)]
pub(crate) struct OpenOutlets<O> {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Weak<O>>>,
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
        let mut open = self.lock();
        open.remove(&number);
        // After a burst of streams its room is freed.
        let len = open.len();
        if open.capacity() > ROOM_KEPT.max(8 * len) {
            open.shrink_to(ROOM_KEPT.max(2 * len));
        }
    }

    /// Returns an open outlet.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<O>> {
        self.lock().get(&number)?.upgrade()
    }

    /// Returns all open outlets.
    pub(crate) fn all(&self) -> Vec<Arc<O>> {
        // They are dropped by the caller: an outlet that is dropped here would wait for the lock to remove itself.
        self.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Locks the list. No code of the application runs under this lock, so a poisoned lock holds a valid list.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Weak<O>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outlet_is_found_until_it_is_removed() {
        let open = OpenOutlets::default();
        let outlets: Vec<_> = (0..1_000).map(Arc::new).collect();
        let numbers: Vec<u64> = outlets.iter().map(|_| open.next_number()).collect();
        numbers.iter().zip(&outlets).for_each(|(number, outlet)| open.add(*number, outlet));
        assert_eq!(open.get(numbers[7]).as_deref(), Some(&7));
        numbers[1..].iter().for_each(|number| open.remove(*number));
        assert_eq!((open.get(numbers[7]), open.all().len()), (None, 1));
        assert!(open.lock().capacity() < 1_000, "the room of a burst is freed");
        drop(outlets);
        assert_eq!(open.get(numbers[0]), None);
    }
}
