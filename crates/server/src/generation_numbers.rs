//! The numbers of the generations of a process. All of them are different, also across graphs, because caches and
//! requests in flight use them as a part of their keys.

use std::sync::atomic::{AtomicU64, Ordering};

/// The numbers of generations. The first one is 1.
#[derive(Debug, Default)]
pub(crate) struct GenerationNumbers(AtomicU64);

impl GenerationNumbers {
    /// Calls `load` with the next number. If it fails, the next generation gets the number again, unless another one
    /// has followed meanwhile.
    ///
    /// # Errors
    /// The error of `load`.
    pub(crate) fn load<T, E>(&self, load: impl FnOnce(u64) -> Result<T, E>) -> Result<T, E> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let number = before + 1;
        let loaded = load(number);
        if loaded.is_err() {
            let _ = self.0.compare_exchange(number, before, Ordering::Relaxed, Ordering::Relaxed);
        }
        loaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_failed_load_is_the_next_one_unless_another_one_followed() {
        let numbers = GenerationNumbers::default();
        let load = || numbers.load(Ok::<u64, ()>);
        let fail = |during: &dyn Fn()| {
            numbers.load(|number| {
                during();
                Err::<(), u64>(number)
            })
        };
        assert_eq!((load(), fail(&|| {}), load()), (Ok(1), Err(2), Ok(2)));
        let another = || assert_eq!(load(), Ok(4));
        assert_eq!((fail(&another), load()), (Err(3), Ok(5)));
    }
}
