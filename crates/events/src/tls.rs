//! TLS files for connections to brokers: trusted authorities and the router's own certificate. Each provider makes its
//! connections from them.

use std::path::{Path, PathBuf};

use net::{Roots, TlsClient, TlsIdentity};

/// The maximum size of a PEM file. The whole list of authorities that Mozilla trusts has 0.2 MB.
const PEM_BYTES_MAX: u64 = 1024 * 1024;

/// Files in PEM format. NATS and Kafka providers read them again for each new client, so certificates can be replaced.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct BrokerTls {
    /// The authorities that may sign the broker's certificate. `None` trusts the authorities of the system.
    pub ca: Option<PathBuf>,
    /// The router's own certificate with its intermediate certificates. It requires `key`.
    pub certificate: Option<PathBuf>,
    /// The private key of `certificate`.
    pub key: Option<PathBuf>,
}

/// TLS files that cannot be used. Messages contain file names and never file contents.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BrokerTlsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {reason}")]
    Unreadable {
        /// The path as configured.
        path: String,
        /// The reason that the system gives.
        reason: String,
    },
    /// A certificate is configured without its key, or a key without its certificate.
    #[error("a certificate needs its key, and a key its certificate")]
    Half,
    /// The files can be read, but are not valid or do not match each other.
    #[error("{0}")]
    Unusable(String),
}

impl BrokerTls {
    /// Reads the files and makes a client. The client offers no protocol by ALPN, because brokers know none.
    ///
    /// # Errors
    /// [`BrokerTlsError`] if a file cannot be read or used.
    pub fn client(&self) -> Result<TlsClient, BrokerTlsError> {
        let [ca, certificate, key] = self.read_files()?;
        let identity = certificate.zip(key);
        let roots = ca.as_deref().map_or(Roots::Native, Roots::Pem);
        let identity =
            identity.as_ref().map(|(certificates, key)| TlsIdentity { certificates, key });
        TlsClient::new(roots, identity, &[])
            .map_err(|error| BrokerTlsError::Unusable(error.to_string()))
    }

    /// Checks that the files can be opened, for a client library that reports only later that it cannot read them.
    ///
    /// # Errors
    /// [`BrokerTlsError`] if a file cannot be opened, or if the certificate or the key is missing.
    pub(crate) fn check_files(&self) -> Result<(), BrokerTlsError> {
        self.check_pair()?;
        let files = [&self.ca, &self.certificate, &self.key];
        files.into_iter().flatten().try_for_each(|path| open(path).map(drop))
    }

    fn check_pair(&self) -> Result<(), BrokerTlsError> {
        let is_pair = self.certificate.is_some() == self.key.is_some();
        is_pair.then_some(()).ok_or(BrokerTlsError::Half)
    }

    fn read_files(&self) -> Result<[Option<Vec<u8>>; 3], BrokerTlsError> {
        self.check_pair()?;
        let read = |path: &Option<PathBuf>| path.as_deref().map(read_pem_file).transpose();
        Ok([read(&self.ca)?, read(&self.certificate)?, read(&self.key)?])
    }
}

/// Reads a file of certificates, keys or credentials, and refuses one that is larger than any of them can be.
pub(crate) fn read_pem_file(path: &Path) -> Result<Vec<u8>, BrokerTlsError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    open(path)?
        .take(PEM_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(path, error.to_string()))?;
    if bytes.len() as u64 > PEM_BYTES_MAX {
        return Err(unreadable(path, "it is larger than 1 MiB".into()));
    }
    Ok(bytes)
}

fn open(path: &Path) -> Result<std::fs::File, BrokerTlsError> {
    std::fs::File::open(path).map_err(|error| unreadable(path, error.to_string()))
}

fn unreadable(path: &Path, reason: String) -> BrokerTlsError {
    BrokerTlsError::Unreadable { path: path.display().to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> Option<PathBuf> {
        Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../net/tests/certificates").join(name))
    }

    fn error(tls: &BrokerTls) -> String {
        tls.client().map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn an_authority_and_a_certificate_with_its_key_make_a_client() {
        let ca = file("ca.pem");
        let own = BrokerTls { certificate: file("client.pem"), key: file("client.key"), ca };
        own.client().expect("they fit");
    }

    #[test]
    fn a_missing_file_is_named_and_half_an_identity_is_refused() {
        let missing = error(&BrokerTls { ca: Some("/no/such.pem".into()), ..BrokerTls::default() });
        assert!(missing.starts_with("cannot read /no/such.pem: "), "{missing}");
        let ca = file("ca.pem");
        let half = BrokerTls { key: file("client.key"), ca, certificate: None };
        assert_eq!(error(&half), BrokerTlsError::Half.to_string());
    }

    #[test]
    fn an_invalid_key_is_refused_without_being_shown() {
        let ca = file("ca.pem");
        let wrong = BrokerTls { certificate: file("client.pem"), key: file("ca.pem"), ca };
        let message = error(&wrong);
        assert!(!message.contains("BEGIN"), "{message}");
    }
}
