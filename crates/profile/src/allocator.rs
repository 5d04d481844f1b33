//! The allocator of the router.

/// True if this build can take profiles of CPU and memory.
pub const HAS_PROFILES: bool = cfg!(all(target_os = "linux", feature = "profiling"));

/// The allocator of the router: that of the system, because this build has no jemalloc.
#[cfg(not(all(target_os = "linux", feature = "profiling")))]
pub use std::alloc::System as Allocator;

/// The allocator of the router: jemalloc, selected by measurement (benches/README.md) and for its profiler.
#[cfg(all(target_os = "linux", feature = "profiling"))]
pub use tikv_jemallocator::Jemalloc as Allocator;

/// Starts the allocator's background threads, one for each CPU at most, which return free memory to the system even
/// while the threads that freed it are idle. Without them a router keeps the memory of a storm of connections until
/// the next one. Does nothing with other allocators.
pub fn start_memory_return() {
    #[cfg(all(target_os = "linux", feature = "profiling"))]
    // Fails only if the allocator was built without background threads; memory is then returned later.
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
}
