//! Watching of the files that a graph is read from: notifications of the system, and stamps for changes that it does
//! not notify of.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

/// The version of a file, as far as its metadata shows.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    /// The device and the number of the file behind all links, if the system has them.
    file: (u64, u64),
}

impl Stamp {
    /// Returns the stamp of a file; `None` if there is none. Blocks.
    pub(crate) fn of_file(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Self::from_metadata(&metadata))
    }

    /// The same as [`Stamp::of_file`], without blocking.
    async fn read(path: &Path) -> Option<Self> {
        Some(Self::from_metadata(&tokio::fs::metadata(path).await.ok()?))
    }

    fn from_metadata(metadata: &std::fs::Metadata) -> Self {
        #[cfg(unix)]
        let file = {
            use std::os::unix::fs::MetadataExt;
            (metadata.dev(), metadata.ino())
        };
        #[cfg(not(unix))]
        let file = (0, 0);
        Self { modified: metadata.modified().ok(), length: metadata.len(), file }
    }
}

/// The difference between the files and their last stamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileDifference {
    /// No file has changed.
    None,
    /// A file is missing, which may be about to be replaced.
    Missing,
    /// A file has changed, and none is missing.
    Changed,
}

/// The names of the watched files, which the notification thread compares with.
#[derive(Default)]
struct WatchedNames {
    files: HashSet<OsString>,
    /// Accepts the names of new files if a folder is watched.
    in_folder: Option<fn(&OsStr) -> bool>,
}

impl WatchedNames {
    fn contains(&self, name: &OsStr) -> bool {
        self.files.contains(name) || self.in_folder.is_some_and(|contains| contains(name))
    }
}

/// The watched files. The default has none and gets no notifications.
#[derive(Default)]
pub(crate) struct FileWatch {
    /// The stamp of each file, taken before it was last read, and of the folder that is watched as a whole.
    stamps: BTreeMap<PathBuf, Option<Stamp>>,
    names: Arc<Mutex<WatchedNames>>,
    /// The folders that the system watches, each by the device and the number of the folder that it was then.
    folders: BTreeMap<PathBuf, (u64, u64)>,
    /// `None` without notifications of the system.
    watcher: Option<RecommendedWatcher>,
}

impl FileWatch {
    /// Creates a watch without files. It calls `notify` for each change of one of its files.
    pub(crate) fn new(notify: impl Fn() + Send + 'static) -> Self {
        let names = Arc::<Mutex<WatchedNames>>::default();
        let watched = Arc::clone(&names);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| is_relevant(&event, &watched)) {
                notify();
            }
        });
        let watcher = watcher.map_err(|error| {
            tracing::warn!(%error, "files of the graph cannot be watched; changes are noticed later, or at SIGHUP");
        });
        Self { names, watcher: watcher.ok(), ..Self::default() }
    }

    /// Replaces the watched files by this one, and stamps it. Must be called before the file is read, so that a change
    /// while it is read is noticed.
    pub(crate) async fn restart(&mut self, file: &Path) {
        self.clear();
        self.add(file).await;
    }

    /// Replaces the watched files by the files of a folder with names that `has_name` accepts, and stamps the folder.
    /// The stamp changes when a file is added or removed. The caller does this before it reads the folder. Then it adds
    /// each file, so that changes without a notification of the system are noticed, too.
    pub(crate) async fn restart_folder(&mut self, folder: &Path, has_name: fn(&OsStr) -> bool) {
        self.clear();
        self.names.lock().unwrap_or_else(PoisonError::into_inner).in_folder = Some(has_name);
        self.watch_folder(folder);
        self.stamps.insert(folder.to_owned(), Stamp::read(folder).await);
    }

    fn clear(&mut self) {
        self.stamps.clear();
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = WatchedNames::default();
    }

    /// Adds a file, and stamps it. Must be called before the file is read.
    pub(crate) async fn add(&mut self, file: &Path) {
        if self.stamps.contains_key(file) {
            return;
        }
        if let Some(name) = file.file_name() {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            names.files.insert(name.to_owned());
        }
        // The folder, because a file that is replaced by renaming is a new file.
        self.watch_folder(match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        });
        self.stamps.insert(file.to_owned(), Stamp::read(file).await);
    }

    fn watch_folder(&mut self, folder: &Path) {
        let Some(watcher) = &mut self.watcher else { return };
        let found = Stamp::of_file(folder).map(|it| it.file);
        match self.folders.get(folder) {
            Some(watched) if found == Some(*watched) => return,
            Some(_) => {
                // The folder was replaced or removed, and with it what the system watches. It may know that already.
                let _ = watcher.unwatch(folder);
                self.folders.remove(folder);
            }
            None => {}
        }
        // A missing folder is watched when it is there again; until then the stamps show it.
        let Some(found) = found else { return };
        match watcher.watch(folder, RecursiveMode::NonRecursive) {
            Ok(()) => drop(self.folders.insert(folder.to_owned(), found)),
            Err(error) => {
                tracing::warn!(
                    %error,
                    folder = %folder.display(),
                    "files of the graph cannot be watched; changes are noticed later, or at SIGHUP"
                );
            }
        }
    }

    /// Compares the files with their stamps.
    pub(crate) async fn compare(&self) -> FileDifference {
        let mut difference = FileDifference::None;
        for (file, seen) in &self.stamps {
            match Stamp::read(file).await {
                now if now == *seen => {}
                Some(_) => difference = FileDifference::Changed,
                None => return FileDifference::Missing,
            }
        }
        difference
    }
}

