//! The server side of TLS: our certificate, whose clients are let in, and changing both while serving.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

/// A PEM file may be this large: hundreds of certificates.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// An accepted connection after its handshake.
pub type TlsServerStream<S> = tokio_rustls::server::TlsStream<S>;

/// Where the certificates of a listener are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsServerFiles {
    /// Our certificate and what leads from it to an authority, in this order (PEM).
    pub certificates: PathBuf,
    /// Its private key (PEM: PKCS #8, PKCS #1 or SEC1).
    pub key: PathBuf,
    /// Authorities whose clients are let in (PEM). Without it clients need no certificate.
    pub client_authorities: Option<PathBuf>,
}

/// Why a listener cannot speak TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsServerError {
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", .path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{}: {reason}", .path.display())]
    Unfit {
        /// Which.
        path: PathBuf,
        /// What is wrong with it. Nothing of a key is repeated.
        reason: String,
    },
}

/// The certificates of a listener. They can be replaced while it serves: handshakes that begin later use the
/// new ones, connections that are open go on.
#[derive(Debug)]
pub struct TlsServer {
    files: TlsServerFiles,
    protocols: Vec<Vec<u8>>,
    config: ArcSwap<ServerConfig>,
}

impl TlsServer {
    /// Reads the files. `protocols` are what ALPN may settle on, most wanted first.
    ///
    /// # Errors
    /// Where a file is missing or unfit, or certificate and key do not belong together.
    pub fn load(files: TlsServerFiles, protocols: &[&[u8]]) -> Result<Self, TlsServerError> {
        let protocols: Vec<_> = protocols.iter().map(|it| it.to_vec()).collect();
        let config = ArcSwap::from_pointee(read(&files, &protocols)?);
        Ok(Self { files, protocols, config })
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// As [`TlsServer::load`]; the certificates that serve stay.
    pub fn reload(&self) -> Result<(), TlsServerError> {
        self.config.store(Arc::new(read(&self.files, &self.protocols)?));
        Ok(())
    }

    /// Which files these are.
    pub fn files(&self) -> &TlsServerFiles {
        &self.files
    }

    /// Shakes hands with whoever has connected. Takes as long as the client likes: bound it.
    ///
    /// # Errors
    /// Where the client speaks no TLS, trusts another certificate, has none that we want, or leaves.
    pub async fn handshake<S>(&self, stream: S) -> io::Result<TlsServerStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        TlsAcceptor::from(self.config.load_full()).accept(stream).await
    }
}

/// What ALPN has settled on, if both sides know it.
pub fn negotiated_protocol<S>(stream: &TlsServerStream<S>) -> Option<&[u8]> {
    stream.get_ref().1.alpn_protocol()
}

fn read(files: &TlsServerFiles, protocols: &[Vec<u8>]) -> Result<ServerConfig, TlsServerError> {
    // Other crates may bring a second provider along, so none is a default: it is named.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let unfit =
        |path: &Path, reason: String| TlsServerError::Unfit { path: path.to_owned(), reason };
    let chain = certificates(&files.certificates)?;
    let key = PrivateKeyDer::from_pem_slice(&pem(&files.key)?).map_err(|error| {
        use rustls::pki_types::pem::Error::NoItemsFound;
        let reason = match error {
            NoItemsFound => "there is no private key in it".to_owned(),
            error => format!("it is not a private key in PEM: {error}"),
        };
        unfit(&files.key, reason)
    })?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unfit(&files.certificates, error.to_string()))?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| unfit(path, error.to_string()))?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
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
    // Sessions are resumed from tickets that clients keep, not from memory that we would have to bound. New
    // files mean new ticket keys, so nobody resumes past an authority that was taken away.
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()
        .map_err(|error| unfit(&files.key, error.to_string()))?;
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsServerError> {
    let unfit = |reason: String| TlsServerError::Unfit { path: path.to_owned(), reason };
    let list: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem(path)?).collect();
    let list = list.map_err(|error| unfit(format!("it is not valid PEM: {error}")))?;
    if list.is_empty() {
        return Err(unfit("there is no certificate in it".to_owned()));
    }
    Ok(list)
}

fn pem(path: &Path) -> Result<Vec<u8>, TlsServerError> {
    use std::io::Read;
    let unreadable =
        |reason: io::Error| TlsServerError::Unreadable { path: path.to_owned(), reason };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(PEM_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > PEM_BYTES_MAX {
        let reason = "it is larger than 1 MiB".to_owned();
        return Err(TlsServerError::Unfit { path: path.to_owned(), reason });
    }
    Ok(bytes)
}
