//! Profiles of the running process: CPU, memory, threads and descriptors.
//!
//! [`cpu`] samples the stacks of all threads for a while; [`heap`] reads from the allocator which stacks hold memory;
//! [`threads`] lists threads by name; [`usage`] returns what the whole process uses. The first two return the format
//! of pprof (`profile.proto`) with function names in it, so that `go tool pprof`, Pyroscope, Parca or speedscope read
//! them without the program's file. This crate knows nothing of HTTP.
//!
//! The crate also selects the allocator ([`Allocator`]), because only the allocator knows which stacks hold memory: with
//! the feature `jemalloc`, on Linux, it is jemalloc; otherwise it is that of the system, and there are no heap profiles.

mod allocator;
#[cfg(all(target_os = "linux", feature = "jemalloc"))]
mod allocator_frames;
#[cfg(target_os = "linux")]
mod cpu;
#[cfg(target_os = "linux")]
mod encoding;
#[cfg(all(target_os = "linux", feature = "jemalloc"))]
mod heap;
#[cfg(target_os = "linux")]
mod names;
#[cfg(not(target_os = "linux"))]
mod no_cpu;
#[cfg(not(all(target_os = "linux", feature = "jemalloc")))]
mod no_heap;
mod profile_error;
mod threads;
mod usage;

pub use allocator::{Allocator, HAS_HEAP_PROFILES, start_memory_return};
#[cfg(target_os = "linux")]
pub use cpu::cpu;
#[cfg(all(target_os = "linux", feature = "jemalloc"))]
pub use heap::heap;
#[cfg(not(target_os = "linux"))]
pub use no_cpu::cpu;
#[cfg(not(all(target_os = "linux", feature = "jemalloc")))]
pub use no_heap::heap;
pub use profile_error::ProfileError;
pub use threads::{Thread, threads};
pub use usage::{Descriptors, Usage, descriptors, usage};
