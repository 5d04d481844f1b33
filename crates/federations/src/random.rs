//! Pseudo-random numbers that a seed reproduces (xorshift64*).

/// A generator; the same seed yields the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of that seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`; 0 where `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound.max(1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the items, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Returns a random half of the items, but at least one. `items` must not be empty.
    pub(crate) fn some<T: Copy>(&mut self, items: &[T]) -> Vec<T> {
        let chosen: Vec<T> = items.iter().copied().filter(|_| self.one_in(2)).collect();
        if chosen.is_empty() { vec![*self.pick(items)] } else { chosen }
    }
}
