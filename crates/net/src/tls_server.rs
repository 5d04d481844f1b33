//! The server side of TLS: the server's certificate, the authorities of clients, and the replacement of both while
//! serving.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use crate::crypto::crypto_provider;
use crate::pem::{parse_authorities, parse_certificates, parse_key, read_pem_file};

/// An accepted connection after its handshake.
pub type TlsServerStream<S> = tokio_rustls::server::TlsStream<S>;

/// The files with the certificates of a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsServerFiles {
    /// The server's certificate and those between it and an authority, in this order (PEM).
    pub certificates: PathBuf,
    /// The private key of the certificate (PEM: PKCS #8, PKCS #1 or SEC1).
    pub key: PathBuf,
    /// The authorities of the accepted clients (PEM). Without them clients need no certificate.
    pub client_authorities: Option<PathBuf>,
    /// True if the handshake also accepts a client without a certificate. [`has_client_certificate`] tells which
    /// clients have one.
    pub accepts_anonymous: bool,
}

/// The reason that a listener cannot use TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsServerError {
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", .path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        reason: io::Error,
    },
    /// A file does not contain what it must.
    #[error("{}: {reason}", .path.display())]
    Unfit {
        /// The path of the file.
        path: PathBuf,
        /// The defect of the file. Nothing of a key is repeated.
        reason: String,
    },
}

/// The certificates of a listener. They can be replaced while it serves: later handshakes use the new ones, and open
/// connections continue.
#[derive(Debug)]
pub struct TlsServer {
    files: TlsServerFiles,
    protocols: Vec<Vec<u8>>,
    config: ArcSwap<ServerConfig>,
}

impl TlsServer {
    /// Reads the files. `protocols` are accepted by ALPN, most preferred first.
    ///
    /// # Errors
    /// A file is missing or unfit, or the certificate and the key do not belong together.
    pub fn load(files: TlsServerFiles, protocols: &[&[u8]]) -> Result<Self, TlsServerError> {
        let protocols: Vec<_> = protocols.iter().map(|it| it.to_vec()).collect();
        let config = ArcSwap::from_pointee(read(&files, &protocols)?);
        Ok(Self { files, protocols, config })
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// As [`TlsServer::load`]; the certificates in use stay.
    pub fn reload(&self) -> Result<(), TlsServerError> {
        self.config.store(Arc::new(read(&self.files, &self.protocols)?));
        Ok(())
    }

    /// Returns the paths of the files.
    pub fn files(&self) -> &TlsServerFiles {
        &self.files
    }

    /// Does the TLS handshake with a client. It takes as long as the client likes, so the caller must bound it.
    ///
    /// # Errors
    /// The client does not speak TLS, trusts another certificate, has no acceptable certificate, or disconnects.
    pub async fn handshake<S>(&self, stream: S) -> io::Result<TlsServerStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        TlsAcceptor::from(self.config.load_full()).accept(stream).await
    }
}

/// Returns the protocol that ALPN agreed on, if there is one.
pub fn negotiated_protocol<S>(stream: &TlsServerStream<S>) -> Option<&[u8]> {
    stream.get_ref().1.alpn_protocol()
}

/// True if the client has a certificate of one of the authorities. A client with another one fails the handshake.
pub fn has_client_certificate<S>(stream: &TlsServerStream<S>) -> bool {
    stream.get_ref().1.peer_certificates().is_some_and(|certificates| !certificates.is_empty())
}

fn read(files: &TlsServerFiles, protocols: &[Vec<u8>]) -> Result<ServerConfig, TlsServerError> {
    let unfit =
        |path: &Path, reason: String| TlsServerError::Unfit { path: path.to_owned(), reason };
    let text = |path: &Path| {
        let text = read_pem_file(path);
        text.map_err(|reason| TlsServerError::Unreadable { path: path.to_owned(), reason })
    };
    let chain = parse_certificates(&text(&files.certificates)?)
        .map_err(|reason| unfit(&files.certificates, reason))?;
    let key = parse_key(&text(&files.key)?).map_err(|reason| unfit(&files.key, reason))?;
    let provider = crypto_provider();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unfit(&files.certificates, error.to_string()))?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = parse_authorities(&text(path)?).map_err(|reason| unfit(path, reason))?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match files.accepts_anonymous {
                true => verifier.allow_unauthenticated().build(),
                false => verifier.build(),
            };
            let verifier = verifier.map_err(|error| unfit(path, error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        let reason = match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("the private key in {} belongs to another certificate", files.key.display())
            }
            error => error.to_string(),
        };
        unfit(&files.certificates, reason)
    })?;
    config.alpn_protocols = protocols.to_vec();
    // Sessions are resumed from tickets that clients keep, instead of from memory that would need a bound. New files
    // mean new ticket keys, so no client resumes a session under an authority that was removed.
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()
        .map_err(|error| unfit(&files.key, error.to_string()))?;
    Ok(config)
}
