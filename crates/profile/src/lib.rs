//! Profiles of the running process: CPU, memory, threads and descriptors.
//!
//! [`cpu`] samples the stacks of all threads for a while; [`heap`] reads from the allocator which stacks hold memory;
//! [`threads`] lists threads by name; [`usage`] returns what the whole process uses, and [`available_memory`] the memory
//! that it may use. The first two return the format of pprof (`profile.proto`) with function names in it, so that `go
//! tool pprof`, Pyroscope, Parca or speedscope read them without the program's file. This crate knows nothing of HTTP.
//!
//! The crate also selects the allocator ([`Allocator`]), because only the allocator knows which stacks hold memory.
//!
//! The feature `profiling` adds, on Linux, the profiles of CPU and memory, and jemalloc as the allocator. Without it the
//! allocator is that of the system, and [`cpu`] and [`heap`] return an error.

mod allocator;
#[cfg(all(target_os = "linux", feature = "profiling"))]
mod allocator_frames;
#[cfg(all(target_os = "linux", feature = "profiling"))]
mod cpu;
#[cfg(all(target_os = "linux", feature = "profiling"))]
mod encoding;
#[cfg(all(target_os = "linux", feature = "profiling"))]
mod heap;
mod memory_limit;
mod metrics;
#[cfg(all(target_os = "linux", feature = "profiling"))]
mod names;
#[cfg(not(all(target_os = "linux", feature = "profiling")))]
mod no_profiles;
mod profile_error;
mod threads;
mod usage;

pub use allocator::{Allocator, HAS_PROFILES, release_free_memory, start_memory_return};
#[cfg(all(target_os = "linux", feature = "profiling"))]
pub use cpu::cpu;
#[cfg(all(target_os = "linux", feature = "profiling"))]
pub use heap::heap;
pub use memory_limit::{AvailableMemory, LimitSource, available_memory};
pub use metrics::{DESCRIPTOR_METRICS, USAGE_METRICS};
#[cfg(not(all(target_os = "linux", feature = "profiling")))]
pub use no_profiles::{cpu, heap};
pub use profile_error::ProfileError;
pub use threads::{Thread, threads};
pub use usage::{
    Descriptors, Usage, descriptors, private_resident_bytes, processor_wait_seconds, usage,
};
