//! Counts allocations: a warm document makes none, and live memory stays within its bounds.

#![allow(clippy::unwrap_used, unsafe_code)]

#[path = "../examples/compare/cases.rs"]
mod cases;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use astjson::Document;
use bytes::Bytes;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE_BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE_BYTES.fetch_add(size as isize - layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of allocations of `operation` after three rounds of warming up.
fn warm_allocations(mut operation: impl FnMut()) -> usize {
    for _ in 0..3 {
        operation();
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    operation();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Live bytes, without the text, of a new document that has parsed it.
fn live_bytes(text: &str) -> isize {
    let text = Bytes::from(text.to_owned());
    let before = LIVE_BYTES.load(Ordering::Relaxed);
    let mut document = Document::new();
    document.parse(text.clone()).unwrap();
    LIVE_BYTES.load(Ordering::Relaxed) - before
}

// One test, because all threads share the counters.
#[test]
fn a_warm_document_does_not_allocate_and_a_cold_one_takes_little() {
    let (mut document, mut out) = (Document::new(), Vec::new());
    for text in [cases::DENSE, cases::TEXT] {
        let text = Bytes::from(text.to_owned());
        let shape = cases::dense_shape();
        assert_eq!(
            warm_allocations(|| {
                document.reset();
                out.clear();
                let root = document.parse(text.clone()).unwrap();
                document.print(root, &mut out);
                document.parse_shaped(text.clone(), &shape).unwrap();
            }),
            0
        );
    }
    assert_eq!(warm_allocations(|| cases::micro(&mut document, &mut out)), 0);
    assert_eq!(out, cases::MICRO_RESULT);
    let mut pipeline = cases::Pipeline::new(&cases::SubgraphResponses::new());
    assert_eq!(warm_allocations(|| pipeline.run()), 0);

    // 16 bytes a node, and little more.
    let (dense, text) = (live_bytes(cases::DENSE), live_bytes(cases::TEXT));
    assert!(dense <= 200_000, "{dense}");
    assert!(text <= 80_000, "{text}");
}
