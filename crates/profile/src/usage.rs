//! CPU, memory, threads and descriptors of this process, from `/proc/self`.

use crate::threads::TICKS_PER_SECOND;

/// The use of CPU, memory and threads by this process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// CPU time of all threads, including ended ones, in seconds; the system counts in steps of 10 ms.
    pub cpu_seconds: f64,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
    /// Reserved memory, in bytes.
    pub virtual_bytes: u64,
    /// The number of threads.
    pub threads: u64,
    /// The start time of the process, in seconds since 1970, if the time of the system's start is known.
    pub start_seconds: Option<f64>,
}

/// The number of file descriptors of this process, and their limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// The number of open descriptors.
    pub open: u64,
    /// The maximum number of open descriptors; `u64::MAX` if there is no limit.
    pub limit: u64,
}

/// Returns the current use of resources; `None` if the system has no `/proc`.
#[cfg(target_os = "linux")]
pub fn usage() -> Option<Usage> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let boot = std::fs::read_to_string("/proc/stat").ok();
    parse(&stat, rustix::param::page_size() as u64, boot.as_deref().and_then(boot_seconds))
}

/// Returns the time for which the threads of this process that still run have waited for a processor, in seconds (the
/// second field of `/proc/*/schedstat`); zero if the system does not tell.
pub fn processor_wait_seconds() -> f64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0.0 };
    let waits = tasks.filter_map(|task| {
        let schedstat = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        parse_wait_nanos(&schedstat)
    });
    waits.sum::<u64>() as f64 / 1e9
}

fn parse_wait_nanos(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the resident memory of this process without the pages of files, in bytes; `None` if the system has no
/// `/proc`. The system takes the pages of the program and of other files back when memory is short. Takes some
/// microseconds.
#[cfg(target_os = "linux")]
pub fn private_resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    parse_statm(&statm, rustix::param::page_size() as u64)
}

/// Returns the resident memory of this process without the pages of files; `None` if the system has no `/proc`.
#[cfg(not(target_os = "linux"))]
pub fn private_resident_bytes() -> Option<u64> {
    None
}

/// Returns resident less shared pages (proc_pid_statm(5)) in bytes.
fn parse_statm(statm: &str, page_bytes: u64) -> Option<u64> {
    let mut pages = statm.split_whitespace().skip(1).map(|it| it.parse::<u64>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    resident.saturating_sub(shared).checked_mul(page_bytes)
}

/// Returns the number of file descriptors of this process; `None` if the system has no `/proc`.
#[cfg(target_os = "linux")]
pub fn descriptors() -> Option<Descriptors> {
    // Linux 6.2 and later give the number as the size of the folder. Reading the folder takes milliseconds for each ten
    // thousand sockets.
    let open = match std::fs::metadata("/proc/self/fd").ok()?.len() {
        // The folder itself is open while it is read.
        0 => std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64,
        number => number,
    };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    Some(Descriptors { open, limit: limit.unwrap_or(u64::MAX) })
}

/// Returns the number of file descriptors of this process; `None` if the system has no `/proc`.
#[cfg(not(target_os = "linux"))]
pub fn descriptors() -> Option<Descriptors> {
    None
}

/// Returns the start time of the system, in seconds since 1970, from the text of `/proc/stat`.
fn boot_seconds(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Returns the current use of resources; `None` if the system has no `/proc`.
#[cfg(not(target_os = "linux"))]
pub fn usage() -> Option<Usage> {
    None
}

fn parse(stat: &str, page_bytes: u64, boot_seconds: Option<f64>) -> Option<Usage> {
    // The name in parentheses may contain any character, including parentheses and spaces (proc_pid_stat(5)). The text
    // after it begins with field 3, the state.
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Usage {
        cpu_seconds: (field(14)? + field(15)?) as f64 / TICKS_PER_SECOND,
        resident_bytes: field(24)? * page_bytes,
        virtual_bytes: field(23)?,
        threads: field(20)?,
        start_seconds: boot_seconds
            .zip(field(22))
            .map(|(boot, ticks)| boot + ticks as f64 / TICKS_PER_SECOND),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_of_a_thread_is_read() {
        assert_eq!(parse_wait_nanos("2101 67082 17\n"), Some(67_082));
        assert_eq!(parse_wait_nanos("0"), None);
    }

    #[test]
    fn the_name_of_a_program_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 4 0 100 9999 3 0 0";
        let expected = Usage {
            cpu_seconds: 2.0,
            resident_bytes: 12_288,
            virtual_bytes: 9999,
            threads: 4,
            start_seconds: Some(1_000_001.0),
        };
        let boot = boot_seconds("cpu 1 2\nbtime 1000000\n");
        assert_eq!(parse(stat, 4_096, boot), Some(expected));
        assert_eq!(parse("7 (a) S 1", 4_096, boot), None);
    }

    #[test]
    fn pages_of_files_do_not_count_as_memory_of_the_process() {
        assert_eq!(parse_statm("765 420 391 5 0 123 0\n", 4096), Some(29 * 4096));
        assert_eq!(parse_statm("765 420", 4096), None);
        assert_eq!(parse_statm("", 4096), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn usage_of_this_process_is_plausible() {
        let usage = usage().unwrap();
        assert!(usage.threads >= 1 && usage.resident_bytes > 100_000, "{usage:?}");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let (now, start) = (now.unwrap().as_secs_f64(), usage.start_seconds.unwrap());
        assert!(start <= now + 1.0 && start > now - 86_400.0, "{start} {now}");
        let private = private_resident_bytes().unwrap();
        assert!((100_000..usage.virtual_bytes).contains(&private), "{private} {usage:?}");
        let descriptors = descriptors().unwrap();
        assert!((3..=descriptors.limit).contains(&descriptors.open), "{descriptors:?}");
    }
}
