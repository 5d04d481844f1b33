//! The scheduling priorities of workers, and of the background threads that prepare operations, expand and parse large
//! requests and compress responses for them.
//!
//! A reactor that sends an event to thousands of subscribers computes for tens of milliseconds. At equal priority, a
//! saturated worker takes half of the processor meanwhile, and subscribers wait twice as long because queries are
//! overloaded. So workers come after reactors.
//!
//! Background work takes milliseconds at a time. At equal priority, the scheduler lets it keep a processor that a
//! worker needs, and every client of that worker waits. At a lower priority, a worker with work to do gets the
//! processor at once, while background work still gets all the time that workers leave.
//!
//! On Linux, priorities belong to threads. On other systems they belong to whole processes, so there nothing here has
//! an effect.

/// What is added to the nice value of the process for a worker. It then gets 40 % of a processor on which a reactor
/// sends without a pause. It is no more because it also counts beside other programs, where they and the router share
/// one cgroup.
const WORKER: i32 = 2;

/// What is added for a background thread. On a processor with a busy worker, such a thread gets about a quarter of the
/// time, so that new operations are still prepared on a router that is saturated with known ones, and on a machine with
/// other work.
const BACKGROUND: i32 = 7;

/// The nice value of the thread that starts workers, which is that of the process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessPriority(i32);

impl ProcessPriority {
    /// Reads the nice value of the calling thread; 0 if the system does not tell.
    pub(crate) fn of_current_thread() -> Self {
        #[cfg(target_os = "linux")]
        let nice = rustix::process::getpriority_process(None).unwrap_or_default();
        #[cfg(not(target_os = "linux"))]
        let nice = 0;
        Self(nice)
    }

    /// Makes the calling thread a worker.
    pub(crate) fn begin_worker(self) {
        self.lower_current_thread(WORKER);
    }

    /// Makes the calling thread a background thread.
    pub(crate) fn begin_background(self) {
        self.lower_current_thread(BACKGROUND);
    }

    fn lower_current_thread(self, by: i32) {
        let nice = self.0.saturating_add(by);
        #[cfg(target_os = "linux")]
        // The system takes a value beyond the lowest priority as that. Lowering a priority needs no privilege. If a
        // sandbox forbids the call, threads keep their priority and work correctly, only less fairly.
        let _ = rustix::process::setpriority_process(None, nice);
        #[cfg(not(target_os = "linux"))]
        let _ = nice;
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn workers_come_after_other_threads_and_background_threads_after_workers() {
        let process = ProcessPriority::of_current_thread();
        let nice_of = |begin: fn(ProcessPriority)| {
            let thread = std::thread::spawn(move || {
                begin(process);
                ProcessPriority::of_current_thread().0
            });
            thread.join().unwrap()
        };
        let lowest = 19;
        assert_eq!(nice_of(|_| ()), process.0);
        assert_eq!(nice_of(ProcessPriority::begin_worker), (process.0 + 2).min(lowest));
        assert_eq!(nice_of(ProcessPriority::begin_background), (process.0 + 7).min(lowest));
    }
}
