//! A memory of computed values, bounded in bytes. Each value can be computed again at any time.
//!
//! A value is kept from the second time on that its input occurs. Input that occurs once costs no memory.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quick_cache::sync::Cache;
use quick_cache::{OptionsBuilder, Weighter};

/// The number of hashes that are remembered, to notice repeated input; 32 KiB.
const SEEN: usize = 4096;

/// The minimum size of one of the independent parts, as of a store.
const SHARD_BYTES_MIN: u64 = 1 << 20;

/// The memory of a value beside what the caller counts.
const VALUE_OVERHEAD_BYTES: usize = 112;

/// The expected size of a value.
const VALUE_BYTES_EXPECTED: u64 = 8 << 10;

/// Values by the hash of their input, see the module. Different input may have the same hash: the caller compares the
/// input.
pub struct Memo<V> {
    values: Cache<u64, KeptValue<V>, ValueWeight, SpreadHash>,
    /// Hashes that have come, each at a place of its own; later ones replace earlier ones.
    seen: Box<[AtomicU64]>,
}

struct KeptValue<V> {
    value: Arc<V>,
    bytes: usize,
}

impl<V> Clone for KeptValue<V> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), bytes: self.bytes }
    }
}

#[derive(Clone)]
struct ValueWeight;

impl<V> Weighter<u64, KeptValue<V>> for ValueWeight {
    fn weight(&self, _: &u64, value: &KeptValue<V>) -> u64 {
        (value.bytes + VALUE_OVERHEAD_BYTES) as u64
    }
}

impl<V> Memo<V> {
    /// Creates an empty memory for at most so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        let shards = usize::try_from(bytes_max / SHARD_BYTES_MIN).unwrap_or(usize::MAX);
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let items = usize::try_from(bytes_max / VALUE_BYTES_EXPECTED).unwrap_or(usize::MAX);
        let options = OptionsBuilder::new()
            .shards(1 << shards.clamp(1, workers * 4).ilog2())
            .weight_capacity(bytes_max)
            .estimated_items_capacity(items)
            .build();
        // `build` fails only if one of the two capacities is missing.
        #[allow(clippy::expect_used, reason = "both capacities are set above")]
        let options = options.expect("both capacities are set");
        let lifecycle = quick_cache::sync::DefaultLifecycle::default();
        Self {
            values: Cache::with_options(options, ValueWeight, SpreadHash, lifecycle),
            seen: std::iter::repeat_with(AtomicU64::default).take(SEEN).collect(),
        }
    }

    /// Returns the value that was kept for input with this hash, which must be uniform.
    pub fn get(&self, hash: u64) -> Option<Arc<V>> {
        self.values.get(&hash).map(|kept| kept.value)
    }

    /// True if the value of this input is worth keeping, because the input has come before. Call it once for each time
    /// that nothing was found.
    pub fn has_come_before(&self, hash: u64) -> bool {
        let place = &self.seen[hash as usize % SEEN];
        // Hashes of different input are equal with a chance of 2^-52, which costs a little memory.
        place.swap(hash, Relaxed) == hash
    }

    /// Keeps a value of that many bytes, in place of the one with the same hash. One that is larger than a part of the
    /// memory is dropped.
    pub fn keep(&self, hash: u64, value: Arc<V>, bytes: usize) {
        self.values.insert(hash, KeptValue { value, bytes });
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True if nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The size of all values, in bytes.
    pub fn bytes(&self) -> u64 {
        self.values.weight()
    }
}

impl<V> std::fmt::Debug for Memo<V> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Memo")
            .field("len", &self.len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// Hashes are uniform already.
#[derive(Clone, Default)]
struct SpreadHash;

impl BuildHasher for SpreadHash {
    type Hasher = OneWord;

    fn build_hasher(&self) -> OneWord {
        OneWord(0)
    }
}

struct OneWord(u64);

impl std::hash::Hasher for OneWord {
    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    /// Never called: a key is one word.
    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(false, "a key is one word, not {} bytes", bytes.len());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
    }

    #[test]
    fn input_is_worth_keeping_from_the_second_time_on() {
        let memo = Memo::<u64>::new(1 << 20);
        assert!(!memo.has_come_before(spread(1)));
        assert!(memo.has_come_before(spread(1)));
        memo.keep(spread(1), Arc::new(7), 100);
        assert_eq!(memo.get(spread(1)).as_deref(), Some(&7));
        assert_eq!(memo.get(spread(2)), None);
        memo.keep(spread(1), Arc::new(8), 100);
        assert_eq!((memo.get(spread(1)).as_deref(), memo.len()), (Some(&8), 1));
    }

    #[test]
    fn the_size_is_bounded() {
        let memo = Memo::<u64>::new(1 << 20);
        for number in 0..1000 {
            memo.keep(spread(number), Arc::new(number), 10 << 10);
        }
        assert!(memo.bytes() <= 1 << 20 && memo.len() > 50, "{memo:?}");
        let (len, too_large) = (memo.len(), spread(5000));
        memo.keep(too_large, Arc::new(0), 2 << 20);
        assert!(memo.get(too_large).is_none() && memo.bytes() <= 1 << 20, "{memo:?} {len}");
    }
}
