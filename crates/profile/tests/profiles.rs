//! Profiles of a busy process, with the router's allocator.

#![cfg(all(target_os = "linux", feature = "profiling"))]
#![allow(clippy::unwrap_used)] // a test that gets no profile has failed

use profile::{Allocator, ProfileError};
use std::hint::black_box;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Computes until `until`, so that a sampler cannot miss it.
#[inline(never)]
fn a_function_that_is_busy(until: Instant) -> u64 {
    let mut sum: u64 = 1;
    while Instant::now() < until {
        for number in 0..10_000_u64 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
    }
    sum
}

#[test]
fn a_cpu_profile_names_the_function_that_was_busy() {
    let profile = profile::cpu(|| {
        black_box(a_function_that_is_busy(Instant::now() + Duration::from_secs(1)));
        let busy = profile::cpu(|| {});
        assert!(matches!(busy, Err(ProfileError::Busy)), "{busy:?}");
    });
    let profile = profile.unwrap();
    let text = String::from_utf8_lossy(&profile);
    assert!(text.contains("a_function_that_is_busy"));
    assert!(text.contains("nanoseconds") && text.contains("a_cpu_profile_names"));
}

#[inline(never)]
fn a_function_that_holds() -> Vec<Vec<u8>> {
    (0..64).map(|size| vec![1; 1024 * 1024 + size]).collect()
}

/// The profiler must be on when a process starts, so the test runs itself in a child process with it.
#[test]
fn a_heap_profile_names_the_function_that_holds() {
    const CHILD: &str = "STARLING_TEST_HEAP_CHILD";
    let name = "a_heap_profile_names_the_function_that_holds";
    if std::env::var_os(CHILD).is_some() {
        let held = a_function_that_holds();
        let profile = profile::heap().unwrap();
        let text = String::from_utf8_lossy(&profile);
        assert!(text.contains("a_function_that_holds") && text.contains("inuse_space"));
        assert!(!text.contains("prof_backtrace"), "the allocator holds nothing for itself");
        drop(held);
        return;
    }
    assert!(matches!(profile::heap(), Err(ProfileError::HeapProfilerOff)));
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(CHILD, "1")
        .env("_RJEM_MALLOC_CONF", "prof:true,lg_prof_sample:17")
        .status();
    assert!(status.unwrap().success());
}
