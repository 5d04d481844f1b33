//! The writer of log lines to standard error: a bounded queue, and one thread that writes.
//!
//! A thread that logs never waits for standard error and never fails with it: a reader that stalls, a full disk or a
//! closed pipe cause the loss of lines, which are counted, and nothing else.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

use crate::metric::{Metric, read};

/// The maximum number of bytes of lines that wait for standard error: some seconds at the level `debug` under load, and
/// a small part of the process's memory. Further lines are dropped.
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// The maximum number of bytes that are written at once, so that few large writes empty a queue of many lines.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// The time for which the end of the program waits for the remaining lines. A reader that stalls must not keep the
/// program alive.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// The queue of the process, which has one standard error.
static QUEUE: LineQueue = LineQueue::new(QUEUE_BYTES_MAX);

/// Lines that wait to be written.
#[derive(Debug)]
struct LineQueue {
    bytes_max: usize,
    state: Mutex<QueueState>,
    /// Signalled when a line waits.
    filled: Condvar,
    /// Signalled when all lines have been written.
    emptied: Condvar,
    /// The number of lines since the start that were dropped or could not be written.
    dropped: AtomicU64,
}

#[derive(Debug)]
struct QueueState {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Dropped lines that no line of the log has reported.
    unreported: u64,
    is_writing: bool,
    has_writer: bool,
}

impl LineQueue {
    const fn new(bytes_max: usize) -> Self {
        let state = QueueState {
            lines: VecDeque::new(),
            bytes: 0,
            unreported: 0,
            is_writing: false,
            has_writer: false,
        };
        Self {
            bytes_max,
            state: Mutex::new(state),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            dropped: AtomicU64::new(0),
        }
    }