/// True if an event concerns a file with one of these names.
///
/// A folder mounted from a Kubernetes config map changes by swapping a link next to the file, whose name begins with
/// two points. Reading is not a change.
fn is_relevant(event: &notify::Event, names: &Mutex<WatchedNames>) -> bool {
    if event.kind.is_access() {
        return false;
    }
    let names = names.lock().unwrap_or_else(PoisonError::into_inner);
    let mut changed = event.paths.iter().filter_map(|path| path.file_name());
    changed.any(|name| names.contains(name) || name.as_encoded_bytes().starts_with(b".."))
}

#[cfg(test)]
mod tests {
    use notify::{Event, EventKind};

    use super::*;

    fn is_graphql(name: &OsStr) -> bool {
        Path::new(name).extension().is_some_and(|it| it == "graphql")
    }

    /// True if a change of the file with this name is noticed.
    fn is_noticed(files: &FileWatch, name: &str) -> bool {
        let event = Event::new(EventKind::Any).add_path(Path::new("graphs").join(name));
        is_relevant(&event, &files.names)
    }

    #[tokio::test]
    async fn new_files_of_a_watched_folder_are_noticed_by_their_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = FileWatch::default();
        files.restart_folder(folder.path(), is_graphql).await;
        assert!(is_noticed(&files, "new.graphql"));
        assert!(is_noticed(&files, "..data"));
        assert!(!is_noticed(&files, "notes.md"));
        // A folder is no longer watched when a file takes its place.
        files.restart(&folder.path().join("supergraph.yaml")).await;
        assert!(is_noticed(&files, "supergraph.yaml"));
        assert!(!is_noticed(&files, "new.graphql"));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_folder_that_was_replaced_is_watched_again() {
        use std::fs;
        use std::time::Duration;
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("schemas");
        fs::create_dir(&folder).unwrap();
        let (sender, noticed) = std::sync::mpsc::channel();
        let mut files = FileWatch::new(move || {
            // The test may have ended.
            let _ = sender.send(());
        });
        files.restart_folder(&folder, is_graphql).await;
        fs::rename(&folder, outer.path().join("old")).unwrap();
        fs::create_dir(&folder).unwrap();
        files.restart_folder(&folder, is_graphql).await;
        while noticed.try_recv().is_ok() {}
        fs::write(folder.join("new.graphql"), "").unwrap();
        // More than a notification takes.
        assert_eq!(noticed.recv_timeout(Duration::from_secs(20)), Ok(()));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn without_notifications_added_and_removed_files_change_their_folder() {
        use std::fs;
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("a.graphql"), folder.path().join("b.graphql"));
        fs::write(&first, "").unwrap();
        let mut files = FileWatch::default();
        let stamp = async |files: &mut FileWatch| {
            // Times of folders may be too coarse for changes that follow at once.
            let opened = fs::File::open(folder.path()).unwrap();
            opened.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            files.restart_folder(folder.path(), is_graphql).await;
            files.add(&first).await;
        };
        stamp(&mut files).await;
        assert_eq!(files.compare().await, FileDifference::None);
        fs::write(&second, "").unwrap();
        assert_eq!(files.compare().await, FileDifference::Changed);
        stamp(&mut files).await;
        fs::remove_file(&second).unwrap();
        assert_eq!(files.compare().await, FileDifference::Changed);
        stamp(&mut files).await;
        fs::remove_file(&first).unwrap();
        assert_eq!(files.compare().await, FileDifference::Missing);
    }
}
