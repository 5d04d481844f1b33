//! Watching of the files that a graph is read from: notifications of the system, and stamps for changes that it does
//! not notify of.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsString;
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

/// The watched files. The default has none and gets no notifications.
#[derive(Default)]
pub(crate) struct FileWatch {
    /// The stamp of each file, taken before it was last read.
    stamps: BTreeMap<PathBuf, Option<Stamp>>,
    /// The names that the notification thread compares with.
    names: Arc<Mutex<HashSet<OsString>>>,
    folders: BTreeSet<PathBuf>,
    /// `None` without notifications of the system.
    watcher: Option<RecommendedWatcher>,
}

impl FileWatch {
    /// Creates a watch without files. It calls `notify` for each change of one of its files.
    pub(crate) fn new(notify: impl Fn() + Send + 'static) -> Self {
        let names = Arc::<Mutex<HashSet<OsString>>>::default();
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
        self.stamps.clear();
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.add(file).await;
    }

    /// Adds a file, and stamps it. Must be called before the file is read.
    pub(crate) async fn add(&mut self, file: &Path) {
        if self.stamps.contains_key(file) {
            return;
        }
        if let Some(name) = file.file_name() {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            names.insert(name.to_owned());
        }
        self.watch_folder(file);
        self.stamps.insert(file.to_owned(), Stamp::read(file).await);
    }

    /// Watches the folder, because a file that is replaced by renaming is a new file.
    fn watch_folder(&mut self, file: &Path) {
        let folder = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let Some(watcher) = &mut self.watcher else { return };
        if self.folders.contains(folder) {
            return;
        }
        match watcher.watch(folder, RecursiveMode::NonRecursive) {
            Ok(()) => drop(self.folders.insert(folder.to_owned())),
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
fn is_relevant(event: &notify::Event, names: &Mutex<HashSet<OsString>>) -> bool {
    if event.kind.is_access() {
        return false;
    }
    let names = names.lock().unwrap_or_else(PoisonError::into_inner);
    let mut changed = event.paths.iter().filter_map(|path| path.file_name());
    changed.any(|name| names.contains(name) || name.as_encoded_bytes().starts_with(b".."))
}
