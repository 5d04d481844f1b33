//! A supergraph that is read by URL: at the start, and again at intervals, from the first of several servers that
//! responds with a text that may be used. The last one that was loaded is copied to disk. Loading it is left to
//! `reload`.

mod copy_file;
mod downloaded_graph;
mod metrics;
mod signature;

use std::sync::Arc;
use std::time::Duration;

use config::SupergraphDownload;
use config::diagnostic::{Diagnostic, SourceText};
use execute::FetchError;
use http::HeaderMap;
use http::StatusCode;
use http::header::HeaderValue;
use serving::generation;
use serving::upstreams::signer_for_aws;
use tokio::time::Instant;
use upstream::{Revision, resource_tls};

use self::copy_file::CopyFile;
use self::downloaded_graph::{DownloadedGraph, Provenance, modification_time};
use self::metrics::DownloadResult;
pub(crate) use self::metrics::{SUPERGRAPH_DOWNLOAD_METRICS, SupergraphDownloadMetrics};
use self::signature::{SignatureVerifier, Signatures};
use crate::remote_file::{RemoteFile, RemoteSettings, jittered, version_of};

/// The media types that are requested.
const ACCEPT: &str = "application/graphql, text/plain, */*;q=0.5";

/// The ending of the file with the signature of minisign.
const MINISIGN_ENDING: &str = ".minisig";

/// The maximum size of the file with the signature of minisign, which has four lines of about 100 bytes.
const MINISIGN_BYTES_MAX: usize = 8 << 10;

/// The attempts at the start of a router that has no copy.
const START_ATTEMPTS: u32 = 3;

/// The pause between two attempts at the start.
const START_PAUSE: Duration = Duration::from_secs(1);

/// The interval at which a failure that stays the same is logged again.
const REPORT_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Reads a supergraph by URL.
pub(crate) struct SupergraphDownloader {
    mirrors: Vec<Mirror>,
    refresh: Duration,
    accepts_older: bool,
    verifier: Arc<SignatureVerifier>,
    copy: Option<CopyFile>,
    metrics: Arc<SupergraphDownloadMetrics>,
    /// The last supergraph that was read, whether it could be loaded or not.
    latest: Option<DownloadedGraph>,
    /// The copy on disk, until another graph has been loaded.
    fallback: Option<Arc<SourceText>>,
    /// The hashes of the text and of the URL of the copy on disk.
    copied: Option<(u64, u64)>,
    /// True if `latest` has not been taken yet.
    is_pending: bool,
    next_check: Instant,
}

/// One of the servers of a supergraph.
struct Mirror {
    file: RemoteFile,
    /// The signature of minisign beside the supergraph, if one is required.
    minisign: Option<RemoteFile>,
    /// The hash of the text that the server sent last, and the name of its version.
    known: Option<(u64, HeaderValue)>,
    /// The failure that was logged last, and when.
    reported: Option<(String, Instant)>,
}

/// The reason why a server did not provide a supergraph.
#[derive(Clone, PartialEq, Eq, Debug)]
struct MirrorFailure {
    /// True if the server has responded with a text that must not be used.
    is_refused: bool,
    reason: String,
}

