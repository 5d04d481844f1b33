//! The threads of this process, from `/proc/self/task`.

/// One thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Thread {
    /// The thread id in the system.
    pub id: u32,
    /// The name, truncated by the system to 15 bytes.
    pub name: String,
    /// Running, sleeping or another state, abbreviated as in `proc_pid_stat(5)`.
    pub state: char,
    /// The CPU time that it has used, in seconds.
    pub cpu_seconds: f64,
}

/// The clock ticks per second in `/proc/*/stat`: Linux always reports 100 to programs (`USER_HZ`).
pub(crate) const TICKS_PER_SECOND: f64 = 100.0;

/// Lists all threads in the order of their ids; none if the system has no `/proc`.
pub fn threads() -> Vec<Thread> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let mut threads: Vec<Thread> = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok())
        .filter_map(|stat| parse(&stat))
        .collect();
    threads.sort_by_key(|thread| thread.id);
    threads
}

fn parse(stat: &str) -> Option<Thread> {
    // The name in parentheses may contain anything, parentheses included.
    let (before, after) = stat.rsplit_once(')')?;
    let (id, name) = before.split_once('(')?;
    let mut fields = after.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let mut ticks = fields.skip(10).map(str::parse::<u64>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some(Thread {
        id: id.trim().parse().ok()?,
        name: name.to_owned(),
        state,
        cpu_seconds: (user + system) as f64 / TICKS_PER_SECOND,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_any_name_is_read() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 4 0 100 0 0";
        let expected = Thread { id: 7, name: "a) b (c)".to_owned(), state: 'S', cpu_seconds: 2.0 };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse("7 (a) S"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_named_thread_is_listed() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let builder = std::thread::Builder::new().name("seen".to_owned());
        let thread = builder.spawn(move || receive.recv().is_err()).unwrap();
        // A thread sets its name only when it runs.
        while !threads().iter().any(|thread| thread.name == "seen") {
            std::thread::yield_now();
        }
        drop(send);
        assert!(thread.join().unwrap());
    }
}
