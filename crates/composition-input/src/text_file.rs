//! Reading of text files with a bound.

use std::io::{ErrorKind, Read};
use std::path::Path;

/// The reason why a file cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FileError {
    /// There is no such file.
    #[error("there is no such file")]
    Missing,
    /// It is a folder.
    #[error("it is a folder")]
    Folder,
    /// It is a pipe, a socket or a device.
    #[error("it is not a regular file")]
    Special,
    /// The user may not read it.
    #[error("permission denied")]
    Forbidden,
    /// The file is larger than allowed.
    #[error("it is larger than {} MiB", .0 >> 20)]
    TooLarge(usize),
    /// The text is not UTF-8.
    #[error("it is not UTF-8 text: see line {0}")]
    NotText(usize),
    /// Another failure of the system.
    #[error("{0}")]
    Failed(String),
}

impl FileError {
    /// Returns advice. `origin` is the option or key that names the file.
    pub(crate) fn advice(&self, origin: &str) -> String {
        match self {
            Self::Missing if origin.starts_with('-') => {
                format!("check the path given by `{origin}`")
            }
            Self::Missing => {
                format!("check the path in `{origin}`; it is relative to the folder of this file")
            }
            Self::Folder | Self::Special => format!("write the path of a file in `{origin}`"),
            Self::Forbidden => "let the user that runs this command read it".to_owned(),
            Self::TooLarge(_) => format!("check that `{origin}` names the right file"),
            Self::NotText(_) => "save it as UTF-8".to_owned(),
            Self::Failed(_) => format!("check the path given by `{origin}`"),
        }
    }

    /// Returns advice about a schema that was found in a folder.
    pub(crate) fn folder_advice(&self) -> String {
        let advice = match self {
            Self::Missing => "if it is a link, correct where it leads, or remove it",
            Self::Folder | Self::Special | Self::Failed(_) => {
                "remove it from the folder, or write the schema of a subgraph in its place"
            }
            Self::TooLarge(_) => "check that it is the schema of a subgraph, or split the subgraph",
            Self::Forbidden | Self::NotText(_) => return self.advice(""),
        };
        advice.to_owned()
    }
}

impl From<std::io::Error> for FileError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::Missing,
            ErrorKind::IsADirectory => Self::Folder,
            ErrorKind::PermissionDenied => Self::Forbidden,
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// Reads a regular file as [`read`] does. Others may never end, or block the thread until another process opens them.
pub(crate) fn read_regular(path: &Path, bytes_max: usize) -> Result<String, FileError> {
    let kind = std::fs::metadata(path)?.file_type();
    // The error of reading a folder is as good.
    if !kind.is_file() && !kind.is_dir() {
        return Err(FileError::Special);
    }
    read(path, bytes_max)
}

/// Reads a file of at most `bytes_max` bytes, also from a pipe. A byte order mark is removed.
pub(crate) fn read(path: &Path, bytes_max: usize) -> Result<String, FileError> {
    let mut bytes = Vec::new();
    // One byte more than allowed, to detect that the file is larger.
    let limit = bytes_max as u64 + 1;
    std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(FileError::TooLarge(bytes_max));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        FileError::NotText(valid.iter().filter(|&&byte| byte == b'\n').count() + 1)
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_read_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            read(&path, 8)
        };
        assert_eq!(file("mark", "\u{feff}type".as_bytes()), Ok("type".to_owned()));
        assert_eq!(file("large", b"123456789"), Err(FileError::TooLarge(8)));
        assert_eq!(file("latin1", b"a\nb\xe4"), Err(FileError::NotText(2)));
        assert_eq!(read(folder.path(), 8), Err(FileError::Folder));
        assert_eq!(read_regular(folder.path(), 8), Err(FileError::Folder));
        assert_eq!(read_regular(Path::new("/dev/null"), 8), Err(FileError::Special));
        assert_eq!(read(&folder.path().join("none"), 8), Err(FileError::Missing));
        assert_eq!(
            read(Path::new("a\0b"), 8).map_err(|it| matches!(it, FileError::Failed(_))),
            Err(true)
        );
    }
}
