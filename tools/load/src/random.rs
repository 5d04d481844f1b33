//! Deterministic randomness: the same seed gives the same data, delays and arrivals on every machine. It is not fit
//! for secrets.

/// A generator of random numbers from a seed.
#[derive(Debug, Clone)]
pub struct Random(fastrand::Rng);

impl Random {
    /// Creates a generator; equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Returns the next number of a uniform distribution from 0 up to but excluding 1.
    pub fn unit(&mut self) -> f64 {
        self.0.f64()
    }

    /// Returns the next number of an exponential distribution with mean 1: gaps of a Poisson process.
    pub fn exponential(&mut self) -> f64 {
        // `unit` is below 1, so the logarithm is finite.
        -(1.0 - self.unit()).ln()
    }

    /// Returns the next number of a normal distribution with mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes two numbers into one; any change of either changes about half the bits. This is a hash, not a generator: the
/// data of the mocks depend on it, so it stays the same when the generator changes.
pub(crate) fn mix(left: u64, right: u64) -> u64 {
    finish(left.wrapping_mul(GOLDEN) ^ right.wrapping_add(GOLDEN))
}

/// Mixes a text into a number.
pub(crate) fn mix_text(mut seed: u64, text: &[u8]) -> u64 {
    let mut chunks = text.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        seed = mix(seed, u64::from_le_bytes(word));
    }
    let mut word = [0; 8];
    let rest = chunks.remainder();
    word[..rest.len()].copy_from_slice(rest);
    mix(mix(seed, u64::from_le_bytes(word)), text.len() as u64)
}

/// Converts random bits to a number from 0 up to but excluding 1.
pub(crate) fn unit(bits: u64) -> f64 {
    // The upper 53 bits: as many as a double represents exactly.
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
fn finish(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_have_their_mean_and_deviation() {
        let mut random = Random::new(1);
        let count = 100_000;
        let mut sums = [0.0; 4];
        for _ in 0..count {
            let normal = random.normal();
            for (sum, value) in
                sums.iter_mut().zip([random.unit(), random.exponential(), normal, normal * normal])
            {
                *sum += value;
            }
        }
        for (sum, expected) in sums.into_iter().zip([0.5, 1.0, 0.0, 1.0]) {
            let mean = sum / f64::from(count);
            assert!((mean - expected).abs() < 0.02, "{mean} instead of {expected}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_sequences_and_texts_of_any_length_differ() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.bits(), random.bits()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let texts = ["", "\0", "a", "b", "12345678", "12345678\0", "123456789"];
        let mixed: std::collections::HashSet<u64> =
            texts.iter().map(|text| mix_text(1, text.as_bytes())).collect();
        assert_eq!(mixed.len(), texts.len());
    }
}
