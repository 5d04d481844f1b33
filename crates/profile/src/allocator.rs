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

/// Returns the free memory that the allocator keeps for later to the system. Takes about a millisecond for each 10 MiB.
/// Does nothing with other allocators.
pub fn release_free_memory() {
    #[cfg(all(target_os = "linux", feature = "profiling"))]
    release_free_pages();
}

/// Has each arena return its free pages: with a decay time of zero an arena keeps none, so that setting it returns
/// them at once. The time is then set as it was.
#[cfg(all(target_os = "linux", feature = "profiling"))]
fn release_free_pages() {
    use std::sync::Mutex;
    use tikv_jemalloc_ctl::{Access, AsName, arenas};

    /// Two threads at the same time could read each other's zero as the time to restore.
    static RELEASING: Mutex<()> = Mutex::new(());
    // Nothing panics under this lock, and it protects no data.
    let _only_one = RELEASING.lock();
    let Ok(count) = arenas::narenas::read() else { return };
    for arena in 0..count {
        let key = format!("arena.{arena}.dirty_decay_ms\0");
        // Arenas that no thread has used yet do not exist, and have nothing to return.
        let decay: Result<isize, _> = key.name().update(0);
        if let Ok(decay) = decay {
            let _ = key.name().write(decay);
        }
    }
}

#[cfg(all(test, target_os = "linux", feature = "profiling"))]
mod tests {
    use tikv_jemalloc_ctl::{Access, AsName};

    #[test]
    fn releasing_memory_leaves_the_decay_time_as_it_was() {
        // Makes the first arena.
        drop(vec![1_u8; 1 << 20]);
        let decay = || Access::<isize>::read("arena.0.dirty_decay_ms\0".name());
        let before = decay();
        super::release_free_memory();
        assert_eq!((before.is_ok(), decay()), (true, before));
    }
}
