//! Persisted documents while the router serves: changed manifests are read again, and the documents are prepared ahead
//! for each graph.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use config::diagnostic::{self, Diagnostic, Style};
use config::{Config, PersistedDocuments};
use persisted_documents::DocumentSet;
use prepare::OperationRequest;
use serving::generation::ServingGraph;
use serving::serving::Serving;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::assembly::RouterParts;
use crate::document_load_metrics::{DocumentLoadMetrics, DocumentLoadResult};
use crate::document_source::{Versions, read_documents, stamps};
use crate::further_graphs::NamedGraph;
use crate::manifest_downloads::DownloadedManifests;
use crate::reload::Reloader;
use crate::warming::Warming;

/// The interval at which files are compared with the versions that were read. A changed file is read once two
/// comparisons in a row have found the same version, because deployments write a file in several steps.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The part of the preparer's cache (`limits.prepared_operations`) that documents may take when they are prepared
/// ahead: one in this many. The rest stays for operations that clients use.
const PREPARED_PART: u32 = 2;

/// Watches the manifests.
struct DocumentWatch {
    config: Arc<Config>,
    /// The versions that were read last.
    read: Versions,
    /// The versions of the last comparison.
    seen: Versions,
    /// The manifests that are read by URL.
    downloads: watch::Receiver<DownloadedManifests>,
    checks: tokio::time::Interval,
}

impl DocumentWatch {
    /// Creates a watch of manifests that were read in these versions.
    fn new(
        config: &Arc<Config>,
        read: Versions,
        downloads: watch::Receiver<DownloadedManifests>,
    ) -> Self {
        let mut checks = tokio::time::interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { config: Arc::clone(config), seen: read.clone(), read, downloads, checks }
    }

    /// Waits until files have changed and stay as they are, or until there is a new download. May be cancelled.
    async fn wait_for_change(&mut self) {
        loop {
            tokio::select! {
                _ = self.checks.tick() => {}
                // Without downloads the sender is gone, and files are all that can change.
                Ok(()) = self.downloads.changed() => return,
            }
            let now = on_blocking_pool(&self.config, stamps).await;
            let Some(now) = now else { continue };
            let is_stable = now == self.seen;
            self.seen = now;
            if is_stable && self.seen != self.read {
                return;
            }
        }
    }

    /// Reads the manifests. Those that are refused are read again when they have changed.
    async fn read(&mut self) -> Result<DocumentSet, Vec<Diagnostic>> {
        self.read.clone_from(&self.seen);
        let downloads = self.downloads.borrow_and_update().clone();
        let read = move |settings: &PersistedDocuments| read_documents(settings, &downloads);
        match on_blocking_pool(&self.config, read).await {
            Some(Ok(read)) => {
                self.read = read.versions;
                Ok(read.documents)
            }
            Some(Err(problems)) => Err(problems),
            None => Err(vec![Diagnostic::error("internal", "reading the manifests failed")]),
        }
    }
}

/// Runs a function that reads files; `None` after a panic, which has been reported.
async fn on_blocking_pool<T: Send + 'static>(
    config: &Arc<Config>,
    read: impl FnOnce(&PersistedDocuments) -> T + Send + 'static,
) -> Option<T> {
    let config = Arc::clone(config);
    tokio::task::spawn_blocking(move || read(&config.persisted_documents)).await.ok()
}

/// Starts the tasks of persisted documents: one follows the manifests, which were read in these versions, and one for
/// each graph prepares the documents ahead. They end with the shutdown.
pub(crate) fn start(
    parts: &RouterParts,
    read: Versions,
    downloads: watch::Receiver<DownloadedManifests>,
) {
    let reloader = &parts.reloader;
    let (changed, changes) = watch::channel(());
    let preparation = Arc::new(DocumentPreparation {
        warming: Arc::clone(&parts.warming),
        prepared_max: (reloader.config.limits.prepared_operations / PREPARED_PART) as usize,
    });
    for graph in parts.named_graphs() {
        let (preparation, changes) = (Arc::clone(&preparation), changes.clone());
        tokio::spawn(preparation.follow(graph, changes, reloader.shutdown.signal()));
    }
    let watch = DocumentWatch::new(&reloader.config, read, downloads);
    let metrics = Arc::clone(&parts.document_loads);
    tokio::spawn(follow_manifests(Arc::clone(reloader), metrics, watch, changed));
}

