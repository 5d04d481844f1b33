//! Profiles of the running process: CPU, memory, threads and descriptors.
//!
//! [`cpu`] samples the stacks of all threads for a while; [`heap`] reads from the allocator which stacks hold memory;
//! [`threads`] lists threads by name; [`usage`] returns what the whole process uses. The first two return the format
//! of pprof (`profile.proto`) with function names in it, so that `go tool pprof`, Pyroscope, Parca or speedscope read
//! them without the program's file. This crate knows nothing of HTTP.
//!
//! The crate also selects the allocator ([`Allocator`]), because only the allocator knows which stacks hold memory.

#[cfg(target_os = "linux")]
mod cpu;
mod encoding;
#[cfg(target_os = "linux")]
mod heap;
mod metrics;
#[cfg(target_os = "linux")]
mod names;
mod threads;
mod usage;

#[cfg(target_os = "linux")]
pub use cpu::cpu;
#[cfg(target_os = "linux")]
pub use heap::heap;
pub use metrics::{DESCRIPTOR_METRICS, USAGE_METRICS};
pub use threads::{Thread, threads};
pub use usage::{Descriptors, Usage, descriptors, usage};

/// The allocator of the router: jemalloc, selected by measurement (benches/README.md) and for its profiler.
#[cfg(target_os = "linux")]
pub use tikv_jemallocator::Jemalloc as Allocator;

/// Starts the allocator's background threads, one for each CPU at most, which return free memory to the system even
/// while the threads that freed it are idle. Without them a router keeps the memory of a storm of connections until
/// the next one. Does nothing with other allocators.
pub fn start_memory_return() {
    #[cfg(target_os = "linux")]
    // Fails only if the allocator was built without background threads; memory is then returned later.
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
}

/// The reason for which there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Another CPU profile is being taken; a process has only one such timer.
    #[error("another profile is being taken")]
    Busy,
    /// The process was not started with the allocator's profiler.
    #[error(
        "the heap profiler is off: start the process with {}=prof:true in its environment",
        heap_variable()
    )]
    HeapProfilerOff,
    /// The system refused the operation.
    #[error("{0}")]
    System(String),
}

/// Returns the environment variable that the allocator reads when the process starts.
fn heap_variable() -> &'static str {
    "_RJEM_MALLOC_CONF"
}
