//! The resource usage of a process, from `/proc`: CPU of all its threads, resident memory, descriptors.

use std::io;
use std::time::Duration;

/// The clock ticks per second in `/proc/PID/stat`: Linux always reports 100 to programs (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// The resources that a process has used until now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// CPU time of all threads, including ended ones, in steps of 10 ms.
    pub cpu: Duration,
    /// Resident memory in KiB.
    pub resident_kib: u64,
    /// The peak of resident memory since the start of the process, in KiB.
    pub resident_peak_kib: u64,
    /// The number of threads, which Linux also calls tasks.
    pub threads: u64,
}

/// A process to observe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// The current process.
    Own,
    /// The process with this id.
    Id(u32),
}

impl Process {
    /// Returns its resource usage.
    ///
    /// # Errors
    /// There is no such process, or no `/proc`.
    pub fn usage(self) -> io::Result<Usage> {
        let folder = match self {
            Self::Own => "/proc/self".to_owned(),
            Self::Id(id) => format!("/proc/{id}"),
        };
        let stat = std::fs::read_to_string(format!("{folder}/stat"))?;
        let status = std::fs::read_to_string(format!("{folder}/status"))?;
        parse(&stat, &status).ok_or_else(|| io::Error::other(format!("cannot parse {folder}/stat")))
    }

    /// Returns the number of its open descriptors.
    ///
    /// # Errors
    /// There is no such process, or it belongs to another user.
    pub fn descriptors(self) -> io::Result<usize> {
        let folder = match self {
            Self::Own => "/proc/self/fd".to_owned(),
            Self::Id(id) => format!("/proc/{id}/fd"),
        };
        Ok(std::fs::read_dir(folder)?.count())
    }
}

fn parse(stat: &str, status: &str) -> Option<Usage> {
    // The name in parentheses may contain any character, including parentheses and spaces (proc_pid_stat(5)).
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    let number = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    Some(Usage {
        cpu: Duration::from_secs_f64((user + system) as f64 / TICKS_PER_SECOND),
        // An ended process that was not waited for has no memory any more.
        resident_kib: number("VmRSS:").unwrap_or(0),
        resident_peak_kib: number("VmHWM:").unwrap_or(0),
        threads: number("Threads:").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 4 0 100 0 0";
        let status = "Name:\ta\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t4\n";
        let expected = Usage {
            cpu: Duration::from_secs(2),
            resident_kib: 1024,
            resident_peak_kib: 2048,
            threads: 4,
        };
        assert_eq!(parse(stat, status), Some(expected));
        assert_eq!(parse("7 (a) S 1", status), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn usage_of_this_process_is_plausible() {
        let usage = Process::Own.usage().unwrap();
        assert!(usage.resident_kib > 0 && usage.resident_peak_kib >= usage.resident_kib);
        assert!(usage.threads > 0 && Process::Own.descriptors().unwrap() > 0);
        assert!(Process::Id(u32::MAX).usage().is_err());
    }
}
