//! New generations: the supergraph file is watched, and SIGHUP asks for a look at it. What loads
//! becomes the next generation; what does not is refused, logged and counted, and the old one stays.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use notify::{RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::diagnostic::{self, Style};
use crate::loaded::{self, Loaded, SupergraphSource};
use crate::metrics::ReloadResult;
use crate::renewal;
use crate::router::Router;

/// Editors and deployments write a file in several steps; a change is looked at when none has followed
/// for this long.
const SETTLE: Duration = Duration::from_millis(200);

/// A file that never settles is looked at after this time nevertheless.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(5);

/// How often the file is looked at without having been told of a change. Network file systems tell nothing,
/// bind mounts of single files lose sight of it, and neither does anybody tell when a link further up the path
/// is turned to another release.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// What tells that there may be a new supergraph: its file and SIGHUP.
pub(crate) struct Changes {
    source: SupergraphSource,
    changed: mpsc::Receiver<()>,
    /// What the present graph was read from.
    seen: Option<Stamp>,
    /// Watches until it is dropped.
    _watcher: Option<notify::RecommendedWatcher>,
}

impl Changes {
    /// Begins to watch, before the first graph is read. What changes from now on is noticed by
    /// [`Changes::follow`].
    pub(crate) async fn watch(source: SupergraphSource) -> Self {
        // One change waiting is as good as a hundred.
        let (sender, changed) = mpsc::channel::<()>(1);
        let _watcher = source.file().and_then(|file| watcher(file, sender.clone()));
        // Without a file there is nothing to look at, and who closes the terminal of a demo wants it to end.
        if source.file().is_some() {
            hang_up_signals(sender);
        }
        let seen = Stamp::of(&source).await;
        Self { source, changed, seen, _watcher }
    }

    /// Loads what has changed, until shutdown.
    pub(crate) async fn follow(mut self, router: Arc<Router>) {
        let mut shutdown = router.shutdown.clone();
        let mut looks = tokio::time::interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let was_told = tokio::select! {
                change = self.changed.recv() => match change {
                    Some(()) => true,
                    None => return,
                },
                _ = looks.tick() => false,
                _ = shutdown.wait_for(|stop| *stop) => return,
            };
            if was_told {
                settle(&mut self.changed).await;
            }
            // Taken before reading: what changes while it is read is seen the next time.
            let now = Stamp::of(&self.source).await;
            // A file that is missing is about to be replaced; whoever asked for a look is told.
            if !was_told && (now == self.seen || now.is_none()) {
                continue;
            }
            self.seen = now;
            reload(&router, &self.source).await;
        }
    }
}

/// Waits until no change has followed for [`SETTLE`].
async fn settle(changes: &mut mpsc::Receiver<()>) {
    let quiet =
        async { while let Ok(Some(())) = tokio::time::timeout(SETTLE, changes.recv()).await {} };
    let _ = tokio::time::timeout(SETTLE_TIME_MAX, quiet).await;
}

/// Which version of a file it is, as far as one can see without reading it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    /// Device and number of the file behind all links, where the system has them.
    file: (u64, u64),
}

impl Stamp {
    /// None where there is no such file.
    pub(crate) async fn of(source: &SupergraphSource) -> Option<Self> {
        let metadata = tokio::fs::metadata(source.file()?).await.ok()?;
        Some(Self::from_metadata(&metadata))
    }

    /// As [`Stamp::of`], where blocking is fine.
    pub(crate) fn of_file(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Self::from_metadata(&metadata))
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

/// Watches the folder: a file that is replaced by renaming is a new file.
fn watcher(file: &Path, changed: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let name = file.file_name()?.to_owned();
    let folder = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => ".".into(),
    };
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // A folder mounted from a Kubernetes config map changes by swapping a link beside the file, so
        // any change in it counts but reading.
        let relevant = event.is_ok_and(|event| {
            !event.kind.is_access()
                && event.paths.iter().any(|path| {
                    path.file_name() == Some(&name)
                        || path
                            .file_name()
                            .is_some_and(|it| it.as_encoded_bytes().starts_with(b".."))
                })
        });
        if relevant {
            let _ = changed.try_send(());
        }
    });
    let started = watcher.and_then(|mut watcher| {
        watcher.watch(&folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    match started {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!(%error, folder = %folder.display(), "the supergraph file cannot be watched; send SIGHUP to reload it");
            None
        }
    }
}

#[cfg(unix)]
fn hang_up_signals(changed: mpsc::Sender<()>) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut hang_ups) = signal(SignalKind::hangup()) else { return };
    tokio::spawn(async move {
        while hang_ups.recv().await.is_some() {
            if changed
                .try_send(())
                .is_err_and(|error| matches!(error, mpsc::error::TrySendError::Closed(())))
            {
                return;
            }
        }
    });
}

#[cfg(not(unix))]
fn hang_up_signals(_changed: mpsc::Sender<()>) {}

/// Operations that a new graph prepares before it serves: the most used of the one before. An application has
/// some hundreds; what is left is prepared when it comes.
const WARMED_MAX: usize = 256;

/// How long a new graph waits for that.
const WARMING_TIME_MAX: Duration = Duration::from_secs(10);

/// Prepares what `old` was asked most for `new`, while the old graph goes on serving.
async fn warm(new: &Loaded, old: &Loaded) {
    let started = Instant::now();
    let mut prepared = 0_usize;
    for request in old.preparer.most_used(WARMED_MAX) {
        if started.elapsed() >= WARMING_TIME_MAX {
            break;
        }
        let one = Instant::now();
        // What is not valid any more is told to whoever asks for it.
        prepared += usize::from(new.preparer.prepare(&request).await.is_ok());
        // Requests come first: this takes half of one CPU at most.
        tokio::time::sleep(one.elapsed()).await;
    }
    tracing::debug!(prepared, elapsed = ?started.elapsed(), "operations prepared for the new supergraph");
}

/// Loads what the source holds now, and swaps it in.
pub(crate) async fn reload(router: &Arc<Router>, source: &SupergraphSource) {
    let current = router.current();
    let number = current.generation.number + 1;
    let (loading, from) = (Arc::clone(router), source.clone());
    let previous = Arc::clone(&current);
    // Reading a large schema takes a while; the runtime goes on.
    let result = tokio::task::spawn_blocking(move || {
        let text = Arc::new(from.read().map_err(|error| vec![*error])?);
        if loaded::identity(&text.text) == previous.generation.graph_id {
            return Ok(None);
        }
        let (config, providers) = (&loading.config, &loading.providers);
        loaded::load(config, &text, providers, number, Some(&previous)).map(Some)
    })
    .await;
    match result {
        Ok(Ok(None)) => {
            router.metrics.reload(ReloadResult::unchanged);
            tracing::info!(
                generation = current.generation.number,
                "the supergraph has not changed (the configuration is read at the start only)"
            );
        }
        Ok(Ok(Some(loaded))) => {
            warm(&loaded, &current).await;
            renewal::take_over(router, loaded).await;
            router.metrics.reload(ReloadResult::loaded);
        }
        Ok(Err(diagnostics)) => {
            router.metrics.reload(ReloadResult::refused);
            let problems = diagnostic::render(&diagnostics, Style::Plain);
            tracing::error!(
                generation = current.generation.number,
                "the new supergraph was refused, the old one goes on serving:\n{problems}"
            );
        }
        Err(panic) => {
            router.metrics.reload(ReloadResult::refused);
            tracing::error!(%panic, "loading the supergraph failed by a defect; the old one goes on serving");
        }
    }
}
