//! Pseudo-random numbers that a seed reproduces.

/// A seeded generator; the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(fastrand::Rng);

impl Random {
    /// Creates the generator of that seed.
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Returns a number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound.max(1))
    }

    /// Returns true in one of `n` cases.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the items, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Returns a random half of the items, but at least one. `items` must not be empty.
    pub(crate) fn some<T: Copy>(&mut self, items: &[T]) -> Vec<T> {
        let chosen: Vec<T> = items.iter().copied().filter(|_| self.0.bool()).collect();
        if chosen.is_empty() { vec![*self.pick(items)] } else { chosen }
    }
}