/// Follows changes of manifests until shutdown, and notifies the tasks that prepare documents.
async fn follow_manifests(
    reloader: Arc<Reloader>,
    metrics: Arc<DocumentLoadMetrics>,
    mut watch: DocumentWatch,
    changed: watch::Sender<()>,
) {
    let mut shutdown = reloader.shutdown.signal();
    loop {
        tokio::select! {
            () = watch.wait_for_change() => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        // All graphs have the same known operations.
        if reload(&reloader.serving, &mut watch, &metrics).await {
            changed.send_replace(());
        }
    }
}

/// Reads the manifests, and puts their documents into service. Returns true if the documents have changed.
async fn reload(
    serving: &Serving,
    watch: &mut DocumentWatch,
    metrics: &DocumentLoadMetrics,
) -> bool {
    match watch.read().await {
        Ok(documents) => {
            let operations = &serving.known_operations;
            if operations.documents().documents() == documents.documents() {
                return false;
            }
            tracing::info!(documents = documents.len(), "new persisted documents are in use");
            operations.replace_documents(documents);
            metrics.count(DocumentLoadResult::Loaded);
            true
        }
        Err(problems) => {
            metrics.count(DocumentLoadResult::Refused);
            let problems = diagnostic::render(&problems, Style::Plain);
            tracing::error!("the persisted documents were refused; the old ones stay:\n{problems}");
            false
        }
    }
}

/// The parts that the tasks of all graphs use to prepare documents ahead.
struct DocumentPreparation {
    /// The progress of the start, which may wait for the documents.
    warming: Arc<Warming>,
    /// The maximum number of documents that are prepared for a graph.
    prepared_max: usize,
}

impl DocumentPreparation {
    /// Prepares the documents for a graph, and again for each new version of it and after changes of the documents,
    /// until shutdown.
    async fn follow(
        self: Arc<Self>,
        graph: NamedGraph,
        mut changes: watch::Receiver<()>,
        mut shutdown: watch::Receiver<bool>,
    ) {
        let mut is_noted = false;
        loop {
            changes.mark_unchanged();
            let current = graph.serving.current();
            let number = current.generation.number;
            let prepare = async {
                self.prepare_ahead(&graph, current).await;
                if !std::mem::replace(&mut is_noted, true) {
                    self.warming.note_documents_prepared();
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = prepare => {}
                _ = graph.serving.wait_for_graph_after(number) => {}
                // There are no changes without the task that follows manifests.
                Ok(()) = changes.changed() => {}
                _ = shutdown.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Prepares the first documents for the current version of a graph. A document that is not valid there is reported
    /// to the next client that sends it; the log has their number.
    async fn prepare_ahead(&self, graph: &NamedGraph, current: Arc<ServingGraph>) {
        let documents = graph.serving.known_operations.documents();
        let (mut invalid, mut first_invalid) = (0_u64, None);
        for document in documents.documents().iter().take(self.prepared_max) {
            // Clients that have the operation's name from the tool that wrote the manifest send it.
            let request = OperationRequest {
                query: document.text.clone(),
                operation_name: document.name.clone(),
                ..OperationRequest::default()
            };
            if let Err(error) = self.warming.pace.prepare(&current.preparer, &request).await {
                invalid += 1;
                first_invalid.get_or_insert_with(|| (document.id.clone(), error.to_string()));
            }
        }
        graph.serving.document_validity.invalid.store(invalid, Ordering::Relaxed);
        let Some((id, reason)) = first_invalid else { return };
        let (of, generation) = (documents.len(), current.generation.number);
        match graph.name.as_deref() {
            None => tracing::warn!(
                count = invalid,
                of,
                first = %id,
                reason,
                generation,
                "persisted documents are not valid on the graph that serves"
            ),
            // The manifests have the documents for all graphs, so a further graph may lack many of them.
            Some(name) => tracing::info!(
                graph = name,
                count = invalid,
                of,
                first = %id,
                reason,
                generation,
                "persisted documents are not valid on a further graph"
            ),
        }
    }
}
