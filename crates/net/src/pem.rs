//! Certificates and private keys in PEM: reading their files, and parsing them for both sides of TLS.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The maximum size of a PEM file. The list of authorities that Mozilla trusts is 0.2 MB.
const PEM_BYTES_MAX: u64 = 4 << 20;

/// Reads a file of certificates, keys or credentials.
///
/// # Errors
/// The system's error, or [`io::ErrorKind::FileTooLarge`] for a file of more than 4 MiB. The message names no path.
pub fn read_pem_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed, to find out whether the file exceeds the limit.
    File::open(path)?.take(PEM_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > PEM_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 4 MiB"));
    }
    Ok(bytes)
}

/// Parses certificates.
///
/// # Errors
/// The reason in words: the text is not PEM, or contains no certificate.
pub(crate) fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| format!("it is not valid PEM: {error}"))?;
    if certificates.is_empty() {
        return Err("there is no certificate in it".to_owned());
    }
    Ok(certificates)
}

/// Parses certificates of authorities.
///
/// # Errors
/// The reason in words: see [`parse_certificates`], or a certificate cannot be an authority.
pub(crate) fn parse_authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in parse_certificates(pem)? {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(roots)
}

/// Parses a private key (PKCS #8, PKCS #1 or SEC1).
///
/// # Errors
/// The reason in words. It names the kind of mistake and never contains text of the key.
pub(crate) fn parse_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        Error::NoItemsFound => "there is no private key in it".to_owned(),
        error => format!("it is not a private key in PEM: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_over_the_limit_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large.pem");
        std::fs::write(&path, vec![b'x'; PEM_BYTES_MAX as usize]).unwrap();
        assert_eq!(read_pem_file(&path).unwrap().len() as u64, PEM_BYTES_MAX);
        std::fs::write(&path, vec![b'x'; PEM_BYTES_MAX as usize + 1]).unwrap();
        let error = read_pem_file(&path).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 4 MiB");
        let missing = read_pem_file(&folder.path().join("missing.pem")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_reason_names_what_a_text_lacks() {
        let certificate = include_bytes!("../tests/certificates/ca.pem");
        let key = include_bytes!("../tests/certificates/client.key");
        assert_eq!(parse_certificates(certificate).map(|it| it.len()), Ok(1));
        assert!(parse_key(key).is_ok());
        let reason = parse_certificates(key).unwrap_err();
        assert_eq!(reason, "there is no certificate in it");
        assert_eq!(parse_key(certificate).unwrap_err(), "there is no private key in it");
        let cut_off = &certificate[..certificate.len() / 2];
        let reason = parse_authorities(cut_off).unwrap_err();
        assert!(reason.starts_with("it is not valid PEM: "), "{reason}");
    }
}
