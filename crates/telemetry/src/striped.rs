//! Counters in several copies, for counts that all workers make at the same time.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of copies. Threads share one if there are more of them; eight keep the contention on one cache line
/// small, and cost a row of a table a kilobyte at most.
const COPIES: usize = 8;

/// A value in several copies. Each thread writes to one of them, so that threads that count at the same time do not
/// wait for one cache line. A copy is allocated when the first of its threads writes.
#[derive(Debug)]
pub struct Striped<T> {
    copies: [OnceLock<Box<CacheAligned<T>>>; COPIES],
}

/// Two lines, because processors fetch pairs of them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CacheAligned<T>(T);

impl<T> Default for Striped<T> {
    fn default() -> Self {
        Self { copies: [const { OnceLock::new() }; COPIES] }
    }
}

impl<T: Default> Striped<T> {
    /// Returns the copy of the current thread.
    pub fn local(&self) -> &T {
        &self.copies[copy_of_thread()].get_or_init(Box::default).0
    }

    /// Iterates over the copies that threads have written to.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.copies.iter().filter_map(|copy| copy.get()).map(|copy| &copy.0)
    }
}

/// Returns the number of the copy that the current thread writes to.
fn copy_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static COPY: Cell<Option<usize>> = const { Cell::new(None) };
    }
    COPY.with(|copy| {
        copy.get().unwrap_or_else(|| {
            let own = THREADS.fetch_add(1, Ordering::Relaxed) % COPIES;
            copy.set(Some(own));
            own
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn no_count_of_any_thread_is_lost() {
        let counter = Striped::<AtomicU64>::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * COPIES {
                scope.spawn(|| (0..1_000).for_each(|_| count(counter.local())));
            }
        });
        let total: u64 = counter.iter().map(|copy| copy.load(Ordering::Relaxed)).sum();
        assert_eq!(total, 2_000 * COPIES as u64);
    }

    fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
