//! TLS to brokers: the files that say whom the router trusts and who it is. How a connection is made from them
//! is the business of each provider.

use std::path::{Path, PathBuf};

use net::{Identity, Roots, TlsClient};

/// Largest PEM file that is read: the whole list of authorities that Mozilla trusts is 0.2 MB.
const PEM_BYTES_MAX: u64 = 1024 * 1024;

/// Files in PEM. Providers that connect anew read them anew, so certificates can be replaced.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct BrokerTls {
    /// Who may have signed the broker's certificate; none: those that the system trusts.
    pub ca: Option<PathBuf>,
    /// The router's own certificate and those between it and the root; it comes with `key`.
    pub certificate: Option<PathBuf>,
    /// The private key of `certificate`.
    pub key: Option<PathBuf>,
}

/// Files that cannot be used. Messages name files and never show what is in them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BrokerTlsError {
    /// One of them cannot be read.
    #[error("cannot read {path}: {reason}")]
    Unreadable {
        /// As configured.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("a certificate needs its key, and a key its certificate")]
    Half,
    /// They can be read, but mean nothing or do not fit each other.
    #[error("{0}")]
    Unusable(String),
}

impl BrokerTls {
    /// Reads the files. No protocol is offered by ALPN: brokers know none.
    ///
    /// # Errors
    /// [`BrokerTlsError`] where a file cannot be read or used.
    pub fn client(&self) -> Result<TlsClient, BrokerTlsError> {
        let file = |path: &Option<PathBuf>| path.as_deref().map(read_pem_file).transpose();
        let ca = file(&self.ca)?;
        let identity = match (file(&self.certificate)?, file(&self.key)?) {
            (None, None) => None,
            (Some(certificates), Some(key)) => Some((certificates, key)),
            _ => return Err(BrokerTlsError::Half),
        };
        let roots = ca.as_deref().map_or(Roots::Native, Roots::Pem);
        let identity = identity.as_ref().map(|(certificates, key)| Identity { certificates, key });
        TlsClient::new(roots, identity, &[])
            .map_err(|error| BrokerTlsError::Unusable(error.to_string()))
    }
}

/// Reads a file of certificates, keys or credentials, if it is not larger than any of them can be.
pub(crate) fn read_pem_file(path: &Path) -> Result<Vec<u8>, BrokerTlsError> {
    use std::io::Read;
    let unreadable =
        |reason: String| BrokerTlsError::Unreadable { path: path.display().to_string(), reason };
    let file = std::fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(PEM_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > PEM_BYTES_MAX {
        return Err(unreadable("it is larger than 1 MiB".into()));
    }
    Ok(bytes)
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
    fn a_file_that_is_not_there_is_named_and_half_an_identity_is_refused() {
        let missing = error(&BrokerTls { ca: Some("/no/such.pem".into()), ..BrokerTls::default() });
        assert!(missing.starts_with("cannot read /no/such.pem: "), "{missing}");
        let ca = file("ca.pem");
        let half = BrokerTls { key: file("client.key"), ca, certificate: None };
        assert_eq!(error(&half), BrokerTlsError::Half.to_string());
    }

    #[test]
    fn a_key_that_is_no_key_is_refused_without_being_shown() {
        let ca = file("ca.pem");
        let wrong = BrokerTls { certificate: file("client.pem"), key: file("ca.pem"), ca };
        let message = error(&wrong);
        assert!(!message.contains("BEGIN"), "{message}");
    }
}
