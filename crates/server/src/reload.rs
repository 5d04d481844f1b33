//! New generations: the supergraph file is watched, and SIGHUP asks for a look at it. What loads
//! becomes the next generation; what does not is refused, logged and counted, and the old one stays.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use execute::{ErrorCode, GraphqlError};
use notify::{RecursiveMode, Watcher};
use tokio::sync::mpsc;

use crate::diagnostic::{self, Style};
use crate::loaded::{self, SupergraphSource};
use crate::metrics::ReloadResult;
use crate::router::Router;

/// Editors and deployments write a file in several steps; a change is looked at when none has followed
/// for this long.
const SETTLE: Duration = Duration::from_millis(200);

/// What tells that there may be a new supergraph: its file and SIGHUP.
pub(crate) struct Changes {
    source: SupergraphSource,
    changed: mpsc::Receiver<()>,
    /// Watches until it is dropped.
    _watcher: Option<notify::RecommendedWatcher>,
}

impl Changes {
    /// Begins to watch. What changes from now on is noticed by [`Changes::follow`].
    pub(crate) fn watch(source: SupergraphSource) -> Self {
        // One change waiting is as good as a hundred.
        let (sender, changed) = mpsc::channel::<()>(1);
        let _watcher = source.file().and_then(|file| watcher(file, sender.clone()));
        hang_up_signals(sender);
        Self { source, changed, _watcher }
    }

    /// Loads what has changed, until shutdown.
    pub(crate) async fn follow(mut self, router: Arc<Router>) {
        let mut shutdown = router.shutdown.clone();
        loop {
            tokio::select! {
                change = self.changed.recv() => if change.is_none() { return },
                _ = shutdown.wait_for(|stop| *stop) => return,
            }
            while tokio::time::timeout(SETTLE, self.changed.recv()).await.is_ok() {}
            reload(&router, &self.source).await;
        }
    }
}

/// What a subscription is told that ran on a graph that serves no more.
pub(crate) fn replaced() -> GraphqlError {
    GraphqlError::new(
        ErrorCode::GraphReloaded,
        "the graph was replaced while this subscription ran; subscribe again",
    )
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

/// Loads what the source holds now, and swaps it in.
pub(crate) async fn reload(router: &Arc<Router>, source: &SupergraphSource) {
    let current = router.current();
    let number = current.generation.number + 1;
    let (loading, from) = (Arc::clone(router), source.clone());
    let before = current.generation.graph_id;
    // Reading a large schema takes a while; the runtime goes on.
    let result = tokio::task::spawn_blocking(move || {
        let text = Arc::new(from.read().map_err(|error| vec![*error])?);
        if loaded::identity(&text.text) == before {
            return Ok(None);
        }
        loaded::load(&loading.config, &text, &loading.providers, number).map(Some)
    })
    .await;
    match result {
        Ok(Ok(None)) => {
            router.metrics.reload(ReloadResult::unchanged);
            tracing::info!(
                generation = current.generation.number,
                "the supergraph has not changed"
            );
        }
        Ok(Ok(Some(loaded))) => {
            router.loaded.store(Arc::new(loaded));
            router.metrics.reload(ReloadResult::loaded);
            tracing::info!(generation = number, "a new supergraph serves now");
            router.hub.end_generation(current.generation.number, replaced()).await;
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
