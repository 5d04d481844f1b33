//! Reloads of the supergraph: the file is watched, and SIGHUP makes the router check it. A new graph that loads becomes
//! the next generation; one that does not is refused, logged and counted, and the old one stays.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use config::diagnostic::{self, Style};
use hub::{GroupId, LiveOperation, OperationUpdate};
use notify::{RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::generation::{self, ServingGraph, SupergraphSource};
use crate::graph_load_metrics::ReloadResult;
use crate::router::Router;
use crate::subscription_migration;

/// The quiet time after the last change before the file is read, because editors and deployments write a file in
/// several steps.
const SETTLE: Duration = Duration::from_millis(200);

/// The maximum delay for a file that keeps changing.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(5);

/// The interval at which the file is checked without a notification. There are no notifications on network file
/// systems, for bind mounts of single files, and when a link further up the path is changed to another release.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The sources of reloads: the file of the supergraph and SIGHUP.
pub(crate) struct Changes {
    source: SupergraphSource,
    changed: mpsc::Receiver<()>,
    /// The stamp of the file that the current graph was read from.
    seen: Option<Stamp>,
    /// Watches until it is dropped.
    _watcher: Option<notify::RecommendedWatcher>,
}

impl Changes {
    /// Starts to watch, before the first graph is read. [`Changes::follow`] notices all later changes.
    pub(crate) async fn watch(source: SupergraphSource) -> Self {
        // One waiting notification is enough for any number of changes.
        let (sender, changed) = mpsc::channel::<()>(1);
        let _watcher = source.file().and_then(|file| watcher(file, sender.clone()));
        // Without a file there is nothing to reload, and closing the terminal of a demo must end it.
        if source.file().is_some() {
            hang_up_signals(sender);
        }
        let seen = Stamp::of(&source).await;
        Self { source, changed, seen, _watcher }
    }

    /// Loads changed supergraphs, until shutdown.
    pub(crate) async fn follow(mut self, router: Arc<Router>) {
        let mut shutdown = router.shutdown.clone();
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_notified = tokio::select! {
                change = self.changed.recv() => match change {
                    Some(()) => true,
                    None => return,
                },
                _ = ticks.tick() => false,
                _ = shutdown.wait_for(|stop| *stop) => return,
            };
            if is_notified {
                settle(&mut self.changed).await;
            }
            // The stamp is taken before reading, so that a change during reading is noticed the next time.
            let now = Stamp::of(&self.source).await;
            // A missing file is about to be replaced. After SIGHUP it is an error that is reported.
            if !is_notified && (now == self.seen || now.is_none()) {
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

/// The version of a file, as far as its metadata shows.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    /// The device and the number of the file behind all links, if the system has them.
    file: (u64, u64),
}

impl Stamp {
    /// Returns the stamp of the source; `None` if there is no such file.
    pub(crate) async fn of(source: &SupergraphSource) -> Option<Self> {
        let metadata = tokio::fs::metadata(source.file()?).await.ok()?;
        Some(Self::from_metadata(&metadata))
    }

    /// The same as [`Stamp::of`], but blocking.
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

/// Watches the folder, because a file that is replaced by renaming is a new file.
fn watcher(file: &Path, changed: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let name = file.file_name()?.to_owned();
    let folder = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => ".".into(),
    };
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // A folder mounted from a Kubernetes config map changes by swapping a link next to the file, so every change in
        // the folder counts, except for reading.
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

/// The maximum number of operations that a new graph prepares before it serves: the most used ones of the previous
/// graph. An application has some hundreds; the others are prepared on their first request.
const WARMED_MAX: usize = 256;

/// The maximum time for which a new graph waits for these operations.
const WARMING_TIME_MAX: Duration = Duration::from_secs(10);

/// Prepares the most used operations of `old` for `new`, while the old graph serves.
async fn warm(new: &ServingGraph, old: &ServingGraph) {
    let started = Instant::now();
    let mut prepared = 0_usize;
    for request in old.preparer.most_used(WARMED_MAX) {
        if started.elapsed() >= WARMING_TIME_MAX {
            break;
        }
        let one = Instant::now();
        // An operation that is not valid any more is reported to the next client that sends it.
        prepared += usize::from(new.preparer.prepare(&request).await.is_ok());
        // Requests have priority: this takes at most half of one CPU.
        tokio::time::sleep(one.elapsed()).await;
    }
    tracing::debug!(prepared, elapsed = ?started.elapsed(), "operations were prepared for the new supergraph");
}

/// Loads the current text of the source, and puts the graph into service.
pub(crate) async fn reload(router: &Arc<Router>, source: &SupergraphSource) {
    let current = router.current();
    let number = current.generation.number + 1;
    let (loading, from) = (Arc::clone(router), source.clone());
    let previous = Arc::clone(&current);
    // Reading a large schema takes a while, so it runs on the blocking pool.
    let result = tokio::task::spawn_blocking(move || {
        let text = Arc::new(from.read().map_err(|error| vec![*error])?);
        if generation::identity(&text.text) == previous.generation.graph_id {
            return Ok(None);
        }
        let (config, providers) = (&loading.config, &loading.providers);
        generation::load(config, &text, providers, number, Some(&previous)).map(Some)
    })
    .await;
    match result {
        Ok(Ok(None)) => {
            router.metrics.graph_loads.count(ReloadResult::unchanged);
            tracing::info!(
                generation = current.generation.number,
                "the supergraph has not changed (the configuration is read at the start only)"
            );
        }
        Ok(Ok(Some(loaded))) => {
            warm(&loaded, &current).await;
            put_into_service(router, loaded).await;
            router.metrics.graph_loads.count(ReloadResult::loaded);
        }
        Ok(Err(diagnostics)) => {
            router.metrics.graph_loads.count(ReloadResult::refused);
            let problems = diagnostic::render(&diagnostics, Style::Plain);
            tracing::error!(
                generation = current.generation.number,
                "the new supergraph was refused; the old one continues to serve:\n{problems}"
            );
        }
        Err(panic) => {
            router.metrics.graph_loads.count(ReloadResult::refused);
            tracing::error!(%panic, "loading the supergraph failed because of a defect; the old one continues to serve");
        }
    }
}

/// The maximum time for which a new graph waits for operations to be prepared before it serves. The remaining ones
/// follow while it serves.
const RENEWING_TIME_MAX: Duration = Duration::from_secs(10);

/// The number of operations prepared before other tasks get their turn. One that the preparer knows takes some
/// microseconds.
const RENEWED_PER_TURN: usize = 64;

/// The minimum number of operations that are passed to the hub together while the new graph already serves, but not
/// less than a sixteenth of the remaining ones: each call visits all groups.
const PORTION_MIN: usize = 1024;

/// Puts `loaded` into service, and migrates every live operation to it.
async fn put_into_service(router: &Router, loaded: ServingGraph) {
    let loaded = Arc::new(loaded);
    let number = loaded.generation.number;
    let started = Instant::now();
    let old = router.hub.operations_before(number).await;
    let count = old.len();
    let renewals = renew_all(&loaded, &old, Some(started + RENEWING_TIME_MAX)).await;
    drop(old);
    let mut left = router.hub.advance(number, renewals).await;
    router.serve(Arc::clone(&loaded));
    tracing::info!(generation = number, "a new supergraph serves now");
    while !left.is_empty() {
        let portion = PORTION_MIN.max(left.len() / 16).min(left.len());
        let rest = left.split_off(portion);
        let renewals = renew_all(&loaded, &left, None).await;
        // The result contains the remaining groups, and those that have ended since.
        router.hub.advance(number, renewals).await;
        left = rest;
    }
    tracing::debug!(groups = count, elapsed = ?started.elapsed(), "live operations have moved to the new supergraph");
}

/// Prepares `old` for a new graph, until `deadline`. Requests have priority: this takes at most half of one CPU.
async fn renew_all(
    loaded: &Arc<ServingGraph>,
    old: &[(GroupId, Arc<LiveOperation>)],
    deadline: Option<Instant>,
) -> Vec<OperationUpdate> {
    let mut renewals = Vec::with_capacity(old.len());
    for turn in old.chunks(RENEWED_PER_TURN) {
        let began = Instant::now();
        if deadline.is_some_and(|deadline| began >= deadline) {
            break;
        }
        for (group, operation) in turn {
            renewals.push((
                *group,
                subscription_migration::renew(loaded, operation).await.map_err(Box::new),
            ));
        }
        tokio::time::sleep(began.elapsed()).await;
    }
    renewals
}

/// The interval at which files of subgraph certificates are checked. A new file is used after two checks.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Reads changed files of subgraph certificates, until shutdown.
pub(crate) async fn watch_certificates(router: Arc<Router>) {
    let mut shutdown = router.shutdown.clone();
    let mut ticks = tokio::time::interval(CERTIFICATE_CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        let loaded = router.current();
        // A panic there has been reported; the next check tries again.
        let _ = tokio::task::spawn_blocking(move || loaded.certificates.reload_if_changed()).await;
    }
}