impl SupergraphDownloader {
    /// Prepares the requests. Connects to nothing. Blocks.
    ///
    /// # Errors
    /// Each URL, key and file of authorities that cannot be used.
    pub(crate) fn new(settings: &SupergraphDownload) -> Result<Self, Vec<Diagnostic>> {
        let mut problems = Vec::new();
        let refused = |message: String| {
            Diagnostic::error("supergraph", format!("`supergraph.url`: {message}"))
        };
        let verifier = SignatureVerifier::new(&settings.signature).map_err(|reasons| {
            problems.extend(reasons.into_iter().map(|it| refused(format!("signature.{it}"))));
        });
        let signer = settings.aws_sigv4.as_ref();
        let signer = signer.map(|it| signer_for_aws("supergraph.url.aws_sigv4", it)).transpose();
        let signer = signer.map_err(|error| problems.push(*error));
        // The servers have the same authorities, which are read once.
        let mut urls = settings.urls.iter();
        let tls = urls.find_map(|url| resource_tls(url, settings.ca.as_deref()).transpose());
        let tls = tls.transpose().map_err(|reason| problems.push(refused(reason)));
        let (Ok(verifier), Ok(signer), Ok(tls)) = (verifier, signer, tls) else {
            return Err(problems);
        };
        let remote = |url: &str, bytes_max| {
            RemoteFile::new(RemoteSettings {
                url,
                headers: &settings.headers,
                tls: tls.clone(),
                accept: ACCEPT,
                bytes_max,
                timeout: settings.timeout,
                signer: signer.clone(),
            })
        };
        let mut mirrors = Vec::new();
        for url in &settings.urls {
            let needs_minisign = verifier.needs_minisign();
            let minisign =
                needs_minisign.then(|| remote(&minisign_url(url), MINISIGN_BYTES_MAX)).transpose();
            match (remote(url, settings.max_size), minisign) {
                (Ok(file), Ok(minisign)) => {
                    mirrors.push(Mirror { file, minisign, known: None, reported: None });
                }
                (Err(reason), _) | (_, Err(reason)) => problems.push(refused(reason)),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let copy = settings.copy.clone();
        Ok(Self {
            mirrors,
            refresh: settings.refresh,
            accepts_older: settings.accept_older,
            verifier: Arc::new(verifier),
            copy: copy.map(|path| CopyFile { path, bytes_max: settings.max_size }),
            metrics: Arc::new(SupergraphDownloadMetrics::new()),
            latest: None,
            fallback: None,
            copied: None,
            is_pending: false,
            next_check: Instant::now(),
        })
    }

    /// Returns the counters.
    pub(crate) fn metrics(&self) -> Arc<SupergraphDownloadMetrics> {
        Arc::clone(&self.metrics)
    }

    /// Returns the supergraph for the start: that of a server, or else the copy on disk, with a warning.
    ///
    /// # Errors
    /// There is neither.
    pub(crate) async fn read_first(
        &mut self,
    ) -> Result<(Arc<SourceText>, Vec<Diagnostic>), Vec<Diagnostic>> {
        let mut warnings = Vec::new();
        let unusable_copy = match self.read_copy().await {
            Ok(Some(graph)) => {
                self.adopt_copy(graph);
                None
            }
            Ok(None) => None,
            Err(warning) => {
                warnings.push((*warning).clone());
                Some(*warning)
            }
        };
        let attempts = if self.latest.is_some() { 1 } else { START_ATTEMPTS };
        let mut failures = Vec::new();
        for attempt in 0..attempts {
            if attempt > 0 {
                tokio::time::sleep(START_PAUSE).await;
            }
            match self.check(true).await {
                Ok(_) => {
                    self.plan_next_check();
                    return Ok((self.take_latest()?, warnings));
                }
                Err(reasons) => failures = reasons,
            }
        }
        self.plan_next_check();
        let reasons = failures.join("; ");
        match (&self.latest, &self.copy) {
            (Some(latest), Some(copy)) => {
                let age = copy.age().map(|age| format!(", written {} s ago", age.as_secs()));
                let message = format!(
                    "{reasons}; the router starts with the copy {}{}",
                    copy.path.display(),
                    age.unwrap_or_default()
                );
                warnings.push(Diagnostic::warning("supergraph-copy", message));
                let text = Arc::clone(&latest.text);
                self.metrics.set_serves_copy(true);
                Ok((text, warnings))
            }
            _ => Err(unusable_copy.into_iter().chain([self.no_supergraph(&reasons)]).collect()),
        }
    }

    /// Returns the supergraph: the one that [`Self::wait_for_change`] has found, or with `asks_servers` that of a
    /// server now.
    ///
    /// # Errors
    /// No server provides one.
    pub(crate) async fn read(
        &mut self,
        asks_servers: bool,
    ) -> Result<Arc<SourceText>, Vec<Diagnostic>> {
        if asks_servers || !self.is_pending {
            let checked = self.check(false).await;
            self.plan_next_check();
            if let Err(reasons) = checked {
                return Err(vec![self.no_supergraph(&reasons.join("; "))]);
            }
        }
        self.take_latest()
    }

    /// Waits until a server provides another supergraph. May be cancelled.
    pub(crate) async fn wait_for_change(&mut self) {
        loop {
            tokio::time::sleep_until(self.next_check).await;
            let checked = self.check(true).await;
            self.plan_next_check();
            if checked == Ok(true) {
                self.is_pending = true;
                return;
            }
        }
    }

    /// Returns the copy on disk, for a start with a supergraph that does not load, if it is another one.
    pub(crate) fn take_fallback(&mut self) -> Option<Arc<SourceText>> {
        let latest = self.latest.as_ref().map(|it| &it.text);
        let fallback =
            self.fallback.take().filter(|it| latest.is_none_or(|latest| latest.text != it.text))?;
        self.metrics.set_serves_copy(true);
        Some(fallback)
    }

    /// Copies the last supergraph to disk, because it was loaded.
    pub(crate) async fn keep(&mut self) {
        self.fallback = None;
        let Some(graph) = self.latest.clone() else { return };
        let key = graph.key();
        // If it is the copy that was loaded, no server may have confirmed it yet.
        if self.copied == Some(key) {
            return;
        }
        self.metrics.set_serves_copy(false);
        let Some(copy) = self.copy.clone() else { return };
        let path = copy.path.display().to_string();
        let written = tokio::task::spawn_blocking(move || copy.write(&graph)).await;
        match written.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
            Ok(()) => self.copied = Some(key),
            Err(error) => {
                self.metrics.count_copy_failure();
                tracing::warn!(
                    path,
                    %error,
                    "the supergraph cannot be copied to disk (`supergraph.url.copy`): without its servers the router \
                     would start with an older one, or not at all"
                );
            }
        }
    }

    /// Reads the copy on disk; `None` if there is none.
    ///
    /// # Errors
    /// A warning that the copy cannot be used.
    async fn read_copy(&self) -> Result<Option<DownloadedGraph>, Box<Diagnostic>> {
        let Some(copy) = self.copy.clone() else { return Ok(None) };
        let (verifier, path) = (Arc::clone(&self.verifier), copy.path.display().to_string());
        let read = tokio::task::spawn_blocking(move || -> Result<_, String> {
            let mut graph = copy.read()?;
            if let Some(DownloadedGraph { text, provenance, .. }) = &mut graph {
                provenance.signed =
                    verifier.verify(&provenance.signatures, text.text.as_bytes())?;
            }
            Ok(graph)
        });
        let read = read.await.unwrap_or_else(|panic| Err(panic.to_string()));
        read.map_err(|reason| {
            let message = format!("the copy {path} of the supergraph is not used: {reason}");
            Box::new(Diagnostic::warning("supergraph-copy", message))
        })
    }

    /// Takes the copy on disk as the last supergraph that was read.
    fn adopt_copy(&mut self, mut graph: DownloadedGraph) {
        let provenance = &mut graph.provenance;
        match self.mirrors.iter_mut().find(|it| it.source() == provenance.source) {
            Some(mirror) => mirror.known = provenance.etag.clone().map(|etag| (graph.id, etag)),
            // The supergraph of another URL may be newer, and must not keep that of the configured ones out.
            None => (provenance.modified, provenance.signed) = (None, None),
        }
        self.fallback = Some(Arc::clone(&graph.text));
        self.copied = Some(graph.key());
        self.latest = Some(graph);
    }

    fn plan_next_check(&mut self) {
        self.next_check = Instant::now() + jittered(self.refresh);
    }

    /// Returns the last supergraph that was read.
    fn take_latest(&mut self) -> Result<Arc<SourceText>, Vec<Diagnostic>> {
        self.is_pending = false;
        match &self.latest {
            Some(latest) => Ok(Arc::clone(&latest.text)),
            None => Err(vec![self.no_supergraph("a server confirms a version that is not known")]),
        }
    }

    /// Returns the message that no server provides a supergraph.
    fn no_supergraph(&self, reasons: &str) -> Diagnostic {
        let message = format!("no server provides the supergraph (`supergraph.url`): {reasons}");
        let help = match (&self.copy, &self.latest) {
            (_, Some(_)) => "check the servers and what was published last".to_owned(),
            (None, None) => "check that the servers can be reached from here; with `supergraph.url.copy` the router \
                             keeps a copy on disk, with which it starts without them"
                .to_owned(),
            (Some(copy), None) => format!(
                "check that the servers can be reached from here, or put a supergraph that is good into {}, with which \
                 the router starts without them",
                copy.path.display()
            ),
        };
        Diagnostic::error("supergraph", message).help(help)
    }

    /// Requests the supergraph from one server after the other, until one provides it. True if it is another one than
    /// before. With `is_conditional`, a version that is known is not transferred again.
    ///
    /// # Cancellation
    /// Nothing has changed if the future is dropped before it is ready.
    ///
    /// # Errors
    /// The failures of all servers, with their URLs.
    async fn check(&mut self, is_conditional: bool) -> Result<bool, Vec<String>> {
        let (mut failures, mut provided) = (Vec::new(), None);
        for (index, mirror) in self.mirrors.iter().enumerate() {
            match self.request(mirror, is_conditional).await {
                Ok(graph) => {
                    provided = Some((index, graph));
                    break;
                }
                Err(failure) => failures.push((index, failure)),
            }
        }
        let is_provided = provided.is_some();
        for (index, failure) in &failures {
            self.mirrors[*index].report(failure, is_provided, self.latest.is_some());
        }
        let Some((index, graph)) = provided else {
            let is_refused = failures.iter().any(|(_, it)| it.is_refused);
            let result = if is_refused { DownloadResult::Refused } else { DownloadResult::Failed };
            self.metrics.count(result, failures.len());
            let shown = failures.into_iter().map(|(index, failure)| {
                format!("{}: {}", self.mirrors[index].file.name, failure.reason)
            });
            return Err(shown.collect());
        };
        self.mirrors[index].report_recovery();
        let known = self.latest.as_ref().map(|it| it.id);
        let is_changed = graph.as_ref().is_some_and(|graph| known != Some(graph.id));
        if let Some(graph) = graph {
            let etag = graph.provenance.etag.clone();
            self.mirrors[index].known = etag.map(|etag| (graph.id, etag));
            self.latest = Some(graph);
        }
        if self.latest.as_ref().map(|it| it.id) == self.copied.map(|(id, _)| id) {
            self.metrics.set_serves_copy(false);
        }
        let result = if is_changed { DownloadResult::Changed } else { DownloadResult::Unchanged };
        self.metrics.count(result, failures.len());
        Ok(is_changed)
    }

    /// Requests the supergraph from one server; `None` if the last one is confirmed.
    async fn request(
        &self,
        mirror: &Mirror,
        is_conditional: bool,
    ) -> Result<Option<DownloadedGraph>, MirrorFailure> {
        let latest = self.latest.as_ref();
        let known = mirror.known.as_ref().filter(|_| is_conditional);
        // Another server may have sent another text since.
        let known = known.filter(|(id, _)| latest.is_some_and(|latest| latest.id == *id));
        let revision = mirror.file.get(known.map(|(_, etag)| etag)).await;
        let (body, headers) = match revision.map_err(MirrorFailure::unavailable)? {
            Revision::Unchanged => return Ok(None),
            Revision::Changed { body, headers } => (body, headers),
        };
        let signatures = Signatures {
            hmac: self.verifier.hmac_of(&headers),
            minisign: match &mirror.minisign {
                Some(file) => Some(read_minisign(file).await?),
                None => None,
            },
        };
        let (verifier, name, source) =
            (Arc::clone(&self.verifier), mirror.file.name.clone(), mirror.source());
        // A large text takes a while.
        let verified = tokio::task::spawn_blocking(move || -> Result<_, String> {
            let signed = verifier.verify(&signatures, &body)?;
            let provenance = provenance(source, &headers, signed, signatures);
            let text = String::from_utf8(body.into()).map_err(|_| {
                "the response is not text in UTF-8; check that the URL is right and that the file is not compressed"
            })?;
            Ok(DownloadedGraph::new(&name, text, provenance))
        });
        let verified = verified.await.unwrap_or_else(|panic| Err(panic.to_string()));
        let graph = verified.map_err(MirrorFailure::refused)?;
        let Some(latest) = latest.filter(|latest| latest.id != graph.id && !self.accepts_older)
        else {
            return Ok(Some(graph));
        };
        match graph.provenance.older_than(&latest.provenance) {
            Some(how) => Err(MirrorFailure::refused(format!(
                "the supergraph is older than the last one {how}; publish it anew to go back to it, or set \
                 `supergraph.url.accept_older`"
            ))),
            None => Ok(Some(graph)),
        }
    }
}

/// Reads the signature of minisign beside a supergraph.
async fn read_minisign(file: &RemoteFile) -> Result<String, MirrorFailure> {
    let failure = |error: &FetchError| MirrorFailure {
        is_refused: matches!(error, FetchError::Status { .. }),
        reason: format!("its signature cannot be read from {}: {error}", file.name),
    };
    match file.get(None).await.map_err(|error| failure(&error))? {
        Revision::Changed { body, .. } => String::from_utf8(body.into()).map_err(|_| {
            MirrorFailure::refused(format!("{} is not a signature of minisign", file.name))
        }),
        Revision::Unchanged => Err(MirrorFailure::refused(format!("{} has no content", file.name))),
    }
}

fn provenance(
    source: u64,
    headers: &HeaderMap,
    signed: Option<u64>,
    signatures: Signatures,
) -> Provenance {
    let (etag, modified) = (version_of(headers), modification_time(headers));
    Provenance { source, etag, modified, signed, signatures }
}

/// Returns the URL of the signature of minisign beside a supergraph. The query may hold a key for both.
fn minisign_url(url: &str) -> String {
    let (path, rest) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    format!("{path}{MINISIGN_ENDING}{rest}")
}

impl Mirror {
    /// Returns the hash of the URL without its query, which may hold a token, and may change with it.
    fn source(&self) -> u64 {
        generation::identity(&self.file.name)
    }

