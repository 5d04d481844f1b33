//! Manifests of persisted documents that are read by URL: at the start, and again at intervals. A manifest that cannot
//! be read, or that is not valid, leaves the one before it in use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::diagnostic::Diagnostic;
use config::{DocumentManifest, PersistedDocuments};
use http::HeaderValue;
use persisted_documents::{ManifestFormat, parse_manifest};
use tokio::sync::watch;
use upstream::{Revision, resource_tls};

use crate::document_load_metrics::{DocumentLoadMetrics, DownloadResult};
use crate::remote_file::{RemoteFile, RemoteSettings, jittered, version_of};

/// The maximum size of a manifest that is read by URL: twenty thousand operations of half a kilobyte.
const MANIFEST_BYTES_MAX: usize = 10_000_000;

/// The media types that are requested.
const ACCEPT: &str = "application/json, */*;q=0.5";

/// The attempts at the start, in which a manifest must be read if the mode refuses operations.
const START_ATTEMPTS: u32 = 3;

/// The pause between two attempts at the start.
const START_PAUSE: Duration = Duration::from_secs(1);

/// The manifests that are read by URL.
pub(crate) struct ManifestDownloads {
    sources: Vec<Arc<ManifestSource>>,
    current: Arc<watch::Sender<DownloadedManifests>>,
    /// True if the router must not start without a manifest.
    are_required: bool,
}

/// A manifest that is read by URL.
struct ManifestSource {
    /// The index of the manifest in the configuration.
    index: usize,
    file: RemoteFile,
    refresh: Duration,
    documents_max: usize,
    format: ManifestFormat,
}

/// The manifests that were downloaded, by their index in the configuration.
pub(crate) type DownloadedManifests = BTreeMap<usize, Bytes>;

impl ManifestDownloads {
    /// Prepares the downloads of a configuration. Connects to nothing.
    ///
    /// # Errors
    /// Each URL and each file of authorities that cannot be used.
    pub(crate) fn new(settings: &PersistedDocuments) -> Result<Self, Vec<Diagnostic>> {
        let (mut sources, mut problems) = (Vec::new(), Vec::new());
        for (index, manifest) in settings.manifests.iter().enumerate() {
            let Some(url) = &manifest.url else { continue };
            match ManifestSource::new(index, url, manifest, settings) {
                Ok(source) => sources.push(Arc::new(source)),
                Err(reason) => {
                    let path = format!("persisted_documents.manifests[{index}]");
                    let message = format!("`{path}`: {reason}");
                    problems.push(Diagnostic::error("persisted-documents", message));
                }
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let current = Arc::new(watch::Sender::new(DownloadedManifests::new()));
        Ok(Self { sources, current, are_required: settings.mode.is_restrictive() })
    }

    /// Reads all manifests once, and returns those that were read. Of a manifest that cannot be read, the router waits
    /// for a later version, unless the mode would refuse all of its operations meanwhile.
    ///
    /// # Errors
    /// Manifests that cannot be read and are required.
    pub(crate) async fn read_first(
        &self,
    ) -> Result<(DownloadedManifests, FollowedDownloads), Vec<Diagnostic>> {
        let (mut problems, mut followed) = (Vec::new(), Vec::new());
        for source in &self.sources {
            let mut etag = None;
            let mut outcome = source.read(&mut etag).await;
            for _ in 1..START_ATTEMPTS {
                if outcome.is_ok() || !self.are_required {
                    break;
                }
                tokio::time::sleep(START_PAUSE).await;
                outcome = source.read(&mut etag).await;
            }
            match outcome {
                Ok(text) => self.current.send_modify(|it| {
                    it.extend(text.map(|text| (source.index, text)));
                }),
                Err(reason) if self.are_required => {
                    let message = format!("{}: {reason}", source.file.name);
                    problems.push(Diagnostic::error("persisted-documents", message));
                }
                Err(reason) => tracing::warn!(
                    url = source.file.name,
                    reason,
                    "a manifest of persisted documents could not be read; trying again"
                ),
            }
            followed.push((Arc::clone(source), etag));
        }
        match problems.is_empty() {
            true => {
                let downloads = self.current.borrow().clone();
                let current = Arc::clone(&self.current);
                Ok((downloads, FollowedDownloads { sources: followed, current }))
            }
            false => Err(problems),
        }
    }
}

/// Manifests that were read once, with the versions of the latest responses.
pub(crate) struct FollowedDownloads {
    sources: Vec<(Arc<ManifestSource>, Option<HeaderValue>)>,
    current: Arc<watch::Sender<DownloadedManifests>>,
}

impl FollowedDownloads {
    /// Reads the manifests at intervals, by tasks of this runtime, until shutdown. The receiver gets every change.
    pub(crate) fn start(
        self,
        metrics: &Arc<DocumentLoadMetrics>,
        shutdown: &watch::Receiver<bool>,
    ) -> watch::Receiver<DownloadedManifests> {
        let changes = self.current.subscribe();
        for (source, etag) in self.sources {
            let (current, metrics) = (Arc::clone(&self.current), Arc::clone(metrics));
            let mut shutdown = shutdown.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = follow(&source, etag, &current, &metrics) => {}
                    _ = shutdown.wait_for(|stop| *stop) => {}
                }
            });
        }
        changes
    }
}

