//! A writer of lines to standard output or to a file: any thread adds lines without waiting, and one thread writes
//! them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::line_queue::LineQueue;
use crate::rotating_file::RotatingFile;

/// The maximum number of bytes of lines that wait. Further lines are dropped and counted.
const QUEUE_BYTES_MAX: usize = 8 << 20;

/// The time for which a line waits for others that are written with it. To wake the thread costs more than to write
/// some hundred lines.
const GATHERING: Duration = Duration::from_millis(50);

/// The time for which the end of a writer waits for the remaining lines.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// The place where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineDestination {
    /// Standard output.
    StandardOutput,
    /// A file.
    File {
        /// Its path. The folder must exist.
        path: PathBuf,
        /// The size in bytes after which a new file is begun.
        bytes_max: u64,
        /// The number of former files that are kept, as `PATH.1` (the newest), `PATH.2` and so on.
        kept: u32,
    },
}

/// Writes lines in a thread of its own. Adding a line never waits and never fails: a reader that stalls or a full disk
/// cost lines, which are counted. Dropping the writer waits for the remaining lines, for at most a second.
#[derive(Debug)]
pub struct LineWriter {
    queue: Arc<LineQueue>,
    thread: Option<JoinHandle<()>>,
}

impl LineWriter {
    /// Starts a writer. `name` is the name of its lines in the log of the process.
    ///
    /// # Errors
    /// The file cannot be opened, or the system provides no thread.
    pub fn start(name: &'static str, destination: LineDestination) -> io::Result<Self> {
        match destination {
            LineDestination::StandardOutput => Self::start_with(name, write_to_standard_output),
            LineDestination::File { path, bytes_max, kept } => {
                let mut file = RotatingFile::open(path, bytes_max, kept)?;
                Self::start_with(name, move |lines| file.write_lines(lines))
            }
        }
    }

    fn start_with(
        name: &'static str,
        out: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Arc::new(LineQueue::new(QUEUE_BYTES_MAX, GATHERING));
        queue.set_writer(true);
        let lines = Arc::clone(&queue);
        let report = move |count| {
            tracing::warn!(
                lines = count,
                "lines of the {name} were dropped: they came faster than they were written, or could not be written"
            );
        };
        let thread = std::thread::Builder::new().name(name.into());
        let thread = thread.spawn(move || lines.write_to(out, report))?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// Adds a line with its end, or drops it if too many wait.
    pub fn write(&self, line: &[u8]) {
        self.queue.push(line);
    }

    /// Writes the remaining lines, and waits for that for at most a second. Lines that are added later are lost.
    pub fn end(&self) {
        self.queue.close();
        self.queue.flush(FLUSH_TIME_MAX);
    }

    /// The number of lines that were dropped or could not be written.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        self.end();
        // A thread that waits for a reader that stalls ends with the process.
        if let Some(thread) = self.thread.take().filter(JoinHandle::is_finished) {
            // The panic hook has reported a panic of that thread.
            let _ = thread.join();
        }
    }
}

/// Writes without the lock of the standard library, which a blocked write would hold.
#[cfg(unix)]
fn write_to_standard_output(bytes: &[u8]) -> io::Result<()> {
    crate::log_writer::write_all(&io::stdout(), bytes)
}

#[cfg(not(unix))]
fn write_to_standard_output(bytes: &[u8]) -> io::Result<()> {
    io::Write::write_all(&mut io::stdout(), bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn lines_are_written_in_their_order_and_the_rest_at_the_end() {
        let (sender, written) = mpsc::channel();
        let out = move |lines: &[u8]| sender.send(lines.to_vec()).map_err(io::Error::other);
        let writer = LineWriter::start_with("test log", out).expect("a thread");
        for line in ["one\n", "two\n", "three\n"] {
            writer.write(line.as_bytes());
        }
        drop(writer);
        let written: Vec<u8> = written.iter().flatten().collect();
        assert_eq!(String::from_utf8(written).expect("UTF-8"), "one\ntwo\nthree\n");
    }

    #[test]
    fn an_end_writes_lines_that_wait_for_others() {
        let (sender, written) = mpsc::channel();
        let out = move |lines: &[u8]| sender.send(lines.to_vec()).map_err(io::Error::other);
        let writer = LineWriter::start_with("test log", out).expect("a thread");
        writer.write(b"last\n");
        writer.end();
        assert_eq!(written.try_recv(), Ok(b"last\n".to_vec()), "no wait, and the writer exists");
        drop(writer);
    }

    #[test]
    fn a_writer_that_stalls_keeps_nobody_waiting() {
        let (go_on, wait) = mpsc::channel::<()>();
        let out = move |_: &[u8]| wait.recv().map_err(io::Error::other);
        let writer = LineWriter::start_with("test log", out).expect("a thread");
        let line = vec![b'x'; QUEUE_BYTES_MAX / 4];
        // One batch is with the writer, and four of these lines fill the queue.
        (0..10).for_each(|_| writer.write(&line));
        assert!(writer.dropped() >= 5, "{}", writer.dropped());
        drop(go_on);
    }
}