    /// Adds a line, or counts it as dropped if there is no room.
    fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.bytes.saturating_add(line.len()) > self.bytes_max {
            self.count_dropped(&mut state, 1);
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line.to_vec());
        drop(state);
        self.filled.notify_one();
    }

    /// Waits for lines and moves some of them into `batch`. Returns their number.
    fn take_batch(&self, batch: &mut Vec<u8>) -> u64 {
        let mut state = self.lock();
        while state.lines.is_empty() {
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_writing = true;
        let mut count = 0;
        while let Some(line) = state.lines.front()
            && (count == 0 || batch.len() + line.len() <= BATCH_BYTES_MAX)
        {
            batch.extend_from_slice(line);
            state.bytes -= line.len();
            state.lines.pop_front();
            count += 1;
        }
        count
    }

    /// Records whether a batch of `count` lines has been written. Returns the number of dropped lines to report.
    fn finish_batch(&self, count: u64, is_written: bool) -> u64 {
        let mut state = self.lock();
        state.is_writing = false;
        let unreported = match is_written {
            true => std::mem::take(&mut state.unreported),
            false => {
                self.count_dropped(&mut state, count);
                0
            }
        };
        if state.lines.is_empty() {
            self.emptied.notify_all();
        }
        unreported
    }

    fn count_dropped(&self, state: &mut QueueState, count: u64) {
        state.unreported = state.unreported.saturating_add(count);
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Waits until all lines have been written or dropped, for at most `time`.
    fn flush(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let mut state = self.lock();
        while state.has_writer && (state.is_writing || !state.lines.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.emptied.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes batches to `out` until `is_over` returns true. `report` logs a number of dropped lines when writing works
    /// again.
    fn write_to(
        &self,
        mut out: impl FnMut(&[u8]) -> io::Result<()>,
        report: impl Fn(u64),
        is_over: impl Fn() -> bool,
    ) {
        let mut batch = Vec::new();
        // A partly written line is ended before the next one.
        let mut is_torn = false;
        while !is_over() {
            batch.clear();
            if is_torn {
                batch.push(b'\n');
            }
            let count = self.take_batch(&mut batch);
            let written = out(&batch);
            is_torn = written.is_err();
            let unreported = self.finish_batch(count, !is_torn);
            if unreported > 0 {
                report(unreported);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread that writes to standard error. Once per process; later calls have no effect.
pub(crate) fn start() {
    if std::mem::replace(&mut QUEUE.lock().has_writer, true) {
        return;
    }
    let report = |lines| {
        tracing::warn!(
            lines,
            "log lines were dropped: standard error was not read fast enough or could not be written"
        );
    };
    let write = move || QUEUE.write_to(write_to_standard_error, report, || false);
    if std::thread::Builder::new().name("log".into()).spawn(write).is_err() {
        // In that case no other thread starts either, and the start of the router fails with that error.
        QUEUE.lock().has_writer = false;
    }
}

/// Waits until the log has been written, for at most a second. Must be called before the program ends and before other
/// text is written to standard error.
pub(crate) fn flush() {
    QUEUE.flush(FLUSH_TIME_MAX);
}

/// The metrics of the log of the process.
pub const LOG_METRICS: &[Metric<()>] = &[Metric::counter(
    "starling_log_lines_dropped",
    "Log lines dropped because standard error was not read or could not be written",
    |()| read(&QUEUE.dropped),
)];

/// Writes to standard error without the lock of the standard library, which a blocked write would hold.
#[cfg(unix)]
fn write_to_standard_error(mut bytes: &[u8]) -> io::Result<()> {
    use std::os::fd::AsFd;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;

    let stderr = io::stderr();
    while !bytes.is_empty() {
        match rustix::io::write(stderr.as_fd(), bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Another program with the same terminal or pipe may have made it non-blocking.
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn write_to_standard_error(bytes: &[u8]) -> io::Result<()> {
    io::stderr().write_all(bytes)
}

/// The writer that `tracing` uses. It adds lines to the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogWriter;

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl Write for LogWriter {
    /// Adds a whole line: `tracing` writes each line at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        QUEUE.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Writes the waiting lines to a sink that fails `failures` times. Returns the written text and the reports.
    fn write_all(queue: &LineQueue, failures: usize) -> (String, Vec<u64>) {
        let (written, failed) = (RefCell::new(Vec::new()), Cell::new(0));
        let reports = RefCell::new(Vec::new());
        queue.write_to(
            |bytes| {
                if failed.get() < failures {
                    failed.set(failed.get() + 1);
                    return Err(io::ErrorKind::StorageFull.into());
                }
                written.borrow_mut().extend_from_slice(bytes);
                Ok(())
            },
            |lines| reports.borrow_mut().push(lines),
            || queue.lock().lines.is_empty(),
        );
        (String::from_utf8(written.into_inner()).expect("UTF-8"), reports.into_inner())
    }

    #[test]
    fn lines_over_the_bound_are_dropped_and_reported_when_the_rest_is_written() {
        let queue = LineQueue::new(8);
        for line in ["aaa\n", "bbb\n", "ccc\n", "ddd\n"] {
            queue.push(line.as_bytes());
        }
        assert_eq!(write_all(&queue, 0), ("aaa\nbbb\n".to_owned(), vec![2]));
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 2);
        queue.push(b"eee\n");
        assert_eq!(write_all(&queue, 0), ("eee\n".to_owned(), vec![]), "there is room again");
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_reported_when_writing_works_again() {
        let queue = LineQueue::new(1 << 20);
        let long = "x".repeat(BATCH_BYTES_MAX) + "\n";
        for line in [&long, "second\n"] {
            queue.push(line.as_bytes());
        }
        let (written, reports) = write_all(&queue, 1);
        assert_eq!((&*written, &*reports), ("\nsecond\n", &[1][..]), "a torn line is ended first");
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn flushing_ends_at_its_deadline_while_the_reader_stalls() {
        let queue = LineQueue::new(1 << 20);
        queue.lock().has_writer = true;
        queue.push(b"never written\n");
        let start = Instant::now();
        queue.flush(Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}
