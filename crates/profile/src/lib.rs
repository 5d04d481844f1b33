//! What a running process does with its CPU and its memory, for people who have to find out.
//!
//! [`cpu`] samples the stacks of all threads for a while; [`heap`] asks the allocator who holds memory; [`threads`] lists
//! threads by name; [`usage`] says what all of it takes. The first two are in the format of pprof (`profile.proto`), with names in it, so that
//! `go tool pprof`, Pyroscope, Parca or speedscope read them without the program's file. Nothing here knows of HTTP.
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

/// Lets the allocator give back what is free while nobody asks it for anything: it has threads for that, one for each CPU
/// at most. Otherwise a router keeps what a storm of connections took until the next one, because idle threads do not
/// clean up behind themselves. Does nothing with other allocators.
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
