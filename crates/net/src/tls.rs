//! The client side of TLS: trusted certificates, the client's own certificate, and the protocols that are offered.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::crypto::crypto_provider;
use crate::error::ConnectError;
use crate::pem::{parse_authorities, parse_certificates, parse_key};
use crate::stream::Stream;
use crate::tls_session::TlsClientSession;

/// The reason that TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The system has no readable root certificates.
    #[error("no trusted root certificates were found on this system{}", .0.as_deref().map(|it| format!(": {it}")).unwrap_or_default())]
    NoRoots(Option<String>),
    /// The trusted certificates that were given cannot be read.
    #[error("the trusted certificates cannot be used: {0}")]
    Pem(String),
    /// The client's own certificate or its key cannot be used.
    #[error("the client certificate cannot be used: {0}")]
    Identity(String),
    /// rustls refuses the settings.
    #[error("TLS cannot be set up: {0}")]
    Settings(String),
}

/// The certificate authorities that a client trusts.
#[derive(Clone, Copy, Debug)]
pub enum Roots<'a> {
    /// The authorities that the system trusts.
    Native,
    /// Only these authorities, in PEM.
    Pem(&'a [u8]),
}

/// The client's own certificate, for servers that request one.
#[derive(Clone, Copy)]
pub struct TlsIdentity<'a> {
    /// The certificate and those between it and the root, in PEM.
    pub certificates: &'a [u8],
    /// The private key of the certificate, in PEM.
    pub key: &'a [u8],
}

/// Settings of outgoing TLS connections. Clones are cheap and share the settings. Two values are equal only if one is a
/// clone of the other, whatever their settings, so that a connection pool can tell which connections may be used.
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
    /// Makes settings that trust `roots` and present `identity` to servers that request a certificate. `protocols` are
    /// offered by ALPN, most preferred first. The system's certificates are read once per process.
    ///
    /// # Errors
    /// [`TlsError`] if the roots or the identity cannot be read, or do not fit each other.
    pub fn new(
        roots: Roots<'_>,
        identity: Option<TlsIdentity<'_>>,
        protocols: &[&[u8]],
    ) -> Result<Self, TlsError> {
        let roots = match roots {
            Roots::Native => native_roots()?,
            Roots::Pem(pem) => Arc::new(parse_authorities(pem).map_err(TlsError::Pem)?),
        };
        let builder = ClientConfig::builder_with_provider(crypto_provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Settings(error.to_string()))?
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let certificates =
                    parse_certificates(identity.certificates).map_err(TlsError::Identity)?;
                let key = parse_key(identity.key)
                    .map_err(|reason| TlsError::Identity(format!("its key: {reason}")))?;
                builder
                    .with_client_auth_cert(certificates, key)
                    .map_err(|error| TlsError::Identity(error.to_string()))?
            }
        };
        config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        Ok(Self { config: Arc::new(ArcSwap::from_pointee(config)) })
    }

    /// Makes settings that trust the system's authorities. `protocols` are offered by ALPN, most preferred first.
    ///
    /// # Errors
    /// [`TlsError::NoRoots`] if the system has no readable roots.
    pub fn with_native_roots(protocols: &[&[u8]]) -> Result<Self, TlsError> {
        Self::new(Roots::Native, None, protocols)
    }

    /// Makes settings that trust only the certificates of `pem`.
    ///
    /// # Errors
    /// [`TlsError::Pem`] if `pem` contains no certificate, or one that cannot be read.
    pub fn with_roots(pem: &[u8], protocols: &[&[u8]]) -> Result<Self, TlsError> {
        Self::new(Roots::Pem(pem), None, protocols)
    }

    /// Replaces the settings by those of `other`, for all clones of this value. Open connections continue.
    pub fn replace(&self, other: &Self) {
        self.config.store(other.config.load_full());
    }

    /// Returns a session with `host` that has sent nothing yet, for callers that own sockets without a runtime.
    ///
    /// # Errors
    /// [`ConnectError::Tls`] if `host` is not a valid name for a certificate.
    pub fn session(&self, host: &str) -> Result<TlsClientSession, ConnectError> {
        ClientConnection::new(self.config.load_full(), server_name(host)?)
            .map(TlsClientSession::new)
            .map_err(|_| ConnectError::Tls("the settings do not allow a session"))
    }

    /// Does the TLS handshake with `host`.
    pub(crate) async fn handshake(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<Stream, ConnectError> {
        TlsConnector::from(self.config.load_full())
            .connect(server_name(host)?, stream)
            .await
            .map(|stream| Stream::Tls(Box::new(stream)))
            .map_err(|error| ConnectError::Tls(failure_reason(&error)))
    }
}

/// Returns the name that the server's certificate must be for.
fn server_name(host: &str) -> Result<ServerName<'static>, ConnectError> {
    let name = ServerName::try_from(host.to_owned());
    name.map_err(|_| ConnectError::Tls("the host is not a valid server name"))
}

/// Returns the system's certificates, read once per process.
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

/// Returns the reason of a failure without names and addresses, which rustls puts into its messages.
fn failure_reason(error: &std::io::Error) -> &'static str {
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
