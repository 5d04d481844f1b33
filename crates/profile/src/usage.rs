//! What this process uses, from `/proc/self/stat`.

use crate::threads::TICKS_PER_SECOND;

/// CPU, memory and threads of this process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// CPU time of all threads, those that ended included, in seconds; the system counts in steps of 10 ms.
    pub cpu_seconds: f64,
    /// Memory that is resident, in bytes.
    pub resident_bytes: u64,
    /// Threads that are alive.
    pub threads: u64,
}

/// What this process uses now; `None` where the system has no `/proc`.
#[cfg(target_os = "linux")]
pub fn usage() -> Option<Usage> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    parse(&stat, rustix::param::page_size() as u64)
}

/// What this process uses now; `None` where the system has no `/proc`.
#[cfg(not(target_os = "linux"))]
pub fn usage() -> Option<Usage> {
    None
}

fn parse(stat: &str, page_bytes: u64) -> Option<Usage> {
    // The name in parentheses may contain anything, parentheses and spaces included (proc_pid_stat(5)). What follows
    // it begins with field 3, the state.
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Usage {
        cpu_seconds: (field(14)? + field(15)?) as f64 / TICKS_PER_SECOND,
        resident_bytes: field(24)? * page_bytes,
        threads: field(20)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_cannot_shift_the_figures() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 4 0 100 9999 3 0 0";
        let expected = Usage { cpu_seconds: 2.0, resident_bytes: 12_288, threads: 4 };
        assert_eq!(parse(stat, 4_096), Some(expected));
        assert_eq!(parse("7 (a) S 1", 4_096), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_sees_itself() {
        let usage = usage().unwrap();
        assert!(usage.threads >= 1 && usage.resident_bytes > 100_000, "{usage:?}");
    }
}
