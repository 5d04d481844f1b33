//! The material of a start, apart from the graph, that needs no network: keys of tokens and certificates of listeners.
//! `serve` and `check` both load it, so that they refuse the same configurations.

use std::sync::Arc;

use config::diagnostic::Diagnostic;
use config::{Config, Listener};
use net::TlsServer;

use crate::authentication::Authenticator;
use crate::certificates::Certificates;

/// The keys of tokens and the certificates of listeners.
pub(crate) struct StartMaterial {
    /// Verification of tokens; `None`: no tokens are accepted.
    pub(crate) authentication: Option<Authenticator>,
    /// The certificates of the listeners that have some, in the order of the listeners.
    pub(crate) certificates: Vec<Certificates>,
    /// The TLS of each listener, in their order.
    pub(crate) tls: Vec<Option<Arc<TlsServer>>>,
}

impl StartMaterial {
    /// Reads all keys and certificates.
    ///
    /// # Errors
    /// All keys and files that cannot be used.
    pub(crate) fn load(config: &Config) -> Result<Self, Vec<Diagnostic>> {
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
        match problems.is_empty() {
            true => Ok(Self { authentication, certificates, tls }),
            false => Err(problems),
        }
    }
}
