//! The writer of log lines to standard error: a queue (`line_queue`), and one thread that writes.
//!
//! A thread that logs never waits for standard error and never fails with it: a reader that stalls, a full disk or a
//! closed pipe cause the loss of lines, which are counted, and nothing else.

use std::io::{self, Write};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use crate::line_queue::LineQueue;
use crate::metric::{Metric, read};

/// The maximum number of bytes of lines that wait for standard error: some seconds at the level `debug` under load, and
/// a small part of the process's memory. Further lines are dropped.
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// The time for which the end of the program waits for the remaining lines. A reader that stalls must not keep the
/// program alive.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// The queue of the process, which has one standard error.
static QUEUE: LineQueue = LineQueue::new(QUEUE_BYTES_MAX, Duration::ZERO);

/// Starts the thread that writes to standard error. Once per process; later calls have no effect.
pub(crate) fn start() {
    if QUEUE.set_writer(true) {
        return;
    }
    let report = |lines| {
        tracing::warn!(
            lines,
            "log lines were dropped: standard error was not read fast enough or could not be written"
        );
    };
    let write = move || QUEUE.write_to(write_to_standard_error, report);
    if std::thread::Builder::new().name("log".into()).spawn(write).is_err() {
        // In that case no other thread starts either, and the start of the router fails with that error.
        QUEUE.set_writer(false);
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
fn write_to_standard_error(bytes: &[u8]) -> io::Result<()> {
    write_all(&io::stderr(), bytes)
}

/// Writes all bytes to a descriptor, and waits for a reader that is behind.
#[cfg(unix)]
pub(crate) fn write_all(out: &impl std::os::fd::AsFd, mut bytes: &[u8]) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;

    while !bytes.is_empty() {
        match rustix::io::write(out.as_fd(), bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Another program with the same terminal or pipe may have made it non-blocking.
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(out, PollFlags::OUT)], None)?;
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
