//! A child process of a test: its output and its end.

use crate::waiting::{POLL_INTERVAL, WAIT_TIMEOUT};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::Instant;

/// The maximum number of bytes kept of a program's output.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// The output of a program on one channel, collected by a thread.
type SharedOutput = Arc<Mutex<Vec<u8>>>;

/// A running program, killed on drop.
pub struct ChildProcess {
    child: Child,
    out: SharedOutput,
    err: SharedOutput,
    readers: Vec<JoinHandle<()>>,
}

impl ChildProcess {
    /// Starts `command` and collects its output.
    ///
    /// # Panics
    /// The program cannot be started.
    pub fn start(command: &mut Command) -> Self {
        Self::start_with_stderr(command, Stdio::piped())
    }

    /// Starts `command` with the given standard error. Its content is collected only if it is a new pipe.
    ///
    /// # Panics
    /// The program cannot be started.
    pub fn start_with_stderr(command: &mut Command, stderr: Stdio) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let (out, err) = (SharedOutput::default(), SharedOutput::default());
        let mut readers = Vec::new();
        if let Some(output) = child.stdout.take() {
            readers.push(collect_output(output, Arc::clone(&out)));
        }
        if let Some(output) = child.stderr.take() {
            readers.push(collect_output(output, Arc::clone(&err)));
        }
        Self { child, out, err, readers }
    }

    /// Returns the latest output on both channels.
    pub fn output(&self) -> String {
        let (out, err) = self.separate_output();
        out + &err
    }

    /// Returns the latest output on standard output and on standard error.
    pub fn separate_output(&self) -> (String, String) {
        let text = |output: &SharedOutput| {
            let output = output.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8_lossy(&output).into_owned()
        };
        (text(&self.out), text(&self.err))
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Polls `probe` until it returns a value.
    ///
    /// # Panics
    /// The program ends first, or no value appears within half a minute; the message contains the output.
    pub fn wait_for<T>(&mut self, condition: &str, mut probe: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            if let Some(value) = probe() {
                return value;
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the program ended ({status}) before {condition}:\n{}", self.output());
            }
            assert!(
                Instant::now() < deadline,
                "timed out waiting for {condition}:\n{}",
                self.output()
            );
            sleep(POLL_INTERVAL);
        }
    }

    /// True if the program has ended.
    pub fn has_exited(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until the program ends by itself and returns its exit code; `None` after a signal.
    ///
    /// # Panics
    /// It has not ended within half a minute.
    pub fn wait_for_exit(&mut self) -> Option<i32> {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                // The last output may not have been read yet.
                for reader in self.readers.drain(..) {
                    let _ = reader.join();
                }
                return status.code();
            }
            assert!(Instant::now() < deadline, "the program does not end:\n{}", self.output());
            sleep(POLL_INTERVAL);
        }
    }

    /// Sends a signal by its name, such as `TERM`.
    ///
    /// # Panics
    /// The program `kill` is missing or fails.
    pub fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let status = kill.args(["-s", name, &self.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send the signal {name}");
    }

    /// Kills the program and waits for its end.
    pub fn kill(&mut self) {
        // Both calls fail only if the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads `output` to its end on a thread of its own, so that the program never blocks on a full pipe.
fn collect_output(mut pipe: impl Read + Send + 'static, output: SharedOutput) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = pipe.read(&mut buffer) {
            let mut collected = output.lock().unwrap_or_else(PoisonError::into_inner);
            collected.extend_from_slice(&buffer[..length]);
            let excess = collected.len().saturating_sub(OUTPUT_BYTES_MAX);
            collected.drain(..excess);
        }
    })
}
