//! Settings and certificates of the clients of subgraphs, from the configuration.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clients::client_deadline::timeout_header;
use config::diagnostic::Diagnostic;
use config::{
    AwsSigv4, ClientTls, Config, HmacHash, HmacSignature, HttpProtocol, SubgraphSettings,
    TrafficSettings,
};
use net::{Roots, TlsClient, TlsError, TlsIdentity};
use upstream::{
    AwsSigner, BreakerSettings, HedgeDelay, HedgeSettings, Protocol, RequestSigner, RetrySettings,
    SignatureHash, UpstreamSettings,
};

/// The maximum size of a file of certificates. The system's own bundle has about 250 KB.
const PEM_BYTES_MAX: u64 = 4 << 20;

/// Returns the settings of the client of a subgraph.
///
/// # Errors
/// Credentials are missing.
pub(crate) fn settings_of(
    name: &str,
    traffic: &TrafficSettings,
    subgraph: Option<&SubgraphSettings>,
) -> Result<UpstreamSettings, Box<Diagnostic>> {
    let aws = subgraph.and_then(|it| it.aws_sigv4.as_ref());
    let signature = subgraph.and_then(|it| it.signature.hmac.as_ref());
    let (breaker, hedge) = (&traffic.circuit_breaker, &traffic.hedge);
    Ok(UpstreamSettings {
        timeout: traffic.timeout,
        connect_timeout: traffic.connect_timeout,
        idle_timeout: traffic.idle_timeout,
        max_response_size: traffic.max_response_size as u64,
        max_connections: traffic.max_connections as usize,
        max_waiting: traffic.max_waiting as usize,
        probation: UpstreamSettings::default().probation,
        protocol: protocol_of(traffic.protocol),
        compression: traffic.compression,
        retry: RetrySettings {
            retries: traffic.retry.retries,
            initial: traffic.retry.initial,
            max: traffic.retry.max,
            budget_percent: traffic.retry.budget_percent,
        },
        hedge: hedge.enabled.then_some(HedgeSettings {
            after: match hedge.after {
                config::HedgeDelay::Fixed(delay) => HedgeDelay::Fixed(delay),
                config::HedgeDelay::Percentile(percent) => HedgeDelay::Percentile(percent),
            },
            budget_percent: hedge.budget_percent,
        }),
        breaker: breaker.enabled.then_some(BreakerSettings {
            failure_percent: breaker.failure_percent,
            min_requests: breaker.min_requests,
            open_for: breaker.open_for,
        }),
        signer: signature.map(signer),
        deadline_header: traffic.deadline_header.as_ref().map(timeout_header),
        aws: aws.map(|it| aws_signer(name, it)).transpose()?,
    })
}

fn aws_signer(subgraph: &str, settings: &AwsSigv4) -> Result<AwsSigner, Box<Diagnostic>> {
    signer_for_aws(&format!("subgraphs.{subgraph}.aws_sigv4"), settings).map_err(|mut error| {
        error.message = format!("subgraph `{subgraph}`: {}", error.message);
        error
    })
}

/// Returns the signer of the settings at the key `path`.
///
/// # Errors
/// Credentials are missing.
pub fn signer_for_aws(path: &str, settings: &AwsSigv4) -> Result<AwsSigner, Box<Diagnostic>> {
    let credentials = settings.credentials(|name| std::env::var(name).ok()).map_err(|missing| {
        let message = format!("the environment variable `{missing}` is not set");
        Box::new(
            Diagnostic::error("aws-credentials", message)
                .help(format!("set it, or `access_key_id` and `secret_access_key` in `{path}`")),
        )
    })?;
    Ok(AwsSigner {
        region: settings.region.as_str().into(),
        service: settings.service.as_str().into(),
        access_key_id: credentials.access_key_id.into(),
        secret_access_key: credentials.secret_access_key.expose().into(),
        session_token: credentials.session_token.map(|it| it.expose().into()),
    })
}

fn signer(hmac: &HmacSignature) -> RequestSigner {
    let hash = match hmac.hash {
        HmacHash::Sha256 => SignatureHash::Sha256,
        HmacHash::Sha384 => SignatureHash::Sha384,
        HmacHash::Sha512 => SignatureHash::Sha512,
    };
    RequestSigner::new(hmac.header.clone(), hash, hmac.secret.expose().as_bytes())
}

/// Returns the HTTP version as the subgraph client names it.
pub(crate) fn protocol_of(configured: HttpProtocol) -> Protocol {
    match configured {
        HttpProtocol::Auto => Protocol::Auto,
        HttpProtocol::Http1 => Protocol::Http1,
        HttpProtocol::Http2 => Protocol::Http2,
    }
}

