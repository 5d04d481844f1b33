//! The use of CPU and memory by the running process, for people who look for its causes.
//!
//! [`cpu`] samples the stacks of all threads for a while; [`heap`] asks the allocator which stacks hold memory;
//! [`threads`] lists threads by name; [`usage`] returns what the whole process uses. The first two are in the format of pprof
//! (`profile.proto`), with names in it, so that `go tool pprof`, Pyroscope, Parca or speedscope read them without the
//! program's file. Nothing here knows of HTTP.
//!
//! The allocator is chosen here too ([`Allocator`]), because only it can say who holds memory.

#[cfg(target_os = "linux")]
mod cpu;
mod encoding;
#[cfg(target_os = "linux")]
mod heap;
#[cfg(target_os = "linux")]
mod names;
mod threads;
mod usage;

#[cfg(target_os = "linux")]
pub use cpu::cpu;
#[cfg(target_os = "linux")]
pub use heap::heap;
pub use threads::{Thread, threads};
pub use usage::{Descriptors, Usage, descriptors, usage};

/// The allocator of the router: jemalloc, chosen by measurement (benches/README.md) and for its profiler.
#[cfg(target_os = "linux")]
pub use tikv_jemallocator::Jemalloc as Allocator;

/// Lets the allocator return free memory to the system from threads of its own, one for each CPU at most, also while
/// the threads that freed it are idle. Otherwise a router keeps the memory of a storm of connections until the next
/// one. Does nothing with other allocators.
pub fn give_memory_back() {
    #[cfg(target_os = "linux")]
    // Fails only where the allocator is built without them; memory is then given back later.
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Another CPU profile is being taken; the timer of a process is one.
    #[error("another profile is being taken")]
    Busy,
    /// The process was not started with the allocator's profiler.
    #[error(
        "the heap profiler is off: start the process with {}=prof:true in its environment",
        heap_variable()
    )]
    HeapProfilerOff,
    /// The system does not let us.
    #[error("{0}")]
    System(String),
}

/// The environment variable that the allocator reads when the process starts.
fn heap_variable() -> &'static str {
    "_RJEM_MALLOC_CONF"
}
