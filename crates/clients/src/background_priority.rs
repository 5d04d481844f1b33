//! The scheduling priority of background threads: those that prepare operations, expand and parse large requests and
//! compress responses.
//!
//! Such work takes milliseconds at a time. At equal priority, the scheduler lets it keep a processor that an event loop
//! needs, and every client of that event loop waits. At a lower priority, an event loop with work to do gets the
//! processor at once, while background work still gets all the time that event loops leave.

/// The nice value of background threads. On a processor with a busy event loop, such a thread gets about a quarter of
/// the time, so that new operations are still prepared on a router that is saturated with known ones, and on a machine
/// with other work.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Lowers the priority of the calling thread.
///
/// On Linux, priorities belong to threads. On other systems they belong to whole processes, so there this has no
/// effect.
pub(crate) fn lower_current_thread() {
    #[cfg(target_os = "linux")]
    // Lowering a priority needs no privilege. If a sandbox forbids the call, threads keep their priority and work
    // correctly, only less fairly.
    let _ = rustix::process::setpriority_process(None, NICE);
}