/// The TLS clients of one generation. The next generation keeps those whose files have not changed, with their
/// connections.
#[derive(Debug, Default)]
pub struct SubgraphCertificates {
    entries: Mutex<Vec<CertificateEntry>>,
    /// The clients of the previous generation. Those that are not used again are dropped with it.
    previous: Vec<CertificateEntry>,
}

#[derive(Clone, Debug)]
struct CertificateEntry {
    files: ClientTls,
    /// The contents of the files when the client was created.
    contents: CertificateFiles,
    client: TlsClient,
    /// The contents of the files at the last check.
    seen: CertificateFiles,
}

/// Everything in which two TLS clients can differ.
#[derive(Clone, PartialEq, Eq)]
struct CertificateFiles {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    protocol: HttpProtocol,
}

impl std::fmt::Debug for CertificateFiles {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The struct contains a private key.
        out.debug_struct("CertificateFiles")
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

impl SubgraphCertificates {
    /// Starts with the clients of `previous`, for subgraphs that still need them.
    pub(crate) fn continuing(previous: Option<&Self>) -> Self {
        let previous = previous.map(|it| it.lock().clone()).unwrap_or_default();
        Self { entries: Mutex::default(), previous }
    }

    /// Returns the TLS client of a subgraph; `None` for URLs without TLS.
    ///
    /// # Errors
    /// Files that cannot be read, or have invalid contents.
    pub(crate) fn client_of(
        &self,
        config: &Config,
        subgraph: &str,
        url: &str,
        protocol: HttpProtocol,
    ) -> Result<Option<TlsClient>, Box<Diagnostic>> {
        let configured = config.subgraphs.get(subgraph).map(|it| &it.tls);
        if !url.starts_with("https:") {
            if configured.is_some_and(|it| *it != ClientTls::default()) {
                tracing::warn!(
                    setting = format!("subgraphs.{subgraph}.tls"),
                    "a setting has no effect: the subgraph's URL is not https"
                );
            }
            return Ok(None);
        }
        let files = configured.cloned().unwrap_or_default();
        let contents = CertificateFiles::read(&files, protocol)
            .map_err(|problem| Box::new(problem.of(subgraph)))?;
        let mut entries = self.lock();
        let is_same = |it: &&CertificateEntry| it.files == files && it.contents == contents;
        if let Some(known) = entries.iter().find(is_same) {
            return Ok(Some(known.client.clone()));
        }
        if let Some(known) = self.previous.iter().find(is_same) {
            entries.push(known.clone());
            return Ok(Some(known.client.clone()));
        }
        let client = contents.client().map_err(|error| {
            let message = format!("subgraph `{subgraph}`: {error}");
            Box::new(Diagnostic::error("tls", message).help(format!(
                "check the files that `subgraphs.{subgraph}.tls` names; without `ca` the system's \
                 certificates are needed"
            )))
        })?;
        let seen = contents.clone();
        entries.push(CertificateEntry { files, contents, client: client.clone(), seen });
        Ok(Some(client))
    }

