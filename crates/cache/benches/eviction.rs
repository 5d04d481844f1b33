//! The crate that evicts, measured beside others: hit ratio, memory per entry, time per hit.
//!
//! - Hit ratio: requests for 100,000 keys with Zipf's distribution and room for a tenth of them, beside an ideal LFU,
//!   which knows how often each key was requested so far. Once with equal sizes, once with sizes that differ by up to a
//!   hundred times, where the ideal counts requests per byte.
//! - Memory: bytes of the heap for each of a million entries, beside the bytes of their content, in caches with room
//!   for a twentieth more. The store makes its tables for as many as it has room for.
//! - Time: one hit, on one thread.
//!
//! The store has bounds, and the output says whether it meets them: [`POINTS_MAX`] and [`OVERHEAD_MAX`].

#![allow(clippy::print_stdout, reason = "a bench talks by printing")]
#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up must fail")]
#![allow(unsafe_code, reason = "a counting allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use cache::{
    CachePolicy, ENTRY_OVERHEAD_BYTES, EntryAddress, HashDomain, InvalidationTable, KeyBase,
    KeySecret, Lookup, LookupStats, NewEntry, ResponseContent, Store, StoreSettings, TagHasher,
    Timestamp,
};

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes every call to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The maximum number of points by which the store's hit ratio may be below that of the ideal, with equal sizes.
const POINTS_MAX: f64 = 3.0;

/// The maximum memory of an entry of the store beside its content, in bytes.
const OVERHEAD_MAX: f64 = 120.0;

const KEYS: usize = 100_000;
const REQUESTS: usize = 2_000_000;
const ENTRIES: u64 = 1_000_000;
/// The bytes of an entry's head in the store, so that all crates keep values of equal size.
const HEAD: usize = 32;

/// A cache of bytes by key. Its capacity counts the content only.
trait Rival {
    fn name(&self) -> &'static str;
    fn has(&self, key: u64) -> bool;
    fn insert(&self, key: u64, bytes: usize);
    /// Runs the maintenance that the crate does later.
    fn settle(&self) {}
}

fn wide_key(key: u64) -> [u64; 2] {
    let mixed = key.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [mixed ^ mixed >> 29, mixed.rotate_left(31)]
}

fn value(bytes: usize) -> Arc<[u8]> {
    vec![b'x'; bytes + HEAD].into()
}

struct OurStore {
    store: Store,
    stats: LookupStats,
    base: KeyBase,
    tags: TagHasher,
}

impl OurStore {
    fn new(bytes: u64, entries: u64) -> Self {
        let secret = KeySecret::from_bytes([1; 16]);
        let overhead = entries * ENTRY_OVERHEAD_BYTES as u64;
        let settings = StoreSettings {
            bytes_max: bytes + overhead,
            entry_bytes_expected: bytes / entries,
            ..StoreSettings::default()
        };
        Self {
            store: Store::new(&settings, Arc::new(InvalidationTable::with_buckets(1))),
            stats: LookupStats::default(),
            base: KeyBase::new(&secret, HashDomain::Entity),
            tags: TagHasher::new(&secret),
        }
    }

    fn address(&self, key: u64) -> EntryAddress {
        let tags = [self.tags.subgraph("a")].into_iter().collect();
        EntryAddress { keys: self.base.keys_of(&key.to_le_bytes()), tags }
    }
}

impl Rival for OurStore {
    fn name(&self) -> &'static str {
        "cache::Store (quick_cache)"
    }

    fn has(&self, key: u64) -> bool {
        let found = self.store.lookup(&self.address(key), Timestamp(2), u64::MAX, &self.stats);
        matches!(found, Lookup::Fresh(_))
    }

    fn insert(&self, key: u64, bytes: usize) {
        let fresh_for = Duration::from_secs(60);
        let policy = CachePolicy { fresh_for, ..CachePolicy::default() };
        let new = NewEntry {
            policy: &policy,
            start: self.store.begin_fetch(Timestamp(1)),
            content: ResponseContent::Data,
            extra: b"",
            body: &vec![b'x'; bytes],
        };
        self.store.insert(&self.address(key), &new, Timestamp(2), &self.stats);
    }
}

#[derive(Clone)]
struct Weight;

impl quick_cache::Weighter<[u64; 2], Arc<[u8]>> for Weight {
    fn weight(&self, _key: &[u64; 2], value: &Arc<[u8]>) -> u64 {
        (value.len() - HEAD) as u64
    }
}

struct QuickCache(&'static str, quick_cache::sync::Cache<[u64; 2], Arc<[u8]>, Weight>);

impl Rival for QuickCache {
    fn name(&self) -> &'static str {
        self.0
    }

    fn has(&self, key: u64) -> bool {
        self.1.get(&wide_key(key)).is_some()
    }

    fn insert(&self, key: u64, bytes: usize) {
        self.1.insert(wide_key(key), value(bytes));
    }
}

