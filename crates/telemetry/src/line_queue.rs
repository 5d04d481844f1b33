//! A bounded queue of lines, which any thread fills without waiting and one thread writes.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of bytes that are written at once, so that few large writes empty a queue of many lines. A longer
/// line is a batch of its own.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// Lines that wait to be written.
#[derive(Debug)]
pub(crate) struct LineQueue {
    bytes_max: usize,
    /// The time for which the writer waits for further lines after the first. To wake a thread for each line would cost
    /// more than to make the line.
    gathering: Duration,
    state: Mutex<QueueState>,
    /// Signalled when the first line waits, when a batch is full, and when nothing may wait any more.
    filled: Condvar,
    /// Signalled when all lines have been written.
    emptied: Condvar,
    /// The number of lines since the start that were dropped or could not be written.
    pub(crate) dropped: AtomicU64,
}

#[derive(Debug)]
struct QueueState {
    /// The lines, the oldest first. New ones are added to the last batch: a line has no memory of its own, which would be
    /// allocated by one thread and freed by another.
    batches: VecDeque<Batch>,
    /// The bytes of all batches.
    bytes: usize,
    /// The memory of a written batch, for the next one.
    spare: Vec<u8>,
    /// Dropped lines that no line of the log has reported.
    unreported: u64,
    is_writing: bool,
    has_writer: bool,
    /// True once no further line comes.
    is_closed: bool,
}

/// Lines that are written at once.
#[derive(Debug, Default)]
struct Batch {
    text: Vec<u8>,
    lines: u64,
}

impl LineQueue {
    pub(crate) const fn new(bytes_max: usize, gathering: Duration) -> Self {
        let state = QueueState {
            batches: VecDeque::new(),
            bytes: 0,
            spare: Vec::new(),
            unreported: 0,
            is_writing: false,
            has_writer: false,
            is_closed: false,
        };
        Self {
            bytes_max,
            gathering,
            state: Mutex::new(state),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            dropped: AtomicU64::new(0),
        }
    }

    /// Adds a line, or counts it as dropped if there is no room.
    pub(crate) fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.bytes.saturating_add(line.len()) > self.bytes_max {
            self.count_dropped(&mut state, 1);
            return;
        }
        let bytes = state.bytes;
        state.bytes += line.len();
        state.add(line);
        let is_first = bytes == 0;
        let fills_batch = bytes < BATCH_BYTES_MAX && state.bytes >= BATCH_BYTES_MAX;
        drop(state);
        if is_first || fills_batch {
            self.filled.notify_one();
        }
    }

    /// Records that a thread writes the lines, or that it does not. Returns what was recorded before.
    pub(crate) fn set_writer(&self, has_writer: bool) -> bool {
        std::mem::replace(&mut self.lock().has_writer, has_writer)
    }

    /// Ends the writer once all lines have been written.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_all();
    }

    /// Waits for lines and takes the oldest batch; `None` once the queue is closed and empty.
    fn take_batch(&self) -> Option<Batch> {
        let mut state = self.lock();
        while state.batches.is_empty() && !state.is_closed {
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let may_wait = |it: &mut QueueState| !it.is_closed && it.bytes < BATCH_BYTES_MAX;
        if !self.gathering.is_zero() {
            let waited = self.filled.wait_timeout_while(state, self.gathering, may_wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let batch = state.batches.pop_front()?;
        state.bytes -= batch.text.len();
        state.is_writing = true;
        Some(batch)
    }

    /// Records whether a batch has been written. Returns the number of dropped lines to report.
    fn finish_batch(&self, mut batch: Batch, is_written: bool) -> u64 {
        let mut state = self.lock();
        state.is_writing = false;
        let unreported = match is_written {
            true => std::mem::take(&mut state.unreported),
            false => {
                self.count_dropped(&mut state, batch.lines);
                0
            }
        };
        // The memory of a long line is not kept.
        if batch.text.capacity() <= 2 * BATCH_BYTES_MAX {
            batch.text.clear();
            state.spare = batch.text;
        }
        if state.batches.is_empty() {
            self.emptied.notify_all();
        }
        unreported
    }

    fn count_dropped(&self, state: &mut QueueState, count: u64) {
        state.unreported = state.unreported.saturating_add(count);
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Waits until all lines have been written or dropped, for at most `time`. The writer does not hurry: it gathers lines
    /// unless the queue is closed.
    pub(crate) fn flush(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let mut state = self.lock();
        while state.has_writer && (state.is_writing || !state.batches.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.emptied.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes batches to `out` until the queue is closed and empty. `report` logs a number of dropped lines when
    /// writing works again.
    pub(crate) fn write_to(
        &self,
        mut out: impl FnMut(&[u8]) -> io::Result<()>,
        report: impl Fn(u64),
    ) {
        // A partly written line is ended before the next one.
        let mut is_torn = false;
        while let Some(mut batch) = self.take_batch() {
            if is_torn {
                batch.text.insert(0, b'\n');
            }
            is_torn = out(&batch.text).is_err();
            let unreported = self.finish_batch(batch, !is_torn);
            if unreported > 0 {
                report(unreported);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// Adds a line to the last batch, or to a new one if that is full.
    fn add(&mut self, line: &[u8]) {
        match self.batches.back_mut() {
            Some(last) if last.text.len() + line.len() <= BATCH_BYTES_MAX => {
                last.text.extend_from_slice(line);
                last.lines += 1;
            }
            _ => {
                let mut text = std::mem::take(&mut self.spare);
                text.extend_from_slice(line);
                self.batches.push_back(Batch { text, lines: 1 });
            }
        }
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
        queue.lock().is_closed = true;
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
        );
        (String::from_utf8(written.into_inner()).expect("UTF-8"), reports.into_inner())
    }

    #[test]
    fn lines_over_the_bound_are_dropped_and_reported_when_the_rest_is_written() {
        let queue = LineQueue::new(8, Duration::ZERO);
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
        let queue = LineQueue::new(1 << 20, Duration::ZERO);
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
        let queue = LineQueue::new(1 << 20, Duration::ZERO);
        queue.set_writer(true);
        queue.push(b"never written\n");
        let start = Instant::now();
        queue.flush(Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn lines_are_gathered_until_a_batch_is_full_or_the_queue_is_closed() {
        let queue = LineQueue::new(1 << 20, Duration::from_secs(3600));
        queue.set_writer(true);
        let long = vec![b'x'; BATCH_BYTES_MAX / 2];
        let (sender, batches) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (queue, sender) = (&queue, sender);
            scope.spawn(move || {
                let out = |bytes: &[u8]| sender.send(bytes.len()).map_err(io::Error::other);
                queue.write_to(out, |_| {});
            });
            for line in [&*long, &*long, b"first\n"] {
                queue.push(line);
            }
            // The batch that the second line fills is written at once, and the rest waits for more.
            let first = batches.recv().expect("a batch");
            queue.push(b"second\n");
            queue.close();
            let rest: usize = batches.iter().sum();
            assert_eq!((first, rest), (2 * long.len(), 13));
        });
    }
}
