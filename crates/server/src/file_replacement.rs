//! Replacement of a file as a whole: a reader sees the old content or the new one, never a part.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::path::Path;

/// The permissions of a file that is replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FilePermissions {
    /// Those of the file before; a new file has the default of the process.
    Kept,
    /// Only the user of this process can read and write the file.
    Private,
    /// These. Before it has them, only the user of this process can open the file: its text may contain secrets.
    Given(Permissions),
}

/// Replaces the content of a file by these parts, one after the other: a file beside it is written and renamed. A
/// symbolic link stays one, and a device or a pipe is written to. Blocks.
///
/// # Errors
/// The file cannot be written; it keeps its content.
pub fn replace_file(path: &Path, parts: &[&str], permissions: FilePermissions) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let existing = fs::metadata(&target).ok();
    if existing.as_ref().is_some_and(|it| !it.is_file()) {
        return fs::write(&target, parts.concat());
    }
    let name = target.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    // Several routers may have the same file. Those in containers often have the same process id.
    let random = fastrand::u64(..);
    let temporary = target.with_file_name(format!(".{}.{random:016x}.new", name.to_string_lossy()));
    let wanted = match &permissions {
        FilePermissions::Kept => existing.map(|it| it.permissions()),
        FilePermissions::Private => None,
        FilePermissions::Given(given) => Some(given.clone()),
    };
    let write = |mut file: File| {
        // Before the text, which may contain URLs that not everybody may read.
        if let Some(wanted) = wanted {
            file.set_permissions(wanted)?;
        }
        for part in parts {
            file.write_all(part.as_bytes())?;
        }
        // The rename must not survive a crash without the content.
        file.sync_all()?;
        fs::rename(&temporary, &target)
    };
    // A file or a link that another user has put there is not opened.
    let written = write(create_file(&temporary, permissions == FilePermissions::Kept)?);
    if written.is_err() {
        // The first error says more than that of cleaning up.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Writes a file that does not exist yet, with these permissions or else the default ones of the process. Blocks.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn create_file_with(
    path: &Path,
    text: &str,
    permissions: Option<Permissions>,
) -> io::Result<()> {
    let mut file = create_file(path, permissions.is_none())?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.write_all(text.as_bytes())
}

/// Creates a file that does not exist yet, for everybody that the process lets read new files or only for its user.
fn create_file(path: &Path, is_public: bool) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        if !is_public {
            options.mode(0o600);
        }
    }
    #[cfg(not(unix))]
    let _ = is_public;
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replace(path: &Path, text: &str) -> io::Result<()> {
        replace_file(path, &[text], FilePermissions::Kept)
    }

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("supergraph.graphql");
        for parts in [["first", ""], ["second, ", "which is longer"], ["", ""]] {
            replace_file(&path, &parts, FilePermissions::Kept).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), parts.concat());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace(folder.path(), "").is_err());
        assert!(replace(&folder.path().join("none/file"), "").is_err());
        assert!(replace(Path::new("/"), "").is_err());
    }

    #[test]
    fn writers_of_the_same_file_do_not_disturb_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("supergraph.graphql");
        let texts: Vec<_> = (0..4).map(|number| number.to_string().repeat(10_000)).collect();
        std::thread::scope(|scope| {
            for text in &texts {
                let path = &path;
                scope.spawn(move || (0..20).for_each(|_| replace(path, text).unwrap()));
            }
        });
        assert!(texts.contains(&fs::read_to_string(&path).unwrap()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_stay() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        replace(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(mode(), 0o640);
        replace_file(&file, &["secret"], FilePermissions::Private).unwrap();
        assert_eq!(mode(), 0o600);
        let given = || Permissions::from_mode(0o604);
        replace_file(&link, &["given"], FilePermissions::Given(given())).unwrap();
        assert_eq!(mode(), 0o604);

        let created = folder.path().join("created");
        create_file_with(&created, "text", Some(given())).unwrap();
        assert_eq!(
            fs::metadata(&created).unwrap().permissions(),
            fs::metadata(&file).unwrap().permissions()
        );
        assert!(create_file_with(&created, "text", None).is_err());
    }
}