struct Moka(moka::sync::Cache<[u64; 2], Arc<[u8]>>);

impl Rival for Moka {
    fn name(&self) -> &'static str {
        "moka (TinyLFU)"
    }

    fn has(&self, key: u64) -> bool {
        self.0.get(&wide_key(key)).is_some()
    }

    fn insert(&self, key: u64, bytes: usize) {
        self.0.insert(wide_key(key), value(bytes));
    }

    fn settle(&self) {
        self.0.run_pending_tasks();
    }
}

struct Foyer(&'static str, foyer_memory::Cache<[u64; 2], Arc<[u8]>>);

impl Rival for Foyer {
    fn name(&self) -> &'static str {
        self.0
    }

    fn has(&self, key: u64) -> bool {
        self.1.get(&wide_key(key)).is_some()
    }

    fn insert(&self, key: u64, bytes: usize) {
        self.1.insert(wide_key(key), value(bytes));
    }
}

/// Makes a cache with room for `bytes` of content in about `entries` entries.
type MakeRival = fn(u64, u64) -> Box<dyn Rival>;

fn foyer(name: &'static str, bytes: u64, eviction: foyer_memory::EvictionConfig) -> Box<dyn Rival> {
    let cache = foyer_memory::CacheBuilder::new(usize::try_from(bytes).unwrap())
        .with_shards(8)
        .with_eviction_config(eviction)
        .with_weighter(|_: &[u64; 2], value: &Arc<[u8]>| value.len() - HEAD)
        .build();
    Box::new(Foyer(name, cache))
}

fn quick_cache(name: &'static str, bytes: u64, entries: u64, ghosts: f64) -> Box<dyn Rival> {
    let options = quick_cache::OptionsBuilder::new()
        .weight_capacity(bytes)
        .estimated_items_capacity(usize::try_from(entries).unwrap())
        .ghost_allocation(ghosts)
        .build()
        .unwrap();
    let (hasher, lifecycle) = Default::default();
    Box::new(QuickCache(
        name,
        quick_cache::sync::Cache::with_options(options, Weight, hasher, lifecycle),
    ))
}

const RIVALS: [MakeRival; 8] = [
    |bytes, entries| Box::new(OurStore::new(bytes, entries)),
    |bytes, entries| quick_cache("quick_cache, ghosts 0 %", bytes, entries, 0.0),
    |bytes, entries| quick_cache("quick_cache, ghosts 10 %", bytes, entries, 0.1),
    |bytes, entries| quick_cache("quick_cache, ghosts 20 %", bytes, entries, 0.2),
    |bytes, entries| quick_cache("quick_cache, ghosts 50 %", bytes, entries, 0.5),
    |bytes, _| {
        let weigh = |_: &[u64; 2], value: &Arc<[u8]>| (value.len() - HEAD) as u32;
        Box::new(Moka(moka::sync::Cache::builder().max_capacity(bytes).weigher(weigh).build()))
    },
    |bytes, _| foyer("foyer-memory (S3-FIFO)", bytes, foyer_memory::S3FifoConfig::default().into()),
    |bytes, _| foyer("foyer-memory (TinyLFU)", bytes, foyer_memory::LfuConfig::default().into()),
];

/// Numbers of keys with Zipf's distribution: the chance of the key n is proportional to n^-exponent.
fn zipf(exponent: f64, seed: u64) -> Vec<u64> {
    let mut sums = Vec::with_capacity(KEYS);
    let mut sum = 0.0;
    for number in 1..=KEYS {
        sum += (number as f64).powf(-exponent);
        sums.push(sum);
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut draw = || {
        let place = random.f64() * sum;
        sums.partition_point(|it| *it < place).min(KEYS - 1) as u64
    };
    (0..REQUESTS).map(|_| draw()).collect()
}

/// Replays requests on an LFU that counts all requests so far, and keeps the keys with the most requests per byte.
fn ideal(requests: &[u64], sizes: &[usize], capacity: u64) -> f64 {
    let mut counts = vec![0u64; KEYS];
    let mut kept = BTreeSet::new();
    let (mut used, mut hits) = (0, 0);
    let rank = |count: u64, size: usize| count * 1_000_000 / size as u64;
    for &key in requests {
        let index = key as usize;
        let size = sizes[index];
        let was_kept = kept.remove(&(rank(counts[index], size), key));
        counts[index] += 1;
        let own = (rank(counts[index], size), key);
        if was_kept {
            hits += 1;
            kept.insert(own);
            continue;
        }
        kept.insert(own);
        used += size as u64;
        while used > capacity {
            let (_, evicted) = kept.pop_first().unwrap();
            used -= sizes[evicted as usize] as u64;
        }
    }
    f64::from(hits) / requests.len() as f64
}

fn replay(rival: &dyn Rival, requests: &[u64], sizes: &[usize]) -> f64 {
    let mut hits = 0;
    for &key in requests {
        if rival.has(key) {
            hits += 1;
        } else {
            rival.insert(key, sizes[key as usize]);
        }
    }
    f64::from(hits) / requests.len() as f64
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "NOT met" }
}

