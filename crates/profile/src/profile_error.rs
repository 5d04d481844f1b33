//! The reasons for which there is no profile.

/// The reason for which there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Another CPU profile is being taken; a process has only one such timer.
    #[error("another profile is being taken")]
    Busy,
    /// The process was not started with the allocator's profiler.
    #[error(
        "the heap profiler is off: start the process with {HEAP_VARIABLE}=prof:true in its environment"
    )]
    HeapProfilerOff,
    /// The build has no profiler.
    #[error(
        "this build takes no profiles: build the router with `cargo build --release --features profiling`"
    )]
    NotBuilt,
    /// The system has no profiling timer that this crate knows.
    #[error("profiles are taken on Linux only")]
    NotLinux,
    /// The system refused the operation.
    #[error("{0}")]
    System(String),
}

/// The environment variable that the allocator reads when the process starts.
const HEAP_VARIABLE: &str = "_RJEM_MALLOC_CONF";