/// Reads one manifest at intervals. Never returns.
async fn follow(
    source: &ManifestSource,
    mut etag: Option<HeaderValue>,
    current: &watch::Sender<DownloadedManifests>,
    metrics: &DocumentLoadMetrics,
) {
    let mut warned = String::new();
    loop {
        tokio::time::sleep(jittered(source.refresh)).await;
        let result = match source.read(&mut etag).await {
            Ok(None) => DownloadResult::Unchanged,
            Ok(Some(text)) => {
                let has_changed = current.send_if_modified(|it| {
                    it.insert(source.index, text.clone()).is_none_or(|before| before != text)
                });
                match has_changed {
                    true => DownloadResult::Changed,
                    false => DownloadResult::Unchanged,
                }
            }
            Err(reason) => {
                // A server that stays away fills no log.
                if warned == reason {
                    tracing::debug!(
                        url = source.file.name,
                        reason,
                        "a manifest still cannot be used"
                    );
                } else {
                    tracing::warn!(
                        url = source.file.name,
                        reason,
                        "a manifest of persisted documents cannot be used; the last good one stays"
                    );
                    warned = reason;
                }
                metrics.count_download(DownloadResult::Failed);
                continue;
            }
        };
        warned.clear();
        metrics.count_download(result);
    }
}

impl ManifestSource {
    fn new(
        index: usize,
        url: &str,
        manifest: &DocumentManifest,
        settings: &PersistedDocuments,
    ) -> Result<Self, String> {
        let file = RemoteFile::new(RemoteSettings {
            url,
            headers: &manifest.headers,
            tls: resource_tls(url, manifest.ca.as_deref())?,
            accept: ACCEPT,
            bytes_max: MANIFEST_BYTES_MAX.min(settings.max_size),
            timeout: manifest.timeout,
            signer: None,
        })?;
        Ok(Self {
            index,
            file,
            refresh: manifest.refresh,
            documents_max: settings.max_documents as usize,
            format: manifest_format(manifest.format),
        })
    }

    /// Reads the manifest; `None` if it is still that of `etag`. The version of a manifest that is not valid is kept,
    /// too, so that it is refused once.
    async fn read(&self, etag: &mut Option<HeaderValue>) -> Result<Option<Bytes>, String> {
        let revision = self.file.get(etag.as_ref()).await;
        match revision.map_err(|error| error.to_string())? {
            Revision::Unchanged => Ok(None),
            Revision::Changed { body, headers } => {
                *etag = version_of(&headers);
                let (documents_max, format) = (self.documents_max, self.format);
                let checked = tokio::task::spawn_blocking(move || {
                    parse_manifest(&body, format, documents_max).map(|_| body)
                });
                let checked = checked.await.map_err(|error| error.to_string())?;
                checked.map(Some).map_err(|error| match error.line {
                    0 => error.to_string(),
                    line => format!("line {line}, column {}: {error}", error.column),
                })
            }
        }
    }
}

/// Returns the format for the reader of manifests.
pub(crate) fn manifest_format(format: config::DocumentManifestFormat) -> ManifestFormat {
    match format {
        config::DocumentManifestFormat::Auto => ManifestFormat::Auto,
        config::DocumentManifestFormat::Apollo => ManifestFormat::Apollo,
        config::DocumentManifestFormat::Relay => ManifestFormat::Relay,
    }
}
