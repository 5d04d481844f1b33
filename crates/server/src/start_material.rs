//! The material of a start, apart from the graph, that needs no network: keys of tokens, certificates of listeners,
//! persisted documents. `serve` and `check` both load it, so that they refuse the same configurations.

use std::sync::Arc;

use clients::authentication::Authenticator;
use config::diagnostic::Diagnostic;
use config::{Config, Listener};
use net::TlsServer;

use crate::certificates::Certificates;
use crate::document_source::{ReadDocuments, read_documents};
use crate::manifest_downloads::DownloadedManifests;

/// The keys of tokens, the certificates of listeners, and the persisted documents.
pub(crate) struct StartMaterial {
    /// Verification of tokens; `None`: no tokens are accepted.
    pub(crate) authentication: Option<Authenticator>,
    /// The certificates of all listeners that have some.
    pub(crate) certificates: Vec<Certificates>,
    /// The TLS of each listener, in their order.
    pub(crate) tls: Vec<Option<Arc<TlsServer>>>,
    /// The TLS of the admin listener, if it has some.
    pub(crate) admin_tls: Option<Arc<TlsServer>>,
    /// The documents of all manifests.
    pub(crate) documents: ReadDocuments,
}

impl StartMaterial {
    /// Reads all keys, certificates and manifests. `downloads` are the manifests that were read by URL.
    ///
    /// # Errors
    /// All keys and files that cannot be used.
    pub(crate) fn load(
        config: &Config,
        downloads: &DownloadedManifests,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut problems = Vec::new();
        let authentication = Authenticator::new(config).unwrap_or_else(|errors| {
            problems.extend(errors);
            None
        });
        let (mut certificates, mut tls) = (Vec::new(), Vec::new());
        for listener in &config.listen {
            let files = match listener {
                Listener::Address { tls, .. } => tls.as_ref(),
                Listener::Unix(_) => None,
            };
            tls.push(match files.map(|files| Certificates::load(files, &config.http)) {
                None => None,
                Some(Ok(loaded)) => {
                    let server = Arc::clone(&loaded.server);
                    certificates.push(loaded);
                    Some(server)
                }
                Some(Err(error)) => {
                    problems.push(Diagnostic::error("tls", format!("TLS (`listen`): {error}")));
                    None
                }
            });
        }
        let admin_tls = config.admin.tls.as_ref().and_then(|files| {
            let loaded = Certificates::load_for_admin(files).inspect_err(|error| {
                problems.push(Diagnostic::error("tls", format!("TLS (`admin.tls`): {error}")));
            });
            let loaded = loaded.ok()?;
            let server = Arc::clone(&loaded.server);
            certificates.push(loaded);
            Some(server)
        });
        let documents =
            read_documents(&config.persisted_documents, downloads).unwrap_or_else(|errors| {
                problems.extend(errors);
                ReadDocuments::default()
            });
        match problems.is_empty() {
            true => Ok(Self { authentication, certificates, tls, admin_tls, documents }),
            false => Err(problems),
        }
    }
}
