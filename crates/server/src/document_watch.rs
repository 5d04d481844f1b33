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

use crate::document_load_metrics::{DocumentLoadMetrics, DocumentLoadResult};
use crate::document_source::{Versions, read_documents, stamps};
use crate::manifest_downloads::DownloadedManifests;
use crate::prepare_gently::prepare_gently;
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

/// Follows changes of manifests, which were read in these versions, and of graphs, until shutdown. Tells `warming` when
/// the documents have been prepared.
pub(crate) async fn follow_documents(
    reloader: Arc<Reloader>,
    warming: Arc<Warming>,
    metrics: Arc<DocumentLoadMetrics>,
    read: Versions,
    downloads: watch::Receiver<DownloadedManifests>,
) {
    let mut shutdown = reloader.shutdown.signal();
    let serving = &reloader.serving;
    let mut watch = DocumentWatch::new(&reloader.config, read, downloads);
    let prepared_max = reloader.config.limits.prepared_operations / PREPARED_PART;
    loop {
        let graph = serving.current();
        let number = graph.generation.number;
        let warming = &warming;
        let mut prepare = std::pin::pin!(async move {
            prepare_ahead(serving, &graph, prepared_max as usize).await;
            warming.note_documents_prepared();
            drop(graph);
            std::future::pending::<()>().await;
        });
        loop {
            tokio::select! {
                () = &mut prepare => continue,
                _ = serving.wait_for_graph_after(number) => break,
                () = watch.wait_for_change() => {}
                _ = shutdown.wait_for(|stop| *stop) => return,
            }
            if reload(serving, &mut watch, &metrics).await {
                break;
            }
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

/// Prepares the first documents for a graph. A document that is not valid there is reported to the next client that
/// sends it; the log has their number.
async fn prepare_ahead(serving: &Serving, graph: &ServingGraph, prepared_max: usize) {
    let documents = serving.known_operations.documents();
    let (mut invalid, mut first_invalid) = (0_u64, None);
    for document in documents.documents().iter().take(prepared_max) {
        // Clients that have the operation's name from the tool that wrote the manifest send it.
        let request = OperationRequest {
            query: document.text.clone(),
            operation_name: document.name.clone(),
            ..OperationRequest::default()
        };
        if let Err(error) = prepare_gently(&graph.preparer, &request).await {
            invalid += 1;
            first_invalid.get_or_insert_with(|| (document.id.clone(), error.to_string()));
        }
    }
    serving.known_operations.stats().documents_invalid.store(invalid, Ordering::Relaxed);
    if let Some((id, reason)) = first_invalid {
        tracing::warn!(
            count = invalid,
            of = documents.len(),
            first = %id,
            reason,
            generation = graph.generation.number,
            "persisted documents are not valid on the graph that serves"
        );
    }
}