    /// Logs a failure, unless it was logged a short time ago. `is_provided`: another server has provided the
    /// supergraph.
    fn report(&mut self, failure: &MirrorFailure, is_provided: bool, has_graph: bool) {
        let (url, reason) = (&*self.file.name, &*failure.reason);
        let is_new = self
            .reported
            .as_ref()
            .is_none_or(|(known, since)| known != reason || since.elapsed() >= REPORT_INTERVAL);
        if !is_new {
            tracing::debug!(url, reason, "the supergraph still cannot be read");
            return;
        }
        let consequence = if has_graph { "; the last good one stays in use" } else { "" };
        match (is_provided, failure.is_refused) {
            (true, _) => {
                tracing::warn!(
                    url,
                    reason,
                    "a server does not provide the supergraph; another one does"
                );
            }
            (false, true) => {
                tracing::error!(url, reason, "the supergraph of a server was refused{consequence}");
            }
            (false, false) => {
                tracing::warn!(url, reason, "the supergraph cannot be read{consequence}");
            }
        }
        self.reported = Some((failure.reason.clone(), Instant::now()));
    }

    /// Logs that a server provides the supergraph again.
    fn report_recovery(&mut self) {
        if self.reported.take().is_some() {
            tracing::info!(url = &*self.file.name, "the server provides the supergraph again");
        }
    }
}

impl MirrorFailure {
    fn refused(reason: impl Into<String>) -> Self {
        Self { is_refused: true, reason: reason.into() }
    }

    fn unavailable(error: FetchError) -> Self {
        let advice = match &error {
            FetchError::Status { status, .. } if status.is_redirection() => {
                "; redirections are not followed: write the URL that it leads to"
            }
            FetchError::Status {
                status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, ..
            } => "; check the credentials in `supergraph.url`",
            FetchError::TooLarge { .. } => " (`supergraph.url.max_size`)",
            _ => "",
        };
        Self { is_refused: false, reason: format!("{error}{advice}") }
    }
}

#[cfg(test)]
mod tests;
