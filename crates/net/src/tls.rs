//! The client side of TLS: which certificates are trusted, which protocols are offered.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{ConnectError, Stream, TlsClientSession};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The system has no root certificates that can be read.
    #[error("no trusted root certificates were found on this system{}", .0.as_deref().map(|it| format!(": {it}")).unwrap_or_default())]
    NoRoots(Option<String>),
    /// A certificate that was given cannot be read.
    #[error("the certificates are not valid PEM: {0}")]
    Pem(String),
    /// Our own certificate or its key cannot be used.
    #[error("the client certificate cannot be used: {0}")]
    Identity(String),
    /// rustls refuses the settings.
    #[error("TLS cannot be set up: {0}")]
    Settings(String),
}

/// Whose certificates are trusted.
#[derive(Clone, Copy, Debug)]
pub enum Roots<'a> {
    /// What the system trusts.
    Native,
    /// Only these, in PEM.
    Pem(&'a [u8]),
}

/// What a server that wants to know its clients is shown.
#[derive(Clone, Copy)]
pub struct Identity<'a> {
    /// The certificate and those between it and the root, in PEM.
    pub certificates: &'a [u8],
    /// Its private key, in PEM.
    pub key: &'a [u8],
}

/// Settings of TLS connections that we open. Cheap to clone; clones are equal, settings made
/// apart are not, whatever they say. So a pool can tell whose connections may be used.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ArcSwap<ClientConfig>>,
}

impl PartialEq for TlsClient {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config)
    }
}

impl Eq for TlsClient {}

impl Hash for TlsClient {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.config).hash(state);
    }
}

impl TlsClient {
    /// Trusts `roots`, and shows `identity` to servers that ask for it. `protocols` are offered by
    /// ALPN, most wanted first. The system's certificates are read once per process.
    ///
    /// # Errors
    /// [`TlsError`] where roots or identity cannot be read or do not fit each other.
    pub fn new(
        roots: Roots<'_>,
        identity: Option<Identity<'_>>,
        protocols: &[&[u8]],
    ) -> Result<Self, TlsError> {
        let roots = match roots {
            Roots::Native => native_roots()?,
            Roots::Pem(pem) => Arc::new(roots_of(pem)?),
        };
        // Other crates may bring a second provider along, so none is a default: it is named.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Settings(error.to_string()))?
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let certificates = CertificateDer::pem_slice_iter(identity.certificates)
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|error| TlsError::Identity(error.to_string()))?;
                // The parser's errors tell kinds of mistakes, never text of the key.
                let key = PrivateKeyDer::from_pem_slice(identity.key)
                    .map_err(|error| TlsError::Identity(format!("its key: {error}")))?;
                builder
                    .with_client_auth_cert(certificates, key)
                    .map_err(|error| TlsError::Identity(error.to_string()))?
            }
        };
        config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        Ok(Self { config: Arc::new(ArcSwap::from_pointee(config)) })
    }

    /// Trusts what the system trusts. `protocols` are offered by ALPN, most wanted first.
    ///
    /// # Errors
    /// [`TlsError::NoRoots`] where the system has no readable roots.
    pub fn with_native_roots(protocols: &[&[u8]]) -> Result<Self, TlsError> {
        Self::new(Roots::Native, None, protocols)
    }

    /// Trusts only the certificates of `pem`.
    ///
    /// # Errors
    /// [`TlsError::Pem`] where `pem` holds no certificate, or one that cannot be read.
    pub fn with_roots(pem: &[u8], protocols: &[&[u8]]) -> Result<Self, TlsError> {
        Self::new(Roots::Pem(pem), None, protocols)
    }

    /// From now on says what `other` says, to all who have a clone. Connections that are open go on.
    pub fn replace(&self, other: &Self) {
        self.config.store(other.config.load_full());
    }

    /// A session with `host` that has said nothing yet, for those who own sockets without a runtime.
    ///
    /// # Errors
    /// [`ConnectError::Tls`] where `host` is none that a certificate could be for.
    pub fn session(&self, host: &str) -> Result<TlsClientSession, ConnectError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| ConnectError::Tls("the host is not a valid server name"))?;
        ClientConnection::new(self.config.load_full(), name)
            .map(TlsClientSession::new)
            .map_err(|_| ConnectError::Tls("the settings do not allow a session"))
    }

    /// Shakes hands as a client that wants to talk to `host`.
    pub(crate) async fn handshake(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<Stream, ConnectError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| ConnectError::Tls("the host is not a valid server name"))?;
        TlsConnector::from(self.config.load_full())
            .connect(name, stream)
            .await
            .map(|stream| Stream::Tls(Box::new(stream)))
            .map_err(|error| ConnectError::Tls(problem(&error)))
    }
}

/// The system's certificates, read once per process.
fn native_roots() -> Result<Arc<RootCertStore>, TlsError> {
    static ROOTS: OnceLock<Result<Arc<RootCertStore>, Option<String>>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let loaded = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(loaded.certs);
        if added > 0 {
            Ok(Arc::new(roots))
        } else {
            Err(loaded.errors.first().map(ToString::to_string))
        }
    });
    roots.clone().map_err(TlsError::NoRoots)
}

fn roots_of(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| TlsError::Pem(error.to_string()))?;
        roots.add(certificate).map_err(|error| TlsError::Pem(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(TlsError::Pem("there is no certificate in them".into()));
    }
    Ok(roots)
}

/// What went wrong, without names and addresses: rustls puts both into its messages.
fn problem(error: &std::io::Error) -> &'static str {
    use rustls::{CertificateError, Error};
    let Some(error) = error.get_ref().and_then(|it| it.downcast_ref::<Error>()) else {
        return "the connection broke during the handshake";
    };
    match error {
        Error::InvalidCertificate(problem) => match problem {
            CertificateError::UnknownIssuer => "the server's certificate is not trusted",
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the server's certificate is for another name"
            }
            _ => "the server's certificate is not valid",
        },
        Error::AlertReceived(_) => "the server refused the handshake",
        Error::InvalidMessage(_) => "the server does not speak TLS",
        Error::NoApplicationProtocol => "the server speaks no protocol that was offered",
        _ => "the handshake failed",
    }
}
