//! Files that a command writes: a reader sees the old content or the new one, never a part.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::path::Path;

/// Writes a file that does not exist yet, with these permissions or else the usual ones.
///
/// # Errors
/// The file exists, or cannot be written.
pub(crate) fn create(path: &Path, text: &str, permissions: Option<Permissions>) -> io::Result<()> {
    open_new(path, permissions)?.write_all(text.as_bytes())
}

/// Replaces the content of a file as a whole: a file beside it is written and renamed. Without `permissions` those of
/// the file stay. A symbolic link stays one, and a device or a pipe is written to.
///
/// # Errors
/// The file cannot be written; it keeps its content.
pub(crate) fn replace(path: &Path, text: &str, permissions: Option<Permissions>) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let existing = fs::metadata(&target).ok();
    if existing.as_ref().is_some_and(|it| !it.is_file()) {
        return fs::write(&target, text);
    }
    let name = target.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let temporary =
        target.with_file_name(format!(".{}.{}.new", name.to_string_lossy(), std::process::id()));
    let permissions = permissions.or_else(|| existing.map(|it| it.permissions()));
    let written =
        write_synced(&temporary, text, permissions).and_then(|()| fs::rename(&temporary, &target));
    if written.is_err() {
        // The first error says more than that of cleaning up.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Writes a new file and waits until it is on the disk, so that the rename cannot survive a crash without the content.
fn write_synced(path: &Path, text: &str, permissions: Option<Permissions>) -> io::Result<()> {
    // A link of that name, which anybody could have put into a folder such as `/tmp`, is removed and not followed.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = open_new(path, permissions)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Opens a file that does not exist yet. Before it has its permissions, only its owner can open it: its text may contain
/// secrets.
fn open_new(path: &Path, permissions: Option<Permissions>) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if permissions.is_some() {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    let file = options.open(path)?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("supergraph.graphql");
        for text in ["first", "second, which is longer", ""] {
            replace(&path, text, None).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace(folder.path(), "", None).is_err());
        assert!(replace(&folder.path().join("none/file"), "", None).is_err());
        assert!(replace(Path::new("/"), "", None).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_stay() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        replace(&link, "new", None).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);

        replace(&link, "secret", Some(Permissions::from_mode(0o600))).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let created = folder.path().join("created");
        create(&created, "text", Some(Permissions::from_mode(0o604))).unwrap();
        assert_eq!(fs::metadata(&created).unwrap().permissions().mode() & 0o777, 0o604);
        assert!(create(&created, "text", None).is_err());

        let other = folder.path().join("other");
        fs::write(&other, "keep").unwrap();
        symlink(&other, folder.path().join(format!(".file.{}.new", std::process::id()))).unwrap();
        replace(&file, "newer", None).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "newer");
        assert_eq!(fs::read_to_string(&other).unwrap(), "keep");
    }
}
