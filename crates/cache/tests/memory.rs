//! The memory of an entry beside its content: at most 120 bytes at a million entries.

// Counting allocations requires a custom allocator, and an allocator is unsafe by its trait.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cache::{
    CachePolicy, ENTRY_OVERHEAD_BYTES, EntryAddress, HashDomain, InvalidationTable, KeyBase,
    KeySecret, LookupStats, NewEntry, ResponseContent, Store, StoreOutcome, StoreSettings,
    TagHasher, Timestamp,
};

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes every call to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BODY: usize = 64;

/// Stores as many entities with one text tag each, and returns the bytes per entry beside body and text tag. The tag of
/// the entity, which the store keeps for previews of invalidations, is part of them.
fn overhead(entries: u64, bytes_max: u64) -> f64 {
    let secret = KeySecret::from_bytes([1; 16]);
    let hasher = TagHasher::new(&secret);
    let of_type = hasher.type_in_subgraph("Product", "products");
    let tags = [hasher.subgraph("products"), hasher.type_name("Product"), of_type];
    let mut base = KeyBase::new(&secret, HashDomain::Entity);
    base.part(b"products");
    let before = BYTES.load(Ordering::Relaxed);
    let settings =
        StoreSettings { bytes_max, entry_bytes_expected: BODY as u64, ..StoreSettings::default() };
    let store = Store::new(&settings, Arc::new(InvalidationTable::with_buckets(1)));
    let stats = LookupStats::default();
    for id in 0..entries {
        let keys = base.keys_of(&id.to_le_bytes());
        let mut entity = hasher.begin_entity("Product");
        entity.field("id", &id.to_string());
        let tags = tags.into_iter().chain([entity.finish()]).collect();
        let address = EntryAddress { keys, tags };
        let policy = CachePolicy {
            fresh_for: Duration::from_secs(60),
            tags: [hasher.text(&format!("product-{id}"))].into_iter().collect(),
            ..CachePolicy::default()
        };
        let new = NewEntry {
            policy: &policy,
            start: store.begin_fetch(Timestamp(1)),
            content: ResponseContent::Data,
            extra: b"",
            body: &[b'x'; BODY],
        };
        let outcome = store.insert(&address, &new, Timestamp(2), &stats);
        assert_eq!(outcome, StoreOutcome::Stored);
    }
    let used = BYTES.load(Ordering::Relaxed) - before;
    let tag = size_of::<u64>();
    used as f64 / store.len() as f64 - (BODY + tag) as f64
}

#[test]
fn a_million_entries_take_at_most_120_bytes_each_beside_their_content() {
    let entries = 1_000_000;
    let room = entries * (BODY + size_of::<u64>() + ENTRY_OVERHEAD_BYTES) as u64;
    let filling = overhead(entries, room);
    // Twice as many as there is room for: the store also remembers evicted keys.
    let evicting = overhead(2 * entries, room / 2);
    println!(
        "overhead per entry: {filling:.1} bytes while it fills, {evicting:.1} while it evicts"
    );
    assert!(filling <= 120.0, "{filling:.1}");
    assert!(evicting <= 150.0, "{evicting:.1}");
}
