//! A file of lines that is replaced by a new one when it has reached a size.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file of lines. The former files are `PATH.1` (the newest), `PATH.2` and so on.
///
/// If another program renames or removes the file, the next lines go into a new one.
#[derive(Debug)]
pub(crate) struct RotatingFile {
    path: PathBuf,
    bytes_max: u64,
    kept: u32,
    /// `None` after a failure.
    file: Option<File>,
    bytes: u64,
    /// The size at which the file is replaced next, if the last attempt failed and the log has said so. An attempt may
    /// have moved former files before it failed, so one for each batch of lines would remove all of them.
    retry_at: Option<u64>,
}

impl RotatingFile {
    /// Opens a file, and continues it if it exists.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn open(path: PathBuf, bytes_max: u64, kept: u32) -> io::Result<Self> {
        let mut file = Self { path, bytes_max, kept, file: None, bytes: 0, retry_at: None };
        file.reopen()?;
        Ok(file)
    }

    /// Writes whole lines. A file that cannot be replaced grows beyond its size: lines matter more.
    ///
    /// # Errors
    /// Those of the system. The next call opens the file again.
    pub(crate) fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        if !self.is_in_place() {
            self.reopen()?;
            // A new file in the place of the one that could not be replaced begins without a failure.
            self.retry_at = self.retry_at.filter(|_| self.bytes >= self.bytes_max);
        }
        let size_max = self.retry_at.unwrap_or(self.bytes_max);
        if self.bytes > 0 && self.bytes.saturating_add(lines.len() as u64) > size_max {
            self.rotate()?;
        }
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        let written = file.write_all(lines);
        if written.is_err() {
            self.file = None;
        }
        self.bytes += lines.len() as u64;
        written
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.file = None;
        let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        self.bytes = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// True if the open file is still the one at the path.
    fn is_in_place(&self) -> bool {
        let Some(file) = &self.file else { return false };
        match (file.metadata(), fs::metadata(&self.path)) {
            (Ok(open), Ok(at_path)) => is_same(&open, &at_path),
            _ => false,
        }
    }

    /// Replaces the file by a new one, or continues it if that fails. The log has the first of several failures.
    fn rotate(&mut self) -> io::Result<()> {
        self.file = None;
        match self.move_files() {
            Ok(()) => self.retry_at = None,
            Err(error) => {
                let retry_at = self.bytes.saturating_add(self.bytes_max);
                if self.retry_at.replace(retry_at).is_none() {
                    tracing::warn!(
                        file = %self.path.display(),
                        %error,
                        "a file of lines has reached its size and cannot be replaced: it is continued"
                    );
                }
            }
        }
        self.reopen()
    }

    /// Makes room for a new file: removes the present one, or moves it and the former ones up by a number.
    fn move_files(&self) -> io::Result<()> {
        // Another program may have removed or moved a file.
        let unless_missing = |result: io::Result<()>| match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        };
        if self.kept == 0 {
            return unless_missing(fs::remove_file(&self.path));
        }
        for number in (0..self.kept).rev() {
            let (from, to) = (numbered(&self.path, number), numbered(&self.path, number + 1));
            unless_missing(fs::rename(from, to))?;
        }
        Ok(())
    }
}

#[cfg(unix)]
fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;

    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

/// Returns the path of a former file; number 0 is the present one.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name: OsString = path.into();
    if number > 0 {
        name.push(format!(".{number}"));
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is removed at the end of its test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("starling-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        fn read(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.0.join(name)).ok()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_full_file_is_replaced_and_the_oldest_is_removed() {
        let folder = Folder::new("rotation");
        let mut file = RotatingFile::open(folder.0.join("log"), 8, 2).expect("a file");
        for line in ["first\n", "second\n", "a\n", "third\n", "fourth\n"] {
            file.write_lines(line.as_bytes()).expect("a write");
        }
        let all = ["log", "log.1", "log.2", "log.3"].map(|name| folder.read(name));
        let expected = [Some("fourth\n"), Some("a\nthird\n"), Some("second\n"), None];
        assert_eq!(all, expected.map(|it| it.map(str::to_owned)));
    }

    #[test]
    fn a_file_is_continued_after_a_restart_and_begun_again_after_it_was_moved() {
        let folder = Folder::new("moved");
        let path = folder.0.join("log");
        fs::write(&path, "before\n").expect("a write");
        let mut file = RotatingFile::open(path.clone(), 1 << 20, 5).expect("a file");
        file.write_lines(b"one\n").expect("a write");
        fs::rename(&path, folder.0.join("moved")).expect("a move");
        file.write_lines(b"two\n").expect("a write");
        assert_eq!(folder.read("moved").as_deref(), Some("before\none\n"));
        assert_eq!(folder.read("log").as_deref(), Some("two\n"));
    }

    #[test]
    fn a_full_file_that_was_removed_is_begun_again() {
        for kept in [0, 1] {
            let folder = Folder::new(&format!("removed-{kept}"));
            let path = folder.0.join("log");
            let mut file = RotatingFile::open(path.clone(), 8, kept).expect("a file");
            file.write_lines(b"1234567\n").expect("a write");
            fs::remove_file(&path).expect("a removal");
            for line in [b"second\n", b"third!\n"] {
                file.write_lines(line).expect("a write");
            }
            assert_eq!(folder.read("log").as_deref(), Some("third!\n"), "{kept}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_replaced_is_continued_until_it_can_be() {
        let folder = Folder::new("irreplaceable");
        let mut file = RotatingFile::open(folder.0.join("log"), 8, 1).expect("a file");
        // A folder that is not empty cannot be replaced by a file.
        let obstacle = folder.0.join("log.1");
        fs::create_dir_all(obstacle.join("full")).expect("a folder");
        file.write_lines(b"first\n").expect("a write");
        file.write_lines(b"again\n").expect("a write");
        assert_eq!(folder.read("log").as_deref(), Some("first\nagain\n"));
        assert_eq!(file.retry_at, Some(14), "6 bytes, and 8 more");
        fs::remove_dir_all(&obstacle).expect("a removal");
        file.write_lines(b"a\n").expect("a write");
        assert_eq!(folder.read("log").as_deref(), Some("first\nagain\na\n"), "not yet");
        file.write_lines(b"last\n").expect("a write");
        assert_eq!(folder.read("log").as_deref(), Some("last\n"));
        assert_eq!(folder.read("log.1").as_deref(), Some("first\nagain\na\n"));
        assert_eq!(file.retry_at, None);
    }
}