    /// Reads the files again; later connections use changed certificates. Blocks.
    pub fn reload_if_changed(&self) {
        for entry in &mut *self.lock() {
            if entry.files != ClientTls::default() {
                entry.reload_if_changed();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CertificateEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CertificateEntry {
    fn reload_if_changed(&mut self) {
        // A file may be unreadable for a moment while it is replaced; the old certificates stay in use.
        let Ok(now) = CertificateFiles::read(&self.files, self.contents.protocol) else { return };
        let has_settled = now == self.seen;
        let is_new = self.seen != self.contents;
        if !has_settled {
            // Certificate and key are written one after the other, and do not match in between.
            self.seen = now;
        } else if is_new {
            self.contents = now;
            match self.contents.client() {
                Ok(client) => {
                    self.client.replace(&client);
                    tracing::info!(files = ?self.files, "new certificates for subgraphs are in use");
                }
                Err(error) => {
                    tracing::error!(
                        files = ?self.files,
                        %error,
                        "new certificates for subgraphs cannot be used; the old ones stay in use"
                    );
                }
            }
        }
    }
}

impl CertificateFiles {
    fn read(files: &ClientTls, protocol: HttpProtocol) -> Result<Self, UnreadableFile> {
        let file = |path: &Option<PathBuf>| path.as_deref().map(read_pem).transpose();
        let identity = file(&files.certificate)?.zip(file(&files.key)?);
        Ok(Self { ca: file(&files.ca)?, identity, protocol })
    }

    fn client(&self) -> Result<TlsClient, TlsError> {
        let roots = self.ca.as_deref().map_or(Roots::Native, Roots::Pem);
        let identity = self.identity.as_ref();
        let identity = identity.map(|(certificates, key)| TlsIdentity { certificates, key });
        let protocols: &[&[u8]] = match self.protocol {
            HttpProtocol::Auto => &[b"h2", b"http/1.1"],
            HttpProtocol::Http1 => &[b"http/1.1"],
            HttpProtocol::Http2 => &[b"h2"],
        };
        TlsClient::new(roots, identity, protocols)
    }
}

struct UnreadableFile {
    path: String,
    reason: String,
}

impl UnreadableFile {
    fn of(self, subgraph: &str) -> Diagnostic {
        let Self { path, reason } = self;
        Diagnostic::error("tls", format!("subgraph `{subgraph}`: cannot read {path}: {reason}"))
            .help(format!("check the paths in `subgraphs.{subgraph}.tls`"))
    }
}

fn read_pem(path: &Path) -> Result<Vec<u8>, UnreadableFile> {
    use std::io::Read;
    let unreadable = |reason: String| UnreadableFile { path: path.display().to_string(), reason };
    let file = std::fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(PEM_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > PEM_BYTES_MAX {
        return Err(unreadable("it is larger than 4 MiB".into()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::SubgraphSettings;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../net/tests/certificates");

    fn config(tls: ClientTls) -> Config {
        let mut config = Config::default();
        config.subgraphs.insert("a".into(), SubgraphSettings { tls, ..Default::default() });
        config
    }

    fn check(certificates: &SubgraphCertificates, tls: ClientTls) -> Result<TlsClient, String> {
        let url = "https://localhost/";
        let client = certificates.client_of(&config(tls), "a", url, HttpProtocol::Auto);
        client.map(|it| it.unwrap()).map_err(|it| it.message)
    }

    fn pem(name: &str) -> Option<PathBuf> {
        Some(Path::new(FOLDER).join(name))
    }

    #[test]
    fn the_same_files_are_the_same_client_over_reloads() {
        let trusting = ClientTls { ca: pem("ca.pem"), ..Default::default() };
        let showing = ClientTls {
            certificate: pem("client.pem"),
            key: pem("client.key"),
            ..trusting.clone()
        };
        let first = SubgraphCertificates::default();
        let (one, two) = (check(&first, trusting.clone()), check(&first, showing));
        assert_ne!(one, two);
        let second = SubgraphCertificates::continuing(Some(&first));
        assert_eq!(check(&second, trusting), one);
    }

    #[test]
    fn files_that_change_are_used_when_they_have_settled_and_fit() {
        let folder = tempfile::tempdir().unwrap();
        let copy = |from: &str, to: &str| {
            std::fs::copy(Path::new(FOLDER).join(from), folder.path().join(to)).unwrap();
        };
        let file = |name: &str| Some(folder.path().join(name));
        copy("ca.pem", "ca.pem");
        copy("client.pem", "router.pem");
        copy("client.key", "router.key");
        let tls = ClientTls {
            ca: file("ca.pem"),
            certificate: file("router.pem"),
            key: file("router.key"),
        };
        let certificates = SubgraphCertificates::default();
        let client = check(&certificates, tls.clone()).unwrap();
        let uses = |name: &str| {
            let entries = certificates.lock();
            let used = entries[0].contents.identity.as_ref().unwrap().0.clone();
            used == std::fs::read(Path::new(FOLDER).join(name)).unwrap()
        };
        copy("localhost.pem", "router.pem");
        certificates.reload_if_changed();
        assert!(uses("client.pem"), "it may not be complete yet");
        copy("localhost.key", "router.key");
        certificates.reload_if_changed();
        certificates.reload_if_changed();
        assert!(uses("localhost.pem"));
        // The clients that were handed out are the same, and so are those of the next generation.
        let next = SubgraphCertificates::continuing(Some(&certificates));
        assert_eq!(check(&next, tls).unwrap(), client);
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let certificates = SubgraphCertificates::default();
        let missing = ClientTls { ca: pem("none.pem"), ..Default::default() };
        let message = check(&certificates, missing).unwrap_err();
        assert!(message.contains("none.pem: No such file"), "{message}");
        let foreign = ClientTls {
            ca: pem("ca.pem"),
            certificate: pem("client.pem"),
            key: pem("localhost.key"),
        };
        let message = check(&certificates, foreign).unwrap_err();
        assert!(
            message.starts_with("subgraph `a`: the client certificate cannot be used"),
            "{message}"
        );
    }

    #[test]
    fn the_defaults_of_the_configuration_are_those_of_the_client() {
        assert_eq!(
            settings_of("a", &TrafficSettings::default(), None).ok(),
            Some(UpstreamSettings::default())
        );
    }
}