/// Prints the hit ratios of all caches, and returns the largest difference between the ideal and the store, in points.
fn print_hit_ratios(title: &str, sizes: &[usize]) -> f64 {
    let total: u64 = sizes.iter().map(|size| *size as u64).sum();
    let (capacity, entries) = (total / 10, KEYS as u64 / 10);
    println!("Hit ratio in percent, {title}: exponent 0.8, 1.0, 1.2");
    let loads = [0.8, 1.0, 1.2].map(|exponent| zipf(exponent, 7));
    let row = |name: &str, ratios: [f64; 3]| {
        let cells: Vec<String> = ratios.iter().map(|it| format!("{:6.2}", it * 100.0)).collect();
        println!("  {name:28} {}", cells.join(" "));
    };
    let ideal = [0, 1, 2].map(|index| ideal(&loads[index], sizes, capacity));
    row("ideal LFU", ideal);
    let mut below = 0.0_f64;
    for (number, make) in RIVALS.into_iter().enumerate() {
        let name = make(capacity, entries).name();
        let ratios = [0, 1, 2].map(|index| replay(&*make(capacity, entries), &loads[index], sizes));
        row(name, ratios);
        // The store is the first.
        if number == 0 {
            let points = ideal.iter().zip(ratios).map(|(ideal, ratio)| (ideal - ratio) * 100.0);
            below = points.fold(below, f64::max);
        }
    }
    below
}

/// Prints memory and time of all caches, and returns the memory of an entry of the store beside its content, in bytes.
fn print_memory_and_time() -> f64 {
    const CONTENT: usize = 64;
    println!("Memory per entry beside its content, and time per hit, {ENTRIES} entries");
    let mut random = fastrand::Rng::with_seed(3);
    let lookups: Vec<u64> = (0..REQUESTS).map(|_| random.u64(..ENTRIES)).collect();
    let mut of_store = 0.0;
    let room = ENTRIES + ENTRIES / 20;
    for (number, make) in RIVALS.into_iter().enumerate() {
        let before = BYTES.load(Relaxed);
        let rival = make(room * CONTENT as u64, room);
        for key in 0..ENTRIES {
            rival.insert(key, CONTENT);
        }
        rival.settle();
        let used = BYTES.load(Relaxed) - before;
        let overhead = used as f64 / ENTRIES as f64 - CONTENT as f64;
        if number == 0 {
            of_store = overhead;
        }
        let start = Instant::now();
        let hits = lookups.iter().filter(|key| rival.has(black_box(**key))).count();
        let time = start.elapsed().as_nanos() as f64 / REQUESTS as f64;
        let few: Vec<u64> = lookups.iter().map(|key| key % 1_000).collect();
        let start = Instant::now();
        black_box(few.iter().filter(|key| rival.has(black_box(**key))).count());
        let hot = start.elapsed().as_nanos() as f64 / REQUESTS as f64;
        println!(
            "  {:28} {overhead:6.1} bytes, {time:6.1} ns for any entry, {hot:6.1} ns for one of 1,000 ({:.1} % found)",
            rival.name(),
            hits as f64 * 100.0 / REQUESTS as f64
        );
    }
    of_store
}

fn main() {
    let below = print_hit_ratios("entries of 1,000 bytes", &vec![1_000; KEYS]);
    let mut random = fastrand::Rng::with_seed(5);
    // Evenly distributed exponents: as many entries between 100 and 1,000 bytes as between 1,000 and 10,000.
    let sizes: Vec<usize> =
        (0..KEYS).map(|_| (100.0 * 100f64.powf(random.f64())) as usize).collect();
    print_hit_ratios("entries of 100 to 10,000 bytes", &sizes);
    let overhead = print_memory_and_time();
    println!(
        "The store: {below:.2} points below the ideal with equal sizes, at most {POINTS_MAX}: {}",
        verdict(below <= POINTS_MAX)
    );
    println!(
        "The store: {overhead:.1} bytes for each of {ENTRIES} entries, at most {OVERHEAD_MAX}: {}",
        verdict(overhead <= OVERHEAD_MAX)
    );
}
