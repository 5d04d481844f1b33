//! A file with a line for each correct response, for programs that compare responses with what they know:
//! `SENT ENDED BODY`, the times in microseconds since 1970, line breaks in the body replaced by spaces.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

/// The open file. A failure to write ends the run, at its end.
pub(super) struct ResponseLog {
    file: BufWriter<File>,
    failure: Option<io::Error>,
    line: Vec<u8>,
}

impl ResponseLog {
    /// Creates the file, or empties it.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = BufWriter::new(File::create(path)?);
        Ok(Self { file, failure: None, line: Vec::new() })
    }

    /// Adds a response.
    pub(super) fn add(&mut self, sent_us: u64, ended_us: u64, body: &[u8]) {
        self.line.clear();
        self.line.extend_from_slice(format!("{sent_us} {ended_us} ").as_bytes());
        let bytes = body.iter().map(|byte| match byte {
            b'\n' | b'\r' => b' ',
            other => *other,
        });
        self.line.extend(bytes);
        self.line.push(b'\n');
        if self.failure.is_none() {
            self.failure = self.file.write_all(&self.line).err();
        }
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// The first failure to write.
    pub(super) fn finish(mut self) -> io::Result<()> {
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => self.file.flush(),
        }
    }
}
