//! A program that a test started, and its end.

use crate::waiting::{PATIENCE, POLL_INTERVAL};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::Instant;

/// How much of what a program says is kept for messages.
const SAID_BYTES_MAX: usize = 1024 * 1024;

/// What a program has said on one channel, filled from a thread.
type Said = Arc<Mutex<Vec<u8>>>;

/// A running program; killed when dropped.
pub(crate) struct Running {
    child: Child,
    out: Said,
    err: Said,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts `command` and keeps what it says.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::start_with_stderr(command, Stdio::piped())
    }

    /// Starts `command` with its standard error there. What it says there is kept only if that is a pipe made for it.
    pub(crate) fn start_with_stderr(command: &mut Command, stderr: Stdio) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let (out, err) = (Said::default(), Said::default());
        let mut readers = Vec::new();
        if let Some(output) = child.stdout.take() {
            readers.push(keep(output, Arc::clone(&out)));
        }
        if let Some(output) = child.stderr.take() {
            readers.push(keep(output, Arc::clone(&err)));
        }
        Self { child, out, err, readers }
    }

    /// The latest of what the program has said, on both channels.
    pub(crate) fn said(&self) -> String {
        let (out, err) = self.said_apart();
        out + &err
    }

    /// The latest of what the program has said on standard output, and on standard error.
    pub(crate) fn said_apart(&self) -> (String, String) {
        let text = |said: &Said| {
            let said = said.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8_lossy(&said).into_owned()
        };
        (text(&self.out), text(&self.err))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The first answer of `look`.
    ///
    /// # Panics
    /// With what the program said, if it ends first or [`PATIENCE`] does.
    pub(crate) fn wait_for<T>(&mut self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = look() {
                return answer;
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the program ended ({status}) before {what}:\n{}", self.said());
            }
            assert!(Instant::now() < deadline, "waited for {what} in vain:\n{}", self.said());
            sleep(POLL_INTERVAL);
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The exit code, once the program has ended by itself; `None` after a signal.
    ///
    /// # Panics
    /// If it has not ended within [`PATIENCE`].
    pub(crate) fn wait_for_end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                // Its last words are still on their way.
                for reader in self.readers.drain(..) {
                    let _ = reader.join();
                }
                return status.code();
            }
            assert!(Instant::now() < deadline, "the program does not end:\n{}", self.said());
            sleep(POLL_INTERVAL);
        }
    }

    pub(crate) fn kill(&mut self) {
        // Both fail only for a program that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads `output` to its end on a thread of its own, so that the program never waits for a reader.
fn keep(mut output: impl Read + Send + 'static, said: Said) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = output.read(&mut buffer) {
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            said.extend_from_slice(&buffer[..length]);
            let excess = said.len().saturating_sub(SAID_BYTES_MAX);
            said.drain(..excess);
        }
    })
}
